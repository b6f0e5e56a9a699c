// Package packet measures the XDP packet path: nanoseconds a packet by kind of packet, state of the table
// and number of flows, beside a no-op in the same run (through BPF_PROG_TEST_RUN, with a wrapper that undoes
// the encapsulation after each packet). It attaches nothing and sends nothing. It needs the right to load
// BPF programs.
package packet
