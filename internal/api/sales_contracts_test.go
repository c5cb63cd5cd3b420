package api_test

import (
	"bytes"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// paysBy is the header that pays a challenge with whatever signature.
func (w *wallet) paysBy(c *x402.Challenge, a *evm.Authorization, signature []byte) string {
	w.s.t.Helper()
	return must.Get(c.Answer(&c.Entries[0], exactPayload(a, signature), ""))(w.s.t)
}

// Code of a wallet is asked when its key has not signed, and when it was not asked before about the same signature. Wallets
// that sign with their keys need no question.
func TestCodeOfWalletsIsAsked(t *testing.T) {
	s, rail, plan := shop(t)
	w := s.wallet(rail, 9_000_000)
	c := s.asks(orderRoute(plan))
	own := w.pays(c, w.authorization(c), "")
	for range 2 {
		if got := s.pay(orderRoute(plan), own); got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if in := w.signsIn(plan); in.status != 200 || rail.Asked() != 0 {
		t.Errorf("%d %s, and code was asked %d times", in.status, in.body, rail.Asked())
	}
	takes := true
	rail.Code(w.Address(), func(_ [32]byte, signature []byte) bool { return takes && bytes.HasPrefix(signature, []byte{7}) })
	a := w.authorization(c)
	payment := w.paysBy(c, a, []byte{7, 1})
	var receipts []string
	for i, test := range []struct {
		payment string
		takes   bool
		asked   int
		word    string
	}{
		{w.paysBy(c, a, []byte{8}), true, 1, x402.ReasonExactSignature},
		{payment, true, 2, ""},
		{payment, true, 2, ""},
		{payment, false, 2, ""},
		{w.paysBy(c, a, []byte{7, 2}), false, 3, x402.ReasonExactSignature},
		{w.paysBy(c, a, []byte{7, 2}), true, 4, ""},
	} {
		takes = test.takes
		got := s.pay(orderRoute(plan), test.payment)
		switch {
		case test.word != "":
			if word := got.reason(t); word != test.word {
				t.Errorf("payment %d: %s, want %s", i, word, test.word)
			}
		case got.status != 200 || (got.text(t, "accessToken") != "") != (len(receipts) == 0):
			t.Errorf("payment %d: %d %s", i, got.status, got.body)
		default:
			receipts = append(receipts, got.header.Get("payment-response"))
		}
		if n := rail.Asked(); n != test.asked {
			t.Errorf("payment %d: code was asked %d times, want %d", i, n, test.asked)
		}
	}
	for _, r := range receipts[1:] {
		if r != receipts[0] {
			t.Errorf("two receipts of one payment: %s and %s", receipts[0], r)
		}
	}
	// Other words under the nonce are another authorization, whatever signature they have.
	other := *a
	other.ValidBefore++
	if got := s.pay(orderRoute(plan), w.paysBy(c, &other, []byte{7, 1})).reason(t); got != x402.ReasonExactNonceUsed {
		t.Errorf("other words under the nonce: %s", got)
	}
	if rail.Transfers() != 2 || s.balance(plan, w.Address()) != "200" {
		t.Errorf("%d transfers, balance %s", rail.Transfers(), s.balance(plan, w.Address()))
	}
	// Without a chain it is not known whose the signature is. Nothing is written.
	rail.Behave(railtest.Behaviour{Unreachable: toll.CodeChainUnreachable})
	if got := s.pay(orderRoute(plan), w.paysBy(c, w.authorization(c), []byte{7})); got.status != 503 || got.header.Get("Retry-After") == "" {
		t.Errorf("a payment without the chain: %d %s", got.status, got.body)
	}
	if got := s.pay(orderRoute(plan), payment); got.status != 200 || got.member(t, "replayed") != true {
		t.Errorf("a repeat without the chain: %d %s", got.status, got.body)
	}
	proof := w.proof(s.asks(tokenRoute(plan)), nil, func(p *x402.SignIn) { p.Signature = "0x07" })
	if got := s.signIn(plan, proof); got.status != 503 || got.header.Get("Retry-After") == "" {
		t.Errorf("a sign-in without the chain: %d %s", got.status, got.body)
	}
	rail.Behave(railtest.Behaviour{})
	if got := s.signIn(plan, proof); got.status != 200 || got.text(t, "accessToken") == "" {
		t.Errorf("the same sign-in, which used nothing up: %d %s", got.status, got.body)
	}
}
