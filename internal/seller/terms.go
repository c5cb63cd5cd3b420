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
	maxCached = 1000 // records in one cache, which callers may choose
)

// TermsCache caches the terms of plans. Old terms are harmless: price and credits of a plan never change, and verify decides.
type TermsCache = Cache[toll.PlanID, *x402.Terms]

// NewTermsCache returns an empty cache of the terms of f. timeout bounds each call.
func NewTermsCache(f x402.Facilitator, timeout time.Duration, clock func() time.Time) *TermsCache {
	return NewCache(f.Terms, toll.ErrPlanNotFound, timeout, clock)
}

// Cache caches records of the service. It returns old records while a call is in progress and while the service is unreachable.
type Cache[K comparable, V any] struct {
	ask     Ask[K, V]
	gone    error // the error for a deleted record; nil if there is none
	timeout time.Duration
	clock   func() time.Time

	mu     sync.Mutex
	known  map[K]record[V]
	asking map[K]*question[V]
}

// Ask reads a record from the service. It returns the record or an error, and the time for which to cache it.
type Ask[K comparable, V any] func(ctx context.Context, key K) (v V, keep time.Duration, err error)

type record[V any] struct {
	v     V
	err   error
	until time.Time
}

// question is a call to the service, shared by its callers.
type question[V any] struct {
	done chan struct{} // closed once v and err are set
	v    V
	err  error
}

// NewCache returns an empty cache of the records that ask returns, each valid for five minutes. timeout bounds each call. After the
// error gone, an old record is not returned.
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

// Of returns the record with this key. Concurrent callers share one call. Without an old record, they wait for it, each until its
// own ctx ends. The record is shared: treat it as read-only.
func (c *Cache[K, V]) Of(ctx context.Context, key K) (V, error) { return c.By(ctx, key, c.ask) }

// By is [Cache.Of] with a different ask.
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

// put calls ask and stores the result. On an error, it falls back to an old record.
func (c *Cache[K, V]) put(ctx context.Context, key K, q *question[V], ask Ask[K, V]) {
	defer func() { // also if ask panics, so that the next caller retries
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.asking, key)
		close(q.done)
	}()
	// Other callers wait for the result, so the call does not end with this request.
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
		delete(c.known, key) // an old record must not return with the next failure
		return
	}
	if len(c.known) >= maxCached {
		clear(c.known)
	}
	c.known[key] = record[V]{v: v, err: err, until: c.clock().Add(keep)} // counted from the response, which may be slow
}
