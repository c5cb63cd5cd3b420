package chain_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

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
	// It ends before this process does, so that what it says about the test that hangs is seen.
	left := 15 * time.Minute
	if end, ok := t.Deadline(); ok {
		left = max(time.Until(end)-time.Minute, time.Minute)
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.timeout="+left.String())
	again.Env = append(os.Environ(), chaintest.Variable+"=anvil")
	out, err := again.CombinedOutput()
	if err == nil {
		return
	}
	t.Errorf("on anvil: %v\n%s", err, failures(string(out), 300))
}

var (
	failedTest = regexp.MustCompile(`^\s*--- FAIL: |^panic: |^\trunning tests:|^\t\tTest|^FAIL|^fatal error: |^WARNING: DATA RACE`)
	whyFailed  = regexp.MustCompile(`^\s+\w+_test\.go:\d+: `)
)

// failures are the lines in the output of a test process that say which tests failed, before those that say why, at most so many.
// What the code under test has logged comes last, the end of it.
func failures(out string, most int) string {
	var which, why, logged []string
	for line := range strings.Lines(out) {
		switch {
		case failedTest.MatchString(line):
			which = append(which, line)
		case whyFailed.MatchString(line):
			why = append(why, line)
		default:
			logged = append(logged, line)
		}
	}
	all := append(which, why...)
	if rest := most - len(all); rest > 0 {
		all = append(all, logged[max(len(logged)-rest, 0):]...)
	}
	return strings.Join(all[:min(most, len(all))], "")
}

func TestOnAnvil_TellsWhichTestFailed(t *testing.T) {
	noise := strings.Repeat("    sends_test.go:1: a line of a test that fails\n", 400) + strings.Repeat("time=1 level=WARN msg=noise\n", 400)
	out := noise + "--- FAIL: TestOne (0.10s)\n    --- FAIL: TestOne/first (0.05s)\n" + noise + "panic: test timed out after 1m0s\n\trunning tests:\n\t\tTestTwo (1m0s)\n"
	lines := strings.SplitAfter(failures(out, 50), "\n")
	want := []string{"--- FAIL: TestOne (0.10s)\n", "    --- FAIL: TestOne/first (0.05s)\n", "panic: test timed out after 1m0s\n", "\trunning tests:\n", "\t\tTestTwo (1m0s)\n"}
	if len(lines) != 51 || strings.Join(lines[:len(want)], "") != strings.Join(want, "") {
		t.Errorf("%d lines, the first ones:\n%s", len(lines), strings.Join(lines[:min(10, len(lines))], ""))
	}
}
