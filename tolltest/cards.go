package tolltest

import (
	"context"
	"net/url"
	"path"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
)

// WithCards sells plans in dollars and euros that test cards pay. The service uses a fake of Stripe, so no money moves. The
// default plan is then 100 credits for 5.00 USD; see [WithPlan].
//
//	svc := tolltest.New(t, tolltest.WithCards())
//	page, err := svc.Subscriber(0).Client.Checkout(t.Context(), svc.Plan(), client.CheckoutParams{})
//	if err != nil {
//		t.Fatal(err)
//	}
//	if o := svc.PayPage(page.Result.URL, "4242 4242 4242 4242"); o.Status != toll.OrderConfirmed {
//		t.Errorf("the order is %s", o.Status)
//	}
//
// 4242 4242 4242 4242 pays, 4000 0000 0000 9995 has insufficient funds, 4000 0000 0000 0341 can be enrolled and is then
// declined; docs/CARDS.md lists more cards.
func WithCards() Option { return func(o *options) { o.cards = true } }

// PayPage pays the page of an order, as a person in a browser does, and returns the order once it is decided. The test
// fails if the page rejects the card.
func (s *Service) PayPage(page, number string) *toll.Order {
	s.helper()
	o, err := s.payPage(page, number)
	if err != nil {
		s.fail(err)
	}
	return o
}

func (s *Service) payPage(page, number string) (*toll.Order, error) {
	ctx := context.Background()
	u, err := url.Parse(page)
	if err != nil {
		return nil, err
	}
	id := path.Base(u.Path)
	if err := s.server.Cards().FillPage(ctx, id, number); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, decided)
	defer cancel()
	return s.client.WaitOrder(ctx, id)
}

// decided is the maximum time for an order to be decided after its page is paid.
const decided = 2 * time.Minute

// EnrollCard enrols a test card of an account, as a person in a browser does, and returns its id for [Subscriber.DelegateCard]. An
// account can do so 5 times in 10 minutes.
func (s *Service) EnrollCard(owner toll.Address, number string) string {
	s.helper()
	id, err := s.server.Cards().FillEnrolment(context.Background(), owner, number)
	if err != nil {
		s.fail(err)
	}
	return id
}

// DelegateCard lets access tokens of the subscriber charge a card up to this many cents of USD, for a day of the service's clock,
// and returns the id for [client.WithDelegation] and [client.PaidBy].
func (sub *Subscriber) DelegateCard(card string, limit toll.Cents) string {
	sub.svc.helper()
	d, err := sub.Client.CreateDelegation(context.Background(), client.DelegationParams{
		Provider: toll.ProviderCard, PaymentMethodID: card, SpendingLimit: limit, Lifetime: 24 * time.Hour, Currency: "usd",
	})
	if err != nil {
		sub.svc.fail(err)
		return ""
	}
	return d.DelegationID
}
