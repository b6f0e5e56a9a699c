package controlplane

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// quietTime is how long a file must stay as it is before it is read: programs write in pieces.
const quietTime = 100 * time.Millisecond

// Watch calls changed, on a goroutine of its own, each time the content of the file at path has become
// another and stays so for a moment: renamed into place, written in place, or reached through a link that
// points elsewhere now (as Kubernetes mounts). A file that disappears is no change. It returns once it
// watches; watching ends with ctx.
func Watch(ctx context.Context, path string, changed func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching %s: %w", path, err)
	}
	// Renames and links show in the directory, not in the file.
	if err := w.Add(filepath.Dir(path)); err != nil {
		w.Close()
		return fmt.Errorf("watching %s: %w", path, err)
	}
	last, _ := contentOf(path)
	go func() {
		defer w.Close()
		quiet := time.NewTimer(0)
		if !quiet.Stop() {
			<-quiet.C
		}
		for {
			select {
			case <-ctx.Done():
				return
			case _, ok := <-w.Events:
				if !ok {
					return
				}
				quiet.Reset(quietTime)
			case <-w.Errors:
				// Events were lost: look.
				quiet.Reset(quietTime)
			case <-quiet.C:
				now, err := contentOf(path)
				if err != nil || now == last {
					continue
				}
				last = now
				changed()
			}
		}
	}()
	return nil
}

// contentOf returns the digest of a file's content.
func contentOf(path string) ([sha256.Size]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return [sha256.Size]byte{}, err
	}
	return sha256.Sum256(b), err
}
