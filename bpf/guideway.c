//go:build ignore

/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
#include "maps.h"

SEC("xdp")
int guideway(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct sample *s = bpf_ringbuf_reserve(&samples, sizeof(*s), 0);
	if (s)
		bpf_ringbuf_discard(s, 0);
	if (config.set_clock && clock_now)
		return XDP_DROP;
	bpf_map_lookup_elem(&services4, &zero);
	return ctx->data ? XDP_PASS : XDP_DROP;
}

char program_license[] SEC("license") = "Dual BSD/GPL";
