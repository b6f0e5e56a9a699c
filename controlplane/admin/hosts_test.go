package admin

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/controlplane/plan"
)

func TestHostsAndDrain(t *testing.T) {
	state := newFakeState(t)
	state.clusters[0].Hosts[1].State.UDPSessions.Store(7)
	_, server := start(t, state, nil)
	for _, test := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/guideway/hosts?host=127.0.0.1:20002", "", 200, `"sessions": 7`},
		{"GET", "/guideway/hosts?cluster=web", "", 200, `"digest": "`},
		{"GET", "/guideway/hosts?cluster=web&host=127.0.0.1:20009", "", 200, `"health": "/failed_active_hc"`},
		{"GET", "/guideway/hosts?host=127.0.0.1:1", "", 200, "[]"},
		{"GET", "/guideway/hosts?host=web", "", 400, "is not an address with a port"},
		{"GET", "/guideway/drain?host=127.0.0.1:20002", "", 405, "POST required"},
		{"POST", "/guideway/drain", "", 400, "which host?"},
		{"POST", "/guideway/drain?host=127.0.0.1:20002", "", 200, `"/guideway_draining"`},
		{"POST", "/guideway/drain?host=127.0.0.1:20002&cluster=dns", "", 404, "no such host"},
		{"POST", "/guideway/undrain?host=127.0.0.1:20002", "", 200, `"cluster": "web"`},
		{"POST", "/guideway/plan", "", 400, "the configuration is not valid: it is empty"},
		{"POST", "/guideway/plan", "12345", 200, `"size": 5`},
		{"GET", "/guideway/changes", "", 200, ""},
	} {
		recorder := httptest.NewRecorder()
		server.ServeHTTP(recorder, httptest.NewRequest(test.method, test.path, strings.NewReader(test.body)))
		if recorder.Code != test.status || !strings.Contains(recorder.Body.String(), test.want) {
			t.Errorf("%s %s: %d %s, want %d with %q", test.method, test.path, recorder.Code, recorder.Body, test.status, test.want)
		}
		if recorder.Code == 200 && !json.Valid(recorder.Body.Bytes()) {
			t.Errorf("%s %s: not JSON", test.method, test.path)
		}
	}
	if got := strings.Join(state.drained, ", "); got != "web 127.0.0.1:20002 true, web 127.0.0.1:20002 false" {
		t.Errorf("asked to drain %s", got)
	}
}

func TestPageShowsChanges(t *testing.T) {
	state := newFakeState(t)
	state.changed = []*plan.Change{{
		Time: testTime.Add(-5 * time.Second), Generation: 9, Slots: plan.Slots{Size: 1000, Moved: 21, Unavoidable: 20, Collateral: 1},
		Clusters: []plan.Cluster{{Name: "web", Change: "changed", Hosts: []plan.Host{{Address: addr("127.0.0.1:20001"), Change: "removed"}}}},
		Flows:    &plan.Flows{TCP: 10, Remembered: 3, Broken: 1},
	}}
	_, server := start(t, state, nil)
	got := server.overview(testTime).Changes
	want := changeOverview{"5s ago", "web: 127.0.0.1:20001 removed", "21 (2.10 %), 1 collateral", "3 remembered, 1 broken of 10", 9}
	if len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	recorder := httptest.NewRecorder()
	server.ServeHTTP(recorder, httptest.NewRequest("GET", "/", nil))
	if !strings.Contains(recorder.Body.String(), "3 remembered, 1 broken of 10") {
		t.Error("the page does not show the change")
	}
}
