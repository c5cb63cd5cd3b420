package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

// refusedOnPage reports whether a request is refused without an answer to anybody else.
func (p *program) refusedOnPage(q url.Values) bool {
	p.t.Helper()
	_, err := p.s.OAuth().Authorize(p.t.Context(), q)
	var shown *oauth.PageError
	return errors.As(err, &shown)
}

// TestRedirectTargets: the target of an answer is a registered text; on this machine any port of 127.0.0.1 and ::1 will do,
// and of localhost where none is registered.
// T112
func TestRedirectTargets(t *testing.T) {
	p := newProgram(t, storetest.SQLite, nil)
	local := p.register(`{"redirect_uris":["http://127.0.0.1:7000/cb","http://[::1]/cb?x=1","http://localhost:7000/cb","http://localhost/any","com.example.app:/cb"]}`)
	for _, uri := range []string{
		progCallback + "/more", progCallback + "/", progCallback + "?x=1", progCallback + "#", "https://PROG.example.com/cb", "https://prog.example.com/CB",
		"https://prog.example.com:443/cb", "https://prog.example.com:8443/cb", "https://prog.example.com@evil.example.com/cb", "https://user@prog.example.com/cb",
		`https://prog.example.com\@evil.example.com/cb`, "https://prog.example.com/..;/cb", "https://prog.example.com/%2fcb", "https://prog.example.com%2f/cb",
		"https://prog.example.com./cb", "https://prog.example.com.evil.example.com/cb", "https://evilprog.example.com/cb", "http://prog.example.com/cb", "//prog.example.com/cb",
		"https://localhost/cb", "", progCallback + "\n", " " + progCallback,
	} {
		if !p.refusedOnPage(p.request("redirect_uri", uri)) {
			t.Errorf("%q is a target", uri)
		}
	}
	for uri, good := range map[string]bool{
		"http://127.0.0.1:7000/cb": true, "http://127.0.0.1:51234/cb": true, "http://127.0.0.1/cb": true, "http://[::1]:51234/cb?x=1": true,
		"http://localhost:7000/cb": true, "com.example.app:/cb": true,
		"http://localhost/any": true, "http://localhost:51234/any": true, "http://localhost:51234/any/more": false, "http://127.0.0.1:51234/any": false,
		"http://localhost:0/any": false, "http://localhost.evil.example.com/any": false, "http://localhost:80@evil.example.com/any": false, "https://localhost/any": false,
		"http://localhost/cb": false, "http://localhost:7001/cb": false, "http://127.0.0.1:7000/cb?x=1": false, "http://127.0.0.1:7000/": false, "http://[::1]:51234/cb": false,
		"http://127.0.0.1:0/cb": false, "http://127.0.0.1:65536/cb": false, "http://127.0.0.1:007/cb": false, "http://127.0.0.1:/cb": false,
		"http://127.0.0.1:80@evil.example.com/cb": false, "http://127.0.0.1.evil.example.com/cb": false, "http://127.1/cb": false, "http://127.0.0.2/cb": false,
		"http://[::1%25eth0]/cb?x=1": false, "https://127.0.0.1:7000/cb": false, `http://127.0.0.1:7000\@evil/cb`: false, "http://0x7f000001:7000/cb": false,
		"com.example.app:/cb2": false, "COM.example.app:/cb": false,
	} {
		if got := !p.refusedOnPage(p.request("client_id", local, "redirect_uri", uri)); got != good {
			t.Errorf("%q is a target: %v", uri, got)
		}
	}
	// The answer keeps what stands in the query of the target.
	to := p.approved(p.request("client_id", local, "redirect_uri", "http://[::1]:51234/cb?x=1"), p.choice(1))
	if to.Host != "[::1]:51234" || to.Query().Get("x") != "1" || to.Query().Get("code") == "" {
		t.Errorf("%v", to)
	}
	q := p.request()
	q.Add("redirect_uri", progCallback)
	if !p.refusedOnPage(q) {
		t.Error("two targets")
	}
	for _, id := range []string{"", "nobody", strings.Repeat("a", 5000), "a b"} {
		if !p.refusedOnPage(p.request("client_id", id)) {
			t.Errorf("client %.10q", id)
		}
	}
}

// TestScriptSchemes: what a browser would run, open or misread is no target.
// T113
func TestScriptSchemes(t *testing.T) {
	p := newProgram(t, storetest.SQLite, nil)
	for _, uri := range []string{
		"javascript:alert(1)", "JavaScript:alert(1)", " javascript:alert(1)", "java\tscript:alert(1)", "javascript\x00:alert(1)", "data:text/html,x", "vbscript:x",
		"blob:https://prog.example.com/1", "file:///etc/passwd", "intent://x#Intent;end", "intent:x", "about:blank", "ftp://prog.example.com/", "cursor:cb", "cursor://", "chrome-extension://id/cb", "ms-settings:/x", "http://prog.example.com/cb",
		"https://prog.example.com/cb#frag", "https://prog.example.com/cb#", "https://user@prog.example.com/cb", "https://user:pw@prog.example.com/cb", "https:///cb", "https:cb",
		"https://prog.example.com\n/cb", "https://prog.example.com/\x7f", `https://prog.example.com\cb`, "https://prog.example.com:/cb", "/cb", "cb", "", "com.example.app:",
		"https://prog.example.com/" + strings.Repeat("a", 2000), "https://prög.example.com/cb",
	} {
		body := must.Get(json.Marshal(map[string]any{"redirect_uris": []string{progCallback, uri}}))(t)
		p.ahead.Add(int64(10 * time.Second)) // below the rate
		res := p.send(http.MethodPost, "/oauth/register", string(body), "Content-Type", "application/json")
		if res.status != http.StatusBadRequest || !strings.Contains(res.body, `"invalid_redirect_uri"`) {
			t.Errorf("%q: %d %s", uri, res.status, res.body)
		}
	}
	// Editors of today have schemes without a dot.
	p.register(`{"redirect_uris":["cursor://anysphere.cursor-mcp/oauth/callback","vscode://publisher.extension/cb","com.example.app:/cb"]}`)
}

// TestErrorsAsRedirects: an error goes to a target only when client and target are proved.
// T114
func TestErrorsAsRedirects(t *testing.T) {
	p := newProgram(t, storetest.SQLite, nil)
	for want, changes := range map[string][]string{
		"unsupported_response_type": {"response_type", "token"}, "invalid_request": {"response_type", ""}, "invalid_scope": {"scope", "a\"b"},
		"invalid_target": {"resource", "http://agent.example.com/"}, "request_not_supported": {"request_uri", "https://prog.example.com/r"},
		"interaction_required": {"prompt", "none"},
	} {
		_, err := p.s.OAuth().Authorize(t.Context(), p.request(changes...))
		var back *oauth.RedirectError
		if !errors.As(err, &back) || !strings.HasPrefix(back.URL, progCallback+"?") || !strings.Contains(back.URL, "error="+want) || !strings.Contains(back.URL, "iss=") ||
			!strings.Contains(back.URL, "state=st") {
			t.Errorf("%s: %v", want, err)
		}
		if !p.refusedOnPage(p.request(append(changes, "redirect_uri", "https://evil.example.com/cb")...)) ||
			!p.refusedOnPage(p.request(append(changes, "client_id", "nobody")...)) {
			t.Errorf("%s goes to a target that is not registered", want)
		}
	}
	res := p.send(http.MethodGet, "/oauth/authorize?"+p.request("response_type", "token", "redirect_uri", "https://evil.example.com/cb").Encode(), "")
	if res.status != http.StatusBadRequest || res.header.Get("Location") != "" {
		t.Errorf("%d to %q", res.status, res.header.Get("Location"))
	}
	res = p.send(http.MethodGet, "/oauth/authorize?"+p.request("response_type", "token").Encode(), "")
	if u := leadsBack(t, "a registered target", "prog.example.com", res); !strings.HasPrefix(u.String(), progCallback+"?error=unsupported_response_type&") {
		t.Errorf("%v", u)
	}
}

// TestOauthRegister_Registration: a registration gives no right, is bounded in size and number, and goes when nobody uses it.
// T120
func TestOauthRegister_Registration(t *testing.T) {
	p := newProgram(t, storetest.SQLite, nil)
	post := func(body string) shown {
		p.ahead.Add(int64(10 * time.Second)) // below the rate
		return p.send(http.MethodPost, "/oauth/register", body, "Content-Type", "application/json")
	}
	uris := func(n int) string {
		var b []string
		for i := range n {
			b = append(b, fmt.Sprintf(`"https://prog.example.com/%d"`, i))
		}
		return `"redirect_uris":[` + strings.Join(b, ",") + `]`
	}
	for body, word := range map[string]string{
		`[]`: "invalid_request", `{}`: "invalid_request", `{"scope":"x"}`: "invalid_request", `null`: "invalid_request", `{"client_name":"x"}`: "invalid_request",
		`{"redirect_uris":[]}`: "invalid_request", `{"redirect_uris":"x"}`: "invalid_redirect_uri",
		`{` + uris(11) + `}`:                                                      "invalid_redirect_uri",
		`{` + uris(100) + `}`:                                                     "invalid_redirect_uri",
		`{` + uris(1) + `,"grant_types":["password"]}`:                            "invalid_client_metadata",
		`{` + uris(1) + `,"grant_types":["client_credentials"]}`:                  "invalid_client_metadata",
		`{` + uris(1) + `,"response_types":["token"]}`:                            "invalid_client_metadata",
		`{` + uris(1) + `,"response_types":["id_token"]}`:                         "invalid_client_metadata",
		`{` + uris(1) + `,"token_endpoint_auth_method":"private_key_jwt"}`:        "invalid_client_metadata",
		`{` + uris(1) + `,"client_name":7}`:                                       "invalid_client_metadata",
		`{` + uris(1) + `,"client_name":"` + strings.Repeat("n", 257) + `"}`:      "invalid_client_metadata",
		`{` + uris(1) + `,"client_name":"evil\u202Egnp.exe"}`:                     "invalid_client_metadata",
		`{` + uris(1) + `,"client_name":"two\nlines"}`:                            "invalid_client_metadata",
		`{` + uris(1) + `,"contacts":["a","b","c","d","e","f"]}`:                  "invalid_client_metadata",
		`{` + uris(1) + `,"client_secret":"mine"}`:                                "invalid_client_metadata",
		`{` + uris(1) + `,"software_statement":"e30.e30."}`:                       "invalid_software_statement",
		`{` + uris(1) + `,"agent_id":"12345"}`:                                    "invalid_request",
		`{` + uris(1) + `,"client_uri":"` + strings.Repeat("a", 100<<10) + `"}`:   "invalid_request",
		`{` + uris(1) + `,"logo_uri":"` + strings.Repeat("https://a/", 30) + `"}`: "invalid_client_metadata",
	} {
		if res := post(body); res.status != http.StatusBadRequest || !strings.Contains(res.body, `"`+word+`"`) {
			t.Errorf("%.80s: %d %s", body, res.status, res.body)
		}
	}

	for _, body := range []string{`{}`, `{"client_name":"x"}`, `{"redirect_uris":null}`} {
		if res := post(body); !strings.Contains(res.body, "redirect_uris") {
			t.Errorf("%s does not say what is missing: %s", body, res.body)
		}
	}

	res := post(`{` + uris(2) + `,"client_name":"<b>Toll</b>","grant_types":["authorization_code","client_credentials"],"response_types":["code","token"],
		"token_endpoint_auth_method":"client_secret_post","logo_uri":"http://169.254.169.254/","contacts":["a@example.com"],"scope":"mcp:tools"}`)
	var made struct {
		ID        string   `json:"client_id"`
		Secret    string   `json:"client_secret"`
		SecretEnd *int64   `json:"client_secret_expires_at"`
		Grants    []string `json:"grant_types"`
		Responses []string `json:"response_types"`
		Name      string   `json:"client_name"`
	}
	if err := json.Unmarshal([]byte(res.body), &made); err != nil || res.status != http.StatusCreated || len(made.Secret) != 43 || made.SecretEnd == nil || *made.SecretEnd != 0 ||
		len(made.Grants) != 1 || len(made.Responses) != 1 || made.Name != "<b>Toll</b>" || !strings.HasPrefix(made.ID, "svc-mcp-client-") {
		t.Fatalf("%d %s", res.status, res.body)
	}
	q := p.request("client_id", made.ID, "redirect_uri", "https://prog.example.com/0")
	for what, c := range map[string]struct {
		changes []string
		header  []string
		status  int
	}{
		"no secret":     {nil, nil, 401},
		"wrong secret":  {[]string{"client_secret", "wrong"}, nil, 401},
		"right secret":  {[]string{"client_secret", made.Secret}, nil, 200},
		"in the header": {[]string{"client_id", ""}, basic(made.ID, made.Secret), 200},
		"wrong there":   {[]string{"client_id", ""}, basic(made.ID, "wrong"), 401},
		"in both":       {[]string{"client_secret", made.Secret}, basic(made.ID, made.Secret), 400},
	} {
		form := changed(url.Values{
			"grant_type": {"authorization_code"}, "code": {p.approved(q, p.choice(1)).Query().Get("code")}, "redirect_uri": {"https://prog.example.com/0"},
			"code_verifier": {progVerifier}, "client_id": {made.ID},
		}, c.changes)
		if a := p.token(form, c.header...); a.status != c.status || a.Refresh != "" {
			t.Errorf("%s: %+v", what, a)
		}
	}

	// A client that stands for an agent has no name of its own, and one for each target.
	first := p.register(`{"client_name":"First","redirect_uris":["https://first.example.com/cb"],"agent_id":"` + string(p.agent) + `","token_endpoint_auth_method":"client_secret_post"}`)
	if first != string(p.agent) || strings.Contains(p.registered, `"client_secret"`) {
		t.Errorf("%s", p.registered)
	}
	p.register(`{"client_name":"Second","redirect_uris":["https://second.example.com/cb"],"agent_id":"` + string(p.agent) + `"}`)
	p.register(`{"client_name":"Thief","redirect_uris":["https://first.example.com/cb"],"agent_id":"` + string(p.agent) + `"}`)
	for host, name := range map[string]string{"first.example.com": "First", "second.example.com": "Second"} {
		a, err := p.s.OAuth().Authorize(t.Context(), p.request("client_id", first, "redirect_uri", "https://"+host+"/cb"))
		if err != nil || a.Client.Name != name || a.RedirectHost != host || a.AgentID != p.agent {
			t.Errorf("%s: %+v, %v", host, a, err)
		}
	}

	// Unused clients go after 30 days; what is used stays.
	p.ahead.Add(int64(29 * 24 * time.Hour))
	p.exchange(p.code())
	p.ahead.Add(int64(2 * 24 * time.Hour))
	must.Get(p.s.OAuth().Sweep(t.Context()))(t)
	if !p.refusedOnPage(q) || p.isRegistered(p.request("client_id", first, "redirect_uri", "https://second.example.com/cb")) || p.refusedOnPage(p.request()) {
		t.Error("an unused client stays, or a used one is gone")
	}

	limited := 0
	for range 80 {
		if res := p.send(http.MethodPost, "/oauth/register", `{`+uris(1)+`}`, "Content-Type", "application/json"); res.status == http.StatusTooManyRequests {
			limited++
			if res.header.Get("Retry-After") == "" || !strings.Contains(res.body, `"error"`) {
				t.Fatalf("%v %s", res.header, res.body)
			}
		}
	}
	if limited != 20 {
		t.Errorf("%d of 80 registrations in a minute are refused", limited)
	}
	if strings.Contains(p.log.String(), made.Secret) {
		t.Error("the secret is in the log")
	}
}

func basic(id, secret string) []string {
	r := &http.Request{Header: http.Header{}}
	r.SetBasicAuth(url.QueryEscape(id), url.QueryEscape(secret))
	return []string{"Authorization", r.Header.Get("Authorization")}
}

// TestClientDocuments: a client whose id is an address is what the document there says, and nothing else; when that
// changes, the person is asked again.
// T121
func TestClientDocuments(t *testing.T) {
	var body atomic.Value
	var fetches, elsewhere atomic.Int64
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/client.json" {
			elsewhere.Add(1)
			http.Redirect(w, r, "/client.json", http.StatusFound)
			return
		}
		fetches.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "max-age=1")
		_, _ = w.Write([]byte(body.Load().(string)))
	}))
	defer host.Close()
	p := newProgram(t, storetest.SQLite, func(c *server.Config) { c.LoopbackWebhooks = true })
	id := host.URL + "/client.json"
	set := func(changes ...string) {
		doc := map[string]any{
			"client_id": id, "client_name": "Documented", "redirect_uris": []string{host.URL + "/cb", "http://127.0.0.1/cb", "https://evil.example.com/cb"},
			"grant_types": []string{"authorization_code", "refresh_token", deviceGrant}, "logo_uri": host.URL + "/logo",
		}
		for i := 0; i < len(changes); i += 2 {
			doc[changes[i]] = changes[i+1]
		}
		b := must.Get(json.Marshal(doc))(t)
		body.Store(string(b))
		p.ahead.Add(int64(6 * time.Minute)) // what is remembered is over
	}
	q := p.request("client_id", id, "redirect_uri", host.URL+"/cb")

	for what, changes := range map[string][]string{
		"another id": {"client_id", host.URL + "/other.json"}, "a secret": {"client_secret", "s"}, "a method": {"token_endpoint_auth_method", "client_secret_post"},
		"a name": {"client_name", "a\u202Eb"}, "1 MB": {"client_uri", strings.Repeat("a", 1<<20)}, "wrong type": {"redirect_uris", "x"},
	} {
		if set(changes...); !p.refusedOnPage(q) {
			t.Errorf("%s is taken", what)
		}
	}
	body.Store("no json")
	if p.ahead.Add(int64(time.Minute)); !p.refusedOnPage(q) {
		t.Error("no JSON")
	}
	for _, bad := range []string{
		"http://client.example.com/c.json", "https://127.0.0.1.nip.example.com:22/c.json", "https://10.0.0.1/c.json", "https://169.254.169.254/c.json", "https://client.example.com",
		"https://client.example.com/", "https://client.example.com/a/../c.json", "https://client.example.com/c.json#x", "https://u@client.example.com/c.json", "file:///c.json",
		"https://[::ffff:10.0.0.1]/c.json", host.URL + "/redirects",
	} {
		if !p.refusedOnPage(p.request("client_id", bad, "redirect_uri", host.URL+"/cb")) {
			t.Errorf("%s is a client", bad)
		}
		if a := p.refresh("x", "client_id", bad); a.status != 401 || a.Error != "invalid_client" {
			t.Errorf("%s: %+v", bad, a)
		}
	}
	if elsewhere.Load() != 1 {
		t.Errorf("the address that redirects was asked %d times", elsewhere.Load())
	}

	set()
	fetches.Store(0)
	if !p.refusedOnPage(p.request("client_id", id, "redirect_uri", "https://evil.example.com/cb")) {
		t.Error("a target on another host")
	}
	a, err := p.s.OAuth().Authorize(t.Context(), q)
	if err != nil || a.Client.Name != "Documented" || a.Client.Site != strings.TrimPrefix(host.URL, "http://") {
		t.Fatalf("%+v, %v", a, err)
	}
	local := p.request("client_id", id, "redirect_uri", "http://127.0.0.1:5555/cb")
	got := p.exchange(p.approved(local, p.choice(10)).Query().Get("code"), "client_id", id, "redirect_uri", "http://127.0.0.1:5555/cb")
	if got.status != 200 || fetches.Load() != 1 {
		t.Fatalf("%+v after %d fetches", got, fetches.Load())
	}
	set()
	if got = p.refresh(got.Refresh, "client_id", id); got.status != 200 || fetches.Load() != 2 {
		t.Errorf("the same document again: %+v after %d fetches", got, fetches.Load())
	}
	p.ahead.Add(int64(5*time.Minute - 20*time.Second))
	waiting := p.approved(q, p.choice(5)).Query().Get("code")
	d := p.device("client_id", id)
	must.Do(t, p.s.OAuth().ApproveDevice(t.Context(), d.User, personOf(p.buyer), p.choice(5)))
	body.Store(strings.Replace(body.Load().(string), "Documented", "Changed", 1))
	p.ahead.Add(int64(40 * time.Second))
	if a := p.exchange(waiting, "client_id", id, "redirect_uri", host.URL+"/cb"); a.Error != "invalid_grant" || fetches.Load() != 3 {
		t.Errorf("a code from before a change: %+v after %d fetches", a, fetches.Load())
	}
	if a := p.poll(d.Device, "client_id", id); a.Error != "invalid_grant" {
		t.Errorf("a device from before a change: %+v", a)
	}
	if a := p.refresh(got.Refresh, "client_id", id); a.Error != "invalid_grant" || p.pays(got.Access, 1) {
		t.Errorf("after a change: %+v", a)
	}
	if p.refusedOnPage(q) {
		t.Error("the person cannot be asked again")
	}
	if elsewhere.Load() != 1 {
		t.Error("something that the document names was fetched")
	}
}
