package server_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/rounds"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

const (
	plainCard  = "4242424242424242"
	secureCard = "4000002500003155" // 3-D Secure when it is enrolled
	askingCard = "4000002760003184" // always wants its owner
	emptyCard  = "4000000000000341" // can be enrolled, is declined
)

// cardRequest is a request whose credits a token pays that may buy by card.
func cardRequest(plan toll.PlanID, token, id string, n toll.Credits) *x402.SettleRequest {
	req := settlement(plan, token, id, n)
	accepted := &req.PaymentRequired.Accepts[0]
	accepted.Scheme, accepted.Network = x402.Default.SchemeCard(), "stripe:sandbox"
	return req
}

// buys orders a plan by card delegation until the answer says how it ended.
func (c *cashier) buys(ctx context.Context, k toll.APIKey, delegation string) (o *toll.Order) {
	c.Helper()
	eventually(c.T, "the order is decided", func() bool {
		var err error
		o, err = c.as(k).OrderPlan(ctx, c.plan, client.PaidBy(delegation))
		if err != nil {
			if e := toll.AsError(err); e.HTTPStatus() == http.StatusServiceUnavailable || e.HTTPStatus() == 0 {
				return false
			}
			o = &toll.Order{Status: toll.OrderFailed, FailureReason: string(toll.AsError(err).Code)}
			return true
		}
		return ended(o)
	})
	return o
}

// checkout makes an order that a person pays, and returns its link.
func (c *cashier) checkout(ctx context.Context, k toll.APIKey) (orderID, link string) {
	c.Helper()
	eventually(c.T, "the order has a page", func() bool {
		out, err := c.as(k).Checkout(ctx, c.plan, client.CheckoutParams{SessionType: "hosted"})
		if err != nil || out.Result.URL == "" {
			return false
		}
		orderID, link = out.OrderID, out.Result.URL
		return true
	})
	return orderID, link
}

// ended reports whether an order is decided.
func ended(o *toll.Order) bool { return isPaid(o.Status) || o.Status == toll.OrderFailed }

// captured returns how many payments were captured for an order, and how many of them were not
// fully refunded.
func captured(books double.Books, orderID string) (n, kept int) {
	for _, p := range books.Payments {
		if p.Metadata["order_id"] == orderID {
			n++
			if p.Refunded < p.Captured {
				kept++
			}
		}
	}
	return n, kept
}

// schedule is what happens to one order.
type schedule struct {
	byPage bool
	card   string
	faults []double.Fault
	wait   time.Duration // before it begins
	stays  bool          // the person does not come back from the bank's page
	twice  bool          // and pays a second time
}

func newSchedule(r *rand.Rand) (s schedule) {
	s.byPage = r.IntN(2) == 0
	s.wait = time.Duration(r.IntN(1500)) * time.Millisecond
	s.stays, s.twice = r.IntN(2) == 0, r.IntN(4) == 0
	s.card = []string{plainCard, plainCard, secureCard, askingCard, emptyCard}[r.IntN(5)]
	succeeded := []string{"checkout.session.completed", "payment_intent.succeeded", "charge.succeeded", ""}[r.IntN(4)]
	switch r.IntN(8) {
	case 0:
		s.faults = append(s.faults, double.Fault{Kind: "lose", Type: succeeded})
	case 1:
		s.faults = append(s.faults, double.Fault{Kind: "double", Type: succeeded})
	case 2:
		s.faults = append(s.faults, double.Fault{Kind: "delay", Type: succeeded, Seconds: 3})
	case 3:
		s.faults = append(s.faults, double.Fault{Kind: "reorder", Type: succeeded, Count: 2})
	}
	path := []string{"/v1/checkout/sessions", "/v1/payment_intents"}[r.IntN(2)]
	switch r.IntN(8) {
	case 0:
		s.faults = append(s.faults, double.Fault{Kind: "cut", Method: http.MethodPost, Path: path, After: true})
	case 1:
		s.faults = append(s.faults, double.Fault{Kind: "cut", Method: http.MethodPost, Path: path})
	case 2:
		s.faults = append(s.faults, double.Fault{Kind: "500", Method: http.MethodPost, Path: path, After: true})
	case 3:
		s.faults = append(s.faults, double.Fault{Kind: "429", Path: path})
	case 4:
		s.faults = append(s.faults, double.Fault{Kind: "processing"})
	}
	return s
}

// I12 and I13: seeded schedules of redirects, webhooks that are lost, late, doubled or out of
// order, lost answers, the list of events, and kills of the service and of the double. Each order
// ends in one charge and one grant, or in none of both.
// I12 I13
func TestCardSchedules(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		t.Parallel()
		c := newCashier(t, o, 1, "--order-wait", "1s")
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		const batch = 10
		type person struct {
			key    toll.APIKey
			limits map[string]string
		}
		var people [batch]person
		for i := range people {
			people[i] = person{servertest.Key(t, c.o, fmt.Sprint("buyer ", i)), map[string]string{}}
		}
		for round := range rounds.Of(2, 25) {
			r := rand.New(rand.NewPCG(seed, uint64(round)))
			var done sync.WaitGroup
			var mu sync.Mutex
			orders := map[string]string{} // id -> schedule
			for i := range batch {
				s, k := newSchedule(r), people[i].key
				limit := people[i].limits[s.card]
				if !s.byPage && limit == "" {
					limit = c.limit(k, c.enrolled(k, s.card), 100_000)
					people[i].limits[s.card] = limit
				}
				for _, f := range s.faults {
					c.bank.fault(f)
				}
				once := client.WithIdempotencyKey(t.Context(), fmt.Sprintf("order-%d-%d", round, i))
				done.Go(func() {
					time.Sleep(s.wait)
					id := c.happens(once, s, k, limit)
					mu.Lock()
					defer mu.Unlock()
					orders[id] = fmt.Sprintf("round %d, %+v", round, s)
				})
			}
			killed := time.Duration(r.IntN(2500)) * time.Millisecond
			time.Sleep(killed)
			if round%3 == 2 {
				c.bank.kill()
				c.bank.start()
			}
			c.services[0].Kill()
			c.start(0)
			done.Wait()
			c.bank.fault(double.Fault{Kind: "clear"})
			c.settled()
			books := c.bank.books()
			for id, what := range orders {
				o := must.Get(c.as(c.builder).Order(t.Context(), id))(t)
				want := 0
				if o.Status == toll.OrderConfirmed {
					want = 1
				}
				if n, kept := captured(books, id); kept != want || n > 1 || !ended(o) {
					t.Errorf("order %s is %s (%s), charged %d times, kept %d: %s",
						id, o.Status, o.FailureReason, n, kept, what)
				}
			}
		}
	})
}

// happens runs a schedule, and returns the id of its order.
func (c *cashier) happens(ctx context.Context, s schedule, k toll.APIKey, limit string) (orderID string) {
	// Any process may be away for a while, the one of the bank as well.
	until := func(what string, f func() error) {
		var err error
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if err = f(); err == nil {
				return
			}
		}
		c.Errorf("not within %v: %s of %+v, order %s: %v", patience, what, s, orderID, err)
	}
	if !s.byPage {
		until("an order", func() error {
			o, err := c.as(k).OrderPlan(ctx, c.plan, client.PaidBy(limit))
			if err == nil {
				orderID = o.OrderID
			} else if toll.AsError(err).Code == toll.CodeDelegationFrozen { // by declines of other orders
				_, _ = c.as(k).UnfreezeDelegation(ctx, limit)
			} else if e := toll.AsError(err); e.Params["orderId"] != nil {
				orderID, err = fmt.Sprint(e.Params["orderId"]), nil
			}
			return err
		})
		return orderID
	}
	var link string
	until("a page", func() error {
		out, err := c.as(k).Checkout(ctx, c.plan, client.CheckoutParams{SessionType: "hosted"})
		if err == nil {
			orderID, link = out.OrderID, out.Result.URL
		}
		return err
	})
	p := newShopper(c.T)
	card := s.card
	if card == emptyCard {
		card = plainCard // a person who was declined takes another one
		_ = p.pays(link, emptyCard)
	}
	until("a payment", func() error {
		err := p.pays(link, card)
		if errors.Is(err, errDecided) {
			return nil
		}
		if s.twice && err == nil {
			_ = p.pays(link, card)
		}
		if err == nil && !s.stays && p.status != http.StatusOK {
			return fmt.Errorf("%d at %s", p.status, p.at)
		}
		return err
	})
	return orderID
}

// settled waits until no order is open and no job of the rail is due.
func (c *cashier) settled() {
	c.Helper()
	st := c.store()
	defer st.Close()
	decided(c.T, st)
	eventually(c.T, "every payment is seen", func() bool {
		var n int64
		must.Do(c, st.QueryRow(c.Context(), `SELECT COUNT(*) FROM card_payments
			WHERE undecided OR state NOT IN ('paid', 'failed', 'rejected')`).Scan(&n))
		return n == 0
	})
}

// processes is how many may serve a database at once.
func processes(o servertest.Options) int {
	if o.Database == "" {
		return 1
	}
	return 2
}

// cutTwice has the double lose two answers to what it has done.
func cutTwice(path string) double.Fault {
	return double.Fault{Kind: "cut", Method: http.MethodPost, Path: path, After: true, Count: 2}
}

// T80: the money is taken and the answer is lost. The process dies, and another one resumes the
// order: one charge, one mint.
// T80
func TestAnswerLostAndKilled(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		t.Parallel()
		n := processes(o)
		c := newCashier(t, o, n, "--order-wait", "1s")
		k, method := c.shops("buyer", plainCard)
		limit := c.limit(k, method, 100_000)
		for i := range 4 {
			once := client.WithIdempotencyKey(t.Context(), fmt.Sprint("order-", i))
			c.bank.fault(cutTwice("/v1/payment_intents"))
			_, _ = c.hasty(k, i%n).OrderPlan(once, c.plan, client.PaidBy(limit))
			c.services[i%n].Kill()
			c.start(i % n)
			if o := c.buys(once, k, limit); !isPaid(o.Status) {
				t.Fatalf("%+v", o)
			}
		}
		for i := range 2 {
			once := client.WithIdempotencyKey(t.Context(), fmt.Sprint("page-", i))
			c.bank.fault(cutTwice("/v1/checkout/sessions"))
			_, _ = c.hasty(k, i%n).Checkout(once, c.plan, client.CheckoutParams{SessionType: "hosted"})
			c.services[i%n].Kill()
			c.start(i % n)
			_, link := c.checkout(once, k)
			p := newShopper(t)
			eventually(t, "the page is paid", func() bool { return p.pays(link, plainCard) == nil })
		}
		c.settled()
		if sums := c.bank.books().Currencies["usd"]; sums == nil || sums.Charges != 6 || sums.Captured != 3000 {
			t.Errorf("%+v", sums)
		}
		if b, err := c.as(k).Balance(t.Context(), c.plan); err != nil || b.Balance != 600 {
			t.Errorf("%+v, %v", b, err)
		}
	})
}

// T81: a delegation for three charges, and many requests that need credits at once, on two
// processes: three charges.
// T81
func TestTopUpsRaced(t *testing.T) {
	t.Parallel()
	for _, variant := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		for _, callers := range []int{20, 100} {
			t.Run(fmt.Sprintf("%s/%d", variant, callers), func(t *testing.T) {
				t.Parallel()
				db := storetest.Config(t, variant)
				o := servertest.Options{Data: db.Data, Database: db.Database}
				if o.Database != "" {
					o.MasterKeyFile = freshMasterKey(t)
				}
				c := newCashier(t, o, processes(o))
				k, method := c.shops("buyer", plainCard)
				limit := c.limit(k, method, 1700)
				tok := must.Get(c.as(k).AccessToken(t.Context(), c.plan, client.WithDelegation(limit)))(t)
				var calls sync.WaitGroup
				for i := range callers {
					calls.Go(func() {
						f := c.services[i%len(c.services)].Client(c.builder.Key, servertest.Patient)
						req := cardRequest(c.plan, tok.AccessToken, fmt.Sprint("request-", i), 100)
						for end := time.Now().Add(patience); time.Now().Before(end); {
							if r, err := f.Settle(t.Context(), req); !again(r, err) {
								return
							}
						}
						t.Errorf("request %d has no answer", i)
					})
				}
				calls.Wait()
				c.settled()
				if sums := c.bank.books().Currencies["usd"]; sums == nil || sums.Charges != 3 || sums.Captured != 1500 {
					t.Errorf("%+v", sums)
				}
				b, err := c.as(k).Balance(t.Context(), c.plan)
				if err != nil || b.Total != 300 || b.Balance != 0 {
					t.Errorf("%+v, %v", b, err)
				}
				d, err := c.as(k).Delegation(t.Context(), limit)
				if err != nil || d.AmountSpentCents != 1500 || d.TransactionCount != 3 {
					t.Errorf("%+v, %v", d, err)
				}
			})
		}
	}
}

// F26: while the card processor is down, requests with existing credits are verified and settled as
// before. New orders wait, and resume when it is up again.
// F26
func TestCardProcessorAway(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		t.Parallel()
		c := newCashier(t, o, 1, "--order-wait", "1s")
		k, method := c.shops("buyer", plainCard)
		limit := c.limit(k, method, 100_000)
		if o := c.buys(client.WithIdempotencyKey(t.Context(), "first"), k, limit); !isPaid(o.Status) {
			t.Fatalf("%+v", o)
		}
		tok := must.Get(c.as(k).AccessToken(t.Context(), c.plan, client.WithDelegation(limit)))(t)
		c.bank.kill()
		once := client.WithIdempotencyKey(t.Context(), "second")
		if o, err := c.hasty(k, 0).OrderPlan(once, c.plan, client.PaidBy(limit)); err == nil && ended(o) {
			t.Errorf("an order was decided by nobody: %+v", o)
		}
		for i := range 20 {
			req := cardRequest(c.plan, tok.AccessToken, fmt.Sprint("request-", i), 5)
			v, err := c.hasty(c.builder, 0).Verify(t.Context(), &x402.VerifyRequest{
				PaymentRequired: req.PaymentRequired, AccessToken: tok.AccessToken, MaxAmount: toll.Credits(5).Ptr(),
			})
			if err != nil || !v.IsValid {
				t.Fatalf("verify %d: %+v, %v", i, v, err)
			}
			if r, err := c.hasty(c.builder, 0).Settle(t.Context(), req); err != nil || !r.Success {
				t.Fatalf("settle %d: %+v, %v", i, r, err)
			}
		}
		c.bank.start()
		if o := c.buys(once, k, limit); !isPaid(o.Status) {
			t.Fatalf("%+v", o)
		}
		c.settled()
		if b, err := c.as(k).Balance(t.Context(), c.plan); err != nil || b.Balance != 100 || b.Total != 200 {
			t.Errorf("%+v, %v", b, err)
		}
	})
}

// T82: credits are missing when a request is settled, and the card cannot be charged: it is
// declined, its bank wants its owner, or it was removed after the verification. Nothing is burned,
// and the answer says that the payment was declined, or the token revoked.
// T82
func TestChargeRefusedLate(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		t.Parallel()
		ctx := t.Context()
		c := newCashier(t, o, 1)
		for number, want := range map[string]string{
			emptyCard:  x402.ReasonPaymentDeclined,
			askingCard: x402.ReasonPaymentDeclined,
			plainCard:  x402.Default.ReasonRevoked(),
		} {
			k := servertest.Key(t, c.o, "buyer of "+number)
			method := c.enrolled(k, number)
			limit := c.limit(k, method, 1700)
			tok := must.Get(c.as(k).AccessToken(ctx, c.plan, client.WithDelegation(limit)))(t)
			req := cardRequest(c.plan, tok.AccessToken, "request-of-"+number, 10)
			v, err := c.as(c.builder).Verify(ctx, &x402.VerifyRequest{
				PaymentRequired: req.PaymentRequired, AccessToken: tok.AccessToken, MaxAmount: toll.Credits(10).Ptr(),
			})
			if err != nil || !v.IsValid {
				t.Fatalf("%s: %+v, %v", number, v, err)
			}
			if number == plainCard {
				must.Do(t, c.as(k).RemovePaymentMethod(ctx, method))
			}
			var r *x402.SettleResponse
			eventually(t, "an answer", func() bool {
				r, err = c.as(c.builder).Settle(ctx, req)
				return !again(r, err)
			})
			if err == nil && r.Success || err == nil && r.ErrorReason != want {
				t.Errorf("%s: %+v, %v", number, r, err)
			}
			if b, err := c.as(k).Balance(ctx, c.plan); err != nil || b.Total != 0 || b.Used != 0 {
				t.Errorf("%s: %+v, %v", number, b, err)
			}
		}
		if sums := c.bank.books().Currencies["usd"]; sums != nil && sums.Charges != 0 {
			t.Errorf("%+v", sums)
		}
	})
}

// T82: the bank wants the owner of the card. The link of the refused order makes one order, however
// often it is used, and the limit of the delegation keeps its cents.
// T82
func TestLinkForTheOwner(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		t.Parallel()
		ctx := t.Context()
		c := newCashier(t, o, 1)
		k, method := c.shops("buyer", askingCard)
		limit := c.limit(k, method, 1700)
		_, err := c.as(k).OrderPlan(client.WithIdempotencyKey(ctx, "asks"), c.plan, client.PaidBy(limit))
		link, ok := toll.AsError(err).Params["checkoutUrl"].(string)
		if toll.AsError(err).Code != toll.CodeCardAuthentication || !ok {
			t.Fatalf("the error has no link: %v", err)
		}
		for range 3 { // once, the button again, and the link again
			p := newShopper(t)
			must.Do(t, p.open(link))
			must.Do(t, p.submit("/again", nil))
			if strings.Contains(p.body, "<h1>Order paid</h1>") {
				continue
			}
			must.Do(t, errors.Join(p.follow(), p.types(askingCard)))
			c.settled()
		}
		d, err := c.as(k).Delegation(ctx, limit)
		if b, err2 := c.as(k).Balance(ctx, c.plan); err != nil || err2 != nil || b.Total != 100 || d.AmountSpentCents != 0 {
			t.Errorf("%+v, %+v, %v %v", b, d, err, err2)
		}
		if sums := c.bank.books().Currencies["usd"]; sums == nil || sums.Charges != 1 {
			t.Errorf("%+v", sums)
		}
	})
}
