package interop

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/tolltest"
)

// pluginTools are the packages with which the plugin of the chat gateway is built.
var pluginTools = &set{from: filepath.Join("..", "gateway", "openclaw")}

// buildPlugin copies the plugin to a directory that is gone after the test, and compiles it there.
func buildPlugin(t *testing.T) (n node, dir string) {
	t.Helper()
	n = pluginTools.find(t)
	dir = must.Get(os.MkdirTemp(n.packages, "run"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, name := range []string{
		"LICENSE", "README.md", "openclaw.plugin.json", "package.json", "tsconfig.json", "src", "test",
	} {
		must.Do(t, copyTree(filepath.Join(pluginTools.from, name), filepath.Join(dir, name)))
	}
	tsc := exec.Command(n.program, filepath.Join(n.packages, "node_modules", "typescript", "bin", "tsc"))
	tsc.Dir = dir
	if out, err := tsc.CombinedOutput(); err != nil {
		t.Fatalf("tsc: %v\n%s", err, out)
	}
	return n, dir
}

// copyTree copies a file or a directory.
func copyTree(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

// TestOpenClawPlugin runs the tests of the plugin, which need no host: against a stand-in for the
// core, against a core of this process, and against the program, which the plugin starts.
func TestOpenClawPlugin(t *testing.T) {
	n, dir := buildPlugin(t)
	svc := tolltest.New(t, tolltest.WithPayments())
	builder := must.Get(svc.NewKey("builder"))(t)
	buyer := must.Get(svc.NewKey("buyer"))(t)
	c := newCore(t)
	token := must.Get(os.ReadFile(c.tokenFile))(t)
	given := must.Get(json.Marshal(map[string]any{
		"config":      c.fields(svc, nil),
		"token":       strings.TrimSpace(string(token)),
		"key":         "sandbox:" + buyer.Key[strings.Index(buyer.Key, ":")+1:],
		"sellerKey":   builder.Key,
		"accessToken": svc.Subscriber(10).AccessToken,
		"started": map[string]any{
			"coreUrl": "http://" + servertest.FreeAddress(t), "coreBinary": servertest.Program(t),
		},
	}))(t)
	run := exec.Command(n.program, "--test", "test/")
	run.Dir = dir
	run.Env = append(os.Environ(), "TOLL_TEST_OPENCLAW="+string(given), "TOLL_GATEWAY_DATA="+t.TempDir())
	if out, err := run.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("# skipped 0")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestOpenClawLicense: the package carries the license of the repository.
func TestOpenClawLicense(t *testing.T) {
	ours := must.Get(os.ReadFile(filepath.Join("..", "LICENSE")))(t)
	packed, err := os.ReadFile(filepath.Join(pluginTools.from, "LICENSE"))
	if err != nil || !bytes.Equal(packed, ours) {
		t.Errorf("the plugin does not carry the license of the repository: %v", err)
	}
}
