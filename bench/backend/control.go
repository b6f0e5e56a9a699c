package backend

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// State is what the control address tells of a backend.
type State struct {
	ID        string           `json:"id"`
	Addresses []netip.AddrPort `json:"addresses"`
	Behaviour string           `json:"behaviour"`
	Counts    Counts           `json:"counts"`
}

// Control returns a handler that commands backends by HTTP. They are named by their
// identities; those without one by their first address.
//
//	GET  /                   states of all, as JSON
//	GET  /{id}               state of one
//	POST /{id}/{behaviour}   sets the behaviour, as drain or return; POST /all/{behaviour} sets that of all
func Control(backends ...*Backend) http.Handler {
	byID := map[string]*Backend{}
	for _, b := range backends {
		byID[b.name()] = b
	}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(v) // fails if nobody listens any more
	}
	find := func(w http.ResponseWriter, r *http.Request) []*Backend {
		id := r.PathValue("id")
		if b := byID[id]; b != nil {
			return []*Backend{b}
		}
		if id == "all" {
			return backends
		}
		http.Error(w, fmt.Sprintf("no backend %q: there are %s", id, strings.Join(slices.Sorted(maps.Keys(byID)), ", ")), http.StatusNotFound)
		return nil
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, states(backends))
	})
	mux.HandleFunc("GET /{id}", func(w http.ResponseWriter, r *http.Request) {
		if found := find(w, r); found != nil {
			answer(w, states(found))
		}
	})
	mux.HandleFunc("POST /{id}/{behaviour}", func(w http.ResponseWriter, r *http.Request) {
		found := find(w, r)
		if found == nil {
			return
		}
		want, err := ParseBehaviour(r.PathValue("behaviour"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for _, b := range found {
			if err := b.Set(want); err != nil {
				http.Error(w, fmt.Sprintf("backend %s: %v", b.name(), err), http.StatusConflict)
				return
			}
		}
		answer(w, states(found))
	})
	return mux
}

// name is what Control calls a backend.
func (b *Backend) name() string {
	if b.conf.ID != "" {
		return b.conf.ID
	}
	return b.Addrs()[0].String()
}

func states(backends []*Backend) []State {
	out := []State{}
	for _, b := range backends {
		out = append(out, State{b.name(), b.Addrs(), b.Behaviour().String(), b.Counts()})
	}
	return out
}
