package api_test

import (
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// Offers for entries of wallets are signed where their payments are settled, and nowhere else: servers list what they get one for.
func TestOffersForWallets(t *testing.T) {
	s, _, _ := shop(t)
	body := func(entry string) string {
		return `{"paymentRequired":{"x402Version":2,"resource":{"url":"/ask"},"accepts":[` + entry + `],"extensions":{}}}`
	}
	entry := entryFor(s.b1.address, "1000")
	offers := func(who actor, entry string) answer { return s.do(who, "POST", base+"/x402/offers", body(entry)) }
	if got := offers(s.b1, entry); got.status != 402 || got.text(t, "code") != string(toll.CodeUnsupportedScheme) {
		t.Errorf("the default signs it: %d %s", got.status, got.body)
	}
	s = s.again(func(d *purchases.Deps) { d.Policy = purchases.ExactOpen })
	got := offers(s.b1, entry)
	var signed x402.OffersResponse
	if err := x402.Decode(got.body, &signed); err != nil || got.status != 200 || len(signed.Offers) != 1 {
		t.Fatalf("%d %s %v", got.status, got.body, err)
	}
	for name, c := range map[string]struct {
		who   actor
		entry string
		code  toll.Code
	}{
		"another builder":  {s.b2, entry, toll.CodeNotPlanOwner},
		"another receiver": {s.b1, entryFor(s.b2.address, "1000"), toll.CodeNotPlanOwner},
		"another network":  {s.b1, strings.Replace(entry, "84532", "8453", 1), toll.CodeUnsupportedScheme},
		"another token":    {s.b1, strings.Replace(entry, toll.USDCSandbox.String(), toll.USDCLive.String(), 1), toll.CodeBadRequirements},
		"no amount":        {s.b1, entryFor(s.b1.address, "0"), toll.CodeBadRequirements},
		"too much":         {s.b1, entryFor(s.b1.address, "9223372036854775808"), toll.CodeBadRequirements},
	} {
		if got := offers(c.who, c.entry); got.status == 200 || got.text(t, "code") != string(c.code) {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	// A plan that is made now has its receiver at once.
	other := entryFor(toll.MustAddress("0x70997970C51812dc3A010C7d01b50e0d17dc79C8"), "1000")
	if got := offers(s.b1, other); got.status == 200 {
		t.Errorf("a receiver of nothing: %d %s", got.status, got.body)
	}
	s.plan(s.b1, strings.Replace(pricedPlan, `"amounts":[1000000]`, `"amounts":[1000000],"receivers":["0x70997970C51812dc3A010C7d01b50e0d17dc79C8"]`, 1))
	if got := offers(s.b1, other); got.status != 200 {
		t.Errorf("a new receiver: %d %s", got.status, got.body)
	}
}

// A payment to somebody else costs nothing to refuse, however many plans its server has.
// T178
func TestForeignReceiver(t *testing.T) {
	s, rail, _ := shop(t)
	s = s.again(func(d *purchases.Deps) { d.Policy = purchases.ExactOpen })
	w := s.wallet(rail, 50_000)
	must.Do(t, s.built.Store.Tx(t.Context(), func(tx *store.Tx) error {
		for range 1000 {
			p := &toll.Plan{ID: toll.NewPlanID(), Owner: s.b1.address, AccessLimit: toll.LimitCredits, Price: toll.Price{Receivers: []toll.Address{s.b1.address}}}
			if err := store.InsertPlan(t.Context(), tx, p, "", nil); err != nil {
				return err
			}
		}
		return nil
	}))
	body := w.stockBody(entryFor(s.s1.address, "1000"))
	n := testing.AllocsPerRun(3, func() {
		if got := s.do(s.b1, "POST", base+"/x402/verify", body); got.text(t, "invalidReason") != x402.ReasonUnauthorizedServer {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
	if n > 10_000 {
		t.Errorf("a refusal takes %.0f allocations", n)
	}
}
