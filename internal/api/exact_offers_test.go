package api_test

import (
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/facilitator"
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
	s = s.again(func(d *facilitator.Deps) { d.Exact = facilitator.ExactOpen })
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
