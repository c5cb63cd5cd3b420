package checkout_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

var (
	dev     = toll.UUID{1}
	another = toll.UUID{2}
)

// member has a developer in the workspace of the holder, with this limit in cents; negative is none.
func (s *shop) member(user toll.UUID, limit toll.Cents) {
	s.Helper()
	m := store.Membership{Workspace: holder, UserID: user, Role: toll.RoleDeveloper, CreatedAt: s.clock()}
	if limit >= 0 {
		m.SpendLimit = &limit
	}
	must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error {
		err := store.UpdateMembership(s.ctx, tx, m)
		if errors.Is(err, store.ErrNotFound) {
			err = store.InsertMembership(s.ctx, tx, m)
		}
		return err
	}))
}

func (s *shop) counts(user toll.UUID, want toll.Cents) {
	s.Helper()
	got := must.Get(store.SpentBy(s.ctx, s.store, holder, user, s.clock()))(s)
	if got != want {
		s.Fatalf("%d cents count, want %d", got, want)
	}
}

// by orders a plan of this many cents for a member, from the wallet or with a delegation.
func (s *shop) by(user toll.UUID, cents int64, delegation string) error {
	s.Helper()
	_, err := s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, UserID: user, Plan: s.plan(usdc(cents)), DelegationID: delegation, Wait: soon}, nil)
	return err
}

func (s *shop) delegateAs(user toll.UUID, cents toll.Cents, secs toll.Int) (string, error) {
	s.Helper()
	d, err := s.at(0).Delegations.Create(s.ctx, checkout.Owner{Address: holder, UserID: user}, input(func(in *toll.DelegationInput) {
		in.SpendingLimitCents, in.DurationSecs = &cents, &secs
	}), nil)
	if err != nil {
		return "", err
	}
	return d.DelegationID, nil
}

func TestSpendLimit_Orders(t *testing.T) {
	eachRail(t, func(s *shop) {
		s.member(dev, -1)
		must.Do(s, s.by(dev, 300, "")) // counts for a limit that comes later
		s.member(dev, 1000)
		s.member(another, 50)
		s.counts(dev, 300)

		err := s.by(dev, 701, "")
		s.code(err, toll.CodeSpendLimit)
		if left := toll.AsError(err).Params["leftCents"]; left != toll.Cents(700) {
			s.Fatal(left)
		}
		must.Do(s, s.by(dev, 700, ""))
		s.counts(dev, 1000)
		s.code(s.by(dev, 1, ""), toll.CodeSpendLimit)
		must.Do(s, s.by(another, 50, ""))                            // each has their own
		s.code(s.by(toll.UUID{3}, 1, ""), toll.CodeNotAuthenticated) // who has left meanwhile
		must.Do(s, s.by(toll.UUID{}, 5000, ""))                      // an operator's key

		// A free plan costs nothing, and a person types a card on a page of the processor.
		must.Get(s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, UserID: dev, Plan: s.plan(nil)}, nil))(s)
		must.Get(s.at(0).Fiat(s.ctx, checkout.FiatRequest{Caller: holder, Plan: s.plan(fiat), Wait: soon}, nil))(s)
		s.counts(dev, 1000)

		// What fails, and what is undone, does not count.
		s.member(dev, 1500)
		s.rail.Behave(railtest.Behaviour{Decline: true, Code: toll.CodeChainFailed, Reason: "no"})
		s.code(s.by(dev, 500, ""), toll.CodeChainFailed)
		s.rail.Behave(railtest.Behaviour{})
		s.counts(dev, 1000)
		must.Do(s, s.by(dev, 500, ""))
		s.code(s.by(dev, 1, ""), toll.CodeSpendLimit)

		// A token whose worth the service does not know.
		native := s.plan(func(p *toll.Plan) { usdc(1)(p); p.Price.TokenAddress = other })
		_, err = s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, UserID: dev, Plan: native}, nil)
		s.code(err, toll.CodeSpendLimit)
		if s.orders(native) != 0 {
			s.Fatal("a refused order was counted")
		}

		s.now.Store(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC).UnixMicro() - 1)
		s.code(s.by(dev, 1, ""), toll.CodeSpendLimit)
		s.now.Add(1)
		s.counts(dev, 0)
		must.Do(s, s.by(dev, 1500, ""))
		s.code(s.by(dev, 1, ""), toll.CodeSpendLimit)
	})
}

// Orders that are sent at the same time, to two processes, do not pass the limit together.
func TestSpendLimit_AtOnce(t *testing.T) {
	eachRail(t, func(s *shop) {
		s.member(dev, 500)
		for _, room := range s.rooms {
			room.Failpoint(func(at string) {
				if at == "placing" {
					time.Sleep(20 * time.Millisecond) // others have read what is spent by then, unless they wait
				}
			})
		}
		var made atomic.Int64
		plans := make([]*toll.Plan, 12)
		for i := range plans {
			plans[i] = s.plan(usdc(100))
		}
		atOnce(len(plans), func(i int) {
			var err error
			if i%3 == 0 {
				_, err = s.delegateAs(dev, 100, 3600)
			} else {
				_, err = s.at(i).Order(s.ctx, checkout.OrderRequest{Caller: holder, UserID: dev, Plan: plans[i], Wait: soon}, nil)
			}
			if err == nil {
				made.Add(1)
			} else if !errors.Is(err, toll.NewError(toll.CodeSpendLimit)) {
				s.Error(err)
			}
		})
		if made.Load() != 5 {
			s.Fatalf("%d made", made.Load())
		}
		s.counts(dev, 500)
	})
}

func TestSpendLimit_Delegations(t *testing.T) {
	eachRail(t, func(s *shop) {
		s.member(dev, 1000)
		s.member(another, 0)
		foreign := s.delegation(900)
		s.code(s.by(dev, 100, foreign), toll.CodeSpendLimitDelegation)
		s.code(s.at(0).Delegations.MayUse(s.ctx, holder, dev, foreign), toll.CodeSpendLimitDelegation)
		must.Do(s, s.at(0).Delegations.MayUse(s.ctx, holder, toll.UUID{}, foreign))
		s.code(s.at(0).Delegations.MayUse(s.ctx, holder, toll.UUID{3}, foreign), toll.CodeNotAuthenticated)

		_, err := s.delegateAs(another, 1, 3600)
		s.code(err, toll.CodeSpendLimit)
		_, err = s.delegateAs(dev, 1001, 3600)
		s.code(err, toll.CodeSpendLimit)
		own := must.Get(s.delegateAs(dev, 600, 20*toll.DaySecs))(s)
		s.counts(dev, 600) // whole, as long as it lives
		must.Do(s, s.at(0).Delegations.MayUse(s.ctx, holder, dev, own))
		s.code(s.at(0).Delegations.MayUse(s.ctx, holder, another, own), toll.CodeSpendLimitDelegation)
		must.Do(s, s.by(dev, 250, own))
		s.counts(dev, 600) // the order counts once
		s.code(s.by(dev, 401, ""), toll.CodeSpendLimit)
		must.Do(s, s.by(dev, 400, ""))

		// Once it has ended, what it paid counts.
		must.Get(s.at(0).Delegations.Revoke(s.ctx, holder, own))(s)
		s.counts(dev, 650)
		short := must.Get(s.delegateAs(dev, 350, 60))(s)
		must.Do(s, s.by(dev, 50, short))
		s.now.Add((61 * time.Second).Microseconds())
		s.counts(dev, 1000) // another machine, whose clock is slow, may still pay with it
		s.now.Add(time.Minute.Microseconds())
		s.counts(dev, 700)

		long := must.Get(s.delegateAs(dev, 300, 30*toll.DaySecs))(s)
		s.counts(dev, 1000)
		s.now.Store(time.Date(2026, 12, 2, 0, 0, 0, 0, time.UTC).UnixMicro())
		s.counts(dev, 300) // it may pay all of it in the new month
		must.Do(s, s.by(dev, 20, long))
		must.Get(s.at(0).Delegations.Revoke(s.ctx, holder, long))(s)
		s.counts(dev, 20)
	})
}

// What a payment took that became impossible is left again.
func TestSpendLimit_Undone(t *testing.T) {
	eachRail(t, func(s *shop) {
		s.member(dev, 500)
		o := must.Get(s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, UserID: dev, Plan: s.plan(usdc(500)), Wait: soon}, nil))(s)
		s.counts(dev, 500)
		s.undo(0, o.OrderID)
		s.counts(dev, 0)
		must.Do(s, s.by(dev, 500, ""))
	})
}
