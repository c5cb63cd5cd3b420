package checkout

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tollhq/toll/internal/store"
)

const (
	// dueOrders and runsAtOnce bound one turn of the reconciler, for each rail.
	dueOrders  = 128
	runsAtOnce = 16
	// turnTime is how long a turn waits for rails. What they have not answered by then goes on, and keeps its slot.
	turnTime = 5 * time.Second
)

// Reconcile resumes what a crash or a rail left open: orders without a decision, revoked delegations that are not disabled on the
// chain yet, and credits to take back when holds end. One call handles at most 128 orders of each rail and returns how many it
// resumed. Any number of processes may call it on one database. A rail that hangs delays its own orders and no others. Errors
// are those of the database.
func (c *Checkout) Reconcile(ctx context.Context) (int, error) {
	turn, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	var mu sync.Mutex
	var all []error
	n := 0
	var wg sync.WaitGroup
	for _, name := range []string{railCrypto, railCard} {
		wg.Go(func() {
			went, err := c.reconcileRail(ctx, turn, name)
			mu.Lock()
			defer mu.Unlock()
			n += went
			all = append(all, err)
		})
	}
	wg.Go(func() {
		err := c.disableOnChain(ctx, turn)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, err)
	})
	wg.Wait()
	return n, fault(errors.Join(append(all, c.finishTakeBacks(ctx))...))
}

func (c *Checkout) reconcileRail(ctx, turn context.Context, name string) (int, error) {
	due, err := store.DueOrders(ctx, c.store, name, c.now(), dueOrders)
	if err != nil {
		return 0, err
	}
	if c.rails.byName(name) == nil {
		return 0, c.putOff(ctx, due)
	}
	runs, err := c.claimDue(ctx, turn, due, c.slots[name])
	for _, r := range runs {
		select {
		case <-r.done:
		case <-turn.Done():
		}
	}
	return len(runs), err
}

// putOff leaves orders alone whose rail is not there, until an operator configures it again.
func (c *Checkout) putOff(ctx context.Context, due []*store.Order) error {
	var errs []error
	for _, o := range due {
		errs = append(errs, c.store.Tx(ctx, func(tx *store.Tx) error {
			_, err := store.ClaimOrder(ctx, tx, o, c.now().Add(time.Minute))
			return err
		}))
	}
	return errors.Join(errs...)
}

// claimDue goes on with orders as slots become free, while the turn lasts.
func (c *Checkout) claimDue(ctx, turn context.Context, due []*store.Order, slots chan struct{}) (runs []*run, err error) {
	var errs []error
	for _, o := range due {
		select {
		case slots <- struct{}{}:
		case <-turn.Done():
			return runs, errors.Join(errs...)
		}
		r, err := c.claim(ctx, o)
		errs = append(errs, err)
		if r == nil {
			<-slots
			continue
		}
		runs = append(runs, r)
		go func() {
			<-r.done // at the latest with Close
			<-slots
		}()
	}
	return runs, errors.Join(errs...)
}
