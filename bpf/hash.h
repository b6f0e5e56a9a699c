/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * XXH64 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md) of the two flow keys, and of an address as
 * text. The bytes are those of conntrack.Hash5Tuple and maglev.SourceIPHash.
 */
#pragma once

#include "maps.h"

#define XX1 0x9E3779B185EBCA87ULL
#define XX2 0xC2B2AE3D27D4EB4FULL
#define XX3 0x165667B19E3779F9ULL
#define XX4 0x85EBCA77C2B2AE63ULL
#define XX5 0x27D4EB2F165667C5ULL

/* The compiler would draw the shifts of a product into its constant factor, and multiply twice. */
static __always_inline __u64 rotl(__u64 x, int n)
{
	opaque(x);
	return x << n | x >> (64 - n);
}

static __always_inline __u64 xx_round(__u64 acc, __u64 lane) { return rotl(acc + lane * XX2, 31) * XX1; }

static __always_inline __u64 xx_8(__u64 h, __u64 w) { return rotl(h ^ xx_round(0, w), 27) * XX1 + XX4; }

static __always_inline __u64 xx_4(__u64 h, __u32 w) { return rotl(h ^ w * XX1, 23) * XX2 + XX3; }

static __always_inline __u64 xx_1(__u64 h, __u8 c) { return rotl(h ^ c * XX5, 11) * XX1; }

static __always_inline __u64 xx_end(__u64 h)
{
	h = (h ^ h >> 33) * XX2;
	h = (h ^ h >> 29) * XX3;
	return h ^ h >> 32;
}

/* The beginning of a key of 32 bytes or more. */
static __always_inline __u64 xx_32(__u64 seed, const __u64 *w)
{
	__u64 a = xx_round(seed + XX1 + XX2, w[0]), b = xx_round(seed + XX2, w[1]);
	__u64 c = xx_round(seed, w[2]), d = xx_round(seed - XX1, w[3]);
	__u64 h = rotl(a, 1) + rotl(b, 7) + rotl(c, 12) + rotl(d, 18);
	h = (h ^ xx_round(0, a)) * XX1 + XX4;
	h = (h ^ xx_round(0, b)) * XX1 + XX4;
	h = (h ^ xx_round(0, c)) * XX1 + XX4;
	return (h ^ xx_round(0, d)) * XX1 + XX4;
}

static __always_inline __u64 hash_flow4(__u64 seed, const struct flow_key4 *k)
{
	const __u64 *w = (const __u64 *)k;
	return xx_end(xx_8(xx_8(seed + XX5 + sizeof(*k), w[0]), w[1]));
}

static __always_inline __u64 hash_flow6(__u64 seed, const struct flow_key6 *k)
{
	const __u64 *w = (const __u64 *)k;
	return xx_end(xx_8(xx_32(seed, w) + sizeof(*k), w[4]));
}

/* A text under construction. The verifier follows every value that a length in a register can have, and there are too
 * many; of one that comes from a map it knows the bound only. */
struct text {
	__u8 bytes[64];
	volatile __u32 len;
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct text);
} texts SEC(".maps");

static __always_inline void put(struct text *t, __u8 c)
{
	__u32 i = t->len;
	t->bytes[i & 63] = c;
	t->len = i + 1;
}

static __always_inline void put_decimal(struct text *t, __u8 v)
{
	if (v >= 100)
		put(t, '0' + v / 100);
	if (v >= 10)
		put(t, '0' + v / 10 % 10);
	put(t, '0' + v % 10);
}

static __always_inline void put_hex_digit(struct text *t, __u32 v)
{
	v &= 15;
	put(t, v < 10 ? '0' + v : 'a' - 10 + v);
}

static __always_inline void put_hex(struct text *t, __u16 v)
{
	if (v >= 0x1000)
		put_hex_digit(t, v >> 12);
	if (v >= 0x100)
		put_hex_digit(t, v >> 8);
	if (v >= 0x10)
		put_hex_digit(t, v >> 4);
	put_hex_digit(t, v);
}

static __always_inline void put_ipv4(struct text *t, __be32 addr)
{
	for (int i = 0; i < 4; i++) {
		if (i)
			put(t, '.');
		put_decimal(t, addr >> 8 * i);
	}
}

/* XXH64 with seed 0 of a text of at most 48 bytes. */
static __always_inline __u64 hash_text(const struct text *t)
{
	const __u64 *w = (const __u64 *)t->bytes;
	__u32 n = t->len, i = 0;
	__u64 h = XX5;
	if (n >= 32) {
		h = xx_32(0, w);
		i = 32;
	}
	h += n;
	for (int k = 0; k < 5; k++) {
		if (i + 8 > n)
			break;
		h = xx_8(h, *(const __u64 *)&t->bytes[i & 56]);
		i += 8;
	}
	if (i + 4 <= n) {
		h = xx_4(h, *(const __u32 *)&t->bytes[i & 60]);
		i += 4;
	}
	for (int k = 0; k < 3; k++) {
		if (i >= n)
			break;
		h = xx_1(h, t->bytes[i & 63]);
		i++;
	}
	return xx_end(h);
}

/* XXH64 of "a.b.c.d", as it is of all that Envoy sees. */
__apart __u64 hash_source4(__be32 addr)
{
	__u32 zero = 0;
	struct text *t = bpf_map_lookup_elem(&texts, &zero);
	if (!t)
		return 0;
	t->len = 0;
	put_ipv4(t, addr);
	return hash_text(t);
}

/* The text is glibc's (resolv/inet_ntop.c): the leftmost of the longest runs of two zero groups or more is "::", and
 * addresses that begin with exactly six zero groups, or five and ffff, end in dotted decimal. */
__apart __u64 hash_source6(const struct flow_key6 *k)
{
	__u32 zero = 0;
	struct text *t = bpf_map_lookup_elem(&texts, &zero);
	if (!t || !k)
		return 0;
	t->len = 0;
	const __be16 *group = (const __be16 *)k->src;
	__u32 zeros = 0; /* a bit per group */
	for (int i = 0; i < 8; i++)
		if (!group[i])
			zeros |= 1 << i;
	/* runs of a length: bit i is set if there are that many from group i on */
	__u32 start = 8, length = 0, runs = zeros;
	for (int n = 2; n <= 8; n++) {
		runs &= zeros >> (n - 1);
		if (!runs)
			break;
		length = n;
		start = __builtin_popcount((runs & -runs) - 1);
	}
	int dotted = start == 0 && (length == 6 || (length == 5 && group[5] == 0xffff));
	for (__u32 i = 0; i < 8; i++) {
		if (i >= start && i < start + length) {
			if (i == start) {
				put(t, ':');
				put(t, ':');
			}
			continue;
		}
		if (i && i != start + length)
			put(t, ':');
		if (dotted && i == 6) {
			put_ipv4(t, (__be32)(k->src[1] >> 32));
			break;
		}
		put_hex(t, ntohs(group[i]));
	}
	return hash_text(t);
}
