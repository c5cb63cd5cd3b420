package checkout

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// OrderAgain answers as [Checkout.Order] did, or would by now, when it made this order of the caller. It waits as long for
// an order that is not decided.
func (c *Checkout) OrderAgain(ctx context.Context, caller toll.Address, id string, wait time.Duration) (*toll.Order, error) {
	o, err := c.ownOrder(ctx, caller, id)
	if err != nil {
		return nil, err
	}
	plan, err := store.PlanByID(ctx, c.store, o.Plan)
	if err != nil {
		return nil, fault(err)
	}
	return c.answer(ctx, plan, o, wait)
}

// FiatAgain answers as [Checkout.Fiat] did, or would by now, when it made this order of the caller. While there is no page
// yet the error is [toll.CodeIdempotencyRunning].
func (c *Checkout) FiatAgain(ctx context.Context, caller toll.Address, id string, wait time.Duration) (*toll.Checkout, error) {
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
		return nil, fault(err)
	}
	return o, nil
}
