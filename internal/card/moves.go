package card

import (
	"context"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll/internal/store"
)

// Kinds of moves of the operator's balance.
const (
	moveCharge        = "charge"
	moveRefund        = "refund"
	moveRefundFailure = "refund_failure"
	moveDispute       = "dispute"
	moveReinstated    = "reinstated"
	moveRejected      = "rejected" // of another payment than that which paid the order
)

// putMove stores a change of the operator's balance; nil for one that is not there yet.
func putMove(ctx context.Context, tx *store.Tx, orderID, kind string, b *stripe.BalanceTransaction) error {
	if b == nil {
		return nil
	}
	return store.InsertCardMove(ctx, tx, moveOf(orderID, kind, b))
}

// moveOf returns the row of a balance transaction.
func moveOf(orderID, kind string, b *stripe.BalanceTransaction) *store.CardMove {
	return &store.CardMove{
		ID: b.ID, OrderID: orderID, Kind: kind, Cents: b.Amount, Fee: b.Fee, Currency: string(b.Currency),
		At: time.Unix(b.Created, 0).UTC(),
	}
}

// balanceOf returns the balance transaction of an intent that was fetched with it, nil for none.
func balanceOf(pi *stripe.PaymentIntent) *stripe.BalanceTransaction {
	if pi.LatestCharge == nil {
		return nil
	}
	return fetched(pi.LatestCharge.BalanceTransaction)
}

// fetched returns a balance transaction that was expanded; nil for one of which only the id is known.
func fetched(b *stripe.BalanceTransaction) *stripe.BalanceTransaction {
	if b == nil || b.Created == 0 {
		return nil
	}
	return b
}

// add adds a move of the operator's balance. Stripe may make it later than the object.
func (c *change) add(p *store.CardPayment, intent, kind string, b *stripe.BalanceTransaction) {
	if fetched(b) == nil {
		return
	}
	if intent != p.Intent {
		kind = moveRejected
	}
	c.moves = append(c.moves, moveOf(p.OrderID, kind, b))
}
