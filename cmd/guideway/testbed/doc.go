// Package testbed runs load balancers for tests: Envoy or Guideway as the
// subject of one and the same test, in network namespaces of their own, in front of fake hosts.
//
// Only tests import it. It knows command lines, admin addresses and bootstraps, and nothing of Guideway's
// packages: what it drives is the built program.
//
// Environment:
//
//	GUIDEWAY_TEST_SUBJECT  envoy or guideway (default): the program that tests of recorded behaviour drive
//	GUIDEWAY_ENVOY         the Envoy to use; default: envoy in PATH, then .venv/bin/envoy at the root of the repository
//	GUIDEWAY_BINARY        a guideway built beforehand; default: built once for each test binary
//	GUIDEWAY_TEST_RACE     1: build guideway with the race detector
//	GUIDEWAY_TEST_NO_SKIP  1: a test that would be skipped for want of a privilege or program fails
package testbed
