package rail

import (
	"context"
	"sync"
	"time"
)

// Waiters are the callers of this process that wait for orders, or for their rows at a rail. A caller joins before it reads its order, so
// that no change is missed. The zero value is ready to use.
type Waiters struct {
	mu   sync.Mutex
	byID map[string]map[chan struct{}]bool
}

// Join returns a channel that gets a value when the order has changed, and a function that ends the waiting.
func (w *Waiters) Join(orderID string) (changed <-chan struct{}, leave func()) {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID[orderID] == nil {
		if w.byID == nil {
			w.byID = map[string]map[chan struct{}]bool{}
		}
		w.byID[orderID] = map[chan struct{}]bool{}
	}
	w.byID[orderID][c] = true
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.byID[orderID], c); len(w.byID[orderID]) == 0 {
			delete(w.byID, orderID)
		}
	}
}

// Wake wakes the callers that wait for these orders. Call it after the commit.
func (w *Waiters) Wake(orderIDs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range orderIDs {
		for c := range w.byID[id] {
			select {
			case c <- struct{}{}:
			default: // it has not seen the last change yet
			}
		}
	}
}

// Wait returns when one of the channels has a value or is closed, after every, or when ctx ends. A nil channel is never ready.
func Wait(ctx context.Context, every time.Duration, changed, run, stopping <-chan struct{}) {
	tick := time.NewTimer(every)
	defer tick.Stop()
	select {
	case <-changed:
	case <-run:
	case <-stopping:
	case <-tick.C:
	case <-ctx.Done():
	}
}
