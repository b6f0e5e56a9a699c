// Package scheme places keys on backends in the ways load balancers do, so that
// they can be compared on the same keys: modulo, rings, rendezvous, jump,
// bounded loads, fixed slots and Maglev.
//
// It owns the schemes and their names. What it must not know: which changes are
// made to a set of backends, what is counted, how results are shown.
package scheme
