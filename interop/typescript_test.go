package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/crypto"
	"github.com/tollhq/toll/internal/fiat"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
)

// typescriptTools is what the package @tollhq/toll is built and tested with.
var typescriptTools = &set{from: filepath.Join("..", "sdk", "typescript")}

// sdkProject is the package @tollhq/toll, built in a directory of the test.
type sdkProject struct {
	node
	dir string
}

// newSDKProject builds the package in a directory beside its tools.
func newSDKProject(t *testing.T) sdkProject {
	t.Helper()
	n := typescriptTools.find(t)
	dir, err := os.MkdirTemp(n.packages, "sdk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, name := range []string{"src", "test", "scripts", "examples"} {
		from := os.DirFS(filepath.Join(typescriptTools.from, name))
		if err := os.CopyFS(filepath.Join(dir, name), from); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"package.json", "tsconfig.json", "tsdown.config.ts", "README.md", "LICENSE"} {
		text, err := os.ReadFile(filepath.Join(typescriptTools.from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := sdkProject{n, dir}
	p.run(t, nil, filepath.Join(n.packages, "node_modules", "tsdown", "dist", "run.mjs"))
	return p
}

// run runs a program of node in the project and returns what it prints.
func (p sdkProject) run(t *testing.T, env []string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.program, args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("node %s: %v\n%s", strings.Join(args, " "), err, out.String())
	}
	return out.String()
}

// test runs test files of the package.
func (p sdkProject) test(t *testing.T, env []string, files ...string) {
	t.Helper()
	t.Log(p.run(t, env, append([]string{"--test", "--test-reporter=spec"}, files...)...))
}

func absolute(t *testing.T, path ...string) string {
	t.Helper()
	out, err := filepath.Abs(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTypeScript builds the package @tollhq/toll and runs its tests. They are in sdk/typescript/test.
func TestTypeScript(t *testing.T) {
	t.Run("typescript", func(t *testing.T) {
		p := newSDKProject(t)
		openapi := "TOLL_OPENAPI=" + absolute(t, "..", "docs", "openapi.json")
		bin := "TOLL_BIN=" + servertest.Program(t)
		page := "TOLL_PAGE=" + absolute(t, "..", "docs", "TYPESCRIPT.md")
		t.Run("types", func(t *testing.T) {
			t.Parallel()
			p.run(t, []string{openapi}, "scripts/generate.mjs", "--check")
			p.run(t, nil, filepath.Join(p.packages, "node_modules", "typescript", "bin", "tsc"), "--noEmit")
		})
		files, err := filepath.Glob(filepath.Join(p.dir, "test", "*.test.mjs"))
		if err != nil || len(files) == 0 {
			t.Fatal("no tests", err)
		}
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".test.mjs")
			if name == "conformance" {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p.test(t, []string{openapi, bin, page}, file)
			})
		}
		t.Run("matrix", func(t *testing.T) {
			t.Parallel()
			matrix{
				service: inside(t, server.Config{}),
				dir:     filepath.Join(p.dir, "examples"),
				buyer:   []string{p.program, "buyer.mjs"},
				seller:  func(_, _ string) []string { return []string{p.program, "express-agent.mjs"} },
			}.run(t)
		})
		t.Run("conformance", func(t *testing.T) {
			t.Parallel()
			stage := "TOLL_STAGE=" + conformanceStage(t)
			files := "TOLL_CONFORMANCE=" + absolute(t, "..", "testdata", "conformance")
			p.test(t, []string{stage, files}, filepath.Join(p.dir, "test", "conformance.test.mjs"))
		})
	})
}

// conformanceStage starts a service of each kind that testdata/conformance/README.md names, and
// returns as JSON where they are and where the runner gets API keys for them.
func conformanceStage(t *testing.T) string {
	t.Helper()
	type stand struct {
		URL  string `json:"url"`
		Keys string `json:"keys"`
	}
	services := map[string]stand{}
	running := map[string]*server.Server{}
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		key, err := running[q.Get("service")].CreateKey(r.Context(), server.KeyRequest{
			Account: q.Get("account"), Operator: q.Get("operator") == "true",
		})
		if err == nil {
			err = json.NewEncoder(w).Encode(key)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	t.Cleanup(keys.Close)
	page := railtest.New()
	page.Behave(railtest.Behaviour{Person: true})
	off := server.Config{Chain: crypto.Config{Mode: crypto.Off}, Card: fiat.Config{Mode: fiat.Off}}
	limited := off
	limited.RateLimitKey, limited.RateLimitIP = 1, 1
	for need, cfg := range map[string]server.Config{
		"":               off,
		"embedded-chain": {Chain: crypto.Config{Mode: crypto.Embedded, Mirror: true}},
		"rail":           {Rails: checkout.Rails{Crypto: railtest.New(), Card: page}},
		"rate-limit":     limited,
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cfg.Data, cfg.Listen, cfg.Release, cfg.LoopbackWebhooks = t.TempDir(), ln.Addr().String(), "1.1.0", true
		srv, err := server.New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		stopped := make(chan error, 1)
		go func() { stopped <- srv.Serve(ctx, ln) }()
		t.Cleanup(func() {
			stop()
			if err := <-stopped; err != nil {
				t.Error(err)
			}
			if err := srv.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		running[need] = srv
		services[need] = stand{srv.PublicURL(), keys.URL + "/?service=" + need}
	}
	text, err := json.Marshal(map[string]any{"services": services})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
