package paidmcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paidmcp"
)

// TestPathsOfTheEndpoint: other spellings of the path reach nothing, and the endpoint itself runs nothing unpaid.
// T92
func TestPathsOfTheEndpoint(t *testing.T) {
	h := host(t, service(t), paidmcp.ServerConfig{})
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

// TestBearerTokens: a token is taken from its header alone, and what is wrong with it is told with the configured address.
// T126
func TestBearerTokens(t *testing.T) {
	svc := service(t)
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
	must.Do(t, revoked.Client.RevokePermission(t.Context(), revoked.Permission))
	svc.Advance(2 * time.Minute)
	parts := strings.Split(ann.AccessToken, ".")
	forged := parts[0] + "." + parts[1] + "." + strings.Repeat("A", len(parts[2]))
	key := must.Get(svc.NewKey("buyer"))(t)
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

// TestSessionFixation: ids are made by the server, and belong to who opened the session.
// T127
func TestSessionFixation(t *testing.T) {
	svc := service(t)
	h := host(t, svc, paidmcp.ServerConfig{})
	ann, ben := svc.Subscriber(20), svc.Subscriber(20)
	again := must.Get(ann.Client.AccessToken(t.Context(), svc.Plan()))(t)
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

// TestRebindingAndForeignPages: nothing runs for another Host, a foreign page or a form.
// T128
func TestRebindingAndForeignPages(t *testing.T) {
	svc := service(t)
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

// TestNameGames: a name that is not exactly that of an item is none, and a resource never costs less than its dearest price.
// T130
func TestNameGames(t *testing.T) {
	svc := service(t)
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

// TestSessionsDoNotMix: what one caller says comes back to that caller alone, in both eras at once.
// T135
func TestSessionsDoNotMix(t *testing.T) {
	svc := service(t)
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

// TestLargeInputs: a body has a bound, a list has pages, and a schema that points elsewhere is not followed.
// T137
func TestLargeInputs(t *testing.T) {
	svc := service(t)
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
