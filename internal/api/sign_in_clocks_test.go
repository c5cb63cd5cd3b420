package api_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/x402"
)

// A proof counts once on machines whose clocks are a minute apart: what one takes for over, the other may still take.
func TestWalletSignsInOnTwoClocks(t *testing.T) {
	s, rail, plan := shop(t)
	w := s.wallet(rail, 1_000_000)
	asked := s.asks(orderRoute(plan))
	if bought := s.pay(orderRoute(plan), w.pays(asked, w.authorization(asked), "")); bought.status != 200 {
		t.Fatalf("%d %s", bought.status, bought.body)
	}
	ahead := s.again(func(d *purchases.Deps) {
		d.Clock = func() time.Time { return s.clock.now().Add(time.Minute) }
	})
	proof := w.proof(s.asks(tokenRoute(plan)), nil, nil)
	if got := s.signIn(plan, proof); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	s.clock.advance(4*time.Minute + 30*time.Second)
	if got := ahead.signIn(plan, w.proof(ahead.asks(tokenRoute(plan)), nil, nil)); got.status != 200 {
		t.Fatalf("another proof: %d %s", got.status, got.body)
	}
	if got := s.signIn(plan, proof).reason(t); got != x402.Default.ReasonSignIn() {
		t.Errorf("a second time: %s", got)
	}
}
