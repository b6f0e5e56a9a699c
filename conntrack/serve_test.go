package conntrack

import "testing"

func TestCanServe(t *testing.T) {
	closing, moving := Policy{CloseOnFailure: true}, Policy{MoveDraining: true}
	for _, c := range []struct {
		state State
		// by default; with CloseOnFailure; with MoveDraining
		tcp, tcpClosing, tcpMoving bool
		udp, udpClosing, udpMoving bool
	}{
		{In, true, true, true, true, true, true},
		{Degraded, true, true, true, true, true, true},
		{Panicking, true, true, true, true, true, true},
		{Draining, true, true, true, true, true, false},
		{FailedCheck, true, false, true, false, false, false},
		{FailedOther, true, true, true, false, false, false},
		{Removed, true, true, true, false, false, false},
		{RemovedFailing, false, false, false, false, false, false},
		{RemovedFailing + 1, false, false, false, false, false, false},
	} {
		got := [6]bool{
			CanServe(TCP, c.state, Policy{}), CanServe(TCP, c.state, closing), CanServe(TCP, c.state, moving),
			CanServe(UDP, c.state, Policy{}), CanServe(UDP, c.state, closing), CanServe(UDP, c.state, moving),
		}
		want := [6]bool{c.tcp, c.tcpClosing, c.tcpMoving, c.udp, c.udpClosing, c.udpMoving}
		if got != want {
			t.Errorf("state %d: %v, want %v", c.state, got, want)
		}
	}
}
