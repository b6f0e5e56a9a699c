//go:build ignore

/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * What it takes to measure the program by BPF_PROG_TEST_RUN, which does not restore the packet between runs: after the
 * first one it is encapsulated. The wrapper makes it what it was, or another flow's, and tail-calls the program.
 */
#include "kernel.h"

#define TEMPLATE 80

struct trial {
	__u32 length; /* of the packet */
	__u32 flows;  /* that take turns */
	__u32 vary;   /* where the 4 bytes are in which they differ: the source address's last ones */
	__u32 zero;
	__u64 template[TEMPLATE / 8];
};

volatile struct trial trial;
volatile __u32 turn = 0;

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 4);
} measured SEC(".maps");

SEC("xdp")
int wrapper(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	long grown = end - data;
	opaque(grown); /* or it is computed in 32 bits, which pointers are not for */
	if (bpf_xdp_adjust_head(ctx, (int)(grown - trial.length)))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	__u64 *w = data;
	if ((void *)(w + TEMPLATE / 8) > end)
		return XDP_ABORTED;
	for (int i = 0; i < TEMPLATE / 8; i++)
		w[i] = trial.template[i];
	__u32 i = turn;
	turn = i + 1 >= trial.flows ? 0 : i + 1;
	__u32 at = trial.vary & 63;
	opaque(at);
	__u32 *addr = data + at;
	if ((void *)(addr + 1) > end)
		return XDP_ABORTED;
	*addr ^= __builtin_bswap32(i);
	bpf_tail_call(ctx, &measured, 0);
	return XDP_ABORTED;
}

SEC("xdp")
int noop(struct xdp_md *ctx)
{
	return ctx->data ? XDP_TX : XDP_DROP;
}

char program_license[] SEC("license") = "Dual BSD/GPL";
