package pay_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

// T29
func TestStateChangesBetweenVerifyAndSettle(t *testing.T) {
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
			must.Do(s, s.one().Tokens.Revoke(s.ctx, s1, tok.PermissionHash))
		}, toll.CodePermissionRevoked},
		"agent unlisted": {func(s *scene, _ *toll.Plan, a *toll.Agent, _ *toll.AccessToken) {
			a.IsListed = false
			must.Do(s, s.one().store.Tx(s.ctx, func(tx *store.Tx) error { return store.UpdateAgent(s.ctx, tx, a) }))
			s.clock.add(time.Second)
		}, toll.CodeAgentUnlisted},
		"agent detached": {func(s *scene, p *toll.Plan, a *toll.Agent, _ *toll.AccessToken) {
			must.Do(s, s.one().store.Tx(s.ctx, func(tx *store.Tx) error { _, err := store.DetachPlan(s.ctx, tx, a.ID, p.ID); return err }))
			s.clock.add(time.Second)
		}, toll.CodeAgentMismatch},
		"plan unlisted": {func(s *scene, p *toll.Plan, _ *toll.Agent, _ *toll.AccessToken) {
			p.IsListed = false
			must.Do(s, s.one().store.Tx(s.ctx, func(tx *store.Tx) error { return store.UpdatePlan(s.ctx, tx, p) }))
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
		c := s.call(p, nil, s.token(p, s1, func(r *tokens.PermissionRequest) { secs := int64(120); r.ExpiresInSecs = &secs }))
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

// T30
func TestReleaseAgainstSettle(t *testing.T) {
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

// T31
func TestLapseAgainstSettle(t *testing.T) {
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

// T32
func TestHoldExhaustion(t *testing.T) {
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

// T47
func TestExpiryUnderHold(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		for i, settle := range []bool{true, false} {
			sub := []toll.Address{s1, s2}[i]
			must.Get(s.one().checkout.Mint(s.ctx, b1, p.ID, sub, 5, toll.UnitsOf(30), nil))(s)
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
			a := must.Get(s.one().ledger.Account(s.ctx, ledger.NewAccountID(p.ID, sub)))(s)
			if a.Seq != 2 || (a.Burned == 5) != settle || (a.Expired == 5) == settle {
				t.Fatalf("%+v", a)
			}
		}
	})
}
