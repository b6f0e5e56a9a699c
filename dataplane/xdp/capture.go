package xdp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/guideway/guideway/bpf"
)

// errCapturing says that one is on its way: samples go to one reader.
var errCapturing = errors.New("packets are being captured already")

// Capture writes the packets of a listener as pcap-ng, with an interface "before" and one "after" forwarding, until
// ctx ends or limit packets have been written. tcpdump does not see what XDP takes.
func (p *Plane) Capture(ctx context.Context, listener string, every uint32, limit int, w io.Writer) error {
	if !p.capturing.TryLock() {
		return errCapturing
	}
	defer p.capturing.Unlock()
	if p.program == nil {
		return errors.New("there is no program to capture from")
	}
	ng, err := newPacketWriter(w, listener)
	if err != nil {
		return err
	}
	samples, err := ringbuf.NewReader(p.program.all.Samples)
	if err != nil {
		return fmt.Errorf("read samples: %w", err)
	}
	defer samples.Close()
	stop := context.AfterFunc(ctx, func() { samples.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	id, err := p.setCapture(listener, max(every, 1))
	if err != nil {
		return err
	}
	defer p.setCapture(listener, 0)

	began := time.Now().Add(-p.now()) // the wall clock at the zero of CLOCK_MONOTONIC
	for n := 0; limit == 0 || n < limit; {
		r, err := samples.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ringbuf.ErrClosed) {
			return ng.w.Flush()
		}
		if err != nil {
			return fmt.Errorf("read samples: %w", err)
		}
		var s bpf.Sample
		if _, err := binary.Decode(r.RawSample, binary.NativeEndian, &s); err != nil {
			return fmt.Errorf("read a sample: %w", err)
		}
		if s.Service != id {
			continue // of a capture before
		}
		if err := ng.write(&s, began); err != nil {
			return err
		}
		n++
	}
	return ng.w.Flush()
}

// setCapture turns the samples of a listener on (one packet in every) or off (0), and returns its service's id.
func (p *Plane) setCapture(listener string, every uint32) (uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.services[listener]
	if s == nil {
		return 0, fmt.Errorf("listener %q does not run in XDP", listener)
	}
	if p.closed {
		return 0, errClosed
	}
	if every > 0 && p.program.switches.Capture == 0 {
		want := p.program.switches
		want.Capture = 1
		if err := p.program.reload(want, p.program.frags); err != nil {
			return 0, fmt.Errorf("load the program with capture (it takes Linux 5.18): %w", err)
		}
	}
	s.capture = every
	return s.placed.id, p.publish(s)
}

// packetWriter writes samples as pcap-ng.
type packetWriter struct{ w *pcapgo.NgWriter }

func newPacketWriter(w io.Writer, listener string) (*packetWriter, error) {
	side := func(name string) pcapgo.NgInterface {
		return pcapgo.NgInterface{
			Name: name, Description: "listener " + listener + ", " + name + " forwarding",
			LinkType: layers.LinkTypeEthernet, SnapLength: uint32(len(bpf.Sample{}.Bytes)), TimestampResolution: 9,
		}
	}
	ng, err := pcapgo.NewNgWriterInterface(w, side("before"), pcapgo.DefaultNgWriterOptions)
	if err != nil {
		return nil, fmt.Errorf("begin the capture file: %w", err)
	}
	if _, err := ng.AddInterface(side("after")); err != nil {
		return nil, fmt.Errorf("begin the capture file: %w", err)
	}
	return &packetWriter{ng}, nil
}

func (p *packetWriter) write(s *bpf.Sample, began time.Time) error {
	captured := min(int(s.Captured), len(s.Bytes))
	err := p.w.WritePacket(gopacket.CaptureInfo{
		Timestamp: began.Add(time.Duration(s.Time)), CaptureLength: captured, Length: max(int(s.Length), captured), InterfaceIndex: int(s.After),
	}, s.Bytes[:captured])
	if err != nil {
		return fmt.Errorf("write a packet: %w", err)
	}
	return p.w.Flush()
}
