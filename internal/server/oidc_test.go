package server_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

// idProvider is a small OpenID provider: who comes is signed in as the test says.
type idProvider struct {
	t      *testing.T
	url    string
	key    *rsa.PrivateKey
	mu     sync.Mutex
	codes  map[string]url.Values // what was asked for, by the code
	claims func(c map[string]any)
	lax    bool // it takes a code more than once
}

const (
	providerClient = "toll"
	providerSecret = "secret-of-toll"
)

func newIDProvider(t *testing.T) *idProvider {
	key := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	p := &idProvider{t: t, key: key, codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": p.url, "authorization_endpoint": p.url + "/authorize", "token_endpoint": p.url + "/token", "jwks_uri": p.url + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "RS256", Use: "sig"}}})
	})
	mux.HandleFunc("/token", p.token)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	p.url = srv.URL
	return p
}

// authorize is what a browser gets at the provider: the address to which it is led back.
func (p *idProvider) authorize(at string) string {
	p.t.Helper()
	u, err := url.Parse(at)
	if err != nil || !strings.HasPrefix(at, p.url+"/authorize?") {
		p.t.Fatalf("the browser goes to %s", at)
	}
	q := u.Query()
	if q.Get("client_id") != providerClient || q.Get("code_challenge_method") != "S256" || q.Get("nonce") == "" || q.Get("response_type") != "code" {
		p.t.Errorf("asked for %v", q)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	code := rand.Text()
	p.codes[code] = q
	back := url.Values{"code": {code}, "state": {q.Get("state")}}
	return q.Get("redirect_uri") + "?" + back.Encode()
}

func (p *idProvider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, secret, _ := r.BasicAuth()
	q := p.codes[r.FormValue("code")]
	if !p.lax {
		delete(p.codes, r.FormValue("code"))
	}
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if id != providerClient || secret != providerSecret || q == nil || q.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
		http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
		return
	}
	now := time.Now().Unix()
	c := map[string]any{
		"iss": p.url, "aud": providerClient, "sub": "ann-1", "nonce": q.Get("nonce"), "iat": now, "exp": now + 300,
		"preferred_username": "ann", "email": "ann@example.com", "email_verified": true,
	}
	if p.claims != nil {
		p.claims(c)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: p.key, KeyID: "1"}}, nil)
	if err != nil {
		p.t.Error(err)
		return
	}
	text, _ := json.Marshal(c)
	signed, err := signer.Sign(text)
	if err != nil {
		p.t.Error(err)
		return
	}
	token, _ := signed.CompactSerialize()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": token})
}

// as says who comes next, and what the provider says of it.
func (p *idProvider) as(claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims = func(c map[string]any) {
		for k, v := range claims {
			c[k] = v
		}
	}
}

// oidcTown is a service with a provider, at its public address.
func eachOIDCTown(t *testing.T, f func(o *town, p *idProvider)) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) {
			p := newIDProvider(t)
			ln := listenAnywhere(t)
			o := newTownOn(t, v, ln, func(cfg *server.Config) {
				cfg.Listen = ln.Addr().String()
				cfg.OIDC = people.OIDCConfig{Issuer: p.url, ClientID: providerClient, ClientSecret: providerSecret, Name: "Example ID"}
			})
			o.address = o.s.PublicURL()
			f(o, p)
		})
	}
}

// goes sends a browser to the provider by a form of a page, and returns where it is led back, as a path.
func (v *visitor) goes(p *idProvider, res shown) string {
	v.t.Helper()
	to, ok := leaves(res)
	if !ok {
		v.t.Fatalf("to the provider: %d %s", res.status, mainPart.FindString(res.body))
	}
	back, ok := strings.CutPrefix(p.authorize(to), v.url)
	if !ok {
		v.t.Fatalf("the provider leads to %s", back)
	}
	return back
}

func (v *visitor) toProvider(p *idProvider, next string) string {
	v.t.Helper()
	return v.goes(p, v.post("/sign-in/oidc", url.Values{"next": {next}}))
}

// TestOIDC: a person signs up and signs in with an account of a provider, who is known by issuer and subject. T157: what belongs to
// another browser, comes twice, or is signed for somebody else is refused.
// T157
func TestOidc(t *testing.T) {
	eachOIDCTown(t, func(o *town, p *idProvider) {
		t := o.t
		v := newVisitor(t, o.address)
		page := v.get("/sign-in")
		if !strings.Contains(page.body, "Sign in with Example ID") || !strings.Contains(page.header.Get("Content-Security-Policy"), "form-action 'self';") {
			t.Errorf("%s\n%s", page.header.Get("Content-Security-Policy"), mainPart.FindString(page.body))
		}
		back := v.toProvider(p, "/account/access")
		if res := newVisitor(t, o.address).get(back); res.status != http.StatusUnauthorized {
			t.Errorf("in another browser: %d", res.status)
		}
		res := v.get(back)
		if res.status != http.StatusOK || !strings.Contains(res.body, "Create account") {
			t.Fatalf("a new account: %d %s", res.status, mainPart.FindString(res.body))
		}
		if res := v.get(back); res.status != http.StatusUnauthorized {
			t.Errorf("an answer twice: %d", res.status)
		}
		p.lax = true // even of a provider that takes a code twice, from a browser that kept its cookie
		twice := newVisitor(t, o.address)
		answer := twice.toProvider(p, "")
		for i, want := range []int{http.StatusOK, http.StatusUnauthorized} {
			if res := twice.send(http.MethodGet, answer, "", "Cookie", cookieOf(twice)); res.status != want {
				t.Errorf("answer %d of a lax provider: %d", i+1, res.status)
			}
		}
		broken := strings.Replace(answer, "state=", "state=%0A", 1) // the same sealed bytes in another text
		if res := twice.send(http.MethodGet, broken, "", "Cookie", cookieOf(twice)); res.status != http.StatusUnauthorized {
			t.Errorf("an answer again with a line break in its state: %d", res.status)
		}
		p.lax = false
		if res = v.submit(formOf(t, res).with("name", "Ann")); res.status != http.StatusSeeOther || res.header.Get("Location") != "/account/access" {
			t.Fatalf("sign-up: %d %s", res.status, mainPart.FindString(res.body))
		}
		workspace := v.workspace()
		again := newVisitor(t, o.address)
		if res := again.get(again.toProvider(p, "/account/access")); res.status != http.StatusSeeOther || again.workspace() != workspace {
			t.Errorf("sign-in: %d %s", res.status, mainPart.FindString(res.body))
		}
		for what, claims := range map[string]map[string]any{
			"another nonce":    {"nonce": "x"},
			"another audience": {"aud": "other"},
			"another party":    {"aud": []string{providerClient, "other"}, "azp": "other"},
			"other azp":        {"azp": "other"},
			"another issuer":   {"iss": "https://evil.example.com"},
			"over":             {"exp": time.Now().Unix() - 1},
			"no subject":       {"sub": ""},
			"a long subject":   {"sub": strings.Repeat("a", 256)},
		} {
			p.as(claims)
			n := newVisitor(t, o.address)
			if res := n.get(n.toProvider(p, "")); res.status != http.StatusUnauthorized {
				t.Errorf("%s: %d", what, res.status)
			}
		}
		p.as(nil)
		n := newVisitor(t, o.address)
		back = n.toProvider(p, "")
		if res := n.get(back + "&iss=https%3A%2F%2Fevil.example.com"); res.status != http.StatusUnauthorized {
			t.Errorf("an answer of another issuer: %d", res.status)
		}
		u, _ := url.Parse(n.toProvider(p, ""))
		if res := n.get(u.Path + "?error=access_denied&state=" + url.QueryEscape(u.Query().Get("state"))); res.status != http.StatusUnauthorized || !strings.Contains(res.body, "did not sign you in") {
			t.Errorf("a refusal: %d", res.status)
		}
		if res := n.post("/sign-in/oidc", url.Values{}, "Origin", "https://evil.example.com", "Sec-Fetch-Site", "cross-site"); res.status != http.StatusForbidden {
			t.Errorf("begun by another page: %d", res.status)
		}
	})
}

// TestOIDC_NotJoined: an account of a provider is never joined with a person by a mail address: not by that of codes, of a login name,
// nor of another account with the same address.
func TestTakeover_OIDCByMail(t *testing.T) {
	eachOIDCTown(t, func(o *town, p *idProvider) {
		t := o.t
		victim := newVisitor(t, o.address)
		if res := victim.submit(formOf(t, victim.get("/sign-up")).with("name", "Ann").with("login", "ann@example.com").with("password", goodPassword)); res.status != http.StatusSeeOther {
			t.Fatalf("sign-up: %d", res.status)
		}
		first := newVisitor(t, o.address)
		res := first.get(first.toProvider(p, ""))
		if !strings.Contains(res.body, "Create account") {
			t.Fatalf("joined by a login name: %d", res.status)
		}
		first.submit(formOf(t, res).with("name", "Ann"))
		p.as(map[string]any{"sub": "mallory-1"}) // with the same address
		second := newVisitor(t, o.address)
		if res := second.get(second.toProvider(p, "")); !strings.Contains(res.body, "Create account") {
			t.Errorf("joined by a mail address: %d", res.status)
		}
	})
}

// TestOIDC_Proof: an account of a provider is a fresh proof only when the provider says that it asked for the password again, since.
// T157
func TestOIDCIsNoProofByItself(t *testing.T) {
	eachOIDCTown(t, func(o *town, p *idProvider) {
		t := o.t
		ann := newVisitor(t, o.address)
		ann.submit(formOf(t, ann.get(ann.toProvider(p, ""))).with("name", "Ann"))
		v := newVisitor(t, o.address)
		if res := v.get(v.toProvider(p, "")); res.status != http.StatusSeeOther {
			t.Fatalf("sign-in: %d", res.status)
		}
		invite := func() shown { return v.act("/w/"+v.workspace()+"/members", "act", "invite", "role", "owner") }
		asked := invite()
		if !strings.Contains(asked.body, "Confirm that it is you") || !strings.Contains(asked.body, "Sign in again with Example ID") {
			t.Fatalf("a sign-in without a time is a proof: %s", mainPart.FindString(asked.body))
		}
		confirm := func() shown {
			res := v.post("/sign-in/oidc", url.Values{"next": {"/account/security"}})
			to, _ := leaves(res)
			if q, err := url.Parse(to); err != nil || q.Query().Get("prompt") != "login" || q.Query().Get("max_age") != "0" {
				t.Errorf("asked: %s", to)
			}
			return v.get(v.goes(p, res))
		}
		bob := newVisitor(t, o.address)
		p.as(map[string]any{"sub": "bob-1"})
		bob.submit(formOf(t, bob.get(bob.toProvider(p, ""))).with("name", "Bob"))
		for what, claims := range map[string]map[string]any{
			"no time": {}, "an old time": {"auth_time": time.Now().Unix() - 120}, "a time to come": {"auth_time": time.Now().Unix() + 600},
			"another person": {"auth_time": time.Now().Unix(), "sub": "eve-1"}, "a person who is known": {"auth_time": time.Now().Unix(), "sub": "bob-1"},
		} {
			p.as(claims)
			if res := confirm(); res.status != http.StatusUnauthorized {
				t.Errorf("%s: %d", what, res.status)
			}
			if res := invite(); !strings.Contains(res.body, "Confirm that it is you") {
				t.Errorf("after %s: %d", what, res.status)
			}
		}
		p.as(map[string]any{"auth_time": time.Now().Unix()})
		old := cookieOf(v)
		if res := confirm(); res.status != http.StatusSeeOther {
			t.Fatalf("proof: %d %s", res.status, mainPart.FindString(res.body))
		}
		if cookieOf(v) == old {
			t.Error("the session keeps its id after a proof")
		}
		if res := invite(); !linkIn.MatchString(res.body) {
			t.Errorf("after the proof: %d %s", res.status, mainPart.FindString(res.body))
		}
		// Another account is added, and is nobody else's then.
		p.as(map[string]any{"sub": "ann-2"})
		back := v.goes(p, v.act("/account/security", "act", "oidc"))
		if res := ann.get(back); res.status == http.StatusOK {
			t.Errorf("added in another browser")
		}
		if res := v.get(v.goes(p, v.act("/account/security", "act", "oidc"))); res.status != http.StatusOK || !strings.Contains(res.body, "is added") {
			t.Errorf("adding: %d %s", res.status, mainPart.FindString(res.body))
		}
		// Another person has signed in to the browser meanwhile.
		p.as(map[string]any{"sub": "ann-3"})
		back = v.goes(p, v.act("/account/security", "act", "oidc"))
		o.signUp("carl", "")
		carl := newVisitor(t, o.address)
		carl.jar.SetCookies(carl.base, v.jar.Cookies(v.base))
		carl.submit(formOf(t, carl.get("/sign-in?next=/device")).with("login", "carl").with("password", goodPassword).with("api_key"))
		if res := carl.get(back); res.status != http.StatusForbidden {
			t.Errorf("added to the account of who signed in meanwhile: %d", res.status)
		}
	})
}
