package checkout

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// replaceTime is how long the owner of a card may pay what the bank wanted confirmed.
const replaceTime = time.Hour

func replaceable(o *store.Order, now time.Time) bool {
	return o.Status == toll.OrderFailed && o.FailureCode == toll.CodeCardAuthentication && o.Rail == rail.Card && o.DelegationID != "" &&
		now.Before(o.UpdatedAt.Add(replaceTime))
}

// Replace opens a page on which the owner pays a failed order that the bank wanted confirmed: a new order of the same plan, amount, and
// credits, without the delegation. A repeat returns the order that is open or paid. The caller has checked the signed link.
// Errors: [toll.CodeOrderNotFound] for another owner or failure, and an hour after it; [toll.CodeRecordChanged] when price or credits of
// the plan changed; those of [Checkout.Fiat].
func (c *Checkout) Replace(
	ctx context.Context, owner toll.Address, failedID string, page rail.SessionInput, wait time.Duration,
) (*toll.Checkout, error) {
	failed, err := c.ownOrder(ctx, owner, failedID)
	if err != nil {
		return nil, err
	}
	if !replaceable(failed, c.now()) {
		return nil, toll.NewError(toll.CodeOrderNotFound).WithDetails("orderId %s", failedID).
			WithHint("A payment page for a failed order opens only within an hour of the failure. Place a new order.")
	}
	if err := checkSession(&page); err != nil {
		return nil, err
	}
	plan, err := store.PlanByID(ctx, c.store, failed.Plan)
	if err != nil {
		return nil, Fault(err)
	}
	in := intent{plan: plan, subscriber: owner, Means: rail.Means{Rail: rail.Card, Session: &page}, replaces: failed.ID}
	in.credits, in.amount = orderOf(plan, failed.Credits)
	switch {
	case in.credits != failed.Credits, in.amount.Cmp(failed.Amount) != 0, plan.Price.CurrencyName() != failed.Currency:
		return nil, toll.NewError(toll.CodeRecordChanged).WithDetails("planId %s", plan.ID)
	case onSale(plan) != nil:
		return nil, onSale(plan)
	}
	o, err := c.place(ctx, &in)
	if err != nil {
		return nil, err
	}
	return c.page(ctx, o, wait)
}

// replacement returns the order in the place of a failed one that is open or paid, nil when there is none.
func (in *intent) replacement(ctx context.Context, q store.Querier, account ledger.AccountID) (*store.Order, error) {
	o, err := store.OrderReplacing(ctx, q, account, in.replaces)
	return o, store.NotFoundAs(err, nil)
}
