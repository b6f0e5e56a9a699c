// Package dataplane holds what a control plane hands to a data plane: immutable Snapshots of
// listeners and clusters, the long-lived per-host and per-cluster state they point to, and the
// Dataplane interface that applies them. It knows nothing of Envoy's protobufs, of discovery or of
// health checking, and nothing of how packets or sockets are handled (see the packages below it).
package dataplane
