/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Which backend a packet goes to. These are the rules of package conntrack (tracker.go, steering.go, flows.go), with
 * its names; both are tested against each other.
 */
#pragma once

#include "hash.h"
#include "maps.h"
#include "stats.h"

enum {
	SETTLED = 1, /* the numbers of conntrack's slotState */
	EXCEPTED = 2,
	OPEN = 4,
};

/* What steering returns beside the index of a backend in the service. */
#define NO_TABLE 0x10000

/* What is asked of the rules; for where the owner of the slot alone does not decide. */
struct question {
	struct service *service;
	__u64 hash, class_hash;
	__u32 owner;
	__u8 states;
	__u8 syn;       /* TCP SYN without ACK: begins a flow */
	__u8 read_only; /* neither refreshes nor remembers: ICMP errors */
	__u8 zero;
};

static __always_inline __u32 slot_state(__u32 slot)
{
	__u32 mark = slot >> 16;
	return mark == MARK_SETTLED ? SETTLED : mark == MARK_EXCEPTED ? EXCEPTED : OPEN;
}

static __always_inline __u32 *slot_of(void *table, __u32 index)
{
	__u32 chunk = 1 + index / SLOTS_PER_CHUNK;
	struct table_chunk *c = bpf_map_lookup_elem(table, &chunk);
	return c ? &c->slot[index % SLOTS_PER_CHUNK] : NULL;
}

static __always_inline struct backend *backend_of(const struct service *s, __u32 index)
{
	__u32 i = s->backends + index;
	return index < s->members ? bpf_map_lookup_elem(&backends, &i) : NULL;
}

/* The way from the root through the owners, or the former owners: the backend's index, the states of the slots and
 * classes on the way in the high half. */
__apart __u64 walk(const struct service *s, __u64 hash, __u64 class_hash, __u32 former)
{
	__u32 array = 0;
	__u64 states = 0;
	if (!s)
		return NO_TABLE;
	for (int level = 0; level < STEER_LEVELS; level++) {
		__u32 i = s->arrays + array, zero = 0;
		void *table = bpf_map_lookup_elem(&tables, &i);
		if (!table)
			return NO_TABLE;
		struct table_head *head = bpf_map_lookup_elem(table, &zero);
		if (!head || !head->slots)
			return NO_TABLE;
		__u32 *slot = slot_of(table, (head->by ? class_hash : hash) % head->slots);
		if (!slot)
			return NO_TABLE;
		__u32 v = *slot, state = slot_state(v);
		states |= state;
		array = former && state == OPEN ? v >> 16 : v & 0xffff;
		if (head->leaf)
			return states << 32 | array;
	}
	return NO_TABLE;
}

/* Who has a flow that is not remembered and did not begin just now. */
static __always_inline __u32 before(const struct question *q)
{
	__u64 b = walk(q->service, q->hash, q->class_hash, 1);
	struct backend *be = backend_of(q->service, (__u32)b);
	return be && !(be->generation & 1) ? (__u32)b : q->owner;
}

static __always_inline int live(const struct service *s, const struct flow *f, __u64 now)
{
	struct backend *be = backend_of(s, f->backend);
	/* Clocks of two CPUs may be a tick apart. */
	return be && be->generation == f->generation && (__s64)(now - f->last) <= (__s64)s->idle;
}

static __always_inline __u32 look_up(void *flows, void *half_open, const void *key, int tcp, const struct question *q)
{
	__u64 now = clock();
	struct service_counters *n = service_counts_of(q->service->id);
	if (!n)
		return q->owner; /* impossible: the loader's ids are in range */
	n->lookups++;
	struct flow *whole = bpf_map_lookup_elem(flows, key);
	if (whole && live(q->service, whole, now)) {
		n->found++;
		if (!q->read_only)
			whole->last = now;
		return whole->backend;
	}
	struct flow *half = tcp ? bpf_map_lookup_elem(half_open, key) : NULL;
	if (half && live(q->service, half, now)) {
		n->found++;
		__u32 b = half->backend;
		if (q->read_only)
			return b;
		half->last = now;
		if (q->syn) {
			if (whole)
				bpf_map_delete_elem(flows, key);
			return b;
		}
		struct flow f = {.generation = half->generation, .backend = b, .last = now};
		if (bpf_map_update_elem(flows, key, &f, BPF_ANY)) {
			n->insert_failed++; /* it stays half-open */
			return b;
		}
		bpf_map_delete_elem(half_open, key);
		n->promoted++;
		return b;
	}
	__u32 b = q->syn ? q->owner : before(q);
	if (b == NO_BACKEND || q->read_only || !(q->states & OPEN || q->service->track == TRACK_ALL))
		return b;
	struct backend *be = backend_of(q->service, b);
	/* One that has stopped serving just now is not remembered, and a NAT flow is remembered by its ports. */
	if (!be || be->generation & 1 || (config.nat && be->forwarding == FORWARD_NAT))
		return b;
	struct flow f = {.generation = be->generation, .backend = b, .last = now};
	if (q->syn) {
		if (whole)
			bpf_map_delete_elem(flows, key);
		if (bpf_map_update_elem(half_open, key, &f, BPF_ANY))
			n->insert_failed++;
		else
			n->half_open++;
	} else {
		if (half)
			bpf_map_delete_elem(half_open, key);
		if (bpf_map_update_elem(flows, key, &f, BPF_ANY))
			n->insert_failed++;
		else
			n->remembered++;
	}
	return b;
}

static __noinline __u32 look_up4(const struct flow_key4 *key, const struct question *q)
{
	return look_up(&flows4, &half_open4, key, key->proto == PROTO_TCP, q);
}

static __noinline __u32 look_up6(const struct flow_key6 *key, const struct question *q)
{
	return look_up(&flows6, &half_open6, key, key->proto == PROTO_TCP, q);
}

/* The owner of a hash's slot, the states on the way to it in the high half. */
static __always_inline __u64 follow(const struct service *s, __u64 hash, __u64 class_hash)
{
	if (config.classes && unlikely(!s->only_slots))
		return walk(s, hash, class_hash, 0);
	__u32 i = s->only, n = s->only_slots;
	void *table = bpf_map_lookup_elem(&tables, &i);
	if (!table || !n)
		return NO_TABLE;
	__u32 *slot = slot_of(table, hash % n);
	if (!slot)
		return NO_TABLE;
	return (__u64)slot_state(*slot) << 32 | (*slot & 0xffff);
}

#define STEER(family)                                                                                                  \
	static __always_inline __u32 steer##family(struct service *s, const struct flow_key##family *key, __u64 hash,      \
						   int syn, int read_only)                                             \
	{                                                                                                              \
		__u64 class_hash = config.classes && !s->only_slots ? hash_flow##family(s->class_seed, key) : 0;       \
		__u64 way = follow(s, hash, class_hash);                                                               \
		__u32 owner = (__u32)way, states = way >> 32;                                                          \
		if (owner == NO_TABLE || !config.tracking || likely(s->track != TRACK_ALL && states == SETTLED))       \
			return owner;                                                                                  \
		struct question q = {.service = s, .hash = hash, .class_hash = class_hash, .owner = owner,             \
				     .states = states, .syn = syn, .read_only = read_only};                            \
		return look_up##family(key, &q);                                                                       \
	}
STEER(4)
STEER(6)

static __always_inline __u64 service_hash4(const struct service *s, const struct flow_key4 *key)
{
	if (unlikely(s->hash != HASH_FIVE_TUPLE))
		return config.source_ip && s->hash == HASH_SOURCE_IP ? hash_source4(key->src) : s->seed;
	return hash_flow4(s->seed, key);
}

static __always_inline __u64 service_hash6(const struct service *s, const struct flow_key6 *key)
{
	if (unlikely(s->hash != HASH_FIVE_TUPLE))
		return config.source_ip && s->hash == HASH_SOURCE_IP ? hash_source6(key) : s->seed;
	return hash_flow6(s->seed, key);
}
