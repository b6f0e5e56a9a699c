// Package stats keeps counters, gauges, histograms and texts under Envoy's dotted names, tells which
// part of a name is a tag, and lets scopes come and go with the clusters and listeners they describe.
// It knows nothing of HTTP or of output formats.
package stats
