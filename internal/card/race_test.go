package card_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/checkout"
)

// What one process has read of an attempt that another one has ended meanwhile says nothing about
// the next attempt: the order stays open, and its new page can be paid.
func TestPage_EndedMeanwhile(t *testing.T) {
	each(t, func(s *scene) {
		s.embedded = true
		first := s.start()
		out, err := first.Fiat(s.ctx, checkout.FiatRequest{Caller: buyer, Plan: s.plan(), Wait: soon}, nil)
		s.must(err)
		id, page := out.OrderID, ""
		second := s.start()
		read := "/v1/checkout/sessions/" + s.row(id).Session
		s.put(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.URL.Path == read {
				s.put(nil)
				shown, err := second.rail.Page(s.ctx, id, true)
				s.must(err)
				page = shown.URL
			}
			return next.RoundTrip(r)
		})
		s.pass(time.Minute)
		first.run()
		if page == "" || !s.state(id).Open || s.row(id).Attempt != 2 {
			s.Fatalf("page %t, order %+v, payment %s", page != "", s.state(id), s.row(id).Data)
		}
		s.pay(page, "4242424242424242")
		s.later(time.Minute)
		s.granted(id)
		if alarms := s.alarms(); len(alarms) > 0 {
			s.Fatal(alarms)
		}
	})
}
