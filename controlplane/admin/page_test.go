package admin

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/guideway/guideway/dataplane"
	"github.com/guideway/guideway/dataplane/lb"
)

func parseQuery(t *testing.T, query string) *statQuery {
	t.Helper()
	q, err := parseStatQuery(httptest.NewRequest("GET", "/stats?"+strings.NewReplacer("^", "%5E", "$", "%24").Replace(query), nil))
	if err != nil {
		t.Fatal(err)
	}
	return &q
}

// TestPage has what a person looks for on the page, and odd names harmless.
func TestPage(t *testing.T) {
	state := newFakeState(t)
	state.clusters[0].Disruption = &Disruption{Moved: 210, Minimum: 200, Size: 1009}
	state.clusters[0].Changed = testTime.Add(-90 * time.Second)
	state.clusters = append(state.clusters, state.cluster("<script>alert(1)</script>", false, lb.Maglev))
	_, server := start(t, state, nil)
	o := server.overview(testTime)
	if len(o.Clusters) != 3 || o.Hosts != 4 || o.Unhealthy != 1 {
		t.Errorf("%d clusters, %d hosts, %d unhealthy", len(o.Clusters), o.Hosts, o.Unhealthy)
	}
	web := o.Clusters[2]
	var share, traffic float64
	for _, h := range web.Hosts {
		share += h.TableShare
		traffic += h.TrafficShare
	}
	if web.Name != "web" || share < 99.99 || share > 100.01 || traffic != 100 || web.Hosts[2].TableShare != 0 || web.Hosts[2].State != "failed" {
		t.Errorf("%+v", web)
	}
	if want := "moved 210 of 1009 slots (20.81 %; no table could have moved fewer than 200), 1m30s ago"; web.Change != want {
		t.Errorf("got %q", web.Change)
	}
	recorder := httptest.NewRecorder()
	server.ServeHTTP(recorder, httptest.NewRequest("GET", "/", nil))
	page := recorder.Body.String()
	for _, want := range []string{"127.0.0.1:20009", web.ShortDigest, `href="/maglev/web"`, "tcp_in", `href="/stats/prometheus"`, "<code>/quitquitquit</code> <span class=\"post\">POST", "&lt;script&gt;alert(1)"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in the page", want)
		}
	}
	for _, never := range []string{"<script", "http://", "https://"} {
		if strings.Contains(strings.ReplaceAll(page, "http://www.w3.org/2000/svg", ""), never) || strings.Contains(strings.ReplaceAll(page, "http%3A//www.w3.org", ""), "<script>alert") {
			t.Errorf("%s in the page", never)
		}
	}
}

func TestHealthWords(t *testing.T) {
	for h, want := range map[dataplane.Health]string{
		0: "healthy", dataplane.AdminDraining: "draining", dataplane.EDSStatusDraining: "draining",
		dataplane.FailedActiveHC: "failed", dataplane.DegradedEDSHealth: "degraded",
	} {
		if got := healthWord(h); got != want {
			t.Errorf("%v is %s, want %s", h, got, want)
		}
	}
}
