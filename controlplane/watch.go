package controlplane

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quietTime is how long a file must stay as it is before it is read: programs write in pieces.
	quietTime = 100 * time.Millisecond
	// lookTime is how often a file is looked at although no event told of it: a link may lead out of the
	// directory, the directory may be replaced, and network file systems and bind mounts tell nothing.
	lookTime = time.Second
)

// stamp tells one state of a file from another without reading it.
type stamp struct {
	device, inode       uint64
	size                int64
	modified, attribute syscall.Timespec
}

// stampOf returns the stamp of the regular file that path leads to; if there is none, the zero stamp.
func stampOf(path string) stamp {
	var s syscall.Stat_t
	if err := syscall.Stat(path, &s); err != nil || s.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return stamp{}
	}
	return stamp{uint64(s.Dev), s.Ino, s.Size, s.Mtim, s.Ctim}
}

// watched is a file that is looked at from time to time.
type watched struct {
	path      string
	read, now stamp // as of the last reading, and of the last look
	content   [sha256.Size]byte
}

// look reports whether the content has become another and has stayed so for a moment, and when to look again.
func (w *watched) look() (changed bool, again time.Duration) {
	before := w.now
	w.now = stampOf(w.path)
	switch w.now {
	case w.read, stamp{}: // a file that disappears is no change
		return false, lookTime
	case before:
	default:
		return false, quietTime
	}
	content, err := contentOf(w.path)
	if err != nil {
		return false, lookTime
	}
	w.read = w.now
	changed = content != w.content
	w.content = content
	return changed, lookTime
}

// Watch calls changed, on a goroutine of its own, each time the content of the file at path has become
// another and stays so for a moment: renamed into place, written in place, or reached through a link that
// points elsewhere now (as Kubernetes mounts). A file that disappears is no change. It returns once it
// watches; watching ends with ctx.
func Watch(ctx context.Context, path string, changed func()) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("watching %s: it is no regular file, and can be read only once", path)
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching %s: %w", path, err)
	}
	// Renames and links show in the directory, not in the file.
	if err := w.Add(filepath.Dir(path)); err != nil {
		w.Close()
		return fmt.Errorf("watching %s: %w", path, err)
	}
	known := stampOf(path)
	file := &watched{path: path, read: known, now: known}
	if known != (stamp{}) {
		file.content, _ = contentOf(path)
	}
	go func() {
		defer w.Close()
		// A look that is due is never put off: other files in the directory may change all the time.
		timer := time.NewTimer(0)
		var due time.Time
		soon := func() {
			if t := time.Now().Add(quietTime); t.Before(due) {
				due = t
				timer.Reset(quietTime)
			}
		}
		for {
			select {
			case <-ctx.Done():
				return
			case _, ok := <-w.Events:
				if !ok {
					return
				}
				soon()
			case <-w.Errors: // events were lost
				soon()
			case <-timer.C:
				yes, again := file.look()
				due = time.Now().Add(again)
				timer.Reset(again)
				if yes {
					changed()
				}
			}
		}
	}()
	return nil
}

// contentOf returns the digest of a file's content.
func contentOf(path string) ([sha256.Size]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return [sha256.Size]byte{}, err
	}
	return sha256.Sum256(b), nil
}
