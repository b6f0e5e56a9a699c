// Package controlplane is the loop that keeps a data plane in step with the configuration: sources
// (files, DNS) yield desired state, desired state and health yield immutable Snapshots, and a Dataplane
// applies them. All state belongs to one goroutine; others hand it events. What the admin API shows is
// read from published, immutable views, so that it answers however busy the loop is.
package controlplane
