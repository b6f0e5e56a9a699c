// Package lab compares balancers: it builds a small network of namespaces on this machine,
// runs one balancer after the other in its middle, takes each through the same changes of its
// backends while flows go through it, and puts what happened into one report.
//
//	client            balancer                      lan (a bridge)
//	10.77.0.2 ─────── 10.77.0.1   10.77.1.1 ───────┬────── b1 10.77.1.11
//	            front             back             ├────── b2 10.77.1.12
//	                                               └────── …
//
// Each box and each backend is a namespace. The balancer and the backends have the VIP, 10.77.9.1, on lo.
//
// It owns the network, the subjects and how each is configured. Flows and their books are package live's.
// It needs root: CAP_SYS_ADMIN for namespaces, CAP_NET_ADMIN inside.
package lab
