package checkout

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/traces"
)

// takeBackEvery is how often the service tries to take back credits that are on hold.
const takeBackEvery = 2 * time.Second

func isPaid(s toll.OrderStatus) bool { return s == toll.OrderConfirmed || s == toll.OrderFinal }

// Decisions writes what becomes of orders, under the locks of their accounts.
type Decisions struct {
	*core
	delegations *Delegations
	waiters     *rail.Waiters
}

// railOrders is the room as rails see it.
type railOrders struct {
	*Decisions
	*Delegations
}

// Change implements [rail.Orders]. Callers that wait for the decided orders are woken after the commit.
func (c *Decisions) Change(ctx context.Context, account [16]byte, f func(t *rail.Tx) error) error {
	var decided []*store.Order
	c.failpoint("finish")
	err := c.ledger.Do(ctx, account, func(t *ledger.Tx) error {
		decided = decided[:0]
		changed := func(o *store.Order, err error) error {
			if err == nil {
				decided = append(decided, o)
			}
			return err
		}
		err := f(rail.NewTx(t.Tx,
			func(id string, out rail.Outcome) error { return changed(c.decide(ctx, t, account, id, &out)) },
			func(id string) error { return c.drop(ctx, t, account, id) },
			func(id string, a rail.Adjustment) error { return changed(c.adjust(ctx, t, account, id, &a)) }))
		for _, o := range decided {
			if err == nil {
				err = c.afterDecision(ctx, t.Tx, o)
			}
		}
		return err
	})
	c.failpoint("finished")
	if err == nil {
		for _, o := range decided {
			c.waiters.Wake(o.ID)
		}
	}
	return err
}

// drop makes an open order give its place among the orders of its plan back.
func (c *Decisions) drop(ctx context.Context, t *ledger.Tx, account [16]byte, id string) error {
	o, err := orderToDecide(ctx, t, account, id)
	if err != nil || !o.Open {
		return err
	}
	first, err := store.ReturnSlot(ctx, t.Tx, o)
	if first {
		c.log.WarnContext(ctx, "the outcome of a payment is unknown; its order no longer counts toward the maximum orders of the plan", "order", o.ID, "plan", o.Plan)
	}
	return err
}

// afterDecision changes the jobs of an order, last in the transaction: rows of the rail are locked before jobs.
func (c *Decisions) afterDecision(ctx context.Context, tx *store.Tx, o *store.Order) error {
	if o.HeldBack > 0 {
		if err := store.PutJob(ctx, tx, store.Job{Kind: store.JobTakeBack, Key: []byte(o.ID), Due: c.now()}); err != nil {
			return err
		}
	}
	return store.DropJob(ctx, tx, store.JobPay+o.Rail, []byte(o.ID))
}

// orderToDecide is [store.OrderForUpdate] with [toll.CodeOrderNotFound] as its error for rails.
func orderToDecide(ctx context.Context, t *ledger.Tx, account [16]byte, id string) (*store.Order, error) {
	o, err := store.OrderForUpdate(ctx, t.Tx, account, id)
	return o, unknown(err, toll.CodeOrderNotFound, "orderId", id)
}

// decide applies an outcome to an order under the lock of the account and returns the order: see confirm and decideFailed.
func (c *Decisions) decide(ctx context.Context, t *ledger.Tx, account [16]byte, id string, out *rail.Outcome) (o *store.Order, err error) {
	ctx, span := traces.Start(ctx, "order.decide", id)
	defer func() { span.End(err) }()
	o, err = orderToDecide(ctx, t, account, id)
	if err != nil {
		return nil, err
	}
	plan, err := store.PlanByID(ctx, t, o.Plan)
	if err != nil {
		return nil, err
	}
	switch {
	case !out.Decided():
		return nil, toll.Errorf(toll.CodeInternal, "The payment outcome %q neither confirms nor fails an order.", out.Status)
	case out.Status == toll.OrderFailed:
		return o, c.decideFailed(ctx, t, plan, o, out)
	case !isPaid(o.Status):
		if err := c.confirm(ctx, t, plan, o, out); err != nil {
			return nil, err
		}
	case o.Status == out.Status, o.Status == toll.OrderFinal:
		return o, nil
	}
	if out.Status != toll.OrderFinal {
		return o, nil
	}
	o.Status, o.UpdatedAt = toll.OrderFinal, c.now()
	return o, store.UpdateOrder(ctx, t.Tx, o)
}

// confirm mints the credits of a paid order, also of one that had failed, or returns withdrawn ones: the money moved.
func (c *Decisions) confirm(ctx context.Context, t *ledger.Tx, plan *toll.Plan, o *store.Order, out *rail.Outcome) error {
	c.failpoint("confirming")
	now, late, held := c.now(), !o.Open, o.HeldCents > 0
	if late {
		if err := c.countLate(ctx, t, plan, o, out); err != nil {
			return err
		}
		c.log.ErrorContext(ctx, "a failed order was paid after all", "order", o.ID, "transaction", out.TxHash)
	}
	entry, err := c.credit(t, plan, o, late)
	if err != nil {
		return err
	}
	o.Status, o.Open, o.UpdatedAt = toll.OrderConfirmed, false, now
	o.FailureReason, o.FailureCode, o.FailureParams = "", "", ""
	o.Reversed, o.TakenBack, o.Loss, o.HeldBack, o.HeldCents = false, 0, 0, 0, 0
	o.TxHash = cmp.Or(out.TxHash, entry.String())
	if err := store.UpdateOrder(ctx, t.Tx, o); err != nil {
		return err
	}
	t.Event(orderEvents(o, plan.Owner, toll.EventOrderPaid)...)
	return c.changeBudgetOf(ctx, t, o, out, func(b budget) {
		b.Declines = 0
		if late && !held {
			b.payLate(o)
		} else {
			b.pay(o)
		}
	})
}

// countLate counts an order that had failed among those of its plan again. It writes nothing when the outcome is bound by the limits of the
// plan and does not fit: the error is [rail.ErrNoPlace], and the transaction may go on.
func (c *Decisions) countLate(ctx context.Context, t *ledger.Tx, plan *toll.Plan, o *store.Order, out *rail.Outcome) error {
	limit := int64(0)
	if out.WithinLimits {
		limit = plan.MaxOrders
		a, err := t.Account()
		if err != nil {
			return err
		}
		if plan.MayOrder(a.Orders, a.Subscribed(c.now())) != nil {
			return rail.ErrNoPlace
		}
	}
	// This writes nothing new: an order is locked before the orders of its plan, on SQLite by a write.
	if err := store.UpdateOrder(ctx, t.Tx, o); err != nil {
		return err
	}
	_, ok, err := store.CountOrder(ctx, t.Tx, plan.ID, limit)
	if err == nil && !ok {
		err = rail.ErrNoPlace
	}
	return err
}

// credit grants the credits of an order, or returns them, and returns the entry.
func (c *Decisions) credit(t *ledger.Tx, plan *toll.Plan, o *store.Order, late bool) (toll.Hash, error) {
	permission := toll.Hash{}
	if late {
		permission = permissionOf(o)
	}
	if o.Reversed {
		moved, err := t.Return(o.ID, permission)
		return moved.Transaction, err
	}
	m, err := t.Mint(ledger.MintOp{
		Plan: o.Plan, Subscriber: o.Subscriber, Amount: o.Credits, EndsAt: plan.LotEnd(c.now()), Ref: o.ID, Order: true,
		Permission: permission,
	})
	return m.Transaction, err
}

// permissionOf returns the permission on which an order counts, the zero hash for none.
func permissionOf(o *store.Order) toll.Hash {
	if o.Permission == nil {
		return toll.Hash{}
	}
	return *o.Permission
}

// decideFailed gives back all that an open order took, and undoes a confirmed one whose money did not move after all: the
// credits that nobody used come back, and those that open holds keep when these end. The rest is a loss.
func (c *Decisions) decideFailed(ctx context.Context, t *ledger.Tx, plan *toll.Plan, o *store.Order, out *rail.Outcome) error {
	switch o.Status {
	case toll.OrderFailed:
		if o.HeldCents == 0 || out.Unsure {
			return nil
		}
		o.HeldCents = 0
		if err := store.UpdateOrder(ctx, t.Tx, o); err != nil {
			return err
		}
		return c.changeBudgetOf(ctx, t, o, out, func(b budget) { b.giveBack(o) })
	case toll.OrderFinal:
		c.log.ErrorContext(ctx, "a final order was reported as failed; the report is ignored", "order", o.ID, "reason", out.FailureReason)
		return nil
	}
	giveBack := budget.giveBack
	if o.Open {
		c.failpoint("failing")
		if err := t.UncountOrder(permissionOf(o)); err != nil {
			return err
		}
	} else {
		c.failpoint("taking back")
		moved, err := t.TakeBack(o.ID, permissionOf(o))
		if err != nil {
			return err
		}
		o.Reversed = true
		setTakenBack(o, moved)
		giveBack = budget.undo
		c.log.ErrorContext(ctx, "the chain reversed the payment of an order", "order", o.ID, "reason", out.FailureReason, "credits", o.Credits,
			"taken_back", o.TakenBack, "loss", o.Loss, "held", o.HeldBack)
	}
	if err := c.setFailed(o, out); err != nil {
		return err
	}
	if out.Unsure && o.DelegationID != "" {
		o.HeldCents = o.Cents
		giveBack = func(budget, *store.Order) {}
	}
	if err := store.UpdateOrder(ctx, t.Tx, o); err != nil {
		return err
	}
	if err := store.UncountOrder(ctx, t.Tx, o.Plan); err != nil {
		return err
	}
	t.Event(orderEvents(o, plan.Owner, toll.EventOrderFailed)...)
	if err := c.changeBudgetOf(ctx, t, o, out, func(b budget) {
		giveBack(b, o)
		if out.Declined {
			b.decline(o.UpdatedAt)
		}
	}); err != nil || !out.Ended {
		return err
	}
	// The wallet may use the payment identifier of the sale again: this authorization can never pay.
	return store.FreeSaleIdentifier(ctx, t.Tx, o.Subscriber, o.ID)
}

func (c *Decisions) setFailed(o *store.Order, out *rail.Outcome) error {
	params := ""
	if len(out.Params) > 0 {
		text, err := json.Marshal(out.Params)
		if err != nil {
			return err
		}
		params = string(text)
	}
	o.Status, o.Open, o.UpdatedAt = toll.OrderFailed, false, c.now()
	o.FailureReason, o.FailureCode, o.FailureParams = out.FailureReason, out.FailureCode, params
	o.TxHash = cmp.Or(out.TxHash, o.TxHash)
	if o.FailureReason == "" {
		o.FailureReason = (&toll.Error{Code: failure(o).Code}).Text()
	}
	return nil
}

// changeBudgetOf changes the delegation of a decided order, if it has one, and the record of its payment.
func (c *Decisions) changeBudgetOf(ctx context.Context, t *ledger.Tx, o *store.Order, out *rail.Outcome, change func(b budget)) error {
	if o.DelegationID == "" {
		return nil
	}
	events, err := c.delegations.changeBudget(ctx, t.Tx, o.DelegationID, func(b budget) error { change(b); return nil })
	if err != nil {
		return err
	}
	t.Event(events...)
	status, provider := toll.TransactionSucceeded, cmp.Or(out.ProviderID, out.TxHash)
	if o.Status == toll.OrderFailed {
		status = toll.TransactionFailed
	}
	return store.UpdateDelegationTransaction(ctx, t.Tx, o.DelegationID, o.ID, status, provider, o.FailureReason)
}

// setTakenBack sets what became of the credits of an order that was undone.
func setTakenBack(o *store.Order, t ledger.TakenBack) {
	o.TakenBack, o.HeldBack = t.Taken, t.Left
	o.Loss = t.Granted - t.Taken - t.Left
}
