package checkout

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// ReplayOrder returns the current result of an earlier [Checkout.Order] of the caller. It waits for an undecided order as Order does.
func (c *Checkout) ReplayOrder(ctx context.Context, caller toll.Address, id string, wait time.Duration) (*toll.Order, error) {
	o, err := c.ownOrder(ctx, caller, id)
	if err != nil {
		return nil, err
	}
	plan, err := store.PlanByID(ctx, c.store, o.Plan)
	if err != nil {
		return nil, Fault(err)
	}
	return c.answer(ctx, plan, o, wait)
}

// ReplayFiat returns the current result of an earlier [Checkout.Fiat] of the caller. Until the page exists, the error is
// [toll.CodeIdempotencyRunning].
func (c *Checkout) ReplayFiat(ctx context.Context, caller toll.Address, id string, wait time.Duration) (*toll.Checkout, error) {
	o, err := c.ownOrder(ctx, caller, id)
	if err != nil {
		return nil, err
	}
	out, err := c.page(ctx, o, wait)
	if errors.Is(err, toll.NewError(toll.CodeCardUnreachable)) {
		return nil, toll.NewError(toll.CodeIdempotencyRunning).WithParam("orderId", o.ID)
	}
	return out, err
}

func (c *Checkout) ownOrder(ctx context.Context, caller toll.Address, id string) (*store.Order, error) {
	o, err := store.OrderByID(ctx, c.store, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && o.Subscriber != caller {
		return nil, toll.NewError(toll.CodeOrderNotFound).WithDetails("orderId %s", id)
	}
	if err != nil {
		return nil, Fault(err)
	}
	return o, nil
}
