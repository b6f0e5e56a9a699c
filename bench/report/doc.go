// Package report shows measurements: as text on a terminal, Markdown, CSV, JSON,
// and as one HTML page with plots that needs nothing else.
//
// It owns layout, number formats and plots. What it must not know: what the
// numbers mean. The same report always gives the same bytes.
package report
