package envoy

import (
	"net/netip"
	"slices"

	configv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"github.com/guideway/guideway/dataplane"
)

// condition is a rule on a connection's addresses and server name.
type condition func(*dataplane.ConnAddrs) bool

// maxRBACDepth bounds nesting of rules.
const maxRBACDepth = 32

// rbac translates envoy.filters.network.rbac; nil if it decides nothing.
func rbac(m *rbacv3.RBAC, at cursor) *dataplane.RBAC {
	rules := m.GetRules()
	if rules == nil {
		return nil
	}
	type policy struct {
		name                    string
		permissions, principals condition
	}
	var policies []policy
	names := make([]string, 0, len(rules.GetPolicies()))
	for name := range rules.GetPolicies() {
		names = append(names, name)
	}
	slices.Sort(names) // Envoy's order
	for _, name := range names {
		p, where := rules.GetPolicies()[name], at.field("rules").field("policies").field(name)
		if p.GetCondition() != nil || p.GetCheckedCondition() != nil || p.GetCelConfig() != nil {
			where.fail("conditions in CEL are not supported")
			continue
		}
		policies = append(policies, policy{name,
			either(permissions(p.GetPermissions(), where.field("permissions"), 0)),
			either(principals(p.GetPrincipals(), where.field("principals"), 0))})
	}
	action := rules.GetAction()
	return &dataplane.RBAC{
		StatPrefix: m.GetStatPrefix(),
		Allowed: func(a dataplane.ConnAddrs) (bool, string) {
			for i := range policies {
				if policies[i].permissions(&a) && policies[i].principals(&a) {
					return action != configv3.RBAC_DENY, policies[i].name
				}
			}
			return action != configv3.RBAC_ALLOW, ""
		},
	}
}

func either(cs []condition) condition {
	return func(a *dataplane.ConnAddrs) bool {
		return slices.ContainsFunc(cs, func(c condition) bool { return c(a) })
	}
}

func every(cs []condition) condition {
	return func(a *dataplane.ConnAddrs) bool {
		return !slices.ContainsFunc(cs, func(c condition) bool { return !c(a) })
	}
}

func not(c condition) condition { return func(a *dataplane.ConnAddrs) bool { return !c(a) } }

func constant(v bool) condition { return func(*dataplane.ConnAddrs) bool { return v } }

func permissions(ps []*configv3.Permission, at cursor, depth int) []condition {
	var out []condition
	for i, p := range ps {
		out = append(out, permission(p, at.at(i), depth))
	}
	return out
}

func permission(p *configv3.Permission, at cursor, depth int) condition {
	if depth > maxRBACDepth {
		at.fail("rules are nested deeper than %d levels", maxRBACDepth)
		return constant(false)
	}
	switch r := p.GetRule().(type) {
	case *configv3.Permission_Any:
		return constant(r.Any)
	case *configv3.Permission_AndRules:
		return every(permissions(r.AndRules.GetRules(), at.field("and_rules").field("rules"), depth+1))
	case *configv3.Permission_OrRules:
		return either(permissions(r.OrRules.GetRules(), at.field("or_rules").field("rules"), depth+1))
	case *configv3.Permission_NotRule:
		return not(permission(r.NotRule, at.field("not_rule"), depth+1))
	case *configv3.Permission_DestinationIp:
		prefix, _ := at.field("destination_ip").cidr(r.DestinationIp, r.DestinationIp.GetPrefixLen().GetValue())
		return func(a *dataplane.ConnAddrs) bool { return holds(prefix, a.Local.Addr()) }
	case *configv3.Permission_DestinationPort:
		return func(a *dataplane.ConnAddrs) bool { return uint32(a.Local.Port()) == r.DestinationPort }
	case *configv3.Permission_DestinationPortRange:
		start, end := r.DestinationPortRange.GetStart(), r.DestinationPortRange.GetEnd()
		where := at.field("destination_port_range")
		if start < 0 || end > 65536 || start >= end {
			where.fail("the range [%d, %d) is empty or holds what is no port; end is not part of it", start, end)
		}
		return func(a *dataplane.ConnAddrs) bool {
			port := int32(a.Local.Port())
			return start <= port && port < end
		}
	case *configv3.Permission_RequestedServerName:
		match := at.field("requested_server_name").stringMatch(r.RequestedServerName)
		return func(a *dataplane.ConnAddrs) bool { return match != nil && match(a.ServerName) }
	}
	at.fail("only any, and_rules, or_rules, not_rule, destination_ip, destination_port, destination_port_range and requested_server_name are supported: the others need HTTP or metadata")
	return constant(false)
}

func principals(ps []*configv3.Principal, at cursor, depth int) []condition {
	var out []condition
	for i, p := range ps {
		out = append(out, principal(p, at.at(i), depth))
	}
	return out
}

func principal(p *configv3.Principal, at cursor, depth int) condition {
	if depth > maxRBACDepth {
		at.fail("rules are nested deeper than %d levels", maxRBACDepth)
		return constant(false)
	}
	switch r := p.GetIdentifier().(type) {
	case *configv3.Principal_Any:
		return constant(r.Any)
	case *configv3.Principal_AndIds:
		return every(principals(r.AndIds.GetIds(), at.field("and_ids").field("ids"), depth+1))
	case *configv3.Principal_OrIds:
		return either(principals(r.OrIds.GetIds(), at.field("or_ids").field("ids"), depth+1))
	case *configv3.Principal_NotId:
		return not(principal(r.NotId, at.field("not_id"), depth+1))
	case *configv3.Principal_SourceIp:
		prefix, _ := at.field("source_ip").cidr(r.SourceIp, r.SourceIp.GetPrefixLen().GetValue())
		return func(a *dataplane.ConnAddrs) bool { return holds(prefix, a.Remote.Addr()) }
	case *configv3.Principal_RemoteIp:
		prefix, _ := at.field("remote_ip").cidr(r.RemoteIp, r.RemoteIp.GetPrefixLen().GetValue())
		return func(a *dataplane.ConnAddrs) bool { return holds(prefix, a.Remote.Addr()) }
	case *configv3.Principal_DirectRemoteIp:
		prefix, _ := at.field("direct_remote_ip").cidr(r.DirectRemoteIp, r.DirectRemoteIp.GetPrefixLen().GetValue())
		return func(a *dataplane.ConnAddrs) bool { return holds(prefix, a.Direct.Addr()) }
	}
	at.fail("only any, and_ids, or_ids, not_id, source_ip, remote_ip and direct_remote_ip are supported: the others need TLS, HTTP or metadata")
	return constant(false)
}

// holds is Contains for addresses with a zone as well.
func holds(p netip.Prefix, a netip.Addr) bool { return p.Contains(a.WithZone("")) }
