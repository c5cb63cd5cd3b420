package paidmcp_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/paidmcp"
	"github.com/tollhq/toll/tolltest"
)

// TestManagedServer runs what needs no clock of its own against one service.
func TestManagedServer(t *testing.T) {
	svc := service(t)
	for name, test := range map[string]func(*testing.T, *tolltest.Service){
		"eras": bothEras, "messages": messages, "documents": documents, "requireSignIn": requireSignIn, "mount": mount, "cross-site pages": pages,
	} {
		t.Run(name, func(t *testing.T) { test(t, svc) })
	}
}

// bothEras calls the same tools in both eras: with a session, without one, and in the era that has none.
func bothEras(t *testing.T, svc *tolltest.Service) {
	h, ann := host(t, svc, paidmcp.ServerConfig{}), svc.Subscriber(20)
	id := h.session()
	if len(id) != 32 {
		t.Errorf("session id %q", id)
	}
	in := "Mcp-Session-Id: " + id
	a := h.post(call(2, "ask", "one", paidBy(ann.AccessToken)), in)
	if got := a.text(t); got != "answer to one" || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("%q %v", got, a.header)
	}
	if ann.Balance() != 18 {
		t.Errorf("balance %v", ann.Balance())
	}
	// Without a payment the call is answered in band.
	if r := h.post(call(3, "ask", "two", ""), in).rpc(t); !r.Result.IsError || !strings.Contains(string(r.Result.Structured), string(svc.Plan())) {
		t.Errorf("%+v", r)
	}
	// A bearer token pays as well.
	if got := h.post(call(1, "ask", "three", ""), bearer(ann.AccessToken)).text(t); got != "answer to three" || ann.Balance() != 16 {
		t.Errorf("%q, balance %v", got, ann.Balance())
	}
	// A call without initialize is accepted, and its answer carries a session that goes on.
	a = h.post(message("x", "tools/list", nil))
	next := a.header.Get("Mcp-Session-Id")
	if r := a.rpc(t); len(r.Result.Tools) != 3 || string(r.ID) != `"x"` || next == "" || next == id {
		t.Errorf("%q in session %q", a.body, next)
	}
	if got := h.post(call(2, "echo", "four", ""), "Mcp-Session-Id: "+next).text(t); !strings.HasPrefix(got, "four") {
		t.Errorf("%q", got)
	}
	// The newer era: no session, neither given nor taken.
	a = h.post(call(5, "ask", "five", modernMeta(ann.AccessToken)), modern("tools/call", "ask", "Mcp-Session-Id: "+id)...)
	if got := a.text(t); got != "answer to five" || a.header.Get("Mcp-Session-Id") != "" || ann.Balance() != 14 {
		t.Errorf("%q %v, balance %v", got, a.header, ann.Balance())
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if a := h.do(method, "/mcp", "", "MCP-Protocol-Version: 2026-07-28", "Accept: text/event-stream", in); a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != "POST" {
			t.Errorf("%s: %d", method, a.status)
		}
	}
	if a := h.post(call(5, "ask", "six", modernMeta(ann.AccessToken)), "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call"); a.status != http.StatusBadRequest {
		t.Errorf("without Mcp-Name: %d %s", a.status, a.body)
	}
	// A call that speaks is a stream for those who take one, and plain JSON for others.
	talk := call(7, "talk", "seven", `{"progressToken":"p"}`)
	a = h.post(talk, "Accept: application/json, text/event-stream")
	if a.header.Get("Content-Type") != "text/event-stream" || !strings.Contains(a.body, "working on seven") || a.text(t) != "done with seven" {
		t.Errorf("%v %q", a.header, a.body)
	}
	a = h.post(talk, "Accept: application/json")
	if a.header.Get("Content-Type") != "application/json" || strings.Contains(a.body, "working on") || a.text(t) != "done with seven" {
		t.Errorf("%v %q", a.header, a.body)
	}
	if a = h.post(talk, "Accept: text/event-stream"); a.header.Get("Content-Type") != "text/event-stream" || a.text(t) != "done with seven" {
		t.Errorf("%v %q", a.header, a.body)
	}
	// Real clients of both eras.
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: h.url + "/mcp"}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(version, err)
		}
		if got := session.InitializeResult().ProtocolVersion; got != version {
			t.Errorf("%s: negotiated %s", version, got)
		}
		before := ann.Balance()
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{
			Meta: mcp.Meta{"x402/payment": ann.AccessToken}, Name: "ask", Arguments: ask{"eight"},
		})
		if err != nil || res.IsError || ann.Balance() != before-2 {
			t.Errorf("%s: %+v, %v, balance %v", version, res, err, ann.Balance())
		}
		if err := session.Close(); err != nil {
			t.Error(version, err)
		}
	}
}

// messages are those that never reach a method.
func messages(t *testing.T, svc *tolltest.Service) {
	h, ann := host(t, svc, paidmcp.ServerConfig{}), svc.Subscriber(20)
	pay := paidBy(ann.AccessToken)
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	for _, c := range []struct {
		name, body   string
		headers      []string
		status, code int
	}{
		{"not JSON", "{", nil, 400, -32700},
		{"nothing", " ", nil, 400, -32700},
		{"batch", "[" + call(1, "ask", "", pay) + "]", nil, 400, -32600},
		{"empty batch", "[]", nil, 400, -32600},
		{"text", `"x"`, nil, 400, -32600},
		{"names twice", `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`, nil, 400, -32600},
		{"too deep", message(1, "tools/call", map[string]any{"name": "echo", "arguments": json.RawMessage(deep)}), nil, 400, -32600},
		{"version", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, nil, 400, -32600},
		{"call without id", call(nil, "ask", "", pay), nil, 400, -32600},
		{"id null", strings.Replace(call(1, "ask", "", pay), `"id":1`, `"id":null`, 1), nil, 400, -32600},
		{"id object", call(map[string]int{"a": 1}, "ask", "", pay), nil, 400, -32600},
		{"id fraction", call(1.5, "ask", "", pay), nil, 400, -32600},
		{"id beyond exact", strings.Replace(call(1, "ask", "", pay), `"id":1`, `"id":9007199254740993`, 1), nil, 400, -32600},
		{"notification with id", message(1, "notifications/initialized", nil), nil, 400, -32600},
		{"response without session", `{"jsonrpc":"2.0","id":1,"result":{}}`, nil, 400, -32600},
		{"header twice", call(1, "ask", "", pay), []string{"Mcp-Session-Id: a", "Mcp-Session-Id: b"}, 400, -32600},
		{"old version", call(1, "ask", "", pay), []string{"MCP-Protocol-Version: 1999-01-01"}, 400, -32600},
		{"Mcp-Name differs", call(1, "ask", "", pay), []string{"Mcp-Name: echo"}, 400, -32020},
		{"Mcp-Method differs", call(1, "ask", "", pay), []string{"Mcp-Method: tools/list"}, 400, -32020},
	} {
		a := h.post(c.body, c.headers...)
		if a.status != c.status || a.rpc(t).Error.Code != c.code {
			t.Errorf("%s: %d %s", c.name, a.status, a.body)
		}
	}
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16", "application/jsonp"} {
		if a := h.post(call(1, "ask", "", pay), "Content-Type: "+kind); a.status != http.StatusUnsupportedMediaType {
			t.Errorf("%s: %d", kind, a.status)
		}
	}
	if a := h.post(call(1, "echo", "ok", ""), "Content-Type: application/json; charset=UTF-8"); a.status != http.StatusOK {
		t.Errorf("%d", a.status)
	}
	if a := h.post(message(nil, "notifications/initialized", nil)); a.status != http.StatusAccepted || a.header.Get("Mcp-Session-Id") != "" {
		t.Errorf("a notice outside of a session: %d", a.status)
	}
	if a := h.do(http.MethodPut, "/mcp", "{}"); a.status != http.StatusMethodNotAllowed {
		t.Errorf("PUT: %d", a.status)
	}
	if a := h.do(http.MethodGet, "/mcp", ""); a.status != http.StatusBadRequest {
		t.Errorf("a stream without a session: %d", a.status)
	}
	if h.ran.Load() != 0 || ann.Balance() != 20 {
		t.Errorf("%d runs, balance %v", h.ran.Load(), ann.Balance())
	}
}

func documents(t *testing.T, svc *tolltest.Service) {
	h := host(t, svc, paidmcp.ServerConfig{BaseURL: "https://tools.example.com/", ServiceURL: "https://pay.example.com/api/v1", Description: "words", AllowedHosts: []string{"127.0.0.1"}})
	const base, as = "https://tools.example.com", "https://pay.example.com"
	read := func(path string) (doc map[string]any) {
		t.Helper()
		a := h.do(http.MethodGet, path, "")
		if err := json.Unmarshal([]byte(a.body), &doc); err != nil || a.status != http.StatusOK || a.header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		if path != "/health" && a.header.Get("Cache-Control") != "public, max-age=3600" || a.header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %v", path, a.header)
		}
		return doc
	}
	want := func(doc map[string]any, values map[string]any) {
		t.Helper()
		for name, v := range values {
			if fmt.Sprint(doc[name]) != fmt.Sprint(v) {
				t.Errorf("%s: %v, want %v", name, doc[name], v)
			}
		}
	}
	scopes := strings.Fields("openid profile credits mcp:read mcp:write mcp:tools agent:" + string(svc.Agent()))
	resource := map[string]any{
		"resource": base, "authorization_servers": []string{as}, "scopes_supported": scopes, "bearer_methods_supported": []string{"header"},
		"resource_documentation": base + "/", "scopes_required": nil,
	}
	want(read("/.well-known/oauth-protected-resource"), resource)
	resource["resource"], resource["scopes_required"] = base+"/mcp", scopes
	endpoint := read("/.well-known/oauth-protected-resource/mcp")
	want(endpoint, resource)
	want(endpoint["mcp_capabilities"].(map[string]any), map[string]any{"tools": []string{"ask", "echo", "talk"}, "protocol_version": "2026-07-28"})
	server := map[string]any{
		"issuer":                        as,
		"authorization_endpoint":        as + "/oauth/authorize",
		"token_endpoint":                as + "/oauth/token",
		"registration_endpoint":         base + "/register",
		"revocation_endpoint":           as + "/oauth/revoke",
		"device_authorization_endpoint": as + "/oauth/device_authorization",
		"jwks_uri":                      as + "/.well-known/jwks.json",
		"response_types_supported": []string{
			"code",
		},
		"code_challenge_methods_supported": []string{"S256"},
		"scopes_supported":                 scopes,
		"grant_types_supported": []string{
			"authorization_code",
			"refresh_token",
			"urn:ietf:params:oauth:grant-type:device_code",
		},
		"token_endpoint_auth_methods_supported": []string{
			"none",
			"client_secret_post",
			"client_secret_basic",
		},
		"subject_types_supported":                        []string{"public"},
		"client_id_metadata_document_supported":          true,
		"authorization_response_iss_parameter_supported": true,
	}
	authorization := read("/.well-known/oauth-authorization-server")
	want(authorization, server)
	openID := read("/.well-known/openid-configuration")
	if !reflect.DeepEqual(authorization, openID) {
		t.Errorf("the documents differ:\n%v\n%v", authorization, openID)
	}
	want(openID, map[string]any{
		"userinfo_endpoint": as + "/oauth/userinfo", "id_token_signing_alg_values_supported": []string{"EdDSA"},
		"claims_supported": []string{"sub", "iss", "aud", "exp", "iat", "name", "email"},
	})
	info := read("/")
	want(info, map[string]any{
		"name": "demo", "version": "1.0.0", "description": "words", "tools": []string{"ask", "echo", "talk"}, "resources": []string{"docs://all/index"}, "prompts": []string{},
		"endpoints": map[string]any{"mcp": base + "/mcp", "health": base + "/health", "register": base + "/register"},
	})
	want(info["oauth"].(map[string]any), map[string]any{
		"client_id": svc.Agent(), "protected_resource_metadata": base + "/.well-known/oauth-protected-resource", "registration_endpoint": base + "/register",
		"authorization_server_metadata": base + "/.well-known/oauth-authorization-server", "openid_configuration": base + "/.well-known/openid-configuration",
		"token_endpoint": as + "/oauth/token", "scopes": scopes,
	})
	want(read("/health"), map[string]any{"status": "ok", "service": "demo"})
	a := h.do(http.MethodGet, "/x", "")
	if a.status != http.StatusNotFound || a.body != `{"error":"not_found","error_description":"Endpoint not found: GET /x"}` {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// requireSignIn asks for a credential on every method, and a payment in the message is one.
func requireSignIn(t *testing.T, svc *tolltest.Service) {
	h, ann := host(t, svc, paidmcp.ServerConfig{RequireSignIn: true}), svc.Subscriber(20)
	metadata := `Bearer resource_metadata="` + h.url + `/.well-known/oauth-protected-resource/mcp"`
	for _, a := range []httpAnswer{
		h.post(initialize), h.post(call(1, "echo", "", "")), h.do(http.MethodGet, "/mcp", "", "Mcp-Session-Id: x"), h.do(http.MethodDelete, "/mcp", ""),
		h.post(call(1, "echo", "", modernMeta("")), modern("tools/call", "echo")...),
	} {
		if a.status != http.StatusUnauthorized || a.header.Get("WWW-Authenticate") != metadata ||
			a.body != `{"error":"unauthorized","error_description":"Authorization header required"}` {
			t.Errorf("%d %v %s", a.status, a.header, a.body)
		}
	}
	// A payment lets through the call of an item with a price alone.
	payment := paidBy(ann.AccessToken)
	withMeta := func(method string, params map[string]any) string {
		params["_meta"] = json.RawMessage(payment)
		return message(1, method, params)
	}
	for _, body := range []string{
		call(1, "echo", "", payment), call(1, "unknown", "", payment), call(1, "ASK", "", payment),
		withMeta("tools/list", map[string]any{}), withMeta("ping", map[string]any{}), withMeta("resources/list", map[string]any{"name": "ask"}),
		withMeta("resources/read", map[string]any{"uri": "docs://none"}), withMeta("resources/read", map[string]any{"uri": "docs://all/../all/a"}),
		withMeta("initialize", map[string]any{"name": "ask", "protocolVersion": "2025-11-25", "capabilities": map[string]any{}}),
		withMeta("completion/complete", map[string]any{"ref": map[string]any{"type": "ref/prompt", "name": "ask"}}),
		withMeta("prompts/get", map[string]any{"name": "ask"}),
	} {
		if a := h.post(body); a.status != http.StatusUnauthorized || a.header.Get("WWW-Authenticate") != metadata {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if a := h.post(withMeta("resources/read", map[string]any{"uri": "docs://all/a"})); a.status != http.StatusOK || !strings.Contains(a.body, "text of docs://all/a") {
		t.Errorf("%d %s", a.status, a.body)
	}
	payment = paidBy("any text")
	if a := h.post(call(1, "ask", "", payment)); a.status != http.StatusOK || !a.rpc(t).Result.IsError {
		t.Errorf("%d %s", a.status, a.body)
	}
	if got := h.post(call(1, "ask", "in band", paidBy(ann.AccessToken))).text(t); got != "answer to in band" {
		t.Error(got)
	}
	id := h.session(bearer(ann.AccessToken))
	if got := h.post(call(1, "ask", "signed in", ""), bearer(ann.AccessToken), "Mcp-Session-Id: "+id).text(t); got != "answer to signed in" {
		t.Error(got)
	}
	if a := h.do(http.MethodGet, "/health", ""); a.status != http.StatusOK {
		t.Errorf("%d", a.status)
	}
}

// mount puts the endpoint into somebody else's application.
func mount(t *testing.T, svc *tolltest.Service) {
	h := host(t, svc, paidmcp.ServerConfig{})
	own := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "own") }
	all := http.NewServeMux()
	all.HandleFunc("/", own)
	h.server.Mount(all)
	other := http.NewServeMux()
	other.HandleFunc("/", own)
	other.Handle("/api/tools", h.server.Endpoint())
	for _, c := range []struct {
		mux  http.Handler
		path string
	}{{all, "/mcp"}, {other, "/api/tools"}} {
		ts := httptest.NewServer(c.mux)
		app := &hosted{t: t, svc: svc, url: ts.URL}
		a := app.do(http.MethodPost, c.path, call(1, "echo", "mounted", ""), "Accept: text/event-stream")
		if got := a.text(t); !strings.HasPrefix(got, "mounted") || a.header.Get("X-Accel-Buffering") != "no" {
			t.Error(got, a.header)
		}
		if a := app.do(http.MethodGet, "/", ""); a.body != "own" {
			t.Errorf("%s: %s", c.path, a.body)
		}
		ts.Close()
	}
}

// pages are those that may call from a browser.
func pages(t *testing.T, svc *tolltest.Service) {
	h := host(t, svc, paidmcp.ServerConfig{AllowedOrigins: []string{"https://chat.example.com"}})
	a := h.do(http.MethodOptions, "/mcp", "", "Origin: https://chat.example.com", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type,mcp-param-x")
	if a.status != http.StatusNoContent || a.header.Get("Access-Control-Allow-Origin") != "https://chat.example.com" ||
		a.header.Get("Access-Control-Allow-Headers") != "content-type,mcp-param-x" || !slices.Contains(a.header.Values("Vary"), "Origin") {
		t.Errorf("%d %v", a.status, a.header)
	}
	for _, n := range []int{1000, 1001} {
		asked := strings.Repeat("x", n)
		a = h.do(http.MethodOptions, "/mcp", "", "Origin: https://chat.example.com", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: "+asked)
		if got := a.header.Get("Access-Control-Allow-Headers"); (got == asked) != (n == 1000) {
			t.Errorf("names of %d bytes: %d are allowed", n, len(got))
		}
	}
	a = h.post(call(1, "echo", "page", ""), "Origin: https://chat.example.com", "Sec-Fetch-Site: cross-site")
	if a.status != http.StatusOK || !strings.Contains(a.header.Get("Access-Control-Expose-Headers"), "mcp-session-id") {
		t.Errorf("%d %v", a.status, a.header)
	}
	// A list replaces the default, so pages of this machine are foreign now.
	if a := h.post(call(1, "echo", "page", ""), "Origin: http://localhost:3000"); a.status != http.StatusForbidden || a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%d %v", a.status, a.header)
	}
}
