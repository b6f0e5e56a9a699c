package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// benchRun runs a bench command and returns what it writes.
func benchRun(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := newBench()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	cmd.SetContext(t.Context())
	err := cmd.Execute()
	return out.String(), err
}

func TestBenchDisruption(t *testing.T) {
	dir := t.TempDir()
	scenario := filepath.Join(dir, "scenario.yaml")
	if err := os.WriteFile(scenario, []byte("keys: 1000\nbackends: 4\nschemes: [modulo, maglev:m=251]\ncases: [add=1]\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(dir, "report.html")
	args := []string{"disruption", "--scenario", scenario, "--seed", "9", "--timing=false", "-o", "json", "--html", page, "--plots", dir}
	first, err := benchRun(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	pageOnce, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	second, err := benchRun(t, args...)
	pageTwice, _ := os.ReadFile(page)
	if err != nil || first != second || !bytes.Equal(pageOnce, pageTwice) {
		t.Errorf("a second run differs (%v)", err)
	}
	var r struct {
		Facts    []struct{ Name, Value string }
		Sections []struct {
			Title  string
			Tables []struct{ Rows []map[string]any }
		}
	}
	if err := json.Unmarshal([]byte(first), &r); err != nil {
		t.Fatal(err)
	}
	rows := r.Sections[0].Tables[0].Rows
	if len(r.Sections) != 2 || r.Sections[0].Title != "add=1" || len(rows) != 2 || rows[1]["scheme"] != "maglev:m=251" || rows[0]["moved"].(float64) < 0.7 {
		t.Errorf("report %s", first)
	}
	facts := map[string]string{}
	for _, f := range r.Facts {
		facts[f.Name] = f.Value
	}
	if facts["seed"] != "9" || !strings.HasPrefix(facts["keys"], "1,000 ") || facts["processor"] != "" {
		t.Errorf("facts %v", facts)
	}
	if _, err := os.Stat(filepath.Join(dir, "keys-moved-add-1.svg")); err != nil {
		t.Error(err)
	}
}

func TestBenchTable(t *testing.T) {
	out, err := benchRun(t, "table", "--sizes", "251,1009", "--hosts", "3,5", "--rounds", "1", "--changes", "0", "-o", "csv")
	if err != nil || strings.Count(out, "\n") != 5 || !strings.HasPrefix(out, "section,size,hosts,build_seconds,") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = benchRun(t, "table", "--sizes", "251", "--hosts", "3", "--rounds", "1", "--changes", "2", "-o", "csv")
	if err != nil || strings.Count(out, "\n") != 5 || !strings.Contains(out, "\nsection,target,size,hosts,moved,build_p50_seconds,") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestBenchTableInMaps(t *testing.T) {
	// Root of a user namespace, which the test bed gives others, may not make maps either.
	if os.Getuid() != 0 || os.Getenv("GUIDEWAY_TEST_IN_USER_NAMESPACE") != "" {
		t.Skip("making BPF maps needs root")
	}
	for target, rows := range map[string]int{"xdp": 1, "xdp-per-slot": 2, "all": 4} {
		out, err := benchRun(t, "table", "--target", target, "--sizes", "251", "--hosts", "3", "--rounds", "1", "--changes", "2", "-o", "csv")
		if err != nil || strings.Count(out, "From a change to the data path,") != rows {
			t.Errorf("%s: %v\n%s", target, err, out)
		}
	}
}

func TestBenchChurn(t *testing.T) {
	args := []string{"churn", "--changes", "0,30", "--backends", "10", "--size", "251", "--sample", "50", "--flows", "400",
		"--idle", "2m", "--life", "30s", "--warm-up", "5m", "--time", "5m", "--seed", "5", "-o", "csv"}
	first, err := benchRun(t, args...)
	again, errAgain := benchRun(t, args...)
	if err != nil || errAgain != nil || first != again {
		t.Errorf("%v, %v\n%s\n%s", err, errAgain, first, again)
	}
	if strings.Count(first, "\n") != 5 || !strings.Contains(first, ",changed,0,0,0,0,") || !strings.Contains(first, ",all,30,1,") {
		t.Errorf("report:\n%s", first)
	}
}

func TestBenchErrorsSayWhatToDo(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("keys: 1000\ncases:\n  - explode\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"disruption --scenario " + bad:                  bad + `: line 3: unknown change "explode": use one of add, `,
		"disruption --scenario " + bad + " --change a":  "give one of them",
		"disruption --scenario /no/such/file":           "no such file",
		"disruption --change explode":                   `--change: unknown change "explode"`,
		"disruption --scheme explode":                   `--scheme: unknown scheme "explode"`,
		"disruption --keys 0":                           "--keys 0: use 1 to",
		"disruption --top 99":                           "--top 99: use 1 to 16",
		"disruption --backends 0":                       "use 1 to 65535 backends",
		"disruption --weights 0":                        "--weights: 0: use 1 to 10000",
		"disruption --backends 2 --change remove=2":     "no backend is left",
		"disruption -o yaml":                            "unknown output format",
		"table --sizes 250":                             "prime",
		"table --hosts 0":                               "0 hosts: use 1 to",
		"table --target moon":                           `unknown target "moon": use userspace, `,
		"table --changes -1":                            "--changes -1: use 1 or more",
		"churn --track some":                            `--track: unknown way to track "some": use changed, all or off`,
		"churn --protocol sctp":                         `unknown protocol "sctp": use tcp or udp`,
		"churn --sample 0":                              "0 slots: use 1 to 65537",
		"disruption --keys 10 --html /no/such/dir/page": "writing the report",
	} {
		_, err := benchRun(t, strings.Fields(args)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", args, err, want)
		}
	}
}
