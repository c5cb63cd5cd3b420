package server_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

// claimsOf returns the payload of a JWS.
func claimsOf(t *testing.T, jws string) map[string]any {
	t.Helper()
	parts := strings.Split(jws, ".")
	if len(parts) != 3 {
		t.Fatalf("%d parts", len(parts))
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	var out map[string]any
	if err != nil || json.Unmarshal(b, &out) != nil {
		t.Fatalf("%q: %v", parts[1], err)
	}
	return out
}

// opensAPI reports whether a text is taken as an API key.
func (p *program) opensAPI(text string) bool {
	return p.send(http.MethodGet, "/api/v1/api-keys", "", "Authorization", "Bearer "+text).status == http.StatusOK
}

// opensUser reports the status of userinfo for a bearer token.
func (p *program) opensUser(text string) int {
	return p.send(http.MethodGet, "/oauth/userinfo", "", "Authorization", "Bearer "+text).status
}

// TestOAuthTokens: what the authorization server gives works at one door.
// T08
func TestOAuthTokens(t *testing.T) {
	p := newProgram(t, storetest.SQLite, nil)
	p.id = p.register(`{"redirect_uris":["` + progCallback + `"],"grant_types":["authorization_code","refresh_token","urn:ietf:params:oauth:grant-type:device_code"]}`)
	code := p.approved(p.request("scope", "openid profile", "nonce", "n-1"), p.choice(20)).Query().Get("code")
	unused := p.code()
	got := p.exchange(code)
	d := p.device()
	keyed := p.exchange(p.approved(p.request("resource", p.s.PublicURL()+"/api/v1"), oauth.Choice{}).Query().Get("code"))
	if !strings.HasPrefix(keyed.Access, "tk_sandbox_") || keyed.Refresh != "" || keyed.Secs != int64(90*24*time.Hour/time.Second) || !p.opensAPI(keyed.Access) {
		t.Fatalf("%+v", keyed)
	}
	if p.opensUser(got.Access) != 200 || !p.pays(got.Access, 1) {
		t.Fatal("the access token works nowhere")
	}
	id := claimsOf(t, got.ID)
	if id["iss"] != p.s.PublicURL() || id["aud"] != p.id || id["sub"] != p.buyer.String() || id["nonce"] != "n-1" || id["name"] != "subscriber" {
		t.Errorf("%v", id)
	}
	texts := map[string]string{
		"access token": got.Access, "refresh token": got.Refresh, "identity token": got.ID, "code": unused, "used code": code, "device code": d.Device,
		"user code": d.User, "API key": keyed.Access, "client id": p.id,
	}
	for what, text := range texts {
		if what != "API key" && p.opensAPI(text) {
			t.Errorf("%s is taken for an API key", what)
		}
		if what != "access token" && p.pays(text, 1) {
			t.Errorf("%s is taken for an access token", what)
		}
		if what != "access token" && p.opensUser(text) == 200 {
			t.Errorf("%s is taken at userinfo", what)
		}
		if what != "refresh token" {
			if a := p.refresh(text); a.status != 400 || a.Error != "invalid_grant" {
				t.Errorf("%s as refresh token: %+v", what, a)
			}
		}
		if what != "device code" {
			if a := p.poll(text); a.status != 400 || a.Error != "invalid_grant" {
				t.Errorf("%s as device code: %+v", what, a)
			}
		}
		if !strings.HasSuffix(what, "code") {
			if a := p.exchange(text); a.status != 400 || a.Error != "invalid_grant" {
				t.Errorf("%s as code: %+v", what, a)
			}
		}
	}
}

// TestOauthTokens_Audience: what a program asks for decides what its token is for, and only that.
// T119
func TestOauthTokens_Audience(t *testing.T) {
	p := newProgram(t, storetest.SQLite, nil)
	service := p.s.PublicURL() + "/api/v1/x402"
	audience := func(a answered) []string {
		t.Helper()
		switch aud := claimsOf(t, a.Access)["aud"].(type) {
		case string:
			return []string{aud}
		case []any:
			var out []string
			for _, v := range aud {
				out = append(out, v.(string))
			}
			return out
		}
		return nil
	}
	got := p.exchange(p.code(), "resource", progResource)
	if aud := audience(got); !slices.Equal(aud, []string{service, progResource}) {
		t.Errorf("%v", aud)
	}
	if next := p.refresh(got.Refresh); !slices.Equal(audience(next), []string{service, progResource}) {
		t.Errorf("renewed for %v", audience(next))
	}
	if aud := audience(p.exchange(p.approved(p.request("resource", ""), p.choice(1)).Query().Get("code"))); !slices.Equal(aud, []string{service}) {
		t.Errorf("for the service alone: %v", aud)
	}
	for _, res := range []string{
		p.s.PublicURL() + "/api/v1/x402", p.s.PublicURL() + "/other", "http://agent.example.com/mcp", "https://u@agent.example.com/mcp", "https://agent.example.com/mcp#x",
		"/mcp", "mcp://server/tools", "https://", "https://agent.example.com/" + strings.Repeat("a", 2048), "https://agent.example.com/a b", "urn:x",
	} {
		_, err := p.s.OAuth().Authorize(t.Context(), p.request("resource", res))
		var back *oauth.RedirectError
		if !errors.As(err, &back) || !strings.Contains(back.URL, "error=invalid_target") {
			t.Errorf("%.60s: %v", res, err)
		}
	}
	q := p.request()
	q.Add("resource", "https://other.example.com/mcp")
	var back *oauth.RedirectError
	if _, err := p.s.OAuth().Authorize(t.Context(), q); !errors.As(err, &back) || !strings.Contains(back.URL, "error=invalid_target") {
		t.Errorf("two: %v", err)
	}
	code := p.code()
	for _, res := range []string{"https://other.example.com/mcp", p.s.PublicURL() + "/api/v1"} {
		if a := p.exchange(code, "resource", res); a.Error != "invalid_target" {
			t.Errorf("%s in place of the one of the consent: %+v", res, a)
		}
		if a := p.refresh(got.Refresh, "resource", res); a.Error == "" {
			t.Errorf("%s at a renewal", res)
		}
	}
	if a := p.exchange(code); a.status != 200 {
		t.Errorf("%+v", a)
	}
}

// TestUnknownClient: what is not known, not granted or over gets the answers of the standard.
// T124
func TestUnknownClient(t *testing.T) {
	p := newProgram(t, storetest.SQLite, nil)
	good := url.Values{
		"code": {"c"}, "redirect_uri": {progCallback}, "code_verifier": {progVerifier}, "client_id": {p.id}, "refresh_token": {"r"}, "device_code": {"d"},
		"username": {"u"}, "password": {"p"},
	}
	for _, c := range []struct {
		grant, client string
		status        int
		word          string
	}{
		{"authorization_code", "nobody", 401, "invalid_client"}, {"refresh_token", "nobody", 401, "invalid_client"}, {"authorization_code", "", 401, "invalid_client"},
		{"urn:ietf:params:oauth:grant-type:device_code", "nobody", 401, "invalid_client"}, {"refresh_token", "https://nobody.example.invalid", 401, "invalid_client"},
		{"password", p.id, 400, "unsupported_grant_type"}, {"client_credentials", p.id, 400, "unsupported_grant_type"}, {"implicit", p.id, 400, "unsupported_grant_type"},
		{"authorization_code", p.id, 400, "invalid_grant"}, {"refresh_token", p.id, 400, "invalid_grant"},
		{"urn:ietf:params:oauth:grant-type:device_code", p.id, 400, "invalid_grant"},
	} {
		if a := p.token(changed(good, []string{"grant_type", c.grant, "client_id", c.client})); a.status != c.status || a.Error != c.word || a.Text == "" {
			t.Errorf("%s by %q: %+v", c.grant, c.client, a)
		}
	}
	if a := p.token(changed(good, []string{"grant_type", "refresh_token", "client_id", ""}), basic("nobody", "x")...); a.status != 401 {
		t.Errorf("%+v", a)
	}
	res := p.send(http.MethodPost, "/oauth/device_authorization", url.Values{"client_id": {p.id}}.Encode())
	if res.status != 400 || !strings.Contains(res.body, "unauthorized_client") {
		t.Errorf("a client that is not registered for devices: %d %s", res.status, res.body)
	}
	// A client that registered for codes alone gets nothing to renew, and a longer token for it.
	p.id = p.register(`{"redirect_uris":["` + progCallback + `"]}`)
	if a := p.exchange(p.code()); a.Refresh != "" || a.Secs != 86400 {
		t.Errorf("%+v", a)
	}
}

// TestOauthTokens_Bearer: a bearer token comes in the header, and the challenge tells the configured address.
// T126
func TestOauthTokens_Bearer(t *testing.T) {
	p := newProgram(t, storetest.SQLite, func(c *server.Config) { c.PublicURL = "https://pay.example.com" })
	a := p.exchange(p.approved(p.request("scope", "openid"), p.choice(5)).Query().Get("code"))
	plain := p.exchange(p.code())
	const challenge = `Bearer resource_metadata="https://pay.example.com/.well-known/oauth-protected-resource"`
	for what, c := range map[string]struct {
		path, authorization string
		status              int
		challenge           string
	}{
		"none":         {"/oauth/userinfo", "", 401, challenge},
		"in the query": {"/oauth/userinfo?access_token=" + a.Access, "", 401, challenge},
		"basic":        {"/oauth/userinfo", "Basic eDp5", 401, challenge},
		"empty":        {"/oauth/userinfo", "Bearer", 401, challenge},
		"wrong":        {"/oauth/userinfo", "Bearer x.y.z", 401, challenge + `, error="invalid_token"`},
		"no openid":    {"/oauth/userinfo", "Bearer " + plain.Access, 403, challenge + `, error="insufficient_scope", scope="openid"`},
		"good":         {"/oauth/userinfo", "bearer " + a.Access, 200, ""},
	} {
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+c.path, nil))(t)
		req.Host = "evil.example.com"
		if c.authorization != "" {
			req.Header.Set("Authorization", c.authorization)
		}
		res := must.Get(http.DefaultTransport.RoundTrip(req))(t)
		_ = res.Body.Close()
		if got := res.Header.Get("WWW-Authenticate"); res.StatusCode != c.status || got != c.challenge {
			t.Errorf("%s: %d %q", what, res.StatusCode, got)
		}
	}
	if res := p.send(http.MethodGet, "/oauth/userinfo", "", "Authorization", "Bearer "+a.Access); res.body != `{"sub":"`+p.buyer.String()+`"}`+"\n" {
		t.Errorf("%s", res.body)
	}
	p.ahead.Add(int64(time.Hour))
	if p.opensUser(a.Access) != 401 {
		t.Error("an expired access token")
	}
	if a = p.refresh(a.Refresh); p.opensUser(a.Access) != 200 {
		t.Error("a renewed access token")
	}
	// Who ends an access token ends that one, who ends a refresh token its family; what is not known is ended already.
	p.revoke("unknown", p.stand.token.AccessToken, p.buyerKey, a.Access)
	if p.opensUser(a.Access) != 401 || p.pays(a.Access, 1) {
		t.Error("a revoked access token works")
	}
	if a = p.refresh(a.Refresh); p.opensUser(a.Access) != 200 || !p.pays(a.Access, 1) {
		t.Errorf("the consent ended with an access token: %+v", a)
	}
	if p.revoke(a.Refresh); p.opensUser(a.Access) != 401 || p.pays(a.Access, 1) || p.refresh(a.Refresh).Error != "invalid_grant" {
		t.Error("the consent goes on after the refresh token was revoked")
	}
	if !p.opensAPI(p.buyerKey) || !p.pays(p.stand.token.AccessToken, 1) {
		t.Error("what no program got is revoked as well")
	}
	if p.revoke(plain.Refresh); p.pays(plain.Access, 1) {
		t.Error("the access token goes on after the refresh token was revoked")
	}
}

// revoke sends tokens to the endpoint that ends them.
func (p *program) revoke(tokens ...string) {
	p.t.Helper()
	for _, token := range tokens {
		if res := p.send(http.MethodPost, "/oauth/revoke", url.Values{"token": {token}, "token_type_hint": {"refresh_token"}}.Encode()); res.status != 200 {
			p.t.Errorf("revoke: %d %s", res.status, res.body)
		}
	}
}

// TestRevokedAccess: a server that was called with an access token can end that token and nothing else of the consent, and
// nobody gets more than the consent by it.
// T126
func TestRevokedAccess(t *testing.T) {
	for _, v := range oauthVariants {
		t.Run(string(v), func(t *testing.T) {
			p := newProgram(t, v, nil)
			consents := func() int {
				t.Helper()
				list := must.Get(p.s.OAuth().Grants(t.Context(), p.buyer, 10))(t)
				return len(list)
			}
			first := p.exchange(p.code()) // 20 credits
			if !p.pays(first.Access, 8) {
				t.Fatal("it does not pay")
			}
			p.revoke(first.Access, first.Access)
			if p.pays(first.Access, 1) || consents() != 1 {
				t.Error("it pays after it was revoked, or the consent is over")
			}
			next := p.refresh(first.Refresh)
			p.revoke(first.Access) // which is not the newest any more
			if p.pays(next.Access, 13) || !p.pays(next.Access, 2) || p.pays(next.Access, 1) {
				t.Errorf("not what the consent leaves: %+v", next)
			}
			// Nothing is left to renew: the token is over, and the family with its next use.
			p.revoke(next.Access)
			if a := p.refresh(next.Refresh); a.Error != "invalid_grant" || consents() != 0 {
				t.Errorf("%+v", a)
			}

			// Without a refresh token the token is all there is of the consent, and so is an API key.
			p.id = p.register(`{"redirect_uris":["` + progCallback + `"]}`)
			lone := p.exchange(p.code())
			key := p.exchange(p.approved(p.request("resource", p.s.PublicURL()+"/api/v1"), oauth.Choice{}).Query().Get("code"))
			if consents() != 2 {
				t.Fatal("no consents")
			}
			p.revoke(lone.Access, key.Access)
			if p.pays(lone.Access, 1) || p.opensAPI(key.Access) || consents() != 0 {
				t.Error("a consent is left, or what it gave")
			}
		})
	}
}

// TestRevokedWhileRenewed: an access token that is revoked while its consent is renewed ends alone, whichever is first.
// T126
func TestRevokedWhileRenewed(t *testing.T) {
	p := newProgram(t, storetest.SQLite, nil)
	one := p.exchange(p.code()) // 20 credits
	if !p.pays(one.Access, 5) {
		t.Fatal("it does not pay")
	}
	p.s.BeforeRenewal(func() { p.revoke(one.Access) })
	two := p.refresh(one.Refresh)
	if two.status != http.StatusOK || p.pays(one.Access, 1) || !p.pays(two.Access, 5) {
		t.Fatalf("revoked before the renewal: %+v", two)
	}
	var three answered
	p.s.BeforeRenewal(func() { three = p.refresh(two.Refresh) })
	p.revoke(two.Access)
	if three.status != http.StatusOK || p.pays(two.Access, 1) || !p.pays(three.Access, 8) || p.pays(three.Access, 3) || !p.pays(three.Access, 2) {
		t.Errorf("revoked after it: %+v", three)
	}
}

// TestOAuthDocuments: clients find everything from the origin.
func TestOAuthDocuments(t *testing.T) {
	s, address := start(t, server.Config{Data: storetest.Dir(t)})
	b, issuer := browser{t, address}, s.PublicURL()
	read := func(path string) map[string]any {
		t.Helper()
		res := b.send(http.MethodGet, path, "")
		var out map[string]any
		if err := json.Unmarshal([]byte(res.body), &out); err != nil || res.status != 200 || res.header.Get("Cache-Control") != "public, max-age=3600" ||
			res.header.Get("Content-Type") != "application/json" || res.header.Get("Access-Control-Allow-Origin") != "*" {
			t.Fatalf("%s: %d %v %s", path, res.status, res.header, res.body)
		}
		return out
	}
	as := read("/.well-known/oauth-authorization-server")
	openID := read("/.well-known/openid-configuration")
	for name, want := range map[string]string{
		"issuer": "", "authorization_endpoint": "/oauth/authorize", "token_endpoint": "/oauth/token", "registration_endpoint": "/oauth/register",
		"revocation_endpoint": "/oauth/revoke", "device_authorization_endpoint": "/oauth/device_authorization", "jwks_uri": "/.well-known/jwks.json",
	} {
		if as[name] != issuer+want || openID[name] != issuer+want {
			t.Errorf("%s: %v, %v", name, as[name], openID[name])
		}
	}
	if openID["userinfo_endpoint"] != issuer+"/oauth/userinfo" ||
		as["client_id_metadata_document_supported"] != true {
		t.Errorf("%v\n%v", as, openID)
	}
	// Clients read either document, and must not learn less from one of them.
	if !reflect.DeepEqual(as, openID) {
		t.Errorf("the documents differ:\n%v\n%v", as, openID)
	}
	if got := fmt.Sprint(
		as["token_endpoint_auth_methods_supported"],
	); got != "[none client_secret_post client_secret_basic]" {
		t.Errorf("methods %s", got)
	}
	for path, resource := range map[string]string{
		"/.well-known/oauth-protected-resource": issuer, "/.well-known/oauth-protected-resource/api/v1": issuer + "/api/v1",
	} {
		if doc := read(path); doc["resource"] != resource || doc["authorization_servers"].([]any)[0] != issuer {
			t.Errorf("%v", doc)
		}
	}
	for _, path := range []string{"/oauth/token", "/oauth/register", "/.well-known/oauth-authorization-server"} {
		if res := b.send(http.MethodOptions, path, "", "Origin", "https://app.example.com"); res.status != 204 || res.header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("OPTIONS %s: %d", path, res.status)
		}
	}
}
