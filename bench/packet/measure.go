package packet

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/guideway/guideway/bpf"
	"github.com/guideway/guideway/conntrack"
	"github.com/guideway/guideway/maglev"
)

// Plan says what to measure.
type Plan struct {
	// Flows in cycle, for each kind of packet.
	Flows []uint32
	// Backends behind the table of TableSize slots.
	Backends  int
	TableSize uint32
	// Rounds of each measurement; the shortest counts.
	Rounds int
	// Progress, if set, is told how much is done.
	Progress func(done, total int)
}

// Figure is one measurement.
type Figure struct {
	Case  string
	Flows uint32
	// Program is ns a packet without the no-op, Floor ns of the no-op in the same run.
	Program, Floor float64
	// Verdict is the XDP action: 2 pass, 3 transmit.
	Verdict uint32
}

// state of the table that a case meets.
type state struct {
	name  string
	track conntrack.Track
	open  bool
}

var (
	settled  = state{"settled", conntrack.TrackChanged, false}
	open     = state{"open", conntrack.TrackChanged, true}
	trackAll = state{"track all", conntrack.TrackAll, false}
)

// way of forwarding.
type way struct {
	name       string
	forwarding uint8
	v6         bool
}

var (
	ipip4 = way{"ipip", bpf.ForwardIPIP, false}
	ipip6 = way{"ipip", bpf.ForwardIPIP, true}
	gue4  = way{"gue", bpf.ForwardGUE, false}
	l2    = way{"l2", bpf.ForwardL2, false}
)

// kind of packet.
type kind struct {
	state state
	way   way
	vip   netip.AddrPort
	tcp   bool
}

func (k kind) String() string {
	family, proto := "IPv4", "UDP"
	if k.vip.Addr().Is6() {
		family = "IPv6"
	}
	if k.tcp {
		proto = "TCP"
	}
	return fmt.Sprintf("%s, %s, %s %s", k.state.name, k.way.name, family, proto)
}

var kinds = []kind{
	{settled, ipip4, vip4, true}, {settled, ipip4, vip4, false}, {settled, ipip6, vip6, true}, {settled, ipip6, vip6, false},
	{settled, gue4, vip4, true}, {settled, l2, vip4, true},
	{open, ipip4, vip4, true}, {open, ipip4, vip4, false},
	{trackAll, ipip4, vip4, true}, {trackAll, ipip6, vip6, true},
}

// Run measures. It needs the right to load BPF programs.
func Run(ctx context.Context, plan Plan) ([]Figure, error) {
	most := slices.Max(plan.Flows)
	program, err := bpf.Load(bpf.Options{Capacity: bpf.Capacity{Flows: max(2*most, 1<<16), HalfOpen: 1 << 16}})
	if err != nil {
		return nil, err
	}
	defer program.Close()
	meter, err := bpf.NewMeter()
	if err != nil {
		return nil, err
	}
	defer meter.Close()
	owners, err := tables(plan)
	if err != nil {
		return nil, err
	}
	m := &machine{plan: plan, program: program, meter: meter, owners: owners, total: len(kinds)*len(plan.Flows) + 2}
	defer m.close()
	return m.all(ctx)
}

// tables are the owners of all slots, with all backends and without one.
func tables(plan Plan) (owners [2][]conntrack.Backend, err error) {
	var hosts []maglev.Host
	for i := range plan.Backends {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), 443)
		hosts = append(hosts, maglev.Host{Key: maglev.HostKey(addr), Weight: 1})
	}
	for i := range owners {
		t, err := maglev.Build(plan.TableSize, hosts[:len(hosts)-i], nil)
		if err != nil {
			return owners, err
		}
		owners[i] = make([]conntrack.Backend, t.Size())
		for slot := range owners[i] {
			owners[i][slot] = conntrack.Backend(t.Owner(uint32(slot)))
		}
	}
	return owners, nil
}

type machine struct {
	plan    Plan
	program *bpf.Program
	meter   *bpf.Meter
	owners  [2][]conntrack.Backend
	figures []Figure
	total   int
	table   *ebpf.Map
}

func (m *machine) close() {
	if m.table != nil {
		m.table.Close()
	}
}

func (m *machine) all(ctx context.Context) ([]Figure, error) {
	for _, k := range kinds {
		f, err := frame(k.vip, k.tcp)
		if err != nil {
			return nil, err
		}
		if err := m.prepare(k); err != nil {
			return nil, fmt.Errorf("%v: %w", k, err)
		}
		for _, flows := range m.plan.Flows {
			if err := m.measure(ctx, k.String(), f, flows); err != nil {
				return nil, err
			}
		}
	}
	f, err := frame(other, true)
	if err != nil {
		return nil, err
	}
	if err := m.measure(ctx, "no VIP, passed", f, 1); err != nil {
		return nil, err
	}
	if f, err = arp(); err != nil {
		return nil, err
	}
	return m.figures, m.measure(ctx, "ARP, passed", f, 1)
}

func (m *machine) measure(ctx context.Context, name string, packet []byte, flows uint32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r, err := m.meter.Measure(m.program.XDP, bpf.Trial{Packet: packet, Flows: flows, Rounds: m.plan.Rounds})
	if err != nil {
		return fmt.Errorf("%s, %d flows: %w", name, flows, err)
	}
	m.figures = append(m.figures, Figure{Case: name, Flows: flows, Program: r.Program, Floor: r.Floor, Verdict: r.Verdict})
	if m.plan.Progress != nil {
		m.plan.Progress(len(m.figures), m.total)
	}
	return nil
}

// prepare puts the service of a kind of packet into the maps. Nothing reads them meanwhile.
func (m *machine) prepare(k kind) error {
	d := conntrack.Desired{
		Tables: []conntrack.Table{{ID: 1, Slots: m.owners[0]}}, Top: 1, Track: k.state.track, Idle: time.Hour,
	}
	for i := range m.plan.Backends {
		d.Members = append(d.Members, conntrack.Member{
			Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), 443), Serves: true,
		})
	}
	steering := new(conntrack.Steering)
	if _, err := steering.Apply(d, 0); err != nil {
		return err
	}
	if k.state.open { // every slot: its owner is the next backend now
		moved := make([]conntrack.Backend, len(m.owners[0]))
		for i, b := range m.owners[0] {
			moved[i] = (b + 1) % conntrack.Backend(m.plan.Backends)
		}
		d.Tables = []conntrack.Table{{ID: 1, Slots: moved}}
		if _, err := steering.Apply(d, 0); err != nil {
			return err
		}
	}
	image, ok := steering.Image()
	if !ok {
		return fmt.Errorf("nothing to put into the maps")
	}
	only, ok := image.Only()
	if !ok {
		return fmt.Errorf("one table has become several")
	}
	array, _ := image.Array(only)
	table, err := bpf.NewTable(array, 1)
	if err != nil {
		return err
	}
	m.close()
	m.table = table
	if err := m.program.Tables.Put(uint32(0), uint32(table.FD())); err != nil {
		return fmt.Errorf("putting the table into its map: %w", err)
	}
	for i := range m.plan.Backends {
		if err := m.program.Backends.Put(uint32(i), k.way.backend(i)); err != nil {
			return fmt.Errorf("putting backend %d into its map: %w", i, err)
		}
	}
	return m.putService(k, bpf.Service{
		Id: 1, Members: uint32(m.plan.Backends), Idle: uint64(image.Idle()), Track: uint8(image.Track()),
		Only: 0, OnlySlots: uint32(array.Len()),
	})
}

func (m *machine) putService(k kind, s bpf.Service) error {
	proto, icmp := uint8(conntrack.UDP), uint8(1)
	if k.tcp {
		proto = uint8(conntrack.TCP)
	}
	services, key := m.program.Services4, func(a netip.AddrPort, p uint8) any { return bpf.Key4(a, p) }
	if k.vip.Addr().Is6() {
		icmp = 58
		services, key = m.program.Services6, func(a netip.AddrPort, p uint8) any { return bpf.Key6(a, p) }
	}
	if err := services.Put(key(k.vip, proto), s); err != nil {
		return fmt.Errorf("putting the service into its map: %w", err)
	}
	return services.Put(key(netip.AddrPortFrom(k.vip.Addr(), 0), icmp), bpf.Service{Flags: bpf.ServiceVIP})
}

// backend is entry i of the backends, with everything that forwarding needs.
func (w way) backend(i int) bpf.Backend {
	b := bpf.Backend{Generation: 2, Ifindex: 1, Mtu: 1500, Forwarding: w.forwarding, Flags: bpf.BackendResolved, SourceBits: 8}
	copy(b.DstMac[:], nextHop)
	copy(b.SrcMac[:], ours)
	addr, source := netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), netip.AddrFrom4([4]byte{10, 1, 0, 0})
	if w.v6 {
		b.Flags |= bpf.BackendIPv6
		addr = netip.AddrFrom16([16]byte{0xfd, 2, 14: byte(i >> 8), 15: byte(i)})
		source = netip.AddrFrom16([16]byte{0xfd, 1})
	}
	copy(b.Addr[:], addr.AsSlice())
	copy(b.Source[:], source.AsSlice())
	if w.forwarding == bpf.ForwardGUE {
		b.Port = bpf.BigEndian(6080)
	}
	return b
}
