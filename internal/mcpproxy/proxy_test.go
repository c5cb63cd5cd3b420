package mcpproxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/mcpproxy"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paidmcp"
	"github.com/tollhq/toll/tolltest"
)

// somebodys is an MCP server that knows nothing of payments. It tells what it gets.
func somebodys() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "somebodys", Version: "3.2.1"}, &mcp.ServerOptions{
		Instructions: "Ask politely.", PageSize: 2,
		CompletionHandler: func(_ context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{req.Params.Argument.Value + "-whole"}}}, nil
		},
	})
	object := json.RawMessage(`{"type":"object"}`)
	yes := true
	s.AddTool(&mcp.Tool{
		Name: "measure", Title: "Measure", Description: "Measures.", InputSchema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"}}}`),
		OutputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`), Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &yes},
	}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		meta := mcp.Meta{"custom": "kept"}
		meta["x402/payment-response"], meta["service/credits"] = "forged", "forged"
		return &mcp.CallToolResult{
			Meta: meta, Content: []mcp.Content{&mcp.TextContent{Text: "measured"}}, StructuredContent: json.RawMessage(`{"n":12345678901234567890,"echo":"é"}`),
		}, nil
	})
	s.AddTool(&mcp.Tool{Name: "reveal", InputSchema: object}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		text, err := json.Marshal(map[string]any{"meta": req.Params.Meta, "arguments": req.Params.Arguments, "header": headerOf(req), "env": os.Environ()})
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, err
	})
	s.AddTool(&mcp.Tool{Name: "slow", InputSchema: object}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 0.5, Message: "halfway"})
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "slow and sure"}}}, err
	})
	s.AddTool(&mcp.Tool{Name: "fail", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: -32042, Message: "not today", Data: json.RawMessage(`{"again":"tomorrow"}`)}
	})
	s.AddTool(&mcp.Tool{Name: "grow", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.AddTool(&mcp.Tool{Name: "grown", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
		s.RemoveTools("fail")
		return &mcp.CallToolResult{}, nil
	})
	s.AddTool(&mcp.Tool{Name: "exit", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		os.Exit(3)
		return nil, nil
	})
	read := func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, MIMEType: "text/plain", Text: "read " + req.Params.URI}}}, nil
	}
	s.AddResource(&mcp.Resource{Name: "one", URI: "files://all/one", MIMEType: "text/plain"}, read)
	s.AddResourceTemplate(&mcp.ResourceTemplate{Name: "any", URITemplate: "files://all/{name}"}, read)
	s.AddPrompt(&mcp.Prompt{Name: "greet", Arguments: []*mcp.PromptArgument{{Name: "who"}}}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "Hello " + req.Params.Arguments["who"]}}}}, nil
	})
	return s
}

func headerOf(req *mcp.CallToolRequest) http.Header {
	if req.Extra == nil {
		return nil
	}
	return req.Extra.Header
}

// TestProcessBehind is the process that tests put behind a price. In the run of the tests it does nothing.
func TestProcessBehind(*testing.T) {
	if os.Getenv("BEHIND_A_PRICE") == "" {
		return
	}
	s, in := somebodys(), io.ReadCloser(os.Stdin)
	switch how := os.Getenv("BEHIND_A_PRICE"); how {
	case "rough":
		s = rough()
	case "asking":
		s = asking()
	case "refuses", "silent", "exits":
		in = olderInput(how)
	}
	if os.Getenv("BEHIND_A_PRICE") == "no templates" {
		s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "resources/templates/list" {
					return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found"}
				}
				return next(ctx, method, req)
			}
		})
	}
	err := s.Run(context.Background(), &mcp.IOTransport{Reader: in, Writer: os.Stdout})
	if err != nil && !errors.Is(err, io.EOF) {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(0)
}

func process() *exec.Cmd {
	c := exec.Command(os.Args[0], "-test.run=^TestProcessBehind$")
	c.Env = append(os.Environ(), "BEHIND_A_PRICE=yes", "TOLL_API_KEY=canary-key", "Toll_Master_Key=canary-master")
	return c
}

// processOf starts a process of another kind.
func processOf(kind string) func() *exec.Cmd {
	return func() *exec.Cmd {
		c := process()
		c.Env = append(c.Env, "BEHIND_A_PRICE="+kind)
		return c
	}
}

// priced puts an upstream behind prices: 2 credits for tools, 3 for resources, 1 for prompts, and reveal is free.
func priced(t testing.TB, svc *tolltest.Service, u *mcpproxy.Upstream) *hosted {
	t.Helper()
	return pricedAt(t, svc, u, svc.Now)
}

// pricedAt is priced with payments and a server that follow clock.
func pricedAt(t testing.TB, svc *tolltest.Service, u *mcpproxy.Upstream, clock func() time.Time) *hosted {
	t.Helper()
	must.Do(t, u.Connect(t.Context()))
	h := &hosted{t: t, svc: svc, mcp: u.Server()}
	h.pay = paidmcp.New(svc.Client(), paidmcp.Config{PlanID: svc.Plan(), AgentID: svc.Agent(), ServerName: u.Name(), Clock: clock})
	h.pay.Price(paidmcp.Tools, "*", paidmcp.Credits(2))
	h.pay.Price(paidmcp.Tools, "reveal", paidmcp.Credits(0))
	h.pay.Price(paidmcp.Tools, "slow", paidmcp.Credits(2), paidmcp.Stream())
	h.pay.Price(paidmcp.Resources, "*", paidmcp.Credits(3))
	h.pay.Price(paidmcp.Prompts, "*", paidmcp.Credits(1))
	var err error
	if h.server, err = paidmcp.NewServer(h.pay, h.mcp, paidmcp.ServerConfig{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended, err := u.Offer(ctx, h.mcp)
	must.Do(t, err)
	ts := httptest.NewServer(h.server.Handler())
	h.url = ts.URL
	t.Cleanup(func() {
		cancel()
		<-ended
		must.Check(t, h.server.Close(context.Background()))
		ts.Close()
	})
	return h
}

// behind is an upstream over HTTP that records what it is sent. It answers with events, or in plain JSON.
type behind struct {
	url  string
	mu   sync.Mutex
	seen []string
}

func recorded(t testing.TB, s *mcp.Server, plain bool) *behind {
	b := &behind{}
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{JSONResponse: plain})
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		b.mu.Lock()
		b.seen = append(b.seen, fmt.Sprint(r.Method, r.URL, r.Header, string(body)))
		b.mu.Unlock()
		http.SetCookie(w, &http.Cookie{Name: "behind", Value: "cookie-canary"})
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(ts.Close)
	b.url = ts.URL
	return b
}

func (b *behind) all() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.seen, "\n")
}

// TestProxy gives a price to a process and to a server over HTTP, neither of which knows of it.
func TestProxy(t *testing.T) {
	svc := service(t)
	for name, open := range map[string]func(testing.TB) *mcpproxy.Upstream{
		"process": func(testing.TB) *mcpproxy.Upstream { return mcpproxy.Command(nil, process) },
		"http": func(t testing.TB) *mcpproxy.Upstream {
			return mcpproxy.Remote(nil, recorded(t, somebodys(), false).url, nil)
		},
	} {
		t.Run(name, func(t *testing.T) { proxied(t, svc, open(t)) })
	}
}

func proxied(t *testing.T, svc *tolltest.Service, u *mcpproxy.Upstream) {
	h, ann := priced(t, svc, u), svc.Subscriber(50)
	changed, progress := make(chan struct{}, 8), make(chan *mcp.ProgressNotificationParams, 8)
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params },
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*long)
	defer cancel()
	session, err := c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: h.url + "/mcp"}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	must.Do(t, err)
	defer session.Close()
	init := session.InitializeResult()
	if init.ServerInfo.Name != "somebodys" || init.Instructions != "Ask politely." || init.Capabilities.Completions == nil {
		t.Errorf("%+v", init)
	}
	tools := func() (names []string) {
		for tool, err := range session.Tools(ctx, nil) {
			must.Do(t, err)
			names = append(names, tool.Name)
			if tool.Name == "measure" && (tool.Title != "Measure" || tool.OutputSchema == nil || tool.Annotations == nil || !tool.Annotations.ReadOnlyHint) {
				t.Errorf("%+v", tool)
			}
		}
		return names
	}
	if got := tools(); !slices.Equal(got, []string{"exit", "fail", "grow", "measure", "reveal", "slow"}) {
		t.Errorf("tools %v", got)
	}
	pay := func() mcp.Meta { return mcp.Meta{"x402/payment": ann.AccessToken} }

	// What comes back is what was sent, to the last digit, and the receipt is ours.
	a := h.post(call(1, "measure", "x", paidBy(ann.AccessToken)))
	r := a.rpc(t)
	if got := string(r.Result.Structured); got != `{"n":12345678901234567890,"echo":"é"}` || r.Result.IsError {
		t.Errorf("%q", a.body)
	}
	var receipt struct {
		Success bool `json:"success"`
	}
	if err := json.Unmarshal(r.Result.Meta["x402/payment-response"], &receipt); err != nil || !receipt.Success || string(r.Result.Meta["custom"]) != `"kept"` || len(r.Result.Meta) != 3 {
		t.Errorf("%s", a.body)
	}
	if b := ann.Balance(); b != 48 {
		t.Errorf("balance %v", b)
	}
	if r := h.post(call(1, "measure", "x", "")).rpc(t); !r.Result.IsError || strings.Contains(string(r.Result.Structured), "12345") {
		t.Errorf("%+v", r)
	}

	// Progress comes while the call runs, under the token of who asked.
	slow := &mcp.CallToolParams{Meta: pay(), Name: "slow"}
	slow.SetProgressToken("mine")
	if res, err := session.CallTool(ctx, slow); err != nil || res.IsError {
		t.Errorf("%+v, %v", res, err)
	}
	select {
	case p := <-progress:
		if p.ProgressToken != "mine" || p.Message != "halfway" {
			t.Errorf("%+v", p)
		}
	case <-ctx.Done():
		t.Fatal("no progress")
	}

	res, err := session.ReadResource(ctx, &mcp.ReadResourceParams{Meta: pay(), URI: "files://all/two"})
	if err != nil || res.Contents[0].Text != "read files://all/two" || ann.Balance() != 43 {
		t.Errorf("%+v, %v, balance %v", res, err, ann.Balance())
	}
	prompt, err := session.GetPrompt(ctx, &mcp.GetPromptParams{Meta: pay(), Name: "greet", Arguments: map[string]string{"who": "Ann"}})
	if err != nil || prompt.Messages[0].Content.(*mcp.TextContent).Text != "Hello Ann" || ann.Balance() != 42 {
		t.Errorf("%+v, %v, balance %v", prompt, err, ann.Balance())
	}
	done, err := session.Complete(ctx, &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "greet"}, Argument: mcp.CompleteParamsArgument{Name: "who", Value: "A"}})
	if err != nil || done.Completion.Values[0] != "A-whole" {
		t.Errorf("%+v, %v", done, err)
	}

	// An error of the server behind is passed on, and costs nothing.
	_, err = session.CallTool(ctx, &mcp.CallToolParams{Meta: pay(), Name: "fail"})
	if said := (*jsonrpc.Error)(nil); !errors.As(err, &said) || said.Code != -32042 || said.Message != "not today" || string(said.Data) != `{"again":"tomorrow"}` {
		t.Errorf("%v", err)
	}
	if b := ann.Balance(); b != 42 {
		t.Errorf("balance %v", b)
	}

	// Its lists are followed.
	if _, err := session.CallTool(ctx, &mcp.CallToolParams{Meta: pay(), Name: "grow"}); err != nil {
		t.Error(err)
	}
	for want := []string{"exit", "grow", "grown", "measure", "reveal", "slow"}; ; {
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the list stays %v", tools())
		}
		if slices.Equal(tools(), want) {
			break
		}
	}
}

// TestProxy_BrokenProcess: a process that dies costs nothing, and another one takes its place.
func TestProxy_BrokenProcess(t *testing.T) {
	svc := service(t)
	h, ann := priced(t, svc, mcpproxy.Command(nil, process)), svc.Subscriber(50)
	if r := h.post(call(1, "exit", "", paidBy(ann.AccessToken))).rpc(t); r.Error.Code != jsonrpc.CodeInternalError || r.Error.Message != "The upstream server did not answer." {
		t.Errorf("%+v", r)
	}
	deadline := time.Now().Add(2 * long)
	for {
		r := h.post(call(1, "measure", "", paidBy(ann.AccessToken))).rpc(t)
		if r.Error.Code == 0 && !r.Result.IsError {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", r)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if b := ann.Balance(); b != 48 {
		t.Errorf("balance %v", b)
	}
	if err := mcpproxy.Command(nil, func() *exec.Cmd { return exec.Command("/nonexistent/program") }).Connect(t.Context()); err == nil {
		t.Error("a command that does not exist was started")
	}
}

// TestProxy_NoTemplates: a server with resources may lack the method that lists templates. Its
// other items are offered.
func TestProxy_NoTemplates(t *testing.T) {
	svc := service(t)
	u := mcpproxy.Command(nil, processOf("no templates"))
	h, ann := priced(t, svc, u), svc.Subscriber(50)
	if r := h.post(call(1, "measure", "", paidBy(ann.AccessToken))).rpc(t); r.Error.Code != 0 || r.Result.IsError {
		t.Errorf("%+v", r)
	}
	items, err := u.Items(t.Context(), paidmcp.Resources)
	if err != nil || len(items.Names) == 0 {
		t.Errorf("%+v, %v", items, err)
	}
}

// TestCredentialsStayHere: nothing with which a caller pays or signs in reaches the server behind, nor does our own.
// T134
func TestCredentialsStayHere(t *testing.T) {
	svc := service(t)
	web := recorded(t, somebodys(), true)
	for name, u := range map[string]*mcpproxy.Upstream{
		"process": mcpproxy.Command(nil, process), "http": mcpproxy.Remote(nil, web.url, http.Header{"Authorization": {"Bearer builders-secret"}}),
	} {
		h, ann := priced(t, svc, u), svc.Subscriber(50)
		payload := map[string]any{"x402Version": 2, "payload": map[string]any{"signature": ann.AccessToken}}
		text := must.Get(json.Marshal(payload))(t)
		credentials := []string{bearer(ann.AccessToken), "Cookie: toll=cookie-of-ours", "Payment-Signature: " + ann.AccessToken, "Proxy-Authorization: Basic b3Vycw==", "X-Forwarded-For: 203.0.113.9"}
		var seen string
		for _, tool := range []string{"reveal", "measure"} {
			for _, meta := range []string{"", paidBy(ann.AccessToken), `{"x402/payment":` + string(text) + `,"x402/other":"` + ann.AccessToken + `","service/credits":"x","trace":"kept"}`} {
				seen += h.post(call(1, tool, "q", meta), credentials...).body
			}
			seen += h.post(call(1, tool, "q", modernMeta(ann.AccessToken)), modern("tools/call", tool, credentials...)...).body
		}
		seen += h.post(message(1, "resources/read", map[string]any{"uri": "files://all/one"}), credentials...).body
		if !strings.Contains(seen, `"n":12345678901234567890`) {
			t.Errorf("%s: a number is not what was sent: %s", name, seen)
		}
		if name == "http" {
			seen = web.all()
			if !strings.Contains(seen, "builders-secret") {
				t.Error("the token of the builder does not arrive")
			}
		}
		if !strings.Contains(seen, "kept") {
			t.Errorf("%s: nothing arrived: %s", name, seen)
		}
		for _, canary := range []string{"eyJ", "cookie-of-ours", "b3Vycw", "203.0.113.9", "x402/other", "canary-key", "canary-master", "cookie-canary", toll.Address(ann.Address).String()} {
			if i := strings.Index(seen, canary); i >= 0 && !receiptOnly(name, canary) {
				t.Errorf("%s: %s arrived: …%s", name, canary, seen[max(i-80, 0):min(i+80, len(seen))])
			}
		}
	}
}

// receiptOnly is true for what a caller may see of itself in answers, by which a process is watched.
func receiptOnly(name, canary string) bool {
	return name == "process" && strings.HasPrefix(canary, "0x")
}

// TestItems_Has: a price counts for what has its name, and for resources that could be read under it.
func TestItems_Has(t *testing.T) {
	names := []string{"search", "file:///a", "file:///docs/{name}"}
	for _, tc := range []struct {
		kind paidmcp.Type
		name string
		want bool
	}{
		{paidmcp.Tools, "search", true}, {paidmcp.Tools, "*", true}, {paidmcp.Tools, "serch", false}, {paidmcp.Tools, "Search", false},
		{paidmcp.Tools, "file:///docs/one", false}, {paidmcp.Prompts, "hello", false},
		{paidmcp.Resources, "file:///a", true}, {paidmcp.Resources, "file:///b", false}, {paidmcp.Resources, "file:///docs/one", true},
		{paidmcp.Resources, "FILE:///docs/%6fne", true}, {paidmcp.Resources, "file:///{any}", true}, {paidmcp.Resources, "http://{host}", true},
	} {
		if got := (mcpproxy.Items{Type: tc.kind, Names: names}).Has(tc.name); got != tc.want {
			t.Errorf("%s/%s: %v", tc.kind, tc.name, got)
		}
	}
	if (mcpproxy.Items{Type: paidmcp.Resources, Names: []string{"file:///a"}}).Has("file:///b/{name}") {
		t.Error("a template counts for a resource that it cannot stand for")
	}
}
