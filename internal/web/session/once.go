package session

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
	answerLife = 2 * RecentTime
	// AnswerWait is how long the second of two equal forms waits for the first.
	AnswerWait  = 3 * time.Second
	answerPause = 25 * time.Millisecond
)

// ErrAnswered means that the form was submitted before and that its outcome is unknown.
var ErrAnswered = errors.New("session: the form was already submitted")

// Once runs act for a ticket that was proved. The same ticket again, from a double click on any process, gets the answer of
// the first. An act that was refused leaves nothing; of one that failed nobody knows what it did, so it is not repeated.
func (s *Sessions) Once(ctx context.Context, ticket string, act func() (string, error)) (string, error) {
	form := formSum(ticket)
	now := s.Clock()
	var mine bool
	err := s.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		mine, err = store.ClaimForm(ctx, tx, form, now, now.Add(answerLife))
		return err
	})
	if err != nil {
		return "", err
	}
	if !mine {
		return s.answered(ctx, form)
	}
	answer, err := act()
	if e := toll.AsError(err); err != nil && e.HTTPStatus() < http.StatusInternalServerError {
		return "", errors.Join(err, s.Store.Tx(ctx, func(tx *store.Tx) error { return store.ReleaseForm(ctx, tx, form) }))
	}
	if err != nil {
		return "", err
	}
	return answer, keep(ctx, s, form, answer)
}

// Resume is [Sessions.Once] for an act that has the same effect however often it runs. If the outcome of the first run is unknown, it
// runs again.
func Resume(ctx context.Context, s *Sessions, ticket string, act func() (string, error)) (string, error) {
	answer, err := s.Once(ctx, ticket, act)
	if !errors.Is(err, ErrAnswered) {
		return answer, err
	}
	if answer, err = act(); err != nil {
		return "", err
	}
	return answer, keep(ctx, s, formSum(ticket), answer)
}

// keep stores the answer to a form.
func keep(ctx context.Context, s *Sessions, form []byte, answer string) error {
	sealed, err := s.Seal([]byte(answer), AnswerOf(form))
	if err != nil {
		return err
	}
	return s.Store.Tx(ctx, func(tx *store.Tx) error { return store.PutFormAnswer(ctx, tx, form, sealed) })
}

// answered waits for the answer of the request that claimed the form.
func (s *Sessions) answered(ctx context.Context, form []byte) (string, error) {
	end := time.NewTimer(AnswerWait)
	defer end.Stop()
	for {
		sealed, err := store.FormAnswer(ctx, s.Store, form)
		if errors.Is(err, store.ErrNotFound) {
			return "", ErrAnswered
		}
		if err != nil {
			return "", err
		}
		if len(sealed) > 0 {
			plain, err := s.Open(sealed, AnswerOf(form))
			return string(plain), err
		}
		select {
		case <-time.After(answerPause):
		case <-end.C:
			return "", ErrAnswered
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// Take replaces the answer to a form by what replace returns, nil for no change. It reports whether this caller did: of several one does.
func (s *Sessions) Take(ctx context.Context, ticket string, replace func(answer []byte) ([]byte, error)) (taken bool, err error) {
	form := formSum(ticket)
	sealed, err := store.FormAnswer(ctx, s.Store, form)
	if errors.Is(err, store.ErrNotFound) || err == nil && len(sealed) == 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	answer, err := s.Open(sealed, AnswerOf(form))
	if err != nil {
		return false, err
	}
	kept, err := replace(answer)
	if err != nil || kept == nil {
		return false, err
	}
	if kept, err = s.Seal(kept, AnswerOf(form)); err != nil {
		return false, err
	}
	err = s.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		taken, err = store.SwapFormAnswer(ctx, tx, form, sealed, kept)
		return err
	})
	return taken && err == nil, err
}

// formSum names a form in the database.
func formSum(ticket string) []byte {
	sum := sha256.Sum256([]byte(ticket))
	return sum[:]
}

// AnswerOf is what the sealed answer to a form is bound to.
func AnswerOf(form []byte) []byte { return append([]byte("browser answer "), form...) }
