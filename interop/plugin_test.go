package interop

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// The package of the plug-in: its own tests, and its types against those of the software that takes it.
func TestPlugin(t *testing.T) {
	n := findNode(t)
	t.Run("tests", func(t *testing.T) {
		run := exec.Command(n.program, "--test")
		run.Dir = filepath.Join("..", "sdk", "x402")
		if out, err := run.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("types", func(t *testing.T) {
		check := exec.Command(n.program, filepath.Join(n.packages, "node_modules", "typescript", "bin", "tsc"),
			"--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom", "--skipLibCheck", "types.ts")
		check.Dir = n.workDir(t)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("manifest", func(t *testing.T) {
		for _, name := range published(t) {
			if _, err := os.Stat(filepath.Join("..", "sdk", "x402", name)); err != nil {
				t.Error(err)
			}
		}
		manifest, err := os.ReadFile(filepath.Join("..", "sdk", "x402", "package.json"))
		if err != nil || strings.Contains(string(manifest), "ependencies") {
			t.Errorf("the plug-in depends on something: %v", err)
		}
		ours := must.Get(os.ReadFile(filepath.Join("..", "LICENSE")))(t)
		packed, err := os.ReadFile(filepath.Join("..", "sdk", "x402", "LICENSE"))
		if err != nil || !slices.Contains(published(t), "LICENSE") || !bytes.Equal(packed, ours) {
			t.Errorf("the plug-in does not carry the license of the repository: %v", err)
		}
	})
}
