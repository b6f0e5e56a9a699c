//go:build ignore

/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * The packet path: Ethernet, VLAN tags, IPv4 or IPv6, what may be between them and layer 4, the service, the backend,
 * and out. What most packets need is inline and in one piece; the rest is in functions of their own.
 */
#include "capture.h"
#include "encap.h"
#include "frag.h"
#include "hash.h"
#include "icmp.h"
#include "maps.h"
#include "nat.h"
#include "parse.h"
#include "quoted.h"
#include "stats.h"
#include "steer.h"

/* What is to be known of a packet whose layer 4 is not where it stands for most: a fragment, whose first one left it; an
 * IPv6 packet with extension headers; an ICMP error, of the flow that it is about. */
struct piece {
	__u64 client[2]; /* ICMP errors: where the flow's packets come from. IPv4: mapped */
	__u32 l4;
	__u32 ports;
	__u32 generation;
	__u16 backend; /* NO_BACKEND if it is to be asked for */
	__u8 proto;
	__u8 later;
	__u8 first;
	__u8 zero[3];
};

static __always_inline int is_vip4(__be32 addr)
{
	struct service_key4 k = {.vip = addr, .proto = PROTO_ICMP};
	return bpf_map_lookup_elem(&services4, &k) != NULL;
}

static __always_inline int is_vip6(const __u64 addr[2])
{
	struct service_key6 k = {.proto = PROTO_ICMPV6};
	__builtin_memcpy(k.vip, addr, 16);
	return bpf_map_lookup_elem(&services6, &k) != NULL;
}

/* The backend of a fragment's packet, if it still serves. */
static __always_inline __u32 backend_of_piece(const struct service *s, const struct piece *x)
{
	struct backend *be = backend_of(s, x->backend);
	return be && be->generation == x->generation ? x->backend : NO_TABLE;
}

static __always_inline int read_piece(struct piece *x, const struct fragment_key *k)
{
	struct fragment *f = find_fragment(k);
	if (!f)
		return 0;
	x->ports = f->sport | (__u32)f->dport << 16;
	x->generation = f->generation;
	x->backend = f->backend;
	x->proto = f->proto;
	return 1;
}

__apart int fragment4(struct xdp_md *ctx, __u32 l3, struct piece *x)
{
	if (!x)
		return XDP_PASS;
	void *data = packet_start(ctx), *end = packet_end(ctx);
	struct iphdr *ip = data + (l3 & 31);
	if ((void *)(ip + 1) > end)
		return XDP_PASS;
	x->later = !!(ip->frag & IP_OFFSET);
	x->first = !x->later;
	if (x->later) {
		struct fragment_key k = {};
		fragment_key4(&k, ip);
		if (!read_piece(x, &k))
			return is_vip4(ip->dst) ? drop_early(DROP_FRAGMENT_FIRST) : XDP_PASS;
		return ACTION_NONE;
	}
	__u32 *ports = data + (x->l4 & 0x7f);
	if ((void *)(ports + 1) > end)
		return is_vip4(ip->dst) ? drop_early(DROP_MALFORMED) : XDP_PASS;
	x->ports = *ports;
	return ACTION_NONE;
}

__apart int leave_fragment4(struct xdp_md *ctx, const struct piece *x)
{
	if (!x)
		return 0;
	struct iphdr *ip = packet_start(ctx) + (x->l4 & 31); /* of layer 3, here */
	struct fragment_key k = {};
	if ((void *)(ip + 1) > packet_end(ctx))
		return 0;
	fragment_key4(&k, ip);
	return leave_fragment(&k, x->ports, x->proto, x->backend, x->generation);
}

/* The extension headers of an IPv6 packet, and its fragment header if there is one. */
__apart int extensions6(struct xdp_md *ctx, __u32 l3, struct piece *x)
{
	if (!x)
		return XDP_PASS;
	struct extensions e = {.l4 = x->l4, .proto = x->proto};
	walk_extensions(ctx, &e);
	void *data = packet_start(ctx), *end = packet_end(ctx);
	struct ip6hdr *ip = data + (l3 & 31);
	if ((void *)(ip + 1) > end)
		return XDP_PASS;
	if (e.unknown)
		return is_vip6(ip->dst) ? drop_early(DROP_EXTENSION) : XDP_PASS;
	x->l4 = e.l4;
	x->proto = e.proto;
	if (e.fragment) {
		struct fraghdr *f = data + (e.fragment_at & 0x3ff);
		if ((void *)(f + 1) > end)
			return XDP_PASS;
		x->later = !!(f->offset & HTONS(0xfff8));
		x->first = !x->later && f->offset & HTONS(1);
		if ((x->later || x->first) && (!config.fragments || e.proto == PROTO_ICMPV6))
			return XDP_PASS;
		if (x->later) {
			struct fragment_key k = {};
			fragment_key6(&k, ip, f->id);
			if (!read_piece(x, &k))
				return is_vip6(ip->dst) ? drop_early(DROP_FRAGMENT_FIRST) : XDP_PASS;
			return ACTION_NONE;
		}
	}
	__u32 *ports = data + (x->l4 & 0x3ff);
	if ((void *)(ports + 1) > end)
		return is_vip6(ip->dst) ? drop_early(DROP_MALFORMED) : XDP_PASS;
	x->ports = *ports;
	return ACTION_NONE;
}

__apart int leave_fragment6(struct xdp_md *ctx, const struct piece *x)
{
	if (!x)
		return 0;
	struct fragment_key k = {};
	__u32 l3 = x->l4 & 31; /* of layer 3, here */
	struct ip6hdr *ip = packet_start(ctx) + l3;
	if ((void *)(ip + 1) > packet_end(ctx))
		return 0;
	struct extensions e = {.l4 = l3 + sizeof(*ip), .proto = ip->next};
	walk_extensions(ctx, &e);
	struct fraghdr *f = packet_start(ctx) + (e.fragment_at & 0x3ff);
	if (!e.fragment || (void *)(f + 1) > packet_end(ctx))
		return 0;
	fragment_key6(&k, ip, f->id);
	return leave_fragment(&k, x->ports, x->proto, x->backend, x->generation);
}

static __always_inline int quoted_piece(struct xdp_md *ctx, __u32 l4, int v6, const __u64 vip[2], struct piece *x)
{
	struct quoted q = {};
	if (!read_quoted(ctx, l4, v6, &q))
		return q.proto == PROTO_TCP || q.proto == PROTO_UDP ? drop_early(DROP_ICMP_UNMATCHED) : XDP_PASS;
	if (q.src[0] != vip[0] || q.src[1] != vip[1])
		return XDP_PASS;
	x->client[0] = q.dst[0];
	x->client[1] = q.dst[1];
	x->ports = q.dport | (__u32)q.sport << 16;
	x->proto = q.proto;
	return ACTION_NONE;
}

/* An ICMP message. ACTION_NONE: an error about a packet from one of our VIPs, about whose flow x has all. */
__apart int icmp4(struct xdp_md *ctx, __u32 l3, __u32 l4, struct piece *x)
{
	if (!x)
		return XDP_PASS;
	void *data = packet_start(ctx), *end = packet_end(ctx);
	struct iphdr *ip = data + (l3 & 31);
	struct icmphdr *icmp = data + (l4 & 0x7f);
	if ((void *)(ip + 1) > end || (void *)(icmp + 1) > end || ip->frag & (IP_MF | IP_OFFSET))
		return XDP_PASS;
	__be32 dst = ip->dst;
	__u8 type = icmp->type;
	if (!is_vip4(dst)) {
		if (!config.nat || !is_error4(type))
			return XDP_PASS;
		struct packet p = {.l3 = l3, .l4 = l4, .len = ntohs(ip->len), .proto = PROTO_ICMP, .ttl = ip->ttl};
		return nat_return_icmp(ctx, &p);
	}
	if (type == ICMP_ECHO)
		return echo_reply(ctx, l3, l4, 0);
	if (!is_error4(type))
		return XDP_PASS;
	__u64 vip[2];
	map_ipv4(vip, dst);
	return quoted_piece(ctx, l4, 0, vip, x);
}

__apart int icmp6(struct xdp_md *ctx, __u32 l3, __u32 l4, struct piece *x)
{
	if (!x)
		return XDP_PASS;
	void *data = packet_start(ctx), *end = packet_end(ctx);
	struct ip6hdr *ip = data + (l3 & 31);
	struct icmphdr *icmp = data + (l4 & 0x3ff);
	if ((void *)(ip + 1) > end || (void *)(icmp + 1) > end)
		return XDP_PASS;
	__u64 dst[2] = {ip->dst[0], ip->dst[1]};
	__u8 type = icmp->type;
	if (!is_vip6(dst)) {
		if (!config.nat || !is_error6(type))
			return XDP_PASS;
		struct packet p = {.l3 = l3, .l4 = l4, .len = sizeof(*ip) + ntohs(ip->len), .proto = PROTO_ICMPV6,
				   .ttl = ip->hops, .v6 = 1};
		return nat_return_icmp(ctx, &p);
	}
	if (type == ICMPV6_ECHO)
		return echo_reply(ctx, l3, l4, 1);
	if (!is_error6(type))
		return XDP_PASS;
	return quoted_piece(ctx, l4, 1, dst, x);
}

static __always_inline void map_flow(struct flow_key6 *to, const struct flow_key4 *k)
{
	map_ipv4(to->src, k->src);
	map_ipv4(to->dst, k->dst);
	to->sport = k->sport;
	to->dport = k->dport;
	to->proto = k->proto;
}

__apart int nat_return4(struct xdp_md *ctx, const struct packet *p, const struct flow_key4 *k)
{
	struct nat_scratch *w = nat_scratch();
	if (!p || !k || !w)
		return XDP_PASS;
	map_flow(&w->claim.key, k);
	return nat_return(ctx, p, &w->claim.key);
}

__apart __u32 nat_known4(const struct flow_key4 *k, const struct service *s)
{
	struct nat_scratch *w = nat_scratch();
	if (!k || !s || !w)
		return NO_TABLE;
	map_flow(&w->claim.key, k);
	return nat_known(&w->claim.key, s);
}

static __always_inline int ipv4(struct xdp_md *ctx, __u32 l3)
{
	void *data = packet_start(ctx), *end = packet_end(ctx);
	struct iphdr *ip = data + l3;
	if ((void *)(ip + 1) > end)
		return XDP_PASS;
	struct packet p = {.l3 = l3, .l4 = l3 + (ip->version_ihl & 15) * 4, .len = ntohs(ip->len), .proto = ip->proto,
			   .ttl = ip->ttl};
	__be32 client = ip->src, vip = ip->dst;
	__u8 proto = ip->proto; /* of the flow */
	__u32 known = NO_TABLE, generation = 0;
	if (likely(ip->proto == PROTO_TCP || ip->proto == PROTO_UDP)) {
		if (likely(!(ip->frag & (IP_MF | IP_OFFSET)))) {
			__u32 *ports = data + p.l4;
			if ((void *)(ports + 1) > end)
				return XDP_PASS;
			p.ports = *ports;
		} else {
			if (!config.fragments)
				return XDP_PASS;
			struct piece x = {.l4 = p.l4, .proto = p.proto, .backend = NO_BACKEND};
			int action = fragment4(ctx, l3, &x);
			if (action != ACTION_NONE)
				return action;
			p.ports = x.ports;
			p.first = x.first;
			p.later = x.later;
			known = x.backend;
			generation = x.generation;
		}
	} else {
		if (!config.icmp || ip->proto != PROTO_ICMP)
			return XDP_PASS;
		struct piece x = {};
		int action = icmp4(ctx, l3, p.l4, &x);
		if (action != ACTION_NONE)
			return action;
		p.icmp = 1;
		p.ports = x.ports;
		client = x.client[1] >> 32;
		proto = x.proto;
	}
	struct flow_key4 key;
	__u64 *word = (__u64 *)&key;
	word[0] = client | (__u64)vip << 32;
	word[1] = p.ports | (__u64)proto << 32;
	struct service_key4 to;
	*(__u64 *)&to = vip | (__u64)(p.ports >> 16) << 32 | (__u64)proto << 48;
	struct service *s = bpf_map_lookup_elem(&services4, &to);
	if (!s) {
		if (config.fragments && p.first && (is_vip4(vip) || (config.nat && is_nat_port(p.ports >> 16)))) {
			struct piece x = {.l4 = l3, .ports = p.ports, .proto = p.proto, .backend = NO_BACKEND};
			leave_fragment4(ctx, &x);
		}
		if (config.nat && !p.icmp && is_nat_port(p.ports >> 16)) {
			struct packet copy = p; /* so that p needs no place in memory */
			return nat_return4(ctx, &copy, &key);
		}
		return XDP_PASS;
	}
	data = packet_start(ctx);
	end = packet_end(ctx);
	if (unlikely(data + l3 + p.len > end || p.len + l3 < p.l4 + 8))
		return drop(DROP_MALFORMED, s->id);
	if (p.proto == PROTO_TCP && !p.later) {
		struct tcphdr *tcp = data + p.l4;
		if ((void *)(tcp + 1) > end)
			return drop(DROP_MALFORMED, s->id);
		p.syn = (tcp->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	}
	__u64 hash = service_hash4(s, &key);
	__u32 b = NO_TABLE;
	if (config.fragments && unlikely(p.later)) {
		struct piece x = {.backend = known, .generation = generation};
		b = backend_of_piece(s, &x);
	}
	if (config.nat && unlikely(s->flags & SERVICE_NAT) && b == NO_TABLE)
		b = nat_known4(&key, s);
	if (likely(b == NO_TABLE))
		b = steer4(s, &key, hash, p.syn, p.icmp);
	if (config.fragments && unlikely(p.first)) {
		struct backend *be = backend_of(s, b);
		struct piece x = {.l4 = l3, .ports = p.ports, .proto = p.proto, .backend = be ? b : NO_BACKEND,
				  .generation = be ? be->generation : 0};
		leave_fragment4(ctx, &x);
	}
	if (unlikely(p.first | p.later))
		count(EVENT_FRAGMENT);
	if (unlikely(p.icmp))
		count(EVENT_ICMP_ERROR);
	return forward(ctx, s, &p, hash, b);
}

static __always_inline int ipv6(struct xdp_md *ctx, __u32 l3)
{
	void *data = packet_start(ctx), *end = packet_end(ctx);
	struct ip6hdr *ip = data + l3;
	if ((void *)(ip + 1) > end)
		return XDP_PASS;
	struct packet p = {.l3 = l3, .l4 = l3 + sizeof(*ip), .len = sizeof(*ip) + ntohs(ip->len), .proto = ip->next,
			   .ttl = ip->hops, .v6 = 1};
	__u64 client[2] = {ip->src[0], ip->src[1]}, vip[2] = {ip->dst[0], ip->dst[1]};
	__u32 known = NO_TABLE, generation = 0;
	if (likely(ip->next == PROTO_TCP || ip->next == PROTO_UDP)) {
		__u32 *ports = data + p.l4;
		if ((void *)(ports + 1) > end)
			return XDP_PASS;
		p.ports = *ports;
	} else if (is_extension(ip->next)) {
		struct piece x = {.l4 = p.l4, .proto = p.proto, .backend = NO_BACKEND};
		int action = extensions6(ctx, l3, &x);
		if (action != ACTION_NONE)
			return action;
		p.l4 = x.l4;
		p.proto = x.proto;
		p.ports = x.ports;
		p.first = x.first;
		p.later = x.later;
		known = x.backend;
		generation = x.generation;
	}
	__u8 proto = p.proto; /* of the flow */
	if (unlikely(p.proto != PROTO_TCP && p.proto != PROTO_UDP)) {
		if (!config.icmp || p.proto != PROTO_ICMPV6)
			return XDP_PASS;
		struct piece x = {};
		int action = icmp6(ctx, l3, p.l4, &x);
		if (action != ACTION_NONE)
			return action;
		p.icmp = 1;
		p.ports = x.ports;
		client[0] = x.client[0];
		client[1] = x.client[1];
		proto = x.proto;
	}
	struct flow_key6 key = {.src = {client[0], client[1]}, .dst = {vip[0], vip[1]}};
	((__u64 *)&key)[4] = p.ports | (__u64)proto << 32;
	struct service_key6 to;
	__u64 *word = (__u64 *)&to;
	word[0] = vip[0];
	word[1] = vip[1];
	word[2] = p.ports >> 16 | (__u32)proto << 16;
	struct service *s = bpf_map_lookup_elem(&services6, &to);
	if (!s) {
		if (config.fragments && p.first && (is_vip6(vip) || (config.nat && is_nat_port(p.ports >> 16)))) {
			struct piece x = {.l4 = l3, .ports = p.ports, .proto = p.proto, .backend = NO_BACKEND};
			leave_fragment6(ctx, &x);
		}
		if (config.nat && !p.icmp && is_nat_port(p.ports >> 16)) {
			struct packet copy = p; /* so that p needs no place in memory */
			return nat_return(ctx, &copy, &key);
		}
		return XDP_PASS;
	}
	data = packet_start(ctx);
	end = packet_end(ctx);
	__u32 l4 = p.l4 & 0x3ff;
	if (unlikely(data + l3 + p.len > end || p.len + l3 < l4 + 8))
		return drop(DROP_MALFORMED, s->id);
	if (p.proto == PROTO_TCP && !p.later) {
		struct tcphdr *tcp = data + l4;
		if ((void *)(tcp + 1) > end)
			return drop(DROP_MALFORMED, s->id);
		p.syn = (tcp->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	}
	__u64 hash = service_hash6(s, &key);
	__u32 b = NO_TABLE;
	if (config.fragments && unlikely(p.later)) {
		struct piece x = {.backend = known, .generation = generation};
		b = backend_of_piece(s, &x);
	}
	if (config.nat && unlikely(s->flags & SERVICE_NAT) && b == NO_TABLE)
		b = nat_known(&key, s);
	if (likely(b == NO_TABLE))
		b = steer6(s, &key, hash, p.syn, p.icmp);
	if (config.fragments && unlikely(p.first)) {
		struct backend *be = backend_of(s, b);
		struct piece x = {.l4 = l3, .ports = p.ports, .proto = p.proto, .backend = be ? b : NO_BACKEND,
				  .generation = be ? be->generation : 0};
		leave_fragment6(ctx, &x);
	}
	if (unlikely(p.first | p.later))
		count(EVENT_FRAGMENT);
	if (unlikely(p.icmp))
		count(EVENT_ICMP_ERROR);
	return forward(ctx, s, &p, hash, b);
}

SEC("xdp")
int guideway(struct xdp_md *ctx)
{
	void *data = packet_start(ctx), *end = packet_end(ctx);
	struct ethhdr *eth = data;
	if ((void *)(eth + 1) > end)
		return XDP_PASS;
	__be16 type = eth->type;
	__u32 l3 = ETH_LEN;
	if (config.vlan) {
		for (int i = 0; i < 2; i++) {
			if (likely(type != ETH_VLAN && type != ETH_QINQ))
				break;
			struct vlanhdr *tag = data + l3;
			if ((void *)(tag + 1) > end)
				return XDP_PASS;
			type = tag->type;
			l3 += VLAN_LEN;
		}
	}
	if (config.ipv4 && likely(type == ETH_IPV4))
		return ipv4(ctx, l3);
	if (config.ipv6 && type == ETH_IPV6)
		return ipv6(ctx, l3);
	return XDP_PASS;
}

char program_license[] SEC("license") = "Dual BSD/GPL";
