package server_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// TestNoRedirect and the errors of T114: before client and target are proved a person sees a page, and nothing leaves
// the service, whether the person signed in or not.
// T112
func TestNoRedirect(t *testing.T) {
	m := newFair(t)
	signedIn := m.visitor()
	m.consent(signedIn, m.query())
	for _, target := range []string{
		"", appCallback + "/", appCallback + "?a=b", appCallback + "#f", "https://app.example.com/CB", "https://APP.example.com/cb", "https://app.example.com:443/cb",
		"https://app.example.com./cb", "https://app.example.com@evil.example.com/cb", `https://app.example.com\@evil.example.com/cb`,
		"https://app.example.com/cb/..;/x", "https://app.example.com%2f@evil.example.com/cb", "https://app.example.com/%63b", "https://app.example.com.evil.example.com/cb",
		"https://evil.example.com/https://app.example.com/cb", "http://app.example.com/cb", "http://localhost/cb", "javascript:alert(1)", "//app.example.com/cb",
	} {
		for _, v := range []*visitor{m.visitor(), signedIn} {
			q := m.query()
			q.Set("redirect_uri", target)
			noRedirect(t, fmt.Sprintf("%q", target), v, q)
		}
	}
}

var linkTag = regexp.MustCompile(`<a href="([^"]*)">`)

// leadsBack proves that a page refuses a request, and leaves it to the person to tell the program at host. It returns where that
// link leads.
func leadsBack(t *testing.T, what, host string, s shown) *url.URL {
	t.Helper()
	body := mainPart.FindString(s.body)
	links := linkTag.FindAllStringSubmatch(body, -1)
	if s.status != http.StatusBadRequest || s.header.Get("Location") != "" || s.header.Get("Refresh") != "" || len(links) != 1 || strings.Contains(body, "<form") ||
		!strings.Contains(body, "<code>"+host+"</code>") {
		t.Fatalf("%s: %d to %q\n%s", what, s.status, s.header.Get("Location"), body)
	}
	return must.Get(url.Parse(html.UnescapeString(links[0][1])))(t)
}

// TestErrorsOnPages: an error never leads to a target that is not registered, and to one that is only who reads its host and
// goes there: anybody can register. To this computer it goes at once.
// T114
func TestErrorsOnPages(t *testing.T) {
	m := newFair(t)
	signedIn := m.visitor()
	m.consent(signedIn, m.query())
	registered := m.clientID
	local := m.register(`{"redirect_uris":["http://127.0.0.1/cb","http://localhost:7000/cb"]}`)
	for _, c := range [][2]string{
		{"response_type", "token"}, {"response_type", ""}, {"scope", `"`}, {"code_challenge_method", "plain"}, {"resource", "ftp://x"}, {"plan_id", "1"}, {"prompt", "none"},
	} {
		for _, v := range []*visitor{m.visitor(), signedIn} {
			what := strings.Join(c[:], "=")
			q := m.query()
			q.Set(c[0], c[1])
			for _, res := range []shown{v.get("/oauth/authorize?" + q.Encode()), v.post("/oauth/authorize", url.Values{"request": {q.Encode()}, "decision": {"approve"}})} {
				u := leadsBack(t, what, "app.example.com", res)
				if to := u.Query(); u.Host != "app.example.com" || to.Get("error") == "" || to.Get("iss") != m.issuer || to.Get("state") != "state-of-the-app" || to.Has("code") {
					t.Errorf("%s: %v", what, u)
				}
			}
			q.Set("client_id", local)
			for _, target := range []string{"http://127.0.0.1:51234/cb", "http://localhost:7000/cb"} {
				q.Set("redirect_uri", target)
				res := v.get("/oauth/authorize?" + q.Encode())
				u, err := url.Parse(res.header.Get("Location"))
				if err != nil || res.status != http.StatusFound || !strings.HasPrefix(u.String(), target+"?") || u.Query().Get("error") == "" || u.Query().Get("iss") != m.issuer ||
					u.Query().Get("state") != "state-of-the-app" || u.Query().Has("code") {
					t.Errorf("%s on this computer: %d to %q", what, res.status, res.header.Get("Location"))
				}
				// A browser would not follow a redirect of the form, whose page leads to the service alone.
				res = v.post("/oauth/authorize", url.Values{"request": {q.Encode()}, "decision": {"approve"}})
				if to, ok := leaves(res); !ok || to != u.String() {
					t.Errorf("%s on this computer, after the form: %d to %q", what, res.status, to)
				}
			}
			q.Set("client_id", registered)
			q.Set("redirect_uri", "https://evil.example.com/cb")
			noRedirect(t, what, v, q)
			q = m.query()
			q.Set(c[0], c[1])
			q.Set("client_id", "nobody")
			noRedirect(t, "unknown client, "+what, v, q)
		}
	}
}

// TestProgramSchemes: a program with a scheme of its own is shown by it, the browser is let go there, and an error waits
// for the person.
// T113
func TestProgramSchemes(t *testing.T) {
	m := newFair(t)
	v := m.visitor()
	m.consent(v, m.query())
	const target = "cursor://anysphere.cursor-mcp/oauth/callback"
	m.clientID = m.register(`{"client_name":"Editor","redirect_uris":["` + target + `","vscode:/cb"]}`)
	q := m.query()
	q.Set("redirect_uri", target)
	s := v.get("/oauth/authorize?" + q.Encode())
	if policy := s.header.Get("Content-Security-Policy"); s.status != http.StatusOK || !strings.Contains(policy, "; form-action 'self' cursor:;") ||
		!strings.Contains(s.body, "<strong><code>cursor://anysphere.cursor-mcp</code></strong>") {
		t.Fatalf("%d %q\n%s", s.status, policy, mainPart.FindString(s.body))
	}
	res := v.submit(formOf(t, s).with("decision", "approve"))
	u, err := url.Parse(res.header.Get("Location"))
	if err != nil || res.status != http.StatusFound || !strings.HasPrefix(u.String(), target+"?") || u.Query().Get("state") != "state-of-the-app" {
		t.Fatalf("%d to %q", res.status, res.header.Get("Location"))
	}
	got := browser{t, m.url}.send(http.MethodPost, "/oauth/token", url.Values{
		"grant_type": {"authorization_code"}, "code": {u.Query().Get("code")}, "redirect_uri": {target}, "code_verifier": {verifier}, "client_id": {m.clientID},
	}.Encode())
	if got.status != http.StatusOK || !strings.Contains(got.body, `"access_token"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, bent := range []string{"CURSOR://anysphere.cursor-mcp/oauth/callback", target + "/", target + "?x=1", "cursor://anysphere.cursor-mcp", "cursor://evil/oauth/callback", "vscode:/cb2"} {
		q.Set("redirect_uri", bent)
		noRedirect(t, bent, v, q)
	}
	q.Set("redirect_uri", "vscode:/cb")
	q.Set("response_type", "token")
	if u := leadsBack(t, "an error", "vscode:", v.get("/oauth/authorize?"+q.Encode())); u.Scheme != "vscode" || u.Path != "/cb" || u.Query().Get("error") != "unsupported_response_type" {
		t.Errorf("%v", u)
	}
}

func noRedirect(t *testing.T, what string, v *visitor, q url.Values) {
	t.Helper()
	get := v.get("/oauth/authorize?" + q.Encode())
	post := v.post("/oauth/authorize", url.Values{"request": {q.Encode()}, "decision": {"approve"}})
	for _, s := range []shown{get, post} {
		if s.status != http.StatusBadRequest || s.header.Get("Location") != "" || strings.Contains(mainPart.FindString(s.body), "<form") ||
			strings.Contains(mainPart.FindString(s.body), "evil.example.com") || s.header.Get("Refresh") != "" || !strings.Contains(s.header.Get("Content-Type"), "text/html") {
			t.Errorf("%s: %d to %q\n%s", what, s.status, s.header.Get("Location"), mainPart.FindString(s.body))
		}
	}
}
