package api_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/x402"
)

// entryFor is what a server of the builder asks for, pay per call.
func entryFor(payTo toll.Address, amount string) string {
	return fmt.Sprintf(`{"scheme":"exact","network":"eip155:84532","amount":"%s","asset":"%s","payTo":"%s","maxTimeoutSeconds":60,"extra":{"name":"USDC","version":"2"}}`,
		amount, toll.USDCSandbox, payTo)
}

// stockBody is what that server sends for a payment.
func (w *wallet) stockBody(entry string) string {
	w.s.t.Helper()
	c, err := x402.ReadChallenge(nil, []byte(`{"x402Version":2,"resource":{"url":"https://agent.example.com/ask"},"accepts":[`+entry+`]}`))
	must.Do(w.s.t, err)
	return `{"x402Version":2,"paymentPayload":` + decoded(w.s.t, w.pays(c, w.authorization(c), "")) + `,"paymentRequirements":` + entry + `}`
}

// With the policy open payments to servers of builders are settled: once, before or after a verify. (Scene S46.)
// T24
func TestExact_ExactForOthers(t *testing.T) {
	s, rail, _ := shop(t)
	if got := s.do(actor{}, "GET", base+"/x402/supported", ""); strings.Contains(string(got.body), `"exact"`) {
		t.Errorf("the default serves it: %s", got.body)
	}
	w := s.wallet(rail, 50_000)
	entry := entryFor(s.b1.address, "1000")
	if got := s.do(s.b1, "POST", base+"/x402/settle", w.stockBody(entry)); got.member(t, "success") != false {
		t.Errorf("the default settles it: %s", got.body)
	}
	s = s.again(func(d *purchases.Deps) { d.Policy = purchases.ExactOpen })
	w.s = s
	if got := s.do(actor{}, "GET", base+"/x402/supported", ""); !strings.Contains(string(got.body), `{"x402Version":2,"scheme":"exact","network":"eip155:84532"}`) {
		t.Errorf("supported: %s", got.body)
	}
	verify := func(body string) answer { return s.do(s.b1, "POST", base+"/x402/verify", body) }
	settle := func(body string) answer { return s.do(s.b1, "POST", base+"/x402/settle", body) }

	// In the flow upfront nobody verifies, and the handler runs for each success.
	body := w.stockBody(entry)
	var mu sync.Mutex
	var group sync.WaitGroup
	served, refused := 0, map[string]int{}
	for range 5 {
		group.Go(func() {
			got := settle(body)
			mu.Lock()
			defer mu.Unlock()
			if got.status == 200 && got.member(t, "success") == true && got.text(t, "payer") == w.Address().String() && got.text(t, "amount") == "1000" && got.text(t, "transaction") != "" {
				served++
			} else {
				refused[got.text(t, "errorReason")]++
			}
		})
	}
	group.Wait()
	again := settle(body)
	if served != 1 || refused[x402.ReasonDuplicate] != 4 || rail.Transfers() != 1 ||
		again.text(t, "errorReason") != x402.ReasonDuplicate || again.text(t, "extra.originalTransaction") == "" {
		t.Errorf("%d served, refused %v, %d transfers; again %s", served, refused, rail.Transfers(), again.body)
	}
	if got := verify(body); got.member(t, "isValid") != false || got.text(t, "invalidReason") != x402.ReasonDuplicate {
		t.Errorf("a verify of a settled payment: %s", got.body)
	}

	// With a verify before, one of many runs its handler, and a settle that is repeated gets its answer again.
	body = w.stockBody(entry)
	valid := 0
	refused = map[string]int{}
	for range 5 {
		group.Go(func() {
			got := verify(body)
			mu.Lock()
			defer mu.Unlock()
			if got.member(t, "isValid") == true {
				valid++
			} else {
				refused[got.text(t, "invalidReason")]++
			}
		})
	}
	group.Wait()
	first, second := settle(body), settle(body)
	if valid != 1 || refused[x402.ReasonInFlight] != 4 || first.member(t, "success") != true || string(first.body) != string(second.body) || rail.Transfers() != 2 {
		t.Errorf("%d valid, refused %v, settled %s and %s", valid, refused, first.body, second.body)
	}
	if rail.Has(s.b1.address, toll.USDCSandbox) != 2000 {
		t.Errorf("the builder has %d", rail.Has(s.b1.address, toll.USDCSandbox))
	}
}

// What is not the builder's payment is refused, and leaves no trace on the chain.
func TestExactForOthersRefused(t *testing.T) {
	s, rail, plan := shop(t)
	s = s.again(func(d *purchases.Deps) { d.Policy = purchases.ExactOpen })
	w := s.wallet(rail, 1_000_000)
	entry := entryFor(s.b1.address, "1000")
	asked := s.asks(orderRoute(plan))
	for name, test := range map[string]struct {
		who  actor
		body string
		want string
	}{
		"another builder":  {s.b2, w.stockBody(entry), x402.ReasonUnauthorizedServer},
		"another receiver": {s.b1, w.stockBody(entryFor(s.b2.address, "1000")), x402.ReasonUnauthorizedServer},
		"another amount":   {s.b1, strings.Replace(w.stockBody(entry), `"paymentRequirements":`+entry, `"paymentRequirements":`+entryFor(s.b1.address, "1001"), 1), x402.ReasonExactValue},
		"another network":  {s.b1, w.stockBody(strings.Replace(entry, "84532", "8453", 1)), x402.ReasonInvalidNetwork},
		"another token":    {s.b1, w.stockBody(strings.Replace(entry, toll.USDCSandbox.String(), toll.USDCLive.String(), 1)), x402.ReasonInvalidRequirements},
		"no money":         {s.b1, s.wallet(rail, 10).stockBody(entry), x402.ReasonExactBalance},
		"a bad signature":  {s.b1, strings.Replace(w.stockBody(entry), `"signature":"0x`, `"signature":"0x00`, 1), x402.ReasonExactSignature},
		"nothing signed":   {s.b1, `{"x402Version":2,"paymentPayload":{"x402Version":2,"accepted":` + entry + `,"payload":{}},"paymentRequirements":` + entry + `}`, x402.ReasonInvalidPayload},
	} {
		verdict := s.do(test.who, "POST", base+"/x402/verify", test.body)
		if verdict.status != 200 || verdict.member(t, "isValid") != false || verdict.text(t, "invalidReason") != test.want {
			t.Errorf("%s: verify %d %s", name, verdict.status, verdict.body)
		}
		settled := s.do(test.who, "POST", base+"/x402/settle", test.body)
		if settled.status != 200 || settled.member(t, "success") != false || settled.text(t, "errorReason") != test.want || settled.text(t, "transaction") != "" {
			t.Errorf("%s: settle %d %s", name, settled.status, settled.body)
		}
	}
	if rail.Transfers() != 0 {
		t.Errorf("%d transfers", rail.Transfers())
	}
	// An authorization pays a plan or a call, and not both.
	a := w.authorization(asked)
	if got := s.pay(orderRoute(plan), w.pays(asked, a, "")); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	dear := entryFor(s.b1.address, "1000000")
	call := must.Get(x402.ReadChallenge(nil, []byte(`{"x402Version":2,"accepts":[`+dear+`]}`)))(t)
	body := `{"x402Version":2,"paymentPayload":` + decoded(t, w.pays(call, a, "")) + `,"paymentRequirements":` + dear + `}`
	if got := s.do(s.b1, "POST", base+"/x402/settle", body); got.text(t, "errorReason") != x402.ReasonExactNonceUsed {
		t.Errorf("a payment of a plan: %s", got.body)
	}
	// One that was carried out before it came here has paid nobody knows what.
	rich := s.wallet(rail, 1_000_000)
	b := rich.authorization(call)
	rail.Submit(toll.USDCSandbox, b)
	body = `{"x402Version":2,"paymentPayload":` + decoded(t, rich.pays(call, b, "")) + `,"paymentRequirements":` + dear + `}`
	if got := s.do(s.b1, "POST", base+"/x402/settle", body); got.text(t, "errorReason") != x402.ReasonExactNonceUsed {
		t.Errorf("an authorization from the chain: %s", got.body)
	}
}

// A payment is of one route: that a verify opened it for a route that works first does not make it pay another one, which settles
// first, whatever the client says of the urls.
func TestExactOfOneRoute(t *testing.T) {
	s, rail, _ := shop(t)
	s = s.again(func(d *purchases.Deps) { d.Policy = purchases.ExactOpen })
	w := s.wallet(rail, 50_000)
	verify := func(body string) answer { return s.do(s.b1, "POST", base+"/x402/verify", body) }
	settle := func(body string) answer { return s.do(s.b1, "POST", base+"/x402/settle", body) }
	entry := entryFor(s.b1.address, "1000")
	for name, change := range map[string]string{
		"settles first": `"version":"2","paymentFlow":"upfront"`, "another flow": `"version":"2","paymentFlow":"escrow"`, "another method": `"version":"2","httpVerb":"GET"`,
		"another agent": `"version":"2","agentId":"12"`,
	} {
		body := w.stockBody(entry)
		at := strings.LastIndex(body, `"version":"2"`)
		other := body[:at] + strings.Replace(body[at:], `"version":"2"`, change, 1)
		if got := verify(body); got.member(t, "isValid") != true {
			t.Fatalf("%s: %s", name, got.body)
		}
		moved := rail.Transfers()
		if got := settle(other); got.member(t, "success") != false || got.text(t, "errorReason") != x402.ReasonConflict || rail.Transfers() != moved {
			t.Errorf("%s, before the settlement: %s", name, got.body)
		}
		first := settle(body)
		if first.member(t, "success") != true || rail.Transfers() != moved+1 {
			t.Errorf("%s: %s", name, first.body)
		}
		if got := settle(other); got.member(t, "success") != false || got.text(t, "errorReason") != x402.ReasonConflict {
			t.Errorf("%s, after the settlement: %s", name, got.body)
		}
		// What is silent about the flow, and what names the usual one, is the same.
		if got := settle(body[:at] + strings.Replace(body[at:], `"version":"2"`, `"version":"2","paymentFlow":"authorization"`, 1)); string(got.body) != string(first.body) {
			t.Errorf("%s: the repeat got %s, want %s", name, got.body, first.body)
		}
	}
	// Where a server settles first, also a verify does not let a success be told twice.
	body := w.stockBody(strings.Replace(entry, `"version":"2"`, `"version":"2","paymentFlow":"upfront"`, 1))
	if got := verify(body); got.member(t, "isValid") != true {
		t.Fatalf("%s", got.body)
	}
	if got := settle(body); got.member(t, "success") != true {
		t.Errorf("%s", got.body)
	}
	if got := settle(body); got.member(t, "success") != false || got.text(t, "errorReason") != x402.ReasonDuplicate {
		t.Errorf("again: %s", got.body)
	}
}

// A payment is forgotten a month after its authorization ended, and what remembers the authorization keeps it from paying again.
func TestExactForgotten(t *testing.T) {
	s, rail, _ := shop(t)
	s = s.again(func(d *purchases.Deps) { d.Policy = purchases.ExactOpen })
	w := s.wallet(rail, 50_000)
	verify := func(body string) answer { return s.do(s.b1, "POST", base+"/x402/verify", body) }
	settle := func(body string) answer { return s.do(s.b1, "POST", base+"/x402/settle", body) }
	body := w.stockBody(entryFor(s.b1.address, "1000"))
	if got := verify(body); got.member(t, "isValid") != true {
		t.Fatalf("%s", got.body)
	}
	paid := settle(body)
	sweep := func(after time.Duration) {
		t.Helper()
		s.clock.advance(after)
		if more, err := s.fac.Purchases.Exact.Sweep(t.Context()); more || err != nil {
			t.Errorf("more %v, %v", more, err)
		}
	}
	const month = 30 * 24 * time.Hour
	sweep(month)
	if got := settle(body); paid.member(t, "success") != true || string(got.body) != string(paid.body) {
		t.Errorf("%s, after 30 days %s", paid.body, got.body)
	}
	sweep(time.Hour)
	if got := settle(body); got.member(t, "success") != false || got.text(t, "errorReason") != x402.ReasonExactNonceUsed {
		t.Errorf("after it was forgotten: %s", got.body)
	}
	if got := verify(body); got.member(t, "isValid") != false || got.text(t, "invalidReason") != x402.ReasonExactNonceUsed {
		t.Errorf("after it was forgotten: %s", got.body)
	}
	if rail.Transfers() != 1 {
		t.Errorf("%d transfers", rail.Transfers())
	}
}
