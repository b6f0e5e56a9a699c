package peers

import (
	"fmt"
	"math"
	"net"
	"slices"

	"github.com/guideway/guideway/bench/report"
)

// Report arranges a result: medians with their ranges, and the ratio to a reference in the same run.
func (r *Result) Report(command string, facts []report.Fact) *report.Report {
	names := []string{direct}
	for _, p := range r.Peers {
		names = append(names, p.Name)
		facts = append(facts, report.Fact{Name: p.Name, Value: r.Versions[p.Name]})
	}
	for _, m := range r.Missing {
		facts = append(facts, report.Fact{Name: "missing", Value: m})
	}
	medians := report.Table{Name: "medians", Caption: "Medians over the rounds, lowest and highest in brackets. Each proxy alone on one core."}
	ratios := report.Table{Name: "ratios", Caption: "Guideway's median as a part of each other's in the same run."}
	medians.Columns = []report.Column{{Key: "measurement", Title: "", Format: report.Text}}
	ratios.Columns = slices.Clone(medians.Columns)
	for _, n := range names {
		medians.Columns = append(medians.Columns, report.Column{Key: n, Title: n, Format: report.Text})
		if n != direct && n != "guideway" {
			ratios.Columns = append(ratios.Columns, report.Column{Key: n, Title: "of " + n, Format: report.Number})
		}
	}
	for _, m := range Measurements {
		if len(r.Figures[m.Name]) == 0 {
			continue
		}
		row, ratio := []any{m.Title}, []any{m.Title}
		own, has := r.Median(m.Name, "guideway")
		for _, n := range names {
			v, ok := r.Median(m.Name, n)
			if !ok || n == direct && v == 0 {
				row = append(row, nil)
			} else {
				f := r.Figures[m.Name][n]
				row = append(row, fmt.Sprintf("%s [%s, %s]", figure(v), figure(slices.Min(f)), figure(slices.Max(f))))
			}
			if n == direct || n == "guideway" {
				continue
			}
			if ok && has && v > 0 {
				ratio = append(ratio, own/v)
			} else {
				ratio = append(ratio, nil)
			}
		}
		medians.Rows = append(medians.Rows, row)
		ratios.Rows = append(ratios.Rows, ratio)
	}
	text := "CPU is the time on CPU of the proxy's threads; memory is resident memory. Latency swings with the scheduler on small machines."
	if r.Rate > 0 {
		text += fmt.Sprintf(" Datagrams have %d bytes, in %d flows; the rate for all is %.0f a second.", datagram, flowsUDP, r.Rate)
	}
	if r.Idle > 0 {
		text += fmt.Sprintf(" %d idle connections are held.", r.Idle)
	}
	return &report.Report{
		Title: "Userspace proxies compared", Command: command, Facts: facts,
		Sections: []report.Section{{Title: "Figures", Text: text, Tables: []report.Table{medians, ratios}}},
	}
}

// figure prints three significant digits.
func figure(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	return fmt.Sprintf("%.*f", digits, v)
}

func port(a net.Addr) uint16 {
	switch a := a.(type) {
	case *net.TCPAddr:
		return uint16(a.Port)
	case *net.UDPAddr:
		return uint16(a.Port)
	}
	return 0
}

// freePorts finds ports that nobody has, two for TCP and one for UDP.
func freePorts() (bulk, echo, udp uint16, err error) {
	a, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(address(0)))
	if err != nil {
		return 0, 0, 0, err
	}
	defer a.Close()
	b, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(address(0)))
	if err != nil {
		return 0, 0, 0, err
	}
	defer b.Close()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(address(0)))
	if err != nil {
		return 0, 0, 0, err
	}
	defer c.Close()
	return port(a.Addr()), port(b.Addr()), port(c.LocalAddr()), nil
}
