// Package mode runs each listener in the data plane that suits it: in XDP where its configuration allows and
// the host can, in the proxy otherwise. To a control plane it is one dataplane.Dataplane. It knows what the
// two can do, not how.
package mode
