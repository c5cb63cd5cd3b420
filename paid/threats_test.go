package paid_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// fronts are the ways to put a price on POST /ask. Each is a fresh handler with the work behind it.
func fronts(t *testing.T, d *desk, h *work) map[string]string {
	t.Helper()
	log, _ := logs(t)
	opts := []paid.Option{paid.Plan(plan), paid.Agent(agent), paid.Credits(2), paid.MaxBody(64), log}
	mux := http.NewServeMux()
	mux.Handle("POST /ask", h)
	inner := serve(t, mux)
	upstream := must.Get(url.Parse(inner.URL))(t)
	all := serve(t, h)
	anyPath, _ := url.Parse(all.URL)
	return map[string]string{
		"handler":           serve(t, paid.Handler(d, h, opts...)).Listener.Addr().String(),
		"handler of a mux":  serve(t, paid.Handler(d, mux, opts...)).Listener.Addr().String(),
		"routes":            serve(t, paid.Routes(d, mux, paid.At("POST /ask", opts...))).Listener.Addr().String(),
		"proxy":             serve(t, paid.Proxy(d, upstream, paid.With(opts...), paid.At("POST /ask"))).Listener.Addr().String(),
		"proxy, default":    serve(t, paid.Proxy(d, anyPath, paid.With(opts...), paid.Default())).Listener.Addr().String(),
		"proxy, catch-all ": serve(t, paid.Proxy(d, anyPath, paid.With(opts...), paid.At("POST /ask"))).Listener.Addr().String(),
	}
}

// TestCredentialInTheWrongPlace offers the token everywhere but in the header.
// T14
func TestCredentialInTheWrongPlace(t *testing.T) {
	d := newDesk(100)
	h := &work{t: t}
	for name, addr := range fronts(t, d, h) {
		for _, text := range []string{
			"POST /ask?token=" + token + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
			"POST /ask?payment-signature=" + token + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
			"POST /ask HTTP/1.1\r\nHost: a\r\nConnection: close\r\nCookie: payment-signature=" + token + "\r\nContent-Length: 0\r\n\r\n",
			"POST /ask HTTP/1.1\r\nHost: a\r\nConnection: close\r\nReferer: http://a/?" + token + "\r\nContent-Length: 0\r\n\r\n",
			"POST /ask HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer " + token + "\r\nContent-Length: 0\r\n\r\n",
		} {
			if got := statuses(raw(t, addr, text)); len(got) != 1 || got[0] != "402" {
				t.Errorf("%s %.60q: %v", name, text, got)
			}
		}
	}
	if h.count() != 0 {
		t.Errorf("%d runs", h.count())
	}
}

// TestHandler_Smuggling sends messages that two servers could read in two ways. The text after them must not become a request.
// T88
func TestHandler_Smuggling(t *testing.T) {
	d := newDesk(1000)
	h := &work{t: t}
	addrs := fronts(t, d, h)
	second := "POST /ask HTTP/1.1\r\nHost: a\r\nPayment-Signature: " + token + "\r\nContent-Length: 0\r\n\r\n"
	head := "POST /ask HTTP/1.1\r\nHost: a\r\n"
	for name, text := range map[string]string{
		"CL and TE":          head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two CL":             head + "Content-Length: 5\r\nContent-Length: 0\r\n\r\n",
		"TE xchunked":        head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"TE twice":           head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"bare LF in chunk":   head + "Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n",
		"chunk extension":    head + "Transfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("x", 1<<20) + "\r\na\r\n0\r\n\r\n",
		"CL with plus":       head + "Content-Length: +0\r\n\r\n",
		"space before colon": head + "Content-Length : 0\r\n\r\n",
		"folded first line":  "POST /ask HTTP/1.1\r\n Host: a\r\n\r\n",
	} {
		for front, addr := range addrs {
			before := d.count("verify")
			got := statuses(raw(t, addr, text+second))
			if len(got) > 1 || (len(got) == 1 && got[0][0] != '4' && got[0] != "501") {
				t.Errorf("%s, %s: %v", front, name, got)
			}
			if d.count("verify") != before {
				t.Errorf("%s, %s: the text behind became a request", front, name)
			}
		}
	}
	if h.count() != 0 {
		t.Errorf("%d runs", h.count())
	}
}

// T89
func TestTwoCredentials(t *testing.T) {
	other := second
	d := newDesk(100)
	d.service = issuer
	h := &work{t: t}
	log, _ := logs(t)
	bearer := serve(t, paid.Handler(d, h, paid.Plan(plan), paid.Credits(2), log, paid.TokenHeaders("payment-signature", "Authorization"))).Listener.Addr().String()
	plain := paidServer(t, d, h).Listener.Addr().String()
	x402form := x402.EncodeToken(token, x402.Requirements{Scheme: "svc:erc4337", Network: "eip155:84532", PlanID: string(plan)}, x402.Authorization{}, "")
	for _, c := range []struct {
		name, addr, headers, want string
		runs                      int
	}{
		{"twice", plain, "Payment-Signature: " + token + "\r\nPayment-Signature: " + other, "400", 0},
		{"twice, equal", plain, "Payment-Signature: " + token + "\r\nPAYMENT-SIGNATURE: " + token, "400", 0},
		{"comma", plain, "Payment-Signature: " + token + ", " + other, "402", 0},
		{"underscore", plain, "Payment_Signature: " + token, "402", 0},
		{"with version 1", plain, "Payment-Signature: " + token + "\r\nX-PAYMENT: e30=", "400", 0},
		{"other bearer", bearer, "Payment-Signature: " + token + "\r\nAuthorization: Bearer " + other, "400", 0},
		{"bearer not listed", plain, "Payment-Signature: " + token + "\r\nAuthorization: Bearer b3RoZXI", "200", 1},
		{"bearer of other software", bearer, "Payment-Signature: " + token + "\r\nAuthorization: Bearer b3RoZXI.b3RoZXI.b3RoZXI", "200", 1},
		{"equal bearer", bearer, "Payment-Signature: " + token + "\r\nAuthorization: bearer " + token, "200", 1},
		{"other rendering", bearer, "Payment-Signature: " + x402form + "\r\nAuthorization: Bearer " + token, "200", 1},
		{"bearer alone", bearer, "Authorization: BEARER " + token, "200", 1},
		{"basic is none", bearer, "Authorization: Basic " + token, "402", 0},
	} {
		if c.name == "basic is none" { // the handler would rightly see it
			c.headers = "Authorization: Basic dTpw"
		}
		before := h.count()
		got := statuses(raw(t, c.addr, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"+c.headers+"\r\n\r\n"))
		if len(got) != 1 || got[0] != c.want || h.count()-before != c.runs {
			t.Errorf("%s: %v, %d runs", c.name, got, h.count()-before)
		}
	}
}

// TestInternalHeaders sends and answers what other software takes for an order.
// T90
func TestInternalHeaders(t *testing.T) {
	d := newDesk(100)
	h := &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			switch strings.ReplaceAll(strings.ToLower(name), "_", "-") {
			case "settlement-overrides", "payment-response", "payment-required", "x-payment-response", "payment-signature":
				t.Errorf("%s reaches the handler", name)
			}
		}
		w.Header().Set("Settlement-Overrides", `{"amount":"0"}`)
		w.Header().Set("PAYMENT-RESPONSE", "forged")
		w.Header().Set("X-Payment-Response", "forged")
		w.Header()["payment_response"] = []string{"forged"}
		fmt.Fprint(w, content)
	}}
	for name, addr := range fronts(t, d, h) {
		out := raw(t, addr, "POST /ask HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\nSettlement-Overrides: {\"amount\":\"0\"}\r\n"+
			"settlement_overrides: x\r\nPayment-Response: x\r\nX-Payment-Response: x\r\nPayment_Signature: x\r\nPayment-Signature: "+token+"\r\n\r\n")
		lower := strings.ToLower(out)
		if !strings.HasPrefix(out, "HTTP/1.1 200") || strings.Contains(lower, "settlement-overrides") || strings.Contains(out, "forged") ||
			strings.Count(lower, "payment-response:") != 1 {
			t.Errorf("%s: %q", name, out)
		}
	}
	n := h.count()
	d.want(t, toll.Credits(2*n), n, 0)
}

// T91
func TestHandler_Sizes(t *testing.T) {
	d := newDesk(1000)
	h := &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return // a handler that ignores the error must not turn it into a paid answer
		}
		fmt.Fprint(w, content)
	}}
	pay := "Payment-Signature: " + token + "\r\n"
	lines := func(n int) (s string) {
		for i := range n {
			s += fmt.Sprintf("X-%d: 1\r\n", i)
		}
		return s
	}
	chunk := fmt.Sprintf("%x\r\n%s\r\n", 32, strings.Repeat("x", 32))
	for name, addr := range fronts(t, d, h) {
		for _, c := range []struct{ what, text, want string }{
			{"headers", "POST /ask HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + pay + "X-A: " + strings.Repeat("x", 16<<10) + "\r\nContent-Length: 0\r\n\r\n", "431"},
			{"token", "POST /ask HTTP/1.1\r\nHost: a\r\nConnection: close\r\nPayment-Signature: " + strings.Repeat("x", 8<<10+1) + "\r\nContent-Length: 0\r\n\r\n", "431"},
			{"url", "POST /ask?" + strings.Repeat("x", 8<<10) + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + pay + "Content-Length: 0\r\n\r\n", "414"},
			{"lines", "POST /ask HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + pay + lines(198) + "Content-Length: 0\r\n\r\n", "431"},
			{"body", "POST /ask HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + pay + "Content-Length: 65\r\n\r\n" + strings.Repeat("x", 65), "413"},
			{"chunked without end", "POST /ask HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + pay + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat(chunk, 4096), "413"},
		} {
			out := raw(t, addr, c.text)
			got := statuses(out)
			if len(got) != 1 || got[0] != c.want || strings.Contains(out, content) {
				// An upstream whose connection broke on the cut body makes the proxy's own 413.
				t.Errorf("%s, %s: %v", name, c.what, got)
			}
		}
	}
	if n := d.spent(); n != 0 {
		t.Errorf("burned %d", n)
	}
}

// TestPaywallByPath asks for the paid path in every spelling, without paying.
// T92
func TestPaywallByPath(t *testing.T) {
	d := newDesk(100)
	h := &work{t: t}
	for name, addr := range fronts(t, d, h) {
		for _, target := range []string{
			"/ask", "//ask", "/./ask", "/ask/", "/ASK", "/%61sk", "/ask%2f", "/ask%2F", "/ask%00", "/ask;a", "/ask%3ba", "/ask%", "/ask%0a", `\ask`, `/\ask`, "/%5cask",
			"http://evil.example/ask", "http://evil.example//ask", "/ａｓｋ", "/%EF%BD%81sk", "/x/..%2fask", "/x/../ask", "/x/%2e%2e/ask", "/..//ask", "/ask/.",
			"/ask?x=/../free", "/ask%23", "/%2561sk", "/ask%20", "*", "/ask%ff",
		} {
			got := statuses(raw(t, addr, "POST "+target+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"))
			ok := len(got) == 1 && (got[0] == "400" || got[0] == "402" || got[0] == "404")
			if name == "routes" && len(got) == 1 && strings.HasPrefix(got[0], "3") {
				ok = true // the standard mux redirects what it cleans, and runs nothing
			}
			if !ok {
				t.Errorf("%s, %s: %v", name, target, got)
			}
		}
	}
	if h.count() != 0 {
		t.Errorf("%d runs", h.count())
	}
}

// TestPaidPathsAreReadOnce: not even a payment opens a path that two routers read in two ways, where these have two prices.
// T92
func TestPaidPathsAreReadOnce(t *testing.T) {
	d := newDesk(100)
	h := &work{t: t}
	for name, addr := range fronts(t, d, h) {
		targets := []string{"/ask%00", "/ask%0a", "/ask%ff", "/ask%7f", `/x\ask`, "/ask%2f..", "/ask/..;a/b", "/ask%2f.", "/a/../b;c"}
		if !strings.HasPrefix(name, "handler") && name != "proxy, default" { // these have one price for all paths
			targets = append(targets, "/ask%2f", "/%5cask", "/ask;a", "/ask%3ba", "//ask", "/ask//", "/ask;a/b")
		}
		for _, target := range targets {
			out := raw(t, addr, "POST "+target+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\nPayment-Signature: "+token+"\r\n\r\n")
			if got := statuses(out); len(got) != 1 || got[0] != "400" {
				t.Errorf("%s, %s: %v", name, target, got)
			}
		}
	}
	if h.count() != 0 || d.count("verify") != 0 {
		t.Errorf("%d runs, %d verified", h.count(), d.count("verify"))
	}
}

// T93
func TestHandler_Verbs(t *testing.T) {
	d := newDesk(100)
	h := &work{t: t}
	ws := "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	for name, addr := range fronts(t, d, h) {
		for _, c := range []struct{ line, headers string }{
			{"HEAD /ask", ""}, {"OPTIONS /ask", ""}, {"TRACE /ask", ""}, {"post /ask", ""}, {"BREW /ask", ""}, {"CONNECT /ask", ""},
			{"GET /ask", "X-HTTP-Method-Override: POST\r\n"}, {"GET /ask?_method=POST", ""}, {"GET /ask", "x_http_method_override: POST\r\n"},
			{"GET /ask", ws}, {"POST /ask", ws}, {"POST /ask", ws + "Payment-Signature: " + token + "\r\n"},
		} {
			out := raw(t, addr, c.line+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"+c.headers+"Content-Length: 0\r\n\r\n")
			got := statuses(out)
			ok := len(got) == 1 && (got[0] == "402" || got[0] == "405" || got[0] == "404" || got[0] == "400")
			if !ok || strings.Contains(out, fmt.Sprintf("Content-Length: %d\r\n", len(content))) || strings.Contains(out, content) {
				t.Errorf("%s, %s %q: %v", name, c.line, c.headers, got)
			}
		}
	}
	if h.count() != 0 {
		t.Errorf("%d runs", h.count())
	}
}

// TestHeadIsPaid proves that a paid HEAD costs what GET costs and names the length, an unpaid one neither.
// T93
func TestHeadIsPaid(t *testing.T) {
	d := newDesk(100)
	s := serve(t, paid.Routes(d, &work{t: t}, paid.At("GET /ask", paid.Plan(plan), paid.Credits(2))))
	if r := send(t, "HEAD", s.URL+"/ask"); r.status != 402 || r.header.Get("Content-Length") == fmt.Sprint(len(content)) {
		t.Errorf("%+v", r)
	}
	r := send(t, "HEAD", s.URL+"/ask", sig, token)
	if r.status != 200 || r.body != "" || r.header.Get("Content-Length") != fmt.Sprint(len(content)) || !r.receipt(t).Success {
		t.Errorf("%+v", r)
	}
	d.want(t, 2, 1, 0)
}

// TestSideDoors is what a handler could try to reach the connection around the gate.
// T93
func TestSideDoors(t *testing.T) {
	d := newDesk(100)
	s := paidServer(t, d, &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		if _, ok := w.(http.Hijacker); ok {
			t.Error("the writer can be hijacked")
		}
		if _, ok := w.(io.ReaderFrom); ok {
			t.Error("the writer reads around the buffer")
		}
		if _, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
			t.Error("the writer can be unwrapped")
		}
		if _, _, err := http.NewResponseController(w).Hijack(); err == nil {
			t.Error("the controller hijacks")
		}
		w.WriteHeader(http.StatusContinue)
		w.WriteHeader(http.StatusProcessing)
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, "own error")
	}})
	out := raw(t, s.Listener.Addr().String(), "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nPayment-Signature: "+token+"\r\n\r\n")
	if strings.Join(statuses(out), " ") != "500" || !strings.Contains(out, "own error") {
		t.Errorf("%q", out)
	}
	d.want(t, 0, 0, 1)
}

// TestForwardingHeaders proves that what a peer claims about host and scheme goes nowhere.
// T94
func TestForwardingHeaders(t *testing.T) {
	d := newDesk(100)
	h := &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.Header {
			if strings.Contains(strings.Join(values, ""), "evil") {
				t.Errorf("%s: %v reaches the upstream", name, values)
			}
		}
		if strings.Contains(r.Host, "evil") {
			t.Errorf("Host %s", r.Host)
		}
		fmt.Fprint(w, content)
	}}
	up := serve(t, h)
	u, _ := url.Parse(up.URL)
	public := paid.PublicURL("https://agent.example.com")
	s := serve(t, paid.Proxy(d, u, paid.With(paid.Plan(plan), public), paid.Default()))
	req, _ := http.NewRequest("GET", s.URL+"/ask", nil)
	req.Host = "evil.example"
	for _, n := range []string{"X-Forwarded-Host", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Prefix", "Forwarded", "X-Real-IP", "X-Original-URL", "X-Rewrite-URL", "X_Forwarded_Host"} {
		req.Header.Set(n, "evil.example")
	}
	req.Header.Set(sig, token)
	if r := do(t, req); r.status != 200 || d.resource[0] != "https://agent.example.com/ask" {
		t.Errorf("%+v, resource %v", r, d.resource)
	}
	req.Header.Del(sig)
	if r := do(t, req); r.status != 402 || strings.Contains(r.body, "evil") {
		t.Errorf("%+v", r)
	}
	plain := paidServer(t, d, &work{t: t})
	req, _ = http.NewRequest("GET", plain.URL+"/ask", nil)
	req.Host = "evil.example"
	if r := do(t, req); r.status != 402 || strings.Contains(r.body, "evil") || !strings.Contains(r.body, `"url":"/ask"`) {
		t.Errorf("%+v", r)
	}
}

// T95
func TestResponseSplitting(t *testing.T) {
	d := newDesk(100)
	d.refuse = &x402.VerifyResponse{
		InvalidReason: x402.ReasonInsufficientFunds, Code: toll.CodeInsufficientCredits,
		InvalidMessage: "a\r\nSet-Cookie: x=1\u2028b\x00c\xff" + strings.Repeat("long ", 2000),
	}
	d.orderURL = "https://pay.example.com/\r\nX-Evil: 1"
	h := paid.Handler(d, &work{t: t}, paid.Plan(plan), paid.Description("d\r\nX-Evil: 2\u2028"), paid.PublicURL("https://agent.example.com"))
	for _, target := range []string{"/?" + strings.Repeat("q", 8000), "/" + strings.Repeat("p", 8000)} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		if n := len(w.Header().Get("payment-required")); w.Code != 402 || n == 0 || n > 6<<10 {
			t.Errorf("status %d, payment-required of %d bytes", w.Code, n)
		}
	}
	for _, id := range []string{"ok-1", "a b", "a\r\nX-Evil: 3", "\u2028", strings.Repeat("x", 129), "\x00"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(sig, token)
		r.Header.Set("x-correlation-id", id)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 402 {
			t.Fatalf("%d", w.Code)
		}
		for name, values := range w.Header() {
			for _, v := range values {
				if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' }) || len(v) > 6<<10 {
					t.Errorf("%s: %q", name, v)
				}
			}
		}
		var p x402.PaymentRequired
		if err := x402.DecodeHeader(w.Header().Get("payment-required"), &p); err != nil || strings.ContainsAny(p.Error, "\r\n\x00\u2028") {
			t.Errorf("error %q, %v", p.Error, err)
		}
		if got := w.Header().Get("X-Correlation-Id"); (got == id) != (id == "ok-1") {
			t.Errorf("correlation id %q for %q", got, id)
		}
	}
}

// TestSharedCache puts a conforming cache in front: what one subscriber pays, nobody else gets.
// T99
func TestSharedCache(t *testing.T) {
	d := newDesk(100)
	h := &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		for _, c := range []string{"public, max-age=3600", "s-maxage=3600"} {
			w.Header().Add("Cache-Control", c)
		}
		w.Header().Set("Expires", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		if r.URL.Path == "/missing" {
			w.WriteHeader(404)
		}
		fmt.Fprint(w, content)
	}}
	stored := map[string]reply{}
	s := paidServer(t, d, h)
	through := func(path string, header ...string) reply {
		if r, ok := stored[path]; ok {
			return r
		}
		r := send(t, "GET", s.URL+path, header...)
		cc := r.header.Get("Cache-Control")
		if !strings.Contains(cc, "no-store") && !strings.Contains(cc, "private") {
			stored[path] = r
		}
		return r
	}
	for _, path := range []string{"/ask", "/missing"} {
		through(path, sig, token)
		if r := through(path); r.status != 402 || strings.Contains(r.body, content) {
			t.Errorf("%s: a stranger gets %+v", path, r)
		}
	}
}

// T100
func TestRangesAndConditions(t *testing.T) {
	d := newDesk(100)
	h := &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "a.txt", time.Unix(1700000000, 0), strings.NewReader(content))
	}}
	s := paidServer(t, d, h)
	for i, c := range []struct {
		name, value string
		status      int
		body        string
	}{
		{"Range", "bytes=4-7", 206, content[4:8]},
		{"If-None-Match", `"1"`, 200, content},
		{"If-Modified-Since", "Sun, 01 Nov 2026 00:00:00 GMT", 200, content},
		{"Range", "bytes=900-", 416, "invalid range: failed to overlap\n"},
	} {
		if r := send(t, "GET", s.URL, c.name, c.value); r.status != 402 || strings.Contains(r.body, content[4:8]) {
			t.Errorf("%s unpaid: %+v", c.name, r)
		}
		r := send(t, "GET", s.URL, c.name, c.value, sig, token)
		if r.status != c.status || r.body != c.body {
			t.Errorf("%s: %+v", c.name, r)
		}
		if burns := min(i+1, 3); d.spent() != toll.Credits(2*burns) {
			t.Errorf("%s: burned %d", c.name, d.spent())
		}
	}
	d.want(t, 6, 3, 1)
}

// TestEarlyClose closes the connection before, in and after the handler.
// T102
func TestEarlyClose(t *testing.T) {
	for _, when := range []string{"before", "in", "after", "in the answer"} {
		t.Run(when, func(t *testing.T) {
			d := newDesk(100)
			left, entered := make(chan struct{}), make(chan struct{}, 1)
			hang := func() { entered <- struct{}{}; <-left }
			h := &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
				if when == "in" {
					hang()
					<-r.Context().Done()
				}
				fmt.Fprint(w, strings.Repeat(content, 100000))
			}}
			d.before = func(op string, _ int) error {
				if (when == "before" && op == "verify") || (when == "after" && op == "settle") {
					hang()
				}
				return nil
			}
			log, _ := logs(t)
			front := paid.Handler(d, h, paid.Plan(plan), paid.Agent(agent), paid.Credits(2), log)
			requests := make(chan *http.Request, 1)
			s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests <- r
				front.ServeHTTP(w, r)
			}))
			c := must.Get(net.Dial("tcp", s.Listener.Addr().String()))(t)
			fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: a\r\nPayment-Signature: %s\r\n\r\n", token)
			if when == "in the answer" {
				must.Get(bufio.NewReader(c).ReadString('\n'))(t)
				c.Close()
			} else {
				<-entered
				c.Close()
				<-(<-requests).Context().Done() // the server has noticed
				close(left)
			}
			eventually(t, "one outcome", d.decided)
			if when == "before" || when == "in" {
				d.want(t, 0, 0, 1)
			} else {
				d.want(t, 2, 1, 0)
			}
			if when == "before" && h.count() != 0 {
				t.Error("the handler ran for nobody")
			}
		})
	}
}

// overriding is an upstream whose framework takes a request for one with the method that it names.
func overriding(t *testing.T, ran *atomic.Value) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		take := func(names map[string][]string) {
			for name, v := range names {
				if n := strings.ToLower(strings.NewReplacer(".", "_", "[]", "").Replace(name)); n == "_method" && len(v) > 0 {
					method = v[0]
				}
			}
		}
		take(r.URL.Query())
		if h := r.Header.Get("X-HTTP-Method-Override"); h != "" {
			method = h
		}
		if r.Method == "POST" {
			kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
			switch kind {
			case "application/json":
				var members map[string]any
				_ = json.NewDecoder(r.Body).Decode(&members)
				if m, ok := members["_method"].(string); ok {
					method = m
				}
			case "multipart/form-data":
				must.Check(t, r.ParseMultipartForm(1<<20))
				take(r.PostForm)
			default:
				must.Check(t, r.ParseForm())
				take(r.PostForm)
			}
		}
		ran.Store(strings.ToUpper(method))
		fmt.Fprint(w, content)
	})
}

// TestHandler_MethodOverrides: whatever spelling names another method, in the query, in a form or in JSON, a request that is cheaper does not
// run what another method costs.
// T93
func TestHandler_MethodOverrides(t *testing.T) {
	d := newDesk(1000)
	var ran atomic.Value
	up := serve(t, overriding(t, &ran))
	u, _ := url.Parse(up.URL)
	routes := []paid.Route{
		paid.With(paid.Plan(plan)), paid.Free("POST /free"), paid.At("DELETE /free", paid.Credits(5)),
		paid.At("POST /:cheap", paid.Credits(1)), paid.At("DELETE /cheap", paid.Credits(5)),
		paid.At("POST /w/*", paid.Credits(1)), paid.At("DELETE /w/x/:id", paid.Credits(5)),
		paid.At("POST /a/alone", paid.Credits(1)), paid.At("POST /a/even", paid.Credits(1)), paid.At("PUT /a/even", paid.Credits(1)),
	}
	const multi = "--x\r\nContent-Disposition: form-data; name=\"%s\"\r\n\r\nDELETE\r\n--x--\r\n"
	const form, object, parts = "application/x-www-form-urlencoded", "application/json; charset=utf-8", `multipart/form-data; boundary="x"`
	for name, front := range map[string]http.Handler{
		"proxy": paid.Proxy(d, u, routes...), "routes": paid.Routes(d, overriding(t, &ran), routes...),
	} {
		s := serve(t, front)
		post := func(path, kind, body string) reply {
			t.Helper()
			ran.Store("")
			req := must.Get(http.NewRequest("POST", s.URL+path, strings.NewReader(body)))(t)
			req.Header.Set("Content-Type", kind)
			req.Header.Set(sig, token)
			return do(t, req)
		}
		for _, path := range []string{"/free", "/cheap", "/w/x/1"} {
			for _, c := range [][3]string{
				{"?_method=DELETE"}, {"?%5fmethod=DELETE"}, {"?_%6dethod=DELETE"}, {"?_METHOD=DELETE"}, {"?.method=DELETE"}, {"?a=b;_method=DELETE"},
				{"?_method[]=DELETE"}, {"?a&%5Fmethod%5B%5D=DELETE"},
				{"", form, "_method=DELETE"}, {"", form, "a=b&%5fmethod=DELETE"}, {"", strings.ToUpper(form) + ";charset=utf-8", "_method=DELETE"},
				{"", object, `{"_method":"DELETE"}`}, {"", object, `{"a":[1],"\u005fmethod":"DELETE"}`}, {"", object, ` {"_\u006Dethod":"DELETE"}`},
				{"", parts, fmt.Sprintf(multi, "_method")}, {"", parts, "preamble\r\n" + fmt.Sprintf(multi, "_method")},
			} {
				kind := c[1]
				if kind == "" {
					kind = "text/plain"
				}
				if r := post(path+c[0], kind, c[2]); r.status != 405 || ran.Load() != "" {
					t.Errorf("%s %s%s %s %q: %d, ran %q", name, path, c[0], c[1], c[2], r.status, ran.Load())
				}
			}
			for _, c := range [][3]string{
				{"?method=DELETE", form, "method=DELETE&a_method=x"}, {"", object, `{"method":"DELETE","a":{"_method":"DELETE"}}`},
				{"", object, `[{"_method":"DELETE"}]`}, {"", object, ``}, {"", parts, fmt.Sprintf(multi, "a")}, {"", "text/plain", "_method=DELETE"},
				{"?methods=_method", form, "a=_method"},
			} {
				if r := post(path+c[0], c[1], c[2]); r.status != 200 || ran.Load() != "POST" {
					t.Errorf("%s %s%s %s %q: %d, ran %q", name, path, c[0], c[1], c[2], r.status, ran.Load())
				}
			}
			if r := post(path, form, strings.Repeat("a", 1<<20)+"&_method=DELETE"); r.status != 413 || ran.Load() != "" {
				t.Errorf("%s %s: a large form: %d, ran %q", name, path, r.status, ran.Load())
			}
			for kind, body := range map[string]string{parts: "--x\r\n", "multipart/form-data": fmt.Sprintf(multi, "_method"), object: `{"_method":"DELETE"`} {
				if r := post(path, kind, body); r.status != 400 || ran.Load() != "" {
					t.Errorf("%s %s: malformed %s: %d, ran %q", name, path, kind, r.status, ran.Load())
				}
			}
		}
		// Where no other method has another price, the gate reads no bodies.
		for _, path := range []string{"/a/alone", "/a/even"} {
			if r := post(path, form, strings.Repeat("a", 2<<20)); r.status != 200 || ran.Load() != "POST" {
				t.Errorf("%s %s: %d, ran %q", name, path, r.status, ran.Load())
			}
		}
	}
}
