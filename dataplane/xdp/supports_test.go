package xdp

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/accesslog"
)

func TestSupports(t *testing.T) {
	for _, c := range []struct {
		name   string
		proto  dataplane.Protocol
		change func(*dataplane.Listener, *dataplane.Cluster)
		want   string // part of the reason, "" for none
	}{
		{"TCP", dataplane.TCP, func(*dataplane.Listener, *dataplane.Cluster) {}, ""},
		{"UDP", dataplane.UDP, func(*dataplane.Listener, *dataplane.Cluster) {}, ""},
		{"any address", dataplane.TCP, at("0.0.0.0:80"), "every address"},
		{"loopback", dataplane.TCP, at("127.0.0.1:80"), "no interface"},
		{"any port", dataplane.TCP, at("192.0.2.1:0"), "free port"},
		{"another port", dataplane.TCP, at("192.0.2.1:81"), "another port"},
		{"another port by nat", dataplane.TCP, func(l *dataplane.Listener, c *dataplane.Cluster) {
			at("192.0.2.1:81")(l, c)
			c.Forwarding = "nat"
		}, ""},
		{"nat between families", dataplane.TCP, func(l *dataplane.Listener, c *dataplane.Cluster) {
			at("[2001:db8::1]:80")(l, c)
			c.Forwarding = "nat"
		}, "another family"},
		{"ipip between families", dataplane.TCP, at("[2001:db8::1]:80"), ""},
		{"PROXY protocol in", dataplane.TCP, func(l *dataplane.Listener, _ *dataplane.Cluster) {
			l.ListenerFilters = []dataplane.ListenerFilter{&dataplane.ProxyProtocolFilter{}}
		}, "listener filters"},
		{"PROXY protocol out", dataplane.TCP, func(_ *dataplane.Listener, c *dataplane.Cluster) {
			c.ProxyProtocol = &dataplane.UpstreamProxyProtocol{Version: 1}
		}, "PROXY header"},
		{"RBAC", dataplane.TCP, func(l *dataplane.Listener, _ *dataplane.Cluster) {
			l.DefaultChain.Filters = []dataplane.NetworkFilter{&dataplane.RBAC{}}
		}, "filters before"},
		{"matched chains", dataplane.TCP, func(l *dataplane.Listener, _ *dataplane.Cluster) {
			l.Chains = []*dataplane.FilterChain{{Match: dataplane.ChainMatch{DestinationPort: 80}, Proxy: l.DefaultChain.Proxy}}
		}, "filter chains"},
		{"an access log", dataplane.TCP, func(l *dataplane.Listener, _ *dataplane.Cluster) {
			l.DefaultChain.Proxy.AccessLog = []*accesslog.Log{nil}
		}, "access log"},
		{"a duration", dataplane.TCP, func(l *dataplane.Listener, _ *dataplane.Cluster) { l.DefaultChain.Proxy.MaxDuration = time.Second }, "how long"},
		{"random", dataplane.TCP, func(_ *dataplane.Listener, c *dataplane.Cluster) { c.RandomHash = true }, "at random"},
		{"each datagram", dataplane.UDP, func(l *dataplane.Listener, _ *dataplane.Cluster) { l.UDP.PerPacket = true }, "each datagram"},
		{"UDP routes", dataplane.UDP, func(l *dataplane.Listener, _ *dataplane.Cluster) { l.UDP.Only = "" }, "client's address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := snapshot(t, c.proto, hostSpec{n: 1})
			c.change(s.Listeners[0], s.Clusters["c"])
			err := Supports(s.Listeners[0], s.Clusters)
			if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func at(address string) func(*dataplane.Listener, *dataplane.Cluster) {
	return func(l *dataplane.Listener, _ *dataplane.Cluster) {
		l.Addresses = []dataplane.ListenAddress{{Addr: netip.MustParseAddrPort(address)}}
	}
}
