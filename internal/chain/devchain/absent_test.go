package devchain

import (
	"os/exec"
	"strings"
	"testing"
)

// dependencies lists the packages of a program, one for each line.
func dependencies(t *testing.T, program string, flags ...string) string {
	t.Helper()
	arguments := append(append([]string{"list", "-deps"}, flags...), program)
	out, err := exec.Command("go", arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	return "\n" + string(out)
}

// A program without the embedded chain links no interpreter, no pool and no database of a chain, and has every method.
func TestTagLeavesTheChainOut(t *testing.T) {
	with, without := dependencies(t, "."), dependencies(t, ".", "-tags", "nodevchain")
	for _, path := range []string{"core", "core/rawdb", "core/txpool/legacypool", "core/vm", "ethdb/leveldb", "miner"} {
		line := "\ngithub.com/ethereum/go-ethereum/" + path + "\n"
		if !strings.Contains(with, line) {
			t.Errorf("the chain does not link %s any more", path)
		}
		if strings.Contains(without, line) {
			t.Errorf("%s is linked without the chain", path)
		}
	}
	if out, err := exec.Command("go", "build", "-tags", "nodevchain", ".").CombinedOutput(); err != nil {
		t.Errorf("go build: %v\n%s", err, out)
	}
}

// A node of Ethereum is a fifth of the time that the program takes to compile.
func TestProgramLinksNoNode(t *testing.T) {
	for path := range strings.Lines(dependencies(t, "../../../cmd/toll")) {
		path = strings.TrimSpace(path)
		for _, node := range []string{
			"github.com/ethereum/go-ethereum/node", "github.com/ethereum/go-ethereum/eth", "github.com/ethereum/go-ethereum/eth/filters",
			"github.com/ethereum/go-ethereum/p2p",
		} {
			if path == node {
				t.Errorf("the program links %s", path)
			}
		}
		for _, prefix := range []string{"github.com/cockroachdb/", "github.com/pion/", "github.com/getsentry/", "github.com/gogo/"} {
			if strings.HasPrefix(path, prefix) {
				t.Errorf("the program links %s", path)
			}
		}
	}
}
