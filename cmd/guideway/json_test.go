package main_test

import (
	"encoding/json"
	"testing"

	"github.com/guideway/guideway/cmd/guideway/testbed"
)

// jq '.errors[]' fails on null.
func TestValidateJSONHasListsAlsoWhenEmpty(t *testing.T) {
	quiet := testbed.Bootstrap(nil, nil)
	bad := testbed.Bootstrap([]any{testbed.Listener("l", testbed.ListenPort, testbed.TCPProxy("t", "none"))}, nil)
	for _, config := range []testbed.Message{quiet, bad} {
		path := testbed.WriteConfig(t, t.TempDir(), config)
		p := testbed.Guideway(t).Exec(t, nil, t.TempDir(), "validate", "-c", path, "-o", "json")
		code := p.Wait()
		var v struct {
			Valid            bool
			Errors, Warnings *[]any
		}
		if err := json.Unmarshal([]byte(p.Stdout()), &v); err != nil {
			t.Fatal(err)
		}
		if v.Errors == nil || v.Warnings == nil {
			t.Errorf("a list is null: %s", p.Stdout())
		} else if v.Valid != (code == 0) || v.Valid != (len(*v.Errors) == 0) {
			t.Errorf("exit code %d and %s", code, p.Stdout())
		}
	}
}
