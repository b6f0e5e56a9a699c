package testbed

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/guideway/guideway/bench/backend"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// client 10.0.0.1 ── a ~~ b ── 10.0.0.2 backend
//
//	fd00::1                fd00::2
func TestNamespacesAreApartAndCablesConnectThem(t *testing.T) {
	client, server := NewNamespace(t), NewNamespace(t)
	Connect(t,
		End{client, "a", []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24"), netip.MustParsePrefix("fd00::1/64")}},
		End{server, "b", []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24"), netip.MustParsePrefix("fd00::2/64")}})
	at := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:80"), netip.MustParseAddrPort("[fd00::2]:80")}
	StartBackend(t, server, backend.Config{ID: "there"}, at...)
	for _, to := range at {
		ConnectTo(t, client, netip.Addr{}, to.String()).Hear("there\n")
		if got, ok := DatagramsTo(t, client, netip.Addr{}, to.String()).Ask("x", Patience); got != "there:x" || !ok {
			t.Errorf("%v answers %q", to, got)
		}
	}
	if c, err := TryConnect(t, client, netip.Addr{}, "127.0.0.1:80"); err == nil {
		t.Errorf("connected to %v, which is in the other namespace", c.RemoteAddr())
	}
}

func TestEveryAddressIsLocal(t *testing.T) {
	n := NewNamespace(t)
	n.MakeAllLocal(t)
	StartBackend(t, n, backend.Config{}, netip.MustParseAddrPort("0.0.0.0:80"), netip.MustParseAddrPort("[::]:80"))
	for _, c := range []struct{ from, to string }{
		{"192.0.2.1", "198.51.100.7:80"}, {"8.8.8.8", "10.1.2.3:80"}, {"2001:db8::1", "[2001:db8:1::7]:80"},
	} {
		from := netip.MustParseAddr(c.from)
		ConnectTo(t, n, from, c.to).Hear(c.to + "\n")
		if got, _ := DatagramsTo(t, n, from, c.to).Ask("x", Patience); got != c.to+":x" {
			t.Errorf("%s answers %q", c.to, got)
		}
	}
}

func TestDifferences(t *testing.T) {
	want := Message{"a": 1, "list": []any{1, "x"}, "inner": Message{"seconds": 1.0}, "gone": true}
	for _, c := range []struct {
		change Message
		diff   []string
	}{
		{Message{}, nil},
		{Message{"inner": Message{"seconds": 1.2}}, nil},
		{Message{"inner": Message{"seconds": 0.6}}, []string{"x/inner/seconds: want 1, got 0.6"}},
		{Message{"inner": Message{"seconds": 9}}, []string{"x/inner/seconds: want 1, got 9"}},
		{Message{"a": 2}, []string{"x/a: want 1, got 2"}},
		{Message{"a": nil}, []string{"x/a: want 1, got null"}},
		{Message{"list": []any{1}}, []string{`x/list: want [1,"x"], got [1]`}},
		{Message{"list": []any{1, "y"}}, []string{`x/list[1]: want "x", got "y"`}},
		{Message{"new": 3}, []string{"x/new: want nothing, got 3"}},
	} {
		got := Compare(t, "x", want, Merge(want, c.change))
		if strings.Join(got, "\n") != strings.Join(c.diff, "\n") {
			t.Errorf("%v: differences are %q, want %q", c.change, got, c.diff)
		}
	}
	delete(want, "gone")
	if got := Compare(t, "x", Merge(want, Message{"gone": true}), want); len(got) != 1 || got[0] != "x/gone: want true, got nothing" {
		t.Errorf("a missing key: %q", got)
	}
}

func TestShapeIsKeysAndNesting(t *testing.T) {
	shape := Shape(plain(t, Message{"n": 1, "hosts": []any{
		Message{"name": "a", "v": "1"}, Message{"name": "b", "v": []any{}},
	}, "list": []any{Message{"k": []any{}}, Message{"k": []any{true}}}}))
	want := Message{
		"/n": "float64", "/hosts[a]/name": "string", "/hosts[a]/v": "string",
		"/hosts[b]/name": "string", "/hosts[b]/v": "[]", "/list[]/k[]": "bool",
	}
	if diff := Compare(t, "", want, shape); len(diff) > 0 {
		t.Error(diff)
	}
}

func TestDeviationsAreLaidOverWhatIsRecorded(t *testing.T) {
	row := Row{}.With(t, "case", "c").With(t, "stats", map[string]int{"a": 1, "b": 2}).With(t, "log", []string{"x"})
	e := &Expectations{Subject: Subject{Name: "guideway"}, deviations: []deviation{
		{Case: "c", What: "stats", Expect: []byte(`{"a": null, "b": 3, "d": 4}`)},
		{Case: "c", What: "log", Expect: []byte(`["y"]`)},
		{Case: "other", What: "log", Expect: []byte(`[]`)},
	}, used: make([]bool, 3)}
	e.Expect(t, row, "stats", map[string]int{"b": 3, "d": 4})
	e.Expect(t, row, "log", []string{"y"})
	if !e.used[0] || !e.used[1] || e.used[2] {
		t.Errorf("used is %v", e.used)
	}
}

func TestAnchors(t *testing.T) {
	for title, want := range map[string]string{
		"Drain":                      "drain",
		" Close reasons (`closed=`)": "close-reasons-closed",
		"UDP: 1,500 bytes":           "udp-1500-bytes",
	} {
		if got := anchor(title); got != want {
			t.Errorf("anchor(%q) = %q, want %q", title, got, want)
		}
	}
}

func TestEnvoyServesOnAPortOfItsOwn(t *testing.T) {
	config := `admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}`
	p := StartEnvoy(t, config).Ready()
	if stats := p.Stats(); stats["server.live"] != 1 {
		t.Errorf("server.live is %d", stats["server.live"])
	}
	if r := p.Get("/nope"); r.Status != 404 || !strings.HasPrefix(r.Body, "invalid path") {
		t.Errorf("GET /nope: %+v", r)
	}
	p.Post("/quitquitquit")
	if code := p.Wait(); code != 0 {
		t.Errorf("exit code is %d", code)
	}
	if !strings.Contains(p.Stderr(), "exiting") {
		t.Errorf("stderr is not kept: %q", p.Stderr())
	}
}
