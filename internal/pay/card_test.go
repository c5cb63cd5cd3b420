package pay_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// cardScene is a service whose fiat plans are paid by card, at a double of Stripe over HTTP.
type cardScene struct {
	*scene
	double *double.Double
	cards  []*card.Rail // by instance
}

// eachCards is [each] with cards.
func eachCards(t *testing.T, f func(s *cardScene)) {
	t.Helper()
	for _, v := range storetest.Variants() {
		t.Run(string(v), func(t *testing.T) {
			n := 2
			if v == storetest.SQLite {
				n = 1
			}
			f(newCardScene(t, v, n))
		})
	}
}

func newCardScene(t *testing.T, v storetest.Variant, instances int) *cardScene {
	t.Helper()
	const key = "sk_test_0123456789"
	c := &cardScene{}
	var address string
	c.scene = newScene(t, v, instances, func(s *scene, deps *checkout.Deps) {
		if c.double == nil {
			d := must.Get(double.New(double.Options{Now: s.clock.now, SecretKey: key}))(s)
			server := httptest.NewServer(d.Handler())
			t.Cleanup(func() {
				d.Close()
				server.Close()
			})
			c.double, address = d, server.URL
		}
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		r := must.Get(card.New(card.Config{
			Store: deps.Store, Environment: toll.Sandbox, Installation: "6b1f9a52-6b0e-4a83-8a1e-1f0d3c5b7a90", SecretKey: key, URL: address,
			HTTP: &http.Client{Transport: transport}, Clock: s.clock.now, Machine: s.clock.now,
			Link: func(use rail.Use, _ toll.Address, id string, ends time.Time) (string, error) {
				return "https://pay.example.com" + use.Path(id) + "?t=" + ends.Format(time.RFC3339), nil
			},
		}))(s)
		deps.Rails[rail.Card], c.cards = r, append(c.cards, r)
		deps.Queue.Handle(store.JobCardDetach, r.Detach)
	})
	return c
}

// fiat sells ten credits for two dollars, five of which a request burns.
func fiat(p *toll.Plan) {
	ten(p)
	p.Price = toll.Price{Currency: toll.CurrencyUSD, Amounts: []toll.Units{toll.UnitsOf(2_000_000)}, Receivers: []toll.Address{b1}}
}

// enrol enrols a test card of s1 as a person in a browser does, and returns its id.
func (s *cardScene) enrol(number string) string {
	s.Helper()
	s.clock.add(11 * time.Minute) // so that no enrolment is one too many
	setup, page, err := s.cards[0].Enroll(s.ctx, s1, "source", "https://pay.example.com/cards/enroll")
	must.Do(s, err)
	must.Get(double.Fill(s.ctx, page, number))(s)
	id, failure, err := s.cards[0].Enrolled(s.ctx, s1, setup)
	must.Do(s, err)
	if id == "" {
		s.Fatal(failure)
	}
	return id
}

// becomes has the card of a payment method behave as another test card, which the double knows by name.
func (s *cardScene) becomes(method, name string) {
	s.Helper()
	must.Do(s, s.one().store.Tx(s.ctx, func(tx *store.Tx) error {
		m, err := store.CardMethodByID(s.ctx, tx, s1, method)
		if err != nil {
			return err
		}
		m.StripeID = name
		return store.PutCardMethod(s.ctx, tx, m)
	}))
}

// cardDelegation lets s1 spend so many cents with a card.
func (s *cardScene) cardDelegation(method string, cents int64) string {
	s.Helper()
	return s.delegation(cents, func(in *toll.DelegationInput) {
		provider, currency := "stripe", "usd"
		in.Provider, in.Currency, in.ProviderPaymentMethodID = &provider, &currency, &method
	})
}

// charged returns how often the double took money.
func (s *cardScene) charged() int {
	if sums := s.double.Books().Currencies["usd"]; sums != nil {
		return sums.Charges
	}
	return 0
}

// T82: a charge is refused when the content is ready, or before it is made. Nothing is burned, the content is withheld, and
// where the bank wants the owner of the card there is a page, which works once.
// T82
func TestChargeRefusedLate(t *testing.T) {
	const poor, asks, good = "pm_card_visa_chargeDeclinedInsufficientFunds", "pm_card_authenticationRequired", "4242 4242 4242 4242"
	detached := func(s *cardScene, method string) { s.becomes(method, "pm_detached") }
	removed := func(s *cardScene, method string) {
		must.Do(s, s.one().checkout.PaymentMethods.Remove(s.ctx, checkout.Owner{Address: s1}, method))
	}
	like := func(name string) func(*cardScene, string) {
		return func(s *cardScene, method string) { s.becomes(method, name) }
	}
	for name, tt := range map[string]struct {
		change func(s *cardScene, method string) // between verify and settle
		reason string
		page   bool
	}{
		"no money":         {like(poor), x402.ReasonPaymentDeclined, false},
		"authentication":   {like(asks), x402.ReasonPaymentDeclined, true},
		"gone at Stripe":   {detached, x402.ReasonPaymentDeclined, false},
		"removed by owner": {removed, x402.Default.ReasonRevoked(), false},
	} {
		t.Run(name, func(t *testing.T) {
			eachCards(t, func(s *cardScene) {
				p := s.plan(fiat)
				method := s.enrol(good)
				d := s.cardDelegation(method, 1000)
				c := s.call(p, s.agent(nil, p), s.token(p, s1, func(r *tokens.PermissionRequest) { with(d)(r); r.Network = "stripe" }))

				// Without a hold verify spends nothing, and settle buys.
				v, err := c.verify(s.one(), nil)
				s.valid(v, err)
				tt.change(s, method)
				var page string
				for range 2 { // a repeat is refused as well
					r := must.Get(c.settle(s.at(1), v.AgentRequestID, nil))(s)
					if r.Success || r.ErrorReason != tt.reason || r.Transaction != "" {
						s.Fatalf("settled %v, reason %s (%s, %s), want %s", r.Success, r.ErrorReason, r.Code, r.ErrorMessage, tt.reason)
					}
					if r.Extra != nil {
						page = r.Extra.CheckoutURL
					}
				}
				s.balance(p, s1, 0, 0)
				s.orderPage(p, d, page, tt.page)

				// With a hold verify buys, so the work is never done.
				before := s.charged()
				var ran atomic.Int64
				front := httptest.NewServer(paid.Handler(s.one().As(b1), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					ran.Add(1)
				}), paid.Plan(p.ID), paid.PublicURL("https://a.example")))
				defer front.Close()
				req := must.Get(http.NewRequestWithContext(s.ctx, http.MethodPost, front.URL+"/ask", nil))(s)
				req.Header.Set("payment-signature", c.token)
				res := must.Get(front.Client().Do(req))(s)
				_ = res.Body.Close()
				if res.StatusCode != http.StatusPaymentRequired || ran.Load() != 0 {
					s.Errorf("the handler ran %d times, and the answer is %s", ran.Load(), res.Status)
				}
				var required x402.PaymentRequired
				must.Do(s, x402.DecodeHeader(res.Header.Get("payment-required"), &required))
				if !strings.HasPrefix(required.Error, tt.reason+": ") {
					s.Errorf("refused with %q, want %s", required.Error, tt.reason)
				}
				if where := string(required.Extensions[x402.Default.PlanExtension()]); strings.Contains(where, `"checkoutUrl":"https://pay.example.com/`) != tt.page {
					s.Errorf("the 402 says of the page: %s", where)
				}
				if n := s.charged(); n != before {
					s.Errorf("%d charges, want %d", n, before)
				}
			})
		})
	}
}

// orderPage pays the page of a charge that the bank wants confirmed. It is one new order, however often it is opened, and takes
// nothing of the delegation.
func (s *cardScene) orderPage(p *toll.Plan, delegation, page string, want bool) {
	s.Helper()
	if (page != "") != want {
		s.Fatalf("the page is %q, want one %t", page, want)
	}
	if !want {
		return
	}
	u := must.Get(url.Parse(page))(s)
	failed := path.Base(path.Dir(u.Path))
	if u.Host != "pay.example.com" || u.Path != rail.UseAgain.Path(failed) {
		s.Fatalf("the page is %s", page)
	}
	var orders []string
	for i := range 2 {
		made := must.Get(s.at(i).checkout.Replace(s.ctx, s1, failed, rail.SessionInput{Hosted: true}, time.Minute))(s)
		orders = append(orders, made.OrderID)
	}
	shown := must.Get(s.cards[0].Page(s.ctx, orders[0], true))(s)
	must.Get(double.Fill(s.ctx, shown.URL, "4000 0027 6000 3184"))(s)
	must.Do(s, s.cards[0].Sync(s.ctx, []byte(s.double.Books().Payments[0].PaymentIntent)))
	again := must.Get(s.one().checkout.Replace(s.ctx, s1, failed, rail.SessionInput{Hosted: true}, time.Minute))(s)
	if orders[0] != orders[1] || again.OrderID != orders[0] || again.Result.PaymentStatus != "paid" || s.charged() != 1 {
		s.Fatalf("orders %v, then %+v, %d charges", orders, again, s.charged())
	}
	s.balance(p, s1, 10, 0)
	d := must.Get(s.one().checkout.Delegations.Read(s.ctx, s1, delegation))(s)
	if d.AmountSpentCents != 0 || d.RemainingBudgetCents != 1000 {
		s.Fatalf("the delegation has paid: %+v", d)
	}
	c := s.call(p, nil, s.token(p, s1, nil)) // the credits are used up, so that the rest of the test lacks some
	for range 2 {
		c.burn("", nil)
	}
}
