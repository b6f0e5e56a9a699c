// Package proxy is the userspace data plane: Envoy's tcp_proxy and udp_proxy on epoll event loops, one
// loop per worker and no goroutine per connection. It needs no privileges. It owns sockets, pipes and
// sessions; it knows nothing of protobufs, discovery or health checking, and takes everything it serves
// from dataplane.Snapshots.
//
// A Server plans what a snapshot changes (plan.go), and its workers install it on their own loops
// (worker.go). A TCP connection goes through accept.go, listener_filter.go, upstream.go and relay.go, and
// ends in close.go.
package proxy
