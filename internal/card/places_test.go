package card_test

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
)

var waiting = toll.MustAddress("0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC")

// limited is a plan with so many places.
func (s *scene) limited(places int64) *toll.Plan {
	s.Helper()
	return s.plan(func(p *toll.Plan) { p.MaxOrders = places })
}

// opens asks for a page of a plan.
func (s *scene) opens(caller toll.Address, p *toll.Plan) (orderID string, err error) {
	out, err := s.at().Fiat(s.ctx, checkout.FiatRequest{Caller: caller, Plan: p, Session: rail.SessionInput{Hosted: true}, Wait: soon}, nil)
	if err != nil {
		return "", err
	}
	return out.OrderID, nil
}

// An unpaid page keeps its place for ten minutes. Then it ends, first at Stripe, for the next buyer; nobody can pay it any more.
func TestPlaces_UnpaidPageGivesItsPlace(t *testing.T) {
	each(t, func(s *scene) {
		p := s.limited(1)
		first := s.order(p)
		page := s.page(first)
		s.pass(9 * time.Minute)
		_, err := s.opens(waiting, p)
		s.code(err, toll.CodePlanSoldOut)
		s.pass(2 * time.Minute)
		second := must.Get(s.opens(waiting, p))(s)
		s.failed(first, toll.CodeCheckoutFailed)
		s.pay(page, goodCard)
		if n, _ := s.chargesOf(first); n != 0 {
			s.Fatal("a page that gave its place was paid")
		}
		s.pay(s.page(second), goodCard)
		s.decided(second, time.Minute)
		s.granted(second)
		s.pass(11 * time.Minute)
		_, err = s.opens(buyer, p) // the place is sold
		s.code(err, toll.CodePlanSoldOut)
	})
}

// A page that is being paid keeps its place, however old it is: while the bank asks the person, while Stripe decides, and when
// the payment comes between the look at the page and its end.
func TestPlaces_PaidPageKeepsItsPlace(t *testing.T) {
	for name, pay := range map[string]func(s *scene, page string){
		"asked by the bank": func(s *scene, page string) { s.pay(page, "4000002760003184") },
		"processing": func(s *scene, page string) {
			s.fault(double.Fault{Kind: "processing"})
			s.pay(page, goodCard)
		},
		"paid":            func(s *scene, page string) { s.pay(page, goodCard) },
		"paid as it ends": func(s *scene, page string) { s.steps.Store("card.ending", func() { s.pay(page, goodCard) }) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(s *scene) {
				p := s.limited(1)
				first := s.order(p)
				page := s.page(first)
				s.pass(11 * time.Minute)
				pay(s, page)
				_, err := s.opens(waiting, p)
				s.code(err, toll.CodePlanSoldOut)
				if name == "asked by the bank" {
					if row := s.row(first); row.State != string(card.Page) {
						s.Fatalf("the page is %s", row.State)
					}
					return
				}
				s.decided(first, 2*time.Minute)
				s.granted(first)
			})
		})
	}
}

// A process that dies while it ends a page leaves the rest to the job of the order.
func TestPlaces_KilledWhileAPageEnds(t *testing.T) {
	atSteps(t, []string{"card.ending", "card.calling", "card.answered", "card.deciding", "card.decided"}, func(s *scene, step string) {
		p := s.limited(1)
		first := s.order(p)
		s.pass(11 * time.Minute)
		s.dies(step)
		survives(func() { _, _ = s.opens(waiting, p) })
		if step != "" {
			s.wasKilled(step)
			s.restarts()
		}
		s.decided(first, 10*time.Minute)
		s.failed(first, toll.CodeCheckoutFailed)
		second := must.Get(s.opens(waiting, p))(s)
		s.pay(s.page(second), goodCard)
		s.decided(second, time.Minute)
		s.granted(second)
	})
}

// Of several buyers who wait for two places each gets one, or none, and no place is sold twice. A top-up waits like a page.
func TestPlaces_SeveralWait(t *testing.T) {
	each(t, func(s *scene) {
		p := s.limited(2)
		s.order(p)
		must.Get(s.opens(seller, p))(s)
		s.pass(11 * time.Minute)
		d := s.delegation(s.card("pm_card_visa"), 1000)
		must.Do(s, s.at().CanTopUp(s.ctx, checkout.TopUp{Plan: p, Subscriber: buyer, DelegationID: d, Needed: 1}))
		var group sync.WaitGroup
		var placed atomic.Int64
		for i := range 4 {
			group.Go(func() {
				_, err := s.opens(toll.Address{19: byte(i + 1)}, p)
				if err == nil {
					placed.Add(1)
				} else if !errors.Is(err, toll.NewError(toll.CodePlanSoldOut)) {
					s.Error(err)
				}
			})
		}
		group.Wait()
		if n := placed.Load(); n != 2 {
			s.Fatalf("%d of 2 places were taken", n)
		}
		s.pass(11 * time.Minute)
		must.Do(s, s.at().topUp(p, d, ""))
		s.granted(s.lastOrder())
		if a, err := s.ledger.Account(s.ctx, ledger.NewAccountID(p.ID, buyer)); err != nil || a.Balance != 100 {
			s.Fatalf("%+v, %v", a, err)
		}
	})
}

// While all pages of a plan are being paid, callers who wait do not have Stripe asked each time.
func TestPlaces_FullPlanIsAskedSeldom(t *testing.T) {
	each(t, func(s *scene) {
		p := s.limited(1)
		first := s.order(p)
		s.pay(s.page(first), "4000002760003184")
		s.pass(11 * time.Minute)
		var asked atomic.Int64
		s.put(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			asked.Add(1)
			return next.RoundTrip(r)
		})
		for range 20 {
			_, err := s.opens(waiting, p)
			s.code(err, toll.CodePlanSoldOut)
		}
		if n := asked.Load(); n != 1 {
			s.Fatalf("Stripe was asked %d times", n)
		}
		s.pass(11 * time.Second)
		_, err := s.opens(waiting, p)
		s.code(err, toll.CodePlanSoldOut)
		if n := asked.Load(); n != 2 {
			s.Fatalf("Stripe was asked %d times", n)
		}
	})
}

// Callers who wait at the same time for a plan whose pages are all being paid leave the requests to Stripe to others.
func TestPlaces_FullPlanIsAskedBySeveral(t *testing.T) {
	each(t, func(s *scene) {
		p := s.limited(1)
		first := s.order(p)
		s.pay(s.page(first), "4000002760003184")
		s.pass(11 * time.Minute)
		var asked atomic.Int64
		s.put(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			asked.Add(1)
			time.Sleep(100 * time.Millisecond)
			return next.RoundTrip(r)
		})
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				if _, err := s.opens(waiting, p); !errors.Is(err, toll.NewError(toll.CodePlanSoldOut)) {
					s.Error(err)
				}
			})
		}
		group.Wait()
		if n := asked.Load(); n > 2 {
			s.Fatalf("Stripe was asked %d times", n)
		}
	})
}
