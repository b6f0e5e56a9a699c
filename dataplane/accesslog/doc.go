// Package accesslog turns Envoy access log formats into lines: it compiles text and JSON formats
// with Envoy's command operators, evaluates them over an Info, and writes lines to buffered files,
// stdout or stderr. It knows nothing of sockets.
package accesslog
