package devchain

import (
	"os/exec"
	"strings"
	"testing"
)

// Without the embedded chain a program links no node, no miner and no database of one, and still has every method.
func TestTagLeavesTheNodeOut(t *testing.T) {
	list := func(tags ...string) string {
		out, err := exec.Command("go", append(append([]string{"list", "-deps"}, tags...), ".")...).CombinedOutput()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, out)
		}
		return "\n" + string(out)
	}
	with, without := list(), list("-tags", "nodevchain")
	for _, path := range []string{"eth", "node", "miner", "core/rawdb", "core/vm", "p2p"} {
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
