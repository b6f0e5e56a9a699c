/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Where a packet begins and ends. */
#pragma once

#include "kernel.h"

static __always_inline void *packet_start(struct xdp_md *ctx) { return (void *)(long)ctx->data; }
static __always_inline void *packet_end(struct xdp_md *ctx) { return (void *)(long)ctx->data_end; }

/* In 64 bits until it is a number: pointers are not for 32-bit arithmetic. */
static __always_inline __u32 packet_bytes(struct xdp_md *ctx)
{
	long n = packet_end(ctx) - packet_start(ctx);
	opaque(n);
	return n;
}
