package checkout_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// bought orders a plan of 100 credits for 5.00 USD once, and spends some of the credits.
func (s *shop) bought(delegation string, spent toll.Credits, f func(p *toll.Plan)) (p *toll.Plan, id string, perm ledger.Permission) {
	s.Helper()
	if f == nil {
		f = fiat
	}
	p = s.plan(f)
	o := must.Get(s.charge(0, p, delegation))(s)
	perm = s.permission(p, "", nil)
	if spent > 0 {
		s.settle(p, perm, "", spent)
	}
	return p, o.OrderID, perm
}

// money compares the refunded cents of an order, and its credits that were taken back, lost and
// held, and the balance. Then it audits the books.
func (s *shop) money(p *toll.Plan, id string, cents int64, taken, loss, held, balance toll.Credits) {
	s.Helper()
	o, a := s.state(id), s.account(p, holder)
	if o.Status != toll.OrderConfirmed || o.RefundedCents != cents || o.RefundedCredits != taken || o.Loss != loss ||
		o.HeldBack != held || a.Balance != balance {
		s.Fatalf("%d cents, %d taken, %d lost, %d held, balance %d; want %d, %d, %d, %d, %d: %+v", o.RefundedCents,
			o.RefundedCredits, o.Loss, o.HeldBack, a.Balance, cents, taken, loss, held, balance, o)
	}
	s.audit()
	found, err := s.ledgers[0].Audit(s.ctx)
	if err != nil || len(found) > 0 {
		s.Fatal(err, found)
	}
}

// adjust sets the refunds and the dispute of an order, once in each of two processes.
func (s *shop) adjust(id string, a rail.Adjustment) {
	s.Helper()
	for i := range 2 {
		must.Do(s, s.at(i).Decisions.Change(s.ctx, s.state(id).Account, func(t *rail.Tx) error { return t.Adjust(id, a) }))
	}
}

// T83: an order is refunded or disputed after 0, 50 and 100 % of its credits are spent. The unspent
// credits are taken back, and the rest is a loss. When the money returns, so do the credits.
// T83
func TestMoneyBack(t *testing.T) {
	eachRail(t, func(s *shop) {
		d := s.cardDelegation(100_000)
		for _, spent := range []toll.Credits{0, 50, 100} {
			left := 100 - spent
			sums := func(p *toll.Plan, id string, cents int64, due toll.Credits) {
				s.Helper()
				taken := min(due, left)
				s.money(p, id, cents, taken, due-taken, 0, left-taken)
			}
			p, id, _ := s.bought(d, spent, nil)
			s.adjust(id, rail.Adjustment{RefundedCents: 500})
			sums(p, id, 500, 100)

			p, id, _ = s.bought(d, spent, nil)
			s.adjust(id, rail.Adjustment{RefundedCents: 250})
			sums(p, id, 250, 50)
			s.adjust(id, rail.Adjustment{}) // the refund failed later
			sums(p, id, 0, 0)

			p, id, _ = s.bought(d, spent, nil)
			for i, cents := range []int64{167, 334, 500} {
				s.adjust(id, rail.Adjustment{RefundedCents: cents})
				sums(p, id, cents, []toll.Credits{33, 66, 100}[i])
			}
			s.adjust(id, rail.Adjustment{RefundedCents: 334})
			sums(p, id, 334, 66)

			for _, end := range []string{store.DisputeWon, store.DisputeLost} {
				own := s.cardDelegation(1000)
				p, id, _ = s.bought(own, spent, nil)
				s.adjust(id, rail.Adjustment{Dispute: store.DisputeOpen})
				sums(p, id, 0, 100)
				if got := s.status(own); got != toll.StatusFrozen {
					s.Fatal(got)
				}
				_, err := s.at(0).Delegations.Unfreeze(s.ctx, holder, own)
				s.code(err, toll.CodeDelegationFrozen)
				s.adjust(id, rail.Adjustment{Dispute: end})
				read := must.Get(s.at(1).OrderByID(s.ctx, owner, id))(s)
				if end == store.DisputeWon {
					sums(p, id, 0, 0)
					if got := s.status(own); got != toll.StatusActive || read.Disputed {
						s.Fatalf("%s, %+v", got, read)
					}
					continue
				}
				sums(p, id, 0, 100)
				if got := s.status(own); got != toll.StatusFrozen || !read.Disputed || read.RefundedCredits != left {
					s.Fatalf("%s, %+v", got, read)
				}
				must.Get(s.at(0).Delegations.Unfreeze(s.ctx, holder, own))(s)
			}
		}
		// A dispute of a part takes the disputed share, beside what is refunded, and returns it when it is won.
		for _, spent := range []toll.Credits{0, 50, 90} {
			for _, end := range []string{store.DisputeWon, store.DisputeLost} {
				p, id, _ := s.bought(s.cardDelegation(1000), spent, nil)
				for _, step := range []struct {
					a   rail.Adjustment
					due toll.Credits
				}{
					{rail.Adjustment{Dispute: store.DisputeOpen, DisputedCents: 100}, 20},
					{rail.Adjustment{Dispute: end, DisputedCents: map[string]int64{store.DisputeLost: 100}[end]}, map[string]toll.Credits{store.DisputeLost: 20}[end]},
					{rail.Adjustment{RefundedCents: 200, Dispute: store.DisputeLost, DisputedCents: 100}, 60},
					{rail.Adjustment{RefundedCents: 200, Dispute: store.DisputeOpen, DisputedCents: 400}, 100},
					{rail.Adjustment{Dispute: store.DisputeLost}, 100},
					{rail.Adjustment{Dispute: store.DisputeLost, DisputedCents: 101}, 20},
				} {
					s.adjust(id, step.a)
					taken := min(step.due, 100-spent)
					s.money(p, id, step.a.RefundedCents, taken, step.due-taken, 0, 100-spent-taken)
				}
			}
		}
		if got := s.remaining(d); got != 100_000-9*500 {
			s.Fatalf("%d cents are left: refunds give none back", got)
		}
	})
}

// T83: open holds keep what they need until they end.
// T83
func TestMoneyBackUnderHolds(t *testing.T) {
	eachRail(t, func(s *shop) {
		d := s.cardDelegation(100_000)
		for _, settles := range []toll.Credits{-1, 0, 10, 30} { // -1: the hold is released
			p, id, perm := s.bought(d, 40, nil)
			held := s.hold(p, perm, 30, time.Hour)
			s.adjust(id, rail.Adjustment{RefundedCents: 250})
			s.money(p, id, 250, 30, 0, 20, 30)
			s.later(0)
			s.money(p, id, 250, 30, 0, 20, 30)
			if settles >= 0 {
				s.settle(p, perm, held, settles)
			} else {
				must.Get(s.ledgers[0].Release(s.ctx, perm.Account(), held))(s)
			}
			s.later(1)
			used := max(settles, 0)
			taken := min(50, 60-used)
			s.money(p, id, 250, taken, 50-taken, 0, 60-used-taken)
		}
		var jobs int
		must.Do(s, s.store.QueryRow(s.ctx, "SELECT COUNT(*) FROM jobs WHERE kind = $1", store.JobTakeBack).Scan(&jobs))
		if jobs != 0 {
			s.Fatalf("%d jobs are left", jobs)
		}
	})
}

// A time plan ends when its whole price is refunded, or while the payment is disputed. It runs again
// when a refund fails or the dispute is won.
func TestAdjust_TimePlan(t *testing.T) {
	eachRail(t, func(s *shop) {
		p, id, _ := s.bought(s.cardDelegation(1000), 0, both(timed, fiat, ten))
		for _, step := range []struct {
			a    rail.Adjustment
			runs bool
		}{
			{rail.Adjustment{RefundedCents: 499}, true},
			{rail.Adjustment{RefundedCents: 500}, false},
			{rail.Adjustment{RefundedCents: 100}, true},
			{rail.Adjustment{RefundedCents: 100, Dispute: store.DisputeOpen, DisputedCents: 399}, true},
			{rail.Adjustment{RefundedCents: 100, Dispute: store.DisputeOpen}, false},
			{rail.Adjustment{RefundedCents: 100, Dispute: store.DisputeWon}, true},
		} {
			s.adjust(id, step.a)
			a, o := s.account(p, holder), s.state(id)
			if a.Subscribed(s.clock()) != step.runs || (o.RefundedCredits == 0) != step.runs {
				s.Fatalf("%+v: %+v, %+v", step, a, o)
			}
			s.audit()
		}
	})
}

// A refunded order still counts for the limit of orders of a plan, and for the one trial.
func TestAdjust_Limits(t *testing.T) {
	eachRail(t, func(s *shop) {
		d := s.cardDelegation(10_000)
		for code, f := range map[toll.Code]func(p *toll.Plan){
			toll.CodeTrialUsed:   trial,
			toll.CodePlanSoldOut: func(p *toll.Plan) { p.MaxOrders = 1 },
		} {
			p, id, _ := s.bought(d, 0, both(fiat, f))
			s.adjust(id, rail.Adjustment{RefundedCents: 500})
			_, err := s.charge(0, p, d)
			s.code(err, code)
		}
	})
}

// Seller and buyer each get one event for a refund, for each change of a dispute, and for an
// inquiry, which changes no credits.
func TestAdjust_Events(t *testing.T) {
	eachRail(t, func(s *shop) {
		d := s.cardDelegation(1000)
		p, id, _ := s.bought(d, 0, nil)
		must.Do(s, s.rail.Dispute(id, "")) // an inquiry
		s.money(p, id, 0, 0, 0, 0, 100)
		if got := s.status(d); got != toll.StatusActive {
			s.Fatal(got)
		}
		for range 2 {
			must.Do(s, s.rail.Dispute(id, store.DisputeOpen))
		}
		must.Do(s, s.rail.Dispute(id, store.DisputeWon))
		must.Do(s, s.rail.Refund(id, 100))
		must.Do(s, s.rail.FailRefunds(id))
		type told struct {
			typ      toll.EventType
			inquiry  bool
			outcome  string
			disputed bool
			cents    toll.Cents
		}
		want := []told{
			{typ: toll.EventOrderDisputed, inquiry: true}, {typ: toll.EventOrderDisputed, disputed: true},
			{typ: toll.EventOrderDisputeClosed, outcome: "won"}, {typ: toll.EventOrderRefunded, cents: 100}, {typ: toll.EventOrderRefunded},
		}
		for _, who := range []toll.Address{holder, owner} {
			rows, err := s.store.Query(s.ctx, "SELECT type, data FROM events WHERE principal = $1 AND object_id = $2 ORDER BY seq", who.Lower(), id)
			must.Do(s, err)
			var got []told
			for rows.Next() {
				var typ, data string
				must.Do(s, rows.Scan(&typ, &data))
				var e toll.OrderDispute
				must.Do(s, json.Unmarshal([]byte(data), &e))
				got = append(got, told{toll.EventType(typ), e.Inquiry, e.Outcome, e.Disputed, e.RefundedCents})
			}
			must.Do(s, rows.Err())
			rows.Close()
			if got = got[2:]; !slices.Equal(got, want) { // after created and paid
				s.Errorf("%s: %+v, want %+v", who, got, want)
			}
		}
		if got := s.events(d); !slices.Equal(got, []toll.EventType{toll.EventDelegationCreated, toll.EventDelegationFrozen, toll.EventDelegationUnfrozen}) {
			s.Error(got)
		}
	})
}

// A delegation with two disputed payments is unfrozen when both disputes are won, unless declines
// have frozen it as well.
func TestAdjust_TwoDisputes(t *testing.T) {
	eachRail(t, func(s *shop) {
		d := s.cardDelegation(10_000)
		_, a, _ := s.bought(d, 0, nil)
		p, b, _ := s.bought(d, 0, nil)
		status := func(want toll.PermissionStatus) {
			s.Helper()
			if got := s.status(d); got != want {
				s.Fatalf("%s, want %s", got, want)
			}
		}
		s.adjust(a, rail.Adjustment{Dispute: store.DisputeOpen})
		s.adjust(b, rail.Adjustment{Dispute: store.DisputeOpen})
		s.adjust(a, rail.Adjustment{Dispute: store.DisputeWon})
		status(toll.StatusFrozen)
		s.adjust(b, rail.Adjustment{Dispute: store.DisputeWon})
		status(toll.StatusActive)
		s.rail.Behave(declined)
		for i := range 3 {
			_, err := s.charge(i, p, d)
			s.code(err, toll.CodeCardDeclined)
		}
		s.adjust(a, rail.Adjustment{Dispute: store.DisputeOpen})
		s.adjust(a, rail.Adjustment{Dispute: store.DisputeWon})
		status(toll.StatusFrozen)
		must.Get(s.at(0).Delegations.Unfreeze(s.ctx, holder, d))(s)
		status(toll.StatusActive)
	})
}

// A dispute that is lost when it is first seen freezes the delegation, until its owner unfreezes it.
func TestAdjust_LostAtOnce(t *testing.T) {
	eachRail(t, func(s *shop) {
		d := s.cardDelegation(10_000)
		_, id, _ := s.bought(d, 0, nil)
		s.adjust(id, rail.Adjustment{Dispute: store.DisputeLost})
		if got := s.status(d); got != toll.StatusFrozen {
			s.Fatalf("the delegation is %s", got)
		}
		must.Get(s.at(0).Delegations.Unfreeze(s.ctx, holder, d))(s)
		s.adjust(id, rail.Adjustment{Dispute: store.DisputeLost})
		if got := s.status(d); got != toll.StatusActive {
			s.Fatalf("the delegation is %s", got)
		}
	})
}

// A dispute does not freeze a delegation that is revoked.
func TestAdjust_RevokedDelegation(t *testing.T) {
	eachRail(t, func(s *shop) {
		d := s.cardDelegation(1000)
		_, id, _ := s.bought(d, 0, nil)
		must.Get(s.at(0).Delegations.Revoke(s.ctx, holder, d))(s)
		s.adjust(id, rail.Adjustment{Dispute: store.DisputeOpen})
		s.adjust(id, rail.Adjustment{Dispute: store.DisputeWon})
		want := []toll.EventType{toll.EventDelegationCreated, toll.EventDelegationRevoked}
		if got := s.events(d); s.status(d) != toll.StatusRevoked || !slices.Equal(got, want) {
			s.Errorf("%s, %v", s.status(d), got)
		}
	})
}

// An order that is not paid refuses an adjustment with an error, so that the rail retries later.
func TestAdjust_Unpaid(t *testing.T) {
	eachRail(t, func(s *shop) {
		s.rail.Behave(declined)
		_, err := s.charge(0, s.plan(fiat), s.cardDelegation(1000))
		s.code(err, toll.CodeCardDeclined)
		id := toll.AsError(err).Params["orderId"].(string)
		adjust := func(id string, account [16]byte) error {
			return s.at(0).Decisions.Change(s.ctx, account, func(t *rail.Tx) error { return t.Adjust(id, rail.Adjustment{RefundedCents: 1}) })
		}
		s.code(adjust(id, s.state(id).Account), toll.CodeInternal)
		s.code(adjust(toll.NewUUID(), s.state(id).Account), toll.CodeOrderNotFound)
	})
}

// killed runs f until the process of a checkout dies at a step.
func (s *shop) killed(i int, at string, f func()) {
	s.at(i).Failpoint(func(step string) {
		if step == at {
			panic("killed")
		}
	})
	defer s.at(i).Failpoint(nil)
	defer func() { _ = recover() }()
	f()
}

// F11: a process dies before and after the commit of each step. A repeated adjustment ends the
// same.
// F11
func TestAdjustKilled(t *testing.T) {
	eachRail(t, func(s *shop) {
		for _, at := range []string{"finish", "adjusting", "finished"} {
			p, id, _ := s.bought(s.cardDelegation(1000), 30, nil)
			account := s.state(id).Account
			for _, a := range []rail.Adjustment{
				{RefundedCents: 250}, {RefundedCents: 250, Dispute: store.DisputeOpen}, {RefundedCents: 100, Dispute: store.DisputeWon},
			} {
				s.killed(0, at, func() {
					_ = s.at(0).Decisions.Change(s.ctx, account, func(t *rail.Tx) error { return t.Adjust(id, a) })
				})
				s.audit()
				s.adjust(id, a)
			}
			s.money(p, id, 100, 20, 0, 0, 50)
			if got := s.events(id); !slices.Equal(got[2:], []toll.EventType{
				toll.EventOrderRefunded, toll.EventOrderDisputed, toll.EventOrderRefunded, toll.EventOrderDisputeClosed,
			}) {
				s.Errorf("%s: %v", at, got)
			}
		}
	})
}

// T83: refunds, disputes, holds and settlements in random order. The books agree after each step.
// At the end the credits that were taken back or lost are those that follow from refunds and
// disputes.
// T83
func TestRandomMoney(t *testing.T) {
	eachRail(t, func(s *shop) {
		seed := uint64(time.Now().UnixNano())
		s.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 83))
		p := s.plan(both(fiat, ten))
		d := s.cardDelegation(100_000)
		perm := s.permission(p, "", nil)
		var ids, holds []string
		none := ""
		for step := range 120 {
			i := r.IntN(2)
			switch n := r.IntN(8); {
			case n == 0 || len(ids) == 0:
				o, err := s.charge(i, p, d)
				if errors.Is(err, toll.NewError(toll.CodeDelegationFrozen)) {
					continue
				}
				must.Do(s, err)
				ids = append(ids, o.OrderID)
			case n < 4:
				s.adjust(ids[r.IntN(len(ids))], rail.Adjustment{
					RefundedCents: int64(r.IntN(501)), Dispute: []string{"", "", store.DisputeOpen, store.DisputeWon, store.DisputeLost}[r.IntN(5)],
				})
			case n == 4:
				h, err := s.ledgers[0].Hold(s.ctx, ledger.HoldOp{
					Plan: p.ID, Subscriber: holder, Permission: perm.Hash, Amount: toll.Credits(1 + r.IntN(8)), Until: s.clock().Add(time.Hour), OrderTx: &none,
				})
				if err == nil {
					holds = append(holds, h.RequestID)
				}
			case n == 5 && len(holds) > 0:
				_, err := s.ledgers[0].Release(s.ctx, perm.Account(), holds[r.IntN(len(holds))])
				if err != nil && !ledger.IsRefused(err, ledger.SettledAlready) {
					s.Fatal(err)
				}
			case n == 6 && len(holds) > 0:
				_, err := s.ledgers[0].Settle(s.ctx, ledger.SettleOp{
					Plan: p.ID, Subscriber: holder, Permission: perm.Hash, RequestID: holds[r.IntN(len(holds))], Amount: toll.Credits(1 + r.IntN(4)), OrderTx: &none,
					Render: func(ledger.Receipt) []byte { return nil },
				})
				if _, refused := errors.AsType[*ledger.Refusal](err); err != nil && !refused {
					s.Fatal(err)
				}
			case n == 7:
				s.now.Add((time.Duration(r.IntN(30)) * time.Minute).Microseconds())
				s.jobs(i)
			}
			s.audit()
			if s.Failed() {
				s.Fatalf("step %d", step)
			}
		}
		s.now.Add(2 * time.Hour.Microseconds())
		s.jobs(0)
		a, granted, out := s.account(p, holder), toll.Credits(0), toll.Credits(0)
		for _, id := range ids {
			o := s.state(id)
			due := toll.Credits(int64(o.Credits) * o.RefundedCents / 500)
			if o.Dispute == store.DisputeOpen || o.Dispute == store.DisputeLost {
				due = o.Credits
			}
			if o.HeldBack != 0 || o.RefundedCredits+o.Loss != due {
				s.Errorf("%+v, due %d", o, due)
			}
			granted += o.Credits
			out += o.RefundedCredits
		}
		if a.Balance != granted-out-a.Burned {
			s.Errorf("%d granted, %d out of use, %+v", granted, out, a)
		}
	})
}
