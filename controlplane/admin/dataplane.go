package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/guideway/guideway/dataplane"
)

// services lists the listeners with what the data plane knows of them.
func (s *Server) services(w http.ResponseWriter, _ *http.Request) {
	list := []dataplane.ServiceStatus{}
	if s.config.Inspector != nil {
		list = s.config.Inspector.Services()
	}
	writeIndented(w, list)
}

// flows writes the remembered flows as JSON lines.
func (s *Server) flows(w http.ResponseWriter, r *http.Request) {
	limit, listener := 0, r.URL.Query().Get("listener")
	if v := r.URL.Query().Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			write(w, http.StatusBadRequest, plainText, "limit must be a number\n")
			return
		}
		limit = n
	}
	w.Header().Set("Content-Type", "application/jsonl")
	if s.config.Inspector == nil {
		return
	}
	out := json.NewEncoder(w)
	n := 0
	err := s.config.Inspector.Flows(r.Context(), func(f dataplane.FlowStatus) bool {
		if listener != "" && f.Listener != listener {
			return true
		}
		n++
		return out.Encode(f) == nil && (limit == 0 || n < limit)
	})
	if err != nil {
		if n == 0 {
			write(w, http.StatusInternalServerError, plainText, err.Error()+"\n")
			return
		}
		s.config.Log.Error("the list of flows was cut short", "reason", err)
	}
}

// maxCapture bounds a capture: it costs every packet of the listener.
const maxCapture = 10 * time.Minute

// capture streams a listener's packets as pcap-ng.
func (s *Server) capture(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	number := func(name string, fallback int) (int, bool) {
		v := q.Get(name)
		if v == "" {
			return fallback, true
		}
		n, err := strconv.Atoi(v)
		return n, err == nil && n >= 0
	}
	seconds, ok1 := number("seconds", 10)
	packets, ok2 := number("packets", 0)
	every, ok3 := number("every", 1)
	if !ok1 || !ok2 || !ok3 || q.Get("listener") == "" {
		write(w, http.StatusBadRequest, plainText, "usage: /guideway/capture?listener=NAME&seconds=10&packets=0&every=1\n")
		return
	}
	if s.config.Inspector == nil {
		write(w, http.StatusNotImplemented, plainText, "no data plane to capture from\n")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), min(time.Duration(seconds)*time.Second, maxCapture))
	defer cancel()
	body := &lateHeader{ResponseWriter: w}
	if err := s.config.Inspector.Capture(ctx, q.Get("listener"), uint32(every), packets, body); err != nil {
		if !body.begun {
			write(w, http.StatusConflict, plainText, err.Error()+"\n")
			return
		}
		s.config.Log.Error("a capture was cut short", "reason", err)
	}
}

// lateHeader says what the body is once there is some, and sends it on at once.
type lateHeader struct {
	http.ResponseWriter
	begun bool
}

func (l *lateHeader) Write(b []byte) (int, error) {
	if !l.begun {
		l.begun = true
		l.Header().Set("Content-Type", "application/x-pcapng")
	}
	n, err := l.ResponseWriter.Write(b)
	if err == nil {
		err = http.NewResponseController(l.ResponseWriter).Flush()
	}
	return n, err
}
