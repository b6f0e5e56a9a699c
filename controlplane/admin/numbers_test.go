package admin

import "testing"

func TestNumbersAreWrittenOut(t *testing.T) {
	for in, want := range map[string]string{
		"a{} 1e+06\n": "a{} 1000000\n",
		`h_bucket{x="1e+06",le="1.8e+06"} 2` + "\n": `h_bucket{x="1e+06",le="1800000"} 2` + "\n",
		`h_bucket{le="+Inf"} 1.2e+07` + "\n":        `h_bucket{le="+Inf"} 12000000` + "\n",
		"a{} 1.5\n":                                 "a{} 1.5\n",
		"a{} 1.5e-07\n":                             "a{} 1.5e-07\n",
		"# TYPE e+ counter\n":                       "# TYPE e+ counter\n",
	} {
		if got := string(writtenOut([]byte(in))); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
