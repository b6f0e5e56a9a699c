// Package hotrestart is the talk between a process and the one that takes its place: over a unix socket the
// newer one asks for the listening sockets, has the older one stop accepting, adds its counts to its own,
// and ends it at last. The order is Envoy's (Envoy documentation, "Hot restart"); the messages are ours, so
// only Guideways of one protocol version talk. It knows nothing of what the sockets serve.
package hotrestart
