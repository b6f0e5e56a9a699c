package controlplane

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

func TestIdentify(t *testing.T) {
	n := &corev3.Node{Id: "n1"}
	identify(n, "abc123/1.20.3/Clean/RELEASE/none")
	build := n.GetUserAgentBuildVersion()
	if v := build.GetVersion(); v.GetMajorNumber() != 1 || v.GetMinorNumber() != 20 || v.GetPatch() != 3 {
		t.Errorf("version %v", v)
	}
	for key, want := range map[string]string{"revision.sha": "abc123", "revision.status": "Clean", "build.type": "RELEASE", "ssl.version": "none"} {
		if got := build.GetMetadata().GetFields()[key].GetStringValue(); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if n.GetId() != "n1" || n.GetUserAgentName() != "guideway" || len(n.GetExtensions()) < 10 {
		t.Errorf("node %v", n)
	}
	identify(n, "development")
	if got := n.GetUserAgentBuildVersion().GetMetadata().GetFields()["build.type"].GetStringValue(); got != "unknown" {
		t.Errorf("a version without parts has build type %q", got)
	}
}
