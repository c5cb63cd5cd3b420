package mcpproxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paidmcp"
	"github.com/tollhq/toll/tolltest"
)

// long bounds what a test waits for.
const long = 2 * time.Minute

// hosted is a managed server with prices in front of a proxy.
type hosted struct {
	t      testing.TB
	svc    *tolltest.Service
	url    string
	server *paidmcp.Server
	mcp    *mcp.Server
	pay    *paidmcp.Payments
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

func bearer(token string) string { return "Authorization: Bearer " + token }
