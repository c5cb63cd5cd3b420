package server_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
)

// TestAPIKey: a program that asks for the API is shown to get rights one by one, of which a person can keep some back, and gets
// a key of its own with what is left. It can never make keys, and never has the wallet.
// T122
func TestAPIKey(t *testing.T) {
	m := newFair(t)
	v := m.visitor()
	ask := func(scope string) (url.Values, shown) {
		q := m.query()
		q.Del("plan_id")
		q.Set("scope", scope)
		q.Set("resource", m.issuer+"/api/v1")
		return q, m.consent(v, q)
	}
	exchange := func(s shown) (tokens, toll.APIKey) {
		t.Helper()
		got := m.exchangeFor(m.issuer+"/api/v1", m.codeIn(s))
		return got, m.madeBy(toll.MadeByGrant)
	}
	for scope, offered := range map[string]string{
		"": "read sell spend manage", "openid profile": "read sell spend manage", "spend openid read": "read spend", "manage": "manage",
	} {
		_, s := ask(scope)
		form := formOf(t, s)
		if got := strings.Join(form.values["right"], " "); got != offered || strings.Contains(s.body, `name="limit"`) || strings.Contains(s.body, "every right") {
			t.Errorf("scope %q: %q\n%s", scope, got, mainPart.FindString(s.body))
		}
	}
	for _, word := range []string{"money", "keys", "members", "export"} {
		q := m.query()
		q.Del("plan_id")
		q.Set("scope", "read "+word)
		q.Set("resource", m.issuer+"/api/v1")
		if s := v.get("/oauth/authorize?" + q.Encode()); s.status != http.StatusBadRequest || !strings.Contains(s.body, "An app cannot get the right "+word) {
			t.Errorf("scope %s: %d %s", word, s.status, mainPart.FindString(s.body))
		}
	}

	_, s := ask("openid read spend")
	for _, right := range [][]string{nil, {"read", "manage"}, {"export"}, {"read", "read"}} {
		if res := v.submit(formOf(t, s).with("right", right...).with("decision", "approve")); res.status != http.StatusBadRequest {
			t.Errorf("right %q: %d %s", right, res.status, res.header.Get("Location"))
		}
	}
	got, key := exchange(v.submit(formOf(t, s).with("right", "read").with("decision", "approve")))
	if got.Scope != "openid read" || key.Rights.String() != "read" || key.Parent == nil || key.ExpiresAt == nil {
		t.Errorf("%q %+v", got.Scope, key)
	}
	c := client.New(got.Access, client.WithURL(m.url), client.WithRetries(0))
	if _, err := c.Versions(t.Context()); err != nil {
		t.Error(err)
	}
	lacks := func(what string, err error, right string) {
		t.Helper()
		if e := toll.AsError(err); err == nil || e.Code != toll.CodeRightMissing || e.Params["right"] != right {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := c.ExportWallet(t.Context())
	lacks("the wallet", err, "export")
	_, err = c.CreateKey(t.Context(), client.KeyParams{})
	lacks("a key", err, "keys")
	_, err = c.AccessToken(t.Context(), m.plan)
	lacks("what was kept back", err, "spend")
}

// TestEndsWithKey: what a person lets in has at most the rights of the API key of the session, and ends with it.
// T122
func TestEndsWithKey(t *testing.T) {
	m := newFair(t)
	session := func(rights ...toll.Right) toll.APIKey {
		t.Helper()
		return keyOf(t, m.s, server.KeyRequest{Account: "subscriber", Rights: rights, ExpiresIn: 240 * time.Hour})
	}
	api := func() url.Values {
		q := m.query()
		q.Del("plan_id")
		q.Del("scope")
		q.Set("resource", m.issuer+"/api/v1")
		return q
	}
	ask := func(key toll.APIKey, q url.Values) (*visitor, shown) {
		v := m.visitor()
		return v, v.signIn(v.get("/oauth/authorize?"+q.Encode()), key.Key)
	}
	works := func(key string) bool {
		_, err := client.New(key, client.WithURL(m.url), client.WithRetries(0)).Versions(t.Context())
		return err == nil
	}

	// Without the right keys no program gets an API key; without read nobody signs in.
	if _, s := ask(session(toll.RightRead, toll.RightSpend), api()); strings.Contains(s.body, `value="approve"`) {
		t.Errorf("%s", mainPart.FindString(s.body))
	}
	v := m.visitor()
	if res := v.submit(formOf(t, v.get("/sign-in")).with("api_key", session(toll.RightSell, toll.RightKeys).Key)); res.status != http.StatusForbidden {
		t.Errorf("signed in without read: %d", res.status)
	}

	key := session(toll.RightRead, toll.RightSell, toll.RightSpend, toll.RightKeys, toll.RightExport)
	v, s := ask(key, api())
	if got := strings.Join(formOf(t, s).values["right"], " "); got != "read sell spend" {
		t.Errorf("offered %q", got)
	}
	program := m.exchangeFor(m.issuer+"/api/v1", m.codeIn(v.submit(formOf(t, s).with("decision", "approve"))))
	made := m.madeBy(toll.MadeByGrant)
	if made.Rights.String() != "read sell spend" || made.ExpiresAt == nil || made.ExpiresAt.After(key.ExpiresAt.Time) {
		t.Errorf("%+v", made)
	}
	// The program spends credits by an access token of its own key, and another one by a consent.
	own := must.Get(client.New(program.Access, client.WithURL(m.url)).AccessToken(t.Context(), m.plan))(t)
	spend := m.query()
	spend.Set("plan_id", string(m.plan))
	s = v.get("/oauth/authorize?" + spend.Encode())
	granted := m.exchange(m.codeIn(v.submit(formOf(t, s).with("decision", "approve"))))

	// toll login
	in := client.NewSignIn(callback, "toll-cli")
	anonymous := client.New("", client.WithURL(m.url))
	login, _, err := anonymous.ExchangeCode(t.Context(), in, browser{t, m.url}.code(in, key.Key))
	must.Do(t, err)
	if k := m.madeBy(toll.MadeByUser); k.Rights.String() != "read sell spend keys" || k.ExpiresAt == nil || k.ExpiresAt.After(key.ExpiresAt.Time) {
		t.Errorf("%+v", k)
	}
	pays := func(token string) bool {
		m.token.AccessToken = token
		r, err := m.settle(t.Context(), toll.NewHash().String())
		return err == nil && r.Success
	}
	if !works(program.Access) || !works(login) || !pays(own.AccessToken) || !pays(granted.Access) {
		t.Error("something does not work yet")
	}
	ended, err := m.patient.subscriber.RevokeKey(t.Context(), key.ID)
	if err != nil || ended.Ended != (toll.Ended{APIKeys: 2, AccessTokens: 2, Grants: 3}) {
		t.Errorf("%+v, %v", ended, err)
	}
	if works(program.Access) || works(login) || pays(own.AccessToken) || pays(granted.Access) {
		t.Error("something works without the key that made it")
	}
	if s := v.get("/account/access"); !strings.Contains(s.body, `name="api_key"`) {
		t.Errorf("the session is still there: %s", mainPart.FindString(s.body))
	}

	// The page counts what ends with the access of a program.
	v, s = ask(m.person, api())
	program = m.exchangeFor(m.issuer+"/api/v1", m.codeIn(v.submit(formOf(t, s).with("decision", "approve"))))
	own = must.Get(client.New(program.Access, client.WithURL(m.url)).AccessToken(t.Context(), m.plan))(t)
	res := v.submit(formOf(t, v.get("/account/access")))
	if !strings.Contains(res.body, "Also revoked: 1 API key, 1 access token.") || works(program.Access) || pays(own.AccessToken) {
		t.Errorf("%s", mainPart.FindString(res.body))
	}
}
