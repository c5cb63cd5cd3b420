package api_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// What is on the chain is public: it buys nothing twice, and gives nobody a credential.
// T59
func TestReplayedAuthorization(t *testing.T) {
	s, rail, plan := shop(t)
	w := s.wallet(rail, 5_000_000)
	c := s.asks(orderRoute(plan))
	a := w.authorization(c)
	payment := w.pays(c, a, "")
	var mu sync.Mutex
	var tokens, fresh, receipts = 0, 0, map[string]int{}
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			got := s.pay(orderRoute(plan), payment)
			mu.Lock()
			defer mu.Unlock()
			if got.status != 200 {
				t.Errorf("%d %s", got.status, got.body)
				return
			}
			if got.text(t, "accessToken") != "" {
				tokens++
			}
			if got.member(t, "replayed") == nil {
				fresh++
			}
			receipts[got.header.Get("payment-response")]++
		})
	}
	group.Wait()
	if tokens != 1 || fresh != 1 || len(receipts) != 1 || rail.Transfers() != 1 || s.balance(plan, w.Address()) != "100" {
		t.Errorf("%d access tokens, %d purchases, %d receipts, %d transfers, balance %s", tokens, fresh, len(receipts), rail.Transfers(), s.balance(plan, w.Address()))
	}
	// Somebody builds the header from the calldata, when the authorization has ended and the plan is not listed any more.
	s.clock.advance(10 * time.Minute)
	if off := s.do(s.b1, "PUT", base+"/protocol/plans/"+plan+"/list/false", ""); off.status != 200 {
		t.Fatalf("%d %s", off.status, off.body)
	}
	replay := s.pay(orderRoute(plan), w.pays(c, a, ""))
	if replay.status != 200 || replay.member(t, "replayed") != true || replay.member(t, "accessToken") != nil || receipts[replay.header.Get("payment-response")] != 20 {
		t.Errorf("a replay from chain data: %d %s", replay.status, replay.body)
	}
	// The same nonce with other words is not the payment.
	other := *a
	other.ValidBefore++
	if got := s.pay(orderRoute(plan), w.pays(c, &other, "")).reason(t); got != x402.ReasonExactNonceUsed {
		t.Errorf("other words under the nonce: %s", got)
	}
}

// An authorization that somebody else had carried out pays: once, and without a credential for who reads the chain. (Scene S45.)
// T58
func TestAuthorizationSubmittedByOthers(t *testing.T) {
	s, rail, plan := shop(t)
	w := s.wallet(rail, 1_000_000)
	c := s.asks(orderRoute(plan))
	a := w.authorization(c)
	rail.Submit(toll.USDCSandbox, a)
	bought := s.pay(orderRoute(plan), w.pays(c, a, ""))
	if bought.status != 200 || bought.text(t, "balance") != "100" || bought.member(t, "accessToken") != nil || bought.member(t, "replayed") != nil ||
		!bought.receipt(t).Success {
		t.Errorf("%d %s", bought.status, bought.body)
	}
	if rail.Transfers() != 1 || s.balance(plan, w.Address()) != "100" {
		t.Errorf("%d transfers", rail.Transfers())
	}
	if in := w.signsIn(plan); in.status != 200 || in.text(t, "accessToken") == "" {
		t.Errorf("the wallet itself: %d %s", in.status, in.body)
	}
}

// One authorization pays one plan, whatever is asked at the same time. (Scene S43.)
// T60
func TestOneAuthorizationManyUses(t *testing.T) {
	s, rail, p := shop(t)
	q := s.plan(s.b1, pricedPlan)
	w := s.wallet(rail, 9_000_000)
	c := s.asks(orderRoute(p))
	a := w.authorization(c)
	headers := map[string]string{p: w.pays(c, a, "")}
	d := s.asks(orderRoute(q))
	headers[q] = w.pays(d, a, "")
	var mu sync.Mutex
	paid, refused := map[string]int{}, map[string]int{}
	var group sync.WaitGroup
	for i := range 20 {
		plan := []string{p, q}[i%2]
		group.Go(func() {
			got := s.pay(orderRoute(plan), headers[plan])
			mu.Lock()
			defer mu.Unlock()
			if got.status == 200 {
				paid[plan]++
			} else {
				refused[plan+" "+got.reason(t)]++
			}
		})
	}
	group.Wait()
	winner, loser := p, q
	if paid[q] > 0 {
		winner, loser = q, p
	}
	if paid[winner] != 10 || len(paid) != 1 || refused[loser+" "+x402.ReasonExactNonceUsed] != 10 || rail.Transfers() != 1 {
		t.Errorf("paid %v, refused %v, %d transfers", paid, refused, rail.Transfers())
	}
	if s.balance(winner, w.Address()) != "100" || s.balance(loser, w.Address()) != "0" {
		t.Errorf("balances %s and %s", s.balance(winner, w.Address()), s.balance(loser, w.Address()))
	}
	// The nonce in other letters is the same nonce.
	text := must.Get(x402.DecodeExact(headers[winner]))(t)
	upper := strings.ToUpper(hex.EncodeToString(text.Authorization.Nonce[:]))
	raw := strings.Replace(decoded(t, headers[winner]), hex.EncodeToString(text.Authorization.Nonce[:]), upper, 1)
	if got := s.pay(orderRoute(winner), raw); got.status != 200 || got.member(t, "replayed") != true {
		t.Errorf("an upper-case nonce: %d %s", got.status, got.body)
	}
}

func decoded(t testing.TB, header string) string {
	t.Helper()
	var raw json.RawMessage
	must.Do(t, x402.DecodeHeader(header, &raw))
	return string(raw)
}

// Only the signature of the account that pays counts, for this token on this chain. (Scene S44.)
// T61
func TestBadSignatures(t *testing.T) {
	s, rail, plan := shop(t)
	w := s.wallet(rail, 1_000_000)
	c := s.asks(orderRoute(plan))
	a := w.authorization(c)
	good := must.Get(a.Sign(w.Key, usdcDomain))(t)
	domain := func(change func(*evm.Domain)) []byte {
		d := usdcDomain
		change(&d)
		return must.Get(a.Sign(w.Key, d))(t)
	}
	edit := func(change func([]byte) []byte) []byte { return change(slices.Clone(good)) }
	order, _ := new(big.Int).SetString("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141", 16)
	for name, signature := range map[string][]byte{
		"high s": edit(func(b []byte) []byte {
			new(big.Int).Sub(order, new(big.Int).SetBytes(b[32:64])).FillBytes(b[32:64])
			b[64] ^= 27 ^ 28
			return b
		}),
		"v 0":              edit(func(b []byte) []byte { b[64] -= 27; return b }),
		"v 29":             edit(func(b []byte) []byte { b[64] = 29; return b }),
		"64 bytes":         good[:64],
		"66 bytes":         append(slices.Clone(good), 0),
		"r 0":              edit(func(b []byte) []byte { clear(b[:32]); return b }),
		"s 0":              edit(func(b []byte) []byte { clear(b[32:64]); return b }),
		"nothing":          {},
		"a flipped bit":    edit(func(b []byte) []byte { b[3] ^= 1; return b }),
		"another chain":    domain(func(d *evm.Domain) { d.ChainID = big.NewInt(8453) }),
		"another contract": domain(func(d *evm.Domain) { d.Contract = toll.USDCLive }),
		"another name":     domain(func(d *evm.Domain) { d.Name = "USD Coin" }),
		"another version":  domain(func(d *evm.Domain) { d.Version = "1" }),
		"another key": func() []byte {
			return must.Get(s.wallet(rail, 0).Sign(a.Digest(usdcDomain)))(t)
		}(),
	} {
		header := must.Get(c.Answer(&c.Entries[0], exactPayload(a, signature), ""))(t)
		if got := s.pay(orderRoute(plan), header).reason(t); got != x402.ReasonExactSignature {
			t.Errorf("%s: %s", name, got)
		}
	}
	if rail.Calls() != 0 || rail.Transfers() != 0 || s.balance(plan, w.Address()) != "0" {
		t.Errorf("%d calls of the rail, %d transfers", rail.Calls(), rail.Transfers())
	}
}

// The window of an authorization, to the second.
// T62
func TestTimeWindow(t *testing.T) {
	s, rail, plan := shop(t)
	c := s.asks(orderRoute(plan))
	now := uint64(s.clock.now().Unix())
	for name, test := range map[string]struct {
		after, before uint64
		want          string
	}{
		"ends in 5 s":        {0, now + 5, x402.ReasonExactValidBefore},
		"ends in 6 s":        {0, now + 6, ""},
		"ends in an hour":    {now, now + 3600, ""},
		"ends after an hour": {0, now + 3601, x402.ReasonExactValidBefore},
		"never ends":         {0, 1<<63 - 1, x402.ReasonExactValidBefore},
		"begins later":       {now + 1, now + 60, x402.ReasonExactValidAfter},
		"has ended":          {0, now - 1, x402.ReasonExactValidBefore},
	} {
		w := s.wallet(rail, 1_000_000)
		a := w.authorization(c)
		a.ValidAfter, a.ValidBefore = test.after, test.before
		got := s.pay(orderRoute(plan), w.pays(c, a, ""))
		if test.want == "" && got.status != 200 || test.want != "" && got.reason(t) != test.want {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	// Carried out too late: the order fails, and nobody gets credits.
	rail.Behave(railtest.Behaviour{Time: func() time.Time { return s.clock.now().Add(time.Hour) }})
	w := s.wallet(rail, 1_000_000)
	payment := w.pays(c, w.authorization(c), "")
	for range 2 {
		late := s.pay(orderRoute(plan), payment)
		r := late.receipt(t)
		if late.reason(t) != x402.ReasonTransactionState || r.Success || r.ErrorReason != x402.ReasonTransactionState || r.Payer != w.Address().String() {
			t.Errorf("carried out too late: %d %s, receipt %+v", late.status, late.body, r)
		}
	}
	if s.balance(plan, w.Address()) != "0" || rail.Has(w.Address(), toll.USDCSandbox) != 1_000_000 {
		t.Error("a late authorization was paid, or brought credits")
	}
}

// A purchase has a name: one thing is bought under it. (T36 on the sale.)
// T36
func TestPaymentIdentifierOfASale(t *testing.T) {
	s, rail, plan := shop(t)
	other := s.plan(s.b1, strings.Replace(pricedPlan, "1000000", "2000000", 1))
	w := s.wallet(rail, 50_000_000)
	c := s.asks(orderRoute(plan))
	const id = "pay_0123456789abcdef"
	first := s.pay(orderRoute(plan), w.pays(c, w.authorization(c), id))
	if first.status != 200 || first.text(t, "accessToken") == "" {
		t.Fatalf("%d %s", first.status, first.body)
	}
	again := s.pay(orderRoute(plan), w.pays(c, w.authorization(c), id))
	if again.status != 200 || again.member(t, "replayed") != true || again.text(t, "orderId") != first.text(t, "orderId") ||
		again.member(t, "accessToken") != nil || again.header.Get("payment-response") != first.header.Get("payment-response") {
		t.Errorf("a fresh authorization under the name: %d %s", again.status, again.body)
	}
	d := s.asks(orderRoute(other))
	conflict := s.pay(orderRoute(other), w.pays(d, w.authorization(d), id))
	if conflict.status != 409 || conflict.code() != string(toll.CodeSettleConflict) {
		t.Errorf("another purchase under the name: %d %s", conflict.status, conflict.body)
	}
	if rail.Transfers() != 1 {
		t.Errorf("%d transfers", rail.Transfers())
	}
	stranger := s.wallet(rail, 1_000_000)
	if got := s.pay(orderRoute(plan), stranger.pays(c, stranger.authorization(c), id)); got.status != 200 || got.member(t, "replayed") != nil {
		t.Errorf("the name of somebody else: %d %s", got.status, got.body)
	}
	// Raced, each with an authorization of its own.
	const raced = "pay_fedcba9876543210"
	headers := make([]string, 20)
	for i := range headers {
		headers[i] = w.pays(c, w.authorization(c), raced)
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	orders, tokens := map[string]bool{}, 0
	for _, h := range headers {
		group.Go(func() {
			got := s.pay(orderRoute(plan), h)
			mu.Lock()
			defer mu.Unlock()
			if got.status != 200 {
				t.Errorf("%d %s", got.status, got.body)
			}
			orders[got.text(t, "orderId")] = true
			if got.text(t, "accessToken") != "" {
				tokens++
			}
		})
	}
	group.Wait()
	if len(orders) != 1 || tokens != 1 || rail.Transfers() != 3 {
		t.Errorf("%d orders, %d access tokens, %d transfers", len(orders), tokens, rail.Transfers())
	}
}

// TestReview5_TokenOfAPurchase: who is shown an authorization can buy with it in the name of its wallet. The access token that
// they get burns what that money bought, and nothing that the wallet had before.
func TestReview5_TokenOfAPurchase(t *testing.T) {
	s, rail, plan := shop(t)
	w := s.wallet(rail, 10_000_000)
	for range 2 {
		c := s.asks(orderRoute(plan))
		a := s.pay(orderRoute(plan), w.pays(c, w.authorization(c), ""))
		if a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		token := must.Get(x402.DecodeToken(a.text(t, "accessToken")))(t)
		body := must.Get(base64.RawURLEncoding.DecodeString(strings.Split(token.JWS, ".")[1]))(t)
		if want := `"redemptionLimit":"` + a.text(t, "creditsGranted") + `"`; !strings.Contains(string(body), want) {
			t.Errorf("the access token of a purchase says %s, not %s", body, want)
		}
	}
}
