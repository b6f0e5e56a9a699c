/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * What the program needs to know of the kernel's interface (include/uapi/linux/bpf.h and the protocol headers), and
 * nothing else: the object depends on the compiler alone, not on the headers of the machine that builds it.
 * The number behind a helper is the first kernel that has it for XDP.
 */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed int __s32;
typedef signed long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;

#define NULL ((void *)0)

#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
/* Verified once, whatever its callers know (global functions, Linux 5.6; pointers to memory, 5.13): the verifier follows
 * others anew from each place that calls them. Pointers may be NULL as far as it knows. */
#define __apart __attribute__((noinline))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define barrier() __asm__ volatile("" ::: "memory")
/* Keeps the compiler from knowing more of a value than the verifier does. */
#define opaque(x) __asm__ volatile("" : "+r"(x))
#define _Static_size(type, n) _Static_assert(sizeof(type) == (n), #type)

/* The form in which loaders expect map definitions (BTF). */
#define __uint(name, val) int (*name)[val]
#define __type(name, val) __typeof__(val) *name
#define __array(name, val) __typeof__(val) *name[]

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the hash and the checksums are written for little-endian machines"
#endif
#define htons(x) ((__be16)__builtin_bswap16(x))
#define ntohs(x) ((__u16)__builtin_bswap16(x))
#define htonl(x) ((__be32)__builtin_bswap32(x))
#define ntohl(x) ((__u32)__builtin_bswap32(x))
/* For constants, where a builtin is not a constant expression to case labels. */
#define HTONS(x) ((__be16)((((x) & 0xff) << 8) | (((x) >> 8) & 0xff)))

enum xdp_action {
	XDP_ABORTED,
	XDP_DROP,
	XDP_PASS,
	XDP_TX,
	XDP_REDIRECT,
};

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_DEVMAP_HASH = 25, /* 5.4 */
	BPF_MAP_TYPE_RINGBUF = 27,     /* 5.8 */
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_EXIST = 2,
};

enum {
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_MMAPABLE = 1 << 10,  /* 5.5 */
	BPF_F_INNER_MAP = 1 << 12, /* 5.10 */
};

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static __u32 (*const bpf_get_prandom_u32)(void) = (void *)7;
static long (*const bpf_tail_call)(void *ctx, void *prog_array, __u32 index) = (void *)12;
static long (*const bpf_xdp_adjust_head)(struct xdp_md *ctx, int delta) = (void *)44;
static long (*const bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)51;
static long (*const bpf_xdp_adjust_tail)(struct xdp_md *ctx, int delta) = (void *)65;
static void *(*const bpf_ringbuf_reserve)(void *ringbuf, __u64 size, __u64 flags) = (void *)131; /* 5.8 */
static void (*const bpf_ringbuf_submit)(void *data, __u64 flags) = (void *)132;
static void (*const bpf_ringbuf_discard)(void *data, __u64 flags) = (void *)133;
static __u64 (*const bpf_ktime_get_coarse_ns)(void) = (void *)160;                                /* 5.11 */
static long (*const bpf_xdp_load_bytes)(struct xdp_md *ctx, __u32 off, void *to, __u32 n) = (void *)189; /* 5.18 */

/* Protocol headers. All fields in network byte order. */

#define ETH_LEN 14
#define VLAN_LEN 4

enum {
	ETH_IPV4 = HTONS(0x0800),
	ETH_IPV6 = HTONS(0x86dd),
	ETH_VLAN = HTONS(0x8100),
	ETH_QINQ = HTONS(0x88a8),
};

enum {
	PROTO_HOPOPTS = 0,
	PROTO_ICMP = 1,
	PROTO_IPIP = 4,
	PROTO_TCP = 6,
	PROTO_UDP = 17,
	PROTO_IPV6 = 41,
	PROTO_ROUTING = 43,
	PROTO_FRAGMENT = 44,
	PROTO_GRE = 47,
	PROTO_ESP = 50,
	PROTO_AH = 51,
	PROTO_ICMPV6 = 58,
	PROTO_NONE = 59,
	PROTO_DSTOPTS = 60,
	PROTO_SCTP = 132,
	PROTO_MOBILITY = 135,
	PROTO_HIP = 139,
	PROTO_SHIM6 = 140,
};

struct ethhdr {
	__u8 dst[6];
	__u8 src[6];
	__be16 type;
};

struct vlanhdr {
	__be16 tci;
	__be16 type;
};

struct iphdr {
	__u8 version_ihl;
	__u8 tos;
	__be16 len;
	__be16 id;
	__be16 frag; /* flags and offset */
	__u8 ttl;
	__u8 proto;
	__u16 check;
	__be32 src;
	__be32 dst;
};

#define IP_DF HTONS(0x4000)
#define IP_MF HTONS(0x2000)
#define IP_OFFSET HTONS(0x1fff)

struct ip6hdr {
	__be32 version_class_flow;
	__be16 len; /* without this header */
	__u8 next;
	__u8 hops;
	__u64 src[2];
	__u64 dst[2];
};

struct fraghdr {
	__u8 next;
	__u8 reserved;
	__be16 offset; /* in units of 8 bytes, above three flag bits */
	__be32 id;
};

struct tcphdr {
	__be16 sport;
	__be16 dport;
	__be32 seq;
	__be32 ack;
	__u8 offset;
	__u8 flags;
	__be16 window;
	__u16 check;
	__be16 urgent;
};

#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

struct udphdr {
	__be16 sport;
	__be16 dport;
	__be16 len;
	__u16 check;
};

struct icmphdr { /* ICMP and ICMPv6 */
	__u8 type;
	__u8 code;
	__u16 check;
	__be32 rest; /* id and sequence, MTU, ... */
};

struct guehdr { /* variant 0, draft-ietf-intarea-gue section 3.1 */
	__u8 version_hlen;
	__u8 proto;
	__be16 flags;
};
