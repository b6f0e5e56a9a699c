// Package xds fetches listeners, clusters and endpoints from where a bootstrap says they come from: a
// management server over gRPC (state of the world or delta, aggregated or a stream for each type) or
// files. It owns the protocol, with its versions, nonces, refusals, pauses and reconnects, and knows
// nothing of what becomes of a resource: a Watcher takes it and says whether it is good.
//
// A Client is not safe for concurrent use. All of it belongs to one goroutine, its owner's, on which
// Deps.Post runs what other goroutines have to say. Resources are parsed and checked before that, on
// the goroutine that received them. Source: Envoy's "xDS REST and gRPC protocol".
package xds
