package main_test

import (
	"os"
	"testing"

	"github.com/guideway/guideway/cmd/guideway/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

func TestAcceptedDeviationsAreDocumented(t *testing.T) {
	testbed.CheckDeviations(t, "../../docs/envoy-differences.md")
}
