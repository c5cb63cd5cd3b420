package pay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

// T22
func TestReplayInEveryState(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 1000)
		base := s.call(p, nil, s.token(p, s1, nil))
		used := func(c *call, id string, where string, reasons ...string) {
			t.Helper()
			for i := range 2 {
				for _, f := range []func(*x402.VerifyRequest){nil, held} {
					v, err := c.verify(s.at(i), f)
					s.invalid(v, err, reasons...)
					v, err = base.verify(s.at(i), func(r *x402.VerifyRequest) {
						r.AgentRequestID = id
						if f != nil {
							f(r)
						}
					})
					s.invalid(v, err, reasons...)
				}
			}
		}
		settled, released, lapsed, direct := base.nonce("settled"), base.nonce("released"), base.nonce("lapsed"), base.nonce("direct-1")
		h := settled.hold(nil)
		used(settled, h.AgentRequestID, "held", x402.ReasonInFlight)
		settled.burn(h.AgentRequestID, nil)
		used(settled, h.AgentRequestID, "settled", x402.ReasonDuplicate)

		r := released.hold(nil)
		must.Get(s.one().Release(s.ctx, b1, &x402.ReleaseRequest{AgentRequestID: r.AgentRequestID}))(s)
		used(released, r.AgentRequestID, "released", x402.ReasonDuplicate)

		l := lapsed.hold(nil)
		d := direct.burn("", nil)
		s.clock.add(2 * time.Minute)
		used(lapsed, l.AgentRequestID, "lapsed", x402.ReasonDuplicate, x402.ReasonInFlight)
		used(direct, d.Extra.AgentRequestID, "settled without a hold", x402.ReasonDuplicate)
		s.clock.add(23 * time.Hour)
		for _, c := range []*call{settled, released, lapsed, direct} {
			v, err := c.verify(s.at(1), held)
			s.invalid(v, err, x402.ReasonDuplicate)
		}
		s.balance(p, s1, 990, 0)
	})
}

// T23
func TestMoreRequestsThanCredits(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 100)
		base := s.call(p, nil, s.token(p, s1, nil))
		calls := make([]*call, 200)
		for i := range calls {
			calls[i] = base.nonce(nonceOf(i))
		}
		var handlers, burns atomic.Int64
		atOnce(200, func(i int) {
			v, err := calls[i].verify(s.at(i), held)
			if err != nil {
				s.Error(err)
				return
			}
			if !v.IsValid {
				return
			}
			handlers.Add(1)
			r, err := calls[i].settle(s.at(i+1), v.AgentRequestID, nil)
			if err != nil || !r.Success {
				s.Errorf("%v %+v", err, r)
				return
			}
			burns.Add(1)
		})
		if handlers.Load() != 20 || burns.Load() != 20 {
			t.Fatalf("%d handlers, %d burns", handlers.Load(), burns.Load())
		}
		s.balance(p, s1, 0, 0)
	})
}

// T25
func TestIdReuseWithOtherContent(t *testing.T) {
	each(t, func(s *scene) {
		p, q := s.plan(dynamic(1, 10)), s.plan(dynamic(1, 10))
		a, b := s.agent(nil, p, q), s.agent(nil, p, q)
		s.mint(p, s1, 100)
		s.mint(q, s1, 100)
		tok := s.token(p, s1, nil)
		c := s.call(p, a, tok)
		v, err := c.verify(s.one(), nil)
		s.valid(v, err)
		for _, id := range []string{v.AgentRequestID, c.hold(nil).AgentRequestID, "my-own-id"} {
			first := c.burn(id, amount(5))
			again := func(where string, c *call, f func(*x402.SettleRequest)) {
				t.Helper()
				r, err := c.settle(s.at(1), id, f)
				s.refused(r, err, toll.CodeSettleConflict)
				if r.ErrorReason != x402.ReasonConflict {
					t.Errorf("%s: %s", where, r.ErrorReason)
				}
			}
			again("amount", c, amount(3))
			again("no amount", c, nil)
			again("batch", c, func(r *x402.SettleRequest) { amount(5)(r); r.Batch = true })
			again("agent", s.call(p, b, tok), amount(5))
			again("no agent", s.call(p, nil, tok), amount(5))
			again("access token", s.call(p, a, s.token(p, s1, nil)), amount(5))
			other := *c
			other.required.Resource.URL = askURL + "?x=1"
			again("resource", &other, amount(5))
			if id != "my-own-id" { // a foreign id is unique within its account only
				again("plan", s.call(q, a, s.token(q, s1, nil)), amount(5))
				again("subscriber", s.call(p, a, s.token(p, s2, nil)), amount(5))
			}
			other = *c
			other.caller = b2
			r, err := other.settle(s.at(1), id, amount(5))
			s.refused(r, err, toll.CodeNotPlanOwner)

			replay, err := c.settle(s.at(1), id, amount(5))
			if err != nil || !replay.Replayed || !bytes.Equal(replay.Raw, first.Raw) || replay.Transaction != first.Transaction {
				t.Fatalf("%v %+v", err, replay)
			}
		}
		s.balance(p, s1, 85, 0)
		s.balance(q, s1, 100, 0)
	})
}

// A hold is bound to what it was taken for.
func TestHoldIsBound(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		a, b := s.agent(nil, p), s.agent(nil, p)
		s.mint(p, s1, 100)
		tok := s.token(p, s1, nil)
		c := s.call(p, a, tok)
		id := c.hold(nil).AgentRequestID
		url := *c
		url.required.Resource.URL = askURL + "?x=1"
		for _, other := range []*call{s.call(p, b, tok), s.call(p, a, s.token(p, s1, nil)), &url} {
			r, err := other.settle(s.one(), id, nil)
			s.refused(r, err, toll.CodeSettleConflict)
		}
		c.burn(id, nil)
	})
}

// T26
func TestIdempotencyRaced(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 1000)
		c := s.call(p, nil, s.token(p, s1, nil))
		v, err := c.verify(s.one(), nil)
		s.valid(v, err)
		for _, id := range []string{v.AgentRequestID, c.hold(nil).AgentRequestID, "chosen"} {
			answers := make([][]byte, 200)
			var applied atomic.Int64
			atOnce(len(answers), func(i int) {
				r, err := c.settle(s.at(i), id, nil)
				if err != nil || !r.Success {
					s.Errorf("%v %+v", err, r)
					return
				}
				if !r.Replayed {
					applied.Add(1)
				}
				answers[i] = r.Raw
			})
			for _, a := range answers {
				if len(a) == 0 || !bytes.Equal(a, answers[0]) {
					t.Fatalf("%s is not %s", a, answers[0])
				}
			}
			if applied.Load() != 1 {
				t.Fatalf("%d burns", applied.Load())
			}
		}
		s.balance(p, s1, 985, 0)
	})
}

// One nonce names one request, however it is settled.
func TestNonceNamesOneRequest(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 100)
		c := s.call(p, nil, s.token(p, s1, nil)).nonce("once")
		var applied atomic.Int64
		atOnce(40, func(i int) {
			r, err := c.settle(s.at(i), "", nil)
			if err != nil || !r.Success {
				s.Errorf("%v %+v", err, r)
			} else if !r.Replayed {
				applied.Add(1)
			}
		})
		if applied.Load() != 1 {
			t.Fatalf("%d burns", applied.Load())
		}
		s.balance(p, s1, 95, 0)
		// The rendering as it was issued carries its jti, which names nothing: each call is a request of its own.
		plain := s.call(p, nil, s.token(p, s1, func(r *tokens.PermissionRequest) { r.TokenFormat = "x402" }))
		first, second := plain.burn("", nil), plain.burn("", nil)
		if first.Extra.AgentRequestID == second.Extra.AgentRequestID {
			t.Fatal("one id for two requests")
		}
		s.balance(p, s1, 85, 0)
	})
}

// T27
func TestForeignIds(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		theirs := s.plan(func(p *toll.Plan) { p.Owner = b2 })
		s.mint(p, s1, 100)
		s.mint(p, s2, 100)
		s.mint(theirs, s1, 100)
		c := s.call(p, nil, s.token(p, s1, nil))
		open := c.hold(nil).AgentRequestID
		used := c.hold(nil).AgentRequestID
		c.burn(used, nil)
		v, err := c.verify(s.one(), nil)
		s.valid(v, err)
		chosen := "chosen-by-b1"
		c.hold(func(r *x402.VerifyRequest) { r.AgentRequestID = chosen })
		forged := open[:len(open)-1] + map[bool]string{true: "0", false: "1"}[open[len(open)-1] == '1']
		body := func(err error) string {
			t.Helper()
			s.code(err, toll.CodeSettlementNotFound)
			b, merr := json.Marshal(toll.AsError(err).Body("", ""))
			must.Do(s, merr)
			return string(b)
		}
		want := body(toll.NewError(toll.CodeSettlementNotFound))
		for _, id := range []string{open, used, v.AgentRequestID, forged, "req_", "req_x", "random", "", chosen, string(make([]byte, 200))} {
			_, err := s.at(1).Release(s.ctx, b2, &x402.ReleaseRequest{AgentRequestID: id})
			if got := body(err); got != want {
				t.Errorf("release %q: %s", id, got)
			}
			_, err = s.at(1).Requests.Settlement(s.ctx, b2, id)
			if got := body(err); got != want {
				t.Errorf("lookup %q: %s", id, got)
			}
		}
		_, err = s.one().Requests.SettlementByTransaction(s.ctx, b2, toll.NewHash())
		body(err)
		// A subscriber may look, not release.
		_, err = s.one().Release(s.ctx, s1, &x402.ReleaseRequest{AgentRequestID: open})
		body(err)

		// Settle: the same answer for an id of another account, used or not, and for a forged one.
		mine := s.call(theirs, nil, s.token(theirs, s1, nil))
		var answers []string
		for _, id := range []string{open, used, v.AgentRequestID, forged, "req_x"} {
			r, err := mine.settle(s.at(1), id, nil)
			s.refused(r, err, toll.CodeSettleConflict)
			b := must.Get(x402.Encode(r))(s)
			answers = append(answers, string(b))
			_, err = mine.verify(s.at(1), func(r *x402.VerifyRequest) { r.AgentRequestID = id })
			s.code(err, toll.CodeSettleConflict)
			r, err = s.call(p, nil, s.token(p, s2, nil)).settle(s.one(), id, nil)
			s.refused(r, err, toll.CodeSettleConflict)
		}
		for _, a := range answers {
			if a != answers[0] {
				t.Fatalf("%s is not %s", a, answers[0])
			}
		}
		// An id of a caller's choice is unique within its account.
		if r, err := mine.settle(s.one(), chosen, nil); err != nil || !r.Success {
			t.Fatalf("%v %+v", err, r)
		}
		s.balance(p, s1, 95, 10)
		s.balance(p, s2, 100, 0)
	})
}

// T28
func TestVerifyAgain(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 100)
		c := s.call(p, nil, s.token(p, s1, nil))
		again := func(id string, reasons ...string) {
			t.Helper()
			for _, hold := range []bool{false, true} {
				v, err := c.verify(s.at(1), func(r *x402.VerifyRequest) { r.AgentRequestID, r.Hold = id, hold })
				s.invalid(v, err, reasons...)
			}
		}
		settled, released, lapsed := c.hold(nil).AgentRequestID, c.hold(nil).AgentRequestID, c.hold(nil).AgentRequestID
		again(settled, x402.ReasonInFlight)
		c.burn(settled, nil)
		again(settled, x402.ReasonDuplicate)
		must.Get(s.one().Release(s.ctx, b1, &x402.ReleaseRequest{AgentRequestID: released}))(s)
		again(released, x402.ReasonDuplicate)
		s.clock.add(2 * time.Minute)
		must.Get(s.one().ledger.Sweep(s.ctx))(s)
		again(lapsed, x402.ReasonDuplicate)
		// An id that a verify issued and nobody used is new.
		v, err := c.verify(s.one(), nil)
		s.valid(v, err)
		id := v.AgentRequestID
		v, err = c.verify(s.at(1), func(r *x402.VerifyRequest) { r.AgentRequestID, r.Hold = id, true })
		s.valid(v, err)
		if v.AgentRequestID != id {
			t.Fatal("another id")
		}
	})
}

// The answer is lost, a proxy doubles the request, two retries cross: one burn, equal answers.
// F05
func TestCrossingRetries(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 1000)
		c := s.call(p, nil, s.token(p, s1, nil))
		for n := range 10 {
			id := c.hold(nil).AgentRequestID
			var mu sync.Mutex
			var answers [][]byte
			atOnce(6, func(i int) {
				ctx, cancel := context.WithCancel(s.ctx)
				defer cancel()
				if i < 2 { // the client goes away while its call runs
					go func() { time.Sleep(time.Duration(n) * 100 * time.Microsecond); cancel() }()
				}
				r, err := s.at(i).Settle(ctx, b1, &x402.SettleRequest{PaymentRequired: c.required, AccessToken: c.token, AgentRequestID: id})
				if i < 2 && ctx.Err() != nil {
					if err == nil && !r.Success && r.ErrorReason != x402.ReasonPending {
						s.Errorf("a lost call was told %s", r.ErrorReason)
					}
					return
				}
				if err != nil || !r.Success {
					s.Errorf("%v %+v", err, r)
					return
				}
				mu.Lock()
				answers = append(answers, r.Raw)
				mu.Unlock()
			})
			final := c.burn(id, nil)
			for _, a := range answers {
				if !bytes.Equal(a, final.Raw) {
					t.Fatalf("%s is not %s", a, final.Raw)
				}
			}
			s.balance(p, s1, toll.Credits(1000-5*(n+1)), 0)
		}
	})
}

func TestSettlementRecord(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 10))
		a := s.agent(nil, p)
		s.mint(p, s1, 100)
		tok := s.token(p, s1, nil)
		c := s.call(p, a, tok)
		h := c.hold(heldFor(7))
		look := func(caller toll.Address) *toll.Settlement {
			t.Helper()
			return must.Get(s.at(1).Requests.Settlement(s.ctx, caller, h.AgentRequestID))(s)
		}
		r := look(b1)
		if r.Status != "held" || r.HeldAmount != 7 || r.Transaction != nil || r.Amount != nil || *r.AgentID != a.ID || *r.Resource != askURL ||
			r.Payer != s1 || r.Network != "eip155:84532" || r.PermissionHash != tok.PermissionHash || r.Receipt != nil ||
			!r.HoldExpiresAt.Equal(start.Add(time.Minute)) {
			t.Fatalf("%+v", r)
		}
		s.clock.add(time.Minute)
		if r = look(s1); r.Status != "lapsed" {
			t.Fatal(r.Status)
		}
		paid := c.burn(h.AgentRequestID, amount(3))
		r = look(s1)
		if r.Status != "settled" || r.Transaction.String() != paid.Transaction || *r.Amount != 3 || *r.CreditsRedeemed != 3 ||
			*r.RemainingBalance != 97 || r.HeldAmount != 7 || !bytes.Equal(r.Receipt, paid.Raw) || r.SettledAt == nil {
			t.Fatalf("%+v", r)
		}
		for _, caller := range []toll.Address{b1, s1} {
			tx := must.Get(toll.ParseHash(paid.Transaction))(s)
			r := must.Get(s.at(1).Requests.SettlementByTransaction(s.ctx, caller, tx))(s)
			if r.AgentRequestID != h.AgentRequestID {
				t.Fatalf("%+v", r)
			}
		}
		tx, _ := toll.ParseHash(paid.Transaction)
		_, err := s.one().Requests.SettlementByTransaction(s.ctx, s2, tx)
		s.code(err, toll.CodeSettlementNotFound)
		_, err = s.one().Release(s.ctx, b1, &x402.ReleaseRequest{AgentRequestID: h.AgentRequestID})
		s.code(err, toll.CodeReleaseOfSettled)

		// An id of the caller's choice is found as well, by the parties of each account.
		c.hold(func(r *x402.VerifyRequest) { r.AgentRequestID = "mine" })
		got := must.Get(s.one().Requests.Settlement(s.ctx, s1, "mine"))(s)
		if got.Status != "held" {
			t.Fatalf("%+v", got)
		}
		rel := must.Get(s.at(1).Release(s.ctx, b1, &x402.ReleaseRequest{AgentRequestID: "mine"}))(s)
		if rel.Released != 10 || rel.AgentRequestID != "mine" {
			t.Fatalf("%+v", rel)
		}
	})
}
