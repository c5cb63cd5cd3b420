package checkout

import (
	"cmp"
	"context"
	"math/big"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// adjust implements [rail.Tx.Adjust] under the lock of the account. It compares refunds and disputes with the row of the order, sets how
// many of its credits are out of use, freezes or unfreezes the delegation, and adds the events. It returns the order as it is then.
func (c *Decisions) adjust(ctx context.Context, t *ledger.Tx, account [16]byte, id string, a *rail.Adjustment) (*store.Order, error) {
	o, err := orderToDecide(ctx, t, account, id)
	if err != nil {
		return nil, err
	}
	if o.Status != toll.OrderConfirmed {
		return nil, toll.Errorf(toll.CodeInternal, "A refund or dispute was reported for an unpaid order.").
			WithDetails("orderId %s is %s", id, o.Status)
	}
	plan, err := store.PlanByID(ctx, t, o.Plan)
	if err != nil {
		return nil, err
	}
	cents, dispute := o.RefundedCents, o.Dispute
	if a.RefundedCents != cents || a.Dispute != dispute || a.DisputedCents != o.DisputedCents {
		c.failpoint("adjusting")
		o.RefundedCents, o.Dispute, o.DisputedCents, o.UpdatedAt = a.RefundedCents, a.Dispute, a.DisputedCents, c.now()
		if err := takeBackDue(t, plan, o); err != nil {
			return nil, err
		}
		if err := store.UpdateOrder(ctx, t.Tx, o); err != nil {
			return nil, err
		}
		c.log.InfoContext(ctx, "refunds or disputes of a paid order changed", "order", o.ID, "cents", o.RefundedCents, "dispute", o.Dispute,
			"taken_back", o.RefundedCredits, "loss", o.Loss, "held", o.HeldBack)
	}
	if a.Dispute != dispute {
		if err := c.freezeFor(ctx, t, o, dispute); err != nil {
			return nil, err
		}
	}
	addEvent := func(typ toll.EventType, data any) {
		for _, e := range orderEvents(o, plan.Owner, typ) {
			e.Data = data
			t.Event(e)
		}
	}
	if o.RefundedCents != cents {
		addEvent(toll.EventOrderRefunded, Rendered(o))
	}
	switch {
	case o.Dispute == dispute && a.Inquiry, o.Dispute == store.DisputeOpen && dispute != store.DisputeOpen:
		addEvent(toll.EventOrderDisputed, toll.OrderDispute{Order: *Rendered(o), Inquiry: a.Inquiry && o.Dispute == dispute})
	case o.Dispute != dispute:
		outcome := cmp.Or(o.Dispute, store.DisputeWon) // "": the money came back without a word
		addEvent(toll.EventOrderDisputeClosed, toll.OrderDispute{Order: *Rendered(o), Outcome: outcome})
	}
	return o, nil
}

// freezeFor freezes the delegation of an order whose payment was just disputed or lost, and unfreezes it when the dispute was won and no
// other one is open. was is the earlier dispute of the order.
func (c *Decisions) freezeFor(ctx context.Context, t *ledger.Tx, o *store.Order, was string) error {
	if o.DelegationID == "" {
		return nil
	}
	events, err := c.delegations.changeBudget(ctx, t.Tx, o.DelegationID, func(b budget) error {
		if o.Dispute == store.DisputeOpen || o.Dispute == store.DisputeLost {
			b.freeze(store.FrozenForDispute, o.UpdatedAt)
			return nil
		}
		open, err := store.OpenDisputes(ctx, t.Tx, o.DelegationID)
		if err == nil && len(open) == 0 && was == store.DisputeOpen {
			b.disputeWon()
		}
		return err
	})
	t.Event(events...)
	return err
}

// due returns how many credits of an order to withdraw: the share of the price that was refunded or disputed (open or lost), rounded down.
// A period of time ends when the whole price is back.
func due(plan *toll.Plan, o *store.Order) toll.Credits {
	price, _ := centsOf(o.Amount)
	back := o.CentsBack(price)
	switch {
	case back <= 0:
		return 0
	case back >= price:
		return o.Credits
	case !plan.Kind().Charges():
		return 0
	}
	n := new(big.Int).Mul(big.NewInt(int64(o.Credits)), big.NewInt(back))
	return toll.Credits(n.Quo(n, big.NewInt(price)).Int64())
}

// takeBackDue has the ledger take what is due of an order, and sets what became of it.
func takeBackDue(t *ledger.Tx, plan *toll.Plan, o *store.Order) error {
	n := due(plan, o)
	if n == 0 && o.RefundedCredits+o.HeldBack+o.Loss == 0 {
		return nil
	}
	moved, err := t.TakeBackTo(o.ID, n)
	o.RefundedCredits, o.HeldBack = moved.Taken, moved.Left
	o.Loss = n - moved.Taken - moved.Left
	return err
}

// finishTakeBack takes back credits that were on hold, until all holds have ended ([store.JobTakeBack]).
func (c *Decisions) finishTakeBack(ctx context.Context, id []byte) error {
	order, found, err := store.IfThere(store.OrderByID(ctx, c.store, string(id)))
	if !found {
		return err
	}
	left := toll.Credits(0)
	err = c.ledger.Do(ctx, order.Account, func(t *ledger.Tx) error {
		a, err := t.Account()
		if err != nil {
			return err
		}
		o, err := store.OrderForUpdate(ctx, t.Tx, a.ID, order.ID)
		if left = 0; err != nil || o.HeldBack == 0 {
			return err
		}
		before := *o
		if err := retryTakeBack(ctx, t, o); err != nil {
			return err
		}
		if left = o.HeldBack; *o == before {
			return nil
		}
		if left == 0 {
			c.log.InfoContext(ctx, "all holds on the withdrawn credits of an order have ended", "order", o.ID, "taken_back", o.TakenBack+o.RefundedCredits, "loss", o.Loss)
		}
		return store.UpdateOrder(ctx, t.Tx, o)
	})
	if err == nil && left > 0 {
		return &jobs.Retry{After: takeBackEvery}
	}
	return err
}

// retryTakeBack takes credits that holds released since credits of an order were taken back.
func retryTakeBack(ctx context.Context, t *ledger.Tx, o *store.Order) error {
	if o.Reversed {
		moved, err := t.TakeBack(o.ID, toll.Hash{})
		setTakenBack(o, moved)
		return err
	}
	plan, err := store.PlanByID(ctx, t, o.Plan)
	if err != nil {
		return err
	}
	return takeBackDue(t, plan, o)
}
