package paid_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
)

// pathCase is a request and what it costs; -1 is 400.
type pathCase struct {
	target string
	want   toll.Credits
	sent   string // what the upstream gets, "" for the target
}

func checkPaths(t *testing.T, d *desk, m *mirror, base string, cases []pathCase) {
	t.Helper()
	for _, c := range cases {
		verified, before := d.count("verify"), d.spent()
		out := raw(t, strings.TrimPrefix(base, "http://"), "GET "+c.target+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\nPayment-Signature: "+token+"\r\n\r\n")
		status, burned := strings.Join(statuses(out), ""), d.spent()-before
		ran := m.last() != nil
		if c.want < 0 {
			if status != "400" || ran || burned != 0 || d.count("verify") != verified {
				t.Errorf("%s: %s, ran %v, burned %d, want 400 before the hold", c.target, status, ran, burned)
			}
			continue
		}
		if status != "200" || burned != c.want {
			t.Errorf("%s: %s, burned %d, want %d", c.target, status, burned, c.want)
			continue
		}
		want := c.sent
		if want == "" {
			want = c.target
		}
		if got := m.urls[len(m.urls)-1]; got != want {
			t.Errorf("%s: the upstream got %s, want %s", c.target, got, want)
		}
	}
}

// mirrored returns a desk with 1000 credits, a mirror and its address, and the log of what is before it.
func mirrored(t *testing.T) (*desk, *mirror, *url.URL, paid.Option) {
	d := newDesk(1000)
	d.max = 1000
	log, _ := logs(t)
	m := &mirror{}
	return d, m, must.Get(url.Parse(serve(t, m).URL))(t), log
}

// TestPathCase: a router that compares letters without case, as Express does, is not reached below the price of its path. A name
// keeps the case of its value.
// T92
func TestPathCase(t *testing.T) {
	d, m, u, log := mirrored(t)
	list := []paid.Route{
		paid.With(paid.Plan(plan), log), paid.At("GET /ask", paid.Credits(40)), paid.Free("GET /api/*"), paid.At("GET /api/users/:id", paid.Credits(3)),
		paid.Default(paid.Credits(1)),
	}
	insensitive := []pathCase{
		{"/ask", 40, ""}, {"/Ask", 40, ""}, {"/ASK/", 40, ""}, {"/%41sk", 40, ""}, {"/a\u017fk", 40, "/a%C5%BFk"}, {"/api/Users/5", 3, ""}, {"/API/users/Ab", 3, ""},
		{"/Api/x", 0, ""}, {"/asks", 1, ""},
	}
	checkPaths(t, d, m, serve(t, paid.Proxy(d, u, list...)).URL, insensitive)
	sensitive := []pathCase{{"/ask", 40, ""}, {"/Ask", 1, ""}, {"/api/Users/5", 0, ""}, {"/api/users/5", 3, ""}}
	checkPaths(t, d, m, serve(t, paid.Proxy(d, u, append(list, paid.CaseSensitive())...)).URL, sensitive)

	var values []string
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values = append(values, r.PathValue("id"))
		m.ServeHTTP(w, r)
	})
	checkPaths(t, d, m, serve(t, paid.Routes(d, inner, list...)).URL, insensitive[:7])
	if got := strings.Join(values, "|"); got != "|||||5|Ab" {
		t.Errorf("values %q", got)
	}
	checkPaths(t, d, m, serve(t, paid.Routes(d, inner, append(list, paid.CaseSensitive())...)).URL, sensitive)
}

// TestPathReadings: a path that routers read in several ways goes to the upstream as it was sent, if it has one route in all of
// them, and is 400 before the hold if not.
// T92
func TestPathReadings(t *testing.T) {
	d, m, u, log := mirrored(t)
	list := []paid.Route{
		paid.With(paid.Plan(plan), log), paid.At("GET /files/*", paid.Credits(2)), paid.At("GET /files/one", paid.Credits(4)), paid.At("GET /items/:id", paid.Credits(3)),
		paid.At("GET /items/:id/all", paid.Credits(6)), paid.Default(paid.Credits(1)),
	}
	cases := []pathCase{
		{"/files/a%2Fb", 2, ""}, {"/files/a%2fb%5Cc", 2, ""}, {"/files//a", 2, ""}, {"/files/a//b/", 2, ""}, {"/files/a;v=1/b", 2, ""}, {"/files/a%3Bv=1", 2, ""},
		{"/other%2Fplace", 1, ""}, {"//other", 1, ""}, {"/files/%61", 2, ""}, {"/x/../files/a", 2, "/files/a"}, {"/x/..//files/a/", 2, "/files/a/"},
		{"/files/one//", -1, ""}, {"/files/one;x", -1, ""}, {"/files%2Fone", -1, ""}, {"/files//one", -1, ""}, {"/files/one%2F", -1, ""}, {"/files%5Ca", -1, ""},
		{"/items/a%2Fb", -1, ""}, {"/items/a;b", 3, ""}, {"/items/a%2Fall", -1, ""}, {"/items//all", -1, ""}, {"/items;x/a/all", -1, ""}, {"/items/a;x/all", -1, ""},
		{"/files;/one", -1, ""}, {"/files/x%2F..%2Fone", -1, ""}, {"/files/x/..;/one", -1, ""}, {"/files/x%5c..%5cone", -1, ""}, {"/files/..%3b/ask", -1, ""},
		{"/files/a/../b;c", -1, ""}, {"//files/x;", -1, ""}, {"/%66iles%2Fone;", -1, ""},
		{"/files/" + strings.Repeat("a;/", 300), -1, ""},
	}
	checkPaths(t, d, m, serve(t, paid.Proxy(d, u, list...)).URL, cases)
	checkPaths(t, d, m, serve(t, paid.Routes(d, m, list...)).URL, cases[:9])
	checkPaths(t, d, m, serve(t, paid.Routes(d, m, list...)).URL, cases[11:])
}

// TestProxyQuery: the upstream gets the query as it was sent, and a query of which Go would drop a part is 400 before the hold.
func TestProxyQuery(t *testing.T) {
	d := newDesk(1000)
	log, _ := logs(t)
	m := &mirror{}
	u, _ := url.Parse(serve(t, m).URL)
	proxy := serve(t, paid.Proxy(d, u, paid.With(paid.Plan(plan), log), paid.Free("GET /free"), paid.Default(paid.Credits(1))))
	for _, c := range []pathCase{
		{"/a?q=a%3Bb&c=%20+&&d&=e", 1, ""}, {"/a?b=2&a=1&b=%C3%A4", 1, ""}, {"/a?", 1, "/a?"}, {"/a?q=a;b", -1, ""}, {"/a?q=%zz&x=1", -1, ""}, {"/a?x=1&q=100%", -1, ""},
		{"/free?q=a;b", -1, ""}, {"/free?q=1", 0, ""},
	} {
		checkPaths(t, d, m, proxy.URL, []pathCase{c})
	}
}

// TestNoPath: a request target that names no path is refused. A proxy would pass such a target on as it is, while it priced "/".
// T92
func TestNoPath(t *testing.T) {
	d, m, u, log := mirrored(t)
	s := serve(t, paid.Proxy(d, u, paid.With(paid.Plan(plan), log), paid.At("GET /ask", paid.Credits(40)), paid.Default(paid.Credits(1))))
	checkPaths(t, d, m, s.URL, []pathCase{{"x:http://a/ask", -1, ""}, {"x:ask", -1, ""}, {"*", -1, ""}, {"http://a/ask", 40, "/ask"}, {"http://a", 1, "/"}})
}

// TestMixedReadings: routers differ in which of the characters that separate segments they decode, and in when they cut parameters.
// T92
func TestMixedReadings(t *testing.T) {
	d, m, u, log := mirrored(t)
	s := serve(t, paid.Proxy(d, u, paid.With(paid.Plan(plan), log), paid.At("GET /a/b/c", paid.Credits(40)), paid.At("GET /:q/deep", paid.Credits(40)),
		paid.At("GET /files/*", paid.Credits(3)), paid.Default(paid.Credits(1))))
	checkPaths(t, d, m, s.URL, []pathCase{
		{"/hi%5Cx%2Fdeep", -1, ""}, {"/hi%2Fx%5Cdeep", -1, ""}, // only one of them separates
		{"/a;q/b%2Fc;p%2Fd", -1, ""}, // parameters are cut before "%2F" is decoded
		{"/x%3Bz/deep;/c", -1, ""},   // the path ends before the first ";" that was sent as such
		{"/files/x%5Cy%2Fz;v=1", 3, ""},
	})
}
