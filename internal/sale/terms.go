package sale

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

const (
	termsLife = 5 * time.Minute
	maxTerms  = 1000 // plans in one cache: who calls may name them
)

// TermsCache keeps the terms of plans for five minutes. Price and credits of a plan never change, so that older terms serve while
// the service cannot be asked; verify has the last word.
type TermsCache struct {
	f       x402.Facilitator
	timeout time.Duration
	clock   func() time.Time

	mu     sync.Mutex
	known  map[toll.PlanID]knownTerms
	asking map[toll.PlanID]*question
}

type knownTerms struct {
	terms *x402.Terms
	at    time.Time
}

// question is a call to the service. Its answer is for all who wait for it.
type question struct {
	done  chan struct{} // closed when there is an answer
	terms *x402.Terms
	err   error
}

// NewTermsCache returns an empty cache of the terms that f tells. timeout bounds each call.
func NewTermsCache(f x402.Facilitator, timeout time.Duration, clock func() time.Time) *TermsCache {
	return &TermsCache{
		f: f, timeout: timeout, clock: clock, known: map[toll.PlanID]knownTerms{}, asking: map[toll.PlanID]*question{},
	}
}

// Of returns the terms of a plan. Of those who need them at the same time one asks, and the others wait for its answer as long as
// their own ctx lasts. The answer is shared: treat it as read-only.
func (t *TermsCache) Of(ctx context.Context, plan toll.PlanID) (*x402.Terms, error) {
	now := t.clock()
	t.mu.Lock()
	k := t.known[plan]
	if k.terms != nil && now.Sub(k.at) < termsLife {
		t.mu.Unlock()
		return k.terms, nil
	}
	q, asked := t.asking[plan]
	if !asked {
		q = &question{done: make(chan struct{}), err: toll.NewError(toll.CodeInternal)}
		t.asking[plan] = q
	}
	t.mu.Unlock()
	if !asked {
		t.ask(ctx, plan, q, k.terms, now)
		return q.terms, q.err
	}
	select {
	case <-q.done:
		return q.terms, q.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ask puts a question, and answers it by older terms when the service does not.
func (t *TermsCache) ask(ctx context.Context, plan toll.PlanID, q *question, older *x402.Terms, now time.Time) {
	defer func() { // also when f panics: the next one asks again
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.asking, plan)
		close(q.done)
	}()
	// Others wait for the answer, so it does not end with the request that happened to ask.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.timeout)
	defer cancel()
	terms, err := t.f.Terms(ctx, plan)
	if err != nil {
		if older != nil && !errors.Is(err, toll.ErrPlanNotFound) {
			q.terms, q.err = older, nil
			return
		}
		q.err = err
		return
	}
	q.terms, q.err = terms, nil
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.known) >= maxTerms {
		clear(t.known)
	}
	t.known[plan] = knownTerms{terms: terms, at: now}
}
