package admin

import (
	"errors"
	"net/http"
	"runtime/metrics"
	"strings"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"

	"github.com/guideway/guideway/controlplane/logging"
)

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	phase := s.state.Phase()
	status := http.StatusOK
	if phase != adminv3.ServerInfo_LIVE {
		status = http.StatusServiceUnavailable
	}
	write(w, status, plainText, phase.String()+"\n")
}

func (s *Server) serverInfo(w http.ResponseWriter, _ *http.Request) {
	info := s.state.ServerInfo()
	info.State = s.state.Phase()
	writeMessage(w, info, true)
}

func (s *Server) hotRestartVersion(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, plainText, s.state.ServerInfo().GetHotRestartVersion())
}

func (s *Server) certs(w http.ResponseWriter, _ *http.Request) {
	writeMessage(w, &adminv3.Certificates{}, true)
}

func (s *Server) initDump(w http.ResponseWriter, _ *http.Request) {
	writeMessage(w, &adminv3.UnreadyTargetsDumps{}, false)
}

func (s *Server) memory(w http.ResponseWriter, _ *http.Request) {
	m := readMemory()
	writeMessage(w, &adminv3.Memory{
		Allocated:          m.allocated,
		HeapSize:           m.heap,
		PageheapUnmapped:   m.released,
		PageheapFree:       m.free,
		TotalPhysicalBytes: m.physical,
	}, true)
}

// memory of the Go runtime, in bytes.
type memory struct {
	allocated uint64 // live objects, and those not yet swept
	heap      uint64 // taken from the system for the heap and not given back
	free      uint64 // of that, unused
	released  uint64 // given back
	physical  uint64 // all that the runtime holds
}

func readMemory() memory {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/total:bytes"},
	}
	metrics.Read(samples)
	v := func(i int) uint64 { return samples[i].Value.Uint64() }
	return memory{
		allocated: v(0),
		heap:      v(0) + v(1) + v(2),
		free:      v(2),
		released:  v(3),
		physical:  v(4) - v(3),
	}
}

func (s *Server) healthcheck(fail bool) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		s.state.FailHealthCheck(fail)
		ok(w)
	}
}

func (s *Server) drainListeners(w http.ResponseWriter, r *http.Request) {
	s.state.Drain(Drain{
		InboundOnly: flag(r, "inboundonly"),
		Graceful:    flag(r, "graceful"),
		SkipExit:    flag(r, "skip_exit"),
	})
	ok(w)
}

func (s *Server) quit(w http.ResponseWriter, _ *http.Request) {
	ok(w)
	http.NewResponseController(w).Flush()
	s.state.Quit()
}

func (s *Server) reopenLogs(w http.ResponseWriter, _ *http.Request) {
	s.state.ReopenLogs()
	ok(w)
}

func (s *Server) resetCounters(w http.ResponseWriter, _ *http.Request) {
	s.config.Stats.ResetCounters()
	ok(w)
}

func (s *Server) runtime(w http.ResponseWriter, _ *http.Request) {
	rt := s.state.Runtime()
	type entry struct {
		FinalValue  string   `json:"final_value"`
		LayerValues []string `json:"layer_values"`
	}
	body := struct {
		Layers  []string         `json:"layers"`
		Entries map[string]entry `json:"entries"`
	}{Layers: rt.Layers, Entries: map[string]entry{}}
	if body.Layers == nil {
		body.Layers = []string{}
	}
	for key, values := range rt.Entries {
		e := entry{LayerValues: values}
		for _, v := range values {
			if v != "" {
				e.FinalValue = v
			}
		}
		body.Entries[key] = e
	}
	writeIndented(w, body)
}

func (s *Server) runtimeModify(w http.ResponseWriter, r *http.Request) {
	values := r.URL.Query()
	if len(values) == 0 && r.ParseForm() == nil {
		values = r.PostForm
	}
	if len(values) == 0 {
		write(w, http.StatusBadRequest, plainText, "usage: /runtime_modify?key1=value1&key2=value2&keyN=valueN\n"+
			"       or send the parameters as form values\n"+
			"use an empty value to remove a previously added override")
		return
	}
	changes := map[string]string{}
	for key, v := range values {
		changes[key] = v[0]
	}
	switch err := s.state.ModifyRuntime(changes); {
	case errors.Is(err, ErrNoAdminLayer):
		write(w, http.StatusServiceUnavailable, plainText, ErrNoAdminLayer.Error())
	case err != nil:
		write(w, http.StatusBadRequest, plainText, err.Error())
	default:
		ok(w)
	}
}

const loggingUsage = `
usage: /logging?<name>=<level> (change single level)
usage: /logging?paths=name1:level1,name2:level2,... (change multiple levels)
usage: /logging?level=<level> (change all levels)
levels: trace debug info warning error critical off
`

func (s *Server) logging(w http.ResponseWriter, r *http.Request) {
	log := s.state.Logging()
	var b strings.Builder
	status := http.StatusOK
	if err := setLevels(log, r.URL.Query()); err != nil {
		status = http.StatusBadRequest
		b.WriteString("error: " + err.Error() + "\n" + loggingUsage)
	}
	b.WriteString("active loggers:\n")
	for _, l := range log.Levels() {
		b.WriteString("  " + l[0] + ": " + l[1] + "\n")
	}
	b.WriteByte('\n')
	write(w, status, plainText, b.String())
}

// setLevels sets what the parameters of /logging ask for, all or nothing.
func setLevels(log *logging.Log, params map[string][]string) error {
	if len(params) > 1 {
		return errors.New("invalid number of parameters")
	}
	wanted := map[string]string{} // component ("" for all) -> level
	for name, values := range params {
		switch name {
		case "level":
			wanted[""] = values[0]
		case "paths":
			for _, pair := range strings.Split(values[0], ",") {
				component, level, _ := strings.Cut(pair, ":")
				if component == "" || level == "" {
					return errors.New("empty logger name or empty logger level")
				}
				wanted[component] = level
			}
		default:
			wanted[name] = values[0]
		}
	}
	known := map[string]bool{"": true}
	for _, l := range log.Levels() {
		known[l[0]] = true
	}
	for component, name := range wanted {
		if _, err := logging.ParseLevel(name); err != nil {
			return errors.New("unknown logger level")
		}
		if !known[component] {
			return errors.New("unknown logger name")
		}
	}
	for component, name := range wanted {
		level, _ := logging.ParseLevel(name)
		if component == "" {
			log.SetLevel(level)
		} else {
			log.SetComponentLevel(component, level)
		}
	}
	return nil
}
