package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// Order is the record of a purchase.
type Order struct {
	ID            string   // UUID
	Account       [16]byte // ledger account of the plan and the subscriber
	Plan          toll.PlanID
	Subscriber    toll.Address
	Status        toll.OrderStatus
	TxHash        string // "" while none exists
	Credits       toll.Credits
	Amount        toll.Units
	Currency      string
	FailureReason string
	CreatedAt     time.Time
	UpdatedAt     time.Time
}

const orderColumns = `order_id, account_id, plan_id, subscriber, status, tx_hash, credits, amount, currency, failure_reason,
	created_at, updated_at`

// InsertOrder adds an order.
func InsertOrder(ctx context.Context, tx *Tx, o *Order) error {
	_, err := tx.Exec(ctx, "INSERT INTO orders ("+orderColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
		o.ID, o.Account[:], string(o.Plan), o.Subscriber.Lower(), string(o.Status), o.TxHash, int64(o.Credits), o.Amount.String(),
		o.Currency, o.FailureReason, Micros(o.CreatedAt), Micros(o.UpdatedAt))
	return err
}

// UpdateOrder stores the status, the transaction, the credits, the reason of a failure and the time of the update.
// [ErrNotFound] when the account has no such order.
func UpdateOrder(ctx context.Context, tx *Tx, o *Order) error {
	n, err := tx.Exec(ctx, `UPDATE orders SET status = $3, tx_hash = $4, credits = $5, failure_reason = $6, updated_at = $7
		WHERE account_id = $1 AND order_id = $2`,
		o.Account[:], o.ID, string(o.Status), o.TxHash, int64(o.Credits), o.FailureReason, Micros(o.UpdatedAt))
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// OrderOfAccount returns an order of an account, or [ErrNotFound].
func OrderOfAccount(ctx context.Context, q Querier, account [16]byte, id string) (*Order, error) {
	return scanOrder(q.QueryRow(ctx, "SELECT "+orderColumns+" FROM orders WHERE account_id = $1 AND order_id = $2", account[:], id).Scan)
}

// OrderByID returns an order of whatever account, or [ErrNotFound]. It asks every part of a distributed database.
func OrderByID(ctx context.Context, q Querier, id string) (*Order, error) {
	return scanOrder(q.QueryRow(ctx, "SELECT "+orderColumns+" FROM orders WHERE order_id = $1", id).Scan)
}

func scanOrder(scan func(dest ...any) error) (*Order, error) {
	var o Order
	var account []byte
	var plan, subscriber, status, amount string
	var credits, created, updated int64
	err := scan(&o.ID, &account, &plan, &subscriber, &status, &o.TxHash, &credits, &amount, &o.Currency, &o.FailureReason, &created, &updated)
	if err != nil {
		return nil, err
	}
	copy(o.Account[:], account)
	o.Plan, o.Status, o.Credits = toll.PlanID(plan), toll.OrderStatus(status), toll.Credits(credits)
	o.CreatedAt, o.UpdatedAt = FromMicros(created), FromMicros(updated)
	if o.Subscriber, err = toll.ParseAddress(subscriber); err != nil {
		return nil, err
	}
	o.Amount, err = toll.ParseUnits(amount)
	return &o, err
}
