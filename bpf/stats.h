/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Counters, and the time. */
#pragma once

#include "maps.h"

/* The coarse clock takes a few ns where a precise one takes twenty and more; its ticks are short against timeouts. */
static __always_inline __u64 clock(void)
{
	if (config.set_clock)
		return clock_now;
	return bpf_ktime_get_coarse_ns();
}

static __always_inline void count(__u32 event)
{
	__u64 *n = bpf_map_lookup_elem(&events, &event);
	if (n)
		(*n)++;
}

static __always_inline struct service_counters *service_counts_of(__u32 id)
{
	return bpf_map_lookup_elem(&service_counts, &id);
}

/* What happens to a packet that a service of ours has, and that goes no further. */
__apart int drop(__u32 reason, __u32 service_id)
{
	count(reason);
	struct service_counters *n = service_counts_of(service_id);
	if (n)
		n->dropped++;
	return XDP_DROP;
}

/* The same where no service is known. */
static __always_inline int drop_early(__u32 reason)
{
	count(reason);
	return XDP_DROP;
}
