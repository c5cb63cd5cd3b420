package facilitator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tollhq/toll/internal/cache"
)

// reader keeps what was read for a moment, and lets callers that want the same thing at the same time share one read.
// It only ever serves decisions that are made again under the lock of an account.
type reader[K comparable, V any] struct {
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

// flight is a read under way. Who comes while it runs waits for the next one: a read that began before the call could
// miss what happened before the call.
type flight[V any] struct {
	done  chan struct{}
	value V
	err   error
	next  *flight[V]
	stale bool // forgotten while it ran: its value is answered, not kept
}

func newReader[K comparable, V any](
	clock func() time.Time, ttl time.Duration, bound int, load func(context.Context, K) (V, error),
) *reader[K, V] {
	return &reader[K, V]{
		load: load, clock: clock, ttl: ttl, kept: cache.New[K, entry[V]](bound), flights: map[K]*flight[V]{},
	}
}

// get returns the value of at most ttl ago, or reads it. cached says that it was not read for this call.
func (c *reader[K, V]) get(ctx context.Context, k K) (v V, cached bool, err error) {
	now := c.clock()
	// A clock that was set back must not make a value live longer.
	if e, ok := c.kept.Get(k, now); ok && !now.Before(e.at) {
		return e.value, true, nil
	}
	v, err = c.fresh(ctx, k)
	return v, false, err
}

// fresh returns a value whose read began after the call.
func (c *reader[K, V]) fresh(ctx context.Context, k K) (V, error) {
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

func (c *reader[K, V]) run(ctx context.Context, k K, before, f *flight[V]) {
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

// loaded turns a panic of load into an error: it runs in a goroutine that no request recovers.
func (c *reader[K, V]) loaded(ctx context.Context, k K) (v V, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("facilitator: a read panicked: %v", p)
		}
	}()
	return c.load(ctx, k)
}

// put keeps a value that this process has just written.
func (c *reader[K, V]) put(k K, v V) {
	at := c.clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.Put(k, entry[V]{v, at}, at.Add(c.ttl), at)
	// A read that is under way may have begun before the change.
	if f := c.flights[k]; f != nil {
		f.stale = true
	}
}

// forget drops the value: this process has changed what it was read from.
func (c *reader[K, V]) forget(k K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.Drop(k)
	// A read that is under way may have begun before the change.
	if f := c.flights[k]; f != nil {
		f.stale = true
	}
}

// forgetAll drops every value.
func (c *reader[K, V]) forgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.Clear()
	for _, f := range c.flights {
		f.stale = true
	}
}
