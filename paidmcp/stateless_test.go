package paidmcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tollhq/toll/paidmcp"
)

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
