package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/guideway/guideway/bench/live"
)

// Plan says what to compare.
type Plan struct {
	Options
	// Live has the flows; targets and dialling are the lab's.
	Live live.Plan
	// Backends is how many there are at first. 0 is 10.
	Backends int
	// Subjects are names of Subjects; empty means all.
	Subjects []string
	// Progress, if set, hears how many subjects are through.
	Progress func(what string, done, total int)
}

// Comparison is what happened to the flows of each subject.
type Comparison struct {
	Plan     Plan
	Outcomes []Outcome
	Missing  []Missing
}

// Outcome is one subject's run.
type Outcome struct {
	Subject Subject
	Version string
	Results *live.Results
}

// Missing is a subject that could not be run, and why.
type Missing struct {
	Name string
	Why  error
}

// maxBackends have addresses in the lab's network, one more included.
const maxBackends = 200

// Run takes each subject through the changes. Subjects that are not installed are named in the
// result; that a subject fails is an error.
func Run(ctx context.Context, plan Plan) (*Comparison, error) {
	if plan.Backends == 0 {
		plan.Backends = 10
	}
	if plan.Backends < 4 || plan.Backends > maxBackends {
		return nil, fmt.Errorf("%d backends: use 4 to %d", plan.Backends, maxBackends)
	}
	subjects, err := choose(plan.Subjects)
	if err != nil {
		return nil, err
	}
	c := &Comparison{Plan: plan}
	for i, s := range subjects {
		if plan.Progress != nil {
			plan.Progress(s.Name, i, len(subjects))
		}
		version, err := s.Find(plan.Options)
		if err != nil {
			c.Missing = append(c.Missing, Missing{s.Name, err})
			continue
		}
		results, err := measure(ctx, plan, s)
		if err != nil {
			return c, fmt.Errorf("%s: %w", s.Name, err)
		}
		if results.Interrupted {
			return c, ctx.Err()
		}
		c.Outcomes = append(c.Outcomes, Outcome{s, version, results})
	}
	if len(c.Outcomes) == 0 {
		return c, errors.New("no subject can run here: " + c.missing())
	}
	return c, nil
}

func (c *Comparison) missing() string {
	var words []string
	for _, m := range c.Missing {
		words = append(words, fmt.Sprintf("%s: %v", m.Name, m.Why))
	}
	return strings.Join(words, "; ")
}

// Names are those of all subjects.
func Names() []string {
	var out []string
	for _, s := range Subjects() {
		out = append(out, s.Name)
	}
	return out
}

func choose(names []string) ([]Subject, error) {
	all := Subjects()
	if len(names) == 0 {
		return all, nil
	}
	var out []Subject
	for _, name := range names {
		i := slices.IndexFunc(all, func(s Subject) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no subject %q: there are %s", name, strings.Join(Names(), ", "))
		}
		out = append(out, all[i])
	}
	return out, nil
}

// measure runs one subject in a network of its own.
func measure(ctx context.Context, plan Plan, s Subject) (_ *live.Results, err error) {
	dir, err := os.MkdirTemp("", "guideway-lab-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	// Subjects drop privileges; what they write is theirs, and sockets are made in here.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	n, err := buildNetwork(ctx, plan.Backends+1, s.XDP)
	if err != nil {
		return nil, err
	}
	defer n.close()
	fleet := Fleet(n.members[:plan.Backends])
	b, err := s.Start(ctx, plan.Options, Place{VIP: vip, Dir: filepath.Clean(dir), Do: n.balancer.do}, fleet)
	if b != nil {
		defer func() { err = errors.Join(err, b.Stop()) }()
	}
	if err != nil {
		return nil, err
	}
	flows := plan.Live
	flows.Dial = n.dial
	flows.TCPTargets, flows.UDPTargets = []netip.AddrPort{vip}, []netip.AddrPort{vip}
	if !slices.Contains(s.Networks, live.TCP) {
		flows.TCP = 0
	}
	if !slices.Contains(s.Networks, live.UDP) {
		flows.UDP = 0
	}
	return live.Measure(ctx, flows, changes(n, b, fleet))
}
