package api_test

import (
	"encoding/hex"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/pay"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

// again is the same service with another facilitator, as after a change of its configuration.
func (s *stack) again(change func(*purchases.Deps)) *stack {
	s.t.Helper()
	return s.waiting(long, change)
}

// hasty is the same service, which waits a second for orders and payments.
func (s *stack) hasty() *stack {
	s.t.Helper()
	return s.waiting(time.Second, func(*purchases.Deps) {})
}

// waiting is the same service, which waits for orders and payments as long as is said.
func (s *stack) waiting(wait time.Duration, change func(*purchases.Deps)) *stack {
	s.t.Helper()
	d := purchases.Deps{Store: s.store, Auth: s.auth, Checkout: s.built.Checkout, Clock: s.clock.now, Wait: wait}
	change(&d)
	d.Catalogue = catalogue.New(s.store, catalogue.Brand{}, d.Clock, nil)
	d.Tokens = tokens.New(tokens.Deps{Store: s.store, Ledger: s.ledger, Auth: s.auth, Checkout: d.Checkout, Catalogue: d.Catalogue, Clock: d.Clock})
	built := s.built
	built.Facilitator = pay.New(pay.Deps{
		Store: s.store, Ledger: s.ledger, Auth: s.auth, Checkout: d.Checkout, Catalogue: d.Catalogue, Tokens: d.Tokens, Purchases: purchases.New(d),
		Clock: d.Clock, TopUpWait: wait,
	})
	built.Policy.OrderWait = wait
	server := httptest.NewServer(api.New(built))
	s.t.Cleanup(server.Close)
	other := *s
	other.url, other.built, other.fac = server.URL, built, built.Facilitator
	return &other
}

// proof is what a wallet signs for a challenge, changed before or after its signature.
func (w *wallet) proof(c *x402.Challenge, before, after func(*x402.SignIn)) string {
	w.s.t.Helper()
	var e x402.SignInExtension
	must.Do(w.s.t, json.Unmarshal(c.Extensions[x402.ExtensionSignIn], &e))
	p := x402.NewSignIn(e.Info, e.SupportedChains[0], w.Address())
	if before != nil {
		before(p)
	}
	signature := must.Get(w.Sign(evm.PersonalDigest(p.Text())))(w.s.t)
	p.Signature = "0x" + hex.EncodeToString(signature)
	if after != nil {
		after(p)
	}
	return must.Get(p.Encode())(w.s.t)
}

func (s *stack) signIn(plan, proof string) answer {
	s.t.Helper()
	return s.do(actor{}, "POST", tokenRoute(plan), "", "SIGN-IN-WITH-X", proof)
}

func (w *wallet) signsIn(plan string) answer {
	w.s.t.Helper()
	return w.s.signIn(plan, w.proof(w.s.asks(tokenRoute(plan)), nil, nil))
}

// A wallet gets access tokens for the credits that it has, without a payment. (Scenes S50, S51.)
func TestWalletSignsIn(t *testing.T) {
	s, rail, _ := shop(t)
	plan := s.plan(s.b1, strings.Replace(pricedPlan, `"minAmount":5`, `"minAmount":1,"maxAmount":100`, 1))
	s.agent(s.b1, plan)
	w := s.wallet(rail, 1_000_000)
	c := s.asks(tokenRoute(plan))
	if c.Entries[0].Scheme != x402.SchemeExact || c.URL != publicURL+tokenRoute(plan) {
		t.Errorf("%+v", c)
	}
	poor := s.signIn(plan, w.proof(c, nil, nil))
	if poor.reason(t) != x402.ReasonInsufficientFunds || poor.code() != string(toll.CodeInsufficientCredits) {
		t.Errorf("without credits: %d %s", poor.status, poor.body)
	}
	// The same route sells the plan.
	asked := poor.demanded(t)
	bought := s.pay(tokenRoute(plan), w.pays(asked, w.authorization(asked), ""))
	if bought.status != 200 || bought.text(t, "accessToken") == "" || bought.text(t, "balance") != "100" || bought.header.Get("payment-response") == "" {
		t.Fatalf("%d %s", bought.status, bought.body)
	}
	in := w.signsIn(plan)
	token := in.text(t, "accessToken")
	if in.status != 200 || token == "" || token == bought.text(t, "accessToken") || in.text(t, "balance") != "100" || in.text(t, "planId") != plan ||
		in.text(t, "subscriberAddress") != w.Address().String() || in.member(t, "orderId") != nil || in.header.Get("payment-response") != "" {
		t.Fatalf("%d %s", in.status, in.body)
	}
	if ends := in.text(t, "expiresAt"); ends != s.clock.now().Truncate(time.Second).Add(time.Hour).UTC().Format("2006-01-02T15:04:05.000Z") {
		t.Errorf("it ends at %s", ends)
	}
	settled := s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, `,"maxAmount":"5"`))
	if settled.status != 200 || settled.text(t, "remainingBalance") != "95" {
		t.Errorf("settle: %d %s", settled.status, settled.body)
	}
	// It has no limit on money behind it, so it cannot buy.
	over := s.do(s.b1, "POST", base+"/x402/verify", paymentBody(plan, token, `,"maxAmount":"100"`))
	if over.member(t, "isValid") != false || over.text(t, "invalidReason") != x402.ReasonInsufficientFunds {
		t.Errorf("more than there is: %s", over.body)
	}
	if strings.Contains(s.log.String(), token) {
		t.Error("the log has an access token")
	}
}

// Proofs count once, here, now, and for their address. (Scene S52.)
func TestWalletSignsInBadly(t *testing.T) {
	s, rail, plan := shop(t)
	other := s.plan(s.b1, pricedPlan)
	w := s.wallet(rail, 1_000_000)
	asked := s.asks(orderRoute(plan))
	if bought := s.pay(orderRoute(plan), w.pays(asked, w.authorization(asked), "")); bought.status != 200 {
		t.Fatalf("%d %s", bought.status, bought.body)
	}
	c := s.asks(tokenRoute(plan))
	at := func(d time.Duration) string { return x402.SignInTime(s.clock.now().Add(d)) }
	bad := x402.Default.ReasonSignIn()
	for name, test := range map[string]struct {
		before, after func(*x402.SignIn)
		want          string
	}{
		"another domain":    {before: func(p *x402.SignIn) { p.Domain = "evil.example.com" }},
		"another port":      {before: func(p *x402.SignIn) { p.Domain += ":443" }},
		"another route":     {before: func(p *x402.SignIn) { p.URI = strings.Replace(p.URI, plan, other, 1) }},
		"version 2":         {before: func(p *x402.SignIn) { p.Version = "2" }},
		"another chain":     {before: func(p *x402.SignIn) { p.ChainID = "eip155:8453" }},
		"another signature": {before: func(p *x402.SignIn) { p.Type = "eip1271" }},
		"6 minutes old":     {before: func(p *x402.SignIn) { p.IssuedAt = at(-6 * time.Minute) }},
		"of the future":     {before: func(p *x402.SignIn) { p.IssuedAt = at(61 * time.Second) }},
		"expired":           {before: func(p *x402.SignIn) { p.ExpirationTime = at(-time.Second) }},
		"not before":        {before: func(p *x402.SignIn) { p.NotBefore = at(time.Second) }},
		"no time":           {before: func(p *x402.SignIn) { p.IssuedAt = "yesterday" }},
		"its own nonce":     {before: func(p *x402.SignIn) { p.Nonce = strings.Repeat("0", 32) }},
		"a changed nonce":   {before: func(p *x402.SignIn) { p.Nonce = "00000000" + p.Nonce[8:] }},
		"upper-case nonce":  {before: func(p *x402.SignIn) { p.Nonce = strings.ToUpper(p.Nonce[:31]) + "G" }},
		"somebody else":     {after: func(p *x402.SignIn) { p.Address = s.b1.address.String() }},
		"a changed digit": {after: func(p *x402.SignIn) {
			p.Signature = "0x" + map[bool]string{true: "2", false: "1"}[p.Signature[2] == '1'] + p.Signature[3:]
		}},
		"no signature":      {after: func(p *x402.SignIn) { p.Signature = "0x" }},
		"another statement": {after: func(p *x402.SignIn) { p.Statement = "Pay" }},
		"a line more":       {after: func(p *x402.SignIn) { p.Statement += "\nURI: x" }, want: x402.ReasonInvalidPayload},
	} {
		if test.want == "" {
			test.want = bad
		}
		got := s.signIn(plan, w.proof(c, test.before, test.after))
		if word := got.reason(t); word != test.want {
			t.Errorf("%s: %s, want %s", name, word, test.want)
		}
	}
	if got := s.signIn(other, w.proof(c, nil, nil)).reason(t); got != bad {
		t.Errorf("a proof for another plan: %s", got)
	}
	// None of these used the nonce up. Of many at once one counts.
	proof := w.proof(c, nil, nil)
	var group sync.WaitGroup
	var mu sync.Mutex
	answers := map[int]int{}
	for range 10 {
		group.Go(func() {
			got := s.signIn(plan, proof)
			mu.Lock()
			defer mu.Unlock()
			answers[got.status]++
		})
	}
	group.Wait()
	if answers[200] != 1 || answers[402] != 9 {
		t.Errorf("answers %v", answers)
	}
	late := w.proof(s.asks(tokenRoute(plan)), nil, nil)
	s.clock.advance(5 * time.Minute)
	if got := s.signIn(plan, late).reason(t); got != bad {
		t.Errorf("after five minutes: %s", got)
	}
	if got := s.do(actor{}, "POST", tokenRoute(plan), "", "SIGN-IN-WITH-X", "a", "SIGN-IN-WITH-X", "b"); got.status != 400 {
		t.Errorf("two headers: %d %s", got.status, got.body)
	}
}
