package disruption

import (
	"reflect"
	"strings"
	"testing"
)

const scenarioText = `# A deployment.
keys: 20_000
seed: 42
top: 2
backends:
  - 10.1.0.1:80
  - {address: 10.1.0.2:80, weight: 3, zone: east}
  - address: "[fd00::1]:80"
    zone: west
schemes: [modulo, "ring:v=50,weights=off", maglev]
cases:
  - add=2,weight=2
  - name: deploy
    changes:
      - drain: 10.1.0.1:80
      - remove: [10.1.0.1:80]
      - add: {count: 2, weight: 3, zone: east}
      - reweight: {hosts: [10.1.0.2:80, "[fd00::1]:80"], weight: 5}
      - rolling_restart:
      - flap: {count: 1, times: 2}
      - zone-loss: west
`

func TestParseScenario(t *testing.T) {
	s, err := ParseScenario([]byte(scenarioText))
	if err != nil {
		t.Fatal(err)
	}
	if s.Keys != 20000 || *s.Seed != 42 || s.Top != 2 || len(s.Schemes) != 3 || s.Schemes[1].Spec() != "ring:v=50,weights=off" {
		t.Errorf("%+v", s)
	}
	if len(s.Members) != 3 || s.Members[1].Weight != 3 || s.Members[1].Zone != "east" || s.Members[2].Addr.String() != "[fd00::1]:80" || s.Members[2].Weight != 1 {
		t.Errorf("members %+v", s.Members)
	}
	var got []string
	for _, c := range s.Cases {
		got = append(got, c.Name)
		for _, change := range c.Changes {
			got = append(got, change.String())
		}
	}
	want := []string{
		"add=2,weight=2", "add=2,weight=2",
		"deploy", "drain=10.1.0.1:80", "remove=10.1.0.1:80", "add=2,weight=3,zone=east", "reweight=10.1.0.2:80+[fd00::1]:80,weight=5",
		"rolling-restart=1", "flap=1,times=2", "zone-loss=west",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
	if _, err := stages(s.Members, s.Cases[1], 1); err != nil {
		t.Error(err)
	}
}

func TestScenarioErrorsNameTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "the file is empty",
		"keys: 10":                      "line 1: no cases",
		"cases: [add]\nkeys: 0":         "line 2: use a number from 1 to",
		"cases: [add]\nkees: 1":         `line 2: unknown field "kees": use keys`,
		"cases:\n- add\n- ad=1":         `line 3: unknown change "ad": use one of add`,
		"cases:\n- add\n- add":          `line 3: case "add=1" is there twice`,
		"cases: [add]\nseed: -1":        "line 2: seed",
		"cases: [add]\nbackends:\n- a":  `line 3: "a" is no address: write 10.0.0.1:8080`,
		"cases: [add]\nbackends:\n- {}": "line 3: a backend needs an address",
		"cases: [add]\nbackends: []":    "line 2: no backends",
		"cases: [add]\nbackends: [1.1.1.1:1,\n 1.1.1.1:1]":               "line 3: backend 1.1.1.1:1 is there twice",
		"cases: [add]\nbackends:\n- {address: 1.1.1.1:1,\n   weight: 0}": "line 4: use a number from 1",
		"cases: [add]\nbackends:\n- address: 1.1.1.1:1\n  zone: 'a b'":   "line 4: zone-loss: zone",
		"cases: [add]\nbackends: [1.1.1.1:1]\nzones: 2":                  "line 2: zones goes with a number of backends",
		"cases: [add]\nzones: 2":                                         "zones needs a number of backends",
		"cases: [add]\nschemes:\n- jump\n- rung":                         `line 4: unknown scheme "rung"`,
		"cases: [add]\nschemes: [jump,\njump]":                           "line 3: scheme jump is there twice",
		"cases: [add]\nschemes: [[jump]]":                                "line 2: ",
		"cases: [add]\ncases: [add]":                                     "line 2",
		"cases:\n- name: x":                                              "line 2: a case needs changes",
		"cases:\n- changes:\n  - add: 1\n    remove: 1":                  "line 3: a change has one kind",
		"cases:\n- changes:\n  - add: {count: 1,\n      times: 2}":       `line 4: add has no "times": it takes count, hosts, weight, zone`,
		"cases:\n- changes:\n  - remove: {count: 1, hosts: [1.1.1.1:1]}": "line 3: remove: give hosts or count, not both",
		"cases:\n- changes:\n  - reweight: 1":                            "line 3: reweight: give the new weight",
		"cases:\n- changes:\n  - add: {count: [1]}":                      "line 3: add: count is no list and no map",
		"cases:\n- changes: &a\n  - add: 1\n- changes: *a":               "line 4: aliases (*a) are not for scenarios",
		"cases: {":       "line",
		"[]":             "line 1: this should be a map",
		"cases: 1":       "line 1: this should be a list",
		"cases:\n- [[]]": "line 2: this should be a map",
	} {
		_, err := ParseScenario([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestChangesReadBack(t *testing.T) {
	for text, canonical := range map[string]string{
		"add": "add=1", "add=count=2,zone=q": "add=2,zone=q", "add=1.1.1.1:1": "add=1.1.1.1:1", "remove=1.1.1.1:1+[::1]:2": "remove=1.1.1.1:1+[::1]:2",
		"rolling_restart=4": "rolling-restart=4", "flap": "flap=1", "flap=2,times=5": "flap=2,times=5", "zone-loss": "zone-loss", "reweight=2,weight=9": "reweight=2,weight=9",
	} {
		c, err := ParseChange(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if c.String() != canonical {
			t.Errorf("%s is %s, want %s", text, c, canonical)
		}
		if again, err := ParseChange(c.String()); err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%s is read back as %+v, %v", c, again, err)
		}
	}
	for text, want := range map[string]string{
		"":                 "unknown change",
		"add=0":            `count "0": use a number from 1`,
		"add=1,2":          "no name=value",
		"add=1,count=2":    "count is there twice",
		"remove=1.1.1.1":   `"1.1.1.1" is no address`,
		"zone-loss=":       "zone",
		"add=1; ":          "",
		"drain=1,weight=2": `drain has no "weight"`,
	} {
		if _, err := ParseCase(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q in it", text, err, want)
		}
	}
}

// Whatever the text, there is an error or a scenario that can be played or refused, and changes that read back.
func FuzzParseScenario(f *testing.F) {
	f.Add(scenarioText)
	f.Add("cases: [add, 'flap=1,times=2; remove=1']\nbackends: 5\nzones: 2")
	f.Add("cases:\n- changes: [{zone_loss: a}, {remove: [10.0.0.1:8080]}]")
	f.Add("cases: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseScenario([]byte(text))
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		for _, c := range s.Cases {
			for _, change := range c.Changes {
				again, err := ParseChange(change.String())
				if err != nil || !reflect.DeepEqual(again, change) {
					t.Errorf("%+v is written %q, which is read as %+v, %v", change, change, again, err)
				}
			}
		}
		if len(s.Members) > 100 || len(s.Cases) > 10 {
			return
		}
		if s.Members == nil {
			s.Members = Fleet(3, nil, 2)
		}
		for _, c := range s.Cases {
			heavy := 0
			for _, change := range c.Changes {
				heavy += change.Count + change.Times
			}
			if heavy < 100 {
				stages(s.Members, c, 1)
			}
		}
	})
}
