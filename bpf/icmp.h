/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * ICMP and ICMPv6 that the balancer sends: answers to echo requests for a VIP, "fragmentation needed" and "packet too
 * big" when the way to the backend is too narrow, "time exceeded". Errors that others send are in quoted.h.
 */
#pragma once

#include "csum.h"
#include "maps.h"
#include "parse.h"
#include "stats.h"

enum {
	ICMP_ECHO_REPLY = 0,
	ICMP_UNREACHABLE = 3,
	ICMP_FRAG_NEEDED = 4, /* a code of it */
	ICMP_QUENCH = 4,
	ICMP_ECHO = 8,
	ICMP_TIME_EXCEEDED = 11,
	ICMP_PARAMETER = 12,

	ICMPV6_UNREACHABLE = 1,
	ICMPV6_TOO_BIG = 2,
	ICMPV6_TIME_EXCEEDED = 3,
	ICMPV6_PARAMETER = 4,
	ICMPV6_ECHO = 128,
	ICMPV6_ECHO_REPLY = 129,
};

/* Of the packet that an error is about, so much is quoted: with 28 bytes of headers IPv4's 576 (RFC 1812 section
 * 4.3.2.3); and what with 48 makes IPv6's 1280 (RFC 4443 section 3). */
#define QUOTE4 548
#define QUOTE6 1232

static __always_inline void swap_macs(struct ethhdr *eth)
{
	__u16 *p = (__u16 *)eth;
	__u16 a = p[0], b = p[1], c = p[2];
	p[0] = p[3];
	p[1] = p[4];
	p[2] = p[5];
	p[3] = a;
	p[4] = b;
	p[5] = c;
}

/* Copies an Ethernet header with its tags, l3 bytes, and swaps the MACs. There must be MAX_L3 bytes at either place,
 * which must not overlap. */
static __always_inline int return_link_header(void *to, const void *from, __u32 l3, __be16 type, void *end)
{
	__u32 *t = to;
	const __u32 *f = from;
	t[0] = f[0];
	t[1] = f[1];
	t[2] = f[2];
	if (l3 >= ETH_LEN + VLAN_LEN)
		t[3] = f[3];
	if (l3 >= ETH_LEN + 2 * VLAN_LEN)
		t[4] = f[4];
	swap_macs(to);
	__be16 *last = ether_type(to, l3);
	if ((void *)(last + 1) > end)
		return 0;
	*last = type;
	return 1;
}

/* A bucket of tokens a CPU. */
__apart int icmp_allowed(void)
{
	__u32 zero = 0;
	struct limit *l = bpf_map_lookup_elem(&limits, &zero);
	if (!l)
		return 0;
	__u64 now = clock(), full = (__u64)config.icmp_burst * config.icmp_interval;
	__u64 tokens = l->last ? l->tokens + (now - l->last) : full;
	if (now < l->last)
		tokens = l->tokens;
	else
		l->last = now;
	if (tokens > full)
		tokens = full;
	int ok = tokens >= config.icmp_interval;
	if (ok)
		tokens -= config.icmp_interval;
	l->tokens = tokens;
	if (!ok)
		count(DROP_RATE);
	return ok;
}

/* Answers an echo request for a VIP where it came from. */
__apart int echo_reply(struct xdp_md *ctx, __u32 l3, __u32 l4, int v6)
{
	void *data = packet_start(ctx), *end = packet_end(ctx);
	struct icmphdr *icmp = data + (l4 & 0x3ff);
	struct ethhdr *eth = data;
	if ((void *)(icmp + 1) > end || (void *)(eth + 1) > end)
		return drop_early(DROP_MALFORMED);
	if (v6) {
		struct ip6hdr *ip = data + (l3 & 31);
		if ((void *)(ip + 1) > end)
			return drop_early(DROP_MALFORMED);
		__u64 a = ip->src[0], b = ip->src[1];
		ip->src[0] = ip->dst[0];
		ip->src[1] = ip->dst[1];
		ip->dst[0] = a;
		ip->dst[1] = b;
		ip->hops = 64;
	} else {
		struct iphdr *ip = data + (l3 & 31);
		if ((void *)(ip + 1) > end)
			return drop_early(DROP_MALFORMED);
		__be32 a = ip->src;
		ip->src = ip->dst;
		ip->dst = a;
		ip->check = csum_apply(ip->check, csum_change16(ip->ttl, 64));
		ip->ttl = 64;
	}
	__u8 to = v6 ? ICMPV6_ECHO_REPLY : ICMP_ECHO_REPLY;
	icmp->check = csum_apply(icmp->check, csum_change16(icmp->type, to));
	icmp->type = to;
	swap_macs(eth);
	count(EVENT_ECHO);
	return XDP_TX;
}

/* Turns the packet into an ICMP error about itself, from the VIP to its sender, and sends it back. rest is the second
 * word of the ICMP header. */
__apart int icmp_error4(struct xdp_md *ctx, __u32 l3, __u8 type, __u8 code, __be32 rest)
{
	const __u32 grow = sizeof(struct iphdr) + sizeof(struct icmphdr);
	void *data = packet_start(ctx), *end = packet_end(ctx);
	l3 &= 31;
	if (l3 < ETH_LEN || l3 > MAX_L3)
		return XDP_DROP;
	struct iphdr *quoted = data + l3;
	if ((void *)(quoted + 1) > end)
		return XDP_DROP;
	__u32 have = packet_bytes(ctx), quote = ntohs(quoted->len);
	if (quote > QUOTE4)
		quote = QUOTE4;
	quote &= ~3U;
	if (l3 + quote > have)
		return XDP_DROP;
	if (bpf_xdp_adjust_tail(ctx, (int)(l3 + quote) - (int)have) || bpf_xdp_adjust_head(ctx, -(int)grow))
		return drop_early(DROP_HEADROOM);
	data = packet_start(ctx);
	end = packet_end(ctx);
	struct iphdr *ip = data + l3;
	struct icmphdr *icmp = (void *)(ip + 1);
	quoted = (void *)(icmp + 1);
	void *link = data;
	opaque(link); /* or the compiler finds that one check follows from the other, which the verifier does not */
	if ((void *)(quoted + 1) > end || link + grow + MAX_L3 > end)
		return XDP_DROP;
	if (!return_link_header(link, link + grow, l3, ETH_IPV4, end))
		return XDP_DROP;
	ip->version_ihl = 0x45;
	ip->tos = 0xc0; /* precedence "internetwork control", RFC 1812 section 4.3.2.5 */
	ip->len = htons(grow + quote);
	ip->id = 0;
	ip->frag = 0;
	ip->ttl = 64;
	ip->proto = PROTO_ICMP;
	ip->check = 0;
	ip->src = quoted->dst;
	ip->dst = quoted->src;
	__u32 *w = (__u32 *)ip;
	ip->check = csum_of((__u64)w[0] + w[1] + w[2] + w[3] + w[4]);
	icmp->type = type;
	icmp->code = code;
	icmp->check = 0;
	icmp->rest = rest;
	__u64 sum = 0;
	w = (__u32 *)icmp;
	for (int i = 0; i < (int)(sizeof(struct icmphdr) + QUOTE4) / 4; i++) {
		if ((void *)(w + 1) > end)
			break;
		sum += *w++;
	}
	icmp->check = csum_of(sum);
	return XDP_TX;
}

__apart int icmp_error6(struct xdp_md *ctx, __u32 l3, __u8 type, __u8 code, __be32 rest)
{
	const __u32 grow = sizeof(struct ip6hdr) + sizeof(struct icmphdr);
	void *data = packet_start(ctx), *end = packet_end(ctx);
	l3 &= 31;
	if (l3 < ETH_LEN || l3 > MAX_L3)
		return XDP_DROP;
	struct ip6hdr *quoted = data + l3;
	if ((void *)(quoted + 1) > end)
		return XDP_DROP;
	__u32 have = packet_bytes(ctx), quote = sizeof(*quoted) + ntohs(quoted->len);
	if (quote > QUOTE6)
		quote = QUOTE6;
	quote &= ~3U;
	if (l3 + quote > have)
		return XDP_DROP;
	if (bpf_xdp_adjust_tail(ctx, (int)(l3 + quote) - (int)have) || bpf_xdp_adjust_head(ctx, -(int)grow))
		return drop_early(DROP_HEADROOM);
	data = packet_start(ctx);
	end = packet_end(ctx);
	struct ip6hdr *ip = data + l3;
	struct icmphdr *icmp = (void *)(ip + 1);
	quoted = (void *)(icmp + 1);
	void *link = data;
	opaque(link); /* or the compiler finds that one check follows from the other, which the verifier does not */
	if ((void *)(quoted + 1) > end || link + grow + MAX_L3 > end)
		return XDP_DROP;
	if (!return_link_header(link, link + grow, l3, ETH_IPV6, end))
		return XDP_DROP;
	ip->version_class_flow = HTONS(0x6000);
	ip->len = htons(sizeof(struct icmphdr) + quote);
	ip->next = PROTO_ICMPV6;
	ip->hops = 64;
	ip->src[0] = quoted->dst[0];
	ip->src[1] = quoted->dst[1];
	ip->dst[0] = quoted->src[0];
	ip->dst[1] = quoted->src[1];
	icmp->type = type;
	icmp->code = code;
	icmp->check = 0;
	icmp->rest = rest;
	__u64 sum = htonl(sizeof(struct icmphdr) + quote) + (__u64)htonl(PROTO_ICMPV6);
	__u32 *w = (__u32 *)ip->src;
	/* the addresses, which are part of the pseudo-header, and all that follows */
	for (int i = 0; i < (int)(32 + sizeof(struct icmphdr) + QUOTE6) / 4; i++) {
		if ((void *)(w + 1) > end)
			break;
		sum += *w++;
	}
	icmp->check = csum_of(sum);
	return XDP_TX;
}

/* mtu: what fits, as an IP packet of the sender's. */
__apart int too_big(struct xdp_md *ctx, __u32 l3, int v6, __u32 mtu, __u32 service_id)
{
	drop(DROP_TOO_BIG, service_id);
	if (!icmp_allowed())
		return XDP_DROP;
	int action = v6 ? icmp_error6(ctx, l3, ICMPV6_TOO_BIG, 0, htonl(mtu))
			: icmp_error4(ctx, l3, ICMP_UNREACHABLE, ICMP_FRAG_NEEDED, htonl(mtu & 0xffff));
	if (action == XDP_TX)
		count(EVENT_TOO_BIG_SENT);
	return action;
}

__apart int time_exceeded(struct xdp_md *ctx, __u32 l3, int v6, __u32 service_id)
{
	drop(DROP_TTL, service_id);
	if (!icmp_allowed())
		return XDP_DROP;
	int action = v6 ? icmp_error6(ctx, l3, ICMPV6_TIME_EXCEEDED, 0, 0)
			: icmp_error4(ctx, l3, ICMP_TIME_EXCEEDED, 0, 0);
	if (action == XDP_TX)
		count(EVENT_TTL_SENT);
	return action;
}
