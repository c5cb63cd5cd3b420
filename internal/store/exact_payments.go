package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// ExactPayment is a payment of scheme exact that another server had verified or settled. Its authorization is beside it, under the
// same id.
type ExactPayment struct {
	ID      string // UUID
	Server  toll.Address
	Content toll.Hash // of what was asked for
	Opened  bool      // a verify came before the settle
	EndsAt  time.Time // of its authorization
	Answer  []byte    // to the settle, nil while there is none
}

// InsertExactPayment adds a payment that has no answer yet.
func InsertExactPayment(ctx context.Context, tx *Tx, p *ExactPayment) error {
	_, err := tx.Exec(ctx, "INSERT INTO exact_payments (payment_id, server, content, opened, ends_at) VALUES ($1, $2, $3, $4, $5)",
		p.ID, p.Server.Lower(), p.Content[:], p.Opened, Micros(p.EndsAt))
	return err
}

// AnswerExactPayment stores the answer to the settle of a payment, and reports whether it is the first.
func AnswerExactPayment(ctx context.Context, tx *Tx, id string, answer []byte) (first bool, err error) {
	n, err := tx.Exec(ctx, "UPDATE exact_payments SET answer = $2 WHERE payment_id = $1 AND answer IS NULL", id, blob(answer))
	return n == 1, err
}

// ExactPaymentByID returns a payment, or [ErrNotFound].
func ExactPaymentByID(ctx context.Context, q Querier, id string) (*ExactPayment, error) {
	p := &ExactPayment{ID: id}
	var server string
	var content []byte
	var ends int64
	err := q.QueryRow(ctx, "SELECT server, content, opened, answer, COALESCE(ends_at, 0) FROM exact_payments WHERE payment_id = $1", id).
		Scan(&server, &content, &p.Opened, &p.Answer, &ends)
	if err != nil {
		return nil, err
	}
	copy(p.Content[:], content)
	p.EndsAt = FromMicros(ends)
	p.Server, err = toll.ParseAddress(server)
	return p, err
}

// DropExactPayments removes at most limit payments whose authorization ended before a moment, and returns how many it removed.
// What the chain has not decided stays, and so does each authorization: nothing can be paid with it again.
func DropExactPayments(ctx context.Context, s *Store, before time.Time, limit int64) (n int64, err error) {
	err = s.Tx(ctx, func(tx *Tx) error {
		n, err = tx.Exec(ctx, `DELETE FROM exact_payments WHERE payment_id IN
			(SELECT payment_id FROM exact_payments WHERE ends_at < $1 AND NOT EXISTS
				(SELECT 1 FROM chain_ops o WHERE o.op_id = payment_id AND (o.untold OR o.state <> 'final' AND o.state <> 'failed'))
			ORDER BY ends_at LIMIT $2)`, Micros(before), limit)
		return err
	})
	return n, err
}
