package xds

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// fileWatcher calls back when something is moved into a directory. Only that: a file that is written or
// created in place is seen half written by whoever looks, so Envoy reads what is renamed onto the path,
// and nothing else. The usual libraries do not tell a rename from a creation, hence inotify(7) itself;
// one instance serves all files, since a user may have but 128.
type fileWatcher struct {
	log     *slog.Logger
	fd      int
	inotify *os.File

	mu   sync.Mutex
	dirs map[string]*watchedDir
	ids  map[int32]*watchedDir
}

type watchedDir struct {
	path    string
	id      int32
	watches map[*fileWatch]bool
}

// fileWatch waits for one name in one directory; "" is any name.
type fileWatch struct {
	dir     *watchedDir
	name    string
	changed func()
}

func newFileWatcher(log *slog.Logger) (*fileWatcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watching files: inotify: %w (see fs.inotify.max_user_instances)", err)
	}
	w := &fileWatcher{log: log, fd: fd, inotify: os.NewFile(uintptr(fd), "inotify"), dirs: map[string]*watchedDir{}, ids: map[int32]*watchedDir{}}
	go w.run()
	return w, nil
}

func (w *fileWatcher) add(dir, name string, changed func()) (*fileWatch, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.dirs[dir]
	if d == nil {
		id, err := unix.InotifyAddWatch(w.fd, dir, unix.IN_MOVED_TO|unix.IN_ONLYDIR)
		if err != nil {
			return nil, fmt.Errorf("inotify on %s: %w", dir, err)
		}
		if d = w.ids[int32(id)]; d == nil { // another path to the same directory has the same id
			d = &watchedDir{path: dir, id: int32(id), watches: map[*fileWatch]bool{}}
			w.ids[d.id] = d
		}
		w.dirs[dir] = d
	}
	f := &fileWatch{dir: d, name: name, changed: changed}
	d.watches[f] = true
	return f, nil
}

func (w *fileWatcher) remove(f *fileWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := f.dir
	delete(d.watches, f)
	if len(d.watches) > 0 {
		return
	}
	for path, x := range w.dirs {
		if x == d {
			delete(w.dirs, path)
		}
	}
	delete(w.ids, d.id)
	_, _ = unix.InotifyRmWatch(w.fd, uint32(d.id)) // it may be gone with its directory
}

func (w *fileWatcher) run() {
	buf := make([]byte, 64<<10)
	for {
		n, err := w.inotify.Read(buf)
		if err != nil {
			return // closed
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			id := int32(binary.NativeEndian.Uint32(b[0:]))
			mask := binary.NativeEndian.Uint32(b[4:])
			length := int(binary.NativeEndian.Uint32(b[12:]))
			name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+length]), "\x00")
			b = b[unix.SizeofInotifyEvent+length:]
			w.dispatch(id, mask, name)
		}
	}
}

func (w *fileWatcher) dispatch(id int32, mask uint32, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if mask&unix.IN_Q_OVERFLOW != 0 {
		// Events were lost: look at everything.
		for _, d := range w.ids {
			for f := range d.watches {
				f.changed()
			}
		}
		return
	}
	d := w.ids[id]
	if d == nil {
		return
	}
	if mask&unix.IN_IGNORED != 0 {
		w.log.Warn("a watched directory is gone; files in it are not read again", "directory", d.path)
		return
	}
	for f := range d.watches {
		if f.name == "" || f.name == name {
			f.changed()
		}
	}
}

func (w *fileWatcher) close() { w.inotify.Close() }
