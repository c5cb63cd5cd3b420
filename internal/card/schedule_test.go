package card_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/rounds"
	"github.com/tollhq/toll/internal/store/storetest"
)

// schedule is what happens to one order.
type schedule struct {
	ByPage, Twice, Restart, Turn bool
	Card, Kill                   string
	Faults                       []double.Fault
}

func newSchedule(r *rand.Rand) (c schedule) {
	c.ByPage, c.Twice, c.Restart, c.Turn = r.IntN(2) == 0, r.IntN(3) == 0, r.IntN(2) == 0, r.IntN(2) == 0
	c.Card = []string{"4242424242424242", "4242424242424242", "4000000000000341", "4000002760003184"}[r.IntN(4)]
	c.Kill = []string{"", "", "calling", "answered", "deciding", "decided", "ending", "event", "cursor"}[r.IntN(9)]
	if kind := []string{"", "lose", "double", "delay", "reorder"}[r.IntN(5)]; kind != "" {
		c.Faults = append(c.Faults, double.Fault{Kind: kind, Count: 2, Seconds: 90})
	}
	path := map[bool]string{true: "/v1/checkout/sessions", false: intents}[c.ByPage]
	switch kind := []string{"", "cut", "cut", "cut", "429", "processing"}[r.IntN(6)]; kind {
	case "":
	case "processing":
		c.Faults = append(c.Faults, double.Fault{Kind: kind})
	default: // more than three are more than one run sends
		c.Faults = append(c.Faults, double.Fault{
			Kind: kind, Method: []string{"POST", "POST", "GET"}[r.IntN(3)], Path: path, Count: 1 + r.IntN(6), After: kind == "cut" && r.IntN(2) == 0,
		})
	}
	return c
}

// I12 and I13: seeded schedules of pages and delegations, payments that a person sends twice, webhooks that are lost, late, doubled or out
// of order, lost answers, turns of the loop, and a kill between two steps. Each order ends in one charge and one grant, or in none of
// both.
// I12 I13
func TestOrders_Schedules(t *testing.T) {
	seed := rand.Uint64()
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		t.Logf("seed %d", seed)
		var now atomic.Pointer[scene]
		hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			defer func() {
				if err != nil || recover() != nil { // a kill
					w.WriteHeader(http.StatusInternalServerError)
				}
			}()
			if s := now.Load(); err == nil && s != nil {
				err = s.processes[0].rail.Receive(r.Context(), r.Header.Get("Stripe-Signature"), body)
			}
		}))
		t.Cleanup(hook.Close)
		s := newScene(t, st, func(o *double.Options) {
			o.Webhooks = []double.Webhook{{URL: hook.URL, Secrets: []string{hookSecret}}}
		})
		now.Store(s)
		p := s.plan()
		methods := map[string]string{
			"4242424242424242": s.card("pm_card_visa"), "4000000000000341": s.card("pm_card_chargeCustomerFail"),
			"4000002760003184": s.card("pm_card_authenticationRequired"),
		}
		for i := range rounds.Of(14, 170) {
			c := newSchedule(rand.New(rand.NewPCG(seed, uint64(i))))
			if !s.carriesOut(c, p, methods[c.Card]) || t.Failed() {
				t.Fatalf("schedule %d: %+v", i, c)
			}
		}
	})
}

// carriesOut carries out a schedule, and reports whether the order ended as it has to.
func (s *scene) carriesOut(c schedule, p *toll.Plan, method string) bool {
	s.Helper()
	before := s.count("SELECT COUNT(*) FROM orders")
	place := func() error {
		_, err := s.at().Fiat(s.ctx, checkout.FiatRequest{Caller: buyer, Plan: p, Session: rail.SessionInput{Hosted: true}, Wait: soon}, nil)
		return err
	}
	if !c.ByPage {
		d := s.delegation(method, 1000)
		place = func() error { return s.at().topUp(p, d, "") }
	}
	for _, f := range c.Faults {
		s.fault(f)
	}
	if c.Kill != "" {
		s.kill("card." + c.Kill)
	}
	ended := s.inBackground(place)
	s.until(func() bool { return s.count("SELECT COUNT(*) FROM orders") == before+1 })
	id := s.lastOrder()
	if c.Restart {
		s.until(func() bool { return s.count("SELECT COUNT(*) FROM card_payments WHERE order_id = $1", id) == 1 })
	}
	for range 15 {
		if state := card.State(s.row(id).State); !c.ByPage || state == card.Page || !s.state(id).Open {
			break
		}
		s.later(time.Minute)
	}
	if c.ByPage && s.state(id).Open {
		for range 1 + map[bool]int{true: 1}[c.Twice] {
			var shown rail.Shown
			survives(func() { shown, _ = s.at().rail.Page(s.ctx, id, true) }) // or it cannot be shown now
			if shown.URL != "" {
				if s.pay(shown.URL, c.Card); c.Card != "4242424242424242" {
					s.pay(shown.URL, "4242424242424242") // a person who was declined takes another card
				}
			}
		}
	}
	if c.Turn {
		s.turnOrDie()
	}
	s.decided(id, 2*time.Hour)
	<-ended
	s.fault(double.Fault{Kind: "clear"})
	s.steps.Clear()
	s.turnOrDie()
	for range 10 {
		if row := s.row(id); !row.Undecided && (row.State == string(card.Paid) || row.State == string(card.Failed) || row.State == string(card.Rejected)) {
			break
		}
		s.later(time.Minute)
	}
	s.later(3 * time.Minute)
	charges, kept, want := 0, 0, 0
	for _, b := range s.double.Books().Payments {
		if b.Metadata["order_id"] == id {
			charges++
			if b.Refunded < b.Captured {
				kept++
			}
		}
	}
	if s.state(id).Status == toll.OrderConfirmed {
		want = 1
	}
	if kept != want || charges > 1 {
		s.Errorf("%d charges, %d not refunded, of an order that is %s: %s", charges, kept, s.state(id).Status, s.row(id).Data)
	}
	mints := s.count(fmt.Sprintf("SELECT COUNT(*) FROM lots WHERE ref = 'mint:%s' OR ref = '%s'", id, id))
	return int(mints) == want
}

// survives runs f, which a kill may end.
func survives(f func()) {
	defer func() {
		if v := recover(); v != nil && v != errKilled {
			panic(v)
		}
	}()
	f()
}

// turnOrDie runs a turn of the loop. An error is that of a fault: a later turn reads the same.
func (s *scene) turnOrDie() {
	survives(func() { _, _ = s.at().rail.Loops()[0].Run(s.ctx) })
	s.pass(30 * time.Second)
}
