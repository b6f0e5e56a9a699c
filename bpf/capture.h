/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* Copies of packets, for those who want to see what XDP does to them. */
#pragma once

#include "maps.h"
#include "parse.h"
#include "stats.h"

__apart int capture(struct xdp_md *ctx, const struct service *s, __u32 backend, int after, int action)
{
	if (!s)
		return 0;
	/* One in so many before; after, those whose copy from before was taken are not known: the same odds. */
	if (s->sample > 1 && bpf_get_prandom_u32() % s->sample)
		return 0;
	__u32 n = packet_bytes(ctx), take = n;
	struct sample *c = bpf_ringbuf_reserve(&samples, sizeof(*c), 0);
	if (!c) {
		count(EVENT_SAMPLE_LOST);
		return 0;
	}
	c->time = clock();
	c->service = s->id;
	c->backend = backend;
	c->length = n;
	c->ifindex = ctx->ingress_ifindex;
	c->after = after;
	c->action = action;
	c->zero = 0;
	if (take > SAMPLE_BYTES)
		take = SAMPLE_BYTES;
	opaque(take); /* both bounds are for the verifier to see */
	if (take < ETH_LEN || take > SAMPLE_BYTES || bpf_xdp_load_bytes(ctx, 0, c->bytes, take)) {
		bpf_ringbuf_discard(c, 0);
		return 0;
	}
	c->captured = take;
	bpf_ringbuf_submit(c, 0);
	return 0;
}
