package store

import (
	"context"

	"github.com/tollhq/toll"
)

// ExactPayment is a payment of scheme exact that another server had verified or settled. Its authorization is beside it, under the
// same id.
type ExactPayment struct {
	ID      string // UUID
	Server  toll.Address
	Content toll.Hash // of what was asked for
	Opened  bool      // a verify came before the settle
	Answer  []byte    // to the settle, nil while there is none
}

// InsertExactPayment adds a payment that has no answer yet.
func InsertExactPayment(ctx context.Context, tx *Tx, p *ExactPayment) error {
	_, err := tx.Exec(ctx, "INSERT INTO exact_payments (payment_id, server, content, opened) VALUES ($1, $2, $3, $4)",
		p.ID, p.Server.Lower(), p.Content[:], p.Opened)
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
	err := q.QueryRow(ctx, "SELECT server, content, opened, answer FROM exact_payments WHERE payment_id = $1", id).
		Scan(&server, &content, &p.Opened, &p.Answer)
	if err != nil {
		return nil, err
	}
	copy(p.Content[:], content)
	p.Server, err = toll.ParseAddress(server)
	return p, err
}
