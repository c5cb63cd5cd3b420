package server_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

const (
	progCallback = "https://prog.example.com/cb"
	progVerifier = "0123456789-0123456789-0123456789-0123456789"
	progResource = "https://agent.example.com/mcp"
)

// program is a registered client of a running service, with a person who agrees to everything.
type program struct {
	*stand
	browser
	s          *server.Server
	id         string
	buyerKey   string
	ahead      *atomic.Int64
	log        *syncBuffer
	registered string // answer to the registration
}

// oauthVariants are the databases on which single use is proved.
var oauthVariants = []storetest.Variant{storetest.SQLite, storetest.Postgres}

func newProgram(t *testing.T, v storetest.Variant, change func(*server.Config)) *program {
	t.Helper()
	db := storetest.Config(t, v)
	p := &program{ahead: &atomic.Int64{}, log: &syncBuffer{}}
	now := time.Now() // which stands still, but for what a test adds
	cfg := server.Config{
		Data: db.Data, Database: db.Database, Log: slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Clock: func() time.Time { return now.Add(time.Duration(p.ahead.Load())) },
	}
	if db.Database != "" {
		cfg.MasterKeyFile = freshMasterKey(t)
	}
	if change != nil {
		change(&cfg)
	}
	s, address := start(t, cfg)
	builder, buyer := keys(t, s)
	p.s, p.browser, p.buyerKey = s, browser{t, address}, buyer.Key
	p.stand = newStand(t, address, builder, buyer, 50)
	p.id = p.register(`{"client_name":"Program","redirect_uris":["` + progCallback + `"],"grant_types":["authorization_code","refresh_token"]}`)
	return p
}

func (p *program) register(body string) string {
	p.t.Helper()
	res := p.send(http.MethodPost, "/oauth/register", body, "Content-Type", "application/json")
	var out struct {
		ID string `json:"client_id"`
	}
	if err := json.Unmarshal([]byte(res.body), &out); err != nil || res.status != http.StatusCreated {
		p.t.Fatalf("register: %d %s", res.status, res.body)
	}
	p.registered = res.body
	return out.ID
}

func challengeOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// request is a good request to be let in, with changes: pairs of names and values, "" to leave one out.
func (p *program) request(changes ...string) url.Values {
	q := url.Values{
		"response_type": {"code"}, "client_id": {p.id}, "redirect_uri": {progCallback}, "state": {"st"}, "scope": {"credits"},
		"code_challenge": {challengeOf(progVerifier)}, "code_challenge_method": {"S256"}, "resource": {progResource},
	}
	return changed(q, changes)
}

func changed(q url.Values, changes []string) url.Values {
	q = maps.Clone(q)
	for i := 0; i < len(changes); i += 2 {
		if q.Del(changes[i]); changes[i+1] != "" {
			q.Set(changes[i], changes[i+1])
		}
	}
	return q
}

// personOf is the owner of an account, who signed in with a key that has every right.
func personOf(owner toll.Address) auth.Caller {
	return auth.Caller{Address: owner, Rights: toll.AllRights()}
}

func (p *program) choice(limit toll.Credits) oauth.Choice {
	return oauth.Choice{PlanID: p.plan, RedemptionLimit: limit.Ptr()}
}

// approved lets the person agree to a request, and returns where the browser is sent.
func (p *program) approved(q url.Values, c oauth.Choice) *url.URL {
	p.t.Helper()
	a := must.Get(p.s.OAuth().Authorize(p.t.Context(), q))(p.t)
	to := must.Get(p.s.OAuth().Approve(p.t.Context(), a, personOf(p.buyer), c))(p.t)
	return must.Get(url.Parse(to))(p.t)
}

func (p *program) code() string {
	p.t.Helper()
	return p.approved(p.request(), p.choice(20)).Query().Get("code")
}

// answered is an answer of the token endpoint.
type answered struct {
	status  int
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
	Scope   string `json:"scope"`
	ID      string `json:"id_token"`
	Secs    int64  `json:"expires_in"`
	Error   string `json:"error"`
	Text    string `json:"error_description"`
}

func (p *program) token(form url.Values, header ...string) answered {
	p.t.Helper()
	res := p.send(http.MethodPost, "/oauth/token", form.Encode(), header...)
	a := answered{status: res.status}
	if err := json.Unmarshal([]byte(res.body), &a); err != nil || (res.status == 200) != (a.Access != "") || res.header.Get("Cache-Control") != "no-store" {
		p.t.Fatalf("%d %s", res.status, res.body)
	}
	return a
}

func (p *program) exchange(code string, changes ...string) answered {
	p.t.Helper()
	return p.token(changed(url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {progCallback}, "code_verifier": {progVerifier}, "client_id": {p.id},
	}, changes))
}

func (p *program) refresh(token string, changes ...string) answered {
	p.t.Helper()
	return p.token(changed(url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token}, "client_id": {p.id}}, changes))
}

// pays reports whether an access token pays for a request of n credits.
func (p *program) pays(access string, n toll.Credits) bool {
	p.t.Helper()
	for left := n; left > 0; left -= min(left, 10) {
		r, err := p.builder.Settle(p.t.Context(), &x402.SettleRequest{
			PaymentRequired: p.required(), AccessToken: access, AgentRequestID: toll.NewHash().String(), MaxAmount: min(left, 10).Ptr(),
		})
		if err != nil || !r.Success {
			return false
		}
	}
	return true
}

// TestOAuth_PKCE: every code is bound by S256, and to its verifier.
// T115
func TestOAuth_PKCE(t *testing.T) {
	p := newProgram(t, storetest.SQLite, nil)
	for _, c := range [][]string{
		{"code_challenge", ""}, {"code_challenge_method", ""}, {"code_challenge_method", "plain"}, {"code_challenge_method", "s256"},
		{"code_challenge", "", "code_challenge_method", ""}, {"code_challenge", "short"}, {"code_challenge", challengeOf(progVerifier) + "="},
	} {
		_, err := p.s.OAuth().Authorize(t.Context(), p.request(c...))
		var back *oauth.RedirectError
		if !errors.As(err, &back) || !strings.HasPrefix(back.URL, progCallback+"?") || !strings.Contains(back.URL, "error=invalid_request") || strings.Contains(back.URL, "code=") {
			t.Errorf("%q: %v", c, err)
		}
	}
	for _, c := range []struct {
		verifier, word string
	}{
		{"", "invalid_request"}, {progVerifier[:42], "invalid_request"}, {strings.Repeat("v", 129), "invalid_request"}, {strings.Repeat("v", 43), "invalid_grant"},
		{challengeOf(progVerifier), "invalid_grant"},
	} {
		code := p.code()
		if a := p.exchange(code, "code_verifier", c.verifier); a.status != 400 || a.Error != c.word {
			t.Errorf("verifier %q: %+v", c.verifier, a)
		}
		if a := p.exchange(code); (a.Error == "") != (c.word == "invalid_request") {
			t.Errorf("the right verifier after %q: %+v", c.verifier, a)
		}
	}
}

// TestCodeReuse: a code works once, for a minute, for its client and its redirect; when it comes again, what the first
// got is revoked.
// T116
func TestCodeReuse(t *testing.T) {
	for _, v := range oauthVariants {
		t.Run(string(v), func(t *testing.T) { codeReuse(t, v) })
	}
}

func codeReuse(t *testing.T, v storetest.Variant) {
	p := newProgram(t, v, nil)
	other := p.register(`{"client_name":"Other","redirect_uris":["` + progCallback + `","` + progCallback + `/2"]}`)

	code := p.code()
	got := p.exchange(code)
	if got.status != 200 || got.Secs > 3600 || got.Refresh == "" || got.Scope != "credits" || !p.pays(got.Access, 1) {
		t.Fatalf("%+v", got)
	}
	if a := p.exchange(code); a.status != 400 || a.Error != "invalid_grant" {
		t.Errorf("again: %+v", a)
	}
	if p.pays(got.Access, 1) {
		t.Error("the access token of a code that came twice pays")
	}
	if a := p.refresh(got.Refresh); a.Error != "invalid_grant" {
		t.Errorf("its refresh token: %+v", a)
	}

	for what, c := range map[string][]string{
		"another client": {"client_id", other}, "another redirect": {"redirect_uri", progCallback + "/2"}, "the command line": {"client_id", oauth.CommandLine},
	} {
		code := p.code()
		if a := p.exchange(code, c...); a.Error != "invalid_grant" {
			t.Errorf("%s: %+v", what, a)
		}
		if a := p.exchange(code); a.Error != "invalid_grant" {
			t.Errorf("the right one after %s: %+v", what, a)
		}
	}

	// Of many exchanges at the same time one gets something, and loses it to the second.
	code = p.code()
	var won atomic.Int64
	var wg sync.WaitGroup
	begin := make(chan struct{})
	var access string
	for range 20 {
		wg.Go(func() {
			<-begin
			if a := p.exchange(code); a.status == 200 {
				won.Add(1)
				access = a.Access
			} else if a.Error != "invalid_grant" {
				t.Errorf("%+v", a)
			}
		})
	}
	close(begin)
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d of 20 got something", won.Load())
	} else if p.pays(access, 1) {
		t.Error("it pays after the code came again")
	}

	code = p.code()
	p.ahead.Add(int64(time.Minute + time.Second))
	if a := p.exchange(code); a.Error != "invalid_grant" {
		t.Errorf("after 61 s: %+v", a)
	}

	// A key that the command line got goes as well.
	si := client.NewSignIn(callback, "toll-cli")
	anonymous := client.New("", client.WithURL(p.url), client.WithRetries(0))
	start, err := oauth.ParseStart(url.Values{"callback_url": {callback}, "state": {si.State}, "code_challenge": {challengeOf(si.Verifier)}})
	must.Do(t, err)
	code = must.Get(p.s.OAuth().Issue(t.Context(), personOf(p.buyer), start))(t)
	key, _, err := anonymous.ExchangeCode(t.Context(), si, code)
	must.Do(t, err)
	works := func() bool {
		for _, err := range client.New(key, client.WithURL(p.url), client.WithRetries(0)).Keys(t.Context()) {
			return err == nil
		}
		return false
	}
	if !works() {
		t.Error("the key does not work")
	}
	if _, _, err := anonymous.ExchangeCode(t.Context(), si, code); err == nil || works() {
		t.Errorf("the key works after its code came again, %v", err)
	}
	for _, secret := range []string{got.Access, got.Refresh, code, key} {
		if strings.Contains(p.log.String(), secret) {
			t.Errorf("%.10s… is in the log", secret)
		}
	}
}

// TestMixUp: an answer says whose it is, keeps the state, and works with a client library as it is.
// T118
func TestMixUp(t *testing.T) {
	p := newProgram(t, storetest.SQLite, nil)
	to := p.approved(p.request(), p.choice(5)).Query()
	if to.Get("iss") != p.s.PublicURL() || to.Get("state") != "st" || len(to) != 3 {
		t.Errorf("%v", to)
	}
	if to = p.approved(p.request("state", ""), p.choice(5)).Query(); to.Has("state") || to.Get("iss") == "" {
		t.Errorf("%v", to)
	}
	a := must.Get(p.s.OAuth().Authorize(t.Context(), p.request()))(t)
	denied, err := url.Parse(p.s.OAuth().Deny(a))
	if q := denied.Query(); err != nil || q.Get("error") != "access_denied" || q.Get("iss") != p.s.PublicURL() || q.Get("state") != "st" {
		t.Errorf("%v", denied)
	}
	var doc struct {
		Issuer string `json:"issuer"`
		Iss    bool   `json:"authorization_response_iss_parameter_supported"`
	}
	res := p.send(http.MethodGet, "/.well-known/oauth-authorization-server", "")
	if err := json.Unmarshal([]byte(res.body), &doc); err != nil || doc.Issuer != p.s.PublicURL() || !doc.Iss || res.header.Get("Cache-Control") != "public, max-age=3600" {
		t.Errorf("%d %s", res.status, res.body)
	}

	lib := oauth2.Config{ClientID: p.id, RedirectURL: progCallback, Scopes: []string{"openid"}, Endpoint: oauth2.Endpoint{TokenURL: p.url + "/oauth/token"}}
	verifier := oauth2.GenerateVerifier()
	u := must.Get(url.Parse(lib.AuthCodeURL("st", oauth2.S256ChallengeOption(verifier), oauth2.SetAuthURLParam("resource", progResource))))(t)
	token, err := lib.Exchange(t.Context(), p.approved(u.Query(), p.choice(5)).Query().Get("code"), oauth2.VerifierOption(verifier))
	if err != nil || !p.pays(token.AccessToken, 1) {
		t.Fatalf("%v", err)
	}
	if id, _ := token.Extra("id_token").(string); strings.Count(id, ".") != 2 {
		t.Errorf("identity token %q", id)
	}
	token.Expiry = time.Now().Add(-time.Hour)
	next, err := lib.TokenSource(t.Context(), token).Token()
	if err != nil || next.AccessToken == token.AccessToken || !p.pays(next.AccessToken, 1) {
		t.Errorf("a renewal: %v", err)
	}
}
