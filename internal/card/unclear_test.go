package card_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
)

const (
	intents  = "/v1/payment_intents"
	sessions = "/v1/checkout/sessions"
)

// post returns a fault of the next POST requests to a path.
func post(kind, path string, count int, after bool) double.Fault {
	return double.Fault{Kind: kind, Method: "POST", Path: path, Count: count, After: after}
}

// eachAnswer runs a test on each store for each answer that leaves the outcome unclear. executed
// reports whether the processor executes the request, or a repeat of it.
func eachAnswer(t *testing.T, f func(s *scene, fault double.Fault, executed bool)) {
	t.Helper()
	each(t, func(s *scene) {
		for _, fault := range []double.Fault{
			{Kind: "cut", Count: 1}, {Kind: "cut", Count: 1, After: true}, // once
			{Kind: "cut", Count: 3}, {Kind: "cut", Count: 3, After: true}, // as often as one run sends
			{Kind: "cut", Count: 8}, {Kind: "429", Count: 4}, {Kind: "500", Count: 1, After: true}, {Kind: "500", Count: 1},
		} {
			s.Logf("%+v", fault)
			fault.Method = "POST"
			f(s, fault, fault.Kind != "500" || fault.After)
			s.fresh()
		}
	})
}

// After a lost answer there is one charge and one grant, or neither when the processor has no
// payment.
// T80
func TestLostAnswerOfCharge(t *testing.T) {
	eachAnswer(t, func(s *scene, fault double.Fault, executed bool) {
		p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1000)
		fault.Path = intents
		s.fault(fault)
		id, ended := s.placed(func() error { return s.at().topUp(p, d, "") })
		s.decided(id, 20*time.Minute)
		err := <-ended
		if !executed {
			s.failed(id, toll.CodeCardUnreachable)
			s.later(11 * time.Minute) // the amount is reserved for as long as the payment may show up
			if n, _ := s.chargesOf(id); n != 0 || s.remaining(d) != 1000 || err == nil {
				s.Fatalf("%d charges, %d left, %v", n, s.remaining(d), err)
			}
			return
		}
		if s.bill(p, id); s.remaining(d) != 500 {
			s.Fatalf("%d left", s.remaining(d))
		}
		if n := s.count("SELECT COUNT(*) FROM card_calls WHERE call_key = $1 AND status = 200", id+"-1"); n != 1 {
			s.Error("the call is not stored under the order and its attempt")
		}
	})
}

// The same for the page of an order: one session, which a person pays.
// T80
func TestLostAnswerOfPage(t *testing.T) {
	eachAnswer(t, func(s *scene, fault double.Fault, executed bool) {
		p := s.plan()
		fault.Path = sessions
		s.fault(fault)
		id, ended := s.placed(func() error {
			_, err := s.at().Fiat(s.ctx, checkout.FiatRequest{Caller: buyer, Plan: p, Session: rail.SessionInput{Hosted: true}, Wait: soon}, nil)
			return err
		})
		for range 20 {
			if state := s.row(id).State; state == string(card.Page) || state == string(card.Failed) {
				break
			}
			s.later(time.Minute)
		}
		err := <-ended
		if !executed {
			s.failed(id, toll.CodeCardUnreachable)
			return
		}
		if u, ok := errors.AsType[*toll.Error](err); err != nil && (!ok || u.Code != toll.CodeCardUnreachable) {
			s.Fatal(err)
		}
		s.pay(s.page(id), goodCard)
		s.decided(id, 2*time.Minute)
		s.bill(p, id)
	})
}

// The processor fails to cancel a payment, and says so to every repeat, whether it has cancelled it
// or not. The state of the payment ends the order, and nothing is charged.
// T80
func TestFailedCancel(t *testing.T) {
	for name, after := range map[string]bool{"cancelled": true, "not cancelled": false} {
		t.Run(name, func(t *testing.T) {
			each(t, func(s *scene) {
				p, d := s.plan(), s.delegation(s.card("pm_card_authenticationRequired"), 1000)
				s.fault(post("500", intents+"/", 1, after))
				s.code(s.at().topUp(p, d, ""), toll.CodeTopUpRefused)
				s.failed(s.lastOrder(), toll.CodeCardAuthentication)
				if n, _ := s.charges(); n != 0 || s.remaining(d) != 1000 {
					s.Fatalf("%d charges, %d left", n, s.remaining(d))
				}
			})
		})
	}
}

// The same for the end of a page: it has ended, and another one follows.
// T80
func TestFailedExpiry(t *testing.T) {
	each(t, func(s *scene) {
		s.embedded = true
		s.start()
		out := must.Get(s.at().Fiat(s.ctx, checkout.FiatRequest{Caller: buyer, Plan: s.plan(), Wait: soon}, nil))(s)
		s.fault(post("500", sessions+"/", 1, true))
		s.pay(s.page(out.OrderID), "4242424242424242")
		s.decided(out.OrderID, time.Minute)
		s.granted(out.OrderID)
	})
}

// The processor fails to make a customer, and says so to every repeat: the owner gets another one.
func TestEnroll_FailedCustomer(t *testing.T) {
	each(t, func(s *scene) {
		s.fault(post("500", "/v1/customers", 1, true))
		s.enrolled("4242424242424242")
	})
}

// unlisted has the processor leave the objects of a path out of its lists.
func (s *scene) unlisted(path string) {
	s.put(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if r.Method == http.MethodGet && r.URL.Path == path {
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
				Body: io.NopCloser(strings.NewReader(`{"object":"list","data":[],"has_more":false,"url":"` + path + `"}`)),
			}, nil
		}
		return next.RoundTrip(r)
	})
}

// The processor fails once, and repeats that for a day. Two look-ups find nothing, so the order fails, and the next call begins
// another one. The delegation reserves the amount for ten minutes, whatever process is there.
// T80
func TestStoredFailure(t *testing.T) {
	for name, kind := range map[string]string{"a process that lives": "", "one that dies": "card.deciding", "one that died": "card.decided"} {
		t.Run(name, func(t *testing.T) {
			each(t, func(s *scene) {
				p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1500)
				s.fault(post("500", intents, 1, false))
				began := s.clock()
				s.code(s.at().topUp(p, d, "one"), toll.CodeCardUnreachable)
				id := s.lastOrder()
				s.dies(kind)
				s.decided(id, 2*time.Minute)
				if kind != "" {
					s.wasKilled(kind)
				}
				if took := s.clock().Sub(began); took > 5*time.Minute {
					s.Fatalf("the order failed after %s", took)
				}
				s.failed(id, toll.CodeCardUnreachable)
				if s.remaining(d) != 1000 {
					s.Fatalf("%d cents left", s.remaining(d))
				}
				s.audit()
				s.now.Add(1)
				must.Do(s, s.at().topUp(p, d, "one"))
				if again := s.lastOrder(); again == id {
					s.Fatal("no new order was begun")
				}
				if n, _ := s.chargesOf(id); n != 0 || s.remaining(d) != 500 || s.balance(p) != 100 {
					s.Fatalf("%d charges, %d cents left, %d credits", n, s.remaining(d), s.balance(p))
				}
				s.later(11 * time.Minute)
				if s.remaining(d) != 1000 {
					s.Fatalf("%d cents left", s.remaining(d))
				}
			})
		})
	}
}

// The payment of an order that was given up shows up while the amount is reserved, or later. It buys nothing and goes back, and the
// order has no second payment.
// T80
func TestStoredFailureShowsUp(t *testing.T) {
	for name, after := range map[string]time.Duration{"soon": time.Minute, "late": 20 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			each(t, func(s *scene) {
				s.read()
				p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1500)
				s.unlisted(intents)
				s.fault(post("500", intents, 1, true))
				s.code(s.at().topUp(p, d, ""), toll.CodeCardUnreachable)
				id := s.lastOrder()
				s.decided(id, 2*time.Minute)
				s.failed(id, toll.CodeCardUnreachable)
				s.later(after)
				s.put(nil)
				for range 2 { // a repeat changes nothing
					s.read()
					must.Do(s, s.at().rail.Sync(s.ctx, []byte(s.double.Books().Payments[0].PaymentIntent)))
					s.later(time.Minute)
				}
				s.failed(id, toll.CodeCardUnreachable)
				s.rejected(id, 1)
				if n, _ := s.chargesOf(id); n != 1 || s.remaining(d) != 1500 || s.balance(p) != 0 {
					s.Fatalf("%d charges, %d cents left, %d credits", n, s.remaining(d), s.balance(p))
				}
				s.bought(p, d)
			})
		})
	}
}

// The processor fails at the first page of an order, lists it late, and fails at the second one: that is looked up twice as well.
// T80
func TestStoredFailureOfTwoPages(t *testing.T) {
	each(t, func(s *scene) {
		s.embedded = true
		s.start()
		s.unlisted(sessions)
		s.fault(post("500", sessions, 1, true))
		id, ended := s.placed(func() error {
			_, err := s.at().Fiat(s.ctx, checkout.FiatRequest{Caller: buyer, Plan: s.plan(), Wait: soon}, nil)
			return err
		})
		s.code(<-ended, toll.CodeCardUnreachable)
		s.later(20 * time.Second)
		if !strings.Contains(string(s.row(id).Data), `"failing"`) {
			s.Fatalf("the first page was not looked up: %s", s.row(id).Data)
		}
		s.put(nil)
		s.later(2 * time.Minute)
		if got := s.row(id).State; got != string(card.Page) {
			s.Fatalf("the first page is %s", got)
		}
		cut := true
		s.put(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			switch {
			case r.Method != http.MethodPost || r.URL.Path != sessions:
				return next.RoundTrip(r)
			case cut:
				return nil, io.ErrUnexpectedEOF
			}
			h := http.Header{"Content-Type": {"application/json"}, "Idempotent-Replayed": {"true"}}
			return &http.Response{StatusCode: 500, Header: h, Request: r, Body: io.NopCloser(strings.NewReader(`{"error":{"type":"api_error"}}`))}, nil
		})
		for range 2 { // at once, so only the first of two look-ups that follow a stored failure
			_, err := s.at().rail.Page(s.ctx, id, true)
			if s.code(err, toll.CodeCardUnreachable); s.row(id).State != string(card.Calling) {
				s.Fatalf("the second page is %s", s.row(id).State)
			}
			cut = false
		}
		s.later(3 * time.Minute)
		s.failed(id, toll.CodeCardUnreachable)
	})
}

// Several processes that work on one order at the same time charge once.
// T80
func TestTwoProcesses(t *testing.T) {
	each(t, func(s *scene) {
		p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1000)
		s.fault(post("cut", intents, 3, false))
		s.kill("card.calling")
		ended := s.inBackground(func() error { return s.at().topUp(p, d, "") })
		s.until(func() bool { _, alive := s.steps.Load("card.calling"); return !alive })
		s.start()
		id := s.lastOrder()
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				if err := s.processes[i%2].rail.Resume(s.ctx, &rail.Purchase{OrderID: id}); err != nil {
					s.Logf("process %d: %v", i%2, err)
				}
			})
		}
		group.Wait()
		s.decided(id, 20*time.Minute)
		// The run of the caller is one of those that may meet the cut connections: it is told so, and the order goes on.
		if err := <-ended; err != nil {
			s.code(err, toll.CodeCardUnreachable)
		}
		s.granted(id)
		if n, _ := s.charges(); n != 1 || s.balance(p) != 100 {
			s.Fatalf("%d charges, %d credits", n, s.balance(p))
		}
	})
}

// After a day the processor may have forgotten the key, so the attempt is looked up, not sent.
// T80
func TestForgottenKey(t *testing.T) {
	for name, executed := range map[string]bool{"executed": true, "not executed": false} {
		t.Run(name, func(t *testing.T) {
			each(t, func(s *scene) {
				p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1000)
				s.fault(post("cut", intents, 3, executed))
				s.fault(double.Fault{Kind: "cut", Method: "GET", Path: intents})
				ended := s.inBackground(func() error { return s.at().topUp(p, d, "") })
				s.until(func() bool { return len(s.log.with("did not return an object")) > 0 }) // it was sent, and looked up
				s.at().close()
				<-ended
				s.fault(double.Fault{Kind: "clear"})
				s.pass(25 * time.Hour)
				s.start()
				id := s.lastOrder()
				s.decided(id, 20*time.Minute)
				n, _ := s.charges()
				if executed {
					s.granted(id)
				} else {
					s.failed(id, toll.CodeCardUnreachable)
				}
				if want := map[bool]int{true: 1}[executed]; n != want {
					s.Fatalf("%d charges, want %d", n, want)
				}
			})
		})
	}
}

// While the processor refuses the key of the service, orders wait, callers are told for how long,
// and there is an alarm a minute at most.
// T80
func TestKeyRefused(t *testing.T) {
	each(t, func(s *scene) {
		p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1000)
		s.secret = "sk_test_another0123456789"
		s.start()
		err := s.at().topUp(p, d, "")
		s.code(err, toll.CodeCardUnreachable)
		if wait := toll.AsError(err).RetryAfterSecs; wait < 50 || !s.at().rail.Failing() || len(s.alarms()) != 1 {
			s.Fatalf("wait %d s, failing %t, alarms %q", wait, s.at().rail.Failing(), s.alarms())
		}
		s.at().close()
		s.secret = secretKey
		s.start()
		s.decided(s.lastOrder(), 10*time.Minute)
		s.granted(s.lastOrder())
	})
}

// A delegation that its owner ended while Stripe refused the key of the service is not charged later.
// T80
func TestRevokedMeanwhile(t *testing.T) {
	each(t, func(s *scene) {
		p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1000)
		s.secret = "sk_test_another0123456789"
		s.start()
		s.code(s.at().topUp(p, d, ""), toll.CodeCardUnreachable)
		must.Get(s.at().Delegations.Revoke(s.ctx, buyer, d))(s)
		s.at().close()
		s.secret = secretKey
		s.start()
		s.decided(s.lastOrder(), 3*time.Minute)
		s.failed(s.lastOrder(), toll.CodeDelegationRevoked)
		if n, _ := s.charges(); n != 0 {
			s.Fatalf("%d charges", n)
		}
	})
}
