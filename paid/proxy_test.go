package paid_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
)

func TestProxy(t *testing.T) {
	d := newDesk(100)
	var got []string
	var mu sync.Mutex
	up := serve(t, &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		got = append(got, r.Method+" "+r.URL.RequestURI())
		mu.Unlock()
		switch r.URL.Path {
		case "/base/chunks": // no length: the reverse proxy wants to flush it
			fmt.Fprint(w, "one ")
			w.(http.Flusher).Flush()
			fmt.Fprint(w, "two")
		case "/base/events":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: 1\n\n")
		case "/base/cut":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, content)
		case "/base/early":
			w.Header().Set("Link", content)
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			w.WriteHeader(http.StatusNotFound)
		default:
			fmt.Fprint(w, content)
		}
	}})
	u, _ := url.Parse(up.URL + "/base")
	log, _ := logs(t)
	s := serve(t, paid.Proxy(d, u, paid.With(paid.Plan(plan), log, paid.Agent(agent)), paid.Free("GET /health"),
		paid.At("POST /ask", paid.Credits(2)), paid.At("GET /items/:id/{part}", paid.Credits(3)), paid.At("GET /items/1/all", paid.Credits(4)),
		paid.At("GET /chunks"), paid.At("GET /events"), paid.At("GET /cut"), paid.At("GET /early"), paid.At("GET /docs")))
	for _, c := range []struct {
		method, path   string
		pay            bool
		status         int
		burned         toll.Credits
		receipt        bool
		body, upstream string
	}{
		{"GET", "/health", false, 200, 0, false, content, "GET /base/health"},
		{"POST", "/ask?q=1", false, 402, 0, false, "", ""},
		{"POST", "/ask?q=1", true, 200, 2, true, content, "POST /base/ask?q=1"},
		{"GET", "/nothing", true, 404, 2, false, "", ""},
		{"GET", "/items/7/a", true, 200, 5, true, content, "GET /base/items/7/a"},
		{"GET", "/items/1/all", true, 200, 9, true, content, "GET /base/items/1/all"},
		{"GET", "/x/..//docs/", true, 200, 10, true, content, "GET /base/docs/"},
		{"GET", "/chunks", true, 200, 11, true, "one two", "GET /base/chunks"},
		{"GET", "/events", true, 200, 12, true, "data: 1\n\n", "GET /base/events"},
		{"GET", "/early", true, 404, 12, false, "", "GET /base/early"},
	} {
		mu.Lock()
		got = nil
		mu.Unlock()
		var header []string
		if c.pay {
			header = []string{sig, token}
		}
		r := send(t, c.method, s.URL+c.path, header...)
		burned := d.spent()
		mu.Lock()
		if r.status != c.status || burned != c.burned || (r.header.Get("payment-response") != "") != c.receipt ||
			(c.body != "" && r.body != c.body) || strings.Join(got, "|") != c.upstream {
			t.Errorf("%s %s: %d %q, burned %d, upstream %v", c.method, c.path, r.status, r.body, burned, got)
		}
		mu.Unlock()
	}
	if r := send(t, "GET", s.URL+"/cut", sig, token); (r.err == nil && r.status == 200) || strings.Contains(r.body, content) || d.spent() != 12 {
		t.Errorf("an answer that the upstream cut: %+v, burned %d", r, d.spent())
	}
	up.Close()
	if r := send(t, "POST", s.URL+"/ask", sig, token); r.status != 502 || d.spent() != 12 || !strings.Contains(r.body, `"code":"BCK.HTTP.500"`) ||
		!strings.Contains(r.body, `"retryable":false`) {
		t.Errorf("without upstream: %+v", r)
	}
}

// TestProxyClientGone: a client that leaves while the upstream works is not charged.
func TestProxyClientGone(t *testing.T) {
	d := newDesk(100)
	entered := make(chan struct{})
	up := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	}))
	u, _ := url.Parse(up.URL)
	s := serve(t, paid.Proxy(d, u, paid.Default(paid.Plan(plan))))
	c := must.Get(net.Dial("tcp", s.Listener.Addr().String()))(t)
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: a\r\nPayment-Signature: %s\r\n\r\n", token)
	<-entered
	c.Close()
	eventually(t, "released", func() bool { return d.count("release") == 1 })
	d.want(t, 0, 0, 1)
}

func TestRoutes(t *testing.T) {
	d := newDesk(100)
	var seen string
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.PathValue("id") + "|" + r.Header.Get(sig)
		fmt.Fprint(w, content)
	})
	s := serve(t, paid.Routes(d, inner, paid.With(paid.Plan(plan)), paid.At("GET /items/:id", paid.Credits(3)), paid.At("GET /items/{other}", paid.Credits(9))))
	if r := send(t, "GET", s.URL+"/items/%41", sig, token); r.status != 200 || seen != "A|" || d.spent() != 3 {
		t.Errorf("%+v, seen %s", r, seen)
	}
	if r := send(t, "GET", s.URL+"/other", sig, token); r.status != 200 || seen != "|"+token || d.spent() != 3 {
		t.Errorf("no match must pass untouched: %+v, seen %s", r, seen)
	}
	if r := send(t, "GET", s.URL+"/items%2fb"); r.status != 400 {
		t.Errorf("%+v", r)
	}
	if out := raw(t, s.Listener.Addr().String(), "get /items/1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); strings.Join(statuses(out), "") != "402" {
		t.Errorf("another case of the method: %q", out)
	}
	if r := send(t, "POST", s.URL+"/items/1?_METHOD=GET"); r.status != 405 {
		t.Errorf("%+v", r)
	}
}

// The body of a request has the bound of its route, and that of With where the route has none.
func TestProxyMaxBody(t *testing.T) {
	d := newDesk(100)
	u, _ := url.Parse(serve(t, &work{t: t, f: func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }}).URL)
	log, _ := logs(t)
	s := serve(t, paid.Proxy(d, u, paid.With(paid.Plan(plan), paid.MaxBody(10), log), paid.At("POST /big", paid.MaxBody(100)),
		paid.At("POST /small", paid.MaxBody(5)), paid.Free("POST /free"), paid.Default()))
	for path, most := range map[string]int{"/big": 100, "/small": 5, "/free": 10, "/other": 10} {
		for size, status := range map[int]int{most: 200, most + 1: 413} {
			req, _ := http.NewRequest("POST", s.URL+path, strings.NewReader(strings.Repeat("x", size)))
			req.Header.Set(sig, token)
			if r := do(t, req); r.status != status {
				t.Errorf("%s, %d bytes: %d %s", path, size, r.status, r.body)
			}
		}
	}
}

// TestProxyLateBody: a body that comes too slowly is the fault of its sender, not of the upstream, and costs nothing.
func TestProxyLateBody(t *testing.T) {
	d := newDesk(100)
	u, _ := url.Parse(serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })).URL)
	log, text := logs(t)
	proxy := paid.Proxy(d, u, paid.With(paid.Plan(plan), log), paid.Free("POST /free"), paid.Free("POST /form"), paid.At("PUT /form"), paid.Default())
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		proxy.ServeHTTP(w, r)
	}))
	for _, path := range []string{"/free", "/form", "/paid"} {
		c := must.Get(net.Dial("tcp", s.Listener.Addr().String()))(t)
		defer c.Close()
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: a\r\nPayment-Signature: %s\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\na", path, token)
		res := must.Get(http.ReadResponse(bufio.NewReader(c), nil))(t)
		if b, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusRequestTimeout || !strings.Contains(string(b), "BCK.HTTP.408") {
			t.Errorf("%s: %d %s", path, res.StatusCode, b)
		}
	}
	if strings.Contains(text.String(), "upstream") {
		t.Errorf("the upstream is blamed: %s", text.String())
	}
	d.want(t, 0, 0, 1)
}

func TestMisconfigurationPanics(t *testing.T) {
	d := newDesk(1)
	for name, f := range map[string]func(){
		"no plan":       func() { paid.Handler(d, http.NotFoundHandler()) },
		"bad plan":      func() { paid.Handler(d, http.NotFoundHandler(), paid.Plan("0x1")) },
		"relative base": func() { paid.PublicURL("/x") },
		"base query":    func() { paid.PublicURL("https://a/?x") },
		"status":        func() { paid.ExpiredStatus(403) },
		"key":           func() { paid.Routes(d, nil, paid.At("/ask", paid.Plan(plan))) },
		"wildcard":      func() { paid.Routes(d, nil, paid.At("GET /a/*/b", paid.Plan(plan))) },
		"dots":          func() { paid.Routes(d, nil, paid.At("GET /a/../b", paid.Plan(plan))) },
		"twice":         func() { paid.Routes(d, nil, paid.At("GET /a", paid.Plan(plan)), paid.At("GET /a/", paid.Plan(plan))) },
		"two defaults":  func() { paid.Routes(d, nil, paid.Default(paid.Plan(plan)), paid.Default(paid.Plan(plan))) },
		"upstream":      func() { paid.Proxy(d, &url.URL{Path: "/"}) },
		"caller gone":   func() { paid.OnDisconnect(paid.Release + 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
