// Package logging is the process log: a slog handler that prints lines in Envoy's form, with a level
// for each component that can be changed while running, on stderr or a file that can be reopened.
package logging
