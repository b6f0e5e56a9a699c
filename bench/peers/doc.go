// Package peers compares userspace proxies in one run: Guideway, HAProxy, nginx, Envoy, and no proxy at all,
// each alone on one core, with the clients and backends on another, interleaved over several rounds.
// It owns load generators, sinks and the accounting of CPU and memory; it knows the proxies only by their
// configuration files and command lines.
package peers
