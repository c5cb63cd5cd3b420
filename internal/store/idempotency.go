package store

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
)

// StoredAnswer is what a call with an Idempotency-Key was answered.
type StoredAnswer struct {
	Scope     toll.Hash `db:"scope"`  // of caller, operation, path and key
	Body      toll.Hash `db:"body"`   // of the request
	Answer    []byte    `db:"answer"` // sealed
	CreatedAt time.Time `db:"created_at"`
}

var (
	storedAnswers = newRecord[StoredAnswer]("idempotency_keys")
	// Answer returns what is stored under a scope, or [ErrNotFound], also for what was stored before since.
	Answer      = by2[toll.Hash, time.Time](storedAnswers, "scope = $1 AND created_at >= $2")
	dropAnswers = dropOldest(storedAnswers, "scope", "created_at")
)

// Once is what a call that creates has written in the transaction that creates. A nil Once writes nothing.
type Once struct {
	Scope toll.Hash // of caller, operation, path and Idempotency-Key; zero: the call has none, and no answer is kept
	Body  toll.Hash // of the request
	At    time.Time
	Since time.Time // an answer that was stored before counts as none
	Seal  func(answer any) ([]byte, error)
	Quota *Quota // nil: none

	// Stored and Lost say what became of the answer in the last run of the transaction: it was stored, or another call with
	// the key was first.
	Stored, Lost bool
}

// ErrAnswered ends a transaction of which another call with the same Idempotency-Key was first.
var ErrAnswered = errors.New("store: another request with this Idempotency-Key came first")

// PutAnswer proves that the quota of a call has room for what it created, and stores its answer. It is the last record of the
// transaction that creates, before its events. Errors: that of the quota, [ErrAnswered]. Two transactions of one scope run one
// after the other from here on.
func PutAnswer(ctx context.Context, tx *Tx, once *Once, answer any) error {
	if once == nil {
		return nil
	}
	once.Stored, once.Lost = false, false
	if err := once.Quota.Check(ctx, tx, 0); err != nil || once.Scope.IsZero() {
		return err
	}
	sealed, err := once.Seal(answer)
	if err != nil {
		return err
	}
	once.Stored, err = storedAnswers.insertOr(ctx, tx, StoredAnswer{once.Scope, once.Body, sealed, once.At}, `ON CONFLICT (scope)
		DO UPDATE SET body = excluded.body, answer = excluded.answer, created_at = excluded.created_at
		WHERE idempotency_keys.created_at < $5`, Micros(once.Since))
	if err == nil && !once.Stored {
		once.Lost, err = true, ErrAnswered
	}
	return err
}

// DropAnswers removes at most limit answers that were stored before since, and returns how many it removed.
func DropAnswers(ctx context.Context, s *Store, since time.Time, limit int64) (n int64, err error) {
	err = s.Tx(ctx, func(tx *Tx) error {
		n, err = dropAnswers(ctx, tx, since, limit)
		return err
	})
	return n, err
}
