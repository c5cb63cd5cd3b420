package gateway_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/gateway"
)

// bearer adds the core token and, when it is set, the protocol version.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

func connected(t *testing.T, transport mcp.Transport) *mcp.ClientSession {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// TestMCP_Transports: a stock client lists and calls the tools over both transports, and gets what
// the control path answers.
func TestMCP_Transports(t *testing.T) {
	c := newControlled(t, gateway.Options{CoreToken: testToken})
	_, own := c.do("GET", "/gateway/v1/tools", "")
	var want struct {
		Tools []struct {
			Name, Description, Effect string
			InputSchema               any
		}
	}
	if err := json.Unmarshal([]byte(own), &want); err != nil {
		t.Fatal(err)
	}
	theirIn, ourOut := io.Pipe()
	ourIn, theirOut := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.core.ServeMCP(ctx, ourIn, ourOut) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for name, transport := range map[string]mcp.Transport{
		"http":  &mcp.StreamableClientTransport{Endpoint: c.url + "/mcp", HTTPClient: &http.Client{Transport: bearer{testToken}}},
		"stdio": &mcp.IOTransport{Reader: theirIn, Writer: theirOut},
	} {
		session := connected(t, transport)
		list, err := session.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(name, err)
		}
		byName := map[string]*mcp.Tool{}
		for _, tool := range list.Tools {
			byName[tool.Name] = tool
		}
		for _, w := range want.Tools {
			got := byName[w.Name]
			if got == nil || got.Description != w.Description || encoded(t, got.InputSchema) != encoded(t, w.InputSchema) ||
				got.Annotations.ReadOnlyHint != (w.Effect == "read") || *got.Annotations.DestructiveHint != (w.Effect == "spend") {
				t.Errorf("%s: %s is %s", name, w.Name, encoded(t, got))
			}
		}
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "service_listPlans"})
		if err != nil {
			t.Fatal(name, err)
		}
		text := res.Content[0].(*mcp.TextContent).Text
		if !res.IsError || !strings.Contains(text, `"code": "not_authenticated"`) || strings.Contains(text, "/svc_login") ||
			encoded(t, res.StructuredContent) != encoded(t, decoded(t, text)) {
			t.Errorf("%s: %s, %s", name, text, encoded(t, res))
		}
		if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "service_nothing"}); err == nil {
			t.Errorf("%s: an unknown tool", name)
		}
	}
}

func decoded(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err, text)
	}
	return v
}

// TestMCP_Eras: the protocol version says whether requests have sessions.
func TestMCP_Eras(t *testing.T) {
	c := newControlled(t, gateway.Options{CoreToken: testToken})
	as := func(version, method string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			if version != "" {
				r.Header.Set("MCP-Protocol-Version", version)
			}
			if method != "" {
				r.Header.Set("Mcp-Method", method)
			}
		}
	}
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}`
	status, body := c.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+meta+`}}`, as("2026-07-28", "tools/list"))
	if status != 200 || !strings.Contains(body, "service_queryAgent") {
		t.Error("modern:", status, body)
	}
	if status, body := c.do("GET", "/mcp", "", as("2026-07-28", "")); status != 405 {
		t.Error("modern GET:", status, body)
	}
	status, body = c.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",`+
		`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, as("", ""))
	if status != 200 || !strings.Contains(body, `"protocolVersion":"2025-06-18"`) {
		t.Error("older:", status, body)
	}
	if status, body := c.do("DELETE", "/mcp", "", as("2025-06-18", ""), func(r *http.Request) {
		r.Header.Set("Mcp-Session-Id", "unknown")
	}); status != 404 {
		t.Error("unknown session:", status, body)
	}
	if status, body := c.do("POST", "/mcp", `{`, as("", "")); status != 400 {
		t.Error("bad JSON:", status, body)
	}
}
