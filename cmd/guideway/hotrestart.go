package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/guideway/guideway/controlplane"
	"github.com/guideway/guideway/controlplane/admin"
	"github.com/guideway/guideway/controlplane/hotrestart"
	"github.com/guideway/guideway/dataplane/mode"
	"github.com/guideway/guideway/dataplane/proxy"
	"github.com/guideway/guideway/dataplane/stats"
)

// hotRestart is this process's part in hot restarts: it takes over from the process before, and waits
// for the next.
type hotRestart struct {
	flags  *serveFlags
	log    *slog.Logger
	server *hotrestart.Server // nil if hot restart is off

	newer        *hotrestart.Newer // nil in epoch 0
	sockets      []proxy.HandedSockets
	admin        net.Listener
	adminAddress string

	begun time.Time

	mu    sync.Mutex
	over  bool // the process before has stopped accepting
	ended bool // it has been told to end
}

// beginRestart takes the address for the next process, and the sockets of the one before.
func beginRestart(f *serveFlags, log *slog.Logger) (*hotRestart, error) {
	r := &hotRestart{flags: f, log: log, begun: time.Now()}
	if f.noHotRestart {
		return r, nil
	}
	mode, err := strconv.ParseUint(f.socketMode, 8, 9)
	if err != nil {
		return nil, err // check has refused it before
	}
	if r.server, err = f.listenForNext(fs.FileMode(mode), log); err != nil {
		return nil, err
	}
	if f.restartEpoch == 0 {
		return r, nil
	}
	if r.newer, err = hotrestart.Take(hotrestart.Name(f.socketPath, f.baseID, f.restartEpoch-1), f.restartEpoch); err == nil {
		r.sockets, r.admin, r.adminAddress, err = r.newer.Sockets()
	}
	if err != nil {
		r.close()
		return nil, fmt.Errorf("hot restart: %w", err)
	}
	log.Info("taking over from the process of the epoch before", "epoch", f.restartEpoch, "sockets", len(r.sockets))
	return r, nil
}

// listenForNext takes the address of this epoch; with --use-dynamic-base-id one that is free.
func (f *serveFlags) listenForNext(mode fs.FileMode, log *slog.Logger) (*hotrestart.Server, error) {
	const tries = 100
	for range tries {
		if f.dynamicBaseID {
			f.baseID = rand.Uint32N(1 << 31)
		}
		s, err := hotrestart.Listen(hotrestart.Name(f.socketPath, f.baseID, f.restartEpoch), mode, log)
		switch {
		case errors.Is(err, hotrestart.ErrInUse) && f.dynamicBaseID:
			continue
		case errors.Is(err, hotrestart.ErrInUse):
			// Envoy's text.
			return nil, fmt.Errorf("unable to bind domain socket with base_id=%d, id=%d, errno=98 (see --base-id option)", f.baseID, f.baseID*10+f.restartEpoch%3)
		case err != nil:
			return nil, err
		}
		if f.baseIDPath != "" {
			if err := os.WriteFile(f.baseIDPath, []byte(strconv.FormatUint(uint64(f.baseID), 10)), 0o644); err != nil {
				s.Close()
				return nil, fmt.Errorf("writing the base id: %w", err)
			}
		}
		return s, nil
	}
	return nil, errors.New("no base id is free")
}

// started is when the first process of the row started; zero for this one's start.
func (r *hotRestart) started() time.Time {
	if r.newer == nil {
		return time.Time{}
	}
	return r.newer.Info().Started
}

func (r *hotRestart) drained() []hotrestart.Drained {
	if r.newer == nil {
		return nil
	}
	return r.newer.Info().Drained
}

// adminListener is the admin listener of the process before, if it is the one that is wanted; that process
// closes its own then. nil means that it is to be bound.
func (r *hotRestart) adminListener(want netip.AddrPort) net.Listener {
	if r.newer == nil {
		return nil
	}
	if err := r.newer.CloseAdmin(); err != nil {
		r.log.Warn("the process before keeps its admin listener", "reason", err)
	}
	l := r.admin
	r.admin = nil
	if l != nil && r.adminAddress != want.String() {
		l.Close()
		return nil
	}
	return l
}

// takeOver has the process before stop accepting, counts with it until it has no flow left or its time is
// over, and ends it. It returns when that is done.
func (r *hotRestart) takeOver(ctx context.Context, store *stats.Store) {
	if r.newer == nil {
		return
	}
	if err := r.newer.Drain(); err != nil {
		r.log.Error("the process before does not stop accepting", "reason", err)
		return
	}
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.log.Info("serving; the process before drains", "ends_within_seconds", r.flags.parentShutdown)
	imported := stats.NewImported(store)
	connections := store.Gauge("server.parent_connections")
	over := time.After(time.Duration(r.flags.parentShutdown) * time.Second)
	look := time.NewTicker(time.Second)
	defer look.Stop()
	defer connections.Set(0)
	defer imported.End()
	for last := false; ; {
		left, err := r.newer.Left()
		if err != nil {
			if !r.hasEnded() {
				r.log.Warn("the process before has gone", "reason", err)
			}
			return
		}
		imported.Add(left.Totals)
		connections.Set(int64(left.Connections))
		if last || left.Flows == 0 {
			r.endBefore()
			return
		}
		select {
		case <-ctx.Done():
			return // close ends it
		case <-over:
			last = true // once more, for the counts
		case <-look.C:
		}
	}
}

func (r *hotRestart) hasEnded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// endBefore ends the process before, if that has not happened.
func (r *hotRestart) endBefore() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.newer == nil || r.ended || !r.over {
		return
	}
	r.ended = true
	if err := r.newer.Terminate(); err != nil {
		r.log.Warn("the process before cannot be told to end", "reason", err)
	}
}

// serve waits for the next process.
func (r *hotRestart) serve(o *older) {
	if r.server != nil {
		go r.server.Serve(o)
	}
}

// close ends the process's part. A process before that has stopped accepting ends too; one that has not,
// because this one failed to start, serves on.
func (r *hotRestart) close() {
	if r.newer != nil {
		r.endBefore()
		r.newer.Close()
	}
	if r.server != nil {
		r.server.Close()
	}
}

// adminDesk is the admin server, which may close and open again.
type adminDesk struct {
	config  admin.Config
	process *controlplane.Process
	mu      sync.Mutex
	server  *admin.Server // nil while closed
}

func (d *adminDesk) open(l net.Listener) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.config
	c.Listener = l
	s, err := admin.New(c, d.process)
	if err == nil {
		d.server = s
	}
	return err
}

func (d *adminDesk) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server != nil {
		d.server.Close()
		d.server = nil
	}
}

func (d *adminDesk) copy() (fd int, address string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server == nil {
		return -1, "", nil
	}
	fd, err = d.server.Copy()
	return fd, d.config.Address.String(), err
}

// older is this process as the next one sees it.
type older struct {
	flags   *serveFlags
	log     *slog.Logger
	process *controlplane.Process
	modes   *mode.Plane
	plane   *proxy.Server
	admin   *adminDesk
	store   *stats.Store
	restart *hotRestart
	quit    func()
}

func (o *older) Info() (hotrestart.Info, error) {
	select {
	case <-o.process.Live():
	default:
		return hotrestart.Info{}, errors.New("the process of the epoch before is still starting")
	}
	if o.modes.XDP() != nil {
		return hotrestart.Info{}, errors.New("listeners run in XDP, whose maps have one writer: end this process and start the next one, packets are forwarded meanwhile")
	}
	o.restart.endBefore() // no more than two serve
	started := o.restart.started()
	if started.IsZero() {
		started = o.restart.begun
	}
	return hotrestart.Info{Epoch: o.flags.restartEpoch, Started: started, Drained: o.process.DrainedHosts()}, nil
}

func (o *older) Sockets() ([]proxy.HandedSockets, error) { return o.plane.Sockets() }

func (o *older) Admin() (fd int, address string, err error) { return o.admin.copy() }

func (o *older) CloseAdmin() { o.admin.close() }

func (o *older) OpenAdmin() {
	if err := o.admin.open(nil); err != nil {
		o.log.Error("no admin API any more", "reason", err)
	}
}

func (o *older) Drain() {
	o.log.Info("another process has taken over: draining")
	o.plane.HandOver()
}

func (o *older) Left() hotrestart.Left {
	connections, sessions := o.plane.FlowCount()
	return hotrestart.Left{Totals: o.store.Totals(), Flows: connections + sessions, Connections: connections}
}

func (o *older) Terminate(orphaned bool) {
	if !orphaned {
		o.quit()
		return
	}
	over := time.After(time.Duration(o.flags.parentShutdown) * time.Second)
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		if connections, sessions := o.plane.FlowCount(); connections+sessions == 0 {
			break
		}
		select {
		case <-over:
			o.quit()
			return
		case <-look.C:
		}
	}
	o.quit()
}
