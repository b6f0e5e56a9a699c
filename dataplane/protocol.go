package dataplane

import "fmt"

// Protocol is an IP protocol number; only TCP and UDP are balanced.
type Protocol uint8

// The protocols, by their IANA numbers.
const (
	TCP Protocol = 6
	UDP Protocol = 17
)

// String returns "TCP" or "UDP", Envoy's spelling.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}
