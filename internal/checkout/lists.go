package checkout

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

type OrderQuery struct {
	AsSeller     bool         // those of the plans of the caller; else those that the caller made
	Plan         toll.PlanID  // "": all plans
	Subscriber   toll.Address // as seller, with Plan: one buyer; zero: all
	Since, Until time.Time    // of creation, from Since to before Until; zero: no bound
	Page         store.Page
}

// Orders lists orders of the caller or of the caller's plans, without balances. Open orders show their progress at the rail. Errors:
// [toll.CodePlanNotFound], [toll.CodeNotPlanOwner], [toll.CodeBadPage].
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
		return none, Fault(err)
	}
	for i, o := range list.Items {
		if list.Items[i], _, err = c.waits.current(ctx, o); err != nil {
			return none, Fault(err)
		}
	}
	return store.Map(list, Rendered), nil
}

func (c *core) ownPlan(ctx context.Context, caller toll.Address, id toll.PlanID) (*toll.Plan, error) {
	plan, err := store.PlanByID(ctx, c.store, id)
	switch {
	case err != nil:
		return nil, Fault(unknown(err, toll.CodePlanNotFound, "planId", id))
	case plan.Owner != caller:
		return nil, toll.NewError(toll.CodeNotPlanOwner).WithDetails("planId %s", id)
	}
	return plan, nil
}

// Subscribers lists the balances of a plan of the caller. Errors: [toll.CodePlanNotFound], [toll.CodeNotPlanOwner], [toll.CodeBadPage].
func (c *Reports) Subscribers(ctx context.Context, caller toll.Address, id toll.PlanID, p store.Page) (store.List[toll.Balance], error) {
	plan, err := c.ownPlan(ctx, caller, id)
	if err != nil {
		return store.List[toll.Balance]{}, err
	}
	list, err := c.ledger.AccountsOfPlan(ctx, id, p)
	now := c.clock()
	balance := func(a ledger.Account) toll.Balance { return BalanceOf(plan, a.Subscriber, &a, now) }
	return store.Map(list, balance), Fault(err)
}

// Owes returns [toll.CodeWorkspaceOwes] for a workspace with an open or disputed order, on either side, or with a priced plan of which
// another subscriber has credits or time left, or lost paid credits to a withdrawal.
func (c *Reports) Owes(ctx context.Context, owner toll.Address) error {
	open, err := store.PendingOrders(ctx, c.store, owner)
	if err != nil {
		return Fault(err)
	}
	if open > 0 {
		return toll.Errorf(toll.CodeWorkspaceOwes, "The workspace cannot be deleted yet. Pending or disputed orders: %d.", open)
	}
	now := c.clock()
	return eachOf(func(p store.Page) (store.List[*toll.Plan], error) { return store.PlansOfOwner(ctx, c.store, owner, p) }, func(plan *toll.Plan) error {
		if plan.Price.IsFree() {
			return nil
		}
		return eachOf(func(p store.Page) (store.List[ledger.Account], error) {
			return c.ledger.AccountsOfPlan(ctx, plan.ID, p)
		}, func(a ledger.Account) error {
			if a.Subscriber != owner && plan.Kind().Covers(a.Balance, a.Subscribed(now), 1) {
				return toll.Errorf(toll.CodeWorkspaceOwes, "Subscriber %s still has credits or time left on the paid plan %s.", a.Subscriber, plan.ID)
			}
			if a.Subscriber == owner || a.TakenBack == 0 {
				return nil
			}
			taken, err := c.ledger.PaidTakenByHand(ctx, &a)
			if err == nil && taken > 0 {
				err = toll.Errorf(toll.CodeWorkspaceOwes,
					"This workspace took back %s paid credits of plan %s from subscriber %s without a refund.", taken, plan.ID, a.Subscriber).
					WithHint("Refund the order, or mint the credits again and let the subscriber use them.")
			}
			return err
		})
	})
}

// eachOf calls f with each record of a list, until it returns an error.
func eachOf[T any](read func(store.Page) (store.List[T], error), f func(T) error) error {
	for page := (store.Page{Size: 100}); ; {
		list, err := read(page)
		if err != nil {
			return Fault(err)
		}
		for _, one := range list.Items {
			if err := f(one); err != nil {
				return err
			}
		}
		if page.Cursor = list.Next; page.Cursor == "" {
			return nil
		}
	}
}

// Holdings lists what the caller has of all plans, by the id of the plan.
func (c *Reports) Holdings(ctx context.Context, caller toll.Address, p store.Page) (store.List[toll.Balance], error) {
	list, err := c.ledger.AccountsHeld(ctx, caller, p)
	if err != nil {
		return store.List[toll.Balance]{}, Fault(err)
	}
	plans, err := c.Plans(ctx, store.Mapped(list.Items, func(a ledger.Account) toll.PlanID { return a.Plan }))
	if err != nil {
		return store.List[toll.Balance]{}, err
	}
	now := c.clock()
	return store.Map(list, func(a ledger.Account) toll.Balance { return BalanceOf(plans[a.Plan], caller, &a, now) }), nil
}

// Plans returns the existing plans among ids, by id.
func (c *Reports) Plans(ctx context.Context, ids []toll.PlanID) (map[toll.PlanID]*toll.Plan, error) {
	out := map[toll.PlanID]*toll.Plan{}
	return out, Fault(store.EachPlan(ctx, c.store, ids, func(p *toll.Plan) error { out[p.ID] = p; return nil }))
}

// Agents is [Reports.Plans] for agents, which come without their plans.
func (c *Reports) Agents(ctx context.Context, ids []toll.AgentID) (map[toll.AgentID]*toll.Agent, error) {
	out := map[toll.AgentID]*toll.Agent{}
	return out, Fault(store.EachAgent(ctx, c.store, ids, func(a *toll.Agent) error { out[a.ID] = a; return nil }))
}

// LastUses returns for each balance when its subscriber last paid for a request, within the days that usage covers; the zero time means never.
func (c *Reports) LastUses(ctx context.Context, of []toll.Balance) ([]time.Time, error) {
	pairs := store.Mapped(of, func(b toll.Balance) store.PlanSubscriber {
		return store.PlanSubscriber{Plan: b.PlanID, Subscriber: b.HolderAddress}
	})
	last, err := store.LastSettled(ctx, c.store, pairs, c.clock().Add(-maxDays))
	return store.Mapped(pairs, func(p store.PlanSubscriber) time.Time { return last[p] }), Fault(err)
}
