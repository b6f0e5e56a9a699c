//go:build ignore

/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * For backends: takes off the outer headers of IP in IP (all four mixes) and GUE, and passes what is inside to the
 * stack. Everything else passes as it is.
 */
#include "kernel.h"

enum decap_event {
	DECAP_IPIP,      /* packets out of IPv4 or IPv6 in IPv4 or IPv6 */
	DECAP_IPIP_BYTES, /* of these, without the outer headers */
	DECAP_GUE,
	DECAP_GUE_BYTES,
	DECAP_FOREIGN,   /* tunnel packets for an address that is not listed; they pass */
	DECAP_FRAGMENT,  /* outer fragments; they pass */
	DECAP_MALFORMED, /* dropped: cut short, or what is inside is no IP packet */
	DECAP_EVENTS,
};

/* Takes no room; makes the type known to what generates the Go one. */
union decap_named {
	enum decap_event event;
};

struct decap_addr {
	__u64 addr[2]; /* IPv4 mapped */
	union decap_named named[0];
};

/* Outer destinations that are this host's, for tunnels. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct decap_addr);
	__type(value, __u8);
} decap_addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DECAP_EVENTS);
	__type(key, __u32);
	__type(value, __u64);
} decap_counts SEC(".maps");

const volatile __u16 gue_port = 6080; /* host byte order */

static __always_inline void add(__u32 event, __u64 n)
{
	__u64 *c = bpf_map_lookup_elem(&decap_counts, &event);
	if (c)
		*c += n;
}

static __always_inline int count(__u32 event, int action)
{
	add(event, 1);
	return action;
}

SEC("xdp.frags")
int guideway_decap(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l3 = ETH_LEN;
	struct ethhdr *eth = data;
	if ((void *)(eth + 1) > end)
		return XDP_PASS;
	__be16 type = eth->type;
	for (int i = 0; i < 2; i++) {
		if (type != ETH_VLAN && type != ETH_QINQ)
			break;
		struct vlanhdr *v = data + l3;
		if ((void *)(v + 1) > end)
			return XDP_PASS;
		type = v->type;
		l3 += sizeof(*v);
	}

	struct decap_addr dst = {};
	__u32 off;
	__u8 proto;
	int fragment = 0;
	if (type == ETH_IPV4) {
		struct iphdr *ip = data + l3;
		if ((void *)(ip + 1) > end)
			return XDP_PASS;
		proto = ip->proto;
		dst.addr[1] = (__u64)ip->dst << 32 | 0xffff0000;
		off = l3 + (ip->version_ihl & 15) * 4;
		fragment = !!(ip->frag & (IP_MF | IP_OFFSET));
	} else if (type == ETH_IPV6) {
		struct ip6hdr *ip = data + l3;
		if ((void *)(ip + 1) > end)
			return XDP_PASS;
		proto = ip->next;
		dst.addr[0] = ip->dst[0];
		dst.addr[1] = ip->dst[1];
		off = l3 + sizeof(*ip);
	} else {
		return XDP_PASS;
	}

	__u32 event = DECAP_IPIP;
	if (proto == PROTO_UDP) {
		struct udphdr *udp = data + (off & 0x7f);
		struct guehdr *gue = (void *)(udp + 1);
		if ((void *)(gue + 1) > end || udp->dport != htons(gue_port))
			return XDP_PASS;
		/* variant 0, no control message */
		if (gue->version_hlen & 0xe0)
			return XDP_PASS;
		proto = gue->proto;
		off += sizeof(*udp) + sizeof(*gue) + (gue->version_hlen & 31) * 4;
		event = DECAP_GUE;
	}
	if (proto != PROTO_IPIP && proto != PROTO_IPV6)
		return XDP_PASS;
	if (!bpf_map_lookup_elem(&decap_addresses, &dst))
		return count(DECAP_FOREIGN, XDP_PASS);
	if (fragment)
		return count(DECAP_FRAGMENT, XDP_PASS);

	off &= 0x1ff;
	__u8 *inner = data + off;
	__u8 version = proto == PROTO_IPIP ? 4 : 6;
	if (inner + sizeof(struct iphdr) > (__u8 *)end || *inner >> 4 != version)
		return count(DECAP_MALFORMED, XDP_DROP);

	/* The Ethernet header and its tags move to the inner one; at most 22 bytes, word by word. */
	__u32 grow = off - l3;
	__u8 head[ETH_LEN + 2 * VLAN_LEN];
	if (data + sizeof(head) > end)
		return count(DECAP_MALFORMED, XDP_DROP);
	__builtin_memcpy(head, data, sizeof(head));
	if (bpf_xdp_adjust_head(ctx, grow))
		return count(DECAP_MALFORMED, XDP_DROP);
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + sizeof(head) > end)
		return count(DECAP_MALFORMED, XDP_DROP);
	__builtin_memcpy(data, head, ETH_LEN - 2);
	if (l3 >= ETH_LEN + VLAN_LEN)
		__builtin_memcpy(data + 12, head + 12, VLAN_LEN);
	if (l3 >= ETH_LEN + 2 * VLAN_LEN)
		__builtin_memcpy(data + 16, head + 16, VLAN_LEN);
	__u32 at = l3 - 2;
	opaque(at);
	at &= 31;
	__be16 *to = data + at;
	if ((void *)(to + 1) > end)
		return count(DECAP_MALFORMED, XDP_DROP);
	*to = version == 4 ? ETH_IPV4 : ETH_IPV6;
	add(event, 1);
	add(event + 1, end - data - l3);
	return XDP_PASS;
}

char program_license[] SEC("license") = "Dual BSD/GPL";
