package checkout

import (
	"context"
	"errors"

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
	return c.told(ctx, orderID, &Payment{Status: toll.OrderConfirmed, TxHash: txHash})
}

// Failed hears from the rail that an order moved no money. An open one gives back what it took. One that was confirmed loses its
// credits again, as far as they are there; what was used of them is noted as a loss and logged as an error. A repeat does
// nothing. Errors: [toll.CodeOrderNotFound].
func (c *Checkout) Failed(ctx context.Context, orderID string, code toll.Code, reason string, params map[string]any, txHash string) error {
	return c.told(ctx, orderID, &Payment{Status: toll.OrderFailed, FailureCode: code, FailureReason: reason, Params: params, TxHash: txHash})
}

// Final hears from the rail that the payment of an order cannot be undone any more. An order that is not confirmed yet is
// confirmed first. A repeat does nothing. Errors: [toll.CodeOrderNotFound].
func (c *Checkout) Final(ctx context.Context, orderID string) error {
	return c.told(ctx, orderID, &Payment{Status: toll.OrderFinal})
}

func (c *Checkout) told(ctx context.Context, orderID string, p *Payment) error {
	o, err := c.ofAny(ctx, orderID)
	if err != nil {
		return err
	}
	if p.Status == toll.OrderFinal {
		p.TxHash = o.TxHash
	}
	if o.Open && (isSale(o) && p.Status == toll.OrderFailed || p.Status == toll.OrderFinal) {
		latest, err := c.latest(ctx, o, p)
		if err != nil {
			return fault(err)
		}
		p.Ended = latest.Ended
		if p.TxHash == "" {
			p.TxHash = latest.TxHash
		}
	}
	err = c.decideAs(ctx, o, p)
	c.failpoint("told")
	return fault(err)
}
