package xds

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Stored is a resource as it came.
type Stored struct {
	Name, Version string
	Message       proto.Message
}

// State is everything that came by xDS.
type State struct{ Clusters, Endpoints, Listeners []Stored }

// Store keeps the last State in a directory, in one file that is replaced as a whole. Saving happens on
// a goroutine of its own; states that come faster than they are written are skipped, but for the last.
type Store struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	waiting *State
	more    chan struct{}
	done    chan struct{}
	err     error
}

// storeName is the file: three DeltaDiscoveryResponses (cds, eds, lds), each after its length.
const storeName = "xds-state.pb"

// OpenStore makes the directory if it is not there.
func OpenStore(dir string, log *slog.Logger) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	s := &Store{path: filepath.Join(dir, storeName), log: log, more: make(chan struct{}, 1), done: make(chan struct{})}
	go s.run()
	return s, nil
}

// Load reads the stored state, empty if there is none.
func (s *Store) Load() (State, error) {
	var state State
	text, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return state, nil
	}
	if err != nil {
		return state, fmt.Errorf("state directory: %w", err)
	}
	r := bytes.NewReader(text)
	for t, list := range []*[]Stored{&state.Clusters, &state.Endpoints, &state.Listeners} {
		m := &discoveryv3.DeltaDiscoveryResponse{}
		if err := (protodelim.UnmarshalOptions{MaxSize: -1}).UnmarshalFrom(r, m); err != nil {
			return State{}, fmt.Errorf("%s is damaged (%w); it is written anew with the next change", s.path, err)
		}
		for _, x := range m.GetResources() {
			one := []proto.Message{&clusterv3.Cluster{}, &endpointv3.ClusterLoadAssignment{}, &listenerv3.Listener{}}[t]
			if err := x.GetResource().UnmarshalTo(one); err != nil {
				return State{}, fmt.Errorf("%s: resource %q is damaged: %w", s.path, x.GetName(), err)
			}
			*list = append(*list, Stored{x.GetName(), x.GetVersion(), one})
		}
	}
	return state, nil
}

// Save stores a state soon. Its messages must not change.
func (s *Store) Save(state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = &state
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// Close returns when the last state is stored. The error is that of its writing.
func (s *Store) Close() error {
	close(s.more)
	<-s.done
	return s.err
}

func (s *Store) run() {
	defer close(s.done)
	for range s.more {
		s.mu.Lock()
		state := s.waiting
		s.waiting = nil
		s.mu.Unlock()
		if state == nil {
			continue
		}
		if err := s.write(state); err != nil {
			if s.err == nil {
				s.log.Error("the state cannot be stored", "reason", err)
			}
			s.err = err
		} else {
			s.err = nil
		}
	}
}

func (s *Store) write(state *State) error {
	var b bytes.Buffer
	for _, list := range [][]Stored{state.Clusters, state.Endpoints, state.Listeners} {
		m := &discoveryv3.DeltaDiscoveryResponse{}
		for _, x := range list {
			packed, err := anypb.New(x.Message)
			if err != nil {
				return fmt.Errorf("resource %q: %w", x.Name, err)
			}
			m.Resources = append(m.Resources, &discoveryv3.Resource{Name: x.Name, Version: x.Version, Resource: packed})
		}
		if _, err := protodelim.MarshalTo(&b, m); err != nil {
			return err
		}
	}
	return replaceFile(s.path, b.Bytes())
}

// replaceFile writes a file beside its place and moves it there, so that a reader, or a crash, finds the
// old content or the new one.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone by then if all went well
	if _, err = f.Write(content); err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
