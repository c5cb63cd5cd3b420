package paid_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/tolltest"
	"github.com/tollhq/toll/x402"
)

var (
	// second is another access token of the service, and foreign ones are credentials of somebody else.
	second  = jws(claims(issuer, string(agent), `"`+issuer+`/x402"`))
	wrapped = x402.EncodeToken(token, x402.Requirements{Scheme: "svc:erc4337", Network: "eip155:84532", PlanID: string(plan)}, x402.Authorization{}, "n-1")
	foreign = []string{
		"opaque-credential-of-the-upstream",
		jws(`{"iss":"https://login.example.com","sub":"user","aud":"upstream","exp":1795230000,"scope":"` + strings.Repeat("read ", 40) + `"}`),
		jws(claims("https://pay.other.example/api/v1", string(agent), `"https://pay.other.example/api/v1/x402"`)),
	}
)

// mirror is an upstream that remembers what it saw.
type mirror struct {
	mu   sync.Mutex
	seen []http.Header
	urls []string
}

func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen, m.urls = append(m.seen, r.Header.Clone()), append(m.urls, r.URL.RequestURI())
	fmt.Fprint(w, content)
}

// last returns the headers of the request that came since the last call, nil without one.
func (m *mirror) last() http.Header {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.seen) == 0 {
		return nil
	}
	h := m.seen[len(m.seen)-1]
	m.seen = nil
	return h
}

// tokenFronts are the constructors before one upstream: GET /free costs nothing, everything else 2 credits.
func tokenFronts(t *testing.T, d *desk, m *mirror, opts ...paid.Option) map[string]string {
	t.Helper()
	u := must.Get(url.Parse(serve(t, m).URL))(t)
	log, _ := logs(t)
	with := paid.With(append([]paid.Option{paid.Plan(plan), paid.Credits(2), log}, opts...)...)
	return map[string]string{
		"proxy":   serve(t, paid.Proxy(d, u, with, paid.Free("GET /free"), paid.Default())).URL,
		"routes":  serve(t, paid.Routes(d, m, with, paid.Free("GET /free"), paid.Default())).URL,
		"handler": serve(t, paid.Handler(d, m, append([]paid.Option{paid.Plan(plan), paid.Credits(2), log}, opts...)...)).URL,
	}
}

// An access token of the service stays at the gate, in whatever header it comes, and also where nothing has to be paid.
func TestOwnTokenStaysAtTheGate(t *testing.T) {
	d := newDesk(1000)
	d.service = issuer
	m := &mirror{}
	for name, address := range tokenFronts(t, d, m) {
		for path, header := range map[string][]string{"/free": nil, "/paid": {sig, token}} {
			if name == "handler" && path == "/free" {
				continue
			}
			for _, own := range []string{token, second, wrapped, strings.TrimRight(wrapped, "=")} {
				for _, c := range [][]string{
					{"Authorization", "Bearer " + own}, {"Authorization", "bearer   " + own}, {"Authorization", "Bearer\t" + own}, {"Authorization", own},
					{"Authorization", "Token token=\"" + own + "\""}, {"Authorization", "Basic dTpw", "Authorization", "Bearer " + own},
					{"X-Api-Key", own}, {"X-Forwarded-Authorization", "Bearer " + own}, {"X-Two", "first, " + own}, {"Referer", "https://a.example/?b=1&t=" + own},
				} {
					r := send(t, "GET", address+path, append(c, header...)...)
					h := m.last()
					if r.status != 200 || h == nil {
						t.Fatalf("%s %s %.40q: %d %s", name, path, c, r.status, r.body)
					}
					for got, values := range h {
						if strings.Contains(strings.Join(values, " "), own[:100]) {
							t.Errorf("%s %s: the token of %.40q reaches the upstream in %s", name, path, c, got)
						}
					}
					if len(c) > 2 && h.Get("Authorization") != "Basic dTpw" {
						t.Errorf("%s %s: the other credential is lost: %v", name, path, h)
					}
				}
				r := send(t, "GET", address+path, append([]string{"Cookie", "a=1; session=" + own + "; b=2"}, header...)...)
				if h := m.last(); r.status != 200 || h.Get("Cookie") != "a=1; b=2" {
					t.Errorf("%s %s: %d, cookies %q", name, path, r.status, h.Get("Cookie"))
				}
			}
			for _, other := range foreign {
				r := send(t, "GET", address+path, append([]string{"Authorization", "Bearer " + other, "Cookie", "session=" + other, "X-Api-Key", other}, header...)...)
				if h := m.last(); r.status != 200 || h.Get("Authorization") != "Bearer "+other || h.Get("Cookie") != "session="+other || h.Get("X-Api-Key") != other {
					t.Errorf("%s %s: a foreign credential does not pass untouched: %d %v", name, path, r.status, h)
				}
			}
		}
	}
}

// A token in an address is in every log on its way, so that it is refused before anybody else reads it.
func TestTokenInTheAddress(t *testing.T) {
	d := newDesk(1000)
	d.service = issuer
	m := &mirror{}
	for name, address := range tokenFronts(t, d, m) {
		for _, target := range []string{"/free?access_token=" + token, "/paid?a=1&t=" + url.QueryEscape(wrapped), "/free?" + token, "/" + token, "/free?x=" + strings.ReplaceAll(token, ".", "%2E")} {
			if r := send(t, "GET", address+target, sig, token); r.status != 400 || strings.Contains(r.body, token) || !strings.Contains(r.body, "payment-signature") {
				t.Errorf("%s %.30s: %d %s", name, target, r.status, r.body)
			}
		}
		if r := send(t, "GET", address+"/paid?access_token="+foreign[1], sig, token); r.status != 200 {
			t.Errorf("%s: a foreign token in the address: %d %s", name, r.status, r.body)
		}
		m.last()
	}
	if d.count("verify") != 3 {
		t.Errorf("%d verifies", d.count("verify"))
	}
}

// Where the builder lists it, Authorization pays, but with an access token of the service alone.
func TestBearerPays(t *testing.T) {
	d := newDesk(1000)
	d.service = issuer
	m := &mirror{}
	for name, address := range tokenFronts(t, d, m, paid.TokenHeaders(sig, "authorization")) {
		for _, c := range []struct {
			what   string
			header []string
			status int
			sees   string // Authorization at the upstream
		}{
			{"own", []string{"Authorization", "Bearer " + token}, 200, ""},
			{"own, another form", []string{"Authorization", "Bearer " + wrapped}, 200, ""},
			{"own, twice", []string{"Authorization", "Bearer " + token, sig, token}, 200, ""},
			{"two of our own", []string{"Authorization", "Bearer " + second, sig, token}, 400, ""},
			{"two lines", []string{"Authorization", "Bearer " + token, "Authorization", "Bearer " + token}, 400, ""},
			{"own, unknown", []string{"Authorization", "Bearer " + second}, 402, ""},
			{"own, another scheme", []string{"Authorization", "Token " + token}, 402, ""},
			{"foreign alone", []string{"Authorization", "Bearer " + foreign[1]}, 402, ""},
			{"foreign beside", []string{"Authorization", "Bearer " + foreign[1], sig, token}, 200, "Bearer " + foreign[1]},
			{"of another service beside", []string{"Authorization", "Bearer " + foreign[2], sig, token}, 200, "Bearer " + foreign[2]},
			{"opaque beside", []string{"Authorization", "Bearer " + foreign[0], sig, token}, 200, "Bearer " + foreign[0]},
			{"basic beside", []string{"Authorization", "Basic dTpw", sig, token}, 200, "Basic dTpw"},
		} {
			r := send(t, "POST", address+"/paid", c.header...)
			h := m.last()
			if r.status != c.status || (h != nil) != (c.status == 200) || h.Get("Authorization") != c.sees {
				t.Errorf("%s, %s: %d, upstream %v", name, c.what, r.status, h)
			}
		}
	}
	// X-Api-Key, which Anthropic's clients send, pays in the same way.
	for name, address := range tokenFronts(t, d, m, paid.TokenHeaders(sig, "authorization", "x-api-key")) {
		for _, c := range []struct {
			what   string
			header []string
			status int
			sees   string
		}{
			{"own", []string{"X-Api-Key", token}, 200, ""},
			{"own, another form", []string{"X-Api-Key", wrapped}, 200, ""},
			{"own, in both", []string{"X-Api-Key", token, "Authorization", "Bearer " + token}, 200, ""},
			{"two of our own", []string{"X-Api-Key", second, sig, token}, 400, ""},
			{"two lines", []string{"X-Api-Key", token, "X-Api-Key", token}, 400, ""},
			{"foreign alone", []string{"X-Api-Key", foreign[0]}, 402, ""},
			{"foreign beside", []string{"X-Api-Key", foreign[0], sig, token}, 200, foreign[0]},
			{"of another service beside", []string{"X-Api-Key", foreign[2], "Authorization", "Bearer " + token}, 200, foreign[2]},
		} {
			r := send(t, "POST", address+"/paid", c.header...)
			h := m.last()
			if r.status != c.status || (h != nil) != (c.status == 200) || h.Get("X-Api-Key") != c.sees {
				t.Errorf("%s, %s: %d, upstream %v", name, c.what, r.status, h)
			}
		}
	}
	// Without the address of the service the form decides: rather refused than passed on.
	d.service = ""
	for name, address := range tokenFronts(t, d, m) {
		if r := send(t, "GET", address+"/paid", "Authorization", "Bearer "+foreign[2], sig, token); r.status != 200 || m.last().Get("Authorization") != "" {
			t.Errorf("%s: %d", name, r.status)
		}
	}
}

// Free routes of a price list whose service cannot be asked pass no token on, either.
func TestOwnTokenWithoutTheService(t *testing.T) {
	d := newDesk(10)
	d.before = func(string, int) error { return toll.NewError(toll.CodeUnavailable) }
	m := &mirror{}
	address := tokenFronts(t, d, m)["proxy"]
	if r := send(t, "GET", address+"/free", "Authorization", "Bearer "+token); r.status != 200 || m.last().Get("Authorization") != "" {
		t.Errorf("%d", r.status)
	}
	if r := send(t, "GET", address+"/free", "Authorization", "Bearer "+foreign[1]); r.status != 200 || m.last().Get("Authorization") != "Bearer "+foreign[1] {
		t.Errorf("%d", r.status)
	}
	if n := d.count("terms"); n != 1 {
		t.Errorf("the terms were asked for %d times: a credential of other software is no reason", n)
	}
}

// A token that the subscriber let be used at one resource is good there alone (RFC 8707).
// T119
func TestTokenForAResource(t *testing.T) {
	svc := tolltest.New(t)
	h := &work{t: t}
	log, lines := logs(t)
	opts := []paid.Option{paid.Plan(svc.Plan()), paid.Agent(svc.Agent()), log}
	public := paid.PublicURL("https://agent.example.com/v1")
	up := serve(t, h)
	u, _ := url.Parse(up.URL)
	fronts := map[string]string{
		"handler": serve(t, paid.Handler(svc.Client(), h, append(opts, public)...)).URL,
		"proxy":   serve(t, paid.Proxy(svc.Client(), u, paid.With(append(opts, public)...), paid.Default())).URL,
		"unnamed": serve(t, paid.Handler(svc.Client(), h, opts...)).URL,
	}
	for resource, taken := range map[string]bool{
		"": true, "https://agent.example.com/v1": true, "https://agent.example.com/v1/ask": true, "https://AGENT.example.com:443/v1/ask/": true,
		"https://agent.example.com": false, "https://agent.example.com/v1/other": false, "https://other.example.com/v1": false,
		"https://agent.example.com/v1/ask/more": false, "http://agent.example.com/v1": false,
	} {
		var with []client.TokenOption
		if resource != "" {
			with = append(with, client.WithResource(resource))
		}
		ann := svc.Subscriber(100, with...)
		for name, address := range fronts {
			want := taken && (name != "unnamed" || resource == "")
			before := h.count()
			r := send(t, "POST", address+"/ask?q=1", sig, ann.AccessToken)
			if want != (r.status == 200) || want != (h.count() > before) {
				t.Errorf("%s, %q: %d %s", name, resource, r.status, r.body)
			}
			if !want {
				r.isRefused(t, "invalid_svc_resource_mismatch: The access token is for another resource.", toll.CodeEndpointMismatch)
			}
		}
	}
	if !strings.Contains(lines.String(), "PublicURL") {
		t.Errorf("a builder without a public address hears nothing: %s", lines)
	}
	// The path that is compared is the one that is served.
	ann := svc.Subscriber(100, client.WithResource("https://agent.example.com/v1/other"))
	if r := send(t, "POST", fronts["proxy"]+"/other/../ask", sig, ann.AccessToken); r.status != 402 {
		t.Errorf("%d %s", r.status, r.body)
	}
	c := raw(t, strings.TrimPrefix(fronts["handler"], "http://"), "POST /other/../ask HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\nPayment-Signature: "+ann.AccessToken+"\r\n\r\n")
	if got := statuses(c); len(got) != 1 || got[0] != "402" {
		t.Errorf("%v", got)
	}
}
