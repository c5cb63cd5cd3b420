package paid_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
)

// A key that ends in "/*" stands for the path before it and everything below. Exact keys win over names, names over wildcards,
// and among those the longest.
func TestWildcardRoutes(t *testing.T) {
	d := newDesk(10_000)
	d.max = 1000
	m := &mirror{}
	u, _ := url.Parse(serve(t, m).URL)
	log, _ := logs(t)
	list := []paid.Route{
		paid.With(paid.Plan(plan), log), paid.At("GET /*", paid.Credits(1)), paid.At("GET /files/*", paid.Credits(2)), paid.Free("GET /files/open/*"),
		paid.At("GET /files/:name", paid.Credits(3)), paid.At("GET /files/one", paid.Credits(4)), paid.At("GET /:area/x/*", paid.Credits(5)),
		paid.At("POST /*", paid.Credits(6)), paid.At("HEAD /files/one", paid.Credits(7)), paid.At("GET /files/open/x", paid.Credits(8)), paid.Default(paid.Credits(9)),
	}
	for name, s := range map[string]string{
		"proxy": serve(t, paid.Proxy(d, u, list...)).URL, "routes": serve(t, paid.Routes(d, m, list...)).URL,
	} {
		for request, want := range map[string]toll.Credits{
			"GET /": 1, "GET /a": 1, "GET /a/b/c": 1, "GET /files": 2, "GET /files/": 2, "GET /files/a": 3, "GET /files/one": 4, "GET /files/a/b": 2,
			"GET /filesystem": 1, "GET /files/open": 3, "GET /files/open/y": 0, "GET /files/open/y/z": 0, "GET /files/open/x": 8, "GET /a/x/b": 5, "GET /files/x/b": 5,
			"POST /files/a": 6, "HEAD /files/one": 7, "HEAD /files/two": 3, "HEAD /files/open/y": 0, "PUT /files/open/y": 9,
			"GET /files/open/../one": 4, "GET /files/%6fpen/y": 0, "GET /Files/OPEN/y": 0, "GET /files/ONE": 4, "GET /A/X/b": 5,
		} {
			method, path, _ := strings.Cut(request, " ")
			before := d.spent()
			r := send(t, method, s+path, sig, token)
			if burned := d.spent() - before; r.status != 200 || burned != want {
				t.Errorf("%s, %s: %d, burned %d, want %d", name, request, r.status, burned, want)
			}
			if r := send(t, method, s+path); (r.status == 200) != (want == 0) {
				t.Errorf("%s, %s, unpaid: %d", name, request, r.status)
			}
		}
	}
}

// A router behind that takes overrides of the method must not run under a free key what has a price.
func TestOverridesOnFreeRoutes(t *testing.T) {
	d := newDesk(100)
	m := &mirror{}
	u, _ := url.Parse(serve(t, m).URL)
	log, _ := logs(t)
	for name, list := range map[string][]paid.Route{
		"a default":  {paid.Free("GET /ask"), paid.Default()},
		"a key":      {paid.Free("GET /ask"), paid.At("POST /ask")},
		"a wildcard": {paid.Free("GET /ask"), paid.At("POST /*")},
		"a name":     {paid.Free("GET /*"), paid.At("POST /:what")},
	} {
		list = append(list, paid.With(paid.Plan(plan), log))
		for front, s := range map[string]string{
			"proxy": serve(t, paid.Proxy(d, u, list...)).URL, "routes": serve(t, paid.Routes(d, m, list...)).URL,
		} {
			for _, header := range [][]string{{"X-HTTP-Method-Override", "POST"}, {"X_Method_Override", "POST"}, nil} {
				path := "/ask"
				if header == nil {
					path += "?_method=POST"
				}
				if r := send(t, "GET", s+path, header...); r.status != 405 || m.last() != nil {
					t.Errorf("%s, %s, %v: %d", name, front, header, r.status)
				}
			}
			if r := send(t, "GET", s+"/ask"); r.status != 200 || m.last() == nil {
				t.Errorf("%s, %s: %d", name, front, r.status)
			}
		}
	}
	free := serve(t, paid.Proxy(d, u, paid.With(paid.Plan(plan), log), paid.Free("GET /ask"), paid.At("POST /other"))).URL
	if r := send(t, "GET", free+"/ask?_method=POST"); r.status != 200 {
		t.Errorf("nothing of the path has a price: %d", r.status)
	}
}

// What a key cannot say is an error that names it, before anything is served.
func TestCheckRoutes(t *testing.T) {
	for key, ok := range map[string]bool{
		"GET /": true, "GET /a": true, "GET /a/": true, "GET /:a/{b}": true, "GET /*": true, "GET /a/*": true, "GET /:a/b/*": true, "BREW /pot": true, "GET  /a": true,
		"": false, "GET": false, "/a": false, "GET a": false, "get /a": false, "GET /a*": false, "GET /*/a": false, "GET /a/**": false, "GET /*a": false,
		"GET /a?b": false, "GET /a#b": false, "GET /a%20b": false, `GET /a\b`: false, "GET /a/../b": false, "GET /./a": false, "GET /{a": false, "GET /a}": false,
		"GET /x{a}": false, "GET /:": false, "GET /{}": false, "GET /a\nb": false, "GET /a\x00": false, "GET /\xff": false, "G\tET /a": false, "GET /a;b": false, "TRACE /a": false,
		"GET https://a.example/b": false, "GET /a:b": true, "GET /(.*)": false,
	} {
		err := paid.CheckRoutes(paid.At(key))
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("%q", key)) {
			t.Errorf("%q: %v", key, err)
		}
		func() {
			defer func() {
				if (recover() == nil) != ok {
					t.Errorf("%q: Routes and CheckRoutes disagree", key)
				}
			}()
			paid.Routes(newDesk(1), http.NotFoundHandler(), paid.At(key, paid.Plan(plan)))
		}()
	}
	for name, list := range map[string][]paid.Route{
		"twice":           {paid.At("GET /a"), paid.Free("GET /a/")},
		"twice, wildcard": {paid.At("GET /a/*"), paid.Free("GET /a/*")},
		"two defaults":    {paid.Default(), paid.Default()},
		"case":            {paid.At("GET /a"), paid.Free("GET /A")},
		"case, wildcard":  {paid.At("GET /a/*"), paid.Free("GET /A/*")},
		"case, name":      {paid.At("GET /a/:b"), paid.Free("GET /A/:c")},
	} {
		if paid.CheckRoutes(list...) == nil {
			t.Errorf("%s: no error", name)
		}
	}
	must.Check(t, paid.CheckRoutes(paid.CaseSensitive(), paid.At("GET /a"), paid.Free("GET /A")))
	must.Check(t, paid.CheckRoutes(paid.At("GET /a/*"), paid.Free("POST /a/*"), paid.At("GET /a/:b"), paid.Default(), paid.With()))
}

func FuzzRouteKeys(f *testing.F) {
	for _, s := range []string{"GET /*", "GET /files/*", "POST /a/:b/{c}", "GET /a/../b", " /", "GET /%", "GET /{}", "GET /a*"} {
		f.Add(s, "GET", "/files/a")
	}
	d := newDesk(1)
	f.Fuzz(func(t *testing.T, key, method, path string) {
		err := paid.CheckRoutes(paid.Free(key), paid.Default())
		defer func() {
			if v := recover(); (v != nil) != (err != nil) {
				t.Errorf("%q: CheckRoutes says %v, and the panic is %v", key, err, v)
			}
		}()
		h := paid.Routes(d, http.NotFoundHandler(), paid.Free(key), paid.Default(paid.Plan(plan)))
		w := &statusWriter{}
		h.ServeHTTP(w, &http.Request{Method: method, URL: &url.URL{Path: path}, Header: http.Header{}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1})
		switch w.status {
		case 402, 404, 400, 405, 414:
		default:
			t.Errorf("%q, %s %q: %d", key, method, path, w.status)
		}
	})
}

type statusWriter struct {
	header http.Header
	status int
}

func (w *statusWriter) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}
func (w *statusWriter) WriteHeader(status int)      { w.status = status }
func (w *statusWriter) Write(p []byte) (int, error) { return len(p), nil }
