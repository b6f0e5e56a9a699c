/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Sends a packet to a backend: IP in IP, GUE, or by its MAC alone. NAT is in nat.h. */
#pragma once

#include "capture.h"
#include "csum.h"
#include "icmp.h"
#include "maps.h"
#include "nat.h"
#include "output.h"
#include "parse.h"
#include "stats.h"
#include "steer.h"

#define OUTER_TTL 64

/* Bits that differ from flow to flow, for the source address or port that receivers spread packets by. Under a policy
 * that hashes the address alone, the ports are all that does. */
static __always_inline __u32 entropy_of(__u64 hash, __u32 ports)
{
	return ((hash ^ ports) * XX1) >> 32;
}

/* source with its low bits replaced. */
static __always_inline __be32 vary(__be32 source, __u32 bits, __u32 entropy)
{
	if (!bits)
		return source;
	__u32 mask = bits >= 32 ? ~0U : (1U << bits) - 1;
	return (source & ~htonl(mask)) | htonl(entropy & mask);
}

/* Puts an outer header in front of the packet; with gue, UDP and GUE between it and the inner one. The Ethernet header
 * and its tags move to the front. */
static __always_inline int encapsulate(struct xdp_md *ctx, const struct packet *p, const struct backend *be,
				       __u32 entropy, int outer6, int gue)
{
	__u32 ip_len = outer6 ? sizeof(struct ip6hdr) : sizeof(struct iphdr);
	__u32 grow = ip_len + (gue ? sizeof(struct udphdr) + sizeof(struct guehdr) : 0);
	if (bpf_xdp_adjust_head(ctx, -(int)grow))
		return 0;
	void *data = packet_start(ctx), *end = packet_end(ctx);
	__u32 l3 = p->l3;
	void *outer = data + l3, *inner = outer + grow;
	if (inner + (p->v6 ? sizeof(struct ip6hdr) : sizeof(struct iphdr)) > end)
		return 0;
	if (config.vlan && unlikely(l3 != ETH_LEN)) {
		/* One tag or two, without the type that follows them. */
		__u32 *tag = data + 12, *old = data + 12 + grow;
		if ((void *)(old + 3) > end)
			return 0;
		__u32 first = old[0], second = old[1];
		tag[0] = first;
		if (l3 > ETH_LEN + VLAN_LEN)
			tag[1] = second;
	}
	__be16 *type = ether_type(data, l3);
	if ((void *)(type + 1) > end)
		return 0;
	if (be->flags & BACKEND_RESOLVED) {
		write_macs(data, be);
	} else {
		/* to the stack, addressed as it came */
		__u64 *from = data + grow;
		if ((void *)(from + 2) > end)
			return 0;
		__u64 macs = from[0];
		__u32 rest = from[1];
		*(__u64 *)data = macs;
		*(__u32 *)(data + 8) = rest;
	}
	*type = outer6 ? ETH_IPV6 : ETH_IPV4;
	__u8 tos, proto;
	if (p->v6) {
		struct ip6hdr *in = inner;
		tos = ntohs(*(__be16 *)in) >> 4;
		proto = PROTO_IPV6;
	} else {
		tos = ((struct iphdr *)inner)->tos;
		proto = PROTO_IPIP;
	}
	decrement_ttl(inner, p->v6);
	if (outer6) {
		struct ip6hdr *ip = outer;
		const __u64 *source = (const __u64 *)be->source, *addr = (const __u64 *)be->addr;
		ip->version_class_flow = htonl(6U << 28 | (__u32)tos << 20 | (entropy & 0xfffff));
		ip->len = htons(p->len + grow - ip_len);
		ip->next = gue ? PROTO_UDP : proto;
		ip->hops = OUTER_TTL;
		ip->src[0] = source[0];
		ip->src[1] = (__u32)source[1] | (__u64)vary(source[1] >> 32, be->source_bits, entropy) << 32;
		ip->dst[0] = addr[0];
		ip->dst[1] = addr[1];
	} else {
		struct iphdr *ip = outer;
		__be32 src = vary(*(const __be32 *)be->source, be->source_bits, entropy), dst = *(const __be32 *)be->addr;
		__u32 first = 0x45 | (__u32)tos << 8 | (__u32)htons(p->len + grow) << 16;
		__u32 third = OUTER_TTL | (__u32)(gue ? PROTO_UDP : proto) << 8;
		__u32 *w = outer;
		w[0] = first;
		w[1] = (__u32)IP_DF << 16; /* with DF, the id says nothing (RFC 6864) */
		w[2] = third | (__u32)csum_of((__u64)first + ((__u32)IP_DF << 16) + third + src + dst) << 16;
		ip->src = src;
		ip->dst = dst;
	}
	if (gue) {
		struct udphdr *udp = outer + ip_len;
		struct guehdr *g = (void *)(udp + 1);
		udp->sport = htons(0xc000 | (entropy & 0x3fff));
		udp->dport = be->port;
		udp->len = htons(p->len + sizeof(*udp) + sizeof(*g));
		/* Zero: none. The inner checksums cover what they always did, and over IPv6 RFC 6935 and 6936 allow it
		 * to tunnels; Linux's fou wants udp6zerocsumrx then. */
		udp->check = 0;
		g->version_hlen = 0;
		g->proto = proto;
		g->flags = 0;
	}
	return 1;
}

static __always_inline int forward_l2(struct xdp_md *ctx, const struct packet *p, const struct backend *be)
{
	void *data = packet_start(ctx), *end = packet_end(ctx), *header = data + p->l3;
	if (header + (p->v6 ? sizeof(struct ip6hdr) : sizeof(struct iphdr)) > end || data + ETH_LEN > end)
		return 0;
	decrement_ttl(header, p->v6);
	write_macs(data, be);
	return 1;
}

/* Sends the packet to a backend of a service: one that the service has, at an index below members. */
static __always_inline int forward(struct xdp_md *ctx, struct service *s, const struct packet *p, __u64 hash, __u32 index)
{
	struct backend *be = backend_of(s, index);
	if (unlikely(!be))
		return drop(index == NO_TABLE ? DROP_NO_TABLE : DROP_NO_BACKEND, s->id);
	__u32 i = s->backends + index;
	if (unlikely(p->ttl <= 1))
		return p->icmp ? drop(DROP_TTL, s->id) : time_exceeded(ctx, p->l3, p->v6, s->id);
	__u32 how = be->forwarding, outer6 = be->flags & BACKEND_IPV6, over = 0;
	if (how == FORWARD_IPIP || how == FORWARD_GUE)
		over = (outer6 ? sizeof(struct ip6hdr) : sizeof(struct iphdr)) +
		       (how == FORWARD_GUE ? sizeof(struct udphdr) + sizeof(struct guehdr) : 0);
	if (unlikely(p->len + over > be->mtu))
		return p->icmp ? drop(DROP_TOO_BIG, s->id) : too_big(ctx, p->l3, p->v6, be->mtu - over, s->id);

	if (config.capture && s->flags & SERVICE_CAPTURE)
		capture(ctx, s, i, 0, 0);
	struct backend_counters *n = bpf_map_lookup_elem(&backend_counts, &i);
	if (likely(n)) {
		n->packets++;
		n->bytes += packet_bytes(ctx);
		n->flows += p->syn;
	}
	int resolved = be->flags & BACKEND_RESOLVED;
	if (unlikely(!resolved)) {
		if (n)
			n->unresolved++;
		if (how == FORWARD_L2)
			return drop(DROP_UNREACHABLE, s->id);
		count(EVENT_UNRESOLVED);
	}
	__u32 entropy = entropy_of(hash, p->ports);
	int done = 0;
	if (config.ipip && likely(how == FORWARD_IPIP)) {
		done = outer6 ? encapsulate(ctx, p, be, entropy, 1, 0) : encapsulate(ctx, p, be, entropy, 0, 0);
	} else if (config.gue && how == FORWARD_GUE) {
		done = outer6 ? encapsulate(ctx, p, be, entropy, 1, 1) : encapsulate(ctx, p, be, entropy, 0, 1);
	} else if (config.l2 && how == FORWARD_L2) {
		done = forward_l2(ctx, p, be);
	} else if (config.nat && how == FORWARD_NAT) {
		struct packet copy = *p; /* so that p needs no place in memory */
		int action = nat_forward(ctx, s, &copy, hash, i);
		if (action != ACTION_NONE)
			return action;
		done = 1;
	}
	if (unlikely(!done))
		return drop(DROP_HEADROOM, s->id);
	int action = likely(resolved) ? output(ctx, be->ifindex) : XDP_PASS;
	if (config.capture && s->flags & SERVICE_CAPTURE)
		capture(ctx, s, i, 1, action);
	return action;
}
