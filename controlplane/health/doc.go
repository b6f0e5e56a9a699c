// Package health finds out which hosts of a cluster can serve: by active checks (Checker: TCP, HTTP
// and gRPC) and by watching how connects end (Detector: outlier detection). It reports health flags
// of hosts as they change, with Envoy's rules, counters and event log lines.
//
// It owns timing and probing. It must not know where hosts come from, what tables are made of them,
// or how a data plane carries connections.
package health
