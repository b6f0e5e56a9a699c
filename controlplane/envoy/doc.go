// Package envoy reads Envoy configuration: bootstrap files and the resources of xDS, by Envoy's own
// protobuf types and validators, into package model. It owns what is accepted, what is refused and
// what is only warned about; every field is in a table (see fields.go), and a field in none is
// refused. Errors carry file, line and field path. The package opens no sockets and resolves no names.
package envoy
