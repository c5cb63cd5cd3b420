package interop

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

func refusedSettlement(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a, func(s *setting) { s.max = 100 })
	e := c.E(func(a *serverArgs) { a.Pause = true })
	done := make(chan *outcome, 1)
	go func() { done <- c.C(e) }()
	c.reached(e)
	c.advance(76 * time.Second)
	c.burnElsewhere()
	c.pass(e)
	o := <-done
	c.refused(o)
	if r := c.receipt(o.Headers["payment-response"]); r.Success || r.ErrorReason != "insufficient_funds" || r.Network != network || o.Body != "{}" {
		t.Errorf("%+v %s", r, o.Body)
	}
	if v := e.of("settle"); len(v) != 1 || v[0].status != 200 || v[0].text("success") != "false" {
		t.Errorf("%+v", v)
	}
	c.ends(1, nil, 0)
}

func override(t *testing.T, s *service, a *actors, override, amount string) {
	c := newScene(t, s, a)
	e := c.E(func(a *serverArgs) { a.Override = override })
	n := must.Get(toll.ParseCredits(amount))(t)
	o := c.C(e)
	c.paid(o, n)
	if o.Headers["settlement-overrides"] != "" {
		t.Error("the override left the server")
	}
	if v := e.of("settle"); len(v) != 1 || v[0].text("amount") != amount || !strings.Contains(string(v[0].sent), `"amount":"`+amount+`"`) {
		t.Errorf("%s", v[0].sent)
	}
	c.ends(1, []int{int(n)}, 100-n)
}

func overrideAbove(t *testing.T, s *service, a *actors) {
	for _, amount := range []string{"50", "6"} { // above the plan and above the hold
		c := newScene(t, s, a)
		e := c.E(func(a *serverArgs) { a.Override = amount })
		o := c.C(e)
		c.refused(o)
		if r := c.receipt(o.Headers["payment-response"]); r.Success || r.ErrorReason != "settlement_exceeds_amount" {
			t.Errorf("%s: %+v", amount, r)
		}
		// The stock server tells nobody that the work is lost, so its hold ends by itself.
		c.advance(76 * time.Second)
		c.ends(1, nil, 100)
	}
}

func failingHandler(t *testing.T, s *service, a *actors) {
	t.Run("with the hook", func(t *testing.T) {
		c := newScene(t, s, a)
		e := c.E(func(a *serverArgs) { a.Status = 500 })
		if o := c.C(e); o.Status != 500 {
			t.Errorf("%+v", o)
		}
		if r := e.of("release"); len(r) != 1 || r[0].status != 200 || r[0].text("status") != "released" {
			t.Errorf("%+v", r)
		}
		c.ends(1, nil, 100)
	})
	t.Run("without it", func(t *testing.T) {
		const life = 75 * time.Second
		for try := 1; ; try++ {
			c := newScene(t, s, a)
			e := c.E(func(a *serverArgs) { a.Status, a.NoCancelHook = 500, true })
			began := time.Now()
			if o := c.C(e); o.Status != 500 {
				t.Errorf("%+v", o)
			}
			if b := c.balance(); b.Available != 95 || b.Balance != 100 {
				t.Errorf("%+v", b)
			}
			const most = 10 * time.Second // of the life that may pass by itself
			c.advance(life - most)
			if b := c.balance(); b.Available != 95 {
				took := time.Since(began)
				if took < most || try == 3 {
					t.Errorf("the hold ended before its time, after %v and %v: %+v", took, life-most, b)
				} else {
					continue // a standstill was longer than what was left of it
				}
			}
			c.advance(most)
			c.ends(1, nil, 100)
			return
		}
	})
	t.Run("in Go", func(t *testing.T) {
		c := newScene(t, s, a)
		g := c.G()
		header := must.Get(c.goPay(c.send(g).header.Get("Payment-Required")))(t)
		g.ask += "?fail"
		if r := c.send(g, header); r.status != 500 {
			t.Errorf("%d %s", r.status, r.body)
		}
		c.ends(1, nil, 100)
	})
}

// refusals makes sure that payments that were sent again were refused as such.
func (c *scene) refusals(answers []*answer, want int) {
	c.Helper()
	n := 0
	for _, a := range answers {
		if a.status == 402 {
			n++
			if word, _, _ := strings.Cut(a.error(), ":"); word != x402.ReasonInFlight && word != x402.ReasonDuplicate {
				c.Errorf("402 says %q", a.error())
			}
		}
	}
	if got := counted(answers); n != want || got[200] != len(answers)-want {
		c.Errorf("%v", got)
	}
}

func twentyAtOnce(t *testing.T, s *service, a *actors) {
	for what, open := range map[string]func(*scene) *party{"express": func(c *scene) *party { return c.E() }, "paid": func(c *scene) *party { return c.O() }} {
		t.Run(what, func(t *testing.T) {
			c := newScene(t, s, a)
			p := open(c)
			c.refusals(c.sendAll(p, slices.Repeat([]string{c.pay(p)}, 20)), 19)
			c.ends(1, []int{5}, 95)
		})
	}
}

func oneNonceAgain(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e, o := c.E(), c.O()
	payment := c.pay(e)
	var answers []*answer
	for range 5 {
		answers = append(answers, c.send(e, payment))
	}
	c.refusals(answers, 4)
	c.refusals([]*answer{c.send(o, payment)}, 1)
	s.restart()
	c.refusals([]*answer{c.send(e, payment), c.send(o, payment)}, 2)
	c.ends(1, []int{5}, 95)
}

func moreThanCredits(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e := c.E()
	payments := make([]string, 30)
	for i := range payments {
		payments[i] = c.pay(e)
	}
	answers := c.sendAll(e, payments)
	if n := counted(answers); n[200] != 20 || n[402] != 10 {
		t.Errorf("%v", n)
	}
	for _, a := range answers {
		if a.status == 402 {
			c.begins(a.error(), "insufficient_funds")
		}
	}
	c.ends(20, slices.Repeat([]int{5}, 20), 0)
}

func noNonce(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e := c.E()
	none := func(a *clientArgs) { a.Nonce = new(json.RawMessage); *a.Nonce = json.RawMessage("null") }
	c.paid(c.C(e, none), 5)
	c.begins(c.refused(c.C(e, none)), x402.ReasonDuplicate)
	c.ends(1, []int{5}, 95)
}

func paymentIdentifier(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	offers := func(a *serverArgs) {
		a.Extensions = map[string]any{x402.ExtensionPaymentIdentifier: map[string]any{"info": map[string]any{"required": false}, "schema": map[string]any{"type": "object"}}}
	}
	e, dearer := c.E(offers), c.E(offers, func(a *serverArgs) { a.Price = 6 })
	named := func(a *clientArgs) { a.PaymentIdentifier = "pay_" + strings.TrimPrefix(string(c.plan), "0")[:32] }
	c.paid(c.C(e, named), 5)
	c.begins(c.refused(c.C(e, named)), x402.ReasonDuplicate)
	c.begins(c.refused(c.C(dearer, named)), x402.ReasonIdentifierConflict)
	c.ends(1, []int{5}, 95)
}
