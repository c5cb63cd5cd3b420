package facilitator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/facilitator"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// 64 at once with 20 credits at 1 each: exactly 20 are held, worked on and burned.
func TestSixtyFourCallsTwentyCredits(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 1))
		a := s.agent(nil, p)
		s.mint(p, s1, 20)
		c := s.call(p, a, s.token(p, s1, nil))
		var worked, burned, refused atomic.Int64
		atOnce(64, func(i int) {
			v, err := c.verify(s.at(i), held)
			switch {
			case err != nil:
				s.Error(err)
			case !v.IsValid && v.InvalidReason == x402.ReasonInsufficientFunds:
				refused.Add(1)
			case !v.IsValid:
				s.Errorf("refused with %s", v.InvalidReason)
			default:
				worked.Add(1)
				r, err := c.settle(s.at(i+1), v.AgentRequestID, nil)
				if err != nil || !r.Success {
					s.Errorf("held but not settled: %v %+v", err, r)
					return
				}
				burned.Add(int64(*r.CreditsRedeemed))
			}
		})
		if worked.Load() != 20 || burned.Load() != 20 || refused.Load() != 44 {
			t.Fatalf("%d worked, %d burned, %d refused", worked.Load(), burned.Load(), refused.Load())
		}
		s.balance(p, s1, 0, 0)
	})
}

func TestT12_RedemptionLimitRaced(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 1000)
		c := s.call(p, nil, s.token(p, s1, limit(20)))
		var valid atomic.Int64
		atOnce(50, func(i int) {
			v, err := c.verify(s.at(i), held)
			switch {
			case err != nil:
				s.Error(err)
			case v.IsValid:
				valid.Add(1)
			case v.InvalidReason != x402.ReasonRedemptionLimit:
				s.Error(v.InvalidReason)
			}
		})
		if valid.Load() != 4 {
			t.Fatalf("%d valid", valid.Load())
		}
		// Without a hold the limit holds as well.
		r, err := c.settle(s.one(), "", nil)
		s.refused(r, err, toll.CodeRedemptionLimit)
	})
}

func TestT13_UseAfterRevocation(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 100)
		tok := s.token(p, s1, nil)
		c := s.call(p, nil, tok)
		v, err := c.verify(s.at(1), nil)
		s.valid(v, err)
		h := c.hold(nil)
		s.must(s.at(0).RevokePermission(s.ctx, s1, tok.PermissionHash))

		v, err = c.verify(s.at(0), nil)
		s.invalid(v, err, "invalid_svc_payload_revoked")
		// What decides refuses at once, everywhere; advice of another process within a second.
		v, err = c.verify(s.at(1), held)
		s.invalid(v, err, "invalid_svc_payload_revoked")
		r, err := c.settle(s.at(1), "", nil)
		s.refused(r, err, toll.CodePermissionRevoked)
		s.clock.add(time.Second)
		v, err = c.verify(s.at(1), nil)
		s.invalid(v, err, "invalid_svc_payload_revoked")

		r, err = c.settle(s.at(1), h.AgentRequestID, nil)
		if err != nil || !r.Success {
			t.Fatalf("the hold from before does not settle: %v %+v", err, r)
		}
		s.balance(p, s1, 95, 0)
	})
}

func TestT22_ReplayInEveryState(t *testing.T) {
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
		_, err := s.one().Release(s.ctx, b1, &x402.ReleaseRequest{AgentRequestID: r.AgentRequestID})
		s.must(err)
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

func TestT23_MoreRequestsThanCredits(t *testing.T) {
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

func TestT25_IdReuseWithOtherContent(t *testing.T) {
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

func TestT26_IdempotencyRaced(t *testing.T) {
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
		plain := s.call(p, nil, s.token(p, s1, func(r *facilitator.PermissionRequest) { r.TokenFormat = "x402" }))
		first, second := plain.burn("", nil), plain.burn("", nil)
		if first.Extra.AgentRequestID == second.Extra.AgentRequestID {
			t.Fatal("one id for two requests")
		}
		s.balance(p, s1, 85, 0)
	})
}

func TestT27_ForeignIds(t *testing.T) {
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
			s.must(merr)
			return string(b)
		}
		want := body(toll.NewError(toll.CodeSettlementNotFound))
		for _, id := range []string{open, used, v.AgentRequestID, forged, "req_", "req_x", "random", "", chosen, string(make([]byte, 200))} {
			_, err := s.at(1).Release(s.ctx, b2, &x402.ReleaseRequest{AgentRequestID: id})
			if got := body(err); got != want {
				t.Errorf("release %q: %s", id, got)
			}
			_, err = s.at(1).Settlement(s.ctx, b2, id)
			if got := body(err); got != want {
				t.Errorf("lookup %q: %s", id, got)
			}
		}
		_, err = s.one().SettlementByTransaction(s.ctx, b2, toll.NewHash())
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
			b, err := x402.Encode(r)
			s.must(err)
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

func TestT28_VerifyAgain(t *testing.T) {
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
		_, err := s.one().Release(s.ctx, b1, &x402.ReleaseRequest{AgentRequestID: released})
		s.must(err)
		again(released, x402.ReasonDuplicate)
		s.clock.add(2 * time.Minute)
		_, err = s.one().ledger.Sweep(s.ctx)
		s.must(err)
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

func TestT29_StateChangesBetweenVerifyAndSettle(t *testing.T) {
	changes := map[string]struct {
		change func(s *scene, p *toll.Plan, a *toll.Agent, tok *toll.AccessToken)
		code   toll.Code // of the settle without a hold; "" when the change does not matter
	}{
		"credits burned elsewhere": {func(s *scene, p *toll.Plan, a *toll.Agent, _ *toll.AccessToken) {
			s.call(p, a, s.token(p, s1, nil)).burn("", nil)
		}, toll.CodeInsufficientCredits},
		"access token expired": {func(s *scene, _ *toll.Plan, _ *toll.Agent, _ *toll.AccessToken) {
			s.clock.add(24 * time.Hour)
		}, toll.CodePermissionExpired},
		"access token revoked": {func(s *scene, _ *toll.Plan, _ *toll.Agent, tok *toll.AccessToken) {
			s.must(s.one().RevokePermission(s.ctx, s1, tok.PermissionHash))
		}, toll.CodePermissionRevoked},
		"agent unlisted": {func(s *scene, _ *toll.Plan, a *toll.Agent, _ *toll.AccessToken) {
			a.IsListed = false
			s.must(s.one().store.Tx(s.ctx, func(tx *store.Tx) error { return store.UpdateAgent(s.ctx, tx, a) }))
			s.clock.add(time.Second)
		}, toll.CodeAgentUnlisted},
		"agent detached": {func(s *scene, p *toll.Plan, a *toll.Agent, _ *toll.AccessToken) {
			s.must(s.one().store.Tx(s.ctx, func(tx *store.Tx) error { _, err := store.DetachPlan(s.ctx, tx, a.ID, p.ID); return err }))
			s.clock.add(time.Second)
		}, toll.CodeAgentMismatch},
		"plan unlisted": {func(s *scene, p *toll.Plan, _ *toll.Agent, _ *toll.AccessToken) {
			p.IsListed = false
			s.must(s.one().store.Tx(s.ctx, func(tx *store.Tx) error { return store.UpdatePlan(s.ctx, tx, p) }))
			s.clock.add(time.Second)
		}, ""},
	}
	each(t, func(s *scene) {
		for name, c := range changes {
			s.clock.set(start)
			for _, hold := range []bool{true, false} {
				p := s.plan(nil)
				a := s.agent(nil, p)
				// One request's worth: for the hold the other burn comes out of a second one.
				s.mint(p, s1, 5)
				if hold && c.code == toll.CodeInsufficientCredits {
					s.mint(p, s1, 5)
				}
				tok := s.token(p, s1, nil)
				pay := s.call(p, a, tok)
				v, err := pay.verify(s.one(), func(r *x402.VerifyRequest) { r.Hold, r.HoldSecs = hold, 900 })
				s.valid(v, err)
				c.change(s, p, a, tok)
				r, err := pay.settle(s.at(1), v.AgentRequestID, nil)
				if hold || c.code == "" {
					if err != nil || !r.Success || *r.CreditsRedeemed != 5 {
						t.Errorf("%s, held %v: %v %+v", name, hold, err, r)
					}
					s.balance(p, s1, 0, 0)
					continue
				}
				if err != nil || r.Success || r.Code != c.code {
					t.Errorf("%s: %v %+v", name, err, r)
				}
			}
		}
	})
}

// A lapsed hold still settles when the credits are there, until an hour after the end of the access token.
func TestLapsedHold(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 15)
		c := s.call(p, nil, s.token(p, s1, func(r *facilitator.PermissionRequest) { secs := int64(120); r.ExpiresInSecs = &secs }))
		in, late := c.hold(nil).AgentRequestID, c.hold(nil).AgentRequestID
		s.clock.add(120*time.Second + time.Hour)
		c.burn(in, nil)
		s.clock.add(time.Second)
		r, err := c.settle(s.at(1), late, nil)
		s.refused(r, err, toll.CodeHoldExpired)
		s.balance(p, s1, 10, 0)
		// The stored answer stays for ever.
		if r, err := c.settle(s.at(1), in, nil); err != nil || !r.Replayed {
			t.Fatalf("%v %+v", err, r)
		}

		// Lapsed, and the credits went elsewhere.
		c = s.call(p, nil, s.token(p, s1, nil))
		id := c.hold(nil).AgentRequestID
		s.clock.add(2 * time.Minute)
		c.burn("", nil)
		c.burn("", nil)
		r, err = c.settle(s.one(), id, nil)
		s.refused(r, err, toll.CodeInsufficientCredits)
		s.mint(p, s1, 5)
		c.burn(id, nil)
	})
}

func TestT30_ReleaseAgainstSettle(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 500)
		c := s.call(p, nil, s.token(p, s1, nil))
		burned := toll.Credits(0)
		for range 50 {
			id := c.hold(nil).AgentRequestID
			var settled, released bool
			atOnce(2, func(i int) {
				if i == 0 {
					r, err := c.settle(s.at(0), id, nil)
					settled = err == nil && r.Success
					if err != nil || !r.Success && r.Code != toll.CodeSettleConflict {
						s.Errorf("%v %+v", err, r)
					}
					return
				}
				r, err := s.at(1).Release(s.ctx, b1, &x402.ReleaseRequest{AgentRequestID: id})
				released = err == nil && r.Success && r.Status == "released" && r.Released == 5
				if err != nil && !errors.Is(err, toll.NewError(toll.CodeReleaseOfSettled)) {
					s.Error(err)
				}
			})
			if settled == released {
				t.Fatalf("settled %v, released %v", settled, released)
			}
			if settled {
				burned += 5
			} else {
				// A repeat gets the same answer, and the request is over.
				r, err := s.one().Release(s.ctx, b1, &x402.ReleaseRequest{AgentRequestID: id})
				if err != nil || r.Status != "released" || r.Released != 5 {
					t.Fatalf("%v %+v", err, r)
				}
				sr, err := c.settle(s.one(), id, nil)
				s.refused(sr, err, toll.CodeSettleConflict)
			}
			s.balance(p, s1, 500-burned, 0)
		}
	})
}

func TestT31_LapseAgainstSettle(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 1000)
		c := s.call(p, nil, s.token(p, s1, nil))
		for i := range 20 {
			id := c.hold(nil).AgentRequestID
			s.clock.add(time.Minute + time.Duration(i-10)*100*time.Microsecond)
			atOnce(3, func(i int) {
				switch i {
				case 0:
					if r, err := c.settle(s.at(0), id, nil); err != nil || !r.Success {
						s.Errorf("%v %+v", err, r)
					}
				case 1:
					if _, err := s.at(1).ledger.Sweep(s.ctx); err != nil {
						s.Error(err)
					}
				case 2:
					if r, err := c.settle(s.at(1), id, nil); err != nil || !r.Success {
						s.Errorf("%v %+v", err, r)
					}
				}
			})
			s.balance(p, s1, toll.Credits(1000-5*(i+1)), 0)
		}
	})
}

func TestT32_HoldExhaustion(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 1))
		s.mint(p, s1, 1000)
		s.mint(p, s2, 10)
		tokens := make([]*call, 5)
		for i := range tokens {
			tokens[i] = s.call(p, nil, s.token(p, s1, nil))
		}
		var granted atomic.Int64
		for _, c := range tokens {
			var of atomic.Int64
			atOnce(70, func(i int) {
				v, err := c.verify(s.at(i), held)
				switch {
				case err == nil && v.IsValid:
					granted.Add(1)
					of.Add(1)
				case !errors.Is(err, toll.NewError(toll.CodeTooManyHolds)) || toll.AsError(err).Reason != x402.ReasonTooManyHolds:
					s.Errorf("%v %+v", err, v)
				}
			})
			if of.Load() > ledger.MaxHoldsPerPermission {
				t.Fatalf("%d holds of one access token", of.Load())
			}
		}
		if granted.Load() != ledger.MaxHoldsPerAccount {
			t.Fatalf("%d holds of one account", granted.Load())
		}
		v, err := s.call(p, nil, s.token(p, s2, nil)).verify(s.one(), held)
		s.valid(v, err)
		s.clock.add(2 * time.Minute)
		v, err = tokens[0].verify(s.one(), held)
		s.valid(v, err)
		s.balance(p, s1, 1000, 1)
	})
}

func TestT33_GreedyBuilder(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 10))
		s.mint(p, s1, 100)
		c := s.call(p, nil, s.token(p, s1, nil))
		without := *c
		without.token = ""
		r, err := without.settle(s.one(), "", nil)
		s.refused(r, err, toll.CodeBadRequest)

		h := c.hold(heldFor(2))
		r = c.burn(h.AgentRequestID, amount(1000))
		if *r.CreditsRedeemed != 10 || *r.Extra.RequestedAmount != 1000 {
			t.Fatalf("%s", r.Raw)
		}
		second := c.burn("second", amount(10))
		seen, err := s.one().Settlement(s.ctx, s1, second.Extra.AgentRequestID)
		s.must(err)
		if seen.Status != "settled" || *seen.CreditsRedeemed != 10 || seen.Payer != s1 {
			t.Fatalf("%+v", seen)
		}
		s.balance(p, s1, 80, 0)
	})
}

func TestT45_DynamicBounds(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 10))
		s.mint(p, s1, 100)
		c := s.call(p, nil, s.token(p, s1, nil))
		left := toll.Credits(100)
		for _, row := range []struct{ ask, burned toll.Credits }{{0, 0}, {1, 1}, {10, 10}, {11, 10}} {
			id := c.hold(nil).AgentRequestID
			r := c.burn(id, amount(row.ask))
			left -= row.burned
			raised := row.ask != row.burned
			if *r.CreditsRedeemed != row.burned || (r.Extra.RequestedAmount != nil) != raised || *r.RemainingBalance != left || r.Transaction == "" {
				t.Fatalf("%d: %s", row.ask, r.Raw)
			}
			if raised && *r.Extra.RequestedAmount != row.ask {
				t.Fatalf("%s", r.Raw)
			}
			s.balance(p, s1, left, 0)
		}
		v, err := c.verify(s.one(), func(r *x402.VerifyRequest) { n := toll.Credits(0); r.MaxAmount = &n })
		s.valid(v, err)
		if *v.Amount != 0 {
			t.Fatal("0 does not stay 0")
		}
	})
}

func TestT47_ExpiryUnderHold(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		for i, settle := range []bool{true, false} {
			sub := []toll.Address{s1, s2}[i]
			_, err := s.one().checkout.Mint(s.ctx, b1, p.ID, sub, 5, toll.UnitsOf(30))
			s.must(err)
			c := s.call(p, nil, s.token(p, sub, nil))
			id := c.hold(nil).AgentRequestID
			s.clock.add(31 * time.Second)
			if settle {
				c.burn(id, nil)
			} else {
				s.balance(p, sub, 5, 5)
				s.clock.add(30 * time.Second)
			}
			s.balance(p, sub, 0, 0)
			a, err := s.one().ledger.Account(s.ctx, ledger.NewAccountID(p.ID, sub))
			s.must(err)
			if a.Seq != 2 || (a.Burned == 5) != settle || (a.Expired == 5) == settle {
				t.Fatalf("%+v", a)
			}
		}
	})
}

// The answer is lost, a proxy doubles the request, two retries cross: one burn, equal answers.
func TestF05_CrossingRetries(t *testing.T) {
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
			r, err := s.at(1).Settlement(s.ctx, caller, h.AgentRequestID)
			s.must(err)
			return r
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
			tx, err := toll.ParseHash(paid.Transaction)
			s.must(err)
			r, err := s.at(1).SettlementByTransaction(s.ctx, caller, tx)
			s.must(err)
			if r.AgentRequestID != h.AgentRequestID {
				t.Fatalf("%+v", r)
			}
		}
		tx, _ := toll.ParseHash(paid.Transaction)
		_, err := s.one().SettlementByTransaction(s.ctx, s2, tx)
		s.code(err, toll.CodeSettlementNotFound)
		_, err = s.one().Release(s.ctx, b1, &x402.ReleaseRequest{AgentRequestID: h.AgentRequestID})
		s.code(err, toll.CodeReleaseOfSettled)

		// An id of the caller's choice is found as well, by the parties of each account.
		c.hold(func(r *x402.VerifyRequest) { r.AgentRequestID = "mine" })
		got, err := s.one().Settlement(s.ctx, s1, "mine")
		s.must(err)
		if got.Status != "held" {
			t.Fatalf("%+v", got)
		}
		rel, err := s.at(1).Release(s.ctx, b1, &x402.ReleaseRequest{AgentRequestID: "mine"})
		s.must(err)
		if rel.Released != 10 || rel.AgentRequestID != "mine" {
			t.Fatalf("%+v", rel)
		}
	})
}

// What settle answers is the same text for every caller: goldens of one settlement.
func TestReceiptShape(t *testing.T) {
	s := newScene(t, "sqlite", 1)
	p := s.plan(dynamic(2, 10))
	a := s.agent(nil, p)
	s.mint(p, s1, 100)
	r := s.call(p, a, s.token(p, s1, nil)).burn("id-1", amount(1))
	want := fmt.Sprintf(`{"success":true,"transaction":%q,"network":"eip155:84532","payer":%q,"creditsRedeemed":"2","remainingBalance":"98","amount":"2",`+
		`"extra":{"agentRequestId":"id-1","planId":%q,"agentId":%q,"creditsRedeemed":"2","remainingBalance":"98","requestedAmount":"1"},`+
		`"extensions":{"svc-credits":{"info":{"creditsRedeemed":"2","remainingBalance":"98","agentRequestId":"id-1"}}}}`,
		r.Transaction, s1.String(), p.ID, a.ID)
	if string(r.Raw) != want {
		t.Fatalf("got  %s\nwant %s", r.Raw, want)
	}
}
