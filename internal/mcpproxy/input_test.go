package mcpproxy_test

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

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/mcpproxy"
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
	for name, u := range map[string]*mcpproxy.Upstream{
		"http": mcpproxy.Remote(nil, ts.URL, nil), "process": mcpproxy.Command(nil, processOf("asking")),
	} {
		t.Run(name, func(t *testing.T) { asked(t, service(t), u) })
	}
}

func asked(t *testing.T, svc *tolltest.Service, u *mcpproxy.Upstream) {
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
	h := free(priced(t, service(t), mcpproxy.Remote(nil, ts.URL, nil)))
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
			var started atomic.Int64
			u := mcpproxy.Command(nil, func() *exec.Cmd {
				started.Add(1)
				return processOf(how)()
			})
			if how == "silent" {
				u.ProbeTime = 2 * time.Second
			}
			h := free(priced(t, svc, u))
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
