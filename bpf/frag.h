/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Fragments. The first one of a packet has the ports; it leaves them, and the backend it went to, for the others. The
 * policy for those that come before it: they are dropped and counted (DROP_FRAGMENT_FIRST); XDP cannot keep them, and
 * any other backend would be the wrong one.
 */
#pragma once

#include "maps.h"
#include "parse.h"
#include "stats.h"

/* The time that receivers wait for the rest of a packet (ip_frag_time on Linux). An id may be used again after it. */
#define FRAGMENT_TIME 30000000000ULL

static __always_inline void fragment_key4(struct fragment_key *k, const struct iphdr *ip)
{
	map_ipv4(k->src, ip->src);
	map_ipv4(k->dst, ip->dst);
	k->id = ip->id;
	k->proto = ip->proto;
}

static __always_inline void fragment_key6(struct fragment_key *k, const struct ip6hdr *ip, __be32 id)
{
	k->src[0] = ip->src[0];
	k->src[1] = ip->src[1];
	k->dst[0] = ip->dst[0];
	k->dst[1] = ip->dst[1];
	k->id = id;
}

static __always_inline struct fragment *find_fragment(const struct fragment_key *k)
{
	struct fragment *f = bpf_map_lookup_elem(&fragments, k);
	return f && (__s64)(clock() - f->last) <= (__s64)FRAGMENT_TIME ? f : NULL;
}

__apart int leave_fragment(const struct fragment_key *k, __u32 ports, __u8 proto, __u32 backend, __u32 generation)
{
	if (!k)
		return 0;
	struct fragment f = {.sport = ports, .dport = ports >> 16, .proto = proto, .backend = backend,
			     .generation = generation, .last = clock()};
	return bpf_map_update_elem(&fragments, k, &f, BPF_ANY);
}
