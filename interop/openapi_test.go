package interop

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
)

// TestOpenAPI_GeneratedClient: oapi-codegen generates a client of docs/openapi.json with its default options. The client compiles,
// and lists the plans of a service. The generator is the one in testdata/generated/go.mod.
func TestOpenAPI_GeneratedClient(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "generated"))))
	must.Do(t, os.MkdirAll(filepath.Join(dir, "tollapi"), 0o700))
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		var said bytes.Buffer // among others, what go downloads
		cmd.Dir, cmd.Stderr = dir, &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go %s: %v\n%s%s", strings.Join(args, " "), err, out, &said)
		}
		return string(out)
	}
	run("tool", "oapi-codegen", "-generate", "types,client", "-package", "tollapi", "-o", filepath.Join("tollapi", "client.go"),
		absolute(t, "..", "docs", "openapi.json"))
	svc := tolltest.New(t)
	key := must.Get(svc.NewKey("builder"))(t)
	if out := run("run", ".", svc.URL(), key.Key); out != string(svc.Plan())+"\n" {
		t.Errorf("plans: %s, want %s", out, svc.Plan())
	}
}
