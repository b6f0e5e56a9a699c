package testbed

import "fmt"

// Message is a protobuf message as JSON has it, for building configurations.
type Message = map[string]any

// The addresses of the recordings.
const (
	ListenPort = 10000
	AdminPort  = 9901
)

// Bootstrap is a configuration with the admin address of the recordings and these listeners and clusters.
func Bootstrap(listeners, clusters []any) Message {
	return Message{
		"admin":            Message{"address": SocketAddress("127.0.0.1", AdminPort)},
		"static_resources": Message{"listeners": listeners, "clusters": clusters},
	}
}

// SocketAddress is a TCP address.
func SocketAddress(ip string, port int) Message {
	return Message{"socket_address": Message{"address": ip, "port_value": port}}
}

// UDPAddress is a UDP address.
func UDPAddress(ip string, port int) Message {
	return Message{"socket_address": Message{"protocol": "UDP", "address": ip, "port_value": port}}
}

// Cluster is a STATIC cluster of hosts on 127.0.0.1.
func Cluster(name string, ports ...int) Message {
	hosts := []any{}
	for _, p := range ports {
		hosts = append(hosts, Message{"endpoint": Message{"address": SocketAddress("127.0.0.1", p)}})
	}
	return Message{
		"name": name, "type": "STATIC", "connect_timeout": "1s",
		"load_assignment": Message{
			"cluster_name": name,
			"endpoints":    []any{Message{"lb_endpoints": hosts}},
		},
	}
}

// Typed is an extension's configuration: a name and a typed_config.
func Typed(name, message string, fields Message) Message {
	return Message{"name": name, "typed_config": Merge(Message{"@type": "type.googleapis.com/" + message}, fields)}
}

// TCPProxy is the tcp_proxy filter.
func TCPProxy(statPrefix, cluster string, more ...Message) Message {
	fields := Message{"stat_prefix": statPrefix, "cluster": cluster}
	for _, m := range more {
		fields = Merge(fields, m)
	}
	return Typed("envoy.filters.network.tcp_proxy", "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", fields)
}

// UDPProxy is the udp_proxy listener filter.
func UDPProxy(statPrefix, cluster string, more ...Message) Message {
	route := Typed("route", "envoy.extensions.filters.udp.udp_proxy.v3.Route", Message{"cluster": cluster})
	fields := Message{
		"stat_prefix": statPrefix,
		"matcher":     Message{"on_no_match": Message{"action": route}},
	}
	for _, m := range more {
		fields = Merge(fields, m)
	}
	return Typed("envoy.filters.udp_listener.udp_proxy", "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig", fields)
}

// Listener is a TCP listener on 127.0.0.1 with one chain of network filters.
func Listener(name string, port int, filters ...any) Message {
	return Message{
		"name": name, "address": SocketAddress("127.0.0.1", port),
		"filter_chains": []any{Message{"filters": filters}},
	}
}

// UDPListener is a UDP listener on 127.0.0.1 with a udp_proxy.
func UDPListener(name string, port int, proxy Message) Message {
	return Message{"name": name, "address": UDPAddress("127.0.0.1", port), "listener_filters": []any{proxy}}
}

// TextLog is an access log to a file; a newline is added to the format. An empty format is the default one.
func TextLog(path, format string) Message {
	fields := Message{"path": path}
	if format != "" {
		fields["log_format"] = Message{"text_format_source": Message{"inline_string": format + "\n"}}
	}
	return fileLog(fields)
}

// JSONLog is an access log of JSON lines to a file.
func JSONLog(path string, format any) Message {
	return fileLog(Message{"path": path, "log_format": Message{"json_format": format}})
}

func fileLog(fields Message) Message {
	return Typed("envoy.access_loggers.file", "envoy.extensions.access_loggers.file.v3.FileAccessLog", fields)
}

// Merge gives dst with the fields of src laid over it, message by message; lists are replaced.
func Merge(dst, src Message) Message {
	out := Message{}
	for k, v := range dst {
		out[k] = v
	}
	for k, v := range src {
		if inner, ok := v.(Message); ok {
			if old, ok := out[k].(Message); ok {
				v = Merge(old, inner)
			}
		}
		out[k] = v
	}
	return out
}

// ListenAddress is the address of a listener on 127.0.0.1.
func ListenAddress(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
