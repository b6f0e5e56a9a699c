// Package plan says what a change costs: which slots of which tables move, how many of them had to, and
// what becomes of the flows there are. It compares two snapshots, whether the newer one is in force
// already or only thought of, so that a plan and the record of what happened are made by one rule. It knows
// nothing of configuration files, health checks or sockets.
package plan
