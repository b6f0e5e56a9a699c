package scheme

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/guideway/guideway/maglev"
)

// Kind describes one kind of scheme, for help texts.
type Kind struct {
	Name    string
	Options string // as in "v=100,weights=on", each with its default
	About   string
}

// kind is a Kind that can be made from options.
type kind struct {
	Kind
	make func(o *options) Scheme
}

var kinds = []kind{
	{Kind{"modulo", "", "hash mod n, or mod the sum of the weights"},
		func(*options) Scheme { return modulo{} }},
	{Kind{"ring", "v=100,weights=on", "consistent hashing, v points for each unit of weight"},
		func(o *options) Scheme { return ring{o.number("v", 100, 1, 1<<20), !o.onOff("weights", true)} }},
	{Kind{"ketama", "", "the ring of memcached clients (libmemcached, weighted)"},
		func(*options) Scheme { return ketama{} }},
	{Kind{"nginx", "", `the ring of nginx, "hash ... consistent"`},
		func(*options) Scheme { return nginx{} }},
	{Kind{"envoy-ring", "min=1024", "Envoy's RING_HASH, by its minimum_ring_size"},
		func(o *options) Scheme {
			return envoyRing{uint64(o.number("min", maglev.DefaultMinRingSize, 1, maglev.MaxRingSize))}
		}},
	{Kind{"rendezvous", "weights=on", "highest random weight"},
		func(o *options) Scheme { return rendezvous{!o.onOff("weights", true)} }},
	{Kind{"jump", "", "jump hash over the list of backends; weights do not count"},
		func(*options) Scheme { return jump{} }},
	{Kind{"jump-indirect", "", "jump hash over buckets that keep their backend; weights do not count"},
		func(*options) Scheme { return jumpIndirect{} }},
	{Kind{"bounded-ring", "v=100,c=1.25", "a ring on which no backend has more than c times its share"},
		func(o *options) Scheme {
			return boundedRing{ring{points: o.number("v", 100, 1, 1<<20)}, o.factor("c", 1.25)}
		}},
	{Kind{"bounded-maglev", "c=1.25,m=65537", "Maglev with Envoy's hash_balance_factor"},
		func(o *options) Scheme { return boundedMaglev{maglevScheme{o.size("m")}, o.factor("c", 1.25)} }},
	{Kind{"redis-slots", "", "the 16,384 slots of Redis Cluster, rebalanced by redis-cli"},
		func(*options) Scheme { return fixedSlots{} }},
	{Kind{"maglev", "m=65537", "Maglev hashing with a table of m slots, a prime"},
		func(o *options) Scheme { return maglevScheme{o.size("m")} }},
}

// Kinds returns all kinds of schemes.
func Kinds() []Kind {
	out := make([]Kind, len(kinds))
	for i, k := range kinds {
		out[i] = k.Kind
	}
	return out
}

// Default returns the schemes that are compared unless others are named.
func Default() []Scheme {
	var out []Scheme
	for _, spec := range []string{
		"modulo", "ring:v=1", "ring:v=16", "ring:v=100", "ring:v=200", "ketama", "nginx", "envoy-ring", "rendezvous",
		"jump", "jump-indirect", "bounded-ring:v=16", "bounded-maglev", "redis-slots", "maglev", "maglev:m=655373",
	} {
		s, err := Parse(spec)
		if err != nil {
			panic(err) // a mistake in the list above
		}
		out = append(out, s)
	}
	return out
}

// Parse returns the scheme of a text such as "maglev", "ring:v=200" or
// "bounded-ring:v=100,c=1.1".
func Parse(text string) (Scheme, error) {
	name, rest, _ := strings.Cut(text, ":")
	at := slices.IndexFunc(kinds, func(k kind) bool { return k.Name == name })
	if at < 0 {
		all := make([]string, len(kinds))
		for i, k := range kinds {
			all[i] = k.Name
		}
		return nil, fmt.Errorf("unknown scheme %q: use one of %s", name, strings.Join(all, ", "))
	}
	o := options{scheme: name, allowed: kinds[at].Options, values: map[string]string{}}
	if rest != "" {
		for option := range strings.SplitSeq(rest, ",") {
			key, value, ok := strings.Cut(option, "=")
			if _, twice := o.values[key]; !ok || twice {
				return nil, fmt.Errorf("scheme %q: option %q is no name=value, or there twice%s", name, option, o.hint())
			}
			o.values[key] = value
		}
	}
	s := kinds[at].make(&o)
	if o.err != nil {
		return nil, o.err
	}
	for key := range o.values {
		return nil, fmt.Errorf("scheme %q has no option %q%s", name, key, o.hint())
	}
	return s, nil
}

// options are those of one text. Each is taken out as it is read; the first
// error stays.
type options struct {
	scheme, allowed string
	values          map[string]string
	err             error
}

func (o *options) hint() string {
	if o.allowed == "" {
		return " (it takes none)"
	}
	return " (defaults: " + o.allowed + ")"
}

func (o *options) take(name string) (string, bool) {
	value, ok := o.values[name]
	delete(o.values, name)
	return value, ok
}

func (o *options) fail(name, value, want string) {
	if o.err == nil {
		o.err = fmt.Errorf("scheme %q: %s=%s: use %s", o.scheme, name, value, want)
	}
}

func (o *options) number(name string, otherwise, least, most int) int {
	text, ok := o.take(name)
	if !ok {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		o.fail(name, text, fmt.Sprintf("a number from %d to %d", least, most))
		return otherwise
	}
	return n
}

func (o *options) size(name string) uint32 {
	n := uint32(o.number(name, maglev.DefaultTableSize, 2, maglev.MaxTableSize))
	if err := maglev.CheckTableSize(uint64(n)); err != nil && o.err == nil {
		o.err = fmt.Errorf("scheme %q: %w", o.scheme, err)
	}
	return n
}

func (o *options) onOff(name string, otherwise bool) bool {
	text, ok := o.take(name)
	if ok && text != "on" && text != "off" {
		o.fail(name, text, "on or off")
	}
	return ok && text == "on" || !ok && otherwise
}

// factor reads a bound of loads. Envoy takes whole percents, so both do.
func (o *options) factor(name string, otherwise float64) float64 {
	text, ok := o.take(name)
	if !ok {
		return otherwise
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 1 && f <= 100) || math.Round(100*f)/100 != f {
		o.fail(name, text, "a number from 1 to 100 with at most two decimals")
		return otherwise
	}
	return f
}
