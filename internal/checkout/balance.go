package checkout

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
)

// Balance returns what a holder has of a plan: zeros for an address that never ordered. With lots it lists those that
// have credits left, soonest end first; show them only to the holder and to the owner of the plan.
func (c *Checkout) Balance(ctx context.Context, plan *toll.Plan, holder toll.Address, withLots bool) (*toll.Balance, error) {
	id := ledger.NewAccountID(plan.ID, holder)
	a, err := c.ledger.Account(ctx, id)
	if err == nil && a.Seq > 0 && a.Stale(c.clock()) {
		// Ended credits must not be shown as if they could be used.
		if err = c.ledger.Touch(ctx, id); err == nil {
			a, err = c.ledger.Account(ctx, id)
		}
	}
	if err != nil {
		return nil, Fault(err)
	}
	b := BalanceOf(plan, holder, &a, c.clock())
	if withLots {
		lots, err := c.ledger.Lots(ctx, id)
		if err != nil {
			return nil, Fault(err)
		}
		b.Lots = make([]toll.Lot, 0, len(lots))
		for _, l := range lots {
			b.Lots = append(b.Lots, toll.Lot{Amount: l.Granted, Remaining: l.Remaining, ExpiresAt: toll.AtPtr(l.EndsAt)})
		}
	}
	return &b, nil
}

// BalanceOf renders an account that has been read.
func BalanceOf(plan *toll.Plan, holder toll.Address, a *ledger.Account, now time.Time) toll.Balance {
	subscribed := a.Subscribed(now)
	return toll.Balance{
		PlanID: plan.ID, PlanName: plan.Metadata.Name, PlanType: plan.AccessLimit, HolderAddress: holder,
		Balance: a.Balance, Held: a.Held, Available: a.Available(),
		IsSubscriber: subscribed, IsSubscriberAlias: subscribed, PricePerCredit: toll.PricePerCredit(plan),
		Total: a.Minted, Used: a.Burned, Remaining: a.Balance, ExpiresAt: toll.AtPtr(a.PeriodEnd()),
	}
}
