package api_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/x402"
)

// namedBody is what a server sends for a payment of a wallet with a payment identifier, by a fresh authorization.
func (w *wallet) namedBody(entry, id string) string {
	w.s.t.Helper()
	c := must.Get(x402.ReadChallenge(nil, []byte(`{"x402Version":2,"resource":{"url":"https://agent.example.com/ask"},"accepts":[`+entry+`],`+
		`"extensions":{"payment-identifier":`+string(x402.PaymentIdentifier(false))+`}}`)))(w.s.t)
	return `{"x402Version":2,"paymentPayload":` + decoded(w.s.t, w.pays(c, w.authorization(c), id)) + `,"paymentRequirements":` + entry + `}`
}

// A call that a wallet names is paid once, whatever it signs for it.
// T36
func TestExactNames_ExactForOthers(t *testing.T) {
	s, rail, plan := shop(t)
	s = s.again(func(d *purchases.Deps) { d.Policy = purchases.ExactOpen })
	w := s.wallet(rail, 5_000_000)
	verify := func(body string) answer { return s.do(s.b1, "POST", base+"/x402/verify", body) }
	settle := func(body string) answer { return s.do(s.b1, "POST", base+"/x402/settle", body) }
	entry := entryFor(s.b1.address, "1000")
	const id = "pay_0123456789abcdef"

	// Of twenty at once, each signed anew, one is valid.
	bodies := make([]string, 20)
	for i := range bodies {
		bodies[i] = w.namedBody(entry, id)
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	first, others := "", map[string]int{}
	for _, body := range bodies {
		group.Go(func() {
			got := verify(body)
			mu.Lock()
			defer mu.Unlock()
			if got.member(t, "isValid") == true {
				first += body
			} else {
				others[got.text(t, "invalidReason")]++
			}
		})
	}
	group.Wait()
	if others[x402.ReasonInFlight] != 19 {
		t.Fatalf("refused %v", others)
	}
	again := w.namedBody(entry, id)
	if got := settle(again); got.member(t, "success") != false || got.text(t, "errorReason") != x402.ReasonInFlight || rail.Transfers() != 0 {
		t.Errorf("another authorization settles before the first: %s", got.body)
	}
	paid := settle(first)
	if paid.member(t, "success") != true || rail.Transfers() != 1 {
		t.Fatalf("%s", paid.body)
	}
	if got := verify(again); got.member(t, "isValid") != false || got.text(t, "invalidReason") != x402.ReasonDuplicate {
		t.Errorf("verify again: %s", got.body)
	}
	if got := settle(again); string(got.body) != string(paid.body) || rail.Transfers() != 1 {
		t.Errorf("settle again: %s, %d transfers", got.body, rail.Transfers())
	}

	// Other content is a conflict: another price, another method, another builder's route, and a plan.
	b2 := entryFor(s.b2.address, "1000")
	s.plan(s.b2, pricedPlan)
	for name, got := range map[string]answer{
		"price":   verify(w.namedBody(entryFor(s.b1.address, "1001"), id)),
		"method":  verify(w.namedBody(strings.Replace(entry, `"version":"2"`, `"version":"2","httpVerb":"GET"`, 1), id)),
		"builder": s.do(s.b2, "POST", base+"/x402/verify", w.namedBody(b2, id)),
	} {
		if got.member(t, "isValid") != false || got.text(t, "invalidReason") != x402.ReasonIdentifierConflict || got.text(t, "code") != string(toll.CodeSettleConflict) {
			t.Errorf("%s: %s", name, got.body)
		}
	}
	asked := s.asks(orderRoute(plan))
	if got := s.pay(orderRoute(plan), w.pays(asked, w.authorization(asked), id)); got.status != 409 {
		t.Errorf("a plan under the name of a call: %d %s", got.status, got.body)
	}
	if rail.Transfers() != 1 {
		t.Errorf("%d transfers", rail.Transfers())
	}
	// Another wallet may use the same name.
	if got := verify(s.wallet(rail, 1000).namedBody(entry, id)); got.member(t, "isValid") != true {
		t.Errorf("another wallet: %s", got.body)
	}
}

// The name of a call whose payment can never be made any more is free: a client that tries again pays under it.
// T36
func TestExactAfterAFailure(t *testing.T) {
	s, rail, _ := shop(t)
	s = s.again(func(d *purchases.Deps) { d.Policy = purchases.ExactOpen })
	w := s.wallet(rail, 5_000_000)
	ask := func(path, body string) answer { return s.do(s.b1, "POST", base+"/x402/"+path, body) }
	entry := entryFor(s.b1.address, "1000")
	first := w.namedBody(entry, "pay_0123456789abcdef")
	rail.Behave(railtest.Behaviour{Steps: 1_000_000})
	if got := ask("settle", first); got.text(t, "errorReason") != x402.ReasonPending {
		t.Fatalf("%s", got.body)
	}
	if got := ask("settle", w.namedBody(entry, "pay_0123456789abcdef")); got.text(t, "errorReason") != x402.ReasonInFlight {
		t.Errorf("while the first may be paid: %s", got.body)
	}
	var id string
	must.Do(t, s.store.QueryRow(t.Context(), "SELECT payment_id FROM exact_payments").Scan(&id))
	rail.Undo(id, toll.CodePaymentRequired, "ended")
	rail.Behave(railtest.Behaviour{})
	if got := ask("settle", first); got.member(t, "success") != false || got.text(t, "errorReason") == x402.ReasonPending {
		t.Errorf("the first one: %s", got.body)
	}
	if got := ask("settle", w.namedBody(entry, "pay_0123456789abcdef")); got.member(t, "success") != true || rail.Transfers() != 1 {
		t.Errorf("another authorization: %s, %d transfers", got.body, rail.Transfers())
	}
}
