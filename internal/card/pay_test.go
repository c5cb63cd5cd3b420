package card_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card/double"
)

// A person pays on the page of an order, and the job of the order sees it.
func TestPage_Paid(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
		id := s.order(p)
		if status, location := s.pay(s.page(id), "4242424242424242"); status != 200 && status != 303 || location == "" {
			s.Fatalf("the page answered %d, %q", status, location)
		}
		s.later(time.Minute)
		s.granted(id)
		if n, cents := s.charges(); n != 1 || cents != 500 || s.balance(p) != 100 {
			s.Fatalf("%d charges, %d cents, %d credits", n, cents, s.balance(p))
		}
	})
}

// A page is changed behind our back: nothing is granted, and the money goes back.
func TestT78_OtherAmount(t *testing.T) {
	for name, change := range map[string]double.Fault{
		"less":     {Kind: "amount", Amount: 100},
		"more":     {Kind: "amount", Amount: 501},
		"currency": {Kind: "amount", Amount: 500, Currency: "eur"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(s *scene) {
				p := s.plan()
				id := s.order(p)
				change.Object = s.row(id).Session
				s.fault(change)
				s.pay(s.page(id), "4242424242424242")
				s.later(2 * time.Minute)
				s.failed(id, toll.CodeCheckoutFailed)
				s.rejected(id, 1)
				if s.balance(p) != 0 || len(s.alarms()) == 0 {
					s.Fatalf("%d credits, alarms %q", s.balance(p), s.alarms())
				}
			})
		})
	}
}
