package checkout

import (
	"context"

	"github.com/tollhq/toll"
)

// What a rail tells about orders whose payment it has decided, also when it had decided otherwise before. Each call is one
// transaction, may be repeated at any time, and must be repeated until it returns nil.

// Paid grants the credits of an order.
func (c *Checkout) Paid(ctx context.Context, orderID, txHash string) error { return errTold }

// Failed ends an order that moved no money.
func (c *Checkout) Failed(ctx context.Context, orderID string, code toll.Code, reason string, params map[string]any, txHash string) error {
	return errTold
}

// Final says that the payment of an order can no longer be undone.
func (c *Checkout) Final(ctx context.Context, orderID string) error { return errTold }

// Spent corrects what is spent of a delegation: units is all that the chain has counted against it, in base units of its
// currency.
func (c *Checkout) Spent(ctx context.Context, delegationID string, units toll.Units) error { return errTold }

// Disabled revokes a delegation that was disabled on the chain, and the permissions that name it.
func (c *Checkout) Disabled(ctx context.Context, delegationID string) error { return errTold }

var errTold = toll.NewError(toll.CodeInternal)
