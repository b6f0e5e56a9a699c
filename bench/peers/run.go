package peers

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// Options of a comparison.
type Options struct {
	// Guideway and Envoy are the programs; the others are found in PATH.
	Guideway, Envoy string
	// Rounds of each measurement; medians and ranges are over them.
	Rounds int
	// Scale makes every measurement shorter (below 1) or longer.
	Scale float64
	// Only names the measurements to make; nil means all.
	Only []string
	// Progress, if set, is told how much is done.
	Progress func(done, total int)
}

// Measurements by name, in the order in which they are shown. Smaller is better in all of them but the rate.
var Measurements = []Measurement{
	{"bulk-1", "CPU s per GiB, 1 stream", "s"},
	{"bulk-16", "CPU s per GiB, 16 streams", "s"},
	{"short", "CPU s per 10,000 short connections", "s"},
	{"echo", "CPU µs per 64-byte echo, 16 connections", "µs"},
	{"echo-p50", "round trip p50, µs", "µs"},
	{"echo-p99", "round trip p99, µs", "µs"},
	{"idle", "bytes per idle connection", "B"},
	{"udp-rate", "datagrams/s without loss, 64 flows", "1/s"},
	{"udp", "CPU s per million datagrams, at the same rate for all", "s"},
	{"udp-overload", "CPU s per million datagrams delivered, in overload", "s"},
}

// Measurement is one figure.
type Measurement struct{ Name, Title, Unit string }

// Result holds for each measurement and peer the figures of all rounds.
type Result struct {
	Peers    []Peer
	Missing  []string
	Versions map[string]string
	// Figures by measurement, then by peer; "direct" is no proxy.
	Figures map[string]map[string][]float64
	// Rate is the datagram rate of the measurement "udp".
	Rate float64
	Idle int // connections held
}

// Median of a peer's figures, and false if there are none.
func (r *Result) Median(measurement, peer string) (float64, bool) {
	f := slices.Clone(r.Figures[measurement][peer])
	if len(f) == 0 {
		return 0, false
	}
	slices.Sort(f)
	if n := len(f); n%2 == 0 {
		return (f[n/2-1] + f[n/2]) / 2, true
	}
	return f[len(f)/2], true
}

const direct = "direct"

// Run makes the comparison. Every proxy runs alone on the last CPU, clients and backends on the first.
func Run(o Options) (*Result, error) {
	if runtime.NumCPU() < 2 {
		return nil, fmt.Errorf("a comparison needs two CPUs, one for the proxy alone: this machine has %d", runtime.NumCPU())
	}
	found, missing := Peers(o.Guideway, o.Envoy)
	r := &Result{Peers: found, Missing: missing, Versions: map[string]string{}, Figures: map[string]map[string][]float64{}}
	for _, p := range found {
		r.Versions[p.Name] = p.Version()
	}
	if err := pin(0); err != nil {
		return nil, err
	}
	b, err := startBackends()
	if err != nil {
		return nil, err
	}
	defer b.close()
	dir, err := os.MkdirTemp("", "guideway-peers-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	m := &meter{o: o, r: r, b: b, dir: dir}
	return r, m.all()
}

// meter makes the measurements.
type meter struct {
	o    Options
	r    *Result
	b    *backends
	dir  string
	done int
}

func (m *meter) wants(name string) bool { return len(m.o.Only) == 0 || slices.Contains(m.o.Only, name) }

func (m *meter) record(name, peer string, v float64) {
	if m.r.Figures[name] == nil {
		m.r.Figures[name] = map[string][]float64{}
	}
	m.r.Figures[name][peer] = append(m.r.Figures[name][peer], v)
}

func (m *meter) scaled(n int) int { return max(int(float64(n)*m.o.Scale), 1) }

func (m *meter) all() error {
	rounds := max(m.o.Rounds, 1)
	total := rounds * (len(m.r.Peers) + 1)
	if m.wants("udp-rate") || m.wants("udp") {
		if err := m.findRates(); err != nil {
			return err
		}
	}
	for range rounds {
		if err := m.round(nil); err != nil {
			return err
		}
		m.step(total)
		for i := range m.r.Peers {
			if err := m.round(&m.r.Peers[i]); err != nil {
				return fmt.Errorf("%s: %w", m.r.Peers[i].Name, err)
			}
			m.step(total)
		}
	}
	return nil
}

func (m *meter) step(total int) {
	m.done++
	if m.o.Progress != nil {
		m.o.Progress(m.done, total)
	}
}

// ports gives a run of a proxy ports of its own.
func (m *meter) ports() (Ports, error) {
	p := Ports{
		BulkBackend: port(m.b.bulk.Addr()), EchoBackend: port(m.b.echo.Addr()), UDPBackend: port(m.b.udp.LocalAddr()),
	}
	var err error
	p.Bulk, p.Echo, p.UDP, err = freePorts()
	return p, err
}

// with runs f beside a proxy, or without one (nil). cost runs a load and returns the proxy's CPU time of it.
func (m *meter) with(peer *Peer, f func(ports Ports, name string, cost func(func() error) (time.Duration, error), proc *process) error) error {
	ports, err := m.ports()
	if err != nil {
		return err
	}
	if peer == nil {
		ports.Bulk, ports.Echo, ports.UDP = ports.BulkBackend, ports.EchoBackend, ports.UDPBackend
		return f(ports, direct, func(load func() error) (time.Duration, error) { return 0, load() }, nil)
	}
	dir, err := os.MkdirTemp(m.dir, peer.Name)
	if err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	proc, err := peer.start(filepath.Clean(dir), ports, runtime.NumCPU()-1)
	if err != nil {
		return err
	}
	defer proc.stop()
	return f(ports, peer.Name, func(load func() error) (time.Duration, error) {
		before := proc.cpu()
		err := load()
		return proc.cpu() - before, err
	}, proc)
}

func (m *meter) round(peer *Peer) error {
	return m.with(peer, func(ports Ports, name string, cost func(func() error) (time.Duration, error), proc *process) error {
		// Warm up: pools fill, code is faulted in.
		if _, err := cost(func() error { return connections(ports.Echo, 200, 16) }); err != nil {
			return err
		}
		for _, bulk := range []struct {
			name    string
			streams int
		}{{"bulk-1", 1}, {"bulk-16", 16}} {
			if !m.wants(bulk.name) {
				continue
			}
			bytes := int64(m.scaled(2 << 30))
			cpu, err := cost(func() error { return sendBulk(ports.Bulk, m.b, bulk.streams, bytes) })
			if err != nil {
				return fmt.Errorf("%s: %w", bulk.name, err)
			}
			m.record(bulk.name, name, cpu.Seconds()/(float64(bytes)/(1<<30)))
		}
		if m.wants("short") {
			n := m.scaled(10000)
			cpu, err := cost(func() error { return connections(ports.Echo, n, 16) })
			if err != nil {
				return fmt.Errorf("short connections: %w", err)
			}
			m.record("short", name, cpu.Seconds()/float64(n)*10000)
		}
		if m.wants("echo") {
			n := m.scaled(100_000)
			var took []time.Duration
			cpu, err := cost(func() (err error) { took, err = echoes(ports.Echo, n, 16); return err })
			if err != nil {
				return fmt.Errorf("echoes: %w", err)
			}
			m.record("echo", name, float64(cpu.Nanoseconds())/1000/float64(n))
			m.record("echo-p50", name, float64(took[len(took)/2].Nanoseconds())/1000)
			m.record("echo-p99", name, float64(took[len(took)*99/100].Nanoseconds())/1000)
		}
		if peer != nil && peer.skipUDP == "" {
			if err := m.datagrams(ports, name, cost); err != nil {
				return fmt.Errorf("datagrams: %w", err)
			}
		}
		if proc != nil && m.wants("idle") {
			m.r.Idle = m.scaled(9500)
			before := proc.rss()
			conns, err := hold(ports.Echo, m.r.Idle)
			if err != nil {
				return fmt.Errorf("idle connections: %w", err)
			}
			m.record("idle", name, float64(proc.rss()-before)/float64(m.r.Idle))
			for _, c := range conns {
				c.Close()
			}
		}
		return nil
	})
}

// flowsUDP is the number of UDP flows.
const flowsUDP = 64

func (m *meter) datagrams(ports Ports, name string, cost func(func() error) (time.Duration, error)) error {
	for _, load := range []struct {
		name string
		rate float64
	}{{"udp", m.r.Rate}, {"udp-overload", 3 * m.r.Rate}} {
		if !m.wants(load.name) || m.r.Rate == 0 {
			continue
		}
		var got int64
		cpu, err := cost(func() (err error) {
			_, got, err = sendDatagrams(ports.UDP, m.b, flowsUDP, load.rate, time.Duration(float64(2*time.Second)*m.o.Scale))
			return err
		})
		if err != nil {
			return err
		}
		if got > 0 {
			m.record(load.name, name, cpu.Seconds()/float64(got)*1e6)
		}
	}
	return nil
}

// findRates looks for each peer's highest rate without loss (at most one in 10,000 datagrams), and takes
// three quarters of nginx's, or else of the least, as the rate for all.
func (m *meter) findRates() error {
	least := 0.0
	for i := range m.r.Peers {
		p := &m.r.Peers[i]
		if p.skipUDP != "" {
			continue
		}
		err := m.with(p, func(ports Ports, name string, _ func(func() error) (time.Duration, error), _ *process) error {
			low, high := 0.0, 1_000_000.0
			for range 8 {
				rate := (low + high) / 2
				sent, got, err := sendDatagrams(ports.UDP, m.b, flowsUDP, rate, time.Duration(float64(time.Second)*m.o.Scale))
				if err != nil {
					return err
				}
				if got*10000 >= sent*9999 && float64(sent) >= 0.95*rate*m.o.Scale {
					low = rate
				} else {
					high = rate
				}
			}
			m.record("udp-rate", name, low)
			if least == 0 || low < least {
				least = low
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	m.r.Rate = 0.75 * least
	if v, ok := m.r.Median("udp-rate", "nginx"); ok {
		m.r.Rate = 0.75 * v
	}
	return nil
}
