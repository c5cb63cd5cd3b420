package checkout

import (
	"context"
	"errors"
	"fmt"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// ofAny returns an order of whatever account, or [toll.CodeOrderNotFound].
func (c *Checkout) ofAny(ctx context.Context, id string) (*store.Order, error) {
	o, err := store.OrderByID(ctx, c.store, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, toll.NewError(toll.CodeOrderNotFound).WithDetails("orderId %s", id)
	}
	return o, fault(err)
}

// Paid hears from the rail that an order is paid, and grants its credits: also those of an order that had failed, whose credits
// return when they were taken back. It may be called any number of times, and must be until it returns nil. Errors:
// [toll.CodeOrderNotFound].
func (c *Checkout) Paid(ctx context.Context, orderID, txHash string) error {
	o, err := c.ofAny(ctx, orderID)
	if err != nil {
		return err
	}
	return c.paid(ctx, o, &Payment{Status: toll.OrderConfirmed, TxHash: txHash})
}

func (c *Checkout) paid(ctx context.Context, o *store.Order, p *Payment) error {
	plan, err := store.PlanByID(ctx, c.store, o.Plan)
	if err != nil {
		return fault(err)
	}
	err = c.confirm(ctx, plan, o, p)
	c.at("told")
	return fault(err)
}

// Failed hears from the rail that an order moved no money. An open one gives back what it took. One that was confirmed loses its
// credits again, as far as they are there; what was used of them is noted as a loss and logged as an error. A repeat does
// nothing. Errors: [toll.CodeOrderNotFound].
func (c *Checkout) Failed(ctx context.Context, orderID string, code toll.Code, reason string, params map[string]any, txHash string) error {
	p := &Payment{Status: toll.OrderFailed, FailureCode: code, FailureReason: reason, Params: params, TxHash: txHash}
	for range decideTries {
		o, err := c.ofAny(ctx, orderID)
		if err != nil {
			return err
		}
		switch {
		case o.Status == toll.OrderFailed:
			return nil
		case o.Status == toll.OrderFinal:
			c.log.Error("an order that is final was said to have failed; nothing is taken back", "order", o.ID, "reason", reason)
			return nil
		case o.Open && !isSale(o):
			err = c.fail(ctx, o, p)
		default:
			latest, e := c.latest(ctx, o, p)
			if e != nil {
				return fault(e)
			}
			p.Ended = latest.Ended
			switch {
			case o.Open:
				err = c.fail(ctx, o, p)
			case latest.Status != toll.OrderFailed:
				c.log.Warn("a paid order was said to have failed, and has not", "order", o.ID)
				return nil
			default:
				err = c.takeBack(ctx, o, p)
			}
		}
		c.at("told")
		if err != nil && !errors.Is(err, errElsewhere) {
			return fault(err)
		}
	}
	return fault(fmt.Errorf("%w: order %s", errElsewhere, orderID))
}

// Final hears from the rail that the payment of an order cannot be undone any more. An order that is not confirmed yet is
// confirmed first. A repeat does nothing. Errors: [toll.CodeOrderNotFound].
func (c *Checkout) Final(ctx context.Context, orderID string) error {
	o, err := c.ofAny(ctx, orderID)
	if err != nil {
		return err
	}
	if !isPaid(o.Status) {
		p, err := c.latest(ctx, o, &Payment{Status: toll.OrderFinal, TxHash: o.TxHash})
		if err != nil {
			return fault(err)
		}
		if err := c.paid(ctx, o, p); err != nil {
			return err
		}
	}
	err = c.store.Tx(ctx, func(tx *store.Tx) error {
		next, err := store.OrderForUpdate(ctx, tx, o.Account, o.ID)
		if err != nil || next.Status != toll.OrderConfirmed {
			return err
		}
		next.Status, next.UpdatedAt = toll.OrderFinal, c.now()
		return store.UpdateOrder(ctx, tx, next)
	})
	c.at("told")
	return fault(err)
}
