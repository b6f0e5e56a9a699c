package xdp

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Mode is where the program runs.
type Mode uint8

// Modes.
const (
	// Native runs in the driver.
	Native Mode = iota
	// Generic runs in the stack, on any interface, several times slower.
	Generic
)

// String returns the name that metrics and logs have.
func (m Mode) String() string { return [...]string{"native", "generic"}[m] }

func (m Mode) flags() link.XDPAttachFlags {
	if m == Native {
		return link.XDPDriverMode
	}
	return link.XDPGenericMode
}

// attachment is the program on an interface, by a pinned link.
type attachment struct {
	device device
	mode   Mode
	link   link.Link
	peer   link.Link // of the pass program on a veth's other end; nil without
}

// adoptLink returns the link that a former agent pinned for an interface, nil if there is none that is still
// attached there.
func adoptLink(dir string, d device) (link.Link, error) {
	path := linkPin(dir, d.name)
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the pinned link %s: %w", path, err)
	}
	info, err := l.Info()
	if err == nil && info.XDP() != nil && int(info.XDP().Ifindex) == d.ifindex {
		return l, nil
	}
	// The interface it was for is gone; one of its name has come.
	l.Close()
	if err := os.Remove(path); err != nil {
		return nil, fmt.Errorf("remove the link of an interface that is gone: %w", err)
	}
	return nil, nil
}

func linkPin(dir, name string) string { return filepath.Join(dir, "link-"+name) }

// attach puts the program on an interface, and pins that.
func attach(dir string, d device, prog *ebpf.Program, mode Mode) (link.Link, error) {
	l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: d.ifindex, Flags: mode.flags()})
	if err != nil {
		return nil, d.attachError(mode, err)
	}
	if err := l.Pin(linkPin(dir, d.name)); err != nil {
		l.Close()
		return nil, fmt.Errorf("pin the program on %s: %w", d.name, err)
	}
	return l, nil
}

// errForeign says that an interface has a program of somebody else.
var errForeign = errors.New("another XDP program is attached")

// oneBuffer is about the MTU up to which frames fit a page with head and tail room; drivers differ.
const oneBuffer = 3500

// errMTU says that frames are longer than the driver gives a program that reads single buffers.
var errMTU = errors.New("the MTU is too large for XDP without frags")

func (d device) attachError(mode Mode, err error) error {
	if now, e := findDevice(d.name); e == nil && now.foreign != 0 && (errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST)) {
		return fmt.Errorf("interface %s: %w (id %d, name %q): it is left alone; detach it ('ip link set dev %s xdp off'), or name another interface", d.name, errForeign, now.foreign, now.foreignName, d.name)
	}
	if d.mtu > oneBuffer && (errors.Is(err, unix.ERANGE) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)) {
		return fmt.Errorf("interface %s, %s mode: %w: the MTU is %d, about %d is the limit ('ip link set dev %s mtu %d'): %w", d.name, mode, errMTU, d.mtu, oneBuffer, d.name, oneBuffer, err)
	}
	return fmt.Errorf("attach to interface %s in %s mode: %w%s", d.name, mode, err, d.queueHint())
}

func programName(id uint32) string {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return ""
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return ""
	}
	return info.Name
}

// openPeer makes the other end of a veth take what XDP sends: Linux counts such packets as sent and throws
// them away unless the peer runs a program itself. A peer in another namespace is out of reach.
func openPeer(dir string, d device, log *slog.Logger) (link.Link, error) {
	if d.kind != "veth" {
		return nil, nil
	}
	if d.peer == 0 {
		log.Warn("the other end of this veth is in another namespace: it needs an XDP program (one that passes everything will do), or what is sent back through it is lost in silence",
			"interface", d.name, "do", "attach one there, or use dataplane xdp-generic")
		return nil, nil
	}
	path := linkPin(dir, fmt.Sprintf("%s-peer", d.name))
	if l, err := link.LoadPinnedLink(path, nil); err == nil {
		return l, nil
	}
	p, err := PassProgram()
	if err != nil {
		return nil, err
	}
	defer p.Close()
	l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: d.peer, Flags: link.XDPDriverMode})
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
		return nil, nil // it has one
	}
	if err != nil {
		return nil, fmt.Errorf("attach a program to the other end of %s, so that it takes what XDP sends: %w", d.name, err)
	}
	if err := l.Pin(path); err != nil {
		l.Close()
		return nil, fmt.Errorf("pin the program on the other end of %s: %w", d.name, err)
	}
	return l, nil
}

// PassProgram returns a program that passes everything to the stack.
func PassProgram() (*ebpf.Program, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "guideway_pass", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}, // XDP_PASS
	})
	if err != nil {
		return nil, fmt.Errorf("load a program that passes everything: %w", err)
	}
	return p, nil
}

// modeOf returns the mode of the program that an interface has.
func modeOf(ifindex int) (Mode, error) {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return 0, err
	}
	x := l.Attrs().Xdp
	if x == nil || !x.Attached {
		return 0, errors.New("no program is attached")
	}
	if x.AttachMode == nl.XDP_ATTACHED_SKB {
		return Generic, nil
	}
	return Native, nil
}
