package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/bench/backend"
	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// scenario is a file of testdata/picks; its README tells what the fields mean.
type scenario struct {
	Name         string                     `json:"name"`
	Proto        string                     `json:"proto"`
	Addresses    string                     `json:"addresses"`
	To           string                     `json:"to"`
	BackendPorts []uint16                   `json:"backend_ports"`
	Bootstrap    json.RawMessage            `json:"bootstrap"`
	Files        map[string]json.RawMessage `json:"files"`
	Options      pickOptions                `json:"options"`
	Steps        []pickStep                 `json:"steps"`

	// What a person reads, and picks.py.
	Format       int      `json:"format"`
	About        string   `json:"about"`
	Needs        []string `json:"needs"`
	RecordedWith string   `json:"recorded_with"`
}

type pickOptions struct {
	Hold          bool    `json:"hold"`
	Datagrams     int     `json:"datagrams"`
	ProxyProtocol string  `json:"proxy_protocol"`
	Via           string  `json:"via"`
	Timeout       float64 `json:"timeout"`
}

type pickStep struct {
	Write   map[string]json.RawMessage `json:"write"`
	Until   []any                      `json:"until"` // name of a counter, least value
	To      string                     `json:"to"`
	Options json.RawMessage            `json:"options"`
	Clients []netip.Addr               `json:"clients"`
	Picks   []any                      `json:"picks"` // text, null, or a list of these
}

// TestPicks replays what backends a running Envoy picked.
func TestPicks(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/picks/0*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded picks: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".json"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var sc scenario
			d := json.NewDecoder(bytes.NewReader(text))
			d.DisallowUnknownFields() // an option that is not known would not be tested
			if err := d.Decode(&sc); err != nil {
				t.Fatal(err)
			}
			replay(t, testbed.Chosen(t), &sc)
		})
	}
}

// replayer is a scenario under way.
type replayer struct {
	*testing.T
	sc    *scenario
	ns    *testbed.Namespace
	proxy *testbed.Proxy
	// sessions keeps each client's UDP socket, so that later steps go on with its session.
	sessions map[netip.Addr]*testbed.DatagramClient
}

func replay(t *testing.T, subject testbed.Subject, sc *scenario) {
	var ns *testbed.Namespace
	if sc.Addresses == "any" {
		ns = testbed.NewNamespace(t)
		ns.MakeAllLocal(t)
	} else {
		ns = testbed.Isolated(t)
	}
	dir := t.TempDir()
	for name, content := range sc.Files {
		writeAside(t, dir, name, content)
	}
	if len(sc.Files) > 0 && !subject.IsEnvoy() {
		// Files beside the bootstrap are EDS; whether they are understood, validate tells.
		path := testbed.WriteConfig(t, dir, sc.Bootstrap)
		if v := subject.Exec(t, ns, dir, "--mode", "validate", "-c", path); v.Wait() != 0 {
			t.Skipf("guideway does not take endpoints from files (EDS) yet: %s", v.Stderr())
		}
	}

	conf := backend.Config{Network: backend.TCP}
	if sc.Proto == "udp" {
		conf.Network = backend.UDP
		conf.Reply = func(dst []byte, id string, _ []byte) []byte { return append(dst, id...) }
	}
	var at []netip.AddrPort
	for _, port := range sc.BackendPorts {
		at = append(at, netip.AddrPortFrom(netip.IPv4Unspecified(), port))
		if sc.Addresses == "any" {
			at = append(at, netip.AddrPortFrom(netip.IPv6Unspecified(), port))
		}
	}
	testbed.StartBackend(t, ns, conf, at...)

	r := &replayer{T: t, sc: sc, ns: ns, sessions: make(map[netip.Addr]*testbed.DatagramClient)}
	r.proxy = subject.StartIn(t, ns, dir, []byte(sc.Bootstrap)).Ready()
	good, all := 0, 0
	for i, step := range sc.Steps {
		got := r.step(step)
		for j, want := range step.Picks {
			all++
			if diff := testbed.Compare(t, "", want, got[j]); len(diff) == 0 {
				good++
			} else if all-good <= 5 {
				t.Errorf("step %d client %v%s", i, step.Clients[j], diff[0])
			}
		}
	}
	t.Logf("%d of %d picks as recorded", good, all)
	if all == 0 || good != all {
		t.Errorf("%d of %d picks as recorded", good, all)
	}
}

// writeAside puts a file in place by a rename, as watchers of files want it.
func writeAside(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	text := strings.ReplaceAll(string(content), "{dir}", dir)
	var raw string
	if json.Unmarshal(content, &raw) == nil {
		text = raw
	}
	aside := filepath.Join(dir, "."+name+".new")
	err := os.WriteFile(aside, []byte(text), 0o644)
	if err == nil {
		err = os.Rename(aside, filepath.Join(dir, name))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// step does what a step says and gives the pick of each of its clients.
func (r *replayer) step(step pickStep) []any {
	r.Helper()
	for name, content := range step.Write {
		writeAside(r.T, r.proxy.Dir, name, content)
	}
	if len(step.Until) == 2 {
		name, least := step.Until[0].(string), int64(step.Until[1].(float64))
		testbed.Eventually(r.T, fmt.Sprintf("%s reaches %d", name, least), func() bool {
			return r.proxy.Stats()[name] >= least
		})
	}
	options := r.sc.Options
	if step.Options != nil {
		if err := json.Unmarshal(step.Options, &options); err != nil {
			r.Fatal(err)
		}
	}
	to := step.To
	if to == "" {
		to = r.sc.To
	}
	picks := make([]any, len(step.Clients))
	var held []*testbed.Client
	for i, from := range step.Clients {
		if r.sc.Proto == "udp" {
			picks[i] = r.pickUDP(from, to, options, step.Picks[i])
			continue
		}
		c, pick := r.pickTCP(from, to, options)
		picks[i] = pick
		if options.Hold && pick != nil {
			held = append(held, c)
		} else if c != nil {
			c.Close()
		}
	}
	r.release(held)
	return picks
}

// release ends the connections a step held, and waits until the proxy has noticed.
func (r *replayer) release(held []*testbed.Client) {
	r.Helper()
	if len(held) == 0 {
		return
	}
	for _, c := range held {
		c.Close()
	}
	testbed.Eventually(r.T, "the held connections are over", func() bool {
		active := int64(0)
		for name, v := range r.proxy.Stats() {
			if strings.HasPrefix(name, "cluster.") && strings.HasSuffix(name, ".upstream_cx_active") {
				active += v
			}
		}
		return active == 0
	})
}

// pickTCP connects and gives the backend that greets; no backend is nil.
func (r *replayer) pickTCP(from netip.Addr, to string, o pickOptions) (*testbed.Client, any) {
	r.Helper()
	bind := from
	if o.Via != "" {
		bind = netip.MustParseAddr(o.Via)
	}
	c, err := testbed.TryConnect(r.T, r.ns, bind, to)
	if err != nil {
		return nil, nil
	}
	if o.ProxyProtocol != "" {
		c.Say(proxyHeader(o.ProxyProtocol, from, netip.MustParseAddrPort(to)))
	}
	timeout := testbed.Patience
	if o.Timeout > 0 {
		timeout = time.Duration(o.Timeout * float64(time.Second))
	}
	c.SetReadDeadline(time.Now().Add(timeout))
	var got []byte
	buf := make([]byte, 256)
	for !strings.HasSuffix(string(got), "\n") {
		n, err := c.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			break
		}
	}
	if len(got) == 0 {
		return c, nil
	}
	return c, strings.TrimSpace(string(got))
}

// proxyHeader is a PROXY protocol header that claims a client: port 12345 of an address.
func proxyHeader(version string, client netip.Addr, to netip.AddrPort) string {
	local := to.Addr()
	if local.Is4() != client.Is4() {
		local = netip.MustParseAddr("127.0.0.9")
		if client.Is6() {
			local = netip.IPv6Loopback()
		}
	}
	const port = 12345
	if version == "v1" {
		family := "TCP4"
		if client.Is6() {
			family = "TCP6"
		}
		return "PROXY " + family + " " + client.String() + " " + local.String() + " " + strconv.Itoa(port) + " " + strconv.Itoa(int(to.Port())) + "\r\n"
	}
	family := byte(0x11)
	if client.Is6() {
		family = 0x21
	}
	body := append(client.AsSlice(), local.AsSlice()...)
	body = append(body, port>>8, port&0xff, byte(to.Port()>>8), byte(to.Port()))
	return "\r\n\r\n\x00\r\nQUIT\n\x21" + string([]byte{family, 0, byte(len(body))}) + string(body)
}

// pickUDP sends datagrams on the client's session and gives the backend that answers, or a list if
// there are several datagrams. The answers that are recorded may take their time.
func (r *replayer) pickUDP(from netip.Addr, to string, o pickOptions, recorded any) any {
	r.Helper()
	c := r.sessions[from]
	if c == nil {
		c = testbed.DatagramsTo(r.T, r.ns, from, to)
		r.sessions[from] = c
	}
	want, several := recorded.([]any)
	if !several {
		want = []any{recorded}
	}
	picks := make([]any, max(o.Datagrams, 1))
	for i := range picks {
		if got, ok := c.Ask("x", testbed.AnswerTime(i < len(want) && want[i] != nil)); ok {
			picks[i] = got
		}
	}
	if o.Datagrams > 1 {
		return picks
	}
	return picks[0]
}
