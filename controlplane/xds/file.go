package xds

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/guideway/guideway/controlplane/envoy"
)

// fileSource reads the resources of one subscription from a file, at first and each time that something
// is moved onto its path (or into watched_directory). It parses on a goroutine of its own; files that
// come faster than they are read are skipped, but for the last.
type fileSource struct {
	sub   *Subscription
	path  string
	kick  chan struct{}
	done  chan struct{}
	watch *fileWatch
}

func (c *Client) watchFile(s *Subscription, p *corev3.PathConfigSource) error {
	if c.files == nil {
		w, err := newFileWatcher(c.Log)
		if err != nil {
			return fmt.Errorf("%s: %w", s.typ, err)
		}
		c.files = w
	}
	f := &fileSource{sub: s, path: p.GetPath(), kick: make(chan struct{}, 1), done: make(chan struct{})}
	dir, name := filepath.Dir(f.path), filepath.Base(f.path)
	if d := p.GetWatchedDirectory().GetPath(); d != "" {
		dir, name = d, "" // whatever is moved there
	}
	var err error
	if f.watch, err = c.files.add(dir, name, f.changed); err != nil {
		return fmt.Errorf("%s: watching %s: %w", s.typ, f.path, err)
	}
	s.file = f
	f.changed() // after the watch, so that no change is lost between the two
	go f.run()
	return nil
}

// changed has the file read again; it never blocks.
func (f *fileSource) changed() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

func (f *fileSource) close() {
	f.sub.client.files.remove(f.watch)
	close(f.done)
}

func (f *fileSource) run() {
	for {
		select {
		case <-f.done:
			return
		case <-f.kick:
		}
		r, err := f.read()
		began := f.sub.client.Clock.Now()
		f.sub.client.Post(func() {
			if f.sub.closed || f.sub.client.closed {
				return
			}
			if err != nil {
				f.failed(err)
				return
			}
			f.sub.fromFile(r, began)
		})
	}
}

// read reads and parses the file.
func (f *fileSource) read() (*Response, error) {
	p := f.sub.client.parser
	m := &discoveryv3.DiscoveryResponse{}
	var notes envoy.Notes
	if !plainJSON(f.path, m) {
		var err error
		if notes, err = envoy.ReadMessage(f.path, m, p.env.Load().RejectUnknown); err != nil {
			return nil, err
		}
	}
	if m.TypeUrl == "" {
		m.TypeUrl = f.sub.typ.URL()
	}
	r := p.sotw(m, &memo{})
	if r.URL != f.sub.typ.URL() {
		r.Err = &foreignType{got: r.URL, want: f.sub.typ.URL()}
	}
	if len(r.Resources) > 0 {
		first := &r.Resources[0].Notes
		first.Warnings = append(first.Warnings, notes.Warnings...)
		first.UnknownFields += notes.UnknownFields
	}
	return r, nil
}

// plainJSON reads a file that is JSON without anything to explain: a large file of endpoints may be read
// often, and one pass is enough.
func plainJSON(path string, m *discoveryv3.DiscoveryResponse) bool {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".pb", ".pb_text":
		return false
	}
	text, err := os.ReadFile(path)
	if err != nil || !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		return false
	}
	if protojson.Unmarshal(text, m) != nil {
		proto.Reset(m)
		return false
	}
	return true
}

// failed: the file cannot be read or parsed. What there was stays.
func (f *fileSource) failed(err error) {
	s := f.sub
	s.stats.attempt.Inc()
	s.stats.failure.Inc()
	s.client.Log.Warn("Filesystem config update failure: "+err.Error(), "file", f.path)
	s.watcher.Missing()
}

// fromFile takes what a file says. A file for endpoints speaks of one cluster.
func (s *Subscription) fromFile(r *Response, began time.Time) {
	u := Update{Resources: r.Resources, Full: s.typ.wildcard(), Version: r.Version}
	err := r.Err
	if err == nil && !s.typ.wildcard() {
		switch n := len(r.Resources); {
		case n > 1:
			err = fmt.Errorf("Unexpected EDS resource length: %d", n) //nolint:staticcheck // Envoy's text
		case n == 1 && r.Resources[0].Name != s.name:
			err = fmt.Errorf("Unexpected EDS cluster (expecting %s): %s", s.name, r.Resources[0].Name) //nolint:staticcheck // Envoy's text
		}
	}
	if err == nil {
		err = s.take(u, began)
	} else {
		s.outcome(err, u.Version, began)
	}
	if err != nil {
		var some *Refusal
		if !errors.As(err, &some) {
			s.client.Log.Warn(fmt.Sprintf("%s: %s '%s' config rejected: %v", s.typ, s.kind(), s.name, err))
		}
		s.client.Log.Warn("Filesystem config update rejected: " + err.Error())
		s.watcher.Missing()
	}
}

// kind is what the subscription's resources describe, for logs.
func (s *Subscription) kind() string {
	if s.typ == Listeners {
		return "listener"
	}
	return "cluster"
}
