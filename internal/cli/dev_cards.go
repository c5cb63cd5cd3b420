package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/x402"
)

const (
	devCardPrice   = 5_000_000 // of the plan in dollars, with six decimals
	devCardCredits = 5
	devCardLimit   = 1200 // cents, of the delegation

	// Test cards.
	devCard       = "4242 4242 4242 4242"
	devAskingCard = "4000 0025 0000 3155" // its bank asks for the owner when it is enrolled
	devPoorCard   = "4000 0000 0000 0341" // it is enrolled, and declined when it is charged
)

// showPage has the subscriber buy the plan in dollars on its page.
func (m *market) showPage(ctx context.Context, s *stage) error {
	s.heading("Another plan costs 5.00 USD: a person pays it by card, on a page")
	page, err := m.subscriber.client.Checkout(ctx, m.cardPlan, client.CheckoutParams{SessionType: "hosted"})
	if err != nil {
		return err
	}
	s.facts("page", page.Result.URL, "card", devCard+"   typed on the page of the double")
	if err := m.service.Cards().FillPage(ctx, page.OrderID, devCard); err != nil {
		return err
	}
	order, err := m.subscriber.client.WaitOrder(ctx, page.OrderID)
	if err != nil {
		return err
	}
	fmt.Fprintln(s.out)
	s.facts("order", order.OrderID+"   "+string(order.Status), "credits", order.CreditsGranted.Text())
	if order.Status != toll.OrderConfirmed {
		return fmt.Errorf("the order that was paid on a page is %s", order.Status)
	}
	return nil
}

// limited enrols a test card of a person, and returns an access token that may charge it.
func (m *market) limited(ctx context.Context, p person, number string) (delegation string, token *toll.AccessToken, err error) {
	card, err := m.service.Cards().FillEnrolment(ctx, p.address, number)
	if err != nil {
		return "", nil, err
	}
	d, err := p.client.CreateDelegation(ctx, client.DelegationParams{
		Provider: toll.ProviderCard, PaymentMethodID: card, Currency: "usd", SpendingLimit: devCardLimit, Lifetime: devLimitTime,
	})
	if err != nil {
		return "", nil, err
	}
	token, err = p.client.AccessToken(ctx, m.cardPlan, client.WithAgent(m.cardAgent), client.WithDelegation(d.DelegationID))
	return d.DelegationID, token, err
}

// showTopUp has calls spend the credits until one buys more of them.
func (m *market) showTopUp(ctx context.Context, s *stage) error {
	s.heading("A call that lacks credits buys them, within a limit on the card, without anybody")
	delegation, token, err := m.limited(ctx, m.subscriber, devAskingCard)
	if err != nil {
		return err
	}
	m.cardLimit = delegation
	s.facts("card", devAskingCard+"   enrolled once, with 3-D Secure",
		"delegation", delegation+"   the service may charge 12.00 USD, for an hour", "access token", shortToken(token.AccessToken))
	for range 2 {
		fmt.Fprintln(s.out)
		res, err := m.ask(ctx, m.cardURL(), token.AccessToken)
		if err != nil {
			return err
		}
		s.status(res)
		r := res.receipt
		if res.status != http.StatusOK || !r.Success || r.CreditsRedeemed == nil {
			return fmt.Errorf("the call that a card pays was answered %d", res.status)
		}
		after, err := m.subscriber.client.Balance(ctx, m.cardPlan)
		if err != nil {
			return err
		}
		s.facts("receipt", r.CreditsRedeemed.Text(), "balance after", after.Balance.Text())
	}
	d, err := m.subscriber.client.Delegation(ctx, delegation)
	if err != nil {
		return err
	}
	s.facts("charged", wholeOf(d.AmountSpentCents.String())+" USD, "+
		wholeOf(d.RemainingBudgetCents.String())+" USD are left of the limit")
	if d.AmountSpentCents != 500 {
		return errors.New("the second call has not bought the plan once")
	}
	return nil
}

// showDeclined has the bank decline a card, as the agent and its caller see it.
func (m *market) showDeclined(ctx context.Context, s *stage) error {
	_, token, err := m.limited(ctx, m.visitor, devPoorCard)
	if err != nil {
		return err
	}
	worked := m.worked.Load()
	asks, err := m.refused(ctx, s, "A visitor's card is declined: the agent does not work, and nothing is owed", m.cardURL(), token.AccessToken, worked)
	if err == nil {
		s.facts("card", devPoorCard, "error", asks.Error, "scheme", asks.Accepts[0].Scheme, "agent ran", fmt.Sprintf("%d times, for the paid calls", worked))
	}
	if err == nil && asks.Accepts[0].Scheme != m.scheme() {
		err = errors.New("the agent does not ask for a card")
	}
	return err
}

func (m *market) scheme() string {
	ns := m.service.Namespace()
	if ns == (x402.Namespace{}) {
		ns = x402.Default
	}
	return ns.SchemeCard()
}
