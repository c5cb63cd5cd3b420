package paidmcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/paidmcp"
	"github.com/tollhq/toll/tolltest"
)

// TestManagedServer runs what needs no clock of its own against one service.
func TestManagedServer(t *testing.T) {
	svc := shared(t)
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
	scopes := strings.Fields("openid profile credits mcp:read mcp:write mcp:tools")
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
		"issuer": as, "authorization_endpoint": as + "/oauth/authorize", "token_endpoint": as + "/oauth/token", "registration_endpoint": base + "/register",
		"revocation_endpoint": as + "/oauth/revoke", "device_authorization_endpoint": as + "/oauth/device_authorization", "jwks_uri": as + "/.well-known/jwks.json",
		"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"}, "scopes_supported": scopes,
		"grant_types_supported":                 []string{"authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"},
		"token_endpoint_auth_methods_supported": []string{"none", "client_secret_post"}, "subject_types_supported": []string{"public"},
		"client_id_metadata_document_supported": true, "authorization_response_iss_parameter_supported": true,
	}
	want(read("/.well-known/oauth-authorization-server"), server)
	openID := read("/.well-known/openid-configuration")
	want(openID, server)
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
		if got := app.do(http.MethodPost, c.path, call(1, "echo", "mounted", "")).text(t); !strings.HasPrefix(got, "mounted") {
			t.Error(got)
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
	a = h.post(call(1, "echo", "page", ""), "Origin: https://chat.example.com", "Sec-Fetch-Site: cross-site")
	if a.status != http.StatusOK || !strings.Contains(a.header.Get("Access-Control-Expose-Headers"), "mcp-session-id") {
		t.Errorf("%d %v", a.status, a.header)
	}
	// A list replaces the default, so pages of this machine are foreign now.
	if a := h.post(call(1, "echo", "page", ""), "Origin: http://localhost:3000"); a.status != http.StatusForbidden || a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%d %v", a.status, a.header)
	}
}

// TestT92_PathsOfTheEndpoint: other spellings of the path reach nothing, and the endpoint itself runs nothing unpaid.
func TestT92_PathsOfTheEndpoint(t *testing.T) {
	h := host(t, shared(t), paidmcp.ServerConfig{})
	body := call(1, "ask", "", "")
	for _, path := range []string{
		"//mcp", "/./mcp", "/mcp/", "/MCP", "/%6dcp", "/mcp%2f", "/mcp%00", "/mcp;a", "/mcp%", "/mcp%0a", `\mcp`, "/ｍcp", "/x/..%2fmcp", "/x/../mcp", "/mcp/.",
		strings.Replace(h.url, "127", "127", 1) + "/mcp", "http://evil.example.com/mcp",
	} {
		status := h.raw("POST " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\n\r\n" + body)
		inBand := strings.HasPrefix(path, h.url) && status == http.StatusOK // absolute form of the endpoint: asked for payment
		if !inBand && status != http.StatusBadRequest && status != http.StatusNotFound && status != http.StatusForbidden {
			t.Errorf("%q: %d", path, status)
		}
	}
	if h.ran.Load() != 0 {
		t.Errorf("%d runs", h.ran.Load())
	}
}

// TestT126_BearerTokens: a token is taken from its header alone, and what is wrong with it is told with the configured address.
func TestT126_BearerTokens(t *testing.T) {
	svc := shared(t)
	const base = "https://tools.example.com"
	h := host(t, svc, paidmcp.ServerConfig{BaseURL: base, AllowedHosts: []string{"*"}})
	metadata := `Bearer resource_metadata="` + base + `/.well-known/oauth-protected-resource/mcp"`
	ann, revoked, other := svc.Subscriber(20), svc.Subscriber(20), svc.Subscriber(20, client.WithResource("https://other.example.com/mcp"))
	ours, short := svc.Subscriber(20, client.WithResource(base+"/mcp")), svc.Subscriber(20, client.WithExpiry(time.Minute))
	body := call(1, "ask", "", "")
	for _, token := range []string{ann.AccessToken, ours.AccessToken, revoked.AccessToken, short.AccessToken} {
		if got := h.post(body, bearer(token)).text(t); !strings.HasPrefix(got, "answer") {
			t.Error(got)
		}
	}
	if err := revoked.Client.RevokePermission(t.Context(), revoked.Permission); err != nil {
		t.Fatal(err)
	}
	svc.Advance(2 * time.Minute)
	parts := strings.Split(ann.AccessToken, ".")
	forged := parts[0] + "." + parts[1] + "." + strings.Repeat("A", len(parts[2]))
	key, err := svc.NewKey("buyer")
	if err != nil {
		t.Fatal(err)
	}
	ran := h.ran.Load()
	for _, c := range []struct{ name, header, code string }{
		{"expired", bearer(short.AccessToken), "invalid_token"},
		{"revoked", bearer(revoked.AccessToken), "invalid_token"},
		{"another resource", bearer(other.AccessToken), "invalid_token"},
		{"forged", bearer(forged), "invalid_token"},
		{"unsigned", bearer(parts[0] + "." + parts[1] + "."), "invalid_token"},
		{"no token", bearer("abc"), "invalid_token"},
		{"API key", bearer(key.Key), "invalid_token"},
		{"JWS of an API key", bearer(key.Key[strings.Index(key.Key, ":")+1:]), "invalid_token"},
		{"other scheme", "Authorization: Basic YTpi", "invalid_request"},
		{"empty", "Authorization: Bearer ", "invalid_request"},
		{"alone", "Authorization: bearer", "invalid_request"},
	} {
		for _, how := range []func() httpAnswer{
			func() httpAnswer { return h.post(body, c.header) },
			func() httpAnswer {
				return h.post(call(1, "ask", "", modernMeta("")), modern("tools/call", "ask", c.header)...)
			},
			func() httpAnswer { return h.do(http.MethodGet, "/mcp", "", c.header) },
		} {
			a := how()
			if a.status != http.StatusUnauthorized || a.header.Get("WWW-Authenticate") != metadata+`, error="`+c.code+`"` || !strings.Contains(a.body, `"error":"unauthorized"`) {
				t.Errorf("%s: %d %v %s", c.name, a.status, a.header, a.body)
			}
		}
	}
	if h.ran.Load() != ran {
		t.Errorf("%d runs", h.ran.Load()-ran)
	}
	// In band the same tokens are answered in band.
	if r := h.post(call(1, "ask", "", paidBy(short.AccessToken))).rpc(t); !r.Result.IsError {
		t.Errorf("%+v", r)
	}
	// The scheme has no case, and a token for the service alone is good everywhere.
	if got := h.post(body, "Authorization: bEARER "+ann.AccessToken).text(t); got == "" {
		t.Error(got)
	}
	// In the query a token is none.
	if r := h.do(http.MethodPost, "/mcp?access_token="+ann.AccessToken, body).rpc(t); !r.Result.IsError {
		t.Errorf("%+v", r)
	}
	// What stands in Host is never told.
	closed := host(t, svc, paidmcp.ServerConfig{BaseURL: base, AllowedHosts: []string{"*"}, RequireSignIn: true})
	open := host(t, svc, paidmcp.ServerConfig{AllowedHosts: []string{"*"}, RequireSignIn: true})
	for _, evil := range []string{`evil"`, "evil\r\nX-Evil: 1", "evil, Basic realm=x", "a b"} {
		for s, want := range map[*hosted]string{closed: metadata, open: ""} {
			r := httptest.NewRequest(http.MethodPost, "/mcp?access_token="+ann.AccessToken, strings.NewReader(body))
			r.Host = evil
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, r)
			if w.Code != http.StatusUnauthorized || w.Header().Get("WWW-Authenticate") != want || w.Header().Get("X-Evil") != "" {
				t.Errorf("%q: %d %v", evil, w.Code, w.Header())
			}
		}
	}
}

// TestT127_SessionFixation: ids are made by the server, and belong to who opened the session.
func TestT127_SessionFixation(t *testing.T) {
	svc := shared(t)
	h := host(t, svc, paidmcp.ServerConfig{})
	ann, ben := svc.Subscriber(20), svc.Subscriber(20)
	again, err := ann.Client.AccessToken(t.Context(), svc.Plan())
	if err != nil {
		t.Fatal(err)
	}
	hers, nobodys := h.session(bearer(ann.AccessToken)), h.session()
	guess := strings.Repeat("0", 31) + "1"
	use := func(id string, headers ...string) int {
		return h.post(call(1, "echo", "", ""), append(headers, "Mcp-Session-Id: "+id)...).status
	}
	stream := func(id string, headers ...string) int {
		return h.do(http.MethodGet, "/mcp", "", append(headers, "Mcp-Session-Id: "+id, "Accept: text/event-stream")...).status
	}
	end := func(id string, headers ...string) httpAnswer {
		return h.do(http.MethodDelete, "/mcp", "", append(headers, "Mcp-Session-Id: "+id)...)
	}
	for _, id := range []string{guess, "", "x", strings.ToUpper(hers), hers + " x", hers[:31]} {
		if s := use(id, bearer(ann.AccessToken)); s != http.StatusNotFound {
			t.Errorf("%q: %d", id, s)
		}
	}
	if a := h.post(initialize, "Mcp-Session-Id: "+guess); a.status != http.StatusNotFound || a.header.Get("Mcp-Session-Id") != "" {
		t.Errorf("an id of the client's choice: %d", a.status)
	}
	for name, headers := range map[string][]string{"Ben": {bearer(ben.AccessToken)}, "nobody": nil} {
		if s := use(hers, headers...); s != http.StatusNotFound {
			t.Errorf("%s uses it: %d", name, s)
		}
		if s := stream(hers, headers...); s != http.StatusNotFound {
			t.Errorf("%s listens: %d", name, s)
		}
		if a := end(hers, headers...); a.status != http.StatusNotFound || a.body != `{"error":"Session not found"}` {
			t.Errorf("%s ends it: %d %s", name, a.status, a.body)
		}
	}
	if s := use(nobodys, bearer(ann.AccessToken)); s != http.StatusNotFound {
		t.Errorf("a session without a credential is taken over: %d", s)
	}
	// The same subscriber goes on with a new token.
	if s := use(hers, bearer(again.AccessToken)); s != http.StatusOK {
		t.Errorf("another token of hers: %d", s)
	}
	if a := end(hers, bearer(ann.AccessToken)); a.status != http.StatusNoContent {
		t.Errorf("%d %s", a.status, a.body)
	}
	if s := use(hers, bearer(ann.AccessToken)); s != http.StatusNotFound {
		t.Errorf("after its end: %d", s)
	}
	if a := end(hers, bearer(ann.AccessToken)); a.status != http.StatusNotFound {
		t.Errorf("ended twice: %d", a.status)
	}
	// A session that rests too long is gone.
	svc.Advance(5 * time.Hour)
	if s := use(nobodys); s != http.StatusNotFound {
		t.Errorf("after five hours: %d", s)
	}
	seen := map[string]bool{}
	for range 50 {
		id := h.post(message(1, "ping", nil)).header.Get("Mcp-Session-Id")
		if len(id) != 32 || seen[id] {
			t.Fatalf("id %q", id)
		}
		seen[id] = true
	}
}

// TestT128_RebindingAndForeignPages: nothing runs for another Host, a foreign page or a form.
func TestT128_RebindingAndForeignPages(t *testing.T) {
	svc := shared(t)
	h, ann := host(t, svc, paidmcp.ServerConfig{BaseURL: "https://tools.example.com"}), svc.Subscriber(20)
	body := call(1, "ask", "", paidBy(ann.AccessToken))
	for _, c := range []struct {
		headers []string
		status  int
	}{
		{[]string{"Host: evil.example.com"}, 403},
		{[]string{"Host: 127.0.0.1.evil.example.com"}, 403},
		{[]string{"Host: localhost.evil.example.com:80"}, 403},
		{[]string{"Host: tools.example.com:8080"}, 403},
		{[]string{"Host: 10.0.0.1"}, 403},
		{[]string{"Origin: https://evil.example.com"}, 403},
		{[]string{"Origin: null"}, 403},
		{[]string{"Origin: http://tools.example.com"}, 403},
		{[]string{"Origin: http://localhost.evil.example.com"}, 403},
		{[]string{"Origin: file://"}, 403},
		{[]string{"Origin: http://localhost", "Origin: http://localhost"}, 403},
		{[]string{"Sec-Fetch-Site: cross-site"}, 403},
		{[]string{"Sec-Fetch-Site: same-site"}, 403},
		{[]string{"Content-Type: text/plain"}, 415},
		{[]string{"Content-Type: multipart/form-data"}, 415},
	} {
		if a := h.post(body, c.headers...); a.status != c.status || a.header.Get("Access-Control-Allow-Origin") == "*" {
			t.Errorf("%v: %d %s", c.headers, a.status, a.body)
		}
		if c.status == 403 {
			if a := h.post(call(1, "ask", "", modernMeta(ann.AccessToken)), modern("tools/call", "ask", c.headers...)...); a.status != 403 {
				t.Errorf("%v: %d", c.headers, a.status)
			}
		}
	}
	if a := h.do(http.MethodOptions, "/mcp", "", "Origin: https://evil.example.com", "Access-Control-Request-Method: POST"); a.status != 403 {
		t.Errorf("a foreign page asks: %d", a.status)
	}
	if a := h.do(http.MethodGet, "/.well-known/oauth-protected-resource", "", "Host: evil.example.com"); a.status != 403 {
		t.Errorf("a document for a foreign Host: %d", a.status)
	}
	if a := h.do(http.MethodPost, "/register", `{"redirect_uris":["https://a.example.com/"]}`, "Origin: https://evil.example.com"); a.status != 403 {
		t.Errorf("a foreign page registers: %d", a.status)
	}
	if h.ran.Load() != 0 || ann.Balance() != 20 {
		t.Errorf("%d runs, balance %v", h.ran.Load(), ann.Balance())
	}
	for _, headers := range [][]string{
		{"Origin: http://localhost:3000"}, {"Origin: https://tools.example.com"}, {"Host: tools.example.com"}, {"Host: tools.example.com:443"},
		{"Host: localhost:1"}, {"Host: [::1]:1"}, {"Sec-Fetch-Site: same-origin"}, {"Sec-Fetch-Site: none"},
	} {
		if a := h.post(call(1, "echo", "", ""), headers...); a.status != 200 {
			t.Errorf("%v: %d %s", headers, a.status, a.body)
		}
	}
}

// TestT130_NameGames: a name that is not exactly that of an item is none, and a resource never costs less than its dearest price.
func TestT130_NameGames(t *testing.T) {
	svc := shared(t)
	h, ann := host(t, svc, paidmcp.ServerConfig{}), svc.Subscriber(50)
	for _, name := range []string{"ASK", "ask ", " ask", "аsk", "%61sk", "../ask", "ask\u0000", "ask/", "tools/ask", ""} {
		for _, a := range []httpAnswer{h.post(call(1, name, "", "")), h.post(call(1, name, "", paidBy(ann.AccessToken)))} {
			if r := a.rpc(t); r.Error.Code == 0 && !r.Result.IsError {
				t.Errorf("%q: %s", name, a.body)
			}
		}
	}
	if h.ran.Load() != 0 || ann.Balance() != 50 {
		t.Errorf("%d runs, balance %v", h.ran.Load(), ann.Balance())
	}
	for _, uri := range []string{"docs://all/index", "docs://all/a", "docs://all/%69ndex", "DOCS://all/a", "docs://all/../all/a", "docs://all/a%2fb"} {
		for _, headers := range [][]string{nil, modern("resources/read", uri)} {
			meta := json.RawMessage(`{}`)
			if headers != nil {
				meta = json.RawMessage(modernMeta(""))
			}
			r := h.post(message(1, "resources/read", map[string]any{"uri": uri, "_meta": meta}), headers...).rpc(t)
			if r.Error.Code != -32003 && r.Error.Code != -32002 && r.Error.Code != -32602 {
				t.Errorf("%q unpaid: %+v", uri, r)
			}
		}
	}
	if h.ran.Load() != 0 || ann.Balance() != 50 {
		t.Errorf("%d runs, balance %v", h.ran.Load(), ann.Balance())
	}
	// The free tool in the header, the one with a price in the message.
	for _, headers := range [][]string{{"Mcp-Name: echo"}, modern("tools/call", "echo"), modern("tools/list", "ask"), modern("tools/call", "Ask")} {
		meta := paidBy(ann.AccessToken)
		if len(headers) > 1 {
			meta = modernMeta(ann.AccessToken)
		}
		if a := h.post(call(1, "ask", "", meta), headers...); a.status != http.StatusBadRequest {
			t.Errorf("%v: %d %s", headers, a.status, a.body)
		}
	}
	if h.ran.Load() != 0 || ann.Balance() != 50 {
		t.Errorf("%d runs, balance %v", h.ran.Load(), ann.Balance())
	}
}

// TestT135_SessionsDoNotMix: what one caller says comes back to that caller alone, in both eras at once.
func TestT135_SessionsDoNotMix(t *testing.T) {
	svc := shared(t)
	h := host(t, svc, paidmcp.ServerConfig{})
	const callers = 20
	var wg sync.WaitGroup
	streams := make([]string, callers)
	for i := range callers {
		wg.Go(func() {
			canary := fmt.Sprintf("canary-%03d-", i)
			foreign := func(text string) bool { return strings.Count(text, "canary-") != strings.Count(text, canary) }
			if i%2 == 1 {
				for n := range 4 {
					// Every caller uses the same ids.
					a := h.post(call(n, "talk", canary, modernMeta("")), modern("tools/call", "talk")...)
					if !strings.Contains(a.body, "done with "+canary) || foreign(a.body) {
						t.Errorf("%s: %s", canary, a.body)
					}
				}
				return
			}
			in := "Mcp-Session-Id: " + h.session()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			listening := make(chan struct{})
			go func() { defer close(listening); streams[i] = h.listen(ctx, in) }()
			for n := range 4 {
				a := h.post(call(n, "talk", canary, `{"progressToken":"p"}`), in)
				if !strings.Contains(a.body, "working on "+canary) || !strings.Contains(a.body, "done with "+canary) || foreign(a.body) {
					t.Errorf("%s: %s", canary, a.body)
				}
			}
			cancel()
			<-listening
			if foreign(streams[i]) {
				t.Errorf("%s heard %s", canary, streams[i])
			}
		})
	}
	wg.Wait()
	// Somebody else's events cannot be asked for again.
	a := h.do(http.MethodGet, "/mcp", "", "Mcp-Session-Id: "+h.session(), "Accept: text/event-stream", "Last-Event-ID: ABC_0")
	if a.status != http.StatusBadRequest || strings.Contains(a.body, "canary") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// listen reads the stream of a session until the context ends.
func (h *hosted) listen(ctx context.Context, session string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+"/mcp", nil)
	if err != nil {
		return err.Error()
	}
	_, id, _ := strings.Cut(session, ": ")
	req.Header.Set("Mcp-Session-Id", id)
	req.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	var text strings.Builder
	buf := make([]byte, 512)
	for {
		n, err := res.Body.Read(buf)
		text.Write(buf[:n])
		if err != nil {
			return text.String()
		}
	}
}

// TestT137_LargeInputs: a body has a bound, a list has pages, and a schema that points elsewhere is not followed.
func TestT137_LargeInputs(t *testing.T) {
	svc := shared(t)
	h, ann := host(t, svc, paidmcp.ServerConfig{}), svc.Subscriber(20)
	large := strings.Repeat("a", 1<<20+1)
	for _, headers := range [][]string{nil, modern("tools/call", "ask")} {
		if a := h.post(call(1, "ask", large, paidBy(ann.AccessToken)), headers...); a.status != http.StatusRequestEntityTooLarge {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if a := h.do(http.MethodPost, "/register", `{"client_name":"`+large+`"}`); a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s", a.status, a.body)
	}
	if h.ran.Load() != 0 || ann.Balance() != 20 {
		t.Errorf("%d runs, balance %v", h.ran.Load(), ann.Balance())
	}

	asked := make(chan struct{}, 1)
	schemas := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }))
	defer schemas.Close()
	schema := json.RawMessage(`{"type":"object","properties":{"q":{"$ref":"` + schemas.URL + `/q.json"}}}`)
	for i := range 2_500 {
		h.mcp.AddTool(&mcp.Tool{Name: fmt.Sprintf("tool-%05d", i), InputSchema: schema}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "ran"}}}, nil
		})
	}
	in := "Mcp-Session-Id: " + h.session()
	names, pages := map[string]bool{}, 0
	for cursor := ""; ; {
		params := map[string]any{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		r := h.post(message(1, "tools/list", params), in).rpc(t)
		for _, tool := range r.Result.Tools {
			names[tool.Name] = true
		}
		pages++
		if cursor = r.Result.Next; cursor == "" || pages > 20 {
			break
		}
	}
	if len(names) != 2_503 || pages != 3 {
		t.Errorf("%d tools on %d pages", len(names), pages)
	}
	if got := h.post(call(2, "tool-00001", "x", ""), in).text(t); got != "ran" {
		t.Error(got)
	}
	select {
	case <-asked:
		t.Error("a schema was fetched")
	default:
	}
}
