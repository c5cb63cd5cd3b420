package chain_test

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
)

// The tests that do not name the kind of their chain run once more on anvil, in a process of its own.
func TestOnAnvil(t *testing.T) {
	if os.Getenv(chaintest.Variable) != "" {
		return
	}
	t.Parallel()
	chaintest.StartAnvil(t, contracts.BaseSepolia) // says what is missing where it cannot be had
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.timeout=12m", "-test.v")
	again.Env = append(os.Environ(), chaintest.Variable+"=anvil")
	out, err := again.CombinedOutput()
	if err == nil {
		return
	}
	failed := regexp.MustCompile(`(?m)^\s*(--- FAIL|panic:|\w+_test\.go:\d+:).*$`).FindAllString(string(out), 50)
	t.Errorf("on anvil: %v", err)
	for _, line := range failed {
		t.Error(line)
	}
}
