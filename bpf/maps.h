/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* The maps and what is in them. doc.go describes who writes what, when and in which order. */
#pragma once

#include "kernel.h"

/* Of the chunks that a table is made of: one cache line. An array map rounds values up to 8 bytes, so that slots
 * of 4 bytes come 16 to a value. */
#define SLOTS_PER_CHUNK 16

#define NO_BACKEND 0xffff
/* The high half of a slot that is not open (conntrack/slot.go). */
#define MARK_SETTLED 0xffff
#define MARK_EXCEPTED 0xfffe

/* The root, and four levels below it (conntrack/desired.go: maxDepth). */
#define STEER_LEVELS 5

/* 8 bytes. Port 0 with the protocol number of ICMP stands for the VIP itself. */
struct service_key4 {
	__be32 vip;
	__be16 port;
	__u8 proto;
	__u8 zero;
} __attribute__((aligned(8)));
_Static_size(struct service_key4, 8);

/* 24 bytes, not 20: the kernel compares keys word by word, and what is left of them byte by byte. Port 0 with the
 * protocol number of ICMPv6 stands for the VIP itself. */
struct service_key6 {
	__u8 vip[16];
	__be16 port;
	__u8 proto;
	__u8 zero[5];
} __attribute__((aligned(8)));
_Static_size(struct service_key6, 24);

enum track {
	TRACK_CHANGED, /* the numbers of conntrack.Track */
	TRACK_ALL,
	TRACK_OFF,
};

enum hash_policy {
	HASH_FIVE_TUPLE,
	HASH_SOURCE_IP, /* Envoy's: XXH64 of the address as text */
	HASH_CONSTANT,  /* seed is the hash of every flow (Envoy's udp_proxy policy "key") */
};

enum service_flag {
	SERVICE_VIP = 1,        /* no service, but a VIP that some service has */
	SERVICE_NAT = 2,        /* one of its backends at least is reached by NAT */
	SERVICE_CAPTURE = 4,    /* packets go to the samples too */
};

/* 64 bytes. */
struct service {
	__u64 seed;       /* of the five-tuple hash; or the constant hash */
	__u64 class_seed; /* of the five-tuple hash that picks a class by ClassHash */
	__u64 idle;       /* ns without a packet after which a flow is over */
	__u32 only;       /* index in tables of the only table */
	__u32 only_slots; /* how many slots it has; 0: begin at the root */
	__u32 arrays;     /* index in tables of the root; array i of the service is at arrays + i */
	__u32 backends;   /* index in backends of the service's backend 0 */
	__u32 members;    /* how many backends there are */
	__u32 id;         /* index in service_counters */
	__u32 sample;     /* with SERVICE_CAPTURE: one packet in this many; 0 is 1 */
	__u8 track;
	__u8 hash;
	__u16 flags;
	__u32 zero[2];
};
_Static_size(struct service, 64);

/* 64 bytes, the first chunk of each array of slots or classes. The slots follow, 16 to a chunk. */
struct table_head {
	__u32 slots; /* or classes; at least 1 */
	__u8 by;     /* conntrack.HashKind */
	__u8 leaf;   /* the slots name backends; otherwise classes, which name arrays */
	__u16 zero;
	__u64 digest;  /* of the slots; for those who compare */
	__u64 version; /* of the service's state, the writer's count */
	__u64 spare[5];
};
_Static_size(struct table_head, 64);

struct table_chunk {
	__u32 slot[SLOTS_PER_CHUNK];
};

enum forwarding {
	FORWARD_IPIP,
	FORWARD_GUE,
	FORWARD_L2,
	FORWARD_NAT,
};

enum backend_flag {
	BACKEND_IPV6 = 1,     /* addr and source are IPv6; otherwise IPv4, in the first four bytes */
	BACKEND_RESOLVED = 2, /* the MACs are known */
};

/* 64 bytes, one cache line: everything that forwarding to a backend takes. Each 8 bytes are written and read at
 * once, so that a MAC is never half old. */
struct backend {
	__u32 generation; /* even: it serves. Odd: it does not; a flow that is remembered is never of such a one */
	__u32 ifindex;    /* where it is reached */
	__u8 dst_mac[6];  /* of the next hop */
	__u16 mtu;        /* of the way there, of IP packets, in bytes */
	__u8 src_mac[6];
	__be16 port;      /* NAT: the backend's port. GUE: the decapsulator's */
	__u8 forwarding;
	__u8 flags;
	__u8 source_bits; /* so many low bits of source vary with the flow, 0 to 32 */
	__u8 zero;
	__u32 zero2;
	__u8 addr[16];
	__u8 source[16]; /* outer source; NAT: the balancer's address */
};
_Static_size(struct backend, 64);

/* 16 bytes: conntrack.Key4. Keys are written and hashed in whole words: a word that is read while the smaller stores
 * it was put together from are under way costs more than its hash. */
struct flow_key4 {
	__be32 src;
	__be32 dst;
	__be16 sport;
	__be16 dport;
	__u8 proto;
	__u8 zero[3];
} __attribute__((aligned(8)));
_Static_size(struct flow_key4, 16);

/* 40 bytes: conntrack.Key6. */
struct flow_key6 {
	__u64 src[2];
	__u64 dst[2];
	__be16 sport;
	__be16 dport;
	__u8 proto;
	__u8 zero[3];
};
_Static_size(struct flow_key6, 40);

/* 16 bytes. */
struct flow {
	__u32 generation; /* of the backend when the flow was remembered */
	__u16 backend;    /* index in the service */
	__u16 zero;
	__u64 last; /* ns of CLOCK_MONOTONIC: its last packet */
};
_Static_size(struct flow, 16);

/* 40 bytes. IPv4 addresses are mapped (::ffff:192.0.2.1). */
struct fragment_key {
	__u64 src[2];
	__u64 dst[2];
	__be32 id;
	__u8 proto; /* IPv4, whose ids are a protocol's; otherwise 0 */
	__u8 zero[3];
};
_Static_size(struct fragment_key, 40);

/* 24 bytes: what the first fragment of a packet said, and where it went. */
struct fragment {
	__be16 sport;
	__be16 dport;
	__u32 generation;
	__u16 backend;
	__u8 proto; /* behind the extension headers */
	__u8 zero;
	__u32 zero2;
	__u64 last; /* ns: void 30 s later */
};
_Static_size(struct fragment, 24);

/* 24 bytes, by the flow's key as the client sends it. NAT has one key for both families, IPv4 addresses mapped. */
struct nat_flow {
	__u32 generation;
	__u16 backend;
	__be16 port; /* the balancer's */
	__u64 last;
	__u32 id;    /* of the service */
	__u32 zero;
};
_Static_size(struct nat_flow, 24);

/* 72 bytes, by the flow's key as the backend sends it. */
struct nat_back {
	__u64 client[2];
	__u64 vip[2];
	__be16 client_port;
	__be16 vip_port;
	__u32 backend; /* index in backends */
	__u32 id;      /* of the service */
	__u32 ifindex; /* the client's packets come from there, and answers go back the same way, */
	__u8 client_mac[6];
	__u8 our_mac[6]; /* by the router that sent them */
	__u32 generation;
	__u64 last;
};
_Static_size(struct nat_back, 72);

/* 40 bytes a CPU. Those of a service are the sums of its backends'. */
struct backend_counters {
	__u64 packets; /* sent to it, ICMP errors and fragments among them */
	__u64 bytes;   /* of these, from the Ethernet header on, as they came */
	__u64 flows;   /* TCP SYNs without ACK among them; NAT: flows */
	__u64 unresolved; /* packets that met no next hop */
	__u64 back;    /* NAT: packets from it */
};

/* 56 bytes a CPU. */
struct service_counters {
	__u64 lookups;       /* packets whose flow was looked up */
	__u64 found;         /* of these, remembered and alive */
	__u64 remembered;    /* flows put into flows4 or flows6 */
	__u64 half_open;     /* flows put into half_open4 or half_open6 */
	__u64 promoted;      /* of these, moved on to the others */
	__u64 insert_failed; /* flows that found no room; their packets followed the table */
	__u64 dropped;       /* packets for the service that were dropped, for whatever reason */
};

/* Index in events. What follows EVENT_DROPS is a dropped packet each. */
enum event {
	EVENT_ECHO,            /* echo requests answered */
	EVENT_ICMP_ERROR,      /* ICMP errors sent on to the backend of the flow they are about */
	EVENT_FRAGMENT,        /* fragments sent on, first ones included */
	EVENT_TOO_BIG_SENT,    /* ICMP "fragmentation needed" and ICMPv6 "packet too big" sent */
	EVENT_TTL_SENT,        /* ICMP "time exceeded" sent */
	EVENT_UNRESOLVED,      /* no next hop known: handed to the stack */
	EVENT_NAT_BACK,        /* packets from backends, translated back */
	EVENT_NAT_ICMP_BACK,   /* ICMP errors from the backends' side, translated back */
	EVENT_SAMPLE_LOST,     /* no room for a sample */
	EVENT_DROPS,
	DROP_NO_BACKEND = EVENT_DROPS, /* nobody serves the slot */
	DROP_NO_TABLE,         /* the service's table is not there, or smaller than it should be */
	DROP_TOO_BIG,          /* does not fit the way to the backend */
	DROP_TTL,              /* TTL or hop limit used up */
	DROP_FRAGMENT_FIRST,   /* a fragment that came before the first one of its packet */
	DROP_MALFORMED,        /* cut short, or with lengths that contradict each other */
	DROP_EXTENSION,        /* an IPv6 extension header that is unknown, or too many of them */
	DROP_ICMP_UNMATCHED,   /* an ICMP error about no service of ours */
	DROP_UNREACHABLE,      /* no next hop, and nothing the stack could do about it (l2) */
	DROP_NO_INTERFACE,     /* the interface is not in the device map */
	DROP_HEADROOM,         /* no room for the outer headers, the driver's fault */
	DROP_NAT_FAMILY,       /* NAT between IPv4 and IPv6 */
	DROP_NAT_PORT,         /* no port left */
	DROP_RATE,             /* an ICMP answer beyond the rate; counted beside the reason for it */
	EVENT_MAX,
};

/* Samples: before (0) and after (1) forwarding. */
#define SAMPLE_BYTES 256
struct sample {
	__u64 time;    /* ns of CLOCK_MONOTONIC */
	__u32 service; /* id */
	__u32 backend; /* index in backends; ~0 before the choice */
	__u32 length;  /* of the packet */
	__u32 captured;
	__u32 ifindex; /* it came from */
	__u8 after;
	__u8 action;   /* XDP's, after */
	__u16 zero;
	__u8 bytes[SAMPLE_BYTES];
};

/* Takes no room; makes types known to what generates the Go ones. */
union named {
	struct table_head table_head;
	struct table_chunk table_chunk;
	struct sample sample;
	enum event event;
	enum track track;
	enum hash_policy hash_policy;
	enum service_flag service_flag;
	enum forwarding forwarding;
	enum backend_flag backend_flag;
};

/* 16 bytes a CPU: a bucket of tokens for ICMP answers. */
struct limit {
	__u64 tokens; /* in ns of icmp_interval */
	__u64 last;   /* ns: when it was filled */
	union named named[0];
};

/* max_entries of all that follow are defaults; the loader sets them. */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct service_key4);
	__type(value, struct service);
} services4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct service_key6);
	__type(value, struct service);
} services6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_ARRAY);
		__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
		__uint(max_entries, 2);
		__uint(key_size, 4);
		__uint(value_size, sizeof(struct table_chunk));
	});
} tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* which aligns it with the cache lines, too */
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct backend);
} backends SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1048576);
	__type(key, struct flow_key4);
	__type(value, struct flow);
} flows4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1048576);
	__type(key, struct flow_key6);
	__type(value, struct flow);
} flows6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct flow_key4);
	__type(value, struct flow);
} half_open4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct flow_key6);
	__type(value, struct flow);
} half_open6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct fragment_key);
	__type(value, struct fragment);
} fragments SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 262144);
	__type(key, struct flow_key6);
	__type(value, struct nat_flow);
} nat_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 262144);
	__type(key, struct flow_key6);
	__type(value, struct nat_back);
} nat_backs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4096); /* as backends */
	__type(key, __u32);
	__type(value, struct backend_counters);
} backend_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct service_counters);
} service_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EVENT_MAX);
	__type(key, __u32);
	__type(value, __u64);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct limit);
} limits SEC(".maps");

struct devmap_value {
	__u32 ifindex;
	__u32 prog; /* an fd when it is written; 0 for none */
};

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 64);
	__type(key, __u32); /* ifindex */
	__type(value, struct devmap_value);
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} samples SEC(".maps");

/* Load-time switches: what is off is not in the program that the verifier leaves. */
struct switches {
	__u8 ipv4;
	__u8 ipv6;
	__u8 vlan;
	__u8 fragments;
	__u8 icmp;      /* echo and errors */
	__u8 ipip;
	__u8 gue;
	__u8 l2;
	__u8 nat;
	__u8 source_ip; /* some service hashes by source_ip */
	__u8 classes;   /* some service has, or may come to have, more than one array */
	__u8 tracking;  /* some service tracks */
	__u8 redirect;  /* some backend is on another interface than clients */
	__u8 capture;   /* needs Linux 5.18 */
	__u8 set_clock; /* tests: the time is clock_now */
	__u8 zero;
	__u16 nat_port_min; /* ports of the balancer that NAT uses, host byte order */
	__u16 nat_port_max;
	__u32 icmp_interval; /* ns between two ICMP answers of a CPU, in the long run */
	__u32 icmp_burst;
};

const volatile struct switches config = {
	.ipv4 = 1, .ipv6 = 1, .vlan = 1, .fragments = 1, .icmp = 1, .ipip = 1, .gue = 1, .l2 = 1, .nat = 1,
	.source_ip = 1, .classes = 1, .tracking = 1, .redirect = 1,
	.nat_port_min = 32768, .nat_port_max = 60999,
	.icmp_interval = 1000000, .icmp_burst = 100,
};

volatile __u64 clock_now = 0;
