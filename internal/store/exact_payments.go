package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// ExactPayment is a payment of scheme exact that another server had verified or settled. Its authorization is beside it, under the same id.
type ExactPayment struct {
	ID      string       `db:"payment_id"` // UUID
	Server  toll.Address `db:"server"`
	Content toll.Hash    `db:"content"`     // of what was asked for
	Opened  bool         `db:"opened"`      // a verify came before the settle
	EndsAt  time.Time    `db:"ends_at"`     // of its authorization
	Answer  []byte       `db:"answer,null"` // to the settle, nil while there is none
}

var (
	exactPayments      = newRecord[*ExactPayment]("exact_payments")
	InsertExactPayment = exactPayments.insert // without an answer
	ExactPaymentByID   = by[string](exactPayments, "payment_id = $1")
	// AnswerExactPayment stores the answer to the settle of a payment, and reports whether it is the first.
	AnswerExactPayment = first2[string, []byte](
		"UPDATE exact_payments SET answer = $2 WHERE payment_id = $1 AND answer IS NULL")
)

// unasked are the payments that nobody had settled: nothing was sent to the chain, and nothing answered.
const unasked = "answer IS NULL AND NOT EXISTS (SELECT 1 FROM chain_ops o WHERE o.op_id = payment_id)"

// UnaskedAuthorizations returns at most limit authorizations that ended before a moment, of payments that nobody had settled, the
// oldest first.
func UnaskedAuthorizations(ctx context.Context, q Querier, before time.Time, limit int64) ([]*Authorization, error) {
	return authorizations.all(ctx, q, "JOIN exact_payments ON order_id = payment_id WHERE ends_at < $1 AND "+unasked+
		" ORDER BY ends_at, payment_id LIMIT $2", Micros(before), limit)
}

// DropExactPayments removes at most limit payments whose authorization ended before a moment, the oldest first, and returns how many it
// removed beside the dead ones. These count for the limit, so that of [UnaskedAuthorizations] with the same limit none goes that is
// not among them. What the chain has not decided stays, and so does each authorization, so that nothing can be paid with it again: but
// for the dead ones, with which nothing was paid and nothing ever can be. They go with their payments, and these with their names,
// unless somebody had them settled meanwhile.
func DropExactPayments(ctx context.Context, s *Store, before time.Time, limit int64, dead []*Authorization) (n int64, err error) {
	err = s.Tx(ctx, func(tx *Tx) error {
		left := limit
		for _, a := range dead {
			gone, err := tx.Exec(ctx, "DELETE FROM exact_payments WHERE payment_id = $1 AND "+unasked, a.OrderID)
			if err != nil {
				return err
			}
			if gone == 0 {
				continue
			}
			left--
			if _, err := tx.Exec(ctx, "DELETE FROM authorizations WHERE order_id = $1", a.OrderID); err != nil {
				return err
			}
			if err := FreeSaleIdentifier(ctx, tx, a.Payer, a.OrderID); err != nil {
				return err
			}
		}
		n, err = tx.Exec(ctx, `DELETE FROM exact_payments WHERE payment_id IN
			(SELECT payment_id FROM exact_payments WHERE ends_at < $1 AND NOT EXISTS
				(SELECT 1 FROM chain_ops o WHERE o.op_id = payment_id AND (o.untold OR o.state <> 'final' AND o.state <> 'failed'))
			ORDER BY ends_at, payment_id LIMIT $2)`, Micros(before), left)
		return err
	})
	return n, err
}
