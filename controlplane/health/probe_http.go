package health

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/guideway/guideway/controlplane/model"
)

// userAgent is what backends know Envoy's checks by.
const userAgent = "Envoy/HC"

// receiveLimit is how much of a body is searched for what is to be received, in bytes (Envoy's
// response_buffer_size).
const receiveLimit = 1024

// responseLimit bounds what one response may take, in bytes; a longer one is a failure.
const responseLimit = 4 << 20

// header is a request header by its lower-case name.
type header struct{ name, value string }

// httpHeaders are the headers of a check: host first, then user-agent, with what the configuration
// removes and then adds.
func httpHeaders(host string, add []model.Header, remove []string) []header {
	hs := []header{{"host", host}, {"user-agent", userAgent}}
	for _, name := range remove {
		for i := len(hs) - 1; i > 0; i-- { // the host stays: there is no HTTP/1.1 without
			if strings.EqualFold(hs[i].name, name) {
				hs = append(hs[:i], hs[i+1:]...)
			}
		}
	}
	for _, a := range add {
		h := header{strings.ToLower(a.Name), a.Value}
		if h.name == ":authority" {
			h.name = "host"
		}
		if !a.Append || h.name == "host" {
			at := -1
			for i := len(hs) - 1; i >= 0; i-- {
				if hs[i].name != h.name {
					continue
				}
				if at >= 0 {
					hs = append(hs[:at], hs[at+1:]...)
				}
				at = i
			}
			if at >= 0 {
				hs[at] = h
				continue
			}
		}
		hs = append(hs, h)
	}
	return hs
}

// hostname is what a check calls a target: the endpoint's own word, else the checker's, else the
// cluster's name.
func hostname(t *Target, configured, cluster string) string {
	switch {
	case t.Hostname != "":
		return t.Hostname
	case configured != "":
		return configured
	}
	return cluster
}

// judge decides by status, headers and body.
func judge(c *model.HTTPCheck, status int, h http.Header, body []byte) outcome {
	if len(c.Receive) > 0 && !newMatcher(c.Receive).write(body) {
		return refused(status, h)
	}
	if !expected(c, status) {
		o := refused(status, h)
		o.retriable = within(c.Retriable, status)
		return o
	}
	return outcome{ok: true, degraded: h.Values("x-envoy-degraded") != nil}
}

func refused(status int, h http.Header) outcome {
	return outcome{kind: failedActive, status: status, excluded: h.Values("x-envoy-immediate-health-check-fail") != nil}
}

func expected(c *model.HTTPCheck, status int) bool {
	if len(c.Expected) == 0 {
		return status == http.StatusOK
	}
	return within(c.Expected, status)
}

func within(ranges []model.StatusRange, status int) bool {
	for _, r := range ranges {
		if int64(status) >= r.Start && int64(status) < r.End {
			return true
		}
	}
	return false
}

// method of a check; GET if not given.
func method(c *model.HTTPCheck) string {
	if c.Method == "" {
		return http.MethodGet
	}
	return c.Method
}

// httpProber speaks HTTP/1.1 on connections of its own: http.Transport would keep two goroutines for
// each idle one, and spell headers its way.
type httpProber struct {
	cluster string
	check   *model.HTTPCheck
	dial    *dialer
	reuse   bool
}

func newHTTPProber(cfg *Config, d *dialer) *httpProber {
	return &httpProber{cluster: cfg.Cluster, check: cfg.Check.HTTP, dial: d, reuse: cfg.Check.ReuseConnection}
}

func (p *httpProber) open(t *Target) probe {
	m := method(p.check)
	var b bytes.Buffer
	b.WriteString(m + " " + p.check.Path + " HTTP/1.1\r\n")
	for _, h := range httpHeaders(hostname(t, p.check.Host, p.cluster), p.check.AddHeaders, p.check.RemoveHeaders) {
		b.WriteString(h.name + ": " + h.value + "\r\n")
	}
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodDelete, http.MethodTrace:
	default: // a method that has a body has to say that there is none
		b.WriteString("content-length: 0\r\n")
	}
	b.WriteString("\r\n")
	return &httpProbe{prober: p, target: t, request: b.Bytes(), method: &http.Request{Method: m}}
}

type httpProbe struct {
	prober  *httpProber
	target  *Target
	request []byte
	method  *http.Request // for http.ReadResponse, which asks how it was asked
	conn    net.Conn
	limit   *io.LimitedReader // of conn
	in      *bufio.Reader     // of limit
}

func (p *httpProbe) close() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}

func (p *httpProbe) run(ctx context.Context) outcome {
	if p.conn != nil && lookIdle(p.conn) != idleQuiet {
		p.close() // closed since, or out of step
	}
	request := p.request
	if p.conn == nil {
		c, err := p.prober.dial.dial(ctx, p.target.Check)
		if err != nil {
			return broken(ctx, err)
		}
		p.conn, p.limit = c, &io.LimitedReader{R: c}
		p.in = bufio.NewReaderSize(p.limit, 2048)
		request = append(proxyHeader(p.prober.dial.proxy, c), request...)
	}
	release := bound(ctx, p.conn)
	o, keep, err := p.exchange(request)
	if !release() || err != nil || !keep || !p.prober.reuse {
		p.close()
	}
	if err != nil {
		return broken(ctx, err)
	}
	return o
}

// exchange sends the request, reads the response to its end and judges it. keep tells whether the
// connection may carry another one.
func (p *httpProbe) exchange(request []byte) (o outcome, keep bool, err error) {
	if _, err := p.conn.Write(request); err != nil {
		return o, false, err
	}
	p.limit.N = responseLimit
	resp, err := http.ReadResponse(p.in, p.method)
	for err == nil && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp, err = http.ReadResponse(p.in, p.method)
	}
	if err != nil {
		return o, false, err
	}
	body, err := readBody(resp.Body)
	if err != nil {
		return o, false, err
	}
	o = judge(p.prober.check, resp.StatusCode, resp.Header, body)
	return o, !resp.Close && p.in.Buffered() == 0, nil
}

// readBody reads a body to its end and returns its beginning.
func readBody(r io.ReadCloser) ([]byte, error) {
	defer r.Close()
	body, err := io.ReadAll(io.LimitReader(r, receiveLimit))
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	return body, err
}
