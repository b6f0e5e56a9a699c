// Package bpf holds the XDP program, the layout of its maps, and what it takes
// to load it. It knows nothing of configuration, snapshots, netlink or pinning:
// a loader fills the maps.
//
// The program makes the decisions of package conntrack; both are tested against
// each other packet by packet. Its sources are C, one header a concern, dual
// BSD-2-Clause OR GPL-2.0. `make generate` compiles them with Debian's clang-19;
// the objects are committed.
//
// # Maps
//
// "Writer" is who writes a map besides the kernel. Sizes are without the
// kernel's overhead (about 64 bytes an entry in hash maps).
//
//	map             type            key                 value               writer   bytes
//	services4       hash            ServiceKey4         Service             loader   8 + 64
//	services6       hash            ServiceKey6         Service             loader   24 + 64
//	tables          array of maps   u32                 inner array         loader   8, and 64 + 4 a slot
//	backends        array, mmap     u32                 Backend             loader   64
//	flows4          LRU hash        conntrack.Key4      Flow                program  16 + 16
//	flows6          LRU hash        conntrack.Key6      Flow                program  40 + 16
//	half_open4, 6   LRU hash        as flows            Flow                program  as flows
//	fragments       LRU hash        FragmentKey         Fragment            program  40 + 24
//	nat_flows       LRU hash        conntrack.Key6      NATFlow             program  40 + 24
//	nat_backs       LRU hash        conntrack.Key6      NATBack             program  40 + 72
//	backend_counts  per-CPU array   as backends         BackendCounters     program  40 a CPU
//	service_counts  per-CPU array   Service.Id          ServiceCounters     program  56 a CPU
//	events          per-CPU array   Event               u64                 program  8 a CPU
//	limits          per-CPU array   0                   tokens              program  16 a CPU
//	devices         devmap hash     ifindex             Device              loader   8
//	samples         ring buffer                         Sample              program  256 + 32
//
// fragments and the NAT maps hold IPv4 addresses in their mapped form
// (::ffff:192.0.2.1), one key for both families: they are slow and rare, or
// slower than their keys.
//
// The loader may delete from the maps that the program writes (a sweep does),
// and zero counters of an index that it gives to another backend or service.
//
// # Services
//
// services4 and services6 have an entry for each VIP, port and protocol, and one
// with port 0 and the protocol ICMP (1) or ICMPv6 (58), flags SERVICE_VIP, for
// each address that is a VIP of any service: echo requests to it are answered,
// fragments and unknown extension headers to it are accounted for. An address
// without such an entry is not ours: its packets pass.
//
// A service names three ranges, which the loader allots and moves as it likes
// (all of them change with one write of the entry):
//
//   - arrays: the arrays of its conntrack.Steering, array i at tables[arrays+i].
//     Array 0 is the root. What is not in the view is empty.
//   - only, only_slots: set (only_slots > 0) if the view is one table and nothing
//     else: the index in tables of that table, and its number of slots.
//   - backends, members: member i of the Steering is backends[backends+i].
//
// So the owners in slots are the indices that conntrack has, unchanged: an array
// is copied word by word.
//
// # Tables
//
// An inner map of tables is an array of 64-byte chunks with the flags
// BPF_F_MMAPABLE | BPF_F_INNER_MAP and max_entries Chunks(n). Chunk 0 is a
// TableHead; slot i is word i mod 16 of chunk 1 + i/16. An inner map is written
// once, through mmap(2), before it is put into tables, and never after. Several
// indices may hold the same one.
//
// # Changes
//
// A packet looks the service up once, then walks tables, then reads a backend.
// What it may have in hand is old for as long as an RCU read section lasts.
// Every update of tables by bpf(2) returns after a grace period (the kernel does
// it for maps in maps: kernel/bpf/syscall.c, maybe_wait_bpf_programs), so that
// rewriting an unused index of tables is a barrier.
//
//  1. Backends that are new, or come back: write everything else of the entry
//     first, then an even generation that no entry of backends ever had. (A
//     counter of the loader that outlives it: each loss of the ability to serve
//     and each return takes the next number, odd or even.) Devices before
//     backends that use them.
//  2. Arrays that are new or changed: make and fill inner maps.
//  3. If one array is all that changes: update its index in tables. The packets
//     see the old one or the new one. Otherwise: put all arrays of the view,
//     the unchanged ones too, at a range of indices that is free, then update
//     the service's entry; its former range is free after the barrier.
//  4. Barrier.
//  5. Backends that cannot serve any more: write the next odd generation. Flows
//     that are remembered on them are void from here on.
//  6. Barrier. Apply may return now. Ranges and backends that nothing names are
//     free; the old inner maps go when they are closed.
//
// Two updates of services4 or services6 need a barrier between them: a deleted
// or replaced entry is reused by the next update, while a packet may still read
// it. A service that goes: delete its entries, barrier, free its ranges.
//
// A backend keeps its generation while only its next hop or MTU changes. The
// MACs are two words, each written at once (mmap, 8 bytes). If more than one
// word of an entry has to change together, clear BACKEND_RESOLVED (one word),
// barrier, write, set it again; packets in between go up the stack.
//
// The generation says all that conntrack's member does: flow and backend agree
// on an even one, or the flow is void.
//
// # Policies
//
// What no RFC or rule of conntrack settles:
//
//   - Fragments that come before the first one of their packet are dropped and
//     counted. Later ones go where the first went. A packet that is no VIP's passes.
//   - ICMP errors about a flow are steered as it is, but neither remember nor
//     refresh anything.
//   - No next hop: the packet is rewritten as for the backend, keeps its MACs and
//     goes to the stack, which can route it there, but never takes it for its own
//     (a VIP on lo would answer live flows with RSTs). l2, which rewrites nothing,
//     drops it. Both are counted, also for the backend.
//   - TTL or hop limit 1 is used up, as in a router, in every mode.
//   - What does not fit is answered with "too big" whether or not DF is set: XDP
//     does not fragment. The quoted MTU is that of the packet inside.
//   - ICMP errors sent take tokens, from a bucket a CPU. Echo replies take none.
//   - GUE and IP in IP set DF on an outer IPv4 header; GUE over IPv6 has a zero
//     UDP checksum (RFC 6935).
//   - NAT answers go back to the MAC and interface that the client's last packet
//     came from. Ids of fragments are not translated.
//   - VLAN tags stay as they came: backend and client side share the VLAN.
//   - An IPv6 packet whose addresses are IPv4-mapped is hashed as IPv6, where
//     conntrack.Hash5Tuple unmaps it. No network carries one (RFC 4291 section
//     2.5.5.2 has none on the wire).
//   - A NAT flow is remembered from its first packet, in nat_flows; there is no
//     half-open table there, so that a flood of SYNs can evict NAT flows.
//
// # Kernel
//
// Linux 5.15 by the features used; tested on 6.18. The youngest: pointers to
// memory as arguments of global functions (5.13), bpf_ktime_get_coarse_ns (5.11),
// BPF_F_INNER_MAP (5.10). Switches.Capture takes bpf_xdp_load_bytes (5.18).
// Little-endian machines.
//
// # Sweeping
//
// The loader's Sweep reads flows4, flows6, half_open4, half_open6 and nat_flows
// (a NAT flow is a remembered one); the hashes that conntrack.Remembered has follow from the key
// and the service. Flow.Last is CLOCK_MONOTONIC, read from the coarse clock: it
// lags by a tick (1 to 10 ms).
package bpf
