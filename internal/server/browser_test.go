package server_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestSessionsOfBrowsers: a sign-in is one new session that ends by time, by its sign-out and with its API key.
// T153
func TestSessionsOfBrowsers(t *testing.T) {
	for _, variant := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(variant), func(t *testing.T) { sessionsOn(t, variant) })
	}
}

func sessionsOn(t *testing.T, variant storetest.Variant) {
	db := storetest.Config(t, variant)
	var ahead atomic.Int64
	cfg := server.Config{Data: db.Data, Database: db.Database, Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}
	if db.Database != "" {
		cfg.MasterKeyFile = freshMasterKey(t)
	}
	s, address := start(t, cfg)
	other, key := keys(t, s)
	v := newVisitor(t, address)
	known := func(v *visitor) bool {
		t.Helper()
		res := v.get("/account/access")
		if res.status != http.StatusOK || res.header.Get("Cache-Control") != "no-store" || !slices.Contains(res.header.Values("Vary"), "Cookie") {
			t.Fatalf("%d %v", res.status, res.header)
		}
		return strings.Contains(res.body, "Signed in as")
	}
	signIn := func(v *visitor, key string) shown {
		t.Helper()
		return v.submit(formOf(t, v.get("/sign-in?next=%2Fdevice")).with("api_key", key))
	}

	if known(v) || len(v.jar.Cookies(v.base)) != 0 {
		t.Error("a session before the sign-in")
	}
	const name = "session-8402" // the port of the public address
	v.jar.SetCookies(v.base, []*http.Cookie{{Name: name, Value: strings.Repeat("A", 43)}})
	res := signIn(v, key.Key)
	cookie := res.header.Get("Set-Cookie")
	if res.status != http.StatusSeeOther || res.header.Get("Location") != "/device" || !known(v) || strings.Contains(cookie, strings.Repeat("A", 43)) {
		t.Errorf("%d to %q, %s", res.status, res.header.Get("Location"), cookie)
	}
	for _, part := range []string{name + "=", "Path=/", "HttpOnly", "SameSite=Lax"} {
		if !strings.Contains(cookie, part) {
			t.Errorf("%q lacks %s", cookie, part)
		}
	}
	if strings.Contains(cookie, "Expires") || strings.Contains(cookie, "Max-Age") {
		t.Errorf("the browser keeps it: %q", cookie)
	}
	if res := v.get("/sign-in?next=//evil.example.com/device"); !strings.HasPrefix(res.header.Get("Location"), "/w/0x") || strings.Contains(res.body, "evil") {
		t.Errorf("%d %q", res.status, res.header.Get("Location"))
	}
	if res := v.submit(page{"/sign-in", url.Values{"api_key": {key.Key}, "next": {`/\evil.example.com`}}}); !strings.HasPrefix(res.header.Get("Location"), "/w/0x") {
		t.Errorf("after a sign-in: %q", res.header.Get("Location"))
	}

	// A sign-out ends the session, also for who kept its cookie; nobody else can do it.
	kept := cookieOf(v)
	for what, p := range map[string]page{
		"no ticket": {"/sign-out", url.Values{}}, "another ticket": {"/sign-out", url.Values{"ticket": {"a.b"}}},
	} {
		if res := v.submit(p); res.status != http.StatusForbidden || !known(v) {
			t.Errorf("%s: %d", what, res.status)
		}
	}
	ticket := regexp.MustCompile(`action="/sign-out"><input type="hidden" name="ticket" value="([^"]*)"`)
	ask := v.get("/device?user_code=X")
	res = v.submit(page{"/sign-out", url.Values{"ticket": {ticket.FindStringSubmatch(ask.body)[1]}, "next": {"/device?user_code=X"}}})
	if res.status != http.StatusSeeOther || res.header.Get("Location") != "/device?user_code=X" || known(v) || len(v.jar.Cookies(v.base)) != 0 {
		t.Errorf("sign-out: %d %q", res.status, res.header.Get("Location"))
	}
	if s := v.browser.send(http.MethodGet, "/account/access", "", "Cookie", kept); strings.Contains(s.body, "Signed in") {
		t.Error("the cookie of a session that was signed out is good")
	}

	// Time: 12 hours without use, 7 days with it.
	signIn(v, key.Key)
	old := cookieOf(v)
	for range 2 {
		ahead.Add(int64(11 * time.Hour))
		if !known(v) || cookieOf(v) != old {
			t.Fatal("a session that is used ended")
		}
	}
	ahead.Add(int64(12 * time.Hour))
	if known(v) {
		t.Error("a session that is not used goes on")
	}

	// Another person in the same browser is another session; the key of the sign-in ends it.
	signIn(v, key.Key)
	first := cookieOf(v)
	signIn(v, other.Key)
	if body := v.get("/account/access").body; cookieOf(v) == first || !strings.Contains(body, other.Address.String()) || strings.Contains(body, key.Address.String()) {
		t.Errorf("the second person:\n%s", mainPart.FindString(body))
	}
	if s := v.browser.send(http.MethodGet, "/account/access", "", "Cookie", first); strings.Contains(s.body, "Signed in") {
		t.Error("the session of the first person goes on")
	}
	must.Get(client.New(other.Key, client.WithURL(address)).CreateKey(t.Context(), client.KeyParams{}))(t)
	must.Get(client.New(other.Key, client.WithURL(address)).RevokeKey(t.Context(), other.ID))(t)
	if known(v) {
		t.Error("a session goes on after its key")
	}
}

// TestCookiesOnHTTPS: behind https no other host or page can set or read the cookie.
// T153
func TestCookiesOnHTTPS(t *testing.T) {
	s, address := start(t, server.Config{Data: storetest.Dir(t), PublicURL: "https://pay.example.com"})
	_, key := keys(t, s)
	send := func(origin string) shown {
		return browser{t, address}.send(http.MethodPost, "/sign-in", url.Values{"api_key": {key.Key}}.Encode(), "Host", "pay.example.com", "Origin", origin)
	}
	cookie := send("https://pay.example.com").header.Get("Set-Cookie")
	for _, part := range []string{"__Host-session=", "; Path=/", "; HttpOnly", "; Secure", "; SameSite=Lax"} {
		if !strings.Contains(cookie, part) {
			t.Errorf("%q lacks %s", cookie, part)
		}
	}
	if strings.Contains(cookie, "Domain") {
		t.Error(cookie)
	}
	for _, origin := range []string{"http://pay.example.com", "https://pay.example.com.evil.example.com", "https://evil.example.com", "null"} {
		if res := send(origin); res.status != http.StatusForbidden || res.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %v", origin, res.status, res.header)
		}
	}
}

// TestSignedInPerson: who signed in to the browser lets the command line in with one button, which only the page of that
// session has; after an hour it takes the key again.
// T125
func TestSignedInPerson(t *testing.T) {
	m := newFair(t)
	v := m.visitor()
	v.signIn(v.get("/sign-in"), m.person.Key)
	anonymous := client.New("", client.WithURL(m.url), client.WithRetries(0))
	in := client.NewSignIn(callback, "toll-cli")
	open := func(v *visitor) page {
		t.Helper()
		return formOf(t, v.get(strings.TrimPrefix(in.URL(anonymous), m.url)))
	}
	form := open(v)
	if form.values.Has("api_key") {
		t.Error("it asks for the key of a person who signed in")
	}
	mallory := m.visitor()
	mallory.signIn(mallory.get("/sign-in"), m.other.Key)
	another := client.NewSignIn("http://127.0.0.1:51235/callback", "toll-cli")
	for what, p := range map[string]page{
		"no ticket": form.with("ticket"), "a ticket of another session": form.with("ticket", open(mallory).values.Get("ticket")),
		"the ticket of another sign-in": form.with("state", another.State), "of another callback": form.with("callback_url", another.Callback),
		"of another program": form.with("code_challenge", strings.Repeat("A", 43)),
	} {
		if res := v.submit(p); res.status != http.StatusForbidden || res.header.Get("Location") != "" {
			t.Errorf("%s: %d to %q", what, res.status, res.header.Get("Location"))
		}
	}
	if res := v.submit(form, "Origin", "https://evil.example.com", "Sec-Fetch-Site", "cross-site"); res.status != http.StatusForbidden {
		t.Errorf("a page of others: %d", res.status)
	}
	res := v.submit(form)
	u, err := url.Parse(res.header.Get("Location"))
	if err != nil || res.status != http.StatusSeeOther || u.Host != "127.0.0.1:51234" || strings.Contains(u.String(), m.person.Key) {
		t.Fatalf("%d to %q", res.status, res.header.Get("Location"))
	}
	key, _, err := anonymous.ExchangeCode(t.Context(), in, u.Query().Get("code"))
	must.Do(t, err)
	for k, err := range client.New(key, client.WithURL(m.url)).Keys(t.Context()) {
		if err != nil || k.Address != m.buyer {
			t.Fatalf("%+v, %v", k, err)
		}
	}
	m.ahead.Add(int64(time.Hour))
	if res := v.submit(form); res.status != http.StatusUnauthorized || !formOf(t, res).values.Has("api_key") {
		t.Errorf("an hour after the sign-in: %d %s", res.status, mainPart.FindString(res.body))
	}
}

type waiting struct {
	DeviceCode string `json:"device_code"`
	UserCode   string `json:"user_code"`
	Complete   string `json:"verification_uri_complete"`
}

func (m *fair) device(v url.Values) waiting {
	m.t.Helper()
	res := browser{m.t, m.url}.send(http.MethodPost, "/oauth/device_authorization", v.Encode())
	var w waiting
	if err := json.Unmarshal([]byte(res.body), &w); err != nil || res.status != http.StatusOK {
		m.t.Fatalf("%d %s", res.status, mainPart.FindString(res.body))
	}
	return w
}

// TestDevicePage: a code is looked up by a form of a person who signed in, the page shows who asks for what, and the
// decision is of the session that read it.
// T123
func TestDevicePage(t *testing.T) {
	m := newFair(t)
	m.clientID = m.register(`{"client_name":"Lamp","redirect_uris":["` + appCallback + `"],"grant_types":["authorization_code","refresh_token","urn:ietf:params:oauth:grant-type:device_code"]}`)
	asking := func() waiting {
		return m.device(url.Values{"client_id": {m.clientID}, "resource": {"https://agent.example.com/mcp"}, "agent_id": {string(m.agent)}})
	}
	poll := func(w waiting) tokens {
		t.Helper()
		m.ahead.Add(int64(6 * time.Second))
		res := browser{t, m.url}.send(http.MethodPost, "/oauth/token", url.Values{
			"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "device_code": {w.DeviceCode}, "client_id": {m.clientID},
		}.Encode())
		var out tokens
		if err := json.Unmarshal([]byte(res.body), &out); err != nil {
			t.Fatalf("%d %s", res.status, mainPart.FindString(res.body))
		}
		return out
	}
	w := asking()
	v := m.visitor()
	first := v.get(strings.TrimPrefix(w.Complete, m.issuer))
	if strings.Contains(first.body, "Lamp") || strings.Contains(first.body, "agent.example.com") {
		t.Errorf("before the sign-in:\n%s", mainPart.FindString(first.body))
	}
	// A page that is opened looks nothing up and decides nothing.
	typed := v.signIn(first, m.person.Key)
	form := formOf(t, typed)
	if form.values.Get("user_code") != w.UserCode || strings.Contains(typed.body, "Lamp") || poll(w).Error != "authorization_pending" {
		t.Errorf("%s", mainPart.FindString(typed.body))
	}
	mallory := m.visitor()
	theirs := formOf(t, mallory.signIn(mallory.get("/device"), m.other.Key))
	if res := v.submit(form.with("ticket", theirs.values.Get("ticket"))); res.status != http.StatusForbidden || strings.Contains(res.body, "Lamp") {
		t.Errorf("a form of another session: %d", res.status)
	}
	if res := v.submit(form.with("user_code", "BBBB-BBBB")); res.status != http.StatusBadRequest || !strings.Contains(res.body, `role="alert"`) {
		t.Errorf("a wrong code: %d", res.status)
	}
	shown := v.submit(form.with("user_code", strings.ToLower(strings.ReplaceAll(w.UserCode, "-", " "))))
	for _, text := range []string{"Lamp", m.clientID, w.UserCode, "127.0.0.1", "https://agent.example.com/mcp", string(m.plan), `name="limit"`, `name="lifetime"`} {
		if !strings.Contains(shown.body, text) {
			t.Errorf("the page does not say %q:\n%s", text, mainPart.FindString(shown.body))
		}
	}
	consent := formOf(t, shown).with("decision", "approve").with("limit", "2")
	read := formOf(t, mallory.submit(theirs.with("user_code", w.UserCode)))
	for what, p := range map[string]page{
		"read in another session": consent.with("ticket", read.values.Get("ticket")), "another device": consent.with("request", asking().UserCode),
		"no ticket": consent.with("ticket"),
	} {
		if res := v.submit(p); res.status != http.StatusForbidden {
			t.Errorf("%s: %d", what, res.status)
		}
	}
	if got := poll(w); got.Error != "authorization_pending" {
		t.Errorf("%+v", got)
	}
	for range 2 { // a double click
		if res := v.submit(consent); res.status != http.StatusOK || !strings.Contains(res.body, "Access allowed.") {
			t.Errorf("%d %s", res.status, mainPart.FindString(res.body))
		}
	}
	got := poll(w)
	if got.Access == "" {
		t.Fatalf("%+v", got)
	}
	limited := false
	for p, err := range m.subscriber.Permissions(t.Context()) {
		must.Do(t, err)
		limited = limited || p.MaxCredits != nil && *p.MaxCredits == 2
	}
	if !limited {
		t.Error("no permission with the limit of the page")
	}
	w = asking()
	consent = formOf(t, v.submit(form.with("user_code", w.UserCode))).with("decision", "deny")
	if res := v.submit(consent); !strings.Contains(res.body, "Access denied.") || poll(w).Error != "access_denied" {
		t.Errorf("%d %s", res.status, mainPart.FindString(res.body))
	}
	// Who guesses is stopped, with the right code as well; others are not.
	w = asking()
	for range 10 {
		mallory.submit(theirs.with("user_code", "BBBB-BBBB"))
	}
	if res := mallory.submit(theirs.with("user_code", w.UserCode)); res.status != http.StatusTooManyRequests || strings.Contains(res.body, "Lamp") {
		t.Errorf("after ten wrong codes: %d %s", res.status, mainPart.FindString(res.body))
	}
	if res := v.submit(form.with("user_code", w.UserCode)); res.status != http.StatusOK || !strings.Contains(res.body, "Lamp") {
		t.Errorf("%d %s", res.status, mainPart.FindString(res.body))
	}
}

// TestAccessPage: a person reads what programs got, and ends it; what others let in is none of theirs.
func TestAccessPage(t *testing.T) {
	m := newFair(t)
	v := m.visitor()
	got := m.exchange(m.codeIn(v.submit(formOf(t, m.consent(v, m.query())).with("limit", "7").with("decision", "approve"))))
	list := v.get("/account/access")
	for _, text := range []string{"Notes", "Plan Plan, can spend 7 more of 7 credits", "https://agent.example.com/mcp", "Never"} {
		if !strings.Contains(list.body, text) {
			t.Errorf("the page does not say %q:\n%s", text, mainPart.FindString(list.body))
		}
	}
	revoke := formOf(t, list)
	mallory := m.visitor()
	theirs := mallory.signIn(mallory.get("/account/access"), m.other.Key)
	if strings.Contains(theirs.body, "Notes") {
		t.Errorf("somebody else reads it:\n%s", mainPart.FindString(theirs.body))
	}
	for what, res := range map[string]shown{
		"another person": mallory.submit(revoke), "no ticket": v.submit(revoke.with("ticket")),
		"another grant": v.submit(revoke.with("grant", toll.NewHash().String())), "another page": v.submit(revoke, "Sec-Fetch-Site", "cross-site"),
	} {
		want := http.StatusForbidden
		if what == "another person" {
			want = http.StatusNotFound // the form names a workspace of which this person may not even know
		}
		if res.status != want {
			t.Errorf("%s: %d", what, res.status)
		}
	}
	settle := func(id string) error {
		m.token = &toll.AccessToken{AccessToken: got.Access}
		r, err := m.settle(t.Context(), id)
		if err == nil && !r.Success {
			err = toll.Errorf(r.Code, "%s", r.ErrorReason)
		}
		return err
	}
	must.Do(t, settle("one"))
	if body := v.get("/account/access").body; !strings.Contains(body, "6 more of 7") || strings.Contains(body, "Never") {
		t.Errorf("after a use:\n%s", body)
	}
	if res := v.submit(revoke); res.status != http.StatusOK || strings.Contains(res.body, "Notes") || !strings.Contains(res.body, `role="status"`) {
		t.Errorf("%d %s", res.status, mainPart.FindString(res.body))
	}
	if err := settle("two"); err == nil {
		t.Error("the access token pays after its end")
	}
}
