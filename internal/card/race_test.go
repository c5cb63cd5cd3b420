package card_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/must"
)

// One process reads an attempt while another one ends it. The result does not decide the next
// attempt: the order stays open, and its new page can be paid.
func TestPage_EndedMeanwhile(t *testing.T) {
	each(t, func(s *scene) {
		s.embedded = true
		first := s.start()
		out := must.Get(first.Fiat(s.ctx, checkout.FiatRequest{Caller: buyer, Plan: s.plan(), Wait: soon}, nil))(s)
		id, page := out.OrderID, ""
		second := s.start()
		read := "/v1/checkout/sessions/" + s.row(id).Session
		s.put(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.URL.Path == read {
				s.put(nil)
				shown := must.Get(second.rail.Page(s.ctx, id, true))(s)
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

// A payment that the processor does not have any more, as after a restored sandbox, fails its order.
func TestForgottenPayment(t *testing.T) {
	for _, what := range []string{"page", "charge"} {
		t.Run(what, func(t *testing.T) {
			each(t, func(s *scene) {
				s.others = true // the double keeps what it hides
				id, p := "", s.plan()
				if what == "page" {
					id = s.order(p)
				}
				s.put(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
					r.URL.Path = strings.NewReplacer("/pi_", "/pi_gone", "/cs_test_", "/cs_test_gone").Replace(r.URL.Path)
					return next.RoundTrip(r)
				})
				if what == "charge" {
					d := s.delegation(s.card("pm_card_visa"), 1000)
					s.fault(double.Fault{Kind: "processing"})
					s.code(s.at().topUp(p, d, ""), toll.CodeTopUpRefused)
					id = s.lastOrder()
				}
				s.decided(id, 2*time.Minute)
				s.failed(id, toll.CodeCheckoutFailed)
				s.put(nil)
			})
		})
	}
}
