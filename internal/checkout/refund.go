package checkout

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// RefundRef is what is kept of a refund under an Idempotency-Key.
type RefundRef struct {
	OrderID  string `json:"orderId"`
	RefundID string `json:"refundId"`
}

// Refund refunds a paid card order, by the owner of its plan: cents, or what is left for nil. The order has status 202 until the processor
// accepts the refund, for at most wait. Then credits are withdrawn. once, which may be nil, keeps a [RefundRef].
// Errors: [toll.CodeBadUUID], [toll.CodeOrderNotFound] unless the caller is the subscriber or the owner, [toll.CodeNotPlanOwner],
// [toll.CodeBadNumber] for no cents, [toll.CodeRefundRefused] for an order that no card has paid, during a dispute, for more than is left,
// and when the processor refuses; [toll.CodeCardOff].
func (c *Checkout) Refund(
	ctx context.Context, caller toll.Address, orderID string, cents *toll.Cents, once *store.Once, wait time.Duration,
) (*toll.Order, error) {
	o, plan, by, err := c.refundable(ctx, caller, orderID)
	if err != nil {
		return nil, err
	}
	r := rail.Refund{ID: toll.NewUUID(), OrderID: o.ID, By: caller}
	if cents != nil {
		if r.Cents = int64(*cents); r.Cents <= 0 {
			return nil, toll.Errorf(toll.CodeBadNumber, "A refund must be at least 1 cent.").WithParam("path", "amountCents")
		}
	}
	ref := RefundRef{OrderID: o.ID, RefundID: r.ID}
	err = c.Decisions.Change(ctx, o.Account, func(t *rail.Tx) error {
		// The row of the order is locked before those of the rail.
		now, err := store.OrderForUpdate(ctx, t.Tx, o.Account, o.ID)
		switch {
		case err != nil:
			return err
		case now.Status != toll.OrderConfirmed:
			said, hint := "The order is not paid yet, so it cannot be refunded.", "Refund only orders with the status confirmed."
			if now.Status == toll.OrderFailed {
				said = "The order failed, so there is nothing to refund."
			}
			return toll.Errorf(toll.CodeRefundRefused, "%s", said).WithHint(hint)
		}
		if err := by.BeginRefund(ctx, t, r); err != nil {
			return err
		}
		if err := store.PutAnswer(ctx, t.Tx, once, ref); err != nil {
			return err
		}
		return store.Audit(ctx, t.Tx, store.Act{
			Workspace: caller.Lower(), Act: "order.refund_asked", Object: o.ID, At: c.now(),
			Detail: store.Changed{After: map[string]any{"refundId": r.ID, "cents": r.Cents}},
		})
	})
	if err != nil {
		return nil, Fault(err)
	}
	c.failpoint("refunding")
	return c.refunded(ctx, plan, o, by, ref, wait)
}

// ReplayRefund returns the current result of an earlier [Checkout.Refund].
func (c *Checkout) ReplayRefund(ctx context.Context, caller toll.Address, earlier RefundRef, wait time.Duration) (*toll.Order, error) {
	o, plan, by, err := c.refundable(ctx, caller, earlier.OrderID)
	if err != nil {
		return nil, err
	}
	return c.refunded(ctx, plan, o, by, earlier, wait)
}

// notByCard is the hint for an order that no card paid.
const notByCard = "To return tokens, send them from your wallet. To remove the credits of a free order, use POST /api/v1/protocol/plans/takeBack."

// refundable returns an order whose money the caller may give back, its plan, and its rail.
func (c *Checkout) refundable(ctx context.Context, caller toll.Address, orderID string) (*store.Order, *toll.Plan, rail.Refunder, error) {
	o, plan, err := c.orderFor(ctx, caller, orderID)
	switch {
	case err != nil:
		return nil, nil, nil, err
	case caller != plan.Owner:
		return nil, nil, nil, toll.NewError(toll.CodeNotPlanOwner).WithDetails("planId %s", plan.ID)
	case o.Rail != rail.Card:
		return nil, nil, nil, toll.Errorf(toll.CodeRefundRefused, "Only an order paid by card can be refunded.").WithHint(notByCard)
	}
	by, ok := c.rails[rail.Card].(rail.Refunder)
	if !ok {
		return nil, nil, nil, railMissing(rail.Card)
	}
	return o, plan, by, nil
}

// refunded waits until the processor has taken a refund, and renders the order.
func (c *Checkout) refunded(
	ctx context.Context, plan *toll.Plan, o *store.Order, by rail.Refunder, ref RefundRef, wait time.Duration,
) (*toll.Order, error) {
	decided, failure, err := c.waits.awaitRefund(ctx, by, ref, wait)
	switch {
	case err != nil:
		return nil, Fault(unknown(err, toll.CodeOrderNotFound, "refundId", ref.RefundID))
	case failure != "":
		return nil, toll.Errorf(toll.CodeRefundRefused, "The refund failed at the card processor.").WithDetails("%s", failure).
			WithParam("orderId", o.ID)
	}
	now, err := store.OrderOfAccount(ctx, c.store, o.Account, o.ID)
	if err != nil {
		return nil, Fault(err)
	}
	out := c.render(ctx, plan, now)
	if !decided {
		out.HTTPStatus = 202
	}
	return out, nil
}

// awaitRefund returns a refund as it stands when the processor has taken it, at shutdown, or after wait.
func (c *waits) awaitRefund(
	ctx context.Context, by rail.Refunder, ref RefundRef, wait time.Duration,
) (decided bool, failure string, err error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	changed, leave := c.waiters.Join(ref.OrderID)
	defer leave()
	for {
		// This read is not bounded by wait: the caller is owed an answer.
		if decided, failure, err = by.Refunded(ctx, ref.RefundID); decided || err != nil || c.stops() || waiting.Err() != nil {
			return decided, failure, err
		}
		run, err := c.queue.Take(waiting, store.JobCardRefund, []byte(ref.RefundID))
		if err != nil && waiting.Err() == nil {
			return false, "", err
		}
		rail.Wait(waiting, readEvery, changed, run, c.stopping)
	}
}
