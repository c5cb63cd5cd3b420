package seller

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

const (
	cacheLife = 5 * time.Minute
	maxCached = 1000 // records in one cache: who calls may name them
)

// TermsCache caches the terms of plans. Price and credits of a plan never change, and verify decides.
type TermsCache = Cache[toll.PlanID, *x402.Terms]

// NewTermsCache returns an empty cache of the terms of f. timeout bounds each call.
func NewTermsCache(f x402.Facilitator, timeout time.Duration, clock func() time.Time) *TermsCache {
	return NewCache(f.Terms, toll.ErrPlanNotFound, timeout, clock)
}

// Cache caches records of the service. Old records are used during a call, and while the service is unreachable.
type Cache[K comparable, V any] struct {
	ask     Ask[K, V]
	gone    error // says that there is no such record any more
	timeout time.Duration
	clock   func() time.Time

	mu     sync.Mutex
	known  map[K]record[V]
	asking map[K]*question[V]
}

// Ask gets a record or an error, and how long it is valid.
type Ask[K comparable, V any] func(ctx context.Context, key K) (v V, keep time.Duration, err error)

type record[V any] struct {
	v     V
	err   error
	until time.Time
}

// question is a call to the service, shared by its callers.
type question[V any] struct {
	done chan struct{} // closed when there is an answer
	v    V
	err  error
}

// NewCache returns an empty cache of ask, with a lifetime of five minutes. timeout bounds each call. After the error gone an
// old record is not used.
func NewCache[K comparable, V any](
	ask func(context.Context, K) (V, error), gone error, timeout time.Duration, clock func() time.Time,
) *Cache[K, V] {
	c := &Cache[K, V]{gone: gone, timeout: timeout, clock: clock, known: map[K]record[V]{}, asking: map[K]*question[V]{}}
	c.ask = func(ctx context.Context, key K) (v V, keep time.Duration, err error) {
		if v, err = ask(ctx, key); err == nil {
			keep = cacheLife
		}
		return v, keep, err
	}
	return c
}

// Of returns a record. Concurrent callers share one call; without an old record each waits until its own ctx ends. The record
// is shared: treat it as read-only.
func (c *Cache[K, V]) Of(ctx context.Context, key K) (V, error) { return c.By(ctx, key, c.ask) }

// By is [Cache.Of] with another ask.
func (c *Cache[K, V]) By(ctx context.Context, key K, ask Ask[K, V]) (V, error) {
	c.mu.Lock()
	r, has := c.known[key]
	q, asked := c.asking[key]
	if has && (c.clock().Before(r.until) || asked && r.err == nil) {
		c.mu.Unlock()
		return r.v, r.err
	}
	if !asked {
		q = &question[V]{done: make(chan struct{}), err: toll.NewError(toll.CodeInternal)}
		c.asking[key] = q
	}
	c.mu.Unlock()
	if !asked {
		c.put(ctx, key, q, ask)
		return q.v, q.err
	}
	select {
	case <-q.done:
		return q.v, q.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// put makes the call, and falls back to an old record.
func (c *Cache[K, V]) put(ctx context.Context, key K, q *question[V], ask Ask[K, V]) {
	defer func() { // also when ask panics: the next caller asks again
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.asking, key)
		close(q.done)
	}()
	// Other callers wait for the answer, so it does not end with this request.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
	defer cancel()
	v, keep, err := ask(ctx, key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if older, has := c.known[key]; err != nil && has && older.err == nil && !errors.Is(err, c.gone) {
		v, err = older.v, nil
	}
	q.v, q.err = v, err
	if err != nil && keep == 0 {
		return
	}
	if len(c.known) >= maxCached {
		clear(c.known)
	}
	c.known[key] = record[V]{v: v, err: err, until: c.clock().Add(keep)} // from the answer on, which may have been long in coming
}
