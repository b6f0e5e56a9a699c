// Package model is Guideway's own picture of a configuration: what Envoy's protobufs said, checked,
// with defaults filled in and only the parts that are acted on. Sources (bootstrap files, xDS) make
// it; the control loop turns it into Snapshots. It knows neither protobufs' wire forms nor data planes'
// inner life.
package model
