package store

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
)

// Kind is a kind of record that belongs to a principal.
type Kind string

// Kinds of records that are counted.
const (
	KindAgent      Kind = "agents"
	KindPlan       Kind = "plans"
	KindAPIKey     Kind = "API keys"
	KindDelegation Kind = "delegations"
)

// Owned counts the records of a kind that a principal has, up to most. API keys and delegations count while they are in
// force at t. The transaction holds the row of the principal from here on, so that of several that count and add one after
// the other each counts what was added before.
func Owned(ctx context.Context, tx *Tx, kind Kind, owner toll.Address, at time.Time, most int64) (n int64, err error) {
	var address string
	err = tx.QueryRow(ctx, "SELECT address FROM principals WHERE address = $1"+tx.ForUpdate(), owner.Lower()).Scan(&address)
	if err != nil {
		return 0, err
	}
	var rows string
	args := []any{owner.Lower(), most}
	switch kind {
	case KindAgent:
		rows = "SELECT 1 FROM agents WHERE owner = $1"
	case KindPlan:
		rows = "SELECT 1 FROM plans WHERE owner = $1"
	case KindAPIKey:
		rows = "SELECT 1 FROM api_keys WHERE address = $1 AND revoked_at = 0 AND (expires_at = 0 OR expires_at > $3)"
		args = append(args, Micros(at))
	case KindDelegation:
		rows = "SELECT 1 FROM delegations WHERE owner = $1 AND revoked_at = 0 AND expires_at > $3"
		args = append(args, Micros(at))
	}
	err = tx.QueryRow(ctx, "SELECT COUNT(*) FROM ("+rows+" LIMIT $2) t", args...).Scan(&n)
	return n, err
}

// Quota bounds the records of a kind that a principal may have.
type Quota struct {
	Kind  Kind
	Owner toll.Address
	Most  int64
	At    time.Time // API keys and delegations count that are in force then
	Full  error     // returned when there is no room
}

// Check proves that the owner may have n more records than it has. It holds the owner's row until the transaction ends. A nil
// quota has room, and so has one of an owner that is no principal of this service.
func (q *Quota) Check(ctx context.Context, tx *Tx, n int64) error {
	if q == nil {
		return nil
	}
	has, err := Owned(ctx, tx, q.Kind, q.Owner, q.At, q.Most+1)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err == nil && has+n > q.Most:
		return q.Full
	}
	return err
}

// These statements select a record of a seller or of a buyer. Such records are never deleted.
const (
	sqlAnyPlan          = `SELECT 1 FROM plans WHERE owner = $1 LIMIT 1`
	sqlAnyAgent         = `SELECT 1 FROM agents WHERE owner = $1 LIMIT 1`
	sqlAnyAccount       = `SELECT 1 FROM accounts WHERE subscriber = $1 LIMIT 1`
	sqlAnyOrder         = `SELECT 1 FROM orders WHERE subscriber = $1 LIMIT 1`
	sqlAnyDelegation    = `SELECT 1 FROM delegations WHERE owner = $1 LIMIT 1`
	sqlAnyPaymentMethod = `SELECT 1 FROM payment_methods WHERE owner = $1 LIMIT 1`
)

// SellsAndBuys reports whether a workspace has records of a seller, and of a buyer.
func SellsAndBuys(ctx context.Context, q Querier, workspace toll.Address) (sells, buys bool, err error) {
	has := func(statements ...string) bool {
		for _, sql := range statements {
			var found []int64
			if found, err = values[int64](ctx, q, sql, workspace.Lower()); err != nil || len(found) > 0 {
				return err == nil
			}
		}
		return false
	}
	if sells = has(sqlAnyPlan, sqlAnyAgent); err == nil {
		buys = has(sqlAnyAccount, sqlAnyOrder, sqlAnyDelegation, sqlAnyPaymentMethod)
	}
	return sells, buys, err
}
