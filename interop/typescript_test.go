package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/rounds"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/paid"
)

// typescriptTools is what the package @tollhq/toll is built and tested with.
var typescriptTools = &set{from: filepath.Join("..", "sdk", "typescript")}

// sdkProject is the package @tollhq/toll, built in a directory of the test.
type sdkProject struct {
	node
	dir string
}

// projectTime bounds a program of the project.
const projectTime = 5 * time.Minute

// newSDKProject builds the package in a directory beside its tools.
func newSDKProject(t *testing.T) sdkProject {
	t.Helper()
	n := typescriptTools.find(t)
	dir := must.Get(os.MkdirTemp(n.packages, "sdk"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, name := range []string{"src", "test", "scripts", "examples"} {
		from := os.DirFS(filepath.Join(typescriptTools.from, name))
		must.Do(t, os.CopyFS(filepath.Join(dir, name), from))
	}
	for _, name := range []string{"package.json", "tsconfig.json", "tsdown.config.ts", "README.md", "LICENSE"} {
		text := must.Get(os.ReadFile(filepath.Join(typescriptTools.from, name)))(t)
		must.Do(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	p := sdkProject{n, dir}
	p.must(t, nil, n.module("tsdown/dist/run.mjs"))
	return p
}

// run runs a program of node in the project and returns what it prints.
func (p sdkProject) run(ctx context.Context, env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, projectTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.program, args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("node %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

func (p sdkProject) must(t *testing.T, env []string, args ...string) string {
	t.Helper()
	return must.Get(p.run(t.Context(), env, args...))(t)
}

// part is a program of the project that runs beside the test until it is waited for.
type part struct {
	name string
	done chan struct{}
	out  string
	err  error
}

// parts runs programs of the project side by side. They mostly wait: more of them run at a time than parallel tests of Go.
type parts struct {
	slots chan struct{}
	all   []*part
}

// begin starts a program with its arguments, or the tests of a file.
func (p *parts) begin(t *testing.T, project sdkProject, name string, env []string, args ...string) {
	t.Helper()
	if strings.HasSuffix(args[0], ".test.mjs") {
		args = []string{"--test", "--test-reporter=spec", filepath.Join(project.dir, "test", args[0])}
	}
	one := &part{name: name, done: make(chan struct{})}
	p.all = append(p.all, one)
	ctx := t.Context()
	go func() {
		defer close(one.done)
		p.slots <- struct{}{}
		defer func() { <-p.slots }()
		one.out, one.err = project.run(ctx, env, args...)
	}()
}

// wait ends when all programs have ended. Each is a subtest.
func (p *parts) wait(t *testing.T) {
	for _, one := range p.all {
		t.Run(one.name, func(t *testing.T) {
			if <-one.done; one.err != nil {
				t.Fatal(one.err)
			}
			t.Log(one.out)
		})
	}
}

func absolute(t *testing.T, path ...string) string {
	t.Helper()
	return must.Get(filepath.Abs(filepath.Join(path...)))(t)
}

// frameworks are those in which test/paid.test.mjs sells, each with a service of its own.
var frameworks = []string{"web", "express", "hono", "fastify", "next"}

// TestTypeScript builds the package @tollhq/toll and runs its tests, which are in sdk/typescript/test. In make test-all they
// also run on another Node, and parts of them in workerd, Bun, Deno, a browser and an application of Next.
func TestTypeScript(t *testing.T) {
	t.Run("typescript", func(t *testing.T) {
		p := newSDKProject(t)
		env := []string{
			"TOLL_OPENAPI=" + absolute(t, "..", "docs", "openapi.json"),
			"TOLL_PAGE=" + absolute(t, "..", "docs", "TYPESCRIPT.md"),
			"TOLL_REFERENCE=" + absolute(t, "..", "docs", "TYPESCRIPT-REFERENCE.md"),
			"TOLL_BIN=" + servertest.Program(t),
			"TOLL_CONFORMANCE=" + absolute(t, "..", "testdata", "conformance"),
			"TOLL_STAGE=" + conformanceStage(t),
			"TOLL_BUILDERS=" + builderCases(t),
		}
		run := &parts{slots: make(chan struct{}, 4)}
		p.begin(t, run, "", env)
		if rounds.All() {
			p.elsewhere(t, run, env)
		}
		t.Run("matrix", func(t *testing.T) {
			m := p.matrix()
			m.service = inside(t, server.Config{})
			m.run(t)
			if !rounds.All() {
				return
			}
			python := pythonMatrix(t)
			python.service = m.service
			t.Run("TypeScript pays Python", func(t *testing.T) { python.meet(t, m) })
			t.Run("Python pays TypeScript", func(t *testing.T) { m.meet(t, python) })
		})
		t.Run("wallet", p.walletPays)
		run.wait(t)
	})
}

// matrix is the examples of the package.
func (p sdkProject) matrix() matrix {
	return matrix{
		dir:    filepath.Join(p.dir, "examples"),
		buyer:  []string{p.program, "buyer.mjs"},
		seller: func(_, _ string) []string { return []string{p.program, "express-agent.mjs"} },
	}
}

// begin starts all tests of the package on the node of the project. The longest come first.
func (p sdkProject) begin(t *testing.T, run *parts, where string, env []string) {
	t.Helper()
	begin := func(name string, more []string, args ...string) {
		run.begin(t, p, where+name, append(slices.Clone(env), more...), args...)
	}
	files, err := filepath.Glob(filepath.Join(p.dir, "test", "*.test.mjs"))
	if err != nil || len(files) == 0 {
		t.Fatal("no tests", err)
	}
	for _, name := range frameworks {
		begin("paid "+name, []string{"TOLL_FRONT=" + name}, "paid.test.mjs")
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".test.mjs")
		if name != "paid" && name != "runtimes" {
			begin(name, nil, filepath.Base(file))
		}
	}
	begin("generated", nil, "scripts/generate.mjs", "--check")
	begin("reference", nil, "scripts/reference.mjs", "--check")
	begin("types", nil, p.module("typescript-7/bin/tsc"), "--noEmit")
	begin("types of others", nil, p.module("typescript-7/bin/tsc"), "-p", "test/types")
}

// runtimes are the runtimes and the framework of the long tests.
var runtimes = &set{from: "runtimes"}

// elsewhere starts the tests of the package on another Node, the conformance files on other runtimes, and the middleware in an
// application of Next. Files of conformance move the clock of a service and sign people up, of whom an address has few, so that each
// of them has services of its own.
func (p sdkProject) elsewhere(t *testing.T, run *parts, env []string) {
	t.Helper()
	n := runtimes.find(t)
	other := sdkProject{n.recent(t), p.dir}
	other.packages = p.packages
	with := func(more ...string) []string { return append(slices.Clone(env), more...) }
	other.begin(t, run, "on another node ", with("TOLL_STAGE="+conformanceStage(t)))
	chromium := must.Get(findChromium())(t)
	// Names of the same machine.
	names := map[string][3]string{"amd64": {"64", "x64", "x64"}, "arm64": {"arm64", "aarch64", "arm64"}}[runtime.GOARCH]
	for name, program := range map[string]string{
		"chromium": chromium,
		"workerd":  n.module("@cloudflare/workerd-linux-" + names[0] + "/bin/workerd"),
		"bun":      n.module("@oven/bun-linux-" + names[1] + "/bin/bun"),
		"deno":     n.module("@deno/linux-" + names[2] + "-glibc/deno"),
	} {
		must.Get(os.Stat(program))(t)
		run.begin(t, p, name, with("TOLL_STAGE="+conformanceStage(t), "TOLL_"+strings.ToUpper(name)+"="+program), "runtimes.test.mjs")
	}
	run.begin(t, p, "paid express4", with("TOLL_FRONT=express4"), "paid.test.mjs")
	app := p.nextApp(t, n)
	run.begin(t, p, "paid in an application of Next", with("TOLL_FRONT=application", "TOLL_NEXT="+app), "paid.test.mjs")
}

// nextApp builds the application of test/next with the package as it is published, and returns its directory.
func (p sdkProject) nextApp(t *testing.T, n node) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp(n.packages, "next"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	installed := filepath.Join(dir, "node_modules", "@tollhq", "toll")
	for to, from := range map[string]string{dir: "test/next", filepath.Join(installed, "dist"): "dist"} {
		must.Do(t, os.CopyFS(to, os.DirFS(filepath.Join(p.dir, from))))
	}
	manifest, err := os.ReadFile(filepath.Join(p.dir, "package.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(installed, "package.json"), manifest, 0o644)
	}
	must.Do(t, err)
	builder := sdkProject{n, dir}
	builder.program = p.program
	builder.must(t, []string{"NEXT_TELEMETRY_DISABLED=1", "CI=1"}, n.module("next/dist/bin/next"), "build")
	return dir
}

// walletPays has a wallet of viem pay an agent of this module in USDC. The money has moved on the chain once, for the answer that
// came, and not for one that failed or that costs more than the buyer allows.
func (p sdkProject) walletPays(t *testing.T) {
	s := sell(t, openMarket(t, cast(t)), 100)
	plan := paid.Plan(s.plan)
	f := s.service.client(s.builder)
	price := func(cents int64) paid.Option {
		return paid.PerCall(paid.Exact{Currency: toll.CurrencyUSDC, Amount: toll.UnitsOf(cents * 10_000)})
	}
	fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "it failed", http.StatusTeapot) })
	mux := http.NewServeMux()
	url := serve(t, mux)
	var runs atomic.Int64
	at := paid.PublicURL(url)
	mux.Handle("POST /ask", paid.Handler(f, content(&runs), plan, at, paid.Credits(2), price(2)))
	mux.Handle("POST /fails", paid.Handler(f, fails, plan, at, paid.Credits(2), price(2)))
	mux.Handle("POST /dear", paid.Handler(f, content(&runs), plan, at, paid.Credits(2), price(6)))
	buy := func(url string) (string, error) {
		return p.run(t.Context(), []string{"WALLET_KEY=" + s.key}, "examples/wallet-buyer.mjs", url, "hello")
	}
	out, err := buy(url + "/ask")
	said := regexp.MustCompile(`^200 {"answer":42}\npaid 20000n? USDC (0x[0-9a-f]{64})\n$`).FindStringSubmatch(out)
	if err != nil || said == nil {
		t.Fatalf("%v %q", err, out)
	}
	moved := s.moved()
	if amount := fmt.Sprintf("0x%064x", 20_000); len(moved) != 1 || moved[0].TransactionHash != said[1] || moved[0].Data != amount {
		t.Errorf("%s has moved %+v", said[1], moved)
	}
	if out, err := buy(url + "/fails"); err != nil || !strings.HasPrefix(out, "418 it failed") {
		t.Errorf("%v %q", err, out)
	}
	if _, err := buy(url + "/dear"); err == nil || !strings.Contains(err.Error(), "limit for one request is 50000") {
		t.Error(err)
	}
	// The service sells a plan for a dollar, which is too dear as well.
	if _, err := buy(s.order.ask); err == nil || !strings.Contains(err.Error(), "limit for one request is 50000") {
		t.Error(err)
	}
	if n := runs.Load(); n != 1 || s.transfers() != 1 {
		t.Errorf("%d runs, %d transfers", n, s.transfers())
	}
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
	off := server.Config{Rails: rails.Config{Chain: rails.ChainConfig{Mode: rails.ChainOff}, Card: rails.CardConfig{Mode: rails.CardOff}}}
	limited := off
	limited.RateLimitKey, limited.RateLimitIP = 1, 1
	for need, cfg := range map[string]server.Config{
		"":               off,
		"embedded-chain": {Rails: rails.Config{Chain: rails.ChainConfig{Mode: rails.ChainEmbedded, Mirror: true}}},
		"rail":           {Rails: rails.Config{Given: rail.Rails{rail.Crypto: railtest.New(), rail.Card: page}}},
		"rate-limit":     limited,
	} {
		ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		cfg.Data, cfg.Listen, cfg.Release, cfg.LoopbackWebhooks = storetest.Dir(t), ln.Addr().String(), "1.1.0", true
		srv := must.Get(server.New(t.Context(), cfg))(t)
		ctx, stop := context.WithCancel(context.Background())
		stopped := make(chan error, 1)
		go func() { stopped <- srv.Serve(ctx, ln) }()
		t.Cleanup(func() {
			stop()
			must.Check(t, <-stopped)
			must.Check(t, srv.Close(context.Background()))
		})
		running[need] = srv
		services[need] = stand{srv.PublicURL(), keys.URL + "/?service=" + need}
	}
	text := must.Get(json.Marshal(map[string]any{"services": services}))(t)
	return string(text)
}
