package main

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/guideway/guideway/controlplane/envoy"
	"github.com/guideway/guideway/controlplane/logging"
	"github.com/guideway/guideway/dataplane/xdp"
)

// configFlags say where a configuration comes from; many commands have them.
type configFlags struct {
	path, yaml                   string
	allowUnknown                 bool
	node, cluster, zone          string
	ignoreFilters                []string
	rejectDynamic, ignoreDynamic bool
}

func (f *configFlags) register(s *pflag.FlagSet) {
	s.StringVarP(&f.path, "config-path", "c", "", "Envoy bootstrap `file`: .yaml, .yml, .json, .pb or .pb_text")
	s.StringVar(&f.yaml, "config-yaml", "", "bootstrap `text`, merged over the file")
	s.BoolVar(&f.allowUnknown, "allow-unknown-static-fields", false, "warn of unknown fields instead of refusing them")
	s.BoolVar(&f.rejectDynamic, "reject-unknown-dynamic-fields", false, "refuse unknown fields in xDS resources")
	s.BoolVar(&f.ignoreDynamic, "ignore-unknown-dynamic-fields", false, "do not warn of unknown fields in xDS resources")
	s.StringVar(&f.node, "service-node", "", "node `id`, in place of the one in the configuration")
	s.StringVar(&f.cluster, "service-cluster", "", "node cluster `name`, in place of the one in the configuration")
	s.StringVar(&f.zone, "service-zone", "", "node `zone`, in place of the one in the configuration")
	s.StringSliceVar(&f.ignoreFilters, "ignore-network-filters", nil, "`names` of network filters to leave out although they are not supported")
}

var errNoConfig = errors.New("At least one of --config-path or --config-yaml or Options::configProto() should be non-empty") //nolint:staticcheck // Envoy's text

func (f *configFlags) options() (envoy.Options, error) {
	if f.path == "" && f.yaml == "" {
		return envoy.Options{}, errNoConfig
	}
	return envoy.Options{
		Path: f.path, YAML: f.yaml, AllowUnknownStatic: f.allowUnknown, IgnoreFilters: f.ignoreFilters,
		ServiceNode: f.node, ServiceCluster: f.cluster, ServiceZone: f.zone,
	}, nil
}

// serveFlags are those of the main job: Envoy's, and Guideway's own.
type serveFlags struct {
	configFlags
	mode             string
	level, overrides string
	logPath, format  string
	formatEscaped    bool
	concurrency      uint32
	cpuset           bool
	drainTime        uint32
	drainStrategy    string
	flushMS          uint32
	adminAddressPath string
	baseID           uint32
	baseIDPath       string
	dynamicBaseID    bool
	restartEpoch     uint32
	parentShutdown   uint32
	noHotRestart     bool
	ipVersion        string
	socketPath       string
	socketMode       string
	statsTags        []string
	disabled         string
	accepted         [8]bool // flags that do nothing here
	version          bool

	reloadOnHUP bool
	noWatch     bool
	stateDir    string
	drainOnTerm bool

	requireNative bool
	pins          string
}

func (f *serveFlags) register(s *pflag.FlagSet) {
	s.SortFlags = false
	f.configFlags.register(s)
	s.StringVar(&f.mode, "mode", "serve", "`serve`, validate (check the configuration and end) or init_only (start, bind, end)")
	s.StringVarP(&f.level, "log-level", "l", "info", "trace, debug, info, warning, error, critical or off")
	s.StringVar(&f.overrides, "component-log-level", "", "`levels` of single components, as dns:debug,hc:trace")
	s.StringVar(&f.logPath, "log-path", "", "log `file` in place of stderr; reopened on SIGUSR1")
	s.StringVar(&f.format, "log-format", logging.DefaultFormat, "log `format`, in spdlog's notation")
	s.BoolVar(&f.formatEscaped, "log-format-escaped", false, "escape control characters in log messages")
	s.Uint32Var(&f.concurrency, "concurrency", uint32(runtime.NumCPU()), "`number` of workers; 0 is 1")
	s.BoolVar(&f.cpuset, "cpuset-threads", false, "as many workers as this process may use CPUs")
	s.Uint32Var(&f.drainTime, "drain-time-s", 600, "`seconds` in which drained listeners close their connections")
	s.StringVar(&f.drainStrategy, "drain-strategy", "gradual", "`gradual` or immediate")
	s.Uint32Var(&f.flushMS, "file-flush-interval-msec", 10000, "`milliseconds` between writes of access logs")
	s.StringVar(&f.adminAddressPath, "admin-address-path", "", "`file` to write the admin address to")
	s.BoolVar(&f.reloadOnHUP, "reload-on-hup", false, "read the configuration again on SIGHUP (Envoy ignores the signal)")
	s.BoolVar(&f.noWatch, "no-watch", false, "do not watch the configuration file for changes")
	s.StringVar(&f.stateDir, "state-dir", "", "`directory` that keeps the last good state from a management server, to start with while it cannot be reached")
	s.BoolVar(&f.drainOnTerm, "drain-on-term", false, "on SIGTERM drain listeners for --drain-time-s before the end")

	s.BoolVar(&f.requireNative, "require-native", false, "refuse to run if XDP cannot run in the driver")
	s.StringVar(&f.pins, "xdp-pins", xdp.DefaultPins, "`directory` in a bpffs for what outlives the process")

	s.Uint32Var(&f.baseID, "base-id", 0, "`number` that tells the Guideways of a host apart, for hot restarts")
	s.BoolVar(&f.dynamicBaseID, "use-dynamic-base-id", false, "take a base id that is free")
	s.StringVar(&f.baseIDPath, "base-id-path", "", "`file` to write the base id to")
	s.Uint32Var(&f.restartEpoch, "restart-epoch", 0, "`number` of this hot restart: above 0 take over from the process of the epoch before")
	s.Uint32Var(&f.parentShutdown, "parent-shutdown-time-s", 900, "`seconds` after which a process that was taken over from ends, whatever flows it has")
	s.BoolVar(&f.noHotRestart, "disable-hot-restart", false, "do not wait for a process that takes over")
	s.StringVar(&f.ipVersion, "local-address-ip-version", "v4", "accepted: v4 or v6")
	s.StringVar(&f.socketPath, "socket-path", "@envoy_domain_socket", "`address` of the socket for hot restarts; @ makes it abstract")
	s.StringVar(&f.socketMode, "socket-mode", "600", "octal `mode` of that socket, if it is a file")
	s.StringArrayVar(&f.statsTags, "stats-tag", nil, "`tag:value` added to every Prometheus metric")
	s.StringVar(&f.disabled, "disable-extensions", "", "accepted")
	for i, name := range []string{"enable-mutex-tracing", "enable-fine-grain-logging", "enable-core-dump", "skip-deprecated-logs",
		"skip-hot-restart-on-no-parent", "skip-hot-restart-parent-stats", "log-stacktrace-single-entry", "hot-restart-version"} {
		s.BoolVar(&f.accepted[i], name, false, "accepted")
	}
	s.BoolVar(&f.version, "version", false, "print the version and end")
}

// check refuses values that Envoy refuses.
func (f *serveFlags) check() error {
	switch f.mode {
	case "serve", "validate", "init_only":
	default:
		return fmt.Errorf("unknown mode '%s': use serve, validate or init_only", f.mode)
	}
	if f.drainStrategy != "gradual" && f.drainStrategy != "immediate" {
		return fmt.Errorf("unknown drain-strategy '%s': use gradual or immediate", f.drainStrategy)
	}
	if f.ipVersion != "v4" && f.ipVersion != "v6" {
		return fmt.Errorf("unknown IP address version '%s': use v4 or v6", f.ipVersion)
	}
	if f.restartEpoch != 0 && (f.noHotRestart || f.dynamicBaseID) {
		return errors.New("--restart-epoch above 0 takes over from a running process, which --disable-hot-restart and --use-dynamic-base-id exclude")
	}
	if _, err := strconv.ParseUint(f.socketMode, 8, 9); err != nil {
		return fmt.Errorf("error: invalid socket-mode '%s'", f.socketMode)
	}
	for _, t := range f.statsTags {
		if name, value, ok := strings.Cut(t, ":"); !ok || name == "" || value == "" {
			return fmt.Errorf("misformatted --stats-tag '%s': write tag:value", t)
		}
	}
	return nil
}

func (f *serveFlags) logOptions() (logging.Options, error) {
	level, err := logging.ParseLevel(f.level)
	if err != nil {
		return logging.Options{}, err
	}
	overrides, err := logging.ParseOverrides(f.overrides)
	if err != nil {
		return logging.Options{}, err
	}
	format := f.format
	if f.formatEscaped {
		format = strings.ReplaceAll(format, "%v", "%_")
	}
	return logging.Options{Level: level, Overrides: overrides, Format: format, Path: f.logPath}, nil
}

// workers is the number of event loops.
func (f *serveFlags) workers() int {
	n := int(max(f.concurrency, 1))
	if f.cpuset {
		var set unix.CPUSet
		if unix.SchedGetaffinity(0, &set) == nil && set.Count() > 0 {
			n = set.Count()
		}
	}
	return n
}

func (f *serveFlags) flushInterval() time.Duration {
	return time.Duration(f.flushMS) * time.Millisecond
}
