package interop

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

func slashes(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e := c.E()
	c.paid(c.C(e), 5)
	body := string(e.of("verify")[0].sent)
	plain := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, path := range []string{"//api/v1/x402/verify", "/api/v1/x402/verify/", "/api/v1//x402/verify", "/api/v1/x402//verify"} {
		req := must.Get(http.NewRequestWithContext(t.Context(), "POST", s.url+path, strings.NewReader(body)))(t)
		req.Header.Set("Authorization", "Bearer "+s.builder.Key)
		req.Header.Set("Content-Type", "application/json")
		res := must.Get(plain.Do(req))(t)
		var verdict struct{ InvalidReason string }
		err := json.NewDecoder(res.Body).Decode(&verdict)
		_ = res.Body.Close()
		if res.StatusCode != 200 || err != nil || verdict.InvalidReason != x402.ReasonDuplicate {
			t.Errorf("%s: %d %+v %v", path, res.StatusCode, verdict, err)
		}
	}
	c.ends(1, []int{5}, 95)
}

// settledOnce makes sure that a settlement whose answer was lost can be asked for again, and gives the same bytes.
func (c *scene) settledOnce(lost *call) {
	c.Helper()
	for range 2 {
		req := must.Get(http.NewRequestWithContext(c.Context(), "POST", c.url+"/api/v1/x402/settle", strings.NewReader(string(lost.sent))))(c)
		req.Header.Set("Authorization", "Bearer "+c.builder.Key)
		req.Header.Set("Content-Type", "application/json")
		a, err := read(req)
		if err != nil || a.status != 200 || string(a.body) != string(lost.answer) || a.header.Get("Idempotency-Replayed") != "true" {
			c.Errorf("%+v %v, want %s", a, err, lost.answer)
		}
	}
	var receipt x402.SettleResponse
	if err := x402.Decode(lost.answer, &receipt); err != nil || receipt.Extra == nil {
		c.Fatalf("%s %v", lost.answer, err)
	}
	found, err := c.service.client(c.subscriber).Settlement(c.Context(), receipt.Extra.AgentRequestID)
	if err != nil || found.Status != "settled" || found.Transaction == nil || fmt.Sprint(*found.Transaction) != receipt.Transaction {
		c.Errorf("%+v %v", found, err)
	}
}

func lostAnswer(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e := c.E()
	e.intercept(func(c *call) bool { return c.operation != "settle" })
	o := c.C(e)
	c.refused(o)
	if r := c.receipt(o.Headers["payment-response"]); r.Success {
		t.Errorf("%+v", r)
	}
	c.settledOnce(e.of("settle")[0])
	c.ends(1, []int{5}, 95)
}

func diesAfterCommit(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e := c.E()
	e.intercept(func(c *call) bool {
		if c.operation == "settle" {
			s.process.Kill()
		}
		return c.operation != "settle"
	})
	c.refused(c.C(e))
	s.restart()
	c.settledOnce(e.of("settle")[0])
	c.ends(1, []int{5}, 95)
}

func freePlan(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a, func(s *setting) { s.price, s.unordered = toll.PriceFree(), true })
	e := c.E()
	c.paid(c.C(e), 5)
	c.ends(1, []int{5}, 95)
}

// topUp buys 100 credits for $1 on the embedded chain, on the way.
func topUp(t *testing.T, s *service, a *actors) {
	s.fund(t)
	delegation := must.Get(s.client(s.subscriber).CreateDelegation(t.Context(), client.DelegationParams{
		Provider: toll.ProviderCrypto, SpendingLimit: 1000, Lifetime: 24 * time.Hour, Currency: "usdc",
	}))(t)
	c := newScene(t, s, a, func(s *setting) {
		s.unordered, s.token = true, []client.TokenOption{client.WithDelegation(delegation.DelegationID)}
	})
	e := c.E()
	o := c.C(e)
	c.paid(o, 5)
	if r := c.receipt(o.Headers["payment-response"]); r.Extra.OrderTx == "" {
		t.Errorf("%+v", r)
	}
	c.ends(1, []int{5}, 95)
}

// fund gives the subscriber money of the embedded chain.
func (s *service) fund(t *testing.T) { t.Helper(); s.faucet(t, `{"usdc":"100"}`) }

// faucet gives money of the embedded chain, once that can be used.
func (s *service) faucet(t *testing.T, body string) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		req := must.Get(http.NewRequestWithContext(t.Context(), "POST", s.url+"/api/v1/sandbox/faucet", strings.NewReader(body)))(t)
		req.Header.Set("Authorization", "Bearer "+s.subscriber.Key)
		req.Header.Set("Content-Type", "application/json")
		a, err := read(req)
		if err == nil && a.status == http.StatusOK {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the faucet: %+v %v", a, err)
		}
	}
}

// cards pays with a plan that is bought by card. The program has no rail for cards, so this service has a stand-in.
func cards(t *testing.T, a *actors) {
	s := inside(t, server.Config{})
	c := newScene(t, s, a, func(set *setting) {
		price := must.Get(toll.PriceFiat(toll.UnitsOf(1_000_000), s.builder.Address, toll.CurrencyUSD))(t)
		set.price, set.scheme, set.network = price, x402.Default.SchemeCard(), toll.Sandbox.CardNetwork()
	})
	c.paid(c.C(c.E()), 5)
	c.ends(1, []int{5}, 95)
}

// limitedCaller meets the rate limit of the server's API key.
func limitedCaller(t *testing.T, a *actors) {
	var still atomic.Pointer[time.Time] // where the clock of the service stands, nil: it goes
	s := inside(t, server.Config{RateLimitKey: 1, Clock: func() time.Time {
		if at := still.Load(); at != nil {
			return *at
		}
		return time.Now()
	}})
	c := newScene(t, s, a)
	key := must.Get(s.client(s.builder).CreateKey(t.Context(), client.KeyParams{Name: "of the server"}))(t)
	e := c.E(func(a *serverArgs) { a.Key = key.Key })
	c.paid(c.C(e), 5)
	// Other calls come first until one is refused, and no other becomes free while the clock stands.
	e.ahead = func(operation string) {
		if operation != "verify" {
			return
		}
		now := time.Now()
		still.Store(&now)
		for {
			req, err := http.NewRequest("GET", s.url+"/api/v1/api-keys", nil)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer "+key.Key)
			if a, err := read(req); err != nil || a.status == http.StatusTooManyRequests {
				return
			}
		}
	}
	c.begins(c.refused(c.C(e)), x402.ReasonRateLimited)
	still.Store(nil)
	if v := e.of("verify"); len(v) != 2 || v[1].status != 429 || v[1].text("isValid") != "false" || v[1].header.Get("Retry-After") == "" {
		t.Errorf("%+v", v)
	}
	c.ends(1, []int{5}, 95)
}

// pendingSettlement has a settlement whose outcome is not known at first: it needs an order, as its hold ended and the credits
// were burned elsewhere, and the rail leaves that open. The stock server asks once more, and then it is decided.
func pendingSettlement(t *testing.T, a *actors) {
	s := inside(t, server.Config{})
	delegation := must.Get(s.client(s.subscriber).CreateDelegation(t.Context(), client.DelegationParams{
		Provider: toll.ProviderCrypto, SpendingLimit: 1000, Lifetime: 24 * time.Hour, Currency: "usdc",
	}))(t)
	c := newScene(t, s, a, func(s *setting) { s.token = []client.TokenOption{client.WithDelegation(delegation.DelegationID)} })
	e := c.E(func(a *serverArgs) { a.Pause = true })
	e.intercept(func(c *call) bool {
		if c.operation == "settle" {
			s.rail.Behave(railtest.Behaviour{})
		}
		return true
	})
	done := make(chan *outcome, 1)
	go func() { done <- c.C(e) }()
	c.reached(e)
	c.advance(76 * time.Second)
	c.burnElsewhere()
	s.rail.Behave(railtest.Behaviour{Hang: true})
	c.pass(e)
	c.paid(<-done, 5)
	settle := e.of("settle")
	if len(settle) != 2 || string(settle[0].sent) != string(settle[1].sent) {
		t.Fatalf("%d calls of settle", len(settle))
	}
	if first := settle[0]; first.status != 200 || first.text("errorReason") != x402.ReasonPending || first.text("transaction") == "" {
		t.Errorf("%s", first.answer)
	}
	c.ends(1, []int{5}, 95)
}

// otherInstance sends one payment to two processes on one database.
func otherInstance(t *testing.T, a *actors) {
	cfg := storetest.Config(t, storetest.Postgres)
	key := t.TempDir() + "/master.key"
	must.Do(t, os.WriteFile(key, []byte(toll.NewHash().String()[2:]+"\n"), 0o600))
	first := run(t, servertest.Options{Database: cfg.Database, MasterKeyFile: key})
	second := *first
	second.options.Listen = servertest.FreeAddress(t)
	second.process = servertest.Start(t, second.options)
	second.url = second.process.URL

	c := newScene(t, first, a)
	e := c.E()
	payment := c.pay(e)
	c.service = &second
	other := c.E()
	c.refusals([]*answer{c.send(e, payment), c.send(other, payment), c.send(e, payment)}, 2)
	c.ends(1, []int{5}, 95)
}
