package api_test

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/x402"
)

// wallet is somebody with a key and money, and nothing else.
type wallet struct {
	*evm.Key
	s *stack
}

func (s *stack) wallet(rail *railtest.Rail, units int64) *wallet {
	s.t.Helper()
	k := must.Get(evm.NewKey())(s.t)
	rail.Fund(k.Address(), toll.USDCSandbox, units)
	return &wallet{k, s}
}

// shop is a stack whose plans are sold to wallets.
func shop(t *testing.T) (*stack, *railtest.Rail, string) {
	s, rail, _ := newPaidStack(t)
	return s, rail, s.plan(s.b1, pricedPlan)
}

func orderRoute(plan string) string { return base + "/x402/plans/" + plan + "/order" }
func tokenRoute(plan string) string { return base + "/x402/plans/" + plan + "/token" }

// demanded is what a 402 asks for: header and body must say the same.
func (a answer) demanded(t testing.TB) *x402.Challenge {
	t.Helper()
	if a.status != 402 {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	fromHeader := must.Get(x402.ReadChallenge(a.header, nil))(t)
	fromBody := must.Get(x402.ReadChallenge(nil, a.body))(t)
	if fromHeader.Error != fromBody.Error || len(fromHeader.Entries) == 0 || string(fromHeader.Entries[0].Raw) != string(fromBody.Entries[0].Raw) ||
		a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("the header asks for %+v, the body for %+v", fromHeader, fromBody)
	}
	return fromHeader
}

// reason is the word with which a payment was refused.
func (a answer) reason(t testing.TB) string {
	t.Helper()
	word, _, _ := strings.Cut(a.demanded(t).Error, ":")
	return word
}

// authorization is one that pays the first entry of a challenge.
func (w *wallet) authorization(c *x402.Challenge) *evm.Authorization {
	e := c.Entries[0]
	amount := must.Get(toll.ParseUnits(e.Amount))(w.s.t)
	now := uint64(w.s.clock.now().Unix())
	a := &evm.Authorization{From: w.Address(), To: toll.MustAddress(e.PayTo), Value: amount.Int(), ValidAfter: now - 60, ValidBefore: now + 120}
	_, _ = rand.Read(a.Nonce[:])
	return a
}

var usdcDomain = evm.Domain{Name: "USDC", Version: "2", ChainID: big.NewInt(84532), Contract: toll.USDCSandbox}

func exactPayload(a *evm.Authorization, signature []byte) *x402.ExactPayload {
	value, _ := toll.ParseUnits(a.Value.String())
	return &x402.ExactPayload{
		Authorization: x402.ExactAuthorization{
			From: a.From, To: a.To, Value: value, ValidAfter: toll.UnitsOf(int64(a.ValidAfter)), ValidBefore: toll.UnitsOf(int64(a.ValidBefore)), Nonce: a.Nonce,
		},
		Signature: "0x" + hex.EncodeToString(signature),
	}
}

// pays is the header that pays a challenge with an authorization.
func (w *wallet) pays(c *x402.Challenge, a *evm.Authorization, identifier string) string {
	w.s.t.Helper()
	signature := must.Get(a.Sign(w.Key, usdcDomain))(w.s.t)
	return must.Get(c.Answer(&c.Entries[0], exactPayload(a, signature), identifier))(w.s.t)
}

// asks is the challenge of a route.
func (s *stack) asks(route string) *x402.Challenge {
	s.t.Helper()
	return s.do(actor{}, "POST", route, "").demanded(s.t)
}

func (s *stack) pay(route, payment string, headers ...string) answer {
	s.t.Helper()
	return s.do(actor{}, "POST", route, "", append([]string{"PAYMENT-SIGNATURE", payment}, headers...)...)
}

// receipt is the content of payment-response.
func (a answer) receipt(t testing.TB) *x402.ExactReceipt {
	t.Helper()
	r := new(x402.ExactReceipt)
	must.Do(t, x402.DecodeHeader(a.header.Get("payment-response"), r))
	return r
}

func (s *stack) balance(plan string, of toll.Address) string {
	s.t.Helper()
	return s.do(actor{}, "GET", base+"/protocol/plans/"+plan+"/balance/"+of.String(), "").text(s.t, "balance")
}

// recordSales are the routes for wallets without an account.
func recordSales(t *testing.T, version string, files map[string][]exchange) {
	s, rail, plan := shop(t)
	free := s.plan(s.b1, freePlan)
	r := &recorder{s: s, names: map[string]*names{}, files: files}
	call := func(op, route string, headers ...string) answer {
		t.Helper()
		return r.call(version, op, actor{}, "POST", route, "", headers...)
	}
	w := s.wallet(rail, 2_000_000)
	c := call("buyPlan", orderRoute(plan)).demanded(t)
	payment := w.pays(c, w.authorization(c), "")
	call("buyPlan", orderRoute(plan), "PAYMENT-SIGNATURE", payment)
	call("buyPlan", orderRoute(plan), "PAYMENT-SIGNATURE", payment)
	call("buyPlan", orderRoute(plan), "PAYMENT-SIGNATURE", "eyJhIjoiYmNkZWZnaGlqa2xtbm9wcSJ9")
	call("buyPlan", orderRoute(free))
	call("buyPlan", orderRoute("1"))
	rail.Behave(railtest.Behaviour{Steps: 1_000_000})
	r.s = s.hasty()
	call("buyPlan", orderRoute(plan), "PAYMENT-SIGNATURE", w.pays(c, w.authorization(c), ""))
	r.s = s
	rail.Behave(railtest.Behaviour{})
	asked := call("signInToPlan", tokenRoute(plan)).demanded(t)
	call("signInToPlan", tokenRoute(plan), "SIGN-IN-WITH-X", w.proof(asked, nil, nil))
	call("signInToPlan", tokenRoute(plan), "SIGN-IN-WITH-X", w.proof(asked, nil, nil))
	call("signInToPlan", tokenRoute(free))
	call("signInToPlan", tokenRoute("1"))
}

// A wallet that nobody knows buys a plan and pays a request with what it got. (Scenes S40, S42, S50.)
func TestWalletBuysAPlan(t *testing.T) {
	s, rail, plan := shop(t)
	agent := s.agent(s.b1, plan)
	w := s.wallet(rail, 2_000_000)
	asked := s.do(actor{}, "POST", orderRoute(plan), "")
	c := asked.demanded(t)
	if asked.code() != string(toll.CodePaymentRequired) || c.Error != "Payment required" || c.URL != publicURL+orderRoute(plan) {
		t.Errorf("%s: %+v", asked.code(), c)
	}
	want := `{"scheme":"exact","network":"eip155:84532","amount":"1000000","asset":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","payTo":"` + s.b1.address.String() +
		`","maxTimeoutSeconds":120,"extra":{"name":"USDC","version":"2","assetTransferMethod":"eip3009","planId":"` + plan + `"}}`
	if len(c.Entries) != 1 || string(c.Entries[0].Raw) != want {
		t.Errorf("entries %s, want %s", c.Entries[0].Raw, want)
	}
	payment := w.pays(c, w.authorization(c), "")
	bought := s.pay(orderRoute(plan), payment)
	token := bought.text(t, "accessToken")
	if bought.status != 200 || token == "" || bought.text(t, "subscriberAddress") != w.Address().String() || bought.text(t, "creditsGranted") != "100" ||
		bought.text(t, "balance") != "100" || bought.text(t, "planId") != plan || bought.text(t, "expiresAt") == "" || bought.member(t, "replayed") != nil {
		t.Fatalf("%d %s", bought.status, bought.body)
	}
	r := bought.receipt(t)
	if !r.Success || r.Payer != w.Address().String() || r.Amount != "1000000" || r.Network != "eip155:84532" || r.Transaction != bought.text(t, "txHash") ||
		r.Extra == nil || r.Extra.OrderID != bought.text(t, "orderId") || r.Extra.CreditsGranted != 100 || r.Extra.RemainingBalance != 100 {
		t.Errorf("receipt %+v", r)
	}
	settled := s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, `,"maxAmount":"5"`))
	if settled.status != 200 || settled.text(t, "payer") != w.Address().String() || settled.text(t, "remainingBalance") != "95" {
		t.Errorf("settle by agent %s: %d %s", agent, settled.status, settled.body)
	}
	for range 2 {
		again := s.pay(orderRoute(plan), payment)
		if again.status != 200 || again.member(t, "replayed") != true || again.member(t, "accessToken") != nil || again.text(t, "balance") != "95" ||
			again.header.Get("payment-response") != bought.header.Get("payment-response") {
			t.Errorf("a repeat: %d %s", again.status, again.body)
		}
	}
	if rail.Transfers() != 1 || rail.Has(s.b1.address, toll.USDCSandbox) != 1_000_000 {
		t.Errorf("%d transfers", rail.Transfers())
	}
	second := s.pay(orderRoute(plan), w.pays(c, w.authorization(c), ""))
	if second.status != 200 || second.text(t, "balance") != "195" || second.text(t, "accessToken") == "" || second.text(t, "orderId") == bought.text(t, "orderId") {
		t.Errorf("a second purchase: %d %s", second.status, second.body)
	}
	for _, secret := range []string{token, payment, payment[len(payment)-100:]} {
		if strings.Contains(s.log.String(), secret) {
			t.Error("the log has an access token or a payment")
		}
	}
}

// Payments that do not fit the price are refused by name, and nothing is written. (Scene S44.)
func TestSaleThatDoesNotFit(t *testing.T) {
	s, rail, plan := shop(t)
	w := s.wallet(rail, 5_000_000)
	c := s.asks(orderRoute(plan))
	signed := func(change func(*evm.Authorization)) string {
		a := w.authorization(c)
		change(a)
		return w.pays(c, a, "")
	}
	swapped := func(old, new string) string {
		text := decoded(t, w.pays(c, w.authorization(c), ""))
		if !strings.Contains(text, old) {
			t.Fatalf("no %s in %s", old, text)
		}
		return strings.Replace(text, old, new, 1)
	}
	poor := s.wallet(rail, 999_999)
	for name, test := range map[string]struct{ header, want string }{
		"more":               {signed(func(a *evm.Authorization) { a.Value = big.NewInt(1_000_001) }), x402.ReasonExactValue},
		"less":               {signed(func(a *evm.Authorization) { a.Value = big.NewInt(999_999) }), x402.ReasonExactValue},
		"another receiver":   {signed(func(a *evm.Authorization) { a.To = w.Address() }), x402.ReasonExactRecipient},
		"another price":      {swapped(`"amount":"1000000"`, `"amount":"1"`), x402.ReasonInvalidRequirements},
		"another timeout":    {swapped(`"maxTimeoutSeconds":120`, `"maxTimeoutSeconds":60`), x402.ReasonInvalidRequirements},
		"another name":       {swapped(`"name":"USDC"`, `"name":"USD Coin"`), x402.ReasonInvalidRequirements},
		"another token":      {swapped(toll.USDCSandbox.String(), toll.EURCSandbox.String()), x402.ReasonInvalidRequirements},
		"another chain":      {swapped("eip155:84532", "eip155:8453"), x402.ReasonInvalidNetwork},
		"another scheme":     {swapped(`"scheme":"exact"`, `"scheme":"upto"`), x402.ReasonUnsupportedScheme},
		"a changed echo":     {swapped(`"required":false`, `"required":true`), x402.ReasonEchoMismatch},
		"an access token":    {"a.b.c", x402.ReasonInvalidPayload},
		"version 1":          {swapped(`"x402Version":2`, `"x402Version":1`), x402.ReasonInvalidVersion},
		"too little":         {poor.pays(c, poor.authorization(c), ""), x402.ReasonExactBalance},
		"nobody's signature": {swapped(`"signature":"0x`, `"signature":"0x00`), x402.ReasonExactSignature},
	} {
		got := s.pay(orderRoute(plan), test.header)
		if word := got.reason(t); word != test.want {
			t.Errorf("%s: %s, want %s", name, word, test.want)
		}
	}
	if got := s.do(actor{}, "POST", orderRoute(plan), "", "X-PAYMENT", "e30=").reason(t); got != x402.ReasonInvalidVersion {
		t.Errorf("the header of version 1: %s", got)
	}
	payment := w.pays(c, w.authorization(c), "")
	if got := s.pay(orderRoute(plan), payment, "PAYMENT-SIGNATURE", payment); got.status != 400 || got.code() != string(toll.CodeBadRequest) {
		t.Errorf("two headers: %d %s", got.status, got.body)
	}
	if got := s.pay(orderRoute(plan), strings.Repeat("e", 9<<10)); got.status != 431 {
		t.Errorf("a long header: %d %s", got.status, got.body)
	}
	if rail.Calls() != 0 || rail.Transfers() != 0 {
		t.Errorf("%d calls of the rail, %d transfers", rail.Calls(), rail.Transfers())
	}
}

// A payment that takes its time is answered 202, and is there when the wallet comes back.
func TestSaleTakesItsTime(t *testing.T) {
	s, rail, plan := shop(t)
	w := s.wallet(rail, 1_000_000)
	c := s.asks(orderRoute(plan))
	rail.Behave(railtest.Behaviour{Hang: true})
	payment := w.pays(c, w.authorization(c), "")
	slow := s.hasty().pay(orderRoute(plan), payment)
	order := slow.text(t, "orderId")
	if slow.status != 202 || slow.member(t, "success") != true || slow.header.Get("Location") != base+"/protocol/orders/"+order ||
		slow.header.Get("Retry-After") == "" || slow.header.Get("payment-response") != "" || slow.member(t, "accessToken") != nil {
		t.Errorf("%d %s", slow.status, slow.body)
	}
	if in := w.signsIn(plan); in.reason(t) != x402.ReasonInsufficientFunds {
		t.Errorf("a sign-in before the credits: %d %s", in.status, in.body)
	}
	rail.Behave(railtest.Behaviour{})
	again := s.pay(orderRoute(plan), payment)
	if again.status != 200 || again.text(t, "orderId") != order || again.member(t, "accessToken") != nil || again.member(t, "replayed") != true {
		t.Errorf("%d %s", again.status, again.body)
	}
	if in := w.signsIn(plan); in.status != 200 || in.text(t, "accessToken") == "" {
		t.Errorf("a sign-in with credits: %d %s", in.status, in.body)
	}
	rail.Behave(railtest.Behaviour{Unreachable: toll.CodeChainUnreachable})
	away := s.wallet(rail, 1_000_000)
	if got := s.pay(orderRoute(plan), away.pays(c, away.authorization(c), "")); got.status != 503 || got.header.Get("Retry-After") == "" {
		t.Errorf("without the chain: %d %s", got.status, got.body)
	}
}

// What is not sold to wallets says so before anybody signs.
func TestNotSoldToWallets(t *testing.T) {
	s, _, _ := shop(t)
	crypto := `{"name":"X","priceConfig":{"priceType":"FIXED_PRICE","tokenAddress":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","amounts":[1000000]%s},"creditsConfig":{"creditsType":"FIXED","amount":100}%s}`
	two := s.plan(s.b1, `{"name":"X","priceConfig":{"priceType":"FIXED_PRICE","tokenAddress":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","amounts":[1,2],"receivers":["0x70997970C51812dc3A010C7d01b50e0d17dc79C8","`+s.b1.address.String()+`"]},"creditsConfig":{"amount":100}}`)
	unlisted := s.plan(s.b1, fmt.Sprintf(crypto, "", ""))
	if off := s.do(s.b1, "PUT", base+"/protocol/plans/"+unlisted+"/list/false", ""); off.status != 200 {
		t.Fatalf("%d %s", off.status, off.body)
	}
	for name, test := range map[string]struct {
		plan   string
		status int
		code   toll.Code
	}{
		"free":          {s.plan(s.b1, freePlan), 400, toll.CodeBadRequirements},
		"trial":         {s.plan(s.b1, fmt.Sprintf(crypto, "", `,"isTrialPlan":true`)), 400, toll.CodeBadRequirements},
		"by request":    {s.plan(s.b1, fmt.Sprintf(crypto, `,"templateAddress":"`+toll.PayAsYouGoTemplate.String()+`"`, "")), 400, toll.CodeBadRequirements},
		"native":        {s.plan(s.b1, strings.Replace(fmt.Sprintf(crypto, "", ""), toll.USDCSandbox.String(), toll.Address{}.String(), 1)), 400, toll.CodeBadRequirements},
		"two receivers": {two, 400, toll.CodeBadRequirements},
		"card":          {s.plan(s.b1, cardPlan), 400, toll.CodeFiatPlanOnCryptoRoute},
		"unlisted":      {unlisted, 409, toll.CodePlanUnlisted},
		"unknown":       {"1", 404, toll.CodePlanNotFound},
		"malformed":     {"x", 400, toll.CodeBadID},
	} {
		got := s.do(actor{}, "POST", orderRoute(test.plan), "")
		if got.status != test.status || got.code() != string(test.code) || got.header.Get("payment-required") != "" {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if strings.ContainsAny(name, "kx") || name == "malformed" {
			continue
		}
		in := s.do(actor{}, "POST", tokenRoute(test.plan), "")
		if c := in.demanded(t); c.Extensions[x402.ExtensionSignIn] == nil || c.Entries[0].Plan() != toll.PlanID(test.plan) {
			t.Errorf("%s: a sign-in is not offered: %d %s", name, in.status, in.body)
		}
	}
	// A treasury takes what several receivers would share.
	treasury := toll.MustAddress("0x00000000000000000000000000000000000000A1")
	with := s.again(func(d *purchases.Deps) { d.Treasury = treasury })
	if c := with.asks(orderRoute(two)); c.Entries[0].PayTo != treasury.String() || c.Entries[0].Amount != "3" {
		t.Errorf("with a treasury: %+v", c.Entries[0])
	}
	none := s.again(func(d *purchases.Deps) { d.Policy = purchases.ExactOff })
	for _, route := range []string{orderRoute(two), tokenRoute(two)} {
		if got := none.do(actor{}, "POST", route, ""); got.status != 404 || got.code() != string(toll.CodePathNotFound) {
			t.Errorf("switched off: %d %s", got.status, got.body)
		}
	}
}

// A receiver that changed between the price and the payment is told anew.
func TestSaleOfAnOldPrice(t *testing.T) {
	s, rail, plan := shop(t)
	w := s.wallet(rail, 1_000_000)
	c := s.asks(orderRoute(plan))
	payment := w.pays(c, w.authorization(c), "")
	treasury := toll.MustAddress("0x00000000000000000000000000000000000000A1")
	moved := s.again(func(d *purchases.Deps) { d.Treasury = treasury })
	got := moved.pay(orderRoute(plan), payment)
	if got.reason(t) != x402.ReasonExactRecipient || got.demanded(t).Entries[0].PayTo != treasury.String() || rail.Transfers() != 0 {
		t.Errorf("%d %s", got.status, got.body)
	}
	fresh := got.demanded(t)
	if bought := moved.pay(orderRoute(plan), w.pays(fresh, w.authorization(fresh), "")); bought.status != 200 || rail.Has(treasury, toll.USDCSandbox) != 1_000_000 {
		t.Errorf("%d %s", bought.status, bought.body)
	}
}

// What other servers say of credits that are missing leads to the sale.
func TestTermsNameTheSale(t *testing.T) {
	s, _, plan := shop(t)
	terms, err := s.fac.Purchases.Terms(t.Context(), toll.PlanID(plan))
	if err != nil || terms.OrderURL != publicURL+orderRoute(plan) {
		t.Errorf("%+v, %v", terms, err)
	}
	free, err := s.fac.Purchases.Terms(t.Context(), toll.PlanID(s.plan(s.b1, freePlan)))
	if err != nil || free.OrderURL != "" {
		t.Errorf("%+v, %v", free, err)
	}
}
