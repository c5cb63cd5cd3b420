package tolltest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
)

// A plan in dollars is paid on a page, and by a card within a limit.
func TestWithCards(t *testing.T) {
	ctx := context.Background()
	svc := tolltest.New(t, tolltest.WithCards())
	ann := svc.Subscriber(0)
	page := must.Get(ann.Client.Checkout(ctx, svc.Plan(), client.CheckoutParams{}))(t)
	for range 2 { // the second time it is paid already
		if o := svc.PayPage(page.Result.URL, "4242 4242 4242 4242"); o.Status != toll.OrderConfirmed || o.OrderID != page.OrderID || ann.Balance() != 100 {
			t.Errorf("%+v, balance %d", o, ann.Balance())
		}
	}
	limit := ann.DelegateCard(svc.EnrollCard(ann.Address, "4000 0025 0000 3155"), 700)
	if o, err := ann.Client.OrderPlan(ctx, svc.Plan(), client.PaidBy(limit)); err != nil || o.Status != toll.OrderConfirmed || ann.Balance() != 200 {
		t.Errorf("%+v, %v, balance %d", o, err, ann.Balance())
	}
	if _, err := ann.Client.OrderPlan(ctx, svc.Plan(), client.PaidBy(limit)); !errors.Is(err, toll.NewError(toll.CodeDelegationInsufficient)) {
		t.Errorf("beyond the limit: %v", err)
	}
	poor := ann.DelegateCard(svc.EnrollCard(ann.Address, "4000 0000 0000 0341"), 700)
	if _, err := ann.Client.OrderPlan(ctx, svc.Plan(), client.PaidBy(poor)); !errors.Is(err, toll.NewError(toll.CodeCardDeclined)) || ann.Balance() != 200 {
		t.Errorf("a card that is declined: %v, balance %d", err, ann.Balance())
	}
}
