package envoy

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// fieldsPage is the page of the documentation that is made of the tables.
const fieldsPage = "../../docs/fields.md"

// TestFieldsPage holds that docs/fields.md says what the tables say. Run with -update to write it anew.
func TestFieldsPage(t *testing.T) {
	want := fieldsText()
	if *update {
		if err := os.WriteFile(fieldsPage, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(fieldsPage)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the tables in fields_*.go say; write it with go test -run TestFieldsPage ./controlplane/envoy -update:\n%s",
			fieldsPage, firstDifference(string(got), string(want)))
	}
}

// TestFieldsPageIsWhole holds that no table is left out of the page.
func TestFieldsPageIsWhole(t *testing.T) {
	text := fieldsText()
	for name := range known {
		if !bytes.Contains(text, []byte("\n`"+string(name)+"`\n")) {
			t.Errorf("%s is not on the page", name)
		}
	}
}

// fieldsText is the page.
func fieldsText() []byte {
	var b bytes.Buffer
	b.WriteString(`# Envoy's fields, one by one

<!-- Written from the tables in controlplane/envoy/fields_*.go by
     go test -run TestFieldsPage ./controlplane/envoy -update. Do not edit. -->

Every field of every message that Guideway reads is here, by Envoy 1.40's names. What the columns mean is in
[configuration](configuration.md). A message that is not here is refused, and so is a field that a newer Envoy adds.

- **acted on**: Guideway does what Envoy does with it. Single values can still be refused.
- **warned of**: one warning; it has no effect on where bytes go.
- **refused**: an error; to ignore it would change where traffic goes, or whether it flows.
- Where a row ends in *(some values pass)*, values that ask for what Guideway does anyway are taken without a word.
`)
	for _, s := range []struct {
		title string
		table table
	}{
		{"Bootstrap", bootstrapFields},
		{"Listeners", listenerFields},
		{"Filters, matchers and access logs", filterFields},
		{"Clusters", clusterFields},
		{"Load balancing policies", policyFields},
		{"Health", healthFields},
		{"Endpoints", assignmentFields},
		{"TLS to a management server", tlsFields},
		{"Shared messages", sharedFields},
	} {
		fmt.Fprintf(&b, "\n## %s\n", s.title)
		for _, name := range slices.Sorted(maps.Keys(s.table)) {
			writeMessage(&b, name, s.table[name])
		}
	}
	return b.Bytes()
}

func writeMessage(b *bytes.Buffer, name protoreflect.FullName, e entry) {
	fmt.Fprintf(b, "\n### %s\n\n`%s`\n\n", shortName(name), name)
	if names := strings.Fields(e.acted + " " + e.leaf); len(names) > 0 {
		slices.Sort(names)
		fmt.Fprintf(b, "Acted on: `%s`.\n", strings.Join(names, "`, `"))
	} else if len(e.ignored)+len(e.rejected) == 0 {
		b.WriteString("Acted on; it has no fields.\n")
	}
	if len(e.ignored)+len(e.rejected) == 0 {
		return
	}
	b.WriteString("\n| field | | why |\n|---|---|---|\n")
	row := func(verdict string, fields notes) {
		for _, f := range slices.Sorted(maps.Keys(fields)) {
			why := fields[f]
			if e.harmless[f] != nil {
				why += " *(some values pass)*"
			}
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", f, verdict, why)
		}
	}
	row("refused", e.rejected)
	row("warned of", e.ignored)
}

// shortName is a message's name without its package, for headings.
func shortName(name protoreflect.FullName) string {
	parts := strings.Split(string(name), ".")
	for i, p := range parts {
		if p != "" && p[0] >= 'A' && p[0] <= 'Z' {
			return strings.Join(parts[i:], ".")
		}
	}
	return string(name)
}
