package paidmcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/paidmcp"
	"github.com/tollhq/toll/tolltest"
)

// asking is a server behind whose items ask their caller for a name before they answer.
func asking() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "asking", Version: "1.0.0"}, nil)
	requests := mcp.InputRequestMap{"name": &mcp.ElicitParams{Message: "who?"}}
	s.AddTool(&mcp.Tool{Name: "form", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if req.Params.InputResponses == nil || req.Params.RequestState != "state-1" {
				can, _ := json.Marshal(req.Params.Meta[mcp.MetaKeyClientCapabilities])
				if !strings.Contains(string(can), `"elicitation"`) {
					return nil, errors.New("the caller can answer nothing: " + string(can))
				}
				return &mcp.CallToolResult{InputRequests: requests, RequestState: "state-1"}, nil
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "filled in"}}}, nil
		})
	s.AddPrompt(&mcp.Prompt{Name: "form"}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		if req.Params.InputResponses == nil || req.Params.RequestState != "state-1" {
			return &mcp.GetPromptResult{InputRequests: requests, RequestState: "state-1"}, nil
		}
		return &mcp.GetPromptResult{Description: "filled in"}, nil
	})
	s.AddResource(&mcp.Resource{Name: "form", URI: "docs://form"}, func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		if req.Params.InputResponses == nil || req.Params.RequestState != "state-1" {
			return &mcp.ReadResourceResult{InputRequests: requests, RequestState: "state-1"}, nil
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, Text: "filled in"}}}, nil
	})
	return s
}

// TestProxy_Input: when an item of a server behind asks its caller for input, the question costs nothing, the answer reaches the
// server, and the result that follows is paid.
func TestProxy_Input(t *testing.T) {
	// The SDK speaks the newer era over HTTP only without sessions.
	server := asking()
	ts := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(ts.Close)
	for name, u := range map[string]*paidmcp.Upstream{
		"http": paidmcp.Remote(nil, ts.URL, ""), "process": paidmcp.Command(nil, processOf("asking")),
	} {
		t.Run(name, func(t *testing.T) { asked(t, service(t), u) })
	}
}

func asked(t *testing.T, svc *tolltest.Service, u *paidmcp.Upstream) {
	h := priced(t, svc, u)
	for method, c := range map[string]struct {
		key, name string
		price     toll.Credits
	}{"tools/call": {"name", "form", 2}, "resources/read": {"uri", "docs://form", 3}, "prompts/get": {"name", "form", 1}} {
		ann := svc.Subscriber(10)
		ask := func(more map[string]any) httpAnswer {
			params := map[string]any{c.key: c.name, "_meta": json.RawMessage(strings.Replace(modernMeta(ann.AccessToken),
				`"io.modelcontextprotocol/clientCapabilities":{}`, `"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}`, 1))}
			for name, value := range more {
				params[name] = value
			}
			return h.post(message(1, method, params), modern(method, c.name)...)
		}
		first := ask(nil)
		if first.status != http.StatusOK || !strings.Contains(first.body, `"resultType":"input_required"`) || !strings.Contains(first.body, `"requestState":"state-1"`) ||
			!strings.Contains(first.body, "who?") {
			t.Errorf("%s: %d %s", method, first.status, first.body)
		}
		if ann.Balance() != 10 {
			t.Errorf("%s: the question took credits: %s left", method, ann.Balance())
		}
		second := ask(map[string]any{"requestState": "state-1", "inputResponses": map[string]any{"name": map[string]any{"action": "accept", "content": map[string]any{}}}})
		if second.status != http.StatusOK || !strings.Contains(second.body, "filled in") || strings.Contains(second.body, "input_required") {
			t.Errorf("%s: %d %s", method, second.status, second.body)
		}
		if left := ann.Balance(); left != 10-c.price {
			t.Errorf("%s: %s left", method, left)
		}
	}
}

// TestProxy_ParamHeaders: arguments that a tool wants as headers, too, reach a server over HTTP that way. A tool that the server adds
// later is found, although the server keeps no session in which it could announce the tool.
func TestProxy_ParamHeaders(t *testing.T) {
	server := asking()
	add := func(name string) {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string","x-mcp-header":"Region"}}}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + " answers"}}}, nil
			})
	}
	add("first")
	ts := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(ts.Close)
	h := free(priced(t, service(t), paidmcp.Remote(nil, ts.URL, "")))
	ask := func(name string) string {
		return h.post(call(1, name, "west", modernMeta("")), modern("tools/call", name, "Mcp-Param-Region: west")...).body
	}
	if got := ask("first"); !strings.Contains(got, "first answers") {
		t.Error(got)
	}
	add("second")
	got := ask("second")
	for end := time.Now().Add(long); !strings.Contains(got, "second answers") && time.Now().Before(end); got = ask("second") {
		time.Sleep(10 * time.Millisecond)
	}
	if !strings.Contains(got, "second answers") {
		t.Error(got)
	}
}

// TestProxy_OlderProcess: a process of the older era works, whether it refuses server/discover, does not answer it, or exits. Only
// the last two are restarted for it, and only the first time.
func TestProxy_OlderProcess(t *testing.T) {
	svc := service(t)
	for how, starts := range map[string]int{"refuses": 1, "silent": 2, "exits": 2} {
		t.Run(how, func(t *testing.T) {
			if how == "silent" {
				t.Cleanup(paidmcp.SetProbeTime(2 * time.Second))
			}
			var started atomic.Int64
			h := free(priced(t, svc, paidmcp.Command(nil, func() *exec.Cmd {
				started.Add(1)
				return processOf(how)()
			})))
			if got := h.post(call(1, "measure", "", "")).rpc(t); len(got.Result.Content) != 1 || got.Result.Content[0].Text != "measured" {
				t.Errorf("%+v", got)
			}
			if n := started.Load(); n != int64(starts) {
				t.Errorf("%d processes were started", n)
			}
			h.post(call(2, "exit", "", ""))
			for ; ; time.Sleep(20 * time.Millisecond) {
				if got := h.post(call(3, "measure", "", "")).rpc(t); len(got.Result.Content) == 1 {
					break
				}
			}
			if n := started.Load(); n != int64(starts)+1 {
				t.Errorf("%d processes were started in the end", n)
			}
		})
	}
}

// olderInput returns the standard input of a process of the older era, without server/discover, to which it reacts as how says.
func olderInput(how string) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			var in struct {
				ID     json.RawMessage
				Method string
			}
			_ = json.Unmarshal(lines.Bytes(), &in) // for the server to refuse
			switch {
			case in.Method != "server/discover":
				_, _ = w.Write(append(lines.Bytes(), '\n')) // a server that has ended
			case how == "exits":
				os.Exit(1)
			case how == "refuses":
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"Invalid request parameters"}}`+"\n", in.ID)
			}
		}
		w.CloseWithError(io.EOF)
	}()
	return r
}

// TestErrorCodes: an error that a handler returns without a code has the code of JSON-RPC for an internal error. A code stays.
func TestErrorCodes(t *testing.T) {
	svc := service(t)
	h, ann := host(t, svc, paidmcp.ServerConfig{}), svc.Subscriber(10)
	bad := func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return nil, errors.New("not today")
	}
	h.pay.AddResource(h.mcp, &mcp.Resource{Name: "free", URI: "bad://free"}, bad, paidmcp.Credits(0))
	h.pay.AddResource(h.mcp, &mcp.Resource{Name: "paid", URI: "bad://paid"}, bad, paidmcp.Credits(1))
	h.mcp.AddResource(&mcp.Resource{Name: "none", URI: "bad://none"}, bad)
	coded := func(code int64) mcp.ResourceHandler {
		return func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return nil, &jsonrpc.Error{Code: code, Message: "not today"}
		}
	}
	h.pay.AddResource(h.mcp, &mcp.Resource{Name: "zero", URI: "bad://zero"}, coded(0), paidmcp.Credits(1))
	h.pay.AddResource(h.mcp, &mcp.Resource{Name: "own", URI: "bad://own"}, coded(-32042), paidmcp.Credits(1))
	for uri, want := range map[string]int{"bad://free": -32603, "bad://paid": -32603, "bad://none": -32603, "bad://zero": -32603, "bad://own": -32042} {
		params := map[string]any{"uri": uri, "_meta": json.RawMessage(modernMeta(ann.AccessToken))}
		r := h.post(message(1, "resources/read", params), modern("resources/read", uri)...).rpc(t)
		if r.Error.Code != want || r.Error.Message != "not today" {
			t.Errorf("%s: %+v", uri, r.Error)
		}
	}
	if ann.Balance() != 10 {
		t.Errorf("%s left", ann.Balance())
	}
}

// TestStateless: without sessions, each request of a client of the older era may reach another replica.
func TestStateless(t *testing.T) {
	svc := service(t)
	cfg := paidmcp.ServerConfig{Stateless: true}
	one, two, ann := host(t, svc, cfg), host(t, svc, cfg), svc.Subscriber(10)
	if a := one.post(initialize); a.status != http.StatusOK || a.header.Get("Mcp-Session-Id") != "" || !strings.Contains(a.body, `"serverInfo"`) {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	version := "MCP-Protocol-Version: 2025-11-25"
	if a := two.post(message(nil, "notifications/initialized", nil), version); a.status != http.StatusAccepted {
		t.Errorf("%d %s", a.status, a.body)
	}
	for i, h := range []*hosted{one, two, one} {
		if got := h.post(call(i, "ask", "x", paidBy(ann.AccessToken)), version).text(t); got != "answer to x" {
			t.Errorf("%q", got)
		}
	}
	if a := two.post(call(9, "ask", "x", paidBy(ann.AccessToken)), version, "Mcp-Session-Id: of-another-server"); a.text(t) != "answer to x" {
		t.Errorf("with a session of before: %d %s", a.status, a.body)
	}
	if ann.Balance() != 2 {
		t.Errorf("%s left", ann.Balance())
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if a := one.do(method, "/mcp", "", version, "Accept: text/event-stream"); a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != "POST" {
			t.Errorf("%s: %d %v", method, a.status, a.header)
		}
	}
}
