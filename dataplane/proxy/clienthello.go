package proxy

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/guideway/guideway/dataplane/stats"
)

// clientHello is what a TLS ClientHello (RFC 8446 4.1.2) tells in the clear.
type clientHello struct {
	serverName string // lower case, "" if none
	protocols  []string
}

var (
	errNotTLS       = errors.New("no TLS ClientHello")
	errHelloGoesOn  = errors.New("the ClientHello goes on")
	errHelloTooLong = errors.New("the ClientHello is too long")
)

// maxClientHello is Envoy's bound for a ClientHello, in bytes.
const maxClientHello = 16 << 10

// parseClientHello reads the ClientHello at the begin of b, which may be spread over several TLS records.
func parseClientHello(b []byte) (clientHello, error) {
	var message []byte
	own := false // message is a copy, since it comes in parts
	for {
		if len(b) == 0 {
			break
		}
		if b[0] != 22 { // handshake
			return clientHello{}, errNotTLS
		}
		if len(b) >= 2 && b[1] != 3 {
			return clientHello{}, errNotTLS
		}
		if len(b) < 5 {
			break
		}
		n := int(binary.BigEndian.Uint16(b[3:5]))
		if n == 0 || n > 1<<14+256 {
			return clientHello{}, errNotTLS
		}
		part := b[5:min(len(b), 5+n)]
		switch {
		case message == nil:
			message = part // mostly all of it
		case !own:
			message, own = append(make([]byte, 0, maxClientHello), message...), true
			fallthrough
		default:
			message = append(message, part...)
		}
		if len(message) >= 1 && message[0] != 1 { // client_hello
			return clientHello{}, errNotTLS
		}
		if len(message) >= 4 {
			size := int(message[1])<<16 | int(message[2])<<8 | int(message[3])
			if size > maxClientHello {
				return clientHello{}, errHelloTooLong
			}
			if len(message) >= 4+size {
				return parseHelloBody(message[4 : 4+size])
			}
		}
		if len(b) < 5+n {
			break
		}
		b = b[5+n:]
	}
	return clientHello{}, errHelloGoesOn
}

// reader takes fields off a message; a field that is too long makes it fail for good.
type reader struct {
	b    []byte
	fail bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.fail, r.b = true, nil
		return nil
	}
	x := r.b[:n]
	r.b = r.b[n:]
	return x
}

func (r *reader) number(bytes int) int {
	n := 0
	for _, x := range r.take(bytes) {
		n = n<<8 | int(x)
	}
	return n
}

// vector takes a field with a length of so many bytes before it.
func (r *reader) vector(lengthBytes int) *reader {
	return &reader{b: r.take(r.number(lengthBytes)), fail: r.fail}
}

func parseHelloBody(b []byte) (h clientHello, err error) {
	r := &reader{b: b}
	r.take(2 + 32)
	r.vector(1) // session
	r.vector(2) // cipher suites
	r.vector(1) // compression
	if r.fail {
		return h, errNotTLS
	}
	if len(r.b) == 0 {
		return h, nil // no extensions
	}
	ext := r.vector(2)
	for len(ext.b) > 0 {
		kind := ext.number(2)
		body := ext.vector(2)
		switch kind {
		case 0: // server_name, RFC 6066
			names := body.vector(2)
			for len(names.b) > 0 {
				t := names.number(1)
				name := names.vector(2)
				if t == 0 && h.serverName == "" && !names.fail {
					h.serverName = strings.ToLower(string(name.b))
				}
			}
		case 16: // application_layer_protocol_negotiation, RFC 7301
			list := body.vector(2)
			for len(list.b) > 0 {
				p := list.vector(1)
				if len(p.b) > 0 {
					h.protocols = append(h.protocols, string(p.b))
				}
			}
		}
	}
	if r.fail || ext.fail {
		return clientHello{}, errNotTLS
	}
	return h, nil
}

// tlsInspector is the listener filter that reads server name and protocols without terminating TLS.
type tlsInspector struct {
	TLSFound     *stats.Counter `stat:"tls_found"`
	TLSNotFound  *stats.Counter `stat:"tls_not_found"`
	SNIFound     *stats.Counter `stat:"sni_found"`
	SNINotFound  *stats.Counter `stat:"sni_not_found"`
	ALPNFound    *stats.Counter `stat:"alpn_found"`
	ALPNNotFound *stats.Counter `stat:"alpn_not_found"`
	TooLarge     *stats.Counter `stat:"client_hello_too_large"`
}

func newTLSInspector(store *stats.Store) (*tlsInspector, *stats.Scope) {
	f, scope := &tlsInspector{}, store.Scope("tls_inspector.")
	stats.Bind(scope, f)
	return f, scope
}

// run implements listenerFilter.
func (f *tlsInspector) run(c *conn, b []byte) (take int, v verdict) {
	h, err := parseClientHello(b)
	switch err {
	case nil:
	case errHelloGoesOn:
		if len(b) < maxClientHello {
			return 0, filterMore
		}
		fallthrough
	case errHelloTooLong:
		f.TooLarge.Inc()
		return 0, filterRefuse
	default:
		f.TLSNotFound.Inc()
		return 0, filterDone
	}
	f.TLSFound.Inc()
	c.x.transport = "tls"
	c.x.serverName, c.x.protocols = h.serverName, h.protocols
	if h.serverName != "" {
		f.SNIFound.Inc()
	} else {
		f.SNINotFound.Inc()
	}
	if len(h.protocols) > 0 {
		f.ALPNFound.Inc()
	} else {
		f.ALPNNotFound.Inc()
	}
	return 0, filterDone
}
