package card_test

import (
	"testing"
	"time"
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
