package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/guideway/guideway/controlplane/model"
)

// Answer is what a name resolved to.
type Answer struct {
	// Addrs without duplicates, in the order of the answer. None is an answer too: the name does not
	// exist, or has no address of the family.
	Addrs []netip.Addr
	// TTL is the least of the records used, with the aliases on the way; 0 if unknown.
	TTL time.Duration
}

// Resolver looks names up. Safe for concurrent use.
type Resolver interface {
	// Lookup returns the addresses of name in the families asked for. An error means that nobody
	// knows: servers were silent, or refused, or failed.
	Lookup(ctx context.Context, name string, family model.DNSFamily) (Answer, error)
}

// How long one query waits and how often it is sent where servers are configured; with those of
// resolv.conf its options timeout and attempts say so.
const (
	queryTimeout  = 2 * time.Second
	queryAttempts = 3
)

// payload is the size of UDP answers asked for, in bytes: what passes every path unfragmented
// (DNS flag day 2020).
const payload = 1232

// client queries servers itself, as only so it learns TTLs and tells "no such name" from "no answer".
type client struct {
	servers func() (*mdns.ClientConfig, error)
	hosts   *net.Resolver
	tcp     bool
	// timeout of the first query, 0 for that of the servers' configuration.
	timeout time.Duration
}

// NewResolver returns a resolver for a cluster's settings. Names in /etc/hosts are taken from there,
// others are asked of the configured servers, or those of /etc/resolv.conf, which is read anew for
// each lookup, as its search list is. An address resolves to itself.
func NewResolver(s *model.DNS) Resolver {
	return newClient(s, "/etc/resolv.conf")
}

func newClient(s *model.DNS, resolvConf string) *client {
	c := &client{tcp: s.UseTCP, hosts: hostsFile(), timeout: queryTimeout}
	if len(s.Resolvers) == 0 {
		c.timeout = 0
		c.servers = func() (*mdns.ClientConfig, error) { return mdns.ClientConfigFromFile(resolvConf) }
		return c
	}
	c.servers = func() (*mdns.ClientConfig, error) {
		// The search list and ndots are the system's even then; without a resolv.conf there are none.
		conf, err := mdns.ClientConfigFromFile(resolvConf)
		if err != nil {
			conf = &mdns.ClientConfig{Ndots: 1}
		}
		conf.Attempts = queryAttempts
		conf.Servers = nil
		for _, r := range s.Resolvers {
			port := r.Port()
			if port == 0 {
				port = 53
			}
			conf.Servers = append(conf.Servers, netip.AddrPortFrom(r.Addr(), port).String())
		}
		return conf, nil
	}
	return c
}

// errNoServers stops a hostsFile resolver from asking anybody.
var errNoServers = errors.New("not in /etc/hosts")

// hostsFile is Go's resolver with nobody to ask: it reads (and caches) /etc/hosts and no more.
func hostsFile() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errNoServers }}
}

// Lookup implements Resolver.
func (c *client) Lookup(ctx context.Context, name string, family model.DNSFamily) (Answer, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		return Answer{Addrs: []netip.Addr{a}}, nil
	}
	if _, ok := mdns.IsDomainName(name); !ok || name == "" {
		return Answer{}, fmt.Errorf("%q is not a domain name", name)
	}
	first, second := families(family)
	if family == model.AllFamilies {
		return c.lookupBoth(ctx, name)
	}
	a, err := c.lookup(ctx, name, first)
	if len(a.Addrs) > 0 || second == 0 {
		return a, err
	}
	b, err2 := c.lookup(ctx, name, second)
	if len(b.Addrs) > 0 {
		return b, nil
	}
	// "No addresses" takes both families to say so.
	return Answer{}, errors.Join(err, err2)
}

// families are the record types to ask for, the second only if the first yields no address; 0 is none.
func families(f model.DNSFamily) (first, second uint16) {
	switch f {
	case model.V4Only:
		return mdns.TypeA, 0
	case model.V6Only:
		return mdns.TypeAAAA, 0
	case model.V4Preferred:
		return mdns.TypeA, mdns.TypeAAAA
	}
	return mdns.TypeAAAA, mdns.TypeA
}

// lookupBoth asks for both families at once: IPv4 first in the answer, and one that fails does not
// spoil what the other found.
func (c *client) lookupBoth(ctx context.Context, name string) (Answer, error) {
	var v6 Answer
	var err6 error
	done := make(chan struct{})
	go func() {
		defer close(done)
		v6, err6 = c.lookup(ctx, name, mdns.TypeAAAA)
	}()
	v4, err4 := c.lookup(ctx, name, mdns.TypeA)
	<-done
	if len(v4.Addrs)+len(v6.Addrs) == 0 {
		return Answer{}, errors.Join(err4, err6)
	}
	a := Answer{Addrs: slices.Concat(v4.Addrs, v6.Addrs), TTL: v4.TTL}
	if len(v4.Addrs) == 0 || len(v6.Addrs) > 0 && v6.TTL < v4.TTL {
		a.TTL = v6.TTL
	}
	return a, nil
}

// lookup finds addresses of one record type: in the hosts file, else by asking for the name with
// each suffix of the search list until one has any.
func (c *client) lookup(ctx context.Context, name string, qtype uint16) (Answer, error) {
	if as := c.fromHosts(ctx, name, qtype); len(as) > 0 {
		return Answer{Addrs: as}, nil
	}
	conf, err := c.servers()
	if err != nil {
		return Answer{}, fmt.Errorf("find DNS servers (set dns_resolvers, or fix the file): %w", err)
	}
	var failure error
	for _, fqdn := range conf.NameList(name) {
		a, err := c.ask(ctx, conf, fqdn, qtype)
		if len(a.Addrs) > 0 {
			return a, nil
		}
		if err != nil && failure == nil {
			failure = err
		}
	}
	return Answer{}, failure
}

func (c *client) fromHosts(ctx context.Context, name string, qtype uint16) []netip.Addr {
	network := "ip4"
	if qtype == mdns.TypeAAAA {
		network = "ip6"
	}
	as, err := c.hosts.LookupNetIP(ctx, network, name)
	if err != nil {
		return nil // whatever the reason, DNS is next
	}
	for i := range as {
		as[i] = as[i].Unmap()
	}
	return unique(as)
}

// ask queries one name of one server after the other, as often as the configuration says, each round
// with twice the time of the one before.
func (c *client) ask(ctx context.Context, conf *mdns.ClientConfig, fqdn string, qtype uint16) (Answer, error) {
	var last error
	timeout := c.timeout
	if timeout == 0 {
		timeout = time.Duration(conf.Timeout) * time.Second
	}
	for range max(conf.Attempts, 1) {
		for _, server := range conf.Servers {
			if ctx.Err() != nil {
				return Answer{}, ctx.Err()
			}
			if _, _, err := net.SplitHostPort(server); err != nil {
				server = net.JoinHostPort(server, conf.Port)
			}
			m, err := c.exchange(ctx, server, fqdn, qtype, timeout)
			if err != nil {
				last = fmt.Errorf("ask %s for %s %s: %w", server, fqdn, mdns.TypeToString[qtype], err)
				continue
			}
			switch m.Rcode {
			case mdns.RcodeSuccess, mdns.RcodeNameError:
				return read(m, qtype), nil
			}
			last = fmt.Errorf("ask %s for %s %s: the server answered %s", server, fqdn, mdns.TypeToString[qtype], mdns.RcodeToString[m.Rcode])
		}
		timeout *= 2
	}
	if last == nil {
		last = fmt.Errorf("ask for %s: no DNS servers (set dns_resolvers, or name some in /etc/resolv.conf)", fqdn)
	}
	return Answer{}, last
}

// exchange sends one query, by UDP unless told otherwise, and again by TCP if the answer was cut.
func (c *client) exchange(ctx context.Context, server, fqdn string, qtype uint16, timeout time.Duration) (*mdns.Msg, error) {
	q := new(mdns.Msg)
	q.SetQuestion(fqdn, qtype)
	q.SetEdns0(payload, false)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	network := "udp"
	if c.tcp {
		network = "tcp"
	}
	m, err := send(ctx, network, server, q)
	if err == nil && m.Rcode == mdns.RcodeFormatError {
		q.Extra = nil // a server from before EDNS (RFC 6891, 7)
		m, err = send(ctx, network, server, q)
	}
	if err == nil && m.Truncated && network == "udp" {
		return send(ctx, "tcp", server, q)
	}
	return m, err
}

// send sends one query and waits for its answer until ctx ends.
func send(ctx context.Context, network, server string, q *mdns.Msg) (*mdns.Msg, error) {
	client := mdns.Client{Net: network, UDPSize: payload}
	conn, err := client.DialContext(ctx, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// The library has no other way to end a wait before its time.
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	deadline, _ := ctx.Deadline()
	client.Timeout = time.Until(deadline)
	m, _, err := client.ExchangeWithConn(q, conn)
	return m, err
}

// read takes the addresses out of a response. All of them, as c-ares does: following aliases was the
// server's work.
func read(m *mdns.Msg, qtype uint16) Answer {
	var a Answer
	ttl := uint32(1<<31 - 1)
	for _, rr := range m.Answer {
		var ip net.IP
		switch rr := rr.(type) {
		case *mdns.CNAME:
			ttl = min(ttl, rr.Hdr.Ttl)
		case *mdns.A:
			ip = rr.A.To4()
		case *mdns.AAAA:
			ip = rr.AAAA
		}
		if addr, ok := netip.AddrFromSlice(ip); ok && rr.Header().Rrtype == qtype {
			a.Addrs = append(a.Addrs, addr)
			ttl = min(ttl, rr.Header().Ttl)
		}
	}
	a.Addrs = unique(a.Addrs)
	if len(a.Addrs) > 0 {
		a.TTL = time.Duration(ttl) * time.Second
	}
	return a
}

// unique drops repeated addresses and keeps the order.
func unique(as []netip.Addr) []netip.Addr {
	seen := map[netip.Addr]bool{}
	return slices.DeleteFunc(as, func(a netip.Addr) bool {
		was := seen[a]
		seen[a] = true
		return was
	})
}
