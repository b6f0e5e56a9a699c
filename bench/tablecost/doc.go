// Package tablecost measures what Maglev tables cost: the time to build one, the time
// to put it in force in a data plane, and the memory both take, by table size and
// number of hosts.
//
// It owns the measuring. What it must not know: any data plane but through Target.
package tablecost
