package checkout

import (
	"context"

	"github.com/tollhq/toll"
)

// Rail is a way in which money reaches the builder: the chain or the card processor. No rail is built in yet; orders of
// plans with a price are refused until one is.
type Rail interface {
	// Pay starts the payment of a recorded order, or goes on with the one that was started: the order id is its
	// idempotency key, so that an order is paid at most once whatever crashes between. It returns when the payment is
	// decided, when a person must act (CheckoutURL), or when ctx ends.
	Pay(ctx context.Context, p Purchase) (Payment, error)
	// Outcome tells what became of the payment of an order. What a crash left open is finished with it.
	Outcome(ctx context.Context, orderID string) (Payment, error)
}

// Purchase is an order to be paid.
type Purchase struct {
	OrderID      string // UUID
	Plan         *toll.Plan
	Subscriber   toll.Address
	DelegationID string // limit on money to pay with; "" when a person pays
}

// Payment is the state of a payment.
type Payment struct {
	Status        toll.OrderStatus
	TxHash        string // chain transaction, "" while none exists
	CheckoutURL   string // where a person pays, "" when nobody must act
	FailureReason string // set when Status is failed
}
