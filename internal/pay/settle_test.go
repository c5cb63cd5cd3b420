package pay_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
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

// T12
func TestRedemptionLimitRaced(t *testing.T) {
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

// T13
func TestUseAfterRevocation(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 100)
		tok := s.token(p, s1, nil)
		c := s.call(p, nil, tok)
		v, err := c.verify(s.at(1), nil)
		s.valid(v, err)
		h := c.hold(nil)
		must.Do(s, s.at(0).Tokens.Revoke(s.ctx, s1, tok.PermissionHash))

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

// T33
func TestGreedyBuilder(t *testing.T) {
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
		seen := must.Get(s.one().Requests.Settlement(s.ctx, s1, second.Extra.AgentRequestID))(s)
		if seen.Status != "settled" || *seen.CreditsRedeemed != 10 || seen.Payer != s1 {
			t.Fatalf("%+v", seen)
		}
		s.balance(p, s1, 80, 0)
	})
}

// T45
func TestDynamicBounds(t *testing.T) {
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

// TestBelowMinimum: maxAmount is the most that may be burned, so one below the minimum of the plan is refused.
// T45
func TestBelowMinimum(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(2, 10))
		s.mint(p, s1, 100)
		token := s.token(p, s1, nil)
		c := s.call(p, nil, token)
		for _, with := range []func(*x402.VerifyRequest){heldFor(1), func(r *x402.VerifyRequest) { r.MaxAmount = toll.Credits(1).Ptr() }} {
			v, err := c.verify(s.one(), with)
			s.invalid(v, err, x402.ReasonAmountOutOfRange)
		}
		r, err := c.settle(s.one(), "", amount(1))
		s.refused(r, err, toll.CodeAmountOutOfRange)
		open, lapsed, settled, released := c.hold(nil).AgentRequestID, c.hold(heldFor(5)).AgentRequestID, c.hold(nil).AgentRequestID, c.hold(nil).AgentRequestID
		c.burn(settled, amount(4))
		must.Get(s.one().Release(s.ctx, b1, &x402.ReleaseRequest{AgentRequestID: released}))(s)
		check := func(id string, code toll.Code) {
			t.Helper()
			r, err := c.settle(s.at(1), id, amount(1))
			s.refused(r, err, code)
		}
		check(open, toll.CodeAmountOutOfRange)
		check(settled, toll.CodeSettleConflict)
		check(released, toll.CodeSettleConflict)
		c.burn(open, amount(2))
		s.clock.add(2 * time.Minute)
		check(lapsed, toll.CodeAmountOutOfRange)
		c.burn(lapsed, amount(0))
		// What is wrong with the access token goes first, on both bodies.
		must.Do(s, s.one().Tokens.Revoke(s.ctx, s1, token.PermissionHash))
		s.clock.add(2 * time.Second)
		check("", toll.CodePermissionRevoked)
		v, err := c.nonce("n").stock("1").verify(s.one())
		s.invalid(v, err, x402.Default.ReasonRevoked())
		s.balance(p, s1, 94, 0)
	})
}

// What settle answers is the same text for every caller: goldens of one settlement.
func TestReceiptShape(t *testing.T) {
	s := newScene(t, "sqlite", 1)
	p := s.plan(dynamic(2, 10))
	a := s.agent(nil, p)
	s.mint(p, s1, 100)
	r := s.call(p, a, s.token(p, s1, nil)).burn("id-1", amount(11))
	want := fmt.Sprintf(`{"success":true,"transaction":%q,"network":"eip155:84532","payer":%q,"creditsRedeemed":"10","remainingBalance":"90","amount":"10",`+
		`"extra":{"agentRequestId":"id-1","planId":%q,"agentId":%q,"creditsRedeemed":"10","remainingBalance":"90","requestedAmount":"11"},`+
		`"extensions":{"svc-credits":{"info":{"creditsRedeemed":"10","remainingBalance":"90","agentRequestId":"id-1"}}}}`,
		r.Transaction, s1.String(), p.ID, a.ID)
	if string(r.Raw) != want {
		t.Fatalf("got  %s\nwant %s", r.Raw, want)
	}
}

// A settle refuses labels that usage could not store, and burns nothing. Labels are not a part of the request: a repeat with other
// labels gets the first answer, and usage keeps the first labels.
func TestSettle_Labels(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 10))
		s.mint(p, s1, 100)
		c := s.call(p, nil, s.token(p, s1, nil))
		long := strings.Repeat("é", toll.MaxLabelBytes/2)
		for _, bad := range []toll.UsageLabels{{Model: long + "a"}, {Route: "a\nb"}, {Upstream: "\x00"}, {Model: "\xff"}, {Model: "\u0085"}} {
			r, err := c.settle(s.one(), "one", func(r *x402.SettleRequest) { r.Labels = bad })
			if err != nil || r.Success || r.ErrorReason != x402.ReasonInvalidPayload || !strings.Contains(r.ErrorMessage+r.Details, "labels.") {
				t.Errorf("%q: %+v %v", bad, r, err)
			}
		}
		first := c.burn("one", func(r *x402.SettleRequest) { r.Labels = toll.UsageLabels{Model: long} })
		again := c.burn("one", func(r *x402.SettleRequest) { r.Labels = toll.UsageLabels{Model: "other"} })
		if !again.Replayed || again.Transaction != first.Transaction {
			t.Errorf("%+v is not the repeat of %+v", again, first)
		}
		for must.Get(s.one().ledger.CountUsage(s.ctx))(t) {
		}
		list := must.Get(store.Usage(s.ctx, s.one().store, store.UsageFilter{By: store.ByModel, Plan: p.ID, Until: start.Add(48 * time.Hour)}, store.Page{}))(t)
		if len(list.Items) != 1 || list.Items[0].Model != long || list.Items[0].Settled != 1 {
			t.Errorf("%+v", list.Items)
		}
	})
}
