package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/events"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/pay"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/internal/traces"
)

// publicURL is what the service is told about itself. It is never the address that tests connect to.
const publicURL = "https://pay.example.com"

// long is more than anything takes that comes at all, on a busy machine as well.
const long = 2 * time.Minute

// stack is a whole service in one process, behind a real HTTP server.
type stack struct {
	t       testing.TB
	url     string
	handler http.Handler
	store   *store.Store
	ledger  *ledger.Ledger
	auth    *auth.Auth
	fac     *pay.Facilitator
	clock   *clock
	log     *lockedBuffer
	built   api.Deps // what the handler was made of
	purses  *purses

	b1, b2, s1 actor
}

// actor is somebody with an address and an API key.
type actor struct {
	address toll.Address
	key     string
	keyID   toll.Hash
}

type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// offset is how far the clock was moved since the test began.
func (c *clock) offset() time.Duration { return c.now().Sub(began) }

// began is when every test begins.
var began = time.Date(2026, 11, 21, 1, 52, 17, 872_000_000, time.UTC)

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// each runs f on a stack of every database.
func each(t *testing.T, f func(t *testing.T, s *stack)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, st *store.Store) { f(t, newStackOn(t, st)) })
}

func newStack(t testing.TB) *stack {
	t.Helper()
	st, _ := storetest.Open(t, store.SQLite)
	return newStackOn(t, st)
}

func newStackOn(t testing.TB, st *store.Store) *stack {
	t.Helper()
	return newStackWith(t, st, rail.Rails{})
}

// newPaidStack is newStack with stand-ins that pay: the crypto one at once, the card one when its page is completed.
func newPaidStack(t testing.TB) (s *stack, crypto, card *railtest.Rail) {
	t.Helper()
	st, _ := storetest.Open(t, store.SQLite)
	crypto, card = railtest.New(), railtest.New()
	card.Behave(railtest.Behaviour{Person: true})
	return newStackWith(t, st, rail.Rails{rail.Crypto: crypto, rail.Card: card}), crypto, card
}

func newStackWith(t testing.TB, st *store.Store, rails rail.Rails) *stack {
	t.Helper()
	ctx := context.Background()
	s := &stack{t: t, store: st, clock: &clock{at: began}, log: &lockedBuffer{}, purses: newPurses()}
	log := slog.New(traces.Log(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	ring := seal.New([32]byte{1, 2, 3})
	var err error
	s.auth, err = auth.Bootstrap(ctx, st, ring, auth.Config{
		Environment: toll.Sandbox, Issuer: publicURL + api.Base, ClaimObject: "svc", Clock: s.clock.now, Log: log, Version: "1.0",
	})
	must.Do(t, err)
	s.ledger = ledger.New(st, ledger.Config{Clock: s.clock.now, Log: log, MACKey: s.auth.MACKey()})
	queue := jobs.NewQueue(st, s.clock.now, log)
	desk := checkout.New(checkout.Deps{
		Store: st, Ledger: s.ledger, Queue: queue, Rails: rails, Clock: s.clock.now, Log: log, SignReference: s.auth.SignReference, OpenReference: s.auth.OpenReference,
	})
	sold := catalogue.New(st, catalogue.Brand{}, s.clock.now, log)
	access := tokens.New(tokens.Deps{Store: st, Ledger: s.ledger, Auth: s.auth, Checkout: desk, Catalogue: sold, Clock: s.clock.now})
	s.fac = pay.New(pay.Deps{
		Horizon: 400 * 24 * time.Hour,
		Store:   st, Ledger: s.ledger, Auth: s.auth, Checkout: desk, Catalogue: sold, Tokens: access, Clock: s.clock.now, Log: log, TopUpWait: long,
		Purchases: purchases.New(purchases.Deps{
			Store: st, Auth: s.auth, Checkout: desk, Catalogue: sold, Tokens: access, Clock: s.clock.now, Log: log, Wait: long,
		}),
	})
	happened := events.New(events.Config{
		Store: st, Ledger: s.ledger, Settlements: s.fac.Requests.Settlements, Permission: s.fac.Tokens.Get, Seal: ring.Seal, Open: ring.Open,
		Outbound: outbound.Config{Loopback: true, Timeout: long}, Clock: s.clock.now, Log: log,
	})
	persons, err := people.New(people.Deps{
		Store: st, Auth: s.auth, PublicURL: publicURL, Seal: ring.Seal, Open: ring.Open, Clock: s.clock.now, Log: log,
	})
	must.Do(t, err)
	s.built = api.Deps{
		Store: st, Auth: s.auth, Facilitator: s.fac, Checkout: desk, Ledger: s.ledger, Events: happened, People: persons, Vault: ring,
		Service: api.Service{
			Environment: toll.Sandbox, PublicURL: publicURL, Release: "1.1.0", Clock: s.clock.now,
			TestClock: &api.TestClock{Ahead: s.clock.offset, Advance: func(_ context.Context, d time.Duration) error { s.clock.advance(d); return nil }},
			Ready: func(context.Context) map[string]string {
				return map[string]string{"database": "ok", "chain": "off", "card": "off"}
			},
		},
		Rails:     api.Rails{Chain: s.purses.chain(), Proof: proofOf},
		Policy:    api.Policy{BodyTimeout: long, OrderWait: long},
		Telemetry: api.Telemetry{Log: log},
	}
	s.handler = api.New(s.built)
	server := s.serve(s.handler)
	s.url = server.URL
	t.Cleanup(func() {
		server.Close()
		must.Check(t, queue.Close(ctx), "close queue")
		must.Check(t, s.ledger.Close(ctx), "close ledger")
	})
	s.b1, s.b2, s.s1 = s.actor("builder one"), s.actor("builder two"), s.actor("subscriber")
	return s
}

// serve has a handler answer on a port.
func (s *stack) serve(h http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(nil)
	server.Listener = api.Listen(server.Listener)
	server.Config = api.NewServer(h)
	server.Config.ReadHeaderTimeout = long // of connections, too, on which nothing was asked yet
	server.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}), slog.LevelDebug)
	server.Start()
	return server
}

// impatient is the same service, for which every body that does not come with its head is late.
func (s *stack) impatient() *stack {
	s.t.Helper()
	other := *s
	other.built.Policy.BodyTimeout = time.Millisecond
	server := s.serve(api.New(other.built))
	s.t.Cleanup(server.Close)
	other.url = server.URL
	return &other
}

func (s *stack) actor(name string) actor {
	s.t.Helper()
	address := must.Get(s.auth.CreatePrincipal(context.Background(), name))(s.t)
	// Wallets are random. Golden files tell the two forms of an address apart, which rarely are the same.
	for address.String() == address.Lower() {
		name += " again"
		address = must.Get(s.auth.CreatePrincipal(context.Background(), name))(s.t)
	}
	return s.keyOf(address, "")
}

func (s *stack) keyOf(address toll.Address, version string) actor {
	s.t.Helper()
	k := must.Get(s.auth.CreateKey(context.Background(), auth.Local(address), auth.KeyParams{Version: version}, nil))(s.t)
	return actor{address, k.Key, k.ID}
}

// keyWith returns another key of somebody, made by the operator with these rights alone.
func (s *stack) keyWith(who actor, rights ...toll.Right) actor {
	s.t.Helper()
	k := must.Get(s.auth.CreateKey(context.Background(), auth.Local(who.address), auth.KeyParams{Rights: rights}, nil))(s.t)
	return actor{who.address, k.Key, k.ID}
}

// answer is an HTTP answer that has been read.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) code() string {
	var e struct{ Code string }
	_ = json.Unmarshal(a.body, &e)
	return e.Code
}

// member returns a member of a JSON answer by its dotted name.
func (a answer) member(t testing.TB, path string) any {
	t.Helper()
	var v any
	dec := json.NewDecoder(bytes.NewReader(a.body))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("not JSON: %v: %s", err, a.body)
	}
	for name := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			t.Fatalf("no %s in %s", path, a.body)
		}
		v = m[name]
	}
	return v
}

func (a answer) text(t testing.TB, path string) string {
	t.Helper()
	v, _ := a.member(t, path).(string)
	return v
}

// do sends a request. Headers come in pairs; an actor's key is sent when it has one.
func (s *stack) do(who actor, method, path, body string, headers ...string) answer {
	s.t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req := must.Get(http.NewRequest(method, s.url+path, r))(s.t)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if who.key != "" {
		req.Header.Set("Authorization", "Bearer "+who.key)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header[http.CanonicalHeaderKey(headers[i])] = append(req.Header[http.CanonicalHeaderKey(headers[i])], headers[i+1])
	}
	return s.send(req)
}

var plainClient = &http.Client{
	Timeout:       2 * long,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// send sends a request, and again when its time was over because the machine stood still, as callers do.
func (s *stack) send(req *http.Request) answer {
	s.t.Helper()
	for try := 1; ; try++ {
		began := time.Now()
		res := must.Get(plainClient.Do(req))(s.t)
		b, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		must.Do(s.t, err)
		a := answer{res.StatusCode, res.Header, b}
		checkHeaders(s.t, a)
		late := (a.status == http.StatusServiceUnavailable || a.status == http.StatusRequestTimeout) && time.Since(began) > stoodStill
		if try == 5 || !late || req.Body != nil && req.GetBody == nil {
			return a
		}
		if req.GetBody != nil {
			req.Body = must.Get(req.GetBody())(s.t)
		}
	}
}

// stoodStill is less than any time of the service that ends a call, and more than any call of a test takes.
const stoodStill = 4 * time.Second

// checkHeaders holds every answer to what every answer has.
func checkHeaders(t testing.TB, a answer) {
	t.Helper()
	for _, name := range []string{"Service-Version", "Service-Version-Resolved-From", "X-Correlation-Id", "Cache-Control", "Access-Control-Allow-Origin"} {
		if len(a.header.Values(name)) != 1 || a.header.Get(name) == "" {
			t.Errorf("header %s: %q (status %d)", name, a.header.Values(name), a.status)
		}
	}
	if a.status >= 400 && len(a.body) > 0 && a.header.Get("Content-Type") == "application/json" {
		var e toll.ErrorBody
		if err := json.Unmarshal(a.body, &e); err != nil || e.Code == "" || e.Message == "" || e.HTTPStatus != a.status || e.Category == "" ||
			e.CorrelationID != a.header.Get("X-Correlation-Id") {
			if e.Code != "" || a.status != http.StatusServiceUnavailable {
				t.Errorf("not the one error shape (status %d): %s", a.status, a.body)
			}
		}
	}
	if a.status >= 300 && a.status < 400 {
		t.Errorf("redirect %d to %s", a.status, a.header.Get("Location"))
	}
}

const base = api.Base

// plan registers a plan and returns its id.
func (s *stack) plan(who actor, body string) string {
	s.t.Helper()
	a := s.do(who, "POST", base+"/protocol/plans", body)
	if a.status != 200 {
		s.t.Fatalf("register plan: %d %s", a.status, a.body)
	}
	return a.text(s.t, "planId")
}

// freePlan is a free plan of 100 credits, 5 per request.
const freePlan = `{"name":"Free","priceConfig":{"priceType":"FREE"},"creditsConfig":{"creditsType":"FIXED","amount":100,"minAmount":5}}`

// operator is somebody who may move the clock.
func (s *stack) operator() actor {
	s.t.Helper()
	who := s.actor("operator")
	must.Do(s.t, s.auth.MakeOperator(context.Background(), who.address))
	return who
}

// card enrols a card of somebody, as the card rail would.
func (s *stack) card(who actor, id string) {
	s.t.Helper()
	s.cardUntil(who, id, 2030)
}

func (s *stack) cardUntil(who actor, id string, year int64) {
	s.t.Helper()
	ctx := context.Background()
	must.Do(s.t, s.store.Tx(ctx, func(tx *store.Tx) error {
		m := &store.PaymentMethod{
			Owner: who.address, ID: id, Provider: toll.ProviderCard, Brand: "visa", Last4: "4242", ExpMonth: 12, ExpYear: year, CreatedAt: s.clock.now(),
		}
		if m.ExpYear < int64(m.CreatedAt.Year()) {
			m.ExpiredAt = m.CreatedAt
		}
		return store.PutPaymentMethod(ctx, tx, m)
	}))
}

// cardPlan costs one dollar.
const cardPlan = `{"name":"Card","priceConfig":{"isCrypto":false,"amounts":["1000000"]},"creditsConfig":{"amount":100,"minAmount":5}}`

// pricedPlan costs one USDC.
const pricedPlan = `{"name":"Basic","description":"100 calls","priceConfig":{"priceType":"FIXED_PRICE","tokenAddress":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","amounts":[1000000]},"creditsConfig":{"creditsType":"FIXED","amount":100,"minAmount":5}}`

func (s *stack) agent(who actor, planID string) string {
	s.t.Helper()
	a := s.do(who, "POST", base+"/protocol/agents", `{"name":"Ask","endpoints":[{"POST":"https://agent.example.com/ask"}],"plans":["`+planID+`"]}`)
	if a.status != 200 {
		s.t.Fatalf("register agent: %d %s", a.status, a.body)
	}
	return a.text(s.t, "agentId")
}

// token returns an access token of the subscriber for the plan.
func (s *stack) token(who actor, planID string) (token, hash string) {
	s.t.Helper()
	a := s.do(who, "POST", base+"/x402/permissions", `{"planId":"`+planID+`"}`)
	if a.status != 201 {
		s.t.Fatalf("permission: %d %s", a.status, a.body)
	}
	return a.text(s.t, "accessToken"), a.text(s.t, "permissionHash")
}

// paymentBody is a verify or settle body; more are members to add, each with a leading comma.
func paymentBody(planID, token, more string) string {
	return `{"paymentRequired":{"x402Version":2,"resource":{"url":"https://agent.example.com/ask"},"accepts":[{"scheme":"svc:erc4337","network":"eip155:84532","planId":"` +
		planID + `","extra":{"version":"1"}}],"extensions":{}},"x402AccessToken":"` + token + `"` + more + `}`
}
