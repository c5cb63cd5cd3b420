package pay_test

import (
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/tokens"
)

// twenty sells twenty credits, one of which a request burns.
func twenty(p *toll.Plan) { p.Credits.Amount, p.Credits.MinAmount, p.Credits.MaxAmount = 20, 1, 1 }

// drains has a subscriber settle 20 requests within a delegation, and the owner of the plan take back after each settlement
// what the subscriber has left.
func (s *scene) drains(p *toll.Plan, delegation string) {
	s.Helper()
	orders := int64(1000)
	c := s.call(p, nil, s.token(p, s1, func(r *tokens.PermissionRequest) {
		with(delegation)(r)
		r.OrderLimit, r.RedemptionLimit = &orders, toll.Credits(20).Ptr()
	}))
	for i := range 20 {
		c.nonce(nonceOf(i)).burn("", nil)
		if left := toll.Credits(19 - i); left > 0 {
			_, err := s.at(i).checkout.Withdraw(s.ctx, p.Owner, p.ID, s1, left, nil)
			s.code(err, toll.CodeCreditsNotFree)
			if n := toll.AsError(err).Params["available"]; n != "0" {
				s.Errorf("%v credits can be taken back of a paid order", n)
			}
		}
	}
	s.balance(p, s1, 0, 0)
}

// The owner of a plan cannot have a delegation buy credits again that the owner took back.
func TestTakeBack_DrainsNoDelegation(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(twenty)
		d := s.delegation(10_000, nil)
		s.drains(p, d)
		s.spent(d, 100, 1)
	})
}

func TestTakeBack_DrainsNoCard(t *testing.T) {
	eachCards(t, func(s *cardScene) {
		p := s.plan(func(p *toll.Plan) { fiat(p); twenty(p) })
		s.drains(p, s.cardDelegation(s.enrol("4242 4242 4242 4242"), 10_000))
		if n := s.charged(); n != 1 {
			s.Errorf("%d charges", n)
		}
	})
}

// The owner of a plan can take back only credits without a payment that are neither spent nor on hold. The paid credits of the same
// subscriber stay.
func TestTakeBack_FreeCreditsAlone(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(twenty)
		c := s.call(p, nil, s.token(p, s1, with(s.delegation(10_000, nil))))
		c.burn("", nil) // buys 20
		s.mint(p, s1, 5)
		take := func(n toll.Credits, available string) {
			s.Helper()
			_, err := s.one().checkout.Withdraw(s.ctx, p.Owner, p.ID, s1, n, nil)
			if available == "" {
				must.Do(s, err)
				return
			}
			s.code(err, toll.CodeCreditsNotFree)
			if got := toll.AsError(err).Params["available"]; got != available {
				s.Errorf("%v can be taken back, want %s", got, available)
			}
		}
		take(6, "5")
		take(2, "")
		take(4, "3")
		take(3, "")
		take(1, "0")
		s.balance(p, s1, 19, 0)
	})
}

// A token with a delegation and a redemption limit orders at most what the limit needs, unless it names another order limit, or
// the credits expire, or orders have no fixed size.
func TestOrderLimit_Default(t *testing.T) {
	each(t, func(s *scene) {
		n := func(n int64) *int64 { return &n }
		for name, tt := range map[string]struct {
			plan  func(*toll.Plan)
			limit *toll.Credits
			given *int64
			alone bool // no delegation
			want  *int64
		}{
			"exact":               {plan: twenty, limit: toll.Credits(40).Ptr(), want: n(2)},
			"rounded up":          {plan: twenty, limit: toll.Credits(41).Ptr(), want: n(3)},
			"less than one":       {plan: twenty, limit: toll.Credits(1).Ptr(), want: n(1)},
			"most":                {plan: twenty, limit: toll.MaxCredits.Ptr(), want: n(int64((toll.MaxCredits-1)/20) + 1)},
			"given":               {plan: twenty, limit: toll.Credits(20).Ptr(), given: n(7), want: n(7)},
			"none given":          {plan: twenty, limit: toll.Credits(20).Ptr(), given: n(0), want: n(0)},
			"no limit":            {plan: twenty},
			"no delegation":       {plan: twenty, limit: toll.Credits(20).Ptr(), alone: true},
			"pay as you go":       {plan: payg, limit: toll.Credits(20).Ptr()},
			"a period":            {plan: period, limit: toll.Credits(20).Ptr()},
			"credits that expire": {plan: func(p *toll.Plan) { twenty(p); p.Credits.DurationSecs = toll.UnitsOf(3600) }, limit: toll.Credits(20).Ptr()},
		} {
			p := s.plan(tt.plan)
			tok := s.token(p, s1, func(r *tokens.PermissionRequest) {
				if !tt.alone {
					with(s.delegation(10_000, nil))(r)
				}
				r.RedemptionLimit, r.OrderLimit = tt.limit, tt.given
			})
			_, stored, err := s.one().ledger.Snapshot(s.ctx, ledger.NewAccountID(p.ID, s1), tok.PermissionHash)
			must.Do(s, err)
			for _, got := range []*int64{tok.MaxOrders, stored.OrderLimit} {
				if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
					s.Errorf("%s: %v orders, want %v", name, got, tt.want)
				}
			}
		}
	})
}
