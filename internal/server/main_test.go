package server_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/server/servertest"
)

func TestMain(m *testing.M) {
	if point, ok := strings.CutPrefix(os.Getenv(envAgentPoint), "at "); ok {
		killedAgent(point)
		return
	}
	if text := os.Getenv(envSteps); text != "" {
		steppedService(text)
		return
	}
	// Tests that run beside others wait most of the time, so there may be more of them than processors, unless the command line says
	// otherwise.
	flag.Parse()
	if beside := flag.Lookup("test.parallel"); beside.Value.String() == beside.DefValue {
		_ = beside.Value.Set("8") // a number
	}
	os.Exit(servertest.Main(m))
}
