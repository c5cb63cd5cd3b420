package server_test

import (
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
	os.Exit(servertest.Main(m))
}
