package api_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// A payment that was verified and never made goes with its authorization, when the chain says that it never can be made. One that
// others had carried out does not.
func TestExactNeverMade(t *testing.T) {
	s, rail, _ := shop(t)
	s = s.again(func(d *purchases.Deps) { d.Policy = purchases.ExactOpen })
	w := s.wallet(rail, 50_000)
	entry := entryFor(s.b1.address, "1000")
	c := must.Get(x402.ReadChallenge(nil, []byte(`{"x402Version":2,"accepts":[`+entry+`]}`)))(t)
	verify := func(a *evm.Authorization) answer {
		return s.do(s.b1, "POST", base+"/x402/verify",
			`{"x402Version":2,"paymentPayload":`+decoded(t, w.pays(c, a, ""))+`,"paymentRequirements":`+entry+`}`)
	}
	left, byOthers := w.authorization(c), w.authorization(c)
	for _, a := range []*evm.Authorization{left, byOthers} {
		if got := verify(a); got.member(t, "isValid") != true {
			t.Fatalf("%s", got.body)
		}
	}
	rail.Submit(toll.USDCSandbox, byOthers)
	rail.Behave(railtest.Behaviour{Time: s.clock.now})
	s.clock.advance(31 * 24 * time.Hour)
	if more, err := s.fac.Purchases.Exact.Sweep(t.Context()); more || err != nil {
		t.Errorf("more %v, %v", more, err)
	}
	for a, want := range map[*evm.Authorization]struct {
		gone bool
		word string
	}{left: {true, x402.ReasonExactValidBefore}, byOthers: {false, x402.ReasonExactNonceUsed}} {
		_, err := store.AuthorizationByNonce(t.Context(), s.store, 84532, toll.USDCSandbox, w.Address(), a.Nonce)
		if gone := errors.Is(err, store.ErrNotFound); gone != want.gone || !gone && err != nil {
			t.Errorf("carried out by others %v: gone %v, %v", a == byOthers, gone, err)
		}
		if got := verify(a); got.member(t, "isValid") != false || got.text(t, "invalidReason") != want.word {
			t.Errorf("carried out by others %v: %s", a == byOthers, got.body)
		}
	}
	if rail.Transfers() != 1 {
		t.Errorf("%d transfers", rail.Transfers())
	}
}
