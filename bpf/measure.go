package bpf

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// Meter measures what an XDP program takes for a packet, by BPF_PROG_TEST_RUN.
// The kernel does not restore the packet between the runs of one call, so that
// after the first one an encapsulated packet takes another path; a wrapper
// undoes what was done to it, gives it the next flow's source address, and
// tail-calls the program. What the wrapper and the kernel's loop take is
// measured around a program that does nothing, and subtracted.
//
// It runs on one CPU. It is not safe for concurrent use.
type Meter struct{ objects measureObjects }

// NewMeter loads the wrapper.
func NewMeter() (*Meter, error) {
	m := new(Meter)
	if err := loadMeasureObjects(&m.objects, nil); err != nil {
		return nil, fmt.Errorf("load the measuring programs: %w", err)
	}
	return m, nil
}

// Close releases the wrapper.
func (m *Meter) Close() error { return m.objects.Close() }

// Trial is what is measured.
type Trial struct {
	// Packet is the frame, of at least 78 bytes, without VLAN tags.
	Packet []byte
	// Flows take turns, 1 if it is 0: the number of the flow is xor-ed into the
	// last 4 bytes of the source address.
	Flows uint32
	// Runs is how many packets a round has: Flows if it is 0, but 100,000 at least.
	Runs int
	// Rounds is how many rounds there are; the shortest one counts. 10 if it is 0.
	Rounds int
}

// Result is what a Trial took, in whole ns a packet, as the kernel reports it.
type Result struct {
	// Program is the program's own time, Floor that of the wrapper around nothing.
	Program, Floor float64
	// Verdict of the last packet: XDP's action.
	Verdict uint32
}

// An Ethernet header and the template of measure.c.
const templateBytes = 14 + 64

// Measure measures a program. Rounds of the program and of the one that does
// nothing alternate.
func (m *Meter) Measure(program *ebpf.Program, t Trial) (Result, error) {
	if len(t.Packet) < templateBytes {
		return Result{}, fmt.Errorf("a packet of %d bytes: at least %d are needed", len(t.Packet), templateBytes)
	}
	trial := measureTrial{
		Length: uint32(len(t.Packet)), Flows: max(1, t.Flows), Type: uint32(binary.NativeEndian.Uint16(t.Packet[12:])),
	}
	switch binary.BigEndian.Uint16(t.Packet[12:]) {
	case 0x0800:
		trial.Vary = 1 // bytes 8 to 15 of the header
	case 0x86dd:
		trial.Vary = 2 // bytes 16 to 23
	default:
		trial.Vary = uint32(len(trial.Template)) // none
	}
	for i := range trial.Template {
		trial.Template[i] = binary.NativeEndian.Uint64(t.Packet[14+8*i:])
	}
	if err := m.objects.Trial.Set(trial); err != nil {
		return Result{}, err
	}
	runs, rounds := t.Runs, t.Rounds
	if runs == 0 {
		runs = max(100_000, int(t.Flows))
	}
	if rounds == 0 {
		rounds = 10
	}
	var r Result
	best := [2]time.Duration{1 << 62, 1 << 62}
	for range rounds {
		for i, p := range []*ebpf.Program{m.objects.Noop, program} {
			if err := m.objects.Measured.Put(uint32(0), uint32(p.FD())); err != nil {
				return r, fmt.Errorf("put the program behind the wrapper: %w", err)
			}
			// Once around, so that what has to be there for a flow is there.
			for round, n := range []int{int(trial.Flows), runs} {
				if err := m.objects.Turn.Set(uint32(0)); err != nil {
					return r, err
				}
				// The kernel's own figure: it leaves out when it lets others run.
				verdict, took, err := m.objects.Wrapper.Benchmark(t.Packet, n, nil)
				if err != nil {
					return r, fmt.Errorf("run the wrapper: %w", err)
				}
				if round == 1 {
					best[i] = min(best[i], took)
					r.Verdict = verdict
				}
			}
		}
	}
	r.Floor = float64(best[0].Nanoseconds())
	r.Program = float64((best[1] - best[0]).Nanoseconds())
	return r, nil
}
