package people

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/traces"
)

const (
	// PathOIDC is where a provider leads the browser back.
	PathOIDC = "/sign-in/oidc/callback"
	// oidcLife is how long a person may take at the provider, and providerTime how long one request to it.
	oidcLife     = 10 * time.Minute
	providerTime = 10 * time.Second
	// maxProvider bounds an answer of the provider in bytes.
	maxProvider = 1 << 20
	// clockSkew is how far the clock of a provider may be from ours.
	clockSkew = time.Minute
)

// OIDCConfig is a provider of accounts with which people sign in (OpenID Connect). The zero value is none.
type OIDCConfig struct {
	Issuer       string // https://…, on this machine also http
	ClientID     string
	ClientSecret string // "": a public client
	Name         string // as the button says; "" for the host of the issuer
}

// Check refuses settings that are wrong.
func (c OIDCConfig) Check() error {
	if c == (OIDCConfig{}) {
		return nil
	}
	u, err := url.Parse(c.Issuer)
	if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && toll.IsLoopback(u.Hostname())) {
		return errors.New("the sign-in provider must have an https address: fix TOLL_OIDC_ISSUER (--oidc-issuer)")
	}
	if c.ClientID == "" {
		return errors.New("the sign-in provider needs the client id of this service: set TOLL_OIDC_CLIENT_ID (--oidc-client-id)")
	}
	return nil
}

// provider asks one provider. What it says of itself is read when it is first needed.
type provider struct {
	OIDCConfig
	back   string // where it leads the browser
	client *http.Client
	mu     sync.Mutex
	known  *oidc.Provider
}

func newProvider(c OIDCConfig, public string) (*provider, error) {
	if c == (OIDCConfig{}) {
		return nil, nil
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	if u, err := url.Parse(c.Issuer); err == nil {
		c.Name = cmp.Or(c.Name, u.Host)
	}
	return &provider{OIDCConfig: c, back: public + PathOIDC, client: &http.Client{Timeout: providerTime, Transport: traces.Transport(bounded{})}}, nil
}

type bounded struct{}

func (bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxProvider), res.Body}
	}
	return res, err
}

// errProvider means that the provider cannot be used now.
var errProvider = toll.Errorf(toll.CodeNotAuthenticated, "The sign-in provider is unavailable or sent an invalid response. Try again, or sign in another way.")

// config returns what asks the provider, and the context to ask with.
func (o *provider) config(ctx context.Context) (context.Context, *oidc.Provider, *oauth2.Config, error) {
	ctx = oidc.ClientContext(ctx, o.client)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known == nil {
		p, err := oidc.NewProvider(ctx, o.Issuer)
		if err != nil {
			return ctx, nil, nil, errors.New(plain.Text(err.Error(), maxFault)) // it may hold the whole answer
		}
		o.known = p
	}
	return ctx, o.known, &oauth2.Config{
		ClientID: o.ClientID, ClientSecret: o.ClientSecret, RedirectURL: o.back, Endpoint: o.known.Endpoint(),
		Scopes: []string{oidc.ScopeOpenID, "profile"},
	}, nil
}

// Reach reads the discovery document of the provider, whose issuer must be Issuer, within [providerTime]. It returns nil for the zero value.
func (c OIDCConfig) Reach(ctx context.Context) error {
	o, err := newProvider(c, "")
	if o == nil || err != nil {
		return err
	}
	if _, _, _, err = o.config(ctx); err != nil {
		return fmt.Errorf("the sign-in provider cannot be used: %w: check the provider and TOLL_OIDC_ISSUER (--oidc-issuer)", err)
	}
	return nil
}

// Provider signs people in with their accounts at the provider.
type Provider struct {
	store    *store.Store
	log      *slog.Logger
	states   *states
	limits   *limits
	provider *provider // nil: none
}

// Name returns the name of the provider, "" for none.
func (o *Provider) Name() string {
	if o.provider == nil {
		return ""
	}
	return o.provider.Name
}

// OIDCFor says for what a person is sent to the provider.
type OIDCFor struct {
	Next   string    `json:"next"`   // page that comes then
	Link   string    `json:"link"`   // secret of a link that lets a new person in
	User   toll.UUID `json:"user"`   // who is signed in; zero: nobody
	Adds   bool      `json:"adds"`   // the account becomes a credential of User
	Proves bool      `json:"proves"` // the provider has to ask for the password again
}

// oidcState goes through the provider, sealed.
type oidcState struct {
	OIDCFor
	Nonce    string    `json:"nonce"`
	Verifier string    `json:"verifier"` // of PKCE
	Browser  []byte    `json:"browser"`  // hash of what the cookie of the browser holds
	Began    time.Time `json:"began"`    // by the clock of this machine
}

// OIDCStart leads a browser to the provider.
type OIDCStart struct {
	URL    string
	Cookie string // what the browser shows when it comes back
	Life   time.Duration
}

// Begin sends a browser to the provider. Errors are safe to show: [toll.CodeNotAuthenticated], [toll.CodeRateLimited].
func (o *Provider) Begin(ctx context.Context, source string, f OIDCFor) (OIDCStart, error) {
	if o.provider == nil {
		return OIDCStart{}, errProvider
	}
	if err := o.limits.attempt(source); err != nil {
		return OIDCStart{}, err
	}
	_, _, cfg, err := o.provider.config(ctx)
	if err != nil {
		o.log.WarnContext(ctx, "sign-in provider unavailable", "error", err.Error())
		return OIDCStart{}, errProvider
	}
	cookie, hash := newSecret()
	s := oidcState{OIDCFor: f, Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Browser: hash, Began: time.Now()}
	state, err := o.states.seal(s, "people oidc")
	if err != nil {
		return OIDCStart{}, err
	}
	options := []oauth2.AuthCodeOption{oidc.Nonce(s.Nonce), oauth2.S256ChallengeOption(s.Verifier)}
	if f.Proves {
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
	}
	return OIDCStart{URL: cfg.AuthCodeURL(state, options...), Cookie: cookie, Life: oidcLife}, nil
}

// Finish returns the purpose of a sign-in at the provider and the account, known by issuer and subject, never by a mail address.
// provedAt is when the person typed a password there, zero when the provider does not say. Errors are safe to show.
func (o *Provider) Finish(ctx context.Context, source, cookie string, q url.Values) (f OIDCFor, pr Proof, provedAt time.Time, err error) {
	var s oidcState
	if o.provider == nil || len(q.Get("state")) > 4096 || !o.states.open(q.Get("state"), "people oidc", &s) || time.Since(s.Began) > oidcLife ||
		subtle.ConstantTimeCompare(s.Browser, sumOf(cookie)) != 1 {
		return f, pr, provedAt, errProof
	}
	f = s.OIDCFor
	if err := o.limits.attempt(source); err != nil {
		return f, pr, provedAt, err
	}
	if err := o.store.Tx(ctx, func(tx *store.Tx) error {
		return o.states.claim(ctx, tx, q.Get("state"), o.states.clock().Add(oidcLife))
	}); err != nil {
		return f, pr, provedAt, err
	}
	if q.Get("error") != "" {
		return f, pr, provedAt, toll.Errorf(toll.CodeNotAuthenticated, "%s did not sign you in. Start again, or sign in another way.", o.provider.Name)
	}
	token, err := o.provider.exchange(ctx, &s, q)
	if err != nil {
		o.log.WarnContext(ctx, "sign-in through the provider failed", "error", err.Error())
		return f, pr, provedAt, errProvider
	}
	if now := time.Now(); token.AuthTime > 0 {
		provedAt = time.Unix(min(token.AuthTime, now.Unix()), 0) // a clock that is ahead makes no proof last
	}
	name := cleanName(cmp.Or(token.PreferredUsername, token.Name), token.Subject)
	return f, Proof{Kind: OIDC, Subject: token.Issuer + " " + token.Subject, Name: o.provider.Name + ", " + name}, provedAt, nil
}

// idClaims are what is read of an identity token.
type idClaims struct {
	Issuer            string `json:"iss"`
	Subject           string `json:"sub"`
	AuthorizedParty   string `json:"azp"`
	AuthTime          int64  `json:"auth_time"`
	Name              string `json:"name"`
	PreferredUsername string `json:"preferred_username"`
}

// exchange gets and checks the identity token of a code.
func (o *provider) exchange(ctx context.Context, s *oidcState, q url.Values) (c idClaims, err error) {
	if iss := q.Get("iss"); iss != "" && iss != o.Issuer { // RFC 9207
		return c, errors.New("the response is from another issuer")
	}
	ctx, known, cfg, err := o.config(ctx)
	if err != nil {
		return c, err
	}
	got, err := cfg.Exchange(ctx, q.Get("code"), oauth2.VerifierOption(s.Verifier))
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		err = errors.New("the provider rejected the code: " + refused.ErrorCode) // the whole text is what it answers
	}
	if err != nil {
		return c, err
	}
	raw, _ := got.Extra("id_token").(string)
	// Its clock is that of the world, which that of a sandbox may have left.
	id, err := known.Verifier(&oidc.Config{ClientID: o.ClientID, Now: time.Now}).Verify(ctx, raw)
	if err != nil {
		return c, err
	}
	if err := id.Claims(&c); err != nil {
		return c, err
	}
	now := time.Now()
	at := time.Unix(c.AuthTime, 0)
	switch {
	case subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(s.Nonce)) != 1:
		return c, errors.New("the identity token has the wrong nonce")
	case (len(id.Audience) > 1 || c.AuthorizedParty != "") && c.AuthorizedParty != o.ClientID: // OpenID Connect Core 3.1.3.7, rules 4 and 5
		return c, errors.New("the identity token was issued to another client")
	case c.Subject == "" || len(c.Subject) > 255:
		return c, errors.New("the subject of the identity token must be 1 to 255 bytes")
	case s.Proves && (at.Before(s.Began.Add(-clockSkew)) || at.After(now.Add(clockSkew))):
		return c, errors.New("the provider did not authenticate the person again")
	}
	return c, nil
}
