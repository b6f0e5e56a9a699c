package envoy

import (
	"net/netip"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	dnscommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/common/dns/v3"
	dnsclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	caresv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	getaddrinfov3 "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/getaddrinfo/v3"
	"github.com/guideway/guideway/controlplane/model"
	"google.golang.org/protobuf/types/known/durationpb"
)

// defaultRefresh is Envoy's default of dns_refresh_rate.
const defaultRefresh = 5 * time.Second

// legacyDNS reads the DNS fields of the cluster itself.
func (t *translator) legacyDNS(c *clusterv3.Cluster, at cursor) model.DNS {
	d := model.DNS{
		RefreshRate: duration(c.GetDnsRefreshRate(), defaultRefresh),
		Jitter:      duration(c.GetDnsJitter(), 0),
		RespectTTL:  c.GetRespectDnsTtl(),
		Family:      [...]model.DNSFamily{model.AutoFamily, model.V4Only, model.V6Only, model.V4Preferred, model.AllFamilies}[bounded(int32(c.GetDnsLookupFamily()), 5)],
	}
	t.failureRefresh(&d, c.GetDnsFailureRefreshRate(), at.field("dns_failure_refresh_rate"))
	switch {
	case c.GetTypedDnsResolverConfig() != nil:
		resolver(&d, c.GetTypedDnsResolverConfig(), at.field("typed_dns_resolver_config"))
	case c.GetDnsResolutionConfig() != nil:
		where := at.field("dns_resolution_config")
		d.Resolvers = where.field("resolvers").resolvers(c.GetDnsResolutionConfig().GetResolvers())
		d.UseTCP = c.GetDnsResolutionConfig().GetDnsResolverOptions().GetUseTcpForDnsLookups()
	case len(c.GetDnsResolvers()) > 0 || c.GetUseTcpForDnsLookups():
		d.Resolvers = at.field("dns_resolvers").resolvers(c.GetDnsResolvers())
		d.UseTCP = c.GetUseTcpForDnsLookups()
	default:
		t.bootstrapResolver(&d)
	}
	return d
}

// typedDNS reads a DnsCluster.
func (t *translator) typedDNS(c *dnsclusterv3.DnsCluster, at cursor) model.DNS {
	d := model.DNS{
		RefreshRate: duration(c.GetDnsRefreshRate(), defaultRefresh),
		Jitter:      duration(c.GetDnsJitter(), 0),
		RespectTTL:  c.GetRespectDnsTtl(),
	}
	switch c.GetDnsLookupFamily() {
	case dnscommonv3.DnsLookupFamily_V4_ONLY:
		d.Family = model.V4Only
	case dnscommonv3.DnsLookupFamily_V6_ONLY:
		d.Family = model.V6Only
	case dnscommonv3.DnsLookupFamily_V4_PREFERRED:
		d.Family = model.V4Preferred
	case dnscommonv3.DnsLookupFamily_ALL:
		d.Family = model.AllFamilies
	}
	t.failureRefresh(&d, c.GetDnsFailureRefreshRate(), at.field("dns_failure_refresh_rate"))
	if c.GetTypedDnsResolverConfig() != nil {
		resolver(&d, c.GetTypedDnsResolverConfig(), at.field("typed_dns_resolver_config"))
	} else {
		t.bootstrapResolver(&d)
	}
	return d
}

// failureRefresh reads how often a failed lookup is repeated: by default as often as any other; the
// maximum is ten times the base.
func (t *translator) failureRefresh(d *model.DNS, r interface {
	GetBaseInterval() *durationpb.Duration
	GetMaxInterval() *durationpb.Duration
}, at cursor) {
	d.FailureRefreshBase, d.FailureRefreshMax = d.RefreshRate, d.RefreshRate
	if r.GetBaseInterval() == nil {
		return
	}
	d.FailureRefreshBase = r.GetBaseInterval().AsDuration()
	d.FailureRefreshMax = duration(r.GetMaxInterval(), 10*d.FailureRefreshBase)
	if d.FailureRefreshMax < d.FailureRefreshBase {
		at.failAs("dns_failure_refresh_rate must have max_interval greater than or equal to the base_interval",
			"max_interval %s is below base_interval %s", d.FailureRefreshMax, d.FailureRefreshBase)
	}
}

// bootstrapResolver fills in what the bootstrap says for all clusters.
func (t *translator) bootstrapResolver(d *model.DNS) {
	if t.boot == nil {
		return
	}
	top := cursor{r: t.r}
	switch {
	case t.boot.GetTypedDnsResolverConfig() != nil:
		resolver(d, t.boot.GetTypedDnsResolverConfig(), top.field("typed_dns_resolver_config"))
	case t.boot.GetDnsResolutionConfig() != nil:
		c := t.boot.GetDnsResolutionConfig()
		d.Resolvers = top.field("dns_resolution_config").field("resolvers").resolvers(c.GetResolvers())
		d.UseTCP = c.GetDnsResolverOptions().GetUseTcpForDnsLookups()
	default:
		d.UseTCP = t.boot.GetUseTcpForDnsLookups()
	}
}

// resolver reads a resolver extension.
func resolver(d *model.DNS, c *corev3.TypedExtensionConfig, at cursor) {
	where := at.field("typed_config")
	switch m := unpack(c.GetTypedConfig()).(type) {
	case nil:
	case *caresv3.CaresDnsResolverConfig:
		d.Resolvers = where.field("resolvers").resolvers(m.GetResolvers())
		d.UseTCP = m.GetDnsResolverOptions().GetUseTcpForDnsLookups()
	case *getaddrinfov3.GetAddrInfoDnsResolverConfig:
	default:
		where.fail("only the c-ares and getaddrinfo resolvers are imitated, not %s", m.ProtoReflect().Descriptor().FullName())
	}
}

// resolvers reads name servers; a port of 0 means 53.
func (c cursor) resolvers(as []*corev3.Address) []netip.AddrPort {
	out := c.addrPorts(as)
	for i, a := range out {
		if a.Port() == 0 {
			out[i] = netip.AddrPortFrom(a.Addr(), 53)
		}
	}
	return out
}

// bounded keeps an enum's number inside a table; validators have refused others.
func bounded(v, n int32) int32 {
	if v < 0 || v >= n {
		return 0
	}
	return v
}
