// Package rail holds the types that checkout and the rails share. A rail is a way in which money reaches the builder: the
// chain or the card processor. The order is the business record, the rail's own row its execution; both lie in the same
// database and are joined by the id of the order.
package rail

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// Orders is how a rail decides orders.
type Orders interface {
	// Change runs f in one transaction that holds the lock of an account, so that a rail writes its row and decides the order
	// together. f may run several times, so it changes nothing outside the database; what the rail keeps in memory moves after
	// Change has returned nil. f must not reach the network. The error is that of f, or of the database.
	Change(ctx context.Context, account [16]byte, f func(t *Tx) error) error
	// Spent says how many base units have been spent of a delegation in all. A repeat changes nothing. Errors:
	// [toll.CodeUnknownDelegation].
	Spent(ctx context.Context, delegationID string, units toll.Units) error
	// Disabled says that a delegation was revoked at the rail. A repeat changes nothing. Errors: [toll.CodeUnknownDelegation],
	// [toll.CodeDelegationNotFound].
	Disabled(ctx context.Context, delegationID string) error
}

// Tx is a transaction that holds the lock of an account.
type Tx struct {
	*store.Tx
	decide func(orderID string, o Outcome) error
}

// NewTx returns a transaction whose orders decide decides.
func NewTx(tx *store.Tx, decide func(orderID string, o Outcome) error) *Tx { return &Tx{tx, decide} }

// Decide writes what became of the payment of an order of the account, with its credits. An outcome that the order already
// has changes nothing. A failed order that is paid after all gets its credits, and a confirmed one that failed loses them
// again; a final order is never undone. After an error the transaction must end: the rail then keeps its evidence in a
// transaction of its own and tries again later. Errors: [toll.CodeOrderNotFound], refusals of the ledger, those of the
// database.
func (t *Tx) Decide(orderID string, o Outcome) error { return t.decide(orderID, o) }

// Outcome is what became of a payment.
type Outcome struct {
	Status        toll.OrderStatus // confirmed, final or failed
	TxHash        string           // chain transaction, "" for none
	ProviderID    string           // id of the payment at the rail; "" for TxHash
	FailureReason string           // of a failure
	// FailureCode is what the caller is told of a failure; "" is [toll.CodeOrderLacksMoney].
	FailureCode toll.Code
	Params      map[string]any // details of the failure for machines; JSON
	// Ended says of a failure that the chain itself has decided it. Nobody can have the authorization of a sale carried out any
	// more then, as they can of one that failed before anything was sent.
	Ended bool
}

// Decided reports whether the status is one that decides an order.
func (o *Outcome) Decided() bool {
	return o.Status == toll.OrderConfirmed || o.Status == toll.OrderFinal || o.Status == toll.OrderFailed
}
