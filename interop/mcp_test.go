package interop

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
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

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/paidmcp"
)

// recent is the node of the packages, which is newer than that of the system.
func (n node) recent(t *testing.T) node {
	t.Helper()
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	program := filepath.Join(n.packages, "node_modules", "node-"+runtime.GOOS+"-"+arch, "bin", "node")
	if _, err := os.Stat(program); err != nil {
		t.Skipf("not run: a node of version 22 cannot be had for %s", runtime.GOARCH)
	}
	return node{program, n.packages}
}

func (n node) module(name string) string {
	return filepath.Join(n.packages, "node_modules", filepath.FromSlash(name))
}

// managed is a paid MCP server with the tool ask for 5 credits, and everything else for nothing.
type managed struct {
	*scene
	url  string // of /mcp
	runs *atomic.Int64
}

func openManaged(t *testing.T, s *service, cfg paidmcp.ServerConfig) *managed {
	t.Helper()
	m := &managed{runs: new(atomic.Int64)}
	m.scene = newScene(t, s, nil, func(s *setting) { s.resource, s.max = "mcp://demo/tools/*", 100 })
	var handler http.Handler
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	t.Cleanup(front.Close)
	cfg.BaseURL, cfg.ServiceURL = front.URL, s.url
	p := paidmcp.New(s.client(s.builder), paidmcp.Config{PlanID: m.plan, AgentID: m.agent, ServerName: "demo"})
	tools := mcp.NewServer(&mcp.Implementation{Name: "demo", Version: "1.0.0"}, everythingOptions())
	everything(p, tools)
	paidmcp.AddTool(p, tools, &mcp.Tool{Name: "ask", Description: "Ask the agent"},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			m.runs.Add(1)
			return said("42"), nil, nil
		}, paidmcp.Credits(5))
	srv := must.Get(paidmcp.NewServer(p, tools, cfg))(t)
	t.Cleanup(func() {
		must.Check(t, srv.Close(context.Background()))
	})
	handler, m.url = srv.Handler(), front.URL+"/mcp"
	return m
}

func (m *managed) ended(runs int64, balance int64) {
	m.Helper()
	b, err := m.client(m.subscriber).Balance(m.Context(), m.plan)
	if err != nil || int64(b.Balance) != balance || b.Held != 0 || m.runs.Load() != runs {
		m.Errorf("%d runs, balance %+v: %v", m.runs.Load(), b, err)
	}
}

// rpc is one call that the program makes.
type rpc struct {
	Method string         `json:"method"`
	Params map[string]any `json:"params"`
}

func ask(meta map[string]any) rpc {
	params := map[string]any{"name": "ask", "arguments": map[string]any{}}
	if meta != nil {
		params["_meta"] = meta
	}
	return rpc{"tools/call", params}
}

// line is what the program prints.
type line struct {
	Tools  []string
	Open   string
	Tokens *struct {
		Type    string
		Expires int
		Refresh bool
	}
	Result *struct {
		Content           []struct{ Text string }
		IsError           bool
		StructuredContent map[string]any
		Meta              map[string]any `json:"_meta"`
	}
	Error *struct {
		Code    int
		Message string
		Data    map[string]any
	}
}

func (l line) paid() bool {
	r := l.Result
	if r == nil || r.IsError || len(r.Content) != 1 || r.Content[0].Text != "42" {
		return false
	}
	receipt, _ := r.Meta["x402/payment-response"].(map[string]any)
	credits, _ := r.Meta["service/credits"].(map[string]any)
	return receipt["success"] == true && receipt["creditsRedeemed"] == "5" && credits["txHash"] == receipt["transaction"]
}

// typescript runs the client of the TypeScript SDK. opened is called with the page that a person has to open, and returns the
// code with which the client goes on.
func typescript(t *testing.T, command map[string]any, opened func(page string) string) []line {
	t.Helper()
	n := mcpClients.find(t)
	dir := must.Get(os.MkdirTemp(n.packages, "run"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, err := os.ReadFile(filepath.Join("mcp", "client.mjs"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "client.mjs"), program, 0o644)
	}
	must.Do(t, err)
	text := must.Get(json.Marshal(command))(t)
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, n.program, filepath.Join(dir, "client.mjs"), string(text))
	log := &servertest.Log{}
	cmd.Stderr = log
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	var lines []line
	for reader := bufio.NewScanner(out); reader.Scan(); {
		var l line
		must.Do(t, json.Unmarshal(reader.Bytes(), &l), reader.Text())
		if l.Open != "" {
			must.Get(in.Write([]byte(opened(l.Open) + "\n")))(t)
		}
		lines = append(lines, l)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	return lines
}

// The client of the TypeScript SDK, without and with a sign-in.
func TestTypeScriptSDK(t *testing.T) {
	t.Parallel()
	mcpClients.find(t)
	s := run(t, servertest.Options{})
	t.Run("in band", func(t *testing.T) {
		m := openManaged(t, s, paidmcp.ServerConfig{})
		lines := typescript(t, map[string]any{"url": m.url, "calls": []rpc{
			ask(nil), ask(map[string]any{"x402/payment": m.token}), ask(map[string]any{"x402/payment": "nonsense"}),
			{"prompts/get", map[string]any{"name": "test_simple_prompt"}},
		}}, nil)
		if len(lines) != 5 || !slices.Contains(lines[0].Tools, "ask") {
			t.Fatalf("%+v", lines)
		}
		for _, i := range []int{1, 3} {
			r := lines[i].Result
			if r == nil || !r.IsError || !strings.HasPrefix(r.StructuredContent["error"].(string), "payment required") {
				t.Errorf("unpaid: %+v", r)
			}
		}
		if !lines[2].paid() || lines[4].Result == nil || lines[4].Result.IsError {
			t.Errorf("paid: %+v, free: %+v", lines[2].Result, lines[4])
		}
		m.ended(1, 95)
	})
	t.Run("signed in", func(t *testing.T) {
		m := openManaged(t, s, paidmcp.ServerConfig{RequireSignIn: true})
		const callback = "http://127.0.0.1:8977/callback"
		lines := typescript(t, map[string]any{
			"url": m.url, "signIn": map[string]any{"callback": callback}, "calls": []rpc{ask(nil), ask(nil)}, "reconnect": 1,
		}, func(page string) string { return consent(t, page, s.subscriber.Key, callback, string(m.plan)) })
		var opened, tokens int
		for _, l := range lines {
			if l.Open != "" {
				opened++
			}
			if l.Tokens != nil {
				if tokens++; !strings.EqualFold(l.Tokens.Type, "bearer") || l.Tokens.Expires <= 0 || !l.Tokens.Refresh {
					t.Errorf("%+v", l.Tokens)
				}
			}
		}
		if last := lines[len(lines)-2:]; opened != 1 || tokens != 1 || !last[0].paid() || !last[1].paid() {
			t.Errorf("%d pages, %d tokens: %+v", opened, tokens, lines)
		}
		m.ended(2, 90)
	})
}

var (
	mainOf    = regexp.MustCompile(`(?s)<main>.*</main>`)
	formOf    = regexp.MustCompile(`<form method="post" action="([^"]*)">`)
	fieldOf   = regexp.MustCompile(`<input [^>]*>`)
	selectOf  = regexp.MustCompile(`(?s)<select [^>]*name="([^"]*)"[^>]*>(.*?)</select>`)
	optionOf  = regexp.MustCompile(`<option value="([^"]*)"( selected)?>`)
	attribute = regexp.MustCompile(`([a-z-]+)="([^"]*)"`)
)

// consent does what a person does on the pages of the service: signs in, chooses the plan, and lets the program have what it
// asks for. It returns the code that goes back to the program.
func consent(t *testing.T, page, key, callback, plan string) string {
	t.Helper()
	jar := must.Get(cookiejar.New(nil))(t)
	at := must.Get(url.Parse(page))(t)
	origin := at.Scheme + "://" + at.Host
	h := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	form := url.Values(nil)
	for range 8 {
		method, body := http.MethodGet, ""
		if form != nil {
			method, body = http.MethodPost, form.Encode()
		}
		req, err := http.NewRequest(method, at.String(), strings.NewReader(body))
		must.Do(t, err)
		if form != nil {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			req.Header.Set("Origin", origin)
		}
		res := must.Get(h.Do(req))(t)
		text := new(strings.Builder)
		_, err = bufio.NewReader(res.Body).WriteTo(text)
		res.Body.Close()
		must.Do(t, err)
		// The page after the consent sends the browser on by itself.
		if to := cmp.Or(res.Header.Get("Location"), strings.TrimPrefix(res.Header.Get("Refresh"), "0; url=")); to != "" {
			next := must.Get(at.Parse(to))(t)
			if strings.HasPrefix(to, callback) {
				if next.Query().Get("state") != "state-of-the-client" || next.Query().Get("iss") == "" {
					t.Errorf("the program gets %s", to)
				}
				return next.Query().Get("code")
			}
			at, form = next, nil
			continue
		}
		shown := mainOf.FindString(text.String())
		action := formOf.FindStringSubmatch(shown)
		if res.StatusCode != http.StatusOK || action == nil {
			t.Fatalf("%s: %d %s", at.Path, res.StatusCode, shown)
		}
		form = fill(shown, key, plan)
		at = must.Get(at.Parse(html.UnescapeString(action[1])))(t)
	}
	t.Fatal("the pages lead nowhere")
	return ""
}

// fill returns the form of a page as it is shown, with the key and the plan where it asks for them.
func fill(shown, key, plan string) url.Values {
	form := url.Values{}
	for _, tag := range fieldOf.FindAllString(shown, -1) {
		a := map[string]string{}
		for _, m := range attribute.FindAllStringSubmatch(tag, -1) {
			a[m[1]] = html.UnescapeString(m[2])
		}
		if a["type"] != "radio" || strings.HasSuffix(tag, " checked>") || a["value"] == plan {
			form.Set(a["name"], a["value"])
		}
	}
	for _, m := range selectOf.FindAllStringSubmatch(shown, -1) {
		for i, o := range optionOf.FindAllStringSubmatch(m[2], -1) {
			if i == 0 || o[2] != "" || o[1] == plan {
				form.Set(m[1], html.UnescapeString(o[1]))
			}
		}
	}
	if form.Has("api_key") {
		form.Set("api_key", key)
	}
	if strings.Contains(shown, `name="decision"`) {
		form.Set("decision", "approve")
	}
	return form
}

// The inspector's command line lists and calls with a bearer token, and is told what an unpaid call costs. A server that wants a
// sign-in lets it in with a token of the authorization server alone.
func TestInspector(t *testing.T) {
	t.Parallel()
	n := mcpClients.find(t).recent(t)
	s := run(t, servertest.Options{})
	inspect := func(t *testing.T, address string, args ...string) (string, error) {
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		defer stop()
		cmd := exec.CommandContext(ctx, n.program, append([]string{
			filepath.Join(n.module("@modelcontextprotocol/inspector"), "clients", "launcher", "build", "index.js"), "--cli", address, "--transport", "http"}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "PATH="+filepath.Dir(n.program)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	ask := []string{"--method", "tools/call", "--tool-name", "ask"}
	paid := func(t *testing.T, address, token string) {
		t.Helper()
		out, err := inspect(t, address, append(slices.Clone(ask), "--header", "Authorization: Bearer "+token)...)
		if err != nil || !strings.Contains(out, `"42"`) || !strings.Contains(out, "x402/payment-response") {
			t.Errorf("paid: %v\n%s", err, out)
		}
	}
	t.Run("with a token", func(t *testing.T) {
		m := openManaged(t, s, paidmcp.ServerConfig{})
		if out, err := inspect(t, m.url, "--method", "tools/list"); err != nil || !strings.Contains(out, `"ask"`) {
			t.Errorf("%v\n%s", err, out)
		}
		if out, _ := inspect(t, m.url, ask...); !strings.Contains(out, "payment required") || !strings.Contains(out, string(m.plan)) {
			t.Errorf("unpaid: %s", out)
		}
		paid(t, m.url, m.token)
		m.ended(1, 95)
	})
	t.Run("signed in", func(t *testing.T) {
		m := openManaged(t, s, paidmcp.ServerConfig{RequireSignIn: true})
		if out, err := inspect(t, m.url, "--method", "tools/list"); err == nil || strings.Contains(out, `"ask"`) {
			t.Errorf("without a sign-in: %s", out)
		}
		paid(t, m.url, m.signIn())
		m.ended(1, 95)
	})
}

// signIn gets an access token for the server as a program does that registers itself and opens a page.
func (m *managed) signIn() string {
	m.Helper()
	const callback, verifier = "http://127.0.0.1:8978/callback", "a-verifier-of-at-least-forty-three-characters"
	post := func(path, kind, body string, out any) {
		m.Helper()
		res := must.Get(http.Post(m.service.url+path, kind, strings.NewReader(body)))(m)
		defer res.Body.Close()
		if err := json.NewDecoder(res.Body).Decode(out); err != nil || res.StatusCode > 299 {
			m.Fatalf("%s: %d %v %+v", path, res.StatusCode, err, out)
		}
	}
	var client struct {
		ID string `json:"client_id"`
	}
	post("/oauth/register", "application/json", `{"client_name":"Inspector","redirect_uris":["`+callback+`"]}`, &client)
	sum := sha256.Sum256([]byte(verifier))
	code := consent(m.T, m.service.url+"/oauth/authorize?"+url.Values{
		"response_type": {"code"}, "client_id": {client.ID}, "redirect_uri": {callback}, "state": {"state-of-the-client"}, "resource": {m.url},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}.Encode(), m.subscriber.Key, callback, string(m.plan))
	var granted struct {
		Token string `json:"access_token"`
	}
	post("/oauth/token", "application/x-www-form-urlencoded", url.Values{
		"grant_type": {"authorization_code"}, "client_id": {client.ID}, "redirect_uri": {callback}, "code": {code}, "code_verifier": {verifier},
		"resource": {m.url},
	}.Encode(), &granted)
	return granted.Token
}

// notConforming are the checks of the published suite that a paid server does not pass, with the reason. There are none.
var notConforming = map[string]string{}

// Every check of the published conformance suite for servers, against a paid server whose items cost nothing.
func TestConformanceSuite(t *testing.T) {
	t.Parallel()
	n := mcpClients.find(t).recent(t)
	m := openManaged(t, run(t, servertest.Options{}), paidmcp.ServerConfig{})
	results := t.TempDir()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, n.program, filepath.Join(n.module("@modelcontextprotocol/conformance"), "dist", "index.js"),
		"server", "--url", m.url, "--suite", "all", "-o", results)
	out, err := cmd.CombinedOutput() // it fails with the checks, which are read below
	files, globErr := filepath.Glob(filepath.Join(results, "*", "checks.json"))
	if globErr != nil || len(files) < 30 {
		t.Fatalf("%d scenarios: %v, %v\n%s", len(files), err, globErr, out)
	}
	met := map[string]bool{}
	var checks int
	for _, file := range files {
		text := must.Get(os.ReadFile(file))(t)
		var all []struct{ ID, Status, ErrorMessage string }
		must.Do(t, json.Unmarshal(text, &all))
		for _, c := range all {
			checks++
			if c.Status != "FAILURE" && c.Status != "WARNING" {
				continue
			}
			if met[c.ID] = true; notConforming[c.ID] == "" {
				t.Errorf("%s: %s %s: %s", filepath.Base(filepath.Dir(file)), c.ID, c.Status, c.ErrorMessage)
			}
		}
	}
	for id := range notConforming {
		if !met[id] {
			t.Errorf("%s passes, and is named as an exception", id)
		}
	}
	t.Logf("%d scenarios, %d checks", len(files), checks)
}
