package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/guideway/guideway/controlplane"
	"github.com/guideway/guideway/controlplane/admin"
	"github.com/guideway/guideway/controlplane/envoy"
	"github.com/guideway/guideway/controlplane/logging"
	"github.com/guideway/guideway/controlplane/model"
	"github.com/guideway/guideway/dataplane/accesslog"
	"github.com/guideway/guideway/dataplane/proxy"
	"github.com/guideway/guideway/dataplane/stats"
)

func newRun() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "run -c FILE",
		Short: "Serve a configuration (the same as guideway -c FILE)",
		Long: `Serve an Envoy bootstrap configuration until SIGTERM or SIGINT. A configuration file that changes is applied as
a difference. SIGUSR1 reopens log files.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd, &f) },
	}
	f.register(cmd.Flags())
	return cmd
}

// run is the main job.
func run(cmd *cobra.Command, f *serveFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	o, err := f.logOptions()
	if err != nil {
		return err
	}
	log, err := logging.New(o)
	if err != nil {
		return err
	}
	main := log.For("main")
	// The watch begins before the file is read, so that no change falls between.
	changes, err := watch(cmd.Context(), f)
	if err != nil {
		main.Warn("changes of the configuration are not noticed", "reason", err)
	}
	config, err := load(f)
	said := map[string]bool{}
	if err == nil {
		warn(log, config, said)
	}
	if err == nil && f.mode == "validate" {
		fmt.Fprintf(cmd.OutOrStdout(), "configuration '%s' OK\n", f.path)
		return nil
	}
	if err != nil {
		return refuse(main, f, err)
	}
	if err := serve(cmd.Context(), f, log, config, said, changes); err != nil {
		return refuse(main, f, err)
	}
	main.Info("exiting")
	return nil
}

// watch sends on the channel when the configuration file has changed. The channel is nil if there is
// nothing to watch.
func watch(ctx context.Context, f *serveFlags) (<-chan struct{}, error) {
	if f.path == "" || f.noWatch || f.mode != "serve" {
		return nil, nil
	}
	changes := make(chan struct{}, 1)
	return changes, controlplane.Watch(ctx, f.path, func() {
		select {
		case changes <- struct{}{}:
		default: // one is due already, and will read the newest
		}
	})
}

// load reads the configuration.
func load(f *serveFlags) (*model.Config, error) {
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	return envoy.Load(o)
}

// warn logs what is accepted and not acted on, but for what has been said already, on whatever line.
func warn(log *logging.Log, config *model.Config, said map[string]bool) {
	for _, w := range config.Warnings {
		if key := w.Path + w.Reason; !said[key] {
			said[key] = true
			log.For("config").Warn(w.Error())
		}
	}
}

// read reads a configuration that was sent, with what the command line says of the node and of fields.
func (f *serveFlags) read(text string) (*model.Config, error) {
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	o.Path, o.YAML = "", text
	return envoy.Load(o)
}

// refuse logs why there is nothing to serve, in Envoy's words where Envoy has the like, and ends with 1.
func refuse(log *slog.Logger, f *serveFlags, err error) error {
	critical := func(text string) { log.Log(context.Background(), logging.LevelCritical, text) }
	reasons := []string{err.Error()}
	var invalid *envoy.Invalid
	if errors.As(err, &invalid) {
		reasons = nil
		for _, p := range invalid.Problems {
			log.Log(context.Background(), logging.LevelCritical, p.Error())
			if p.Envoy != "" {
				reasons = append(reasons, p.Envoy)
			} else {
				reasons = append(reasons, p.Reason)
			}
		}
	}
	for _, reason := range reasons {
		if f.mode == "validate" {
			critical(fmt.Sprintf("error initializing configuration '%s': %s", f.path, reason))
		} else {
			critical(fmt.Sprintf("error `%s` initializing config '%s'", reason, strings.TrimSpace(f.path+" "+f.yaml)))
		}
	}
	return errReported
}

// serve runs one instance from its first configuration to the signal that ends it.
func serve(ctx context.Context, f *serveFlags, log *logging.Log, config *model.Config, said map[string]bool, changes <-chan struct{}) error {
	main := log.For("main")
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// Before anything tells that the process is there: whoever sees it may signal it.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1)
	defer signal.Stop(signals)
	// Event loops keep a scheduler slot each while they are busy; one more is for everything else.
	runtime.GOMAXPROCS(f.workers() + 1)

	statsConfig, err := controlplane.StatsConfig(config.Stats, f.statsTags)
	if err != nil {
		return err
	}
	store := stats.NewStoreWith(statsConfig)
	restart, err := beginRestart(f, log.For("main"))
	if err != nil {
		return err
	}
	defer restart.close()
	files := accesslog.NewFiles(store, f.flushInterval())
	defer files.Close()
	plane, sockets, err := newDataplane(f, log, store, config, restart.sockets)
	if err != nil {
		return err
	}
	defer plane.Close()
	control := controlplane.New(controlplane.Options{
		Config: config, Stats: store, Log: log, Files: files, Dataplane: plane,
		DrainTime: time.Duration(f.drainTime) * time.Second, Workers: f.workers(), Drained: restart.drained(),
		Dynamic: controlplane.DynamicOptions{
			RejectUnknown: f.rejectDynamic, IgnoreUnknown: f.ignoreDynamic, IgnoreFilters: f.ignoreFilters,
			StateDir: f.stateDir, Version: buildOf().envoyForm(),
		},
	})

	end := make(chan struct{})
	quit := sync.OnceFunc(func() { close(end) })
	process := &controlplane.Process{
		Control: control, Version: buildOf().envoyForm(), Options: f.proto(), Files: files,
		Reopen: func() { reopen(log, files) }, Stop: quit, Read: f.read,
		FirstStarted: restart.started(),
	}
	desk := &adminDesk{process: process, config: admin.Config{
		Address: config.Admin.Address, AllowPaths: config.Admin.AllowPaths, Stats: store, FlushOnAdmin: config.StatsFlushOnAdmin, Inspector: plane, Log: log.For("admin"),
	}}
	if config.Admin.Address.IsValid() {
		if err := desk.open(restart.adminListener(config.Admin.Address)); err != nil {
			return err
		}
		defer desk.close()
		if err := writeAdminAddress(f.adminAddressPath, desk.server.Addr().String()); err != nil {
			return err
		}
		main.Info("admin address: " + desk.server.Addr().String())
	} else if f.adminAddressPath != "" {
		main.Warn("no admin address in the configuration, so none is written", "file", f.adminAddressPath)
	}

	reload := newReloader(f, log, control, said)
	go reload.run(ctx)

	restart.serve(&older{
		flags: f, log: main, process: process, modes: plane, plane: sockets, admin: desk, store: store, restart: restart, quit: quit,
	})

	ran := make(chan error, 1)
	go func() { ran <- control.Run(ctx) }()
	live := control.Live()
	for {
		select {
		case err := <-ran:
			return err
		case <-live:
			live = nil
			if f.mode == "init_only" {
				quit()
				break
			}
			go restart.takeOver(ctx, store)
		case <-changes:
			reload.ask()
		case <-end:
			main.Info("shutting down server instance")
			stop()
			err := <-ran
			main.Info("main dispatch loop exited")
			return err
		case s := <-signals:
			switch s {
			case syscall.SIGHUP:
				if f.reloadOnHUP {
					reload.ask()
				} else {
					main.Warn("caught and eating SIGHUP. See documentation for how to hot restart.")
				}
			case syscall.SIGUSR1:
				main.Info("caught SIGUSR1. Reopening access logs.")
				reopen(log, files)
			case syscall.SIGTERM:
				main.Warn("caught ENVOY_SIGTERM")
				if f.drainOnTerm {
					go drainThenQuit(ctx, control, sockets, main, time.Duration(f.drainTime)*time.Second, quit)
				} else {
					quit()
				}
			default:
				main.Warn("caught SIGINT")
				quit()
			}
		}
	}
}

func reopen(log *logging.Log, files *accesslog.Files) {
	files.Reopen()
	if err := log.Reopen(); err != nil {
		log.For("main").Error("the log goes on in the old file", "reason", err)
	}
}

// drainThenQuit is the opt-in graceful end: fail health checks, go on accepting for the drain time while
// load balancers in front notice, then stop; sooner, if nobody has come for a while and no flow is left.
func drainThenQuit(ctx context.Context, control *controlplane.Control, plane *proxy.Server, log *slog.Logger, after time.Duration, quit func()) {
	quiet := max(after/10, min(after, time.Second))
	log.Info("draining before the end", "seconds", after.Seconds(), "ends_after_quiet_seconds", quiet.Seconds())
	control.FailHealthCheck(true)
	control.DrainListeners(false, after)
	over := time.NewTimer(after)
	defer over.Stop()
	look := time.NewTicker(max(quiet/10, 10*time.Millisecond))
	defer look.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-over.C:
			connections, sessions := plane.FlowCount()
			log.Info("the drain time is over", "connections_left", connections, "sessions_left", sessions)
			quit()
			return
		case now := <-look.C:
			if connections, sessions := plane.FlowCount(); connections+sessions > 0 {
				last = now
			} else if now.Sub(last) >= quiet {
				log.Info("no flow is left")
				quit()
				return
			}
		}
	}
}

func writeAdminAddress(path, address string) error {
	if path == "" {
		return nil
	}
	if err := os.WriteFile(path, []byte(address), 0o644); err != nil {
		return fmt.Errorf("writing the admin address: %w", err)
	}
	return nil
}

// reloader reads the configuration again, one at a time.
type reloader struct {
	flags   *serveFlags
	log     *logging.Log
	control *controlplane.Control
	said    map[string]bool // warnings that have been logged
	asked   chan struct{}   // holds one: however often it is asked for meanwhile, one more reading is enough
}

func newReloader(f *serveFlags, log *logging.Log, control *controlplane.Control, said map[string]bool) *reloader {
	return &reloader{flags: f, log: log, control: control, said: said, asked: make(chan struct{}, 1)}
}

// ask has the configuration read soon.
func (r *reloader) ask() {
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

// run reads when it is asked to, but not before the first configuration is in force.
func (r *reloader) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-r.control.Live():
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.asked:
			r.now(ctx)
		}
	}
}

func (r *reloader) now(ctx context.Context) {
	log := r.log.For("config")
	config, err := load(r.flags)
	if err != nil {
		r.control.Rejected()
		var invalid *envoy.Invalid
		if errors.As(err, &invalid) {
			for _, p := range invalid.Problems {
				log.Error("the changed configuration is refused, the last good one serves on: " + p.Error())
			}
			return
		}
		log.Error("the changed configuration cannot be read, the last good one serves on", "reason", err)
		return
	}
	warn(r.log, config, r.said)
	change, err := r.control.Reload(ctx, config)
	switch {
	case err != nil:
		log.Error("the changed configuration is not wholly in force", "reason", err)
	case change.Empty():
		log.Info("the configuration was read again and is equal: nothing changed")
	default:
		log.Info("a changed configuration is in force",
			"clusters_added", len(change.ClustersAdded), "clusters_modified", len(change.ClustersModified), "clusters_removed", len(change.ClustersRemoved),
			"listeners_added", len(change.ListenersAdded), "listeners_modified", len(change.ListenersModified), "listeners_removed", len(change.ListenersRemoved))
	}
}
