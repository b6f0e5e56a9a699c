/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Full NAT: client -> VIP becomes balancer -> backend, and back. A flow has an entry in nat_flows, which remembers its
 * backend (it is a remembered flow of conntrack), and one in nat_backs, which makes its port the flow's own.
 *
 * Checksums change by what changes under them (RFC 1624), so that what was wrong stays wrong. A sender on this host
 * that leaves the checksum to its device hands us a packet whose checksum field holds the sum of the pseudo-header and
 * nothing more. A finished one that looks like that is as good as one made anew, so both are made anew: the packet must
 * be in one piece and at most FINISH_BYTES long for it. What XDP cannot finish: fragments of such a sender, segments
 * that are to be cut by the device (GSO), and in the other modes, where nothing of layer 4 changes, anything at all.
 */
#pragma once

#include "csum.h"
#include "hash.h"
#include "maps.h"
#include "output.h"
#include "parse.h"
#include "quoted.h"
#include "stats.h"
#include "steer.h"

#define FINISH_BYTES 4096
#define NAT_PROBES 32
/* Packets of the backend keep the flow alive; once in this time is enough. */
#define NAT_REFRESH 1000000000ULL

/* What addresses and ports become. IPv4 addresses are mapped. */
struct rewrite {
	__u64 src[2];
	__u64 dst[2];
	__be16 sport;
	__be16 dport;
};

static __always_inline void addr_of_backend(__u64 to[2], const __u8 *addr, int v6)
{
	if (v6) {
		to[0] = ((const __u64 *)addr)[0];
		to[1] = ((const __u64 *)addr)[1];
	} else {
		map_ipv4(to, *(const __be32 *)addr);
	}
}

/* Rewrites the addresses of an IPv4 or IPv6 header, and IPv4's checksum. Returns the change that they make to sums they
 * are part of. IPv4's header with its checksum adds up to what it did before. */
static __noinline __u64 rewrite_addrs(void *header, int v6, const __u64 src[2], const __u64 dst[2])
{
	__u64 change = 0;
	if (v6) {
		struct ip6hdr *ip = header;
		__u32 *w = (__u32 *)ip->src;
		const __u32 *s = (const __u32 *)src, *d = (const __u32 *)dst;
		for (int i = 0; i < 4; i++) {
			change += csum_change32(w[i], s[i]) + csum_change32(w[4 + i], d[i]);
			w[i] = s[i];
			w[4 + i] = d[i];
		}
		return change;
	}
	struct iphdr *ip = header;
	__be32 s = src[1] >> 32, d = dst[1] >> 32;
	change = csum_change32(ip->src, s) + csum_change32(ip->dst, d);
	ip->check = csum_apply(ip->check, change);
	ip->src = s;
	ip->dst = d;
	return change;
}

static __always_inline __u64 pseudo_header(const void *header, int v6, __u32 len, __u8 proto)
{
	__u64 sum = (__u64)htons(len) + htons(proto);
	const __u32 *w = v6 ? (const __u32 *)((const struct ip6hdr *)header)->src : &((const struct iphdr *)header)->src;
	sum += (__u64)w[0] + w[1];
	if (v6)
		sum += (__u64)w[2] + w[3] + w[4] + w[5] + w[6] + w[7];
	return sum;
}

struct summing {
	__u64 sum;
	volatile __u32 at; /* in memory, where the verifier does not follow its values */
	__u32 zero;
};

/* Of one packet: too large for the stack. */
struct nat_claim {
	struct flow_key6 key; /* as the backend will send it */
	struct nat_back back;
	__u64 idle;
	__u64 now;
	__u32 start; /* a number that differs from flow to flow */
};

struct nat_scratch {
	struct nat_claim claim;
	struct quoted quoted;
	struct rewrite to, back;
	struct flow_key6 key; /* as the client sends it */
	struct nat_flow flow;
	struct summing summing;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nat_scratch);
} nat_scratches SEC(".maps");

static __always_inline struct nat_scratch *nat_scratch(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&nat_scratches, &zero);
}

/* Adds the checksum of len bytes of layer 4 to a sum. 0: they are too many. */
__apart int sum_bytes(struct xdp_md *ctx, __u32 l4, __u32 len, struct summing *s)
{
	void *end = packet_end(ctx), *from = packet_start(ctx) + (l4 & 0x3ff);
	if (!s || len > FINISH_BYTES)
		return 0;
	__u64 n = 0;
	for (int k = 0; k < FINISH_BYTES / 32; k++) {
		__u32 i = s->at & (2 * FINISH_BYTES - 1), *w = from + i;
		if (i + 32 > len || (void *)(w + 8) > end)
			break;
		for (int j = 0; j < 8; j++)
			n += w[j];
		s->at = i + 32;
	}
	for (int k = 0; k < 8; k++) {
		__u32 i = s->at & (2 * FINISH_BYTES - 1), *w = from + i;
		if (i + 4 > len || (void *)(w + 1) > end)
			break;
		n += *w;
		s->at = i + 4;
	}
	for (int k = 0; k < 3; k++) {
		__u32 i = s->at & (2 * FINISH_BYTES - 1);
		__u8 *b = from + i;
		if (i >= len || (void *)(b + 1) > end)
			break;
		n += (__u64)*b << 8 * k;
		s->at = i + 1;
	}
	s->sum += n;
	return s->at >= len;
}

__apart int translate(struct xdp_md *ctx, const struct packet *p, const struct rewrite *r)
{
	void *data = packet_start(ctx), *end = packet_end(ctx);
	if (!p || !r)
		return 0;
	void *header = data + (p->l3 & 31), *l4 = data + (p->l4 & 0x3ff);
	int v6 = p->v6;
	opaque(v6); /* one value for all checks that depend on it */
	if (header + (v6 ? sizeof(struct ip6hdr) : sizeof(struct iphdr)) > end)
		return 0;
	__u32 len = p->len - (p->l4 - p->l3);
	__u16 unfinished = csum_fold(pseudo_header(header, v6, len, p->proto));
	__u64 change = rewrite_addrs(header, v6, r->src, r->dst);
	decrement_ttl(header, v6);
	if (p->later)
		return 1;
	__u16 *ports = l4;
	__u16 *check = p->proto == PROTO_TCP ? &((struct tcphdr *)l4)->check : &((struct udphdr *)l4)->check;
	if (l4 + 8 > end || (void *)(check + 1) > end)
		return 0;
	change += csum_change16(ports[0], r->sport) + csum_change16(ports[1], r->dport);
	ports[0] = r->sport;
	ports[1] = r->dport;
	__u16 was = *check, is;
	if (p->proto == PROTO_UDP && !was)
		return 1; /* none */
	if (unlikely(was == unfinished) && !p->first) {
		struct nat_scratch *w = nat_scratch();
		if (!w)
			return 0;
		w->summing.sum = pseudo_header(header, v6, len, p->proto);
		w->summing.at = 0;
		*check = 0;
		if (!sum_bytes(ctx, p->l4, len, &w->summing))
			return 0;
		is = csum_of(w->summing.sum);
	} else {
		is = csum_apply(was, change);
	}
	if (p->proto == PROTO_UDP && !is)
		is = 0xffff;
	*check = is;
	return 1;
}

/* Rewrites an ICMP error and the packet it quotes: r is for the quoted one, src and dst for the error itself. */
__apart int translate_quoted(struct xdp_md *ctx, const struct packet *p, const struct quoted *q,
				       const struct rewrite *r)
{
	void *data = packet_start(ctx), *end = packet_end(ctx);
	if (!p || !q || !r)
		return 0;
	void *header = data + (p->l3 & 31);
	struct icmphdr *icmp = data + (p->l4 & 0x3ff);
	void *inner = data + (q->l3 & 0x7ff), *l4 = data + (q->l4 & 0x7ff);
	int v6 = p->v6;
	opaque(v6); /* one value for all checks that depend on it */
	if ((void *)(icmp + 1) > end || l4 + 8 > end)
		return 0;
	if (header + (v6 ? sizeof(struct ip6hdr) : sizeof(struct iphdr)) > end ||
	    inner + (v6 ? sizeof(struct ip6hdr) : sizeof(struct iphdr)) > end)
		return 0;
	/* The error goes from where the quoted packet went to where it came from. */
	__u64 icmp_change = rewrite_addrs(header, v6, r->dst, r->src);
	decrement_ttl(header, v6);
	__u64 change = rewrite_addrs(inner, v6, r->src, r->dst);
	/* ICMPv6 has a pseudo-header; ICMP covers the quoted header with its checksum, whose sum stays. */
	icmp_change = v6 ? icmp_change + change : 0;
	__u16 *ports = l4;
	__u64 ports_change = csum_change16(ports[0], r->sport) + csum_change16(ports[1], r->dport);
	change += ports_change;
	icmp_change += ports_change;
	ports[0] = r->sport;
	ports[1] = r->dport;
	__u16 *check = q->proto == PROTO_TCP ? &((struct tcphdr *)l4)->check : &((struct udphdr *)l4)->check;
	if ((void *)(check + 1) <= end && (q->proto == PROTO_TCP || *check)) {
		__u16 is = csum_apply(*check, change);
		if (q->proto == PROTO_UDP && !is)
			is = 0xffff;
		icmp_change += csum_change16(*check, is);
		*check = is;
	}
	icmp->check = csum_apply(icmp->check, icmp_change);
	return 1;
}

/* The backend of a flow that NAT knows, as an index in the service; NO_TABLE if it knows none that is alive. */
__apart __u32 nat_known(const struct flow_key6 *key, const struct service *s)
{
	if (!key || !s)
		return NO_TABLE;
	struct nat_flow *f = bpf_map_lookup_elem(&nat_flows, key);
	__u32 i = f ? s->backends + f->backend : 0;
	struct backend *be = f && f->backend < s->members ? bpf_map_lookup_elem(&backends, &i) : NULL;
	if (!be || be->generation != f->generation || (__s64)(clock() - f->last) > (__s64)s->idle)
		return NO_TABLE;
	return f->backend;
}

/* Takes a port for the flow, the one in the key first, if that is one. 0: there was none to be had. */
__apart __u32 claim_port(struct nat_claim *c)
{
	if (!c)
		return 0;
	__u32 range = config.nat_port_max - config.nat_port_min + 1U, port = c->start % range;
	if (!range)
		return 0;
	for (int i = 0; i < NAT_PROBES; i++) {
		if (i || !c->key.dport)
			c->key.dport = htons(config.nat_port_min + port % range);
		if (!bpf_map_update_elem(&nat_backs, &c->key, &c->back, BPF_NOEXIST))
			return c->key.dport;
		struct nat_back *b = bpf_map_lookup_elem(&nat_backs, &c->key);
		if (b && (__s64)(c->now - b->last) > (__s64)c->idle) {
			*b = c->back; /* its flow is over */
			return c->key.dport;
		}
		/* Odd steps that differ from flow to flow, so that full stretches are left. */
		port += (c->start >> 16 | 1) & 0x3ff;
	}
	return 0;
}

/* Makes the packet one from the balancer to the backend at an index in backends. ACTION_NONE: it is, send it. */
static __noinline int nat_forward(struct xdp_md *ctx, struct service *s, const struct packet *p, __u64 hash, __u32 index)
{
	struct backend *be = bpf_map_lookup_elem(&backends, &index);
	if (!be)
		return drop(DROP_NO_BACKEND, s->id);
	int v6 = p->v6;
	opaque(v6); /* one value for all checks that depend on it */
	if (!(be->flags & BACKEND_IPV6) != !v6)
		return drop(DROP_NAT_FAMILY, s->id);
	struct nat_scratch *w = nat_scratch();
	if (!w)
		return drop(DROP_MALFORMED, s->id);
	struct quoted *quoted = &w->quoted;
	struct nat_claim *claim = &w->claim;
	struct rewrite *r = &w->to;
	struct flow_key6 *key = &w->key;
	key->proto = p->proto;
	key->sport = p->ports;
	key->dport = p->ports >> 16;
	claim->now = clock();
	claim->idle = s->idle;
	claim->start = (hash ^ p->ports) * XX1 >> 32;
	claim->back.backend = index;
	claim->back.id = s->id;
	claim->back.ifindex = ctx->ingress_ifindex;
	if (p->icmp) {
		if (!read_quoted(ctx, p->l4, v6, quoted))
			return drop(DROP_ICMP_UNMATCHED, s->id);
		key->src[0] = quoted->dst[0];
		key->src[1] = quoted->dst[1];
		key->dst[0] = quoted->src[0];
		key->dst[1] = quoted->src[1];
		key->proto = quoted->proto;
	}
	void *data = packet_start(ctx), *end = packet_end(ctx), *header = data + (p->l3 & 31);
	struct ethhdr *eth = data;
	if ((void *)(eth + 1) > end || header + (v6 ? sizeof(struct ip6hdr) : sizeof(struct iphdr)) > end)
		return drop(DROP_MALFORMED, s->id);
	if (!p->icmp) {
		if (v6) {
			struct ip6hdr *ip = header;
			key->src[0] = ip->src[0];
			key->src[1] = ip->src[1];
			key->dst[0] = ip->dst[0];
			key->dst[1] = ip->dst[1];
		} else {
			map_ipv4(key->src, ((struct iphdr *)header)->src);
			map_ipv4(key->dst, ((struct iphdr *)header)->dst);
		}
		__builtin_memcpy(claim->back.client_mac, eth->src, 6);
		__builtin_memcpy(claim->back.our_mac, eth->dst, 6);
	}

	struct nat_flow *f = bpf_map_lookup_elem(&nat_flows, key);
	__be16 port = 0;
	if (f && f->generation == be->generation && s->backends + f->backend == index &&
	    (__s64)(claim->now - f->last) <= (__s64)s->idle)
		port = f->port;

	r->dport = be->port;
	addr_of_backend(r->src, be->source, v6);
	addr_of_backend(r->dst, be->addr, v6);
	if (p->icmp) {
		if (!port)
			return drop(DROP_ICMP_UNMATCHED, s->id);
		/* quoted: from the VIP to the client; what the backend sent: from it to us */
		struct rewrite *back = &w->back;
		back->sport = be->port;
		back->dport = port;
		back->src[0] = r->dst[0];
		back->src[1] = r->dst[1];
		back->dst[0] = r->src[0];
		back->dst[1] = r->src[1];
		if (!translate_quoted(ctx, p, quoted, back))
			return drop(DROP_MALFORMED, s->id);
	} else {
		claim->key.src[0] = r->dst[0];
		claim->key.src[1] = r->dst[1];
		claim->key.dst[0] = r->src[0];
		claim->key.dst[1] = r->src[1];
		claim->key.sport = be->port;
		claim->key.dport = port;
		claim->key.proto = p->proto;
		claim->back.client[0] = key->src[0];
		claim->back.client[1] = key->src[1];
		claim->back.vip[0] = key->dst[0];
		claim->back.vip[1] = key->dst[1];
		claim->back.client_port = key->sport;
		claim->back.vip_port = key->dport;
		claim->back.generation = be->generation;
		claim->back.last = claim->now;
		struct nat_back *b = port ? bpf_map_lookup_elem(&nat_backs, &claim->key) : NULL;
		if (b && b->client[0] == key->src[0] && b->client[1] == key->src[1] && b->client_port == key->sport &&
		    b->vip[0] == key->dst[0] && b->vip[1] == key->dst[1] && b->vip_port == key->dport) {
			f->last = claim->now;
			b->last = claim->now;
			b->ifindex = claim->back.ifindex;
			__builtin_memcpy(b->client_mac, claim->back.client_mac, 6);
			__builtin_memcpy(b->our_mac, claim->back.our_mac, 6);
		} else {
			__be16 had = port;
			port = claim_port(claim);
			if (!port)
				return drop(DROP_NAT_PORT, s->id);
			w->flow.generation = be->generation;
			w->flow.backend = index - s->backends;
			w->flow.port = port;
			w->flow.last = claim->now;
			w->flow.id = s->id;
			if (bpf_map_update_elem(&nat_flows, key, &w->flow, BPF_ANY)) {
				bpf_map_delete_elem(&nat_backs, &claim->key);
				return drop(DROP_NAT_PORT, s->id);
			}
			struct backend_counters *n = bpf_map_lookup_elem(&backend_counts, &index);
			if (n && !had && !p->syn)
				n->flows++;
		}
		r->sport = port;
		if (!translate(ctx, p, r))
			return drop(DROP_MALFORMED, s->id);
	}
	if (be->flags & BACKEND_RESOLVED) {
		data = packet_start(ctx);
		if (data + ETH_LEN > packet_end(ctx))
			return drop(DROP_MALFORMED, s->id);
		write_macs(data, be);
	}
	return ACTION_NONE;
}

static __always_inline int is_nat_port(__be16 port)
{
	__u32 p = ntohs(port);
	return p >= config.nat_port_min && p <= config.nat_port_max;
}

static __always_inline int nat_output(struct xdp_md *ctx, const struct nat_back *b)
{
	struct ethhdr *eth = packet_start(ctx);
	if ((void *)(eth + 1) > packet_end(ctx))
		return drop_early(DROP_MALFORMED);
	__builtin_memcpy(eth->dst, b->client_mac, 6);
	__builtin_memcpy(eth->src, b->our_mac, 6);
	return output(ctx, b->ifindex);
}

/* A packet to one of our NAT ports: key is its flow, as the backend sends it. */
__apart int nat_return(struct xdp_md *ctx, const struct packet *p, const struct flow_key6 *key)
{
	struct nat_scratch *w = nat_scratch();
	if (!p || !key || !w)
		return XDP_PASS;
	struct nat_back *b = bpf_map_lookup_elem(&nat_backs, key);
	if (!b)
		return XDP_PASS;
	if (p->ttl <= 1)
		return drop(DROP_TTL, b->id);
	struct rewrite *r = &w->to;
	r->src[0] = b->vip[0];
	r->src[1] = b->vip[1];
	r->dst[0] = b->client[0];
	r->dst[1] = b->client[1];
	r->sport = b->vip_port;
	r->dport = b->client_port;
	__u64 now = clock();
	if (now > b->last && now - b->last >= NAT_REFRESH) {
		struct flow_key6 *forth = &w->key;
		forth->src[0] = r->dst[0];
		forth->src[1] = r->dst[1];
		forth->dst[0] = r->src[0];
		forth->dst[1] = r->src[1];
		forth->sport = r->dport;
		forth->dport = r->sport;
		forth->proto = p->proto;
		struct nat_flow *f = bpf_map_lookup_elem(&nat_flows, forth);
		if (f && f->port == key->dport)
			f->last = now;
		b->last = now;
	}
	struct backend_counters *n = bpf_map_lookup_elem(&backend_counts, &b->backend);
	if (n)
		n->back++;
	if (!translate(ctx, p, r))
		return drop(DROP_MALFORMED, b->id);
	count(EVENT_NAT_BACK);
	return nat_output(ctx, b);
}

/* An ICMP error to an address that is no VIP: perhaps about what NAT sent. */
__apart int nat_return_icmp(struct xdp_md *ctx, const struct packet *p)
{
	struct nat_scratch *w = nat_scratch();
	if (!p || !w)
		return XDP_PASS;
	struct quoted *q = &w->quoted;
	if (!read_quoted(ctx, p->l4, p->v6, q) || !is_nat_port(q->sport))
		return XDP_PASS;
	struct flow_key6 *key = &w->key;
	key->src[0] = q->dst[0];
	key->src[1] = q->dst[1];
	key->dst[0] = q->src[0];
	key->dst[1] = q->src[1];
	key->sport = q->dport;
	key->dport = q->sport;
	key->proto = q->proto;
	struct nat_back *b = bpf_map_lookup_elem(&nat_backs, key);
	if (!b)
		return XDP_PASS;
	if (p->ttl <= 1)
		return drop(DROP_TTL, b->id);
	/* Quoted: from us to the backend; what the client sent: from it to the VIP. */
	struct rewrite *r = &w->to;
	r->src[0] = b->client[0];
	r->src[1] = b->client[1];
	r->dst[0] = b->vip[0];
	r->dst[1] = b->vip[1];
	r->sport = b->client_port;
	r->dport = b->vip_port;
	if (!translate_quoted(ctx, p, q, r))
		return drop(DROP_MALFORMED, b->id);
	count(EVENT_NAT_ICMP_BACK);
	return nat_output(ctx, b);
}
