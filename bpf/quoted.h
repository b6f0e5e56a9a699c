/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* The packet that an ICMP error quotes: its beginning, the first 8 bytes of layer 4 at least (RFC 792, RFC 4443). */
#pragma once

#include "icmp.h"
#include "maps.h"
#include "parse.h"

/* IPv4 addresses are mapped. Source and destination are those of the quoted packet, which went the other way. */
struct quoted {
	__u32 l3;
	__u32 l4;
	__u64 src[2];
	__u64 dst[2];
	__be16 sport;
	__be16 dport;
	__u8 proto;
	__u8 zero[3];
};

static __always_inline int is_error4(__u8 type)
{
	return type == ICMP_UNREACHABLE || type == ICMP_QUENCH || type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETER;
}

static __always_inline int is_error6(__u8 type) { return type >= ICMPV6_UNREACHABLE && type <= ICMPV6_PARAMETER; }

/* Reads the packet quoted by the ICMP message at l4. 0: there is no layer 4 of a kind that we know to be read. */
__apart int read_quoted(struct xdp_md *ctx, __u32 l4, int v6, struct quoted *q)
{
	void *data = packet_start(ctx), *end = packet_end(ctx);
	if (!q)
		return 0;
	q->l3 = (l4 & 0x3ff) + sizeof(struct icmphdr);
	if (v6) {
		struct ip6hdr *ip = data + q->l3;
		if ((void *)(ip + 1) > end)
			return 0;
		q->src[0] = ip->src[0];
		q->src[1] = ip->src[1];
		q->dst[0] = ip->dst[0];
		q->dst[1] = ip->dst[1];
		q->proto = ip->next;
		q->l4 = q->l3 + sizeof(*ip);
		if (is_extension(ip->next)) {
			struct extensions x = {.l4 = q->l4, .proto = ip->next};
			walk_extensions(ctx, &x);
			if (x.unknown)
				return 0;
			if (x.fragment) {
				struct fraghdr *f = data + (x.fragment_at & 0x3ff);
				if ((void *)(f + 1) > end || f->offset & HTONS(0xfff8))
					return 0;
			}
			q->proto = x.proto;
			q->l4 = x.l4;
		}
	} else {
		struct iphdr *ip = data + q->l3;
		if ((void *)(ip + 1) > end)
			return 0;
		map_ipv4(q->src, ip->src);
		map_ipv4(q->dst, ip->dst);
		q->proto = ip->proto;
		q->l4 = q->l3 + (ip->version_ihl & 15) * 4;
		if (ip->frag & IP_OFFSET)
			return 0;
	}
	if (q->proto != PROTO_TCP && q->proto != PROTO_UDP)
		return 0;
	q->l4 &= 0x7ff;
	__be16 *ports = data + q->l4;
	if ((void *)(ports + 4) > end)
		return 0;
	q->sport = ports[0];
	q->dport = ports[1];
	return 1;
}
