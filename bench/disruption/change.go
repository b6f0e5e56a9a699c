package disruption

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Change is one thing that happens to a fleet. Which fields count depends on Kind.
type Change struct {
	Kind string
	// Hosts are the backends concerned. If there are none, Count is how many, taken
	// at random.
	Hosts  []netip.AddrPort
	Count  int
	Weight uint32
	Zone   string
	Batch  int // backends restarted at a time
	Times  int // a backend goes and returns
}

// changeKind says what a kind of change takes. The first of takes is what a bare
// value stands for; hosts may stand for count.
type changeKind struct {
	name  string
	takes []string
	about string
}

var changeKinds = []changeKind{
	{"add", []string{"count", "hosts", "weight", "zone"}, "backends join"},
	{"remove", []string{"count", "hosts"}, "backends are gone, and cannot serve the flows they have"},
	{"drain", []string{"count", "hosts"}, "backends get no new flows, but serve those they have"},
	{"replace", []string{"count", "hosts"}, "backends are gone, and as many new ones come with their weights and zones"},
	{"reweight", []string{"count", "hosts", "weight"}, "backends get another weight"},
	{"rolling-restart", []string{"batch"}, "every backend goes and returns, batch after batch"},
	{"zone-loss", []string{"zone"}, "all backends of a zone are gone"},
	{"flap", []string{"count", "hosts", "times"}, "backends go and return several times"},
}

// ChangeHelp lists the kinds of changes, a line each.
func ChangeHelp() string {
	var b strings.Builder
	for _, k := range changeKinds {
		fmt.Fprintf(&b, "  %-16s %s (%s)\n", k.name, k.about, strings.Join(k.takes, ", "))
	}
	return b.String()
}

func kindOf(name string) (changeKind, error) {
	canonical := strings.ReplaceAll(name, "_", "-")
	names := make([]string, len(changeKinds))
	for i, k := range changeKinds {
		if k.name == canonical {
			return k, nil
		}
		names[i] = k.name
	}
	return changeKind{}, fmt.Errorf("unknown change %q: use one of %s", name, strings.Join(names, ", "))
}

// defaults is a change of this kind with nothing said.
func (k changeKind) defaults() Change {
	c := Change{Kind: k.name}
	for _, parameter := range k.takes {
		switch parameter {
		case "count", "batch":
			c.Count, c.Batch = 1, 1
		case "times":
			c.Times = 3
		}
	}
	if !slices.Contains(k.takes, "count") {
		c.Count = 0
	}
	if !slices.Contains(k.takes, "batch") {
		c.Batch = 0
	}
	return c
}

// bare is the parameter that a value without a name stands for.
func (k changeKind) bare(value string) string {
	if slices.Contains(k.takes, "hosts") && strings.ContainsAny(value, ":.") {
		return "hosts"
	}
	return k.takes[0]
}

// maxNumber bounds the numbers in changes.
const maxNumber = 10000

// set reads one parameter.
func (k changeKind) set(c *Change, parameter, value string) error {
	if !slices.Contains(k.takes, parameter) {
		return fmt.Errorf("%s has no %q: it takes %s", k.name, parameter, strings.Join(k.takes, ", "))
	}
	switch parameter {
	case "zone":
		if c.Zone = value; value == "" || strings.ContainsAny(value, ",;=+ \t\n") {
			return fmt.Errorf("%s: zone %q: use a name without spaces, commas, semicolons, plus and equals signs", k.name, value)
		}
		return nil
	case "hosts":
		for text := range strings.SplitSeq(value, "+") {
			addr, err := netip.ParseAddrPort(text)
			if err != nil {
				return fmt.Errorf("%s: %q is no address: write 10.0.0.1:8080", k.name, text)
			}
			if slices.Contains(c.Hosts, addr) {
				return fmt.Errorf("%s: %v is there twice", k.name, addr)
			}
			c.Hosts = append(c.Hosts, addr)
		}
		return nil
	}
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil || n == 0 || n > maxNumber {
		return fmt.Errorf("%s: %s %q: use a number from 1 to %d", k.name, parameter, value, maxNumber)
	}
	switch parameter {
	case "count":
		c.Count = int(n)
	case "weight":
		c.Weight = uint32(n)
	case "batch":
		c.Batch = int(n)
	case "times":
		c.Times = int(n)
	}
	return nil
}

// check is for what single parameters do not show.
func (k changeKind) check(c *Change, given []string) error {
	if len(c.Hosts) > 0 {
		if slices.Contains(given, "count") {
			return fmt.Errorf("%s: give hosts or count, not both", k.name)
		}
		c.Count = 0
	}
	if k.name == "reweight" && c.Weight == 0 {
		return errors.New("reweight: give the new weight (weight=2)")
	}
	return nil
}

// String is the change as [ParseChange] reads it.
func (c Change) String() string {
	var parts []string
	k, _ := kindOf(c.Kind)
	for i, parameter := range k.takes {
		value := c.parameter(parameter)
		switch {
		case value == "" || value == k.defaults().parameter(parameter) && i > 0:
		case i == 0 || parameter == "hosts":
			parts = append([]string{value}, parts...)
		default:
			parts = append(parts, parameter+"="+value)
		}
	}
	if len(parts) == 0 {
		return c.Kind
	}
	return c.Kind + "=" + strings.Join(parts, ",")
}

func (c Change) parameter(name string) string {
	number := 0
	switch name {
	case "hosts":
		texts := make([]string, len(c.Hosts))
		for i, h := range c.Hosts {
			texts[i] = h.String()
		}
		return strings.Join(texts, "+")
	case "zone":
		return c.Zone
	case "count":
		number = c.Count
	case "weight":
		number = int(c.Weight)
	case "batch":
		number = c.Batch
	case "times":
		number = c.Times
	}
	if number == 0 {
		return ""
	}
	return strconv.Itoa(number)
}

// ParseChange reads a change such as "add=2,weight=3", "remove=10.0.0.1:8080" or
// "rolling-restart".
func ParseChange(text string) (Change, error) {
	name, rest, given := strings.Cut(text, "=")
	k, err := kindOf(strings.TrimSpace(name))
	if err != nil {
		return Change{}, err
	}
	c := k.defaults()
	var seen []string
	if given {
		for i, part := range strings.Split(rest, ",") {
			parameter, value, named := strings.Cut(strings.TrimSpace(part), "=")
			if !named {
				if i > 0 {
					return Change{}, fmt.Errorf("%s: %q is no name=value", k.name, part)
				}
				parameter, value = k.bare(parameter), parameter
			}
			if slices.Contains(seen, parameter) {
				return Change{}, fmt.Errorf("%s: %s is there twice", k.name, parameter)
			}
			seen = append(seen, parameter)
			if err := k.set(&c, parameter, value); err != nil {
				return Change{}, err
			}
		}
	}
	return c, k.check(&c, seen)
}

// Case is a number of changes, one after the other, from the state at the start.
type Case struct {
	Name    string
	Changes []Change
}

// ParseCase reads changes that are separated by semicolons.
func ParseCase(text string) (Case, error) {
	c := Case{}
	var names []string
	for part := range strings.SplitSeq(text, ";") {
		change, err := ParseChange(strings.TrimSpace(part))
		if err != nil {
			return Case{}, err
		}
		c.Changes = append(c.Changes, change)
		names = append(names, change.String())
	}
	c.Name = strings.Join(names, "; ")
	return c, nil
}

// DefaultCases are one of each kind but drain, which differs from remove only
// where flows are tracked. Those of zones need a fleet that has some.
func DefaultCases(zones bool) []Case {
	var out []Case
	for _, text := range []string{"add=1", "remove=1", "drain=1", "replace=1", "reweight=1,weight=2", "rolling-restart", "zone-loss=a", "flap=1"} {
		if strings.HasPrefix(text, "zone") && !zones {
			continue
		}
		c, err := ParseCase(text)
		if err != nil {
			panic(err) // a mistake in the list above
		}
		out = append(out, c)
	}
	return out
}
