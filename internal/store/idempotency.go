package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// StoredAnswer is what a call with an Idempotency-Key was answered.
type StoredAnswer struct {
	Scope     toll.Hash // of caller, operation, path and key
	Body      toll.Hash // of the request
	Answer    []byte    // sealed
	CreatedAt time.Time
}

// PutAnswer stores an answer in the transaction that made what it tells of, and reports whether it is the first under its
// scope. One that was stored before since counts as none. Two transactions of one scope run one after the other from here on.
func PutAnswer(ctx context.Context, tx *Tx, a StoredAnswer, since time.Time) (first bool, err error) {
	n, err := tx.Exec(ctx, `INSERT INTO idempotency_keys (scope, body, answer, created_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (scope) DO UPDATE SET body = excluded.body, answer = excluded.answer, created_at = excluded.created_at
		WHERE idempotency_keys.created_at < $5`, a.Scope[:], a.Body[:], a.Answer, Micros(a.CreatedAt), Micros(since))
	return n == 1, err
}

// Answer returns what is stored under a scope, or [ErrNotFound], also for what was stored before since.
func Answer(ctx context.Context, q Querier, scope toll.Hash, since time.Time) (StoredAnswer, error) {
	a := StoredAnswer{Scope: scope}
	var body []byte
	var created int64
	err := q.QueryRow(ctx, "SELECT body, answer, created_at FROM idempotency_keys WHERE scope = $1 AND created_at >= $2", scope[:], Micros(since)).
		Scan(&body, &a.Answer, &created)
	if err != nil {
		return StoredAnswer{}, err
	}
	copy(a.Body[:], body)
	a.CreatedAt = FromMicros(created)
	return a, nil
}

// DropAnswers removes at most limit answers that were stored before since, and returns how many it removed.
func DropAnswers(ctx context.Context, s *Store, since time.Time, limit int64) (n int64, err error) {
	err = s.Tx(ctx, func(tx *Tx) error {
		n, err = tx.Exec(ctx, `DELETE FROM idempotency_keys WHERE scope IN
			(SELECT scope FROM idempotency_keys WHERE created_at < $1 ORDER BY created_at LIMIT $2)`, Micros(since), limit)
		return err
	})
	return n, err
}
