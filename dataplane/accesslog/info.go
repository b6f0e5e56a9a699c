package accesslog

import (
	"net/netip"
	"time"
)

// Flag is an Envoy response flag that L4 proxies set; an Info holds a set of them.
type Flag uint16

// Flags, in the order in which they are printed.
const (
	FlagNoHealthyUpstream         Flag = 1 << iota // UH
	FlagUpstreamRemoteReset                        // UR
	FlagUpstreamConnectionFailure                  // UF
	FlagUpstreamOverflow                           // UO
	FlagNoRoute                                    // NR
	FlagUpstreamRetryLimit                         // URX
	FlagDurationTimeout                            // DT
	FlagNoCluster                                  // NC
	FlagOverloadManager                            // OM
)

// flagNames holds the short and the long name of each flag, by bit.
var flagNames = [...][2]string{
	{"UH", "NoHealthyUpstream"},
	{"UR", "UpstreamRemoteReset"},
	{"UF", "UpstreamConnectionFailure"},
	{"UO", "UpstreamOverflow"},
	{"NR", "NoRouteFound"},
	{"URX", "UpstreamRetryLimitExceeded"},
	{"DT", "DurationTimeout"},
	{"NC", "NoClusterFound"},
	{"OM", "OverloadManagerTerminated"},
}

// appendTo appends the short (0) or long (1) names, separated by commas, or "-" for none.
func (f Flag) appendTo(b []byte, form int) []byte {
	if f == 0 {
		return append(b, '-')
	}
	first := true
	for i := range flagNames {
		if f&(1<<i) == 0 {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, flagNames[i][form]...)
	}
	return b
}

// String is the short form as %RESPONSE_FLAGS% prints it.
func (f Flag) String() string { return string(f.appendTo(nil, 0)) }

// Type tells what event a line is about (%ACCESS_LOG_TYPE%).
type Type uint8

// Line types. NotSet is for logs of listeners: connections that no filter chain took, and
// proxy_access_log of udp_proxy.
const (
	NotSet Type = iota
	TCPConnectionStart
	TCPUpstreamConnected
	TCPPeriodic
	TCPConnectionEnd
	UDPSessionStart
	UDPUpstreamConnected
	UDPPeriodic
	UDPSessionEnd
)

var typeNames = [...]string{
	"NotSet", "TcpConnectionStart", "TcpUpstreamConnected", "TcpPeriodic", "TcpConnectionEnd",
	"UdpSessionStart", "UdpTunnelUpstreamConnected", "UdpPeriodic", "UdpSessionEnd",
}

// String is Envoy's spelling.
func (t Type) String() string { return typeNames[t] }

// tcp reports whether a line is about a TCP connection that a filter chain took.
func (t Type) tcp() bool { return t >= TCPConnectionStart && t <= TCPConnectionEnd }

// Info is what a line may tell of a connection or session. Zero values print as Envoy prints a
// missing value: "-" for texts, addresses and times, 0 for counts.
type Info struct {
	Type         Type
	ConnectionID uint64
	Start        time.Time
	// Duration of the connection so far, for every type of line.
	Duration time.Duration
	// RTT is the kernel's smoothed round trip time to the client (TCP).
	RTT time.Duration
	// Retransmitted are bytes sent again to the client (TCP).
	Retransmitted uint64
	// BytesReceived from and BytesSent to the client.
	BytesReceived, BytesSent uint64
	// UpstreamWireReceived and UpstreamWireSent are bytes on the upstream connection, headers included.
	UpstreamWireReceived, UpstreamWireSent     uint64
	DownstreamWireReceived, DownstreamWireSent uint64

	// Remote and Local follow a PROXY header, Direct and DirectLocal are the socket's own.
	Remote, Local, Direct, DirectLocal netip.AddrPort

	UpstreamHost         netip.AddrPort // the picked host, also when the connect failed
	UpstreamHostName     string         // as configured; "" prints the address
	UpstreamRemote       netip.AddrPort // set once connected
	UpstreamLocal        netip.AddrPort
	UpstreamCluster      string // "" for UDP sessions, as in Envoy
	UpstreamConnectionID uint64 // 0 until connected
	UpstreamAttempts     uint32
	// UpstreamHostsAttempted in order; UpstreamHostNamesAttempted beside it, or nil if no host has a name.
	UpstreamHostsAttempted     []netip.AddrPort
	UpstreamHostNamesAttempted []string
	UpstreamFailure            string    // UPSTREAM_TRANSPORT_FAILURE_REASON
	UpstreamConnectStart       time.Time // when the first connect of the last attempt began
	UpstreamConnected          time.Time // when the connect succeeded
	Flags                      Flag
	// ResponseCodeDetails, ConnectionTermination: texts or "".
	ResponseCodeDetails   string
	ConnectionTermination string
	// LocalClose texts of both sides (DOWNSTREAM_LOCAL_CLOSE_REASON and the like), "" for none.
	DownstreamLocalClose, UpstreamLocalClose string
	// DetectedClose is "RemoteReset" or "LocalReset"; "" prints "Normal".
	DownstreamDetectedClose, UpstreamDetectedClose string
	ServerName                                     string
	FilterChainName                                string

	// Metadata for DYNAMIC_METADATA: namespace -> key -> string, number, bool, or map[string]any.
	Metadata map[string]map[string]any
}
