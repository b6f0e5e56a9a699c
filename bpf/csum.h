/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* The internet checksum (RFC 1071) and changes to it (RFC 1624). */
#pragma once

#include "kernel.h"

static __always_inline __u16 csum_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* The checksum of bytes whose 32-bit words add up to sum. */
static __always_inline __u16 csum_of(__u64 sum) { return ~csum_fold(sum); }

/* Changes of words under one checksum, added up. At most 2^16 of them. */
static __always_inline __u64 csum_change32(__u32 from, __u32 to) { return (__u64)(__u32)~from + to; }
static __always_inline __u64 csum_change16(__u16 from, __u16 to) { return (__u64)(__u16)~from + to; }

static __always_inline __u16 csum_apply(__u16 check, __u64 change)
{
	return ~csum_fold((__u64)(__u16)~check + change);
}
