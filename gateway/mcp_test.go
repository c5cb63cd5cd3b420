package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
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
	session := must.Get(mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil))(t)
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
	must.Do(t, json.Unmarshal([]byte(own), &want))
	theirIn, ourOut := io.Pipe()
	ourIn, theirOut := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.core.ServeMCP(ctx, ourIn, ourOut) }()
	defer func() {
		stop()
		must.Check(t, <-done)
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
	for _, version := range []string{"", "2025-06-18"} { // without a session
		const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"service_listPlans","arguments":{}}}`
		status, body := c.do("POST", "/mcp", call, as(version, ""), func(r *http.Request) { r.Header.Del("Accept") })
		if status != 200 || !strings.Contains(body, "not_authenticated") {
			t.Errorf("version %q: %d %s", version, status, body)
		}
		status, body = c.do("POST", "/mcp", strings.Replace(call, `"id":1,`, "", 1), as(version, ""))
		if status == 200 {
			t.Errorf("version %q, a notification: %d %s", version, status, body)
		}
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
	if status, body := c.do("POST", "/mcp", strings.Repeat(" ", 1<<20+1), as("", "")); status != 413 {
		t.Error("too large:", status, body)
	}
	if status, body := c.do("POST", "/mcp", `{`, as("", "")); status != 400 {
		t.Error("bad JSON:", status, body)
	}
}

// overMCP is a session with the tools of a core.
func overMCP(t *testing.T, core *gateway.Core) *mcp.ClientSession {
	t.Helper()
	server, client := mcp.NewInMemoryTransports()
	serving := must.Get(core.MCPServer().Connect(t.Context(), server, nil))(t)
	t.Cleanup(func() { _ = serving.Close() })
	return connected(t, client)
}

func called(t *testing.T, s *mcp.ClientSession, name, params string) (text string, isError bool) {
	t.Helper()
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(params)})
	if err != nil {
		t.Fatal(name, err)
	}
	text = res.Content[0].(*mcp.TextContent).Text
	if encoded(t, res.StructuredContent) != encoded(t, decoded(t, text)) {
		t.Errorf("%s: text and structured content differ: %s", name, encoded(t, res))
	}
	return text, res.IsError
}

// TestMCP_SameResults: a tool answers over MCP what it answers over HTTP, in the form of its output
// schema.
func TestMCP_SameResults(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	s := overMCP(t, r.core)
	list, err := s.ListTools(t.Context(), nil)
	must.Do(t, err)
	schemas := map[string]*jsonschema.Resolved{}
	for _, tool := range list.Tools {
		var schema jsonschema.Schema
		if err := json.Unmarshal([]byte(encoded(t, tool.OutputSchema)), &schema); err != nil {
			t.Fatal(tool.Name, err)
		}
		if schemas[tool.Name], err = schema.Resolve(nil); err != nil {
			t.Fatal(tool.Name, err)
		}
	}
	for _, test := range []struct {
		tool, params string
		isError      bool
	}{
		{"checkBalance", `{}`, false},
		{"checkBalance", `{"planId":"77"}`, true},
		{"checkBalance", `{"planId":"x"}`, true},
		{"listPlans", `{"more":1}`, false},
		{"listPaymentMethods", `{}`, false},
		{"orderPlan", `{}`, false},
		{"orderFiatPlan", `{}`, true},
	} {
		name := "service_" + test.tool
		text, isError := called(t, s, name, test.params)
		got, err := r.try(owner, "", test.tool, test.params)
		if isError != test.isError || (err != nil) != test.isError {
			t.Errorf("%s %s: %s, %v", name, test.params, text, err)
			continue
		}
		instance := decoded(t, text).(map[string]any)
		if err != nil {
			e, _ := errors.AsType[*gateway.Error](err)
			got = result{"error": decoded(t, encoded(t, e))}
			delete(instance["error"].(map[string]any), "correlationId")
			delete(got["error"].(map[string]any), "correlationId")
		}
		if a, b := encoded(t, instance), encoded(t, got); a != b {
			t.Errorf("%s %s over MCP: %sover HTTP: %s", name, test.params, a, b)
		}
		if err := schemas[name].Validate(instance); err != nil {
			t.Errorf("%s %s: %v", name, test.params, err)
		}
	}
}

// TestMCP_Login: the two tools that stand for slash commands give a page and a code, and take no
// key.
func TestMCP_Login(t *testing.T) {
	r := newRig(t, func(c *gateway.Config) { c.APIKey = "" })
	defer r.core.Close()
	s := overMCP(t, r.core)
	text, isError := called(t, s, "service_login", `{}`)
	var started struct{ URL, Code, Environment, ServiceURL, Message string }
	if err := json.Unmarshal([]byte(text), &started); err != nil || isError || !strings.HasPrefix(started.URL, r.svc.URL()) ||
		started.Code == "" || started.Environment != "sandbox" || !strings.Contains(started.Message, started.Code) {
		t.Error(text, err)
	}
	if text, isError := called(t, s, "service_listPlans", `{}`); !isError || !strings.Contains(text, "A login is pending") ||
		strings.Contains(text, "/svc_login") {
		t.Error("before the approval:", text)
	}
	if text, isError := called(t, s, "service_login", `{"environment":"live"}`); !isError || !strings.Contains(text, "invalid_params") {
		t.Error(text)
	}
	text, isError = called(t, s, "service_login", `{"environment":"sandbox:eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiIweDAwIn0.c2lnbmF0dXJlMTIz"}`)
	if !isError || strings.Contains(text, "eyJ") {
		t.Error("a key as an argument:", text)
	}
	if text, isError := called(t, s, "service_logout", `{}`); isError || !strings.Contains(text, "Logged out.") {
		t.Error(text)
	}
}

// TestMCP_EndSessions: a shutdown does not wait for the streams of sessions.
func TestMCP_EndSessions(t *testing.T) {
	c := newControlled(t, gateway.Options{CoreToken: testToken})
	send := func(method, body, session string) *http.Response {
		t.Helper()
		req := must.Get(http.NewRequestWithContext(t.Context(), method, c.url+"/mcp", strings.NewReader(body)))(t)
		req.Header.Set("Authorization", "Bearer "+testToken)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Mcp-Session-Id", session)
		res, err := http.DefaultClient.Do(req)
		if err != nil || res.StatusCode/100 != 2 {
			t.Fatal(method, res, err)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		return res
	}
	first := send("POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",`+
		`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, "")
	session := first.Header.Get("Mcp-Session-Id")
	send("POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, session)
	stream := send("GET", "", session)
	c.core.EndSessions()
	if _, err := io.ReadAll(stream.Body); err != nil {
		t.Error(err)
	}
}

// TestMCP_Schemas: members have objects as schemas. JSON Schema allows booleans, and the TypeScript
// SDK, on which most hosts are built, refuses a list of tools with one.
func TestMCP_Schemas(t *testing.T) {
	c := newControlled(t, gateway.Options{CoreToken: testToken})
	_, text := c.do("GET", "/gateway/v1/tools", "")
	var registry any
	must.Do(t, json.Unmarshal([]byte(text), &registry))
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, inner := range v {
				properties, _ := inner.(map[string]any)
				for member, schema := range properties {
					if _, object := schema.(map[string]any); name == "properties" && !object {
						t.Errorf("%s.%s is %v", at, member, schema)
					}
				}
				walk(at+"."+name, inner)
			}
		case []any:
			for i, inner := range v {
				walk(fmt.Sprintf("%s[%d]", at, i), inner)
			}
		}
	}
	walk("registry", registry)
}
