package server_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

// fair is a service with a stand, and a program that registered itself.
type fair struct {
	*stand
	t        *testing.T
	s        *server.Server
	url      string
	issuer   string
	person   toll.APIKey
	other    toll.APIKey // of the builder
	clientID string
	ahead    *atomic.Int64
	log      *syncBuffer
}

const (
	appCallback = "https://app.example.com/cb"
	verifier    = "verifier-verifier-verifier-verifier-verifier"
)

func newFair(t *testing.T) *fair {
	t.Helper()
	m := &fair{t: t, ahead: &atomic.Int64{}, log: &syncBuffer{}}
	m.s, m.url = start(t, server.Config{
		Data: storetest.Dir(t), Rails: rails.Config{Given: rail.Rails{rail.Crypto: railtest.New()}}, Log: slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Clock: func() time.Time { return time.Now().Add(time.Duration(m.ahead.Load())) },
	})
	m.issuer = m.s.PublicURL()
	m.other, m.person = keys(t, m.s)
	m.stand = newStand(t, m.url, m.other, m.person, 50)
	m.clientID = m.register(`{"client_name":"Notes","redirect_uris":["` + appCallback + `"],"grant_types":["authorization_code","refresh_token"]}`)
	return m
}

func (m *fair) register(body string) string {
	m.t.Helper()
	res := browser{m.t, m.url}.send(http.MethodPost, "/oauth/register", body, "Content-Type", "application/json")
	var c struct {
		ID string `json:"client_id"`
	}
	if err := json.Unmarshal([]byte(res.body), &c); err != nil || res.status != http.StatusCreated || c.ID == "" {
		m.t.Fatalf("register: %d %s", res.status, mainPart.FindString(res.body))
	}
	return c.ID
}

// query is a request to be let in.
func (m *fair) query() url.Values {
	sum := sha256.Sum256([]byte(verifier))
	return url.Values{
		"response_type": {"code"}, "client_id": {m.clientID}, "redirect_uri": {appCallback}, "state": {"state-of-the-app"}, "scope": {"credits mcp:tools"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"}, "plan_id": {string(m.plan)},
		"resource": {"https://agent.example.com/mcp"},
	}
}

func (m *fair) visitor() *visitor { return newVisitor(m.t, m.url) }

// consent opens the page of a request as a person who signs in when asked.
func (m *fair) consent(v *visitor, q url.Values) shown {
	m.t.Helper()
	res := v.get("/oauth/authorize?" + q.Encode())
	if strings.Contains(res.body, `name="api_key"`) {
		res = v.signIn(res, m.person.Key)
	}
	if res.status != http.StatusOK || !strings.Contains(res.body, "app.example.com") {
		m.t.Fatalf("consent: %d %s", res.status, mainPart.FindString(res.body))
	}
	return res
}

// codeIn returns the code that a redirect brings to the program.
func (m *fair) codeIn(s shown) string {
	m.t.Helper()
	to, ok := leaves(s)
	u, err := url.Parse(to)
	if err != nil || !ok || u.Scheme+"://"+u.Host+u.Path != appCallback || u.Query().Get("state") != "state-of-the-app" ||
		u.Query().Get("iss") != m.issuer || u.Query().Get("code") == "" {
		m.t.Fatalf("%d, to %q\n%s", s.status, to, mainPart.FindString(s.body))
	}
	return u.Query().Get("code")
}

type tokens struct {
	Access    string `json:"access_token"`
	Refresh   string `json:"refresh_token"`
	Error     string `json:"error"`
	ExpiresIn int64  `json:"expires_in"`
	Scope     string `json:"scope"`
}

// madeBy returns the newest API key of the person that was made like this.
func (m *fair) madeBy(by toll.KeyMaker) toll.APIKey {
	m.t.Helper()
	var made []toll.KeyMaker
	for k, err := range m.patient.subscriber.Keys(m.t.Context()) {
		must.Do(m.t, err)
		made = append(made, k.MadeBy)
		if k.MadeBy == by {
			return *k
		}
	}
	m.t.Fatalf("no key was made by a %s: %v", by, made)
	return toll.APIKey{}
}

func (m *fair) exchange(code string) tokens {
	m.t.Helper()
	return m.exchangeFor("https://agent.example.com/mcp", code)
}

func (m *fair) exchangeFor(resource, code string) tokens {
	m.t.Helper()
	res := browser{m.t, m.url}.send(http.MethodPost, "/oauth/token", url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {appCallback}, "code_verifier": {verifier}, "client_id": {m.clientID},
		"resource": {resource},
	}.Encode())
	var out tokens
	if err := json.Unmarshal([]byte(res.body), &out); err != nil {
		m.t.Fatalf("token: %d %s", res.status, mainPart.FindString(res.body))
	}
	return out
}
