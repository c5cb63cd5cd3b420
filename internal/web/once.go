package web

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const (
	// answerLife is how long the answer to a form is kept: longer than its ticket holds.
	answerLife = 2 * freshTime
	// answerWait is how long the second of two equal forms waits for the first.
	answerWait  = 3 * time.Second
	answerPause = 25 * time.Millisecond
)

// errAnswered is a form that was sent before, and of whose answer nothing is known.
var errAnswered = errors.New("the form was answered before")

// once runs act for a ticket that was proved. The same ticket again, from a double click on any process, gets the answer of
// the first. An act that was refused leaves nothing; of one that failed nobody knows what it did, so it is not repeated.
func (w *Web) once(ctx context.Context, ticket string, act func() (string, error)) (string, error) {
	form := formSum(ticket)
	now := w.Clock()
	var mine bool
	err := w.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		mine, err = store.ClaimForm(ctx, tx, form, now, now.Add(answerLife))
		return err
	})
	if err != nil {
		return "", err
	}
	if !mine {
		return w.answered(ctx, form)
	}
	answer, err := act()
	if e := toll.AsError(err); err != nil && e.HTTPStatus() < http.StatusInternalServerError {
		return "", errors.Join(err, w.Store.Tx(ctx, func(tx *store.Tx) error { return store.ReleaseForm(ctx, tx, form) }))
	}
	if err != nil {
		return "", err
	}
	sealed, err := w.Seal([]byte(answer), AnswerOf(form))
	if err != nil {
		return "", err
	}
	err = w.Store.Tx(ctx, func(tx *store.Tx) error { return store.PutFormAnswer(ctx, tx, form, sealed) })
	return answer, err
}

// answered waits for the answer of who claimed the form.
func (w *Web) answered(ctx context.Context, form []byte) (string, error) {
	end := time.NewTimer(answerWait)
	defer end.Stop()
	for {
		sealed, err := store.FormAnswer(ctx, w.Store, form)
		if errors.Is(err, store.ErrNotFound) {
			return "", errAnswered
		}
		if err != nil {
			return "", err
		}
		if len(sealed) > 0 {
			plain, err := w.Open(sealed, AnswerOf(form))
			return string(plain), err
		}
		select {
		case <-time.After(answerPause):
		case <-end.C:
			return "", errAnswered
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// formSum names a form in the database.
func formSum(ticket string) []byte {
	sum := sha256.Sum256([]byte(ticket))
	return sum[:]
}

// AnswerOf is what the sealed answer to a form is bound to.
func AnswerOf(form []byte) []byte { return append([]byte("browser answer "), form...) }
