package checkout_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
)

// yields has a rail say that nobody can tell when an order is decided.
func (s *shop) yields(i int, id string, after error) error {
	s.Helper()
	return s.at(i).Decisions.Change(s.ctx, s.state(id).Account, func(t *rail.Tx) error {
		if err := t.ReturnSlot(id); err != nil {
			return err
		}
		return after
	})
}

// An open order gives its place back, once however often the rail says so, and nothing else: not its cents, and not the trial.
// Decided after all it is an order of the plan beyond its limit, or it fails and gives no place back again.
func TestYield(t *testing.T) {
	for _, decline := range []bool{false, true} {
		eachRail(t, func(s *shop) {
			p := s.plan(both(usdc(100), trial, func(p *toll.Plan) { p.MaxOrders = 2 }))
			d := s.delegation(300)
			s.rail.Behave(railtest.Behaviour{Steps: 1 << 30})
			must.Get(s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, DelegationID: d, Wait: time.Millisecond}, nil))(s)
			s.jobs(0)
			first := s.rail.Purchases()[0]
			s.rail.Behave(railtest.Behaviour{})
			buy := func(who byte, want error) {
				s.Helper()
				if _, err := s.order(int(who), toll.Address{19: who}, p); !errors.Is(err, want) {
					s.Errorf("buyer %d: %v, want %v", who, err, want)
				}
				s.audit()
			}
			full := toll.NewError(toll.CodePlanSoldOut)
			buy(1, nil)
			buy(2, full)
			lost := errors.New("the transaction is undone")
			if err := s.yields(0, first.OrderID, lost); !errors.Is(err, lost) {
				s.Error(err)
			}
			buy(2, full)
			atOnce(8, func(i int) {
				must.Check(s, s.yields(i, first.OrderID, nil))
			})
			if o := s.state(first.OrderID); !o.Open || s.remaining(d) != 200 {
				s.Errorf("%+v, %d cents left", o, s.remaining(d))
			}
			atOnce(8, func(i int) {
				if _, err := s.order(i, toll.Address{19: byte(10 + i)}, p); err != nil && !errors.Is(err, full) {
					s.Error(err)
				}
			})
			if s.orders(p) != 3 {
				s.Errorf("%d orders", s.orders(p))
			}
			buy(2, full)
			if _, err := s.order(0, holder, p); err == nil {
				s.Error("the trial was given back")
			}

			if decline {
				must.Do(s, s.rail.Expire(first.OrderID))
			} else {
				must.Do(s, s.rail.Complete(first.OrderID))
			}
			s.settleDown(0)
			o, orders, cents := s.state(first.OrderID), int64(3), toll.Cents(200)
			if decline {
				orders, cents = 2, 300
			}
			if o.Open || (o.Status == toll.OrderFailed) != decline || s.orders(p) != orders || s.remaining(d) != cents {
				s.Errorf("%+v, %d orders, %d cents left", o, s.orders(p), s.remaining(d))
			}
			must.Do(s, s.yields(1, first.OrderID, nil)) // too late to mean anything
			buy(2, full)
		})
	}
}
