package backend

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestControl(t *testing.T) {
	a := start(t, Config{ID: "a"}, loopbacks[0])
	b := start(t, Config{}, loopbacks[1])
	h := Control(a, b)
	ask := func(method, path string) (int, []State) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		var got []State
		if w.Code == http.StatusOK {
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
		}
		return w.Code, got
	}
	if code, got := ask("GET", "/"); code != 200 || len(got) != 2 || got[0].ID != "a" || got[1].ID != b.Addrs()[0].String() || got[0].Behaviour != "identify" {
		t.Errorf("GET /: %d %+v", code, got)
	}
	if code, got := ask("POST", "/a/drain"); code != 200 || len(got) != 1 || got[0].Behaviour != "drain" || a.Behaviour() != Drain || b.Behaviour() != Identify {
		t.Errorf("POST /a/drain: %d %+v", code, got)
	}
	if code, got := ask("POST", "/"+b.Addrs()[0].String()+"/hang"); code != 200 || got[0].Behaviour != "hang" || b.Behaviour() != Hang {
		t.Errorf("POST by address: %d %+v", code, got)
	}
	if code, _ := ask("POST", "/all/refuse"); code != 200 || a.Behaviour() != Refuse || b.Behaviour() != Refuse {
		t.Errorf("POST /all/refuse: %d, %v and %v", code, a.Behaviour(), b.Behaviour())
	}
	for path, want := range map[string]int{"/c/drain": 404, "/a/explode": 400} {
		if code, _ := ask("POST", path); code != want {
			t.Errorf("POST %s: %d, want %d", path, code, want)
		}
	}
	if code, _ := ask("GET", "/c"); code != 404 {
		t.Errorf("GET /c: %d", code)
	}
	a.Close()
	if code, _ := ask("POST", "/a/return"); code != 409 {
		t.Errorf("command to a closed backend: %d", code)
	}
}
