/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Where things are in a packet. */
#pragma once

#include "maps.h"
#include "packet.h"

#define ACTION_NONE (-1) /* no verdict: go on */

#define MAX_L3 (ETH_LEN + 2 * VLAN_LEN)
/* Of the chain of IPv6 extension headers. */
#define MAX_EXTENSIONS 8
#define MAX_EXTENSION_BYTES 512

/* Where the EtherType of the header at offset l3 stands. A pointer of its own: the verifier refuses negative offsets. */
static __always_inline __be16 *ether_type(void *data, __u32 l3)
{
	__u32 at = l3 - 2;
	opaque(at);
	return data + at;
}

/* What is known of a packet for one of our VIPs, or one of our NAT ports. Built in registers where nothing takes its
 * address. */
struct packet {
	__u32 l3;    /* offset of the IP header */
	__u32 l4;    /* of what follows it and the extension headers */
	__u32 len;   /* of the IP packet, with its header, in bytes */
	__u32 ports; /* source and destination port as they stand in the packet */
	__u8 v6;
	__u8 proto; /* behind the extension headers */
	__u8 ttl;
	__u8 syn;   /* TCP SYN without ACK */
	__u8 later; /* a fragment that is not the first: there is no layer 4 */
	__u8 first; /* the first fragment of several */
	__u8 icmp;  /* an ICMP error about the flow */
};

struct extensions {
	__u32 l4;
	__u8 proto;
	__u8 fragment; /* there is a fragment header, at: */
	__u8 unknown;  /* or too many, or too long */
	__u8 zero;
	__u32 fragment_at;
};

/* Protocols that are no extension headers, as far as they are met. Any other number may stand for a header that comes
 * before layer 4. */
static __always_inline int is_upper(__u8 proto)
{
	switch (proto) {
	case PROTO_IPIP:
	case PROTO_TCP:
	case PROTO_UDP:
	case PROTO_IPV6:
	case PROTO_GRE:
	case PROTO_ESP:
	case PROTO_ICMPV6:
	case PROTO_NONE:
	case PROTO_SCTP:
		return 1;
	}
	return 0;
}

/* The chain of extension headers that begins at x->l4 with a header of type x->proto (RFC 8200 section 4; AH: RFC
 * 4302). It ends at the fragment header of a fragment that is not the first. */
__apart int walk_extensions(struct xdp_md *ctx, struct extensions *x)
{
	void *data = packet_start(ctx), *end = packet_end(ctx);
	if (!x)
		return 0;
	__u32 at = x->l4, begin = at;
	__u8 proto = x->proto;
	for (int i = 0; i < MAX_EXTENSIONS; i++) {
		__u8 *h = data + (at & 0x3ff);
		if (h + 8 > (__u8 *)end)
			break;
		switch (proto) {
		case PROTO_HOPOPTS:
		case PROTO_ROUTING:
		case PROTO_DSTOPTS:
		case PROTO_MOBILITY:
		case PROTO_HIP:
		case PROTO_SHIM6:
			at += 8 + h[1] * 8;
			break;
		case PROTO_AH:
			at += 8 + h[1] * 4;
			break;
		case PROTO_FRAGMENT:
			x->fragment = 1;
			x->fragment_at = at;
			at += 8;
			if (((struct fraghdr *)h)->offset & HTONS(0xfff8)) {
				x->proto = h[0];
				x->l4 = at;
				return 0;
			}
			break;
		default:
			x->proto = proto;
			x->l4 = at;
			x->unknown = !is_upper(proto);
			return 0;
		}
		proto = h[0];
		if (at - begin > MAX_EXTENSION_BYTES)
			break;
	}
	x->proto = proto;
	x->l4 = at;
	x->unknown = !is_upper(proto);
	return 0;
}

static __always_inline int is_extension(__u8 proto)
{
	return proto == PROTO_HOPOPTS || proto == PROTO_ROUTING || proto == PROTO_DSTOPTS || proto == PROTO_FRAGMENT ||
	       proto == PROTO_AH || proto == PROTO_MOBILITY || proto == PROTO_HIP || proto == PROTO_SHIM6;
}

/* An IPv4 address in its mapped form, as the two halves of an IPv6 address. */
static __always_inline void map_ipv4(__u64 to[2], __be32 addr)
{
	to[0] = 0;
	to[1] = (__u64)addr << 32 | 0xffff0000;
}
