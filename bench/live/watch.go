package live

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// Watch returns a script that leaves changes to a person, until ctx ends or the time is over
// (0: never). Each line that is read begins a step of that name; each second in which
// something happened is shown as a line.
func Watch(lines io.Reader, show io.Writer, limit time.Duration) Script {
	return func(ctx context.Context, m *Meter) error {
		if limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
		names := make(chan string)
		go func() { // ends with the input, or stays in a read that nobody can end
			defer close(names)
			in := bufio.NewScanner(lines)
			for in.Scan() {
				select {
				case names <- strings.TrimSpace(in.Text()):
				case <-ctx.Done():
					return
				}
			}
		}()
		fmt.Fprintf(show, "%d TCP connections and %d UDP flows are held. Make changes now; a line typed here begins a step of that name, Ctrl-C ends.\n",
			m.plan.TCP, m.plan.UDP)
		every := time.NewTicker(time.Second)
		defer every.Stop()
		var last [2]Happened
		for {
			select {
			case <-ctx.Done():
				return nil // the way a watch ends
			case name, ok := <-names:
				if !ok {
					names = nil
				} else if name != "" {
					m.Step(name)
				}
			case <-every.C:
				s := m.Snapshot()
				if s.Sum != last {
					fmt.Fprint(show, s.String())
					last = s.Sum
				}
			}
		}
	}
}

// String tells of both protocols in a line each, as far as anything happened.
func (s Snapshot) String() string {
	var b strings.Builder
	for _, n := range Networks {
		if h := s.Sum[n]; h != (Happened{}) {
			fmt.Fprintf(&b, "%7.1fs %s: %d open, so far %d broken, %d moved, %d stalled, %d reordered, %d new flows failed\n",
				s.At.Seconds(), n, s.Open[n], h.Broken, h.Moved, h.Stalled, h.Reordered, h.Failed)
		}
	}
	return b.String()
}
