package pay_test

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/pay"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

// ten sells ten credits for a dollar, five of which a request burns.
func ten(p *toll.Plan) { p.Credits.Amount = 10 }

// payg sells credits one by one, for 2 cents each.
func payg(p *toll.Plan) {
	p.Price.TemplateAddress, p.Price.Amounts = toll.PayAsYouGoTemplate, []toll.Units{toll.UnitsOfCents(2)}
	p.Credits.Amount, p.Credits.MinAmount, p.Credits.MaxAmount = 1, 1, 100
}

func period(p *toll.Plan) {
	p.AccessLimit, p.Credits = toll.LimitTime, toll.CreditsConfig{Amount: 1, MinAmount: 1, MaxAmount: 1, DurationSecs: toll.UnitsOf(3600)}
}

// delegation lets s1 spend so many cents.
func (s *scene) delegation(cents int64, f func(in *toll.DelegationInput)) string {
	s.Helper()
	provider, currency, limit, secs := "erc4337", "usdc", toll.Cents(cents), toll.Int(86400)
	in := toll.DelegationInput{Provider: &provider, Currency: &currency, SpendingLimitCents: &limit, DurationSecs: &secs}
	if f != nil {
		f(&in)
	}
	d := must.Get(s.one().checkout.Delegations.Create(s.ctx, checkout.Owner{Address: s1}, in, nil))(s)
	return d.DelegationID
}

func with(delegation string) func(*tokens.PermissionRequest) {
	return func(r *tokens.PermissionRequest) { r.Delegation = &tokens.DelegationConfig{ID: delegation} }
}

// spent checks what money moved, in the books and at the rail.
func (s *scene) spent(delegation string, cents int64, orders int) {
	s.Helper()
	d := must.Get(s.one().checkout.Delegations.Read(s.ctx, s1, delegation))(s)
	if int64(d.AmountSpentCents) != cents || d.TransactionCount != int64(orders) {
		s.Fatalf("%d cents in %d payments; want %d in %d", d.AmountSpentCents, d.TransactionCount, cents, orders)
	}
	n := 0
	for _, p := range s.rail.Purchases() {
		if p.DelegationID == delegation {
			n++
		}
	}
	if faults := s.rail.Faults(); n != orders || len(faults) > 0 {
		s.Fatalf("the rail was asked for %d payments, want %d; %v", n, orders, faults)
	}
}

// T37
func TestTopUpRaced(t *testing.T) {
	each(t, func(s *scene) {
		for name, body := range map[string]struct {
			verify func(c *call, i *instance) (*x402.VerifyResponse, error)
			settle func(c *call, i *instance, id string) (*x402.SettleResponse, error)
		}{
			"spec": {
				func(c *call, i *instance) (*x402.VerifyResponse, error) { return c.verify(i, held) },
				func(c *call, i *instance, id string) (*x402.SettleResponse, error) { return c.settle(i, id, nil) },
			},
			"stock": {
				func(c *call, i *instance) (*x402.VerifyResponse, error) { return c.stock("5").verify(i) },
				func(c *call, i *instance, _ string) (*x402.SettleResponse, error) { return c.stock("5").settle(i) },
			},
		} {
			p := s.plan(ten)
			d := s.delegation(300, nil) // three orders
			base := s.call(p, nil, s.token(p, s1, with(d)))
			var handlers, burns atomic.Int64
			atOnce(50, func(i int) {
				c := base.nonce(nonceOf(i))
				v, err := body.verify(c, s.at(i))
				switch {
				case err != nil:
					s.Errorf("%s: %v", name, err)
				case v.IsValid:
					handlers.Add(1)
					r, err := body.settle(c, s.at(i+1), v.AgentRequestID)
					if err != nil || !r.Success {
						s.Errorf("%s: held and not settled: %v %+v", name, err, r)
						return
					}
					burns.Add(1)
				case !slices.Contains([]string{x402.ReasonDelegationExhausted, x402.ReasonDelegationShort}, v.InvalidReason):
					s.Errorf("%s: refused with %s", name, v.InvalidReason)
				}
			})
			if handlers.Load() != 6 || burns.Load() != 6 {
				t.Errorf("%s: %d handlers, %d burns", name, handlers.Load(), burns.Load())
			}
			s.spent(d, 300, 3)
			s.balance(p, s1, 0, 0)
		}
	})
}

// T12
func TestOrderLimitRaced(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(ten)
		d := s.delegation(10_000, nil)
		two := int64(2)
		base := s.call(p, nil, s.token(p, s1, func(r *tokens.PermissionRequest) { with(d)(r); r.OrderLimit = &two }))
		var settled atomic.Int64
		atOnce(20, func(i int) {
			r, err := base.nonce(nonceOf(i)).settle(s.at(i), "", nil)
			switch {
			case err != nil:
				s.Error(err)
			case r.Success:
				settled.Add(1)
			case r.ErrorReason != x402.ReasonOrderLimit || r.Code != toll.CodeOrderLimit:
				s.Errorf("%s %s", r.ErrorReason, r.Code)
			}
		})
		if settled.Load() != 4 {
			t.Errorf("%d settled", settled.Load())
		}
		s.spent(d, 200, 2)
		none := int64(0)
		v, err := s.call(p, nil, s.token(p, s1, func(r *tokens.PermissionRequest) { with(d)(r); r.OrderLimit = &none })).verify(s.one(), held)
		s.invalid(v, err, x402.ReasonOrderLimit)
	})
}

func TestTopUp(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(ten)
		d := s.delegation(500, nil)
		tok := s.token(p, s1, with(d))
		if tok.DelegationID == nil || *tok.DelegationID != d {
			t.Fatalf("%+v", tok)
		}
		c := s.call(p, s.agent(nil, p), tok)

		// Without a hold verify promises what could be bought, and buys nothing.
		v, err := c.verify(s.one(), nil)
		s.valid(v, err)
		s.spent(d, 0, 0)
		s.balance(p, s1, 0, 0)

		h := c.hold(nil)
		s.balance(p, s1, 10, 5)
		s.spent(d, 100, 1)
		r := c.burn(h.AgentRequestID, nil)
		if r.OrderTx == "" || r.Extra.OrderTx != r.OrderTx || *r.RemainingBalance != 5 {
			t.Fatalf("%+v %+v", r, r.Extra)
		}
		rec, err := s.at(1).Requests.Settlement(s.ctx, s1, h.AgentRequestID)
		if err != nil || rec.OrderTx == nil || rec.OrderTx.String() != r.OrderTx {
			t.Fatalf("%v %+v", err, rec)
		}
		// What nothing was bought for names no order.
		if r := c.burn("", nil); r.OrderTx != "" || r.Extra.OrderTx != "" {
			t.Fatalf("%+v", r)
		}
		s.balance(p, s1, 0, 0)

		// Settle buys, too; a repeat gets the same answer.
		first := c.burn("direct", nil)
		again, err := c.settle(s.at(1), "direct", nil)
		if err != nil || first.OrderTx == "" || !bytes.Equal(again.Raw, first.Raw) {
			t.Fatalf("%v %+v", err, first)
		}
		s.spent(d, 200, 2)

		// What was bought stays the subscriber's when the work fails.
		c.burn("", nil)
		h = c.hold(nil)
		rec, err = s.at(1).Requests.Settlement(s.ctx, b1, h.AgentRequestID)
		if err != nil || rec.Status != "held" || rec.OrderTx == nil {
			t.Fatalf("%v %+v", err, rec)
		}
		must.Get(s.one().Release(s.ctx, b1, &x402.ReleaseRequest{AgentRequestID: h.AgentRequestID}))(s)
		s.balance(p, s1, 10, 0)
		s.spent(d, 300, 3)
	})
}

// One request may need several orders; verify promises no more of them than the delegation can pay.
func TestTopUp_SeveralOrders(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(func(p *toll.Plan) { ten(p); p.Credits.MinAmount, p.Credits.MaxAmount = 1, 100 })
		d := s.delegation(300, nil)
		c := s.call(p, nil, s.token(p, s1, with(d)))
		ask := func(n toll.Credits) func(r *x402.VerifyRequest) {
			return func(r *x402.VerifyRequest) { r.MaxAmount = &n }
		}
		v, err := c.verify(s.one(), ask(30))
		s.valid(v, err)
		v, err = c.verify(s.one(), ask(31))
		s.invalid(v, err, x402.ReasonDelegationShort)
		v, err = c.verify(s.one(), heldFor(25))
		s.valid(v, err)
		s.spent(d, 300, 3)
		s.balance(p, s1, 30, 25)
		r, err := c.settle(s.at(1), v.AgentRequestID, amount(30)) // above the hold, out of what is there
		if err != nil || !r.Success || r.OrderTx == "" {
			t.Fatalf("%v %+v", err, r)
		}
	})
}

func TestTopUp_PayAsYouGoAndTime(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(payg)
		d := s.delegation(1000, nil)
		c := s.call(p, nil, s.token(p, s1, with(d)))
		v, err := c.verify(s.one(), heldFor(30))
		s.valid(v, err)
		s.balance(p, s1, 30, 30)
		s.spent(d, 60, 1)
		r, err := c.settle(s.one(), v.AgentRequestID, amount(20))
		if err != nil || !r.Success || r.OrderTx == "" {
			t.Fatalf("%v %+v", err, r)
		}
		c.burn("more", amount(15)) // ten are left
		s.balance(p, s1, 0, 0)
		s.spent(d, 70, 2)

		hour := s.plan(period)
		h := s.call(hour, nil, s.token(hour, s1, with(d)))
		for range 3 {
			h.burn("", nil)
		}
		s.spent(d, 170, 3)
		s.clock.add(time.Hour)
		v, err = h.verify(s.one(), nil)
		s.valid(v, err)
		h.stock("1").hold()
		s.spent(d, 270, 4)
	})
}

func TestTopUp_Refused(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(ten)
		for name, row := range map[string]struct {
			f       func(d string)
			rail    railtest.Behaviour
			reasons []string
			code    toll.Code
		}{
			"revoked": {func(d string) {
				must.Get(s.one().checkout.Delegations.Revoke(s.ctx, s1, d))(s)
			}, railtest.Behaviour{}, []string{x402.ReasonDelegationRevoked, "invalid_svc_payload_revoked"}, ""},
			"expired":  {func(string) { s.clock.add(2 * time.Minute) }, railtest.Behaviour{}, []string{x402.ReasonDelegationExpired}, toll.CodeDelegationExpired},
			"declined": {nil, railtest.Behaviour{Decline: true, Code: toll.CodeChainBalance}, []string{x402.ReasonPaymentDeclined}, toll.CodeTopUpRefused},
			"unlisted": {func(string) {
				listed := *p
				listed.IsListed = false
				must.Do(s, s.one().store.Tx(s.ctx, func(tx *store.Tx) error { return store.UpdatePlan(s.ctx, tx, &listed) }))
			}, railtest.Behaviour{}, []string{x402.ReasonPlanUnlisted}, toll.CodePlanUnlisted},
		} {
			p = s.plan(ten)
			d := s.delegation(100, func(in *toll.DelegationInput) { secs := toll.Int(60); in.DurationSecs = &secs })
			tok := s.token(p, s1, func(r *tokens.PermissionRequest) { with(d)(r) })
			if row.f != nil {
				row.f(d)
			}
			s.rail.Behave(row.rail)
			c := s.call(p, nil, tok)
			v, err := c.verify(s.at(1), held)
			s.invalid(v, err, row.reasons...)
			v, err = c.nonce("n").stock("5").verify(s.one())
			s.invalid(v, err, row.reasons...)
			r := must.Get(c.settle(s.one(), "", nil))(s)
			if r.Success || !slices.Contains(row.reasons, r.ErrorReason) || row.code != "" && r.Code != row.code || r.Transaction != "" {
				t.Errorf("%s: %+v", name, r)
			}
			s.rail.Behave(railtest.Behaviour{})
			s.balance(p, s1, 0, 0)
			if got, err := s.one().checkout.Delegations.Read(s.ctx, s1, d); err != nil || got.AmountSpentCents != 0 || got.RemainingBudgetCents != 100 {
				t.Errorf("%s: %v %+v", name, err, got)
			}
		}
	})
}

// An order that takes its time: the answer says so, and who repeats the call waits for the same order.
// F12
func TestTopUpPending(t *testing.T) {
	each(t, func(s *scene) {
		for _, i := range s.inst {
			i.Facilitator = i.patient(s, 300*time.Millisecond)
		}
		p := s.plan(ten)
		for name, row := range map[string]struct {
			verify func(c *call, i *instance, id string) (*x402.VerifyResponse, error)
			settle func(c *call, id string) (*x402.SettleResponse, error)
			named  bool // by its nonce
		}{
			"spec": {
				func(c *call, i *instance, id string) (*x402.VerifyResponse, error) {
					return c.verify(i, func(r *x402.VerifyRequest) { r.Hold, r.AgentRequestID = true, id })
				},
				func(c *call, id string) (*x402.SettleResponse, error) { return c.settle(s.at(1), id, nil) }, false,
			},
			"stock": {
				func(c *call, i *instance, _ string) (*x402.VerifyResponse, error) { return c.stock("5").verify(i) },
				func(c *call, _ string) (*x402.SettleResponse, error) { return c.stock("5").settle(s.at(1)) }, true,
			},
		} {
			d := s.delegation(500, nil)
			c := s.call(p, nil, s.token(p, s1, with(d)))
			if row.named {
				c = c.nonce("pending")
			}
			s.rail.Behave(railtest.Behaviour{Hang: true})
			id := ""
			for i := range 2 {
				_, err := row.verify(c, s.at(i), id)
				e := toll.AsError(err)
				if e == nil || e.Code != toll.CodeSettlementPending || e.Reason != x402.ReasonPending || e.RetryAfterSecs == 0 {
					t.Fatalf("%s: %v", name, err)
				}
				if got, _ := e.Params["agentRequestId"].(string); !row.named {
					if got == "" || id != "" && got != id {
						t.Fatalf("%s: %q, then %q", name, id, got)
					}
					id = got
					rec, err := s.at(i).Requests.Settlement(s.ctx, s1, id)
					if err != nil || rec.Status != "pending" || rec.AgentRequestID != id || rec.Transaction != nil || rec.Payer != s1 || rec.HoldExpiresAt != nil {
						t.Fatalf("%v %+v", err, rec)
					}
					_, err = s.at(i).Requests.Settlement(s.ctx, b2, id)
					s.code(err, toll.CodeSettlementNotFound)
				}
			}
			s.rail.Behave(railtest.Behaviour{})
			v, err := row.verify(c, s.again(1), id)
			s.valid(v, err)
			if id != "" && v.AgentRequestID != id {
				t.Errorf("%s: %s", name, v.AgentRequestID)
			}
			r, err := row.settle(c, v.AgentRequestID)
			if err != nil || !r.Success || r.OrderTx == "" {
				t.Fatalf("%s: %v %+v", name, err, r)
			}
			s.spent(d, 100, 1)
			s.call(p, nil, s.token(p, s1, nil)).burn("", nil) // what is left

			// A settle of its own.
			s.rail.Behave(railtest.Behaviour{Hang: true})
			direct := c.nonce("settle-" + name)
			pending := must.Get(direct.stock("5").settle(s.one()))(s)
			if pending.Success || pending.ErrorReason != x402.ReasonPending || pending.Transaction == "" || pending.Network == "" {
				t.Fatalf("%s: %+v", name, pending)
			}
			unnamed := must.Get(s.call(p, nil, s.token(p, s1, with(d))).settle(s.at(1), "", nil))(s)
			if unnamed.Success || unnamed.ErrorReason != x402.ReasonPending || unnamed.Extra == nil || unnamed.Extra.AgentRequestID == "" {
				t.Fatalf("%s: %+v", name, unnamed)
			}
			s.rail.Behave(railtest.Behaviour{})
			done, err := direct.stock("5").settle(s.again(1))
			if err != nil || !done.Success || done.OrderTx == "" {
				t.Fatalf("%s: %v %+v", name, err, done)
			}
			s.spent(d, 200, 2)
			s.call(p, nil, s.token(p, s1, nil)).burn("", nil) // what is left
			s.balance(p, s1, 0, 0)
		}
	})
}

// again is an instance that waits for what is decided in the background.
func (s *scene) again(i int) *instance {
	other := *s.at(i)
	other.Facilitator = other.patient(s, time.Minute)
	return &other
}

// patient is the facilitator of the instance with another time to wait for orders.
func (i *instance) patient(s *scene, wait time.Duration) *pay.Facilitator {
	return i.pays(s, func(f *pay.Deps, _ *tokens.Deps, _ *purchases.Deps) { f.TopUpWait = wait })
}
