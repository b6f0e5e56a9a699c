// Package xdp is the data plane that forwards packets in the driver: it loads the program of package bpf,
// attaches it, and keeps its maps what snapshots, routes and neighbours say. It decides nothing about a
// flow: the rules are conntrack's, and the program follows them.
//
// What is where:
//
//	supports.go            which listeners XDP can serve, and the reason if not
//	service.go, desired.go a listener with its backends, as conntrack wants to be told
//	publish.go, backends.go the swap protocol of bpf/doc.go, read-back included
//	maps.go, kernelmaps.go the maps, behind an interface that tests can make fail
//	adopt.go               what a former agent left in the maps
//	hops.go, netlink.go    next hops: routes and neighbours, kept reachable
//	interface.go, attach.go what is checked of an interface, and the program on it
//	pins.go, privilege.go  what outlives the agent, and what it must be allowed to do
//	sweep.go               open slots become excepted, excepted ones settle, backends end
//	counters.go, list.go   what came of it
//
// It must not know configuration files, discovery or health checks.
package xdp
