package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/bpf"
)

// DefaultPins is where maps and links are pinned.
const DefaultPins = "/sys/fs/bpf/guideway"

// bpffs is where systems mount a bpffs.
const bpffs = "/sys/fs/bpf"

// openPins makes the directory for pins, and mounts a bpffs where none is: on /sys/fs/bpf for a directory
// there, else on the directory itself.
func openPins(dir string) error {
	if under, _ := filepath.Rel(bpffs, dir); under != "" && !strings.HasPrefix(under, "..") {
		if err := mountBPF(bpffs); err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make a directory for pins: %w", err)
		}
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make a directory for pins: %w", err)
	}
	return mountBPF(dir)
}

// mountBPF mounts a bpffs if the directory is in none.
func mountBPF(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("look for a bpffs at %s: %w", dir, err)
	}
	if fs.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	if err := unix.Mount("bpf", dir, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("no bpffs is mounted at %s, and mounting one failed (it takes CAP_SYS_ADMIN; 'mount -t bpf bpf %s' as root does it): %w", dir, dir, err)
	}
	return nil
}

// schemaOf is a number that changes with the layout of the maps, but not with their sizes.
func schemaOf(spec *ebpf.CollectionSpec) uint64 {
	var names []string
	for name := range spec.Maps {
		if name[0] != '.' {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	h := fnv.New64a()
	fmt.Fprintf(h, "%d;", layoutVersion)
	for _, name := range names {
		m := spec.Maps[name]
		fmt.Fprintf(h, "%s %v %d %d %x;", name, m.Type, m.KeySize, m.ValueSize, m.Flags)
	}
	return h.Sum64()
}

// layoutVersion is raised when fields change their meaning and no size does.
const layoutVersion = 1

// schemaMap holds the schema of the maps beside it.
func schemaMap(dir string) (*ebpf.Map, error) {
	return ebpf.NewMapWithOptions(&ebpf.MapSpec{
		Name: "schema", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Pinning: ebpf.PinByName,
	}, ebpf.MapOptions{PinPath: dir})
}

// checkSchema compares the schema of pinned maps with that of this program. Maps of another layout are
// removed, since nothing in them can be told to the new program; lost says how many remembered flows they
// held. fresh is set if nothing was there.
func checkSchema(dir string, schema uint64) (fresh bool, lost int, err error) {
	m, err := schemaMap(dir)
	if err != nil {
		return false, 0, fmt.Errorf("open the pinned schema: %w", err)
	}
	defer m.Close()
	var had [8]byte
	if err := m.Lookup(uint32(0), &had); err != nil {
		return false, 0, fmt.Errorf("read the pinned schema: %w", err)
	}
	switch was := binary.NativeEndian.Uint64(had[:]); was {
	case schema:
		return false, 0, nil
	case 0:
		fresh = true
	default:
		for _, name := range []string{"flows4", "flows6", "half_open4", "half_open6", "nat_flows"} {
			if old, err := ebpf.LoadPinnedMap(filepath.Join(dir, name), nil); err == nil {
				lost += countEntries(old)
				old.Close()
			}
		}
	}
	if err := removeMaps(dir); err != nil {
		return fresh, lost, err
	}
	binary.NativeEndian.PutUint64(had[:], schema)
	if err := m.Put(uint32(0), had[:]); err != nil {
		return fresh, lost, fmt.Errorf("note the schema: %w", err)
	}
	return fresh, lost, nil
}

func countEntries(m *ebpf.Map) int {
	n := 0
	key := make([]byte, m.KeySize())
	next := make([]byte, m.KeySize())
	for err := m.NextKey(nil, next); err == nil; err = m.NextKey(key, next) {
		n++
		copy(key, next)
	}
	return n
}

// removeMaps removes the pins of all maps but the schema.
func removeMaps(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look at what is pinned: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "link-") || e.Name() == "schema" || notOurs(e) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove an outdated map: %w", err)
		}
	}
	return nil
}

// pinnedCapacity returns the sizes of the maps that are pinned already, which new ones must have; fields
// of maps that are not are as in want.
func pinnedCapacity(dir string, want bpf.Capacity) bpf.Capacity {
	for name, n := range map[string]*uint32{
		"services4": &want.Services, "tables": &want.Tables, "backends": &want.Backends, "flows4": &want.Flows,
		"half_open4": &want.HalfOpen, "fragments": &want.Fragments, "nat_flows": &want.NATFlows,
		"devices": &want.Devices, "samples": &want.Samples,
	} {
		if m, err := ebpf.LoadPinnedMap(filepath.Join(dir, name), nil); err == nil {
			*n = m.MaxEntries()
			m.Close()
		}
	}
	return want
}

// Detached is what Detach removed.
type Detached struct {
	Interfaces []string
	Maps       int
}

// Detach takes the program off all interfaces and removes everything that is pinned in dir. Traffic for VIPs
// goes to the stack from then on.
func Detach(dir string) (Detached, error) {
	var d Detached
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return d, fmt.Errorf("look at what is pinned: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if notOurs(e) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if name, ok := strings.CutPrefix(e.Name(), "link-"); ok {
			// The pin is what holds the link; a running agent holds it too, so the link is told.
			if l, err := link.LoadPinnedLink(path, nil); err == nil {
				if err := detachLink(l); err != nil {
					errs = append(errs, fmt.Errorf("detach from %s: %w", name, err))
				}
				l.Close()
			}
			d.Interfaces = append(d.Interfaces, name)
		} else {
			d.Maps++
		}
		if err := os.Remove(path); err != nil {
			errs = append(errs, err)
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
		errs = append(errs, err)
	}
	return d, errors.Join(errs...)
}

// notOurs tells what is in a bpffs besides our pins: directories, and the kernel's own files at its root.
func notOurs(e os.DirEntry) bool { return e.IsDir() || strings.HasSuffix(e.Name(), ".debug") }

// detachLink ends a link for all who hold it.
func detachLink(l link.Link) error {
	err := l.Detach()
	if errors.Is(err, link.ErrNotSupported) {
		return nil
	}
	return err
}
