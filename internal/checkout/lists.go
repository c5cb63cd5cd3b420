package checkout

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

// OrderQuery selects orders of a caller.
type OrderQuery struct {
	AsSeller     bool         // those of the plans of the caller; else those that the caller made
	Plan         toll.PlanID  // "": all plans
	Subscriber   toll.Address // as seller, with Plan: one buyer; zero: all
	Since, Until time.Time    // of creation, from Since to before Until; zero: no bound
	Page         store.Page
}

// Orders lists orders that the caller made, or those of the caller's plans. An open order shows how far its rail has got;
// none has a balance. Errors: [toll.CodePlanNotFound], [toll.CodeNotPlanOwner], [toll.CodeBadPage].
func (c *Checkout) Orders(ctx context.Context, caller toll.Address, q OrderQuery) (store.List[*toll.Order], error) {
	var none store.List[*toll.Order]
	f := store.OrderFilter{Subscriber: caller, Since: q.Since, Until: q.Until}
	if q.AsSeller {
		f.Subscriber, f.Seller = toll.Address{}, caller
		if q.Plan != "" {
			if _, err := c.ownPlan(ctx, caller, q.Plan); err != nil {
				return none, err
			}
			f.Plan = q.Plan
			if !q.Subscriber.IsZero() {
				f.Account = ledger.NewAccountID(q.Plan, q.Subscriber)
			}
		}
	} else if q.Plan != "" {
		f.Account = ledger.NewAccountID(q.Plan, caller)
	}
	list, err := store.Orders(ctx, c.store, f, q.Page)
	if err != nil {
		return none, fault(err)
	}
	for i, o := range list.Items {
		if list.Items[i], _, err = c.current(ctx, o); err != nil {
			return none, fault(err)
		}
	}
	return store.Map(list, rendered), nil
}

func (c *Checkout) ownPlan(ctx context.Context, caller toll.Address, id toll.PlanID) (*toll.Plan, error) {
	plan, err := store.PlanByID(ctx, c.store, id)
	switch {
	case err != nil:
		return nil, fault(unknown(err, toll.CodePlanNotFound, "planId", id))
	case plan.Owner != caller:
		return nil, toll.NewError(toll.CodeNotPlanOwner).WithDetails("planId %s", id)
	}
	return plan, nil
}

// Subscribers lists the balances of a plan of the caller, by the address of the subscriber. Errors: [toll.CodePlanNotFound],
// [toll.CodeNotPlanOwner], [toll.CodeBadPage].
func (c *Checkout) Subscribers(ctx context.Context, caller toll.Address, id toll.PlanID, p store.Page) (store.List[toll.Balance], error) {
	plan, err := c.ownPlan(ctx, caller, id)
	if err != nil {
		return store.List[toll.Balance]{}, err
	}
	list, err := c.ledger.AccountsOfPlan(ctx, id, p)
	now := c.clock()
	balance := func(a ledger.Account) toll.Balance { return BalanceOf(plan, a.Subscriber, &a, now) }
	return store.Map(list, balance), fault(err)
}

// Holdings lists what the caller has of all plans, by the id of the plan.
func (c *Checkout) Holdings(ctx context.Context, caller toll.Address, p store.Page) (store.List[toll.Balance], error) {
	list, err := c.ledger.AccountsHeld(ctx, caller, p)
	if err != nil {
		return store.List[toll.Balance]{}, fault(err)
	}
	ids, plans := make([]toll.PlanID, len(list.Items)), map[toll.PlanID]*toll.Plan{}
	for i, a := range list.Items {
		ids[i] = a.Plan
	}
	err = store.EachPlan(ctx, c.store, ids, func(p *toll.Plan) error {
		plans[p.ID] = p
		return nil
	})
	if err != nil {
		return store.List[toll.Balance]{}, fault(err)
	}
	now := c.clock()
	return store.Map(list, func(a ledger.Account) toll.Balance { return BalanceOf(plans[a.Plan], caller, &a, now) }), nil
}
