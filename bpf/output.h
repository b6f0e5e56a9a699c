/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* The last steps of every packet that goes on: MACs, TTL, interface. */
#pragma once

#include "maps.h"
#include "parse.h"
#include "stats.h"

static __always_inline void write_macs(struct ethhdr *eth, const struct backend *be)
{
	__u64 dst = *(__u64 *)be->dst_mac, src = *(__u64 *)be->src_mac;
	*(__u64 *)eth = (dst & 0xffffffffffffULL) | src << 48;
	*(__u32 *)((__u8 *)eth + 8) = src >> 16;
}

/* Where the packet leaves. */
static __always_inline int output(struct xdp_md *ctx, __u32 ifindex)
{
	if (!config.redirect || likely(ifindex == ctx->ingress_ifindex))
		return XDP_TX;
	int action = bpf_redirect_map(&devices, ifindex, XDP_DROP);
	if (action != XDP_REDIRECT)
		count(DROP_NO_INTERFACE);
	return action;
}

/* As a router does (RFC 1812 section 5.3.1). */
static __always_inline void decrement_ttl(void *header, int v6)
{
	if (v6) {
		((struct ip6hdr *)header)->hops--;
		return;
	}
	struct iphdr *ip = header;
	__u32 check = ip->check + 1U; /* of the word {ttl, proto}, 1 less in its first byte */
	ip->check = check + (check >= 0xffff);
	ip->ttl--;
}
