package checkout

import (
	"testing"

	"github.com/tollhq/toll"
)

// A payment is the price of a plan when each receiver got their amount, and no transfer counts twice.
func TestLostOrder_Copies(t *testing.T) {
	token, other := toll.Address{1}, toll.Address{2}
	a, b := toll.Address{3}, toll.Address{4}
	to := func(receiver toll.Address, token toll.Address, amount int64) Received {
		return Received{Token: token, To: receiver, Amount: toll.UnitsOf(amount)}
	}
	plan := func(receivers ...toll.Address) *toll.Plan {
		p := &toll.Plan{Price: toll.Price{IsCrypto: true, Receivers: receivers}}
		for range receivers {
			p.Price.Amounts = append(p.Price.Amounts, toll.UnitsOf(5))
		}
		return p
	}
	for name, c := range map[string]struct {
		plan     *toll.Plan
		received []Received
		ok       bool
	}{
		"both":                 {plan(a, b), []Received{to(b, token, 5), to(a, token, 5)}, true},
		"one of two":           {plan(a, b), []Received{to(a, token, 5)}, false},
		"one for the same two": {plan(a, a), []Received{to(a, token, 5)}, false},
		"two for the same two": {plan(a, a), []Received{to(a, token, 5), to(a, token, 5)}, true},
		"another token":        {plan(a), []Received{to(a, other, 5)}, false},
		"too little":           {plan(a), []Received{to(a, token, 4)}, false},
		"too much":             {plan(a), []Received{to(a, token, 6)}, false},
		"twice the price":      {plan(a), []Received{to(a, token, 10)}, false},
		"nothing":              {plan(a), nil, false},
	} {
		in := LostOrder{Received: c.received}
		if n, ok := in.copies(c.plan, token); ok != c.ok || ok && n != 1 {
			t.Errorf("%s: %d %t", name, n, ok)
		}
	}
}
