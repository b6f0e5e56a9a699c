package health

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
)

// http2Prober speaks HTTP/2 with prior knowledge, for HTTP checks that ask for it and for gRPC. A
// kept connection costs a goroutine that reads it, as settings and pings have to be answered.
//
// gRPC goes by it too, not by grpc.ClientConn: that connects, backs off and retries on its own time,
// cannot tell a status from the host from one of its own making, and puts its name to user-agent.
type http2Prober struct {
	transport *http.Transport
	reuse     bool
	// request makes a new request for a target, answer judges the response.
	request func(ctx context.Context, t *Target) (*http.Request, error)
	answer  func(*http.Response) (outcome, error)
}

func newTransport(d *dialer) *http.Transport {
	t := &http.Transport{
		DisableCompression: true,
		Protocols:          new(http.Protocols),
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := d.net.DialContext(ctx, network, addr)
			if err != nil || d.proxy == 0 {
				return c, err
			}
			if _, err := c.Write(proxyHeader(d.proxy, c)); err != nil {
				c.Close()
				return nil, err
			}
			return c, nil
		},
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

// newHTTP2Prober is the checker for http_health_check with codec_client_type HTTP2.
func newHTTP2Prober(cfg *Config, d *dialer) *http2Prober {
	check := cfg.Check.HTTP
	return &http2Prober{
		transport: newTransport(d),
		reuse:     cfg.Check.ReuseConnection,
		request: func(ctx context.Context, t *Target) (*http.Request, error) {
			r, err := http.NewRequestWithContext(ctx, method(check), "http://"+t.Check.String()+check.Path, nil)
			if err != nil {
				return nil, err
			}
			setHeaders(r, httpHeaders(hostname(t, check.Host, cfg.Cluster), check.AddHeaders, check.RemoveHeaders))
			return r, nil
		},
		answer: func(resp *http.Response) (outcome, error) {
			body, err := readBody(resp.Body)
			if err != nil {
				return outcome{}, err
			}
			return judge(check, resp.StatusCode, resp.Header, body), nil
		},
	}
}

// newGRPCProber is the checker for grpc_health_check: grpc.health.v1.Health/Check.
func newGRPCProber(cfg *Config, d *dialer) *http2Prober {
	check := cfg.Check.GRPC
	timeout := strconv.FormatInt(cfg.Check.Timeout.Milliseconds(), 10) + "m"
	return &http2Prober{
		transport: newTransport(d),
		reuse:     cfg.Check.ReuseConnection,
		request: func(ctx context.Context, t *Target) (*http.Request, error) {
			frame, err := grpcFrame(&healthpb.HealthCheckRequest{Service: check.Service})
			if err != nil {
				return nil, err
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+t.Check.String()+healthpb.Health_Check_FullMethodName, bytes.NewReader(frame))
			if err != nil {
				return nil, err
			}
			setHeaders(r, httpHeaders(hostname(t, check.Authority, cfg.Cluster), check.Metadata, nil))
			r.Header.Set("te", "trailers")
			r.Header.Set("content-type", "application/grpc")
			r.Header.Set("grpc-timeout", timeout)
			return r, nil
		},
		answer: grpcAnswer,
	}
}

func setHeaders(r *http.Request, hs []header) {
	r.Header.Set("User-Agent", "") // without any, net/http would send its own
	for _, h := range hs {
		switch {
		case h.name == "host":
			r.Host = h.value
		case h.name == "user-agent":
			r.Header.Set("User-Agent", h.value)
		default:
			r.Header.Add(h.name, h.value)
		}
	}
}

// grpcFrame is a length-prefixed message, not compressed (gRPC over HTTP/2, Length-Prefixed-Message).
func grpcFrame(m proto.Message) ([]byte, error) {
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...), nil
}

// grpcAnswer judges a response: only status OK with one message SERVING is a success. Whatever the
// host answered else, it answered, so it decides alone.
func grpcAnswer(resp *http.Response) (outcome, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	resp.Body.Close()
	if err != nil {
		return outcome{}, err
	}
	status := resp.Trailer.Get("Grpc-Status")
	if status == "" {
		status = resp.Header.Get("Grpc-Status") // an answer of trailers only
	}
	if resp.StatusCode != http.StatusOK || status != strconv.Itoa(int(codes.OK)) ||
		!strings.HasPrefix(resp.Header.Get("Content-Type"), "application/grpc") || len(body) < 5 || body[0] != 0 ||
		int(binary.BigEndian.Uint32(body[1:])) != len(body)-5 {
		return failed(failedActive), nil
	}
	var m healthpb.HealthCheckResponse
	if proto.Unmarshal(body[5:], &m) != nil || m.Status != healthpb.HealthCheckResponse_SERVING {
		return failed(failedActive), nil
	}
	return outcome{ok: true}, nil
}

func (p *http2Prober) open(t *Target) probe { return &http2Probe{prober: p, target: t} }

type http2Probe struct {
	prober *http2Prober
	target *Target
	conn   *http.ClientConn
}

func (p *http2Probe) close() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}

func (p *http2Probe) run(ctx context.Context) outcome {
	if p.conn != nil && (p.conn.Err() != nil || p.conn.Available() == 0) {
		p.close() // gone, or going away
	}
	if p.conn == nil {
		c, err := p.prober.transport.NewClientConn(ctx, "http", p.target.Check.String())
		if err != nil {
			return broken(ctx, err)
		}
		p.conn = c
	}
	o, err := p.exchange(ctx)
	if err != nil || !p.prober.reuse {
		p.close()
	}
	if err != nil {
		return broken(ctx, err)
	}
	return o
}

func (p *http2Probe) exchange(ctx context.Context) (outcome, error) {
	req, err := p.prober.request(ctx, p.target)
	if err != nil {
		return outcome{}, err
	}
	resp, err := p.conn.RoundTrip(req)
	if err != nil {
		return outcome{}, err
	}
	return p.prober.answer(resp)
}
