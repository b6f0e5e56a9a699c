// Package dns finds the hosts of STRICT_DNS and LOGICAL_DNS clusters: a Resolver asks for the
// addresses of a name, a Watcher keeps asking for all names of a cluster and tells what changed.
//
// It owns names, families, refresh times and their counters. It must not know health or tables: what
// becomes of a host that vanished from DNS is decided elsewhere.
package dns
