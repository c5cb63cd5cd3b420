package paidmcp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paidmcp"
	"github.com/tollhq/toll/tolltest"
	"github.com/tollhq/toll/x402"
)

// hosted is a managed server in front of a real service: a tool and a resource with prices, a free tool, a tool that speaks
// while it works, a template beside a free resource.
type hosted struct {
	t       testing.TB
	svc     *tolltest.Service
	url     string
	server  *paidmcp.Server
	handler http.Handler
	mcp     *mcp.Server
	pay     *paidmcp.Payments
	ran     atomic.Int64 // runs of items with a price
}

type ask struct {
	Q string `json:"q,omitempty"`
}

// host starts a managed server; services are shared by the tests of a file, as each takes its time.
func host(t testing.TB, svc *tolltest.Service, cfg paidmcp.ServerConfig) *hosted {
	t.Helper()
	return hostOn(t, svc, svc.Client(), cfg)
}

func hostOn(t testing.TB, svc *tolltest.Service, f x402.Facilitator, cfg paidmcp.ServerConfig) *hosted {
	t.Helper()
	h := &hosted{t: t, svc: svc}
	h.pay = paidmcp.New(f, paidmcp.Config{PlanID: svc.Plan(), AgentID: svc.Agent(), ServerName: "demo", Clock: svc.Now})
	h.mcp = mcp.NewServer(&mcp.Implementation{Name: "demo", Version: "1.0.0"}, nil)
	paidmcp.AddTool(h.pay, h.mcp, &mcp.Tool{Name: "ask"}, func(_ context.Context, _ *mcp.CallToolRequest, in ask) (*mcp.CallToolResult, any, error) {
		h.ran.Add(1)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "answer to " + in.Q}}}, nil, nil
	}, paidmcp.Credits(2))
	paidmcp.AddTool(h.pay, h.mcp, &mcp.Tool{Name: "echo"}, func(_ context.Context, req *mcp.CallToolRequest, in ask) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Q + fmt.Sprint(req.Extra.Header)}}}, nil, nil
	}, paidmcp.Credits(0))
	paidmcp.AddTool(h.pay, h.mcp, &mcp.Tool{Name: "talk"}, func(ctx context.Context, req *mcp.CallToolRequest, in ask) (*mcp.CallToolResult, any, error) {
		err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 1, Message: "working on " + in.Q})
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done with " + in.Q}}}, nil, err
	}, paidmcp.Credits(0))
	read := func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, Text: "text of " + req.Params.URI}}}, nil
	}
	paidRead := func(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		h.ran.Add(1)
		return read(ctx, req)
	}
	h.pay.AddResource(h.mcp, &mcp.Resource{Name: "index", URI: "docs://all/index"}, read, paidmcp.Credits(0))
	h.pay.AddResourceTemplate(h.mcp, &mcp.ResourceTemplate{Name: "page", URITemplate: "docs://all/{page}"}, paidRead, paidmcp.Credits(3))
	var err error
	if h.server, err = paidmcp.NewServer(h.pay, h.mcp, cfg); err != nil {
		t.Fatal(err)
	}
	h.handler = h.server.Handler()
	ts := httptest.NewServer(h.handler)
	h.url = ts.URL
	t.Cleanup(func() {
		must.Check(t, h.server.Close(context.Background()))
		ts.Close()
	})
	return h
}

// httpAnswer is what came back over HTTP.
type httpAnswer struct {
	status int
	header http.Header
	body   string
}

// rpc is the JSON-RPC in it, from a plain answer or the last event of a stream.
func (a httpAnswer) rpc(t testing.TB) (out struct {
	ID     json.RawMessage `json:"id"`
	Result struct {
		Meta    map[string]json.RawMessage `json:"_meta"`
		IsError bool                       `json:"isError"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
		Structured json.RawMessage `json:"structuredContent"`
		Next       string          `json:"nextCursor"`
	} `json:"result"`
	Error struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
},
) {
	t.Helper()
	text := a.body
	if strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream") {
		for line := range strings.SplitSeq(a.body, "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				text = data
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%d %v: %q", a.status, err, a.body)
	}
	return out
}

// text is the text of a tool's result.
func (a httpAnswer) text(t testing.TB) string {
	t.Helper()
	r := a.rpc(t)
	if a.status != http.StatusOK || r.Result.IsError || len(r.Result.Content) == 0 {
		t.Fatalf("%d %q", a.status, a.body)
	}
	return r.Result.Content[0].Text
}

// do sends a request with these headers, "name: value".
func (h *hosted) do(method, path, body string, headers ...string) httpAnswer {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), long) // a stream that should not have opened
	defer cancel()
	req := must.Get(http.NewRequestWithContext(ctx, method, h.url+path, strings.NewReader(body)))(h.t)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case name == "Host":
			req.Host = value
		case name == "Content-Type":
			req.Header.Set(name, value)
		default:
			req.Header.Add(name, value)
		}
	}
	res := must.Get(http.DefaultTransport.RoundTrip(req))(h.t)
	defer res.Body.Close()
	text := must.Get(io.ReadAll(res.Body))(h.t)
	return httpAnswer{res.StatusCode, res.Header, string(text)}
}

func (h *hosted) post(body string, headers ...string) httpAnswer {
	h.t.Helper()
	return h.do(http.MethodPost, "/mcp", body, headers...)
}

// raw sends bytes as they are and returns the status, 0 when the connection was closed without one.
func (h *hosted) raw(request string) int {
	h.t.Helper()
	c := must.Get(net.Dial("tcp", strings.TrimPrefix(h.url, "http://")))(h.t)
	defer c.Close()
	must.Get(io.WriteString(c, request))(h.t)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// call is the message that calls a tool. meta is JSON, "" for none.
func call(id any, tool, q, meta string) string {
	params := map[string]any{"name": tool, "arguments": map[string]string{"q": q}}
	if meta != "" {
		params["_meta"] = json.RawMessage(meta)
	}
	return message(id, "tools/call", params)
}

func message(id any, method string, params any) string {
	m := map[string]any{"jsonrpc": "2.0", "method": method}
	if id != nil {
		m["id"] = id
	}
	if params != nil {
		m["params"] = params
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		panic(err)
	}
	return b.String()
}

// paidBy is the _meta of a call that brings a payment.
func paidBy(token string) string { return fmt.Sprintf(`{"x402/payment":%q}`, token) }

// modern are the headers and the _meta of the newer era.
func modern(method, name string, more ...string) []string {
	h := append([]string{"MCP-Protocol-Version: 2026-07-28", "Mcp-Method: " + method}, more...)
	if name != "" {
		h = append(h, "Mcp-Name: "+name)
	}
	return h
}

func modernMeta(payment string) string {
	meta := `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`
	if payment != "" {
		meta += fmt.Sprintf(`,"x402/payment":%q`, payment)
	}
	return meta + "}"
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`

// session initializes one and returns its id.
func (h *hosted) session(headers ...string) string {
	h.t.Helper()
	a := h.post(initialize, headers...)
	id := a.header.Get("Mcp-Session-Id")
	if a.status != http.StatusOK || id == "" {
		h.t.Fatalf("initialize: %d %q", a.status, a.body)
	}
	if n := h.post(message(nil, "notifications/initialized", nil), append(headers, "Mcp-Session-Id: "+id)...); n.status != http.StatusAccepted {
		h.t.Fatalf("initialized: %d %q", n.status, n.body)
	}
	return id
}

func bearer(token string) string { return "Authorization: Bearer " + token }
