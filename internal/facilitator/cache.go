package facilitator

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// cache keeps what was read for a moment, and lets callers that want the same thing at the same time share one read.
// It only ever serves decisions that are made again under the lock of an account.
type cache[K comparable, V any] struct {
	load  func(context.Context, K) (V, error)
	clock func() time.Time
	ttl   time.Duration
	bound int // most entries

	mu      sync.Mutex
	entries map[K]entry[V]
	flights map[K]*flight[V]
}

type entry[V any] struct {
	value V
	at    time.Time // when its read began
}

// flight is a read under way. Who comes while it runs waits for the next one: a read that began before the call could
// miss what happened before the call.
type flight[V any] struct {
	done  chan struct{}
	value V
	err   error
	next  *flight[V]
	stale bool // forgotten while it ran: its value is answered, not kept
}

func newCache[K comparable, V any](
	clock func() time.Time, ttl time.Duration, bound int, load func(context.Context, K) (V, error),
) *cache[K, V] {
	return &cache[K, V]{
		load: load, clock: clock, ttl: ttl, bound: bound,
		entries: make(map[K]entry[V]), flights: make(map[K]*flight[V]),
	}
}

// get returns the value of at most ttl ago, or reads it. cached says that it was not read for this call.
func (c *cache[K, V]) get(ctx context.Context, k K) (v V, cached bool, err error) {
	now := c.clock()
	c.mu.Lock()
	e, ok := c.entries[k]
	c.mu.Unlock()
	// A clock that was set back must not make a value live longer.
	if ok && now.Sub(e.at) < c.ttl && !now.Before(e.at) {
		return e.value, true, nil
	}
	v, err = c.fresh(ctx, k)
	return v, false, err
}

// fresh returns a value whose read began after the call.
func (c *cache[K, V]) fresh(ctx context.Context, k K) (V, error) {
	c.mu.Lock()
	running := c.flights[k]
	var f *flight[V]
	lead := false
	switch {
	case running == nil:
		f, lead = &flight[V]{done: make(chan struct{})}, true
		c.flights[k] = f
	case running.next == nil:
		f, lead = &flight[V]{done: make(chan struct{})}, true
		running.next = f
	default:
		f = running.next
	}
	c.mu.Unlock()
	if lead {
		// The read serves all who wait for it, so the end of one caller does not end it.
		go c.run(context.WithoutCancel(ctx), k, running, f)
	}
	select {
	case <-f.done:
		return f.value, f.err
	case <-ctx.Done():
		var zero V
		return zero, ctx.Err()
	}
}

func (c *cache[K, V]) run(ctx context.Context, k K, before, f *flight[V]) {
	if before != nil {
		<-before.done
	}
	at := c.clock()
	f.value, f.err = c.loaded(ctx, k)
	c.mu.Lock()
	if f.err == nil && !f.stale {
		c.keep(k, entry[V]{f.value, at})
	}
	if f.next != nil {
		c.flights[k] = f.next
	} else {
		delete(c.flights, k)
	}
	c.mu.Unlock()
	close(f.done)
}

// loaded turns a panic of load into an error: it runs in a goroutine that no request recovers.
func (c *cache[K, V]) loaded(ctx context.Context, k K) (v V, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("facilitator: a read panicked: %v", p)
		}
	}()
	return c.load(ctx, k)
}

// keep stores an entry. It looks at a few others first and drops those that have expired, so that a cache holds about as much as
// was read within its ttl. A full cache drops one that has not when it finds none.
func (c *cache[K, V]) keep(k K, e entry[V]) {
	_, known := c.entries[k]
	full := !known && len(c.entries) >= c.bound
	look := 2
	if full {
		look = 8
	}
	for old, o := range c.entries {
		if look--; look < 0 && !full {
			break
		}
		if look < 0 || e.at.Sub(o.at) >= c.ttl {
			delete(c.entries, old)
			full = false
		}
	}
	c.entries[k] = e
}

// forget drops the value: this process has changed what it was read from.
func (c *cache[K, V]) forget(k K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, k)
	// A read that is under way may have begun before the change.
	if f := c.flights[k]; f != nil {
		f.stale = true
	}
}

// forgetAll drops every value.
func (c *cache[K, V]) forgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.entries)
	for _, f := range c.flights {
		f.stale = true
	}
}
