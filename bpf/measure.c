//go:build ignore

/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * What it takes to measure the program by BPF_PROG_TEST_RUN, which does not restore the packet between runs: after the
 * first one it is encapsulated. The wrapper makes it what it was, or another flow's, and tail-calls the program.
 */
#include "kernel.h"
#include "packet.h"

/* Bytes from the IP header on that are written. */
#define TEMPLATE 64

struct trial {
	__u32 length; /* of the packet */
	__u32 flows;  /* that take turns */
	__u32 vary;   /* which word has the address's last 4 bytes at its end, in which they differ */
	__u32 type;   /* EtherType, as it stands */
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
	if (bpf_xdp_adjust_head(ctx, (int)(packet_bytes(ctx) - trial.length)))
		return XDP_ABORTED;
	void *data = packet_start(ctx), *end = packet_end(ctx);
	if (data + ETH_LEN + TEMPLATE > end)
		return XDP_ABORTED;
	/* In words that no field of IP, TCP or UDP reaches beyond: the program reads them at once, and what it reads from
	 * two stores waits for both to leave the core, which no packet from a device makes it do. */
	__u64 *link = data, *w = data + ETH_LEN;
	*link = 0x0202020202020202;
	*(__u32 *)(link + 1) = 0x02020202;
	*(__u16 *)(data + 12) = trial.type;
	__u32 i = turn, vary = trial.vary;
	turn = i + 1 >= trial.flows ? 0 : i + 1;
	__u64 flow = (__u64)__builtin_bswap32(i) << 32;
	for (__u32 k = 0; k < TEMPLATE / 8; k++)
		w[k] = trial.template[k] ^ (k == vary ? flow : 0);
	bpf_tail_call(ctx, &measured, 0);
	return XDP_ABORTED;
}

SEC("xdp")
int noop(struct xdp_md *ctx)
{
	return ctx->data ? XDP_TX : XDP_DROP;
}

char program_license[] SEC("license") = "Dual BSD/GPL";
