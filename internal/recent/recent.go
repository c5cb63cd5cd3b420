// Package recent caches values for a short time, and shares one read between callers that need the same value at the same time.
// Use it only for decisions that are checked again under the lock of an account.
package recent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tollhq/toll/internal/cache"
)

// Reader reads values by key and caches each of them. It is safe for concurrent use.
type Reader[K comparable, V any] struct {
	load  func(context.Context, K) (V, error)
	clock func() time.Time
	ttl   time.Duration
	kept  *cache.Cache[K, entry[V]]

	mu      sync.Mutex
	flights map[K]*flight[V]
}

type entry[V any] struct {
	value V
	at    time.Time // when its read began
}

// flight is a read in progress. A caller that arrives while it runs waits for the next read, because a read that began before
// the call could miss a change made before the call.
type flight[V any] struct {
	done  chan struct{}
	value V
	err   error
	next  *flight[V]
	stale bool // forgotten while it ran: its value is returned but not cached
}

// New returns a reader that caches at most bound values, each for ttl from the start of its read.
func New[K comparable, V any](clock func() time.Time, ttl time.Duration, bound int, load func(context.Context, K) (V, error)) *Reader[K, V] {
	return &Reader[K, V]{load: load, clock: clock, ttl: ttl, kept: cache.New[K, entry[V]](bound), flights: map[K]*flight[V]{}}
}

// Get returns the value if it was read less than ttl ago, or else reads it. cached reports whether it was not read for this call.
func (c *Reader[K, V]) Get(ctx context.Context, k K) (v V, cached bool, err error) {
	now := c.clock()
	// A clock that was set back must not make a value live longer.
	if e, ok := c.kept.Get(k, now); ok && !now.Before(e.at) {
		return e.value, true, nil
	}
	v, err = c.Read(ctx, k)
	return v, false, err
}

// Read returns a value whose read began after the call.
func (c *Reader[K, V]) Read(ctx context.Context, k K) (V, error) {
	c.mu.Lock()
	running := c.flights[k]
	var f *flight[V]
	if running != nil {
		f = running.next
	}
	lead := f == nil
	if lead {
		f = &flight[V]{done: make(chan struct{})}
		if running == nil {
			c.flights[k] = f
		} else {
			running.next = f
		}
	}
	c.mu.Unlock()
	if lead {
		// The read serves every waiting caller, so the end of one caller does not end it.
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

func (c *Reader[K, V]) run(ctx context.Context, k K, before, f *flight[V]) {
	if before != nil {
		<-before.done
	}
	at := c.clock()
	f.value, f.err = c.loaded(ctx, k)
	c.mu.Lock()
	if f.err == nil && !f.stale {
		c.kept.Put(k, entry[V]{f.value, at}, at.Add(c.ttl), at)
	}
	if f.next != nil {
		c.flights[k] = f.next
	} else {
		delete(c.flights, k)
	}
	c.mu.Unlock()
	close(f.done)
}

// loaded calls load, and returns a panic as an error: it runs in a goroutine where the recovery of the HTTP server does not apply.
func (c *Reader[K, V]) loaded(ctx context.Context, k K) (v V, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("recent: a read panicked: %v", p)
		}
	}()
	return c.load(ctx, k)
}

// Put caches a value that this process has just written.
func (c *Reader[K, V]) Put(k K, v V) {
	at := c.clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.Put(k, entry[V]{v, at}, at.Add(c.ttl), at)
	c.markStale(k)
}

// Forget drops a value whose source this process has changed.
func (c *Reader[K, V]) Forget(k K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.Drop(k)
	c.markStale(k)
}

// markStale prevents the caching of a running read, which may have begun before the change.
func (c *Reader[K, V]) markStale(k K) {
	if f := c.flights[k]; f != nil {
		f.stale = true
	}
}

// ForgetAll drops every value.
func (c *Reader[K, V]) ForgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.Clear()
	for _, f := range c.flights {
		f.stale = true
	}
}
