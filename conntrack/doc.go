// Package conntrack decides which backend the packets of a flow go to while
// the tables of a service change, and remembers as few flows as that takes.
//
// A slot of a table is settled (every flow in it belongs to its owner: no flow
// is looked up), open (it has changed its owner; the flows from before stay
// with its former one and everything that is heard of is remembered) or
// excepted (only what is remembered differs from the owner). The same three
// states one level up, in classes, cover shifts of load between priorities and
// weighted clusters, and changes of a table's size.
//
// What it owns: flow keys and their hash (flow.go), who may keep the flows it
// has (serve.go), the state of a slot (slot.go), of a service (desired.go,
// steering.go, sweep.go), the flows of a packet data plane (flows.go,
// tracker.go) and the sessions of a UDP proxy (sessions.go). What it must not
// know: sockets, packets, configuration, how a table is built, what time it is.
// Times are durations since a moment that the caller chooses once, and never go
// back (CLOCK_MONOTONIC, bpf_ktime_get_ns).
//
// Sizes, measured by TestSizes on 64 bits:
//
//	slot or class             4 bytes, and 4 more while its array holds an open one
//	remembered flow, IPv4   176 bytes or less (key 16, state 32, list and index the rest)
//	remembered flow, IPv6   230 bytes or less (key 40)
//	UDP session             430 bytes or less, besides the caller's value
package conntrack
