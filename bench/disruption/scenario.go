package disruption

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/guideway/guideway/bench/scheme"
)

// Limits of a plan.
const (
	MaxKeys = 100_000_000
	MaxTop  = 16
)

// Scenario is what a file says. What it leaves out is zero.
type Scenario struct {
	Keys    int
	Seed    *uint64
	Top     int
	Members []Member
	Schemes []scheme.Scheme
	Cases   []Case
}

// lineError says where in a file something is wrong.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

// ParseScenario reads a scenario file, which is YAML. Errors name the line.
func ParseScenario(text []byte) (*Scenario, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err // names the line
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, errors.New("the file is empty: it needs at least cases")
	}
	var s Scenario
	var zones, count int
	var list *yaml.Node
	err := fields(doc.Content[0], func(name string, value *yaml.Node) (err error) {
		switch name {
		case "keys":
			s.Keys, err = number(value, 1, MaxKeys)
		case "seed":
			var seed uint64
			if seed, err = strconv.ParseUint(value.Value, 10, 64); err != nil || value.Kind != yaml.ScalarNode {
				return at(value, "seed: use a number from 0 to 2^64-1")
			}
			s.Seed = &seed
		case "top":
			s.Top, err = number(value, 1, MaxTop)
		case "zones":
			zones, err = number(value, 1, maxNumber)
		case "backends":
			if value.Kind == yaml.SequenceNode {
				list = value
				s.Members, err = members(value)
			} else {
				count, err = number(value, 1, scheme.MaxBackends)
			}
		case "schemes":
			err = each(value, func(item *yaml.Node) error {
				parsed, err := scheme.Parse(item.Value)
				if err != nil || item.Kind != yaml.ScalarNode {
					return wrap(item, err, "a scheme is a text such as maglev or ring:v=100")
				}
				if slices.Contains(s.Schemes, parsed) {
					return at(item, "scheme %s is there twice", parsed.Spec())
				}
				s.Schemes = append(s.Schemes, parsed)
				return nil
			})
		case "cases":
			err = each(value, func(item *yaml.Node) error {
				c, err := parseCase(item)
				if err == nil && slices.ContainsFunc(s.Cases, func(o Case) bool { return o.Name == c.Name }) {
					err = at(item, "case %q is there twice: give it another name", c.Name)
				}
				s.Cases = append(s.Cases, c)
				return err
			})
		default:
			err = fmt.Errorf("unknown field %q: use keys, seed, top, backends, zones, schemes or cases", name)
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(s.Cases) == 0:
		return nil, at(doc.Content[0], "no cases: there is nothing to measure")
	case zones > 0 && list != nil:
		return nil, at(list, "zones goes with a number of backends; in a list each backend has its own")
	case zones > 0 && count == 0:
		return nil, at(doc.Content[0], "zones needs a number of backends beside it")
	case count > 0:
		s.Members = Fleet(count, nil, zones)
	}
	return &s, nil
}

// members reads a list of backends: addresses, or address, weight and zone.
func members(list *yaml.Node) ([]Member, error) {
	var out []Member
	seen := map[netip.AddrPort]bool{}
	err := each(list, func(item *yaml.Node) error {
		m := Member{scheme.Backend{Weight: 1}, ""}
		address := func(value *yaml.Node) (err error) {
			if m.Addr, err = netip.ParseAddrPort(value.Value); err != nil || value.Kind != yaml.ScalarNode {
				return at(value, "%q is no address: write 10.0.0.1:8080", value.Value)
			}
			return nil
		}
		var err error
		if item.Kind == yaml.ScalarNode {
			err = address(item)
		} else {
			err = fields(item, func(name string, value *yaml.Node) error {
				switch name {
				case "address":
					return address(value)
				case "weight":
					n, err := number(value, 1, maxNumber)
					m.Weight = uint32(n)
					return err
				case "zone":
					k, _ := kindOf("zone-loss")
					c := Change{}
					err := k.set(&c, "zone", value.Value)
					m.Zone = c.Zone
					return err
				}
				return fmt.Errorf("unknown field %q: use address, weight or zone", name)
			})
		}
		switch {
		case err != nil:
			return err
		case !m.Addr.IsValid():
			return at(item, "a backend needs an address")
		case seen[m.Addr]:
			return at(item, "backend %v is there twice", m.Addr)
		case len(out) == scheme.MaxBackends:
			return at(item, "more than %d backends", scheme.MaxBackends)
		}
		seen[m.Addr] = true
		out = append(out, m)
		return nil
	})
	if err == nil && len(out) == 0 {
		err = at(list, "no backends")
	}
	return out, err
}

// parseCase reads a case: a text as ParseCase takes it, or a name and changes.
func parseCase(item *yaml.Node) (Case, error) {
	if item.Kind == yaml.ScalarNode {
		c, err := ParseCase(item.Value)
		if err != nil {
			return c, wrap(item, err, "")
		}
		return c, nil
	}
	var c Case
	var texts []string
	err := fields(item, func(name string, value *yaml.Node) error {
		switch name {
		case "name":
			if c.Name = value.Value; value.Kind != yaml.ScalarNode || c.Name == "" {
				return errors.New("name: use a text")
			}
			return nil
		case "changes":
			return each(value, func(item *yaml.Node) error {
				change, err := parseChange(item)
				c.Changes = append(c.Changes, change)
				texts = append(texts, change.String())
				return err
			})
		}
		return fmt.Errorf("unknown field %q: use name or changes", name)
	})
	if err == nil && len(c.Changes) == 0 {
		err = at(item, "a case needs changes")
	}
	if c.Name == "" {
		c.Name = strings.Join(texts, "; ")
	}
	return c, err
}

// parseChange reads a change: a text as ParseChange takes it, or a map of its kind
// to its parameters.
func parseChange(item *yaml.Node) (Change, error) {
	if item.Kind == yaml.ScalarNode {
		c, err := ParseChange(item.Value)
		if err != nil {
			return c, wrap(item, err, "")
		}
		return c, nil
	}
	if item.Kind == yaml.MappingNode && len(item.Content) != 2 {
		return Change{}, at(item, "a change has one kind: start each with a dash of its own")
	}
	var c Change
	err := fields(item, func(name string, value *yaml.Node) error {
		k, err := kindOf(name)
		if err != nil {
			return err
		}
		c = k.defaults()
		var given []string
		set := func(parameter string, value *yaml.Node) error {
			given = append(given, parameter)
			if value.Kind == yaml.SequenceNode && parameter == "hosts" {
				return each(value, func(host *yaml.Node) error {
					return wrap(host, k.set(&c, parameter, host.Value), "")
				})
			}
			if value.Kind != yaml.ScalarNode {
				return at(value, "%s: %s is no list and no map", k.name, parameter)
			}
			return wrap(value, k.set(&c, parameter, value.Value), "")
		}
		switch {
		case value.Kind == yaml.MappingNode:
			err = fields(value, set)
		case value.Kind == yaml.SequenceNode:
			err = set("hosts", value)
		case value.Tag == "!!null":
		default:
			err = set(k.bare(value.Value), value)
		}
		if err != nil {
			return err
		}
		return k.check(&c, given)
	})
	return c, err
}

// fields calls do for each field of a map, each of which may be there once.
func fields(node *yaml.Node, do func(name string, value *yaml.Node) error) error {
	if node.Kind != yaml.MappingNode {
		return at(node, "this should be a map of names to values")
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		if seen[name.Value] {
			return at(name, "%q is there twice", name.Value)
		}
		seen[name.Value] = true
		if value.Kind == yaml.AliasNode {
			return at(value, "aliases (*%s) are not for scenarios: write it out", value.Value)
		}
		if err := do(name.Value, value); err != nil {
			return wrap(name, err, "")
		}
	}
	return nil
}

// each calls do for each item of a list.
func each(node *yaml.Node, do func(*yaml.Node) error) error {
	if node.Kind != yaml.SequenceNode {
		return at(node, "this should be a list")
	}
	for _, item := range node.Content {
		if item.Kind == yaml.AliasNode {
			return at(item, "aliases (*%s) are not for scenarios: write it out", item.Value)
		}
		if err := do(item); err != nil {
			return wrap(item, err, "")
		}
	}
	return nil
}

func number(node *yaml.Node, least, most int) (int, error) {
	n, err := strconv.Atoi(strings.ReplaceAll(node.Value, "_", ""))
	if err != nil || node.Kind != yaml.ScalarNode || n < least || n > most {
		return 0, at(node, "use a number from %d to %d", least, most)
	}
	return n, nil
}

func at(node *yaml.Node, format string, args ...any) error {
	return &lineError{node.Line, fmt.Errorf(format, args...)}
}

// wrap adds the line to an error that has none. Without an error, otherwise is the
// error, unless it is empty.
func wrap(node *yaml.Node, err error, otherwise string) error {
	var known *lineError
	switch {
	case err == nil && otherwise == "":
		return nil
	case err == nil:
		return at(node, "%s", otherwise)
	case errors.As(err, &known):
		return err
	}
	return &lineError{node.Line, err}
}
