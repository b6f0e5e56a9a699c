package accesslog

import (
	"net/netip"
	"time"
)

// Flag is an Envoy response flag that L4 proxies set; a StreamInfo holds a set of them.
type Flag uint16

// Flags, in the order in which they are printed.
const (
	FlagUpstreamConnectionFailure Flag = 1 << iota // UF
	FlagUpstreamOverflow                           // UO
	FlagNoHealthyUpstream                          // UH
	FlagNoRoute                                    // NR
	FlagUpstreamRetryLimit                         // URX
	FlagUpstreamRemoteReset                        // UR
	FlagDurationTimeout                            // DT
	FlagNoCluster                                  // NC
	FlagOverloadManager                            // OM
)

// Type tells what event a line is about (%ACCESS_LOG_TYPE%).
type Type uint8

// Line types.
const (
	TCPConnectionStart Type = iota
	TCPUpstreamConnected
	TCPPeriodic
	TCPConnectionEnd
	UDPSessionStart
	UDPUpstreamConnected
	UDPPeriodic
	UDPSessionEnd
	NotSet
)

// Info is what a line may tell of a connection or session. Zero values print as missing ("-").
type Info struct {
	Type         Type
	ConnectionID uint64
	Start        time.Time
	// Duration of the connection so far; valid for end lines and periodic ones.
	Duration time.Duration
	// BytesReceived from and BytesSent to the client.
	BytesReceived, BytesSent uint64
	// UpstreamWireReceived and UpstreamWireSent are bytes on the upstream connection, headers included.
	UpstreamWireReceived, UpstreamWireSent     uint64
	DownstreamWireReceived, DownstreamWireSent uint64

	// Remote and Local follow a PROXY header, Direct and DirectLocal are the socket's own.
	Remote, Local, Direct, DirectLocal netip.AddrPort

	UpstreamHost           netip.AddrPort // the picked host, also when the connect failed
	UpstreamHostName       string
	UpstreamRemote         netip.AddrPort // set once connected
	UpstreamLocal          netip.AddrPort
	UpstreamCluster        string
	UpstreamConnectionID   uint64
	UpstreamAttempts       uint32
	UpstreamHostsAttempted []netip.AddrPort
	UpstreamFailure        string    // UPSTREAM_TRANSPORT_FAILURE_REASON
	UpstreamConnected      time.Time // when the connect succeeded
	Flags                  Flag
	// ResponseCodeDetails, ConnectionTermination: texts or "".
	ResponseCodeDetails   string
	ConnectionTermination string
	// LocalClose texts of both sides (DOWNSTREAM_LOCAL_CLOSE_REASON and the like), "" for none.
	DownstreamLocalClose, UpstreamLocalClose       string
	DownstreamDetectedClose, UpstreamDetectedClose string
	ServerName                                     string
	FilterChainName                                string

	// Metadata for DYNAMIC_METADATA: namespace -> key -> string, number or bool.
	Metadata map[string]map[string]any
}
