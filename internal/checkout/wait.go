package checkout

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

const (
	// readEvery is how often a waiting caller reads an order that another process may decide. Decisions of this process wake the caller.
	readEvery = time.Second
	// lastReadTimeout bounds the last read for a caller whose wait has ended. When the database is slower, the caller gets an error
	// that it can retry.
	lastReadTimeout = 2 * time.Second
)

// waits reads orders with the rows of their rails, and waits until they are decided.
type waits struct {
	*core
	queue    *jobs.Queue
	waiters  rail.Waiters
	stopping chan struct{} // closed by StopWaiting
}

// current returns an open order with the progress of its rail's row, and that row, unless only the row is decided: credits come later.
func (c *waits) current(ctx context.Context, o *store.Order) (*store.Order, *rail.Payment, error) {
	if !o.Open {
		return o, &rail.Payment{}, nil
	}
	p, err := c.payment(ctx, o)
	shown := *o
	if err == nil && !p.Decided() {
		shown.Status, shown.TxHash = p.Status, p.TxHash
	}
	return &shown, &p, err
}

// payment reads the row of an order at its rail. Without a row the payment has the status created.
func (c *waits) payment(ctx context.Context, o *store.Order) (rail.Payment, error) {
	none := rail.Payment{Outcome: rail.Outcome{Status: toll.OrderCreated}}
	by := c.rails[o.Rail]
	if by == nil {
		return none, nil
	}
	p, err := by.Payment(ctx, c.store, o.ID)
	if errors.Is(err, store.ErrNotFound) {
		return none, nil
	}
	return p, err
}

// await returns an order once it is decided or a person must act, at shutdown, or after wait. An error comes with the open order.
func (c *waits) await(ctx context.Context, o *store.Order, wait time.Duration) (*store.Order, *rail.Payment, error) {
	return c.awaitWhile(ctx, o, wait, func(o *store.Order) bool { return o.Open })
}

// awaitWhile is await with a condition: it waits while undecided reports true.
func (c *waits) awaitWhile(
	ctx context.Context, o *store.Order, wait time.Duration, undecided func(o *store.Order) bool,
) (*store.Order, *rail.Payment, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	changed, leave := c.waiters.Join(o.ID)
	defer leave()
	for {
		now, p, err := c.read(ctx, o)
		if ctx.Err() != nil {
			return c.lastRead(ctx, o)
		}
		if err != nil {
			return o, nil, Fault(err)
		}
		o = now
		if !undecided(o) || p.CheckoutURL != "" {
			return o, p, nil
		}
		var run <-chan struct{}
		if o.Open && (p.Delay != nil || p.Status == toll.OrderCreated) {
			// A waiting caller brings the next run of the job forward.
			if run, err = c.queue.Take(ctx, store.JobPay+o.Rail, []byte(o.ID)); err != nil && ctx.Err() == nil {
				return o, nil, Fault(err)
			}
		}
		switch {
		case run != nil:
		case o.Open && c.rails[o.Rail] == nil:
			return o, p, railMissing(o.Rail)
		case p.Delay != nil:
			return o, p, p.Delay.Err(c.now())
		}
		rail.Wait(ctx, readEvery, changed, run, c.stopping)
		if c.stops() || ctx.Err() != nil {
			return c.lastRead(ctx, o)
		}
	}
}

// read returns an order as it is now, and the row of its rail.
func (c *waits) read(ctx context.Context, o *store.Order) (*store.Order, *rail.Payment, error) {
	now, err := store.OrderOfAccount(ctx, c.store, o.Account, o.ID)
	if err != nil {
		return o, nil, err
	}
	return c.current(ctx, now)
}

// lastRead is read for a caller whose wait is over.
func (c *waits) lastRead(ctx context.Context, o *store.Order) (*store.Order, *rail.Payment, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastReadTimeout)
	defer cancel()
	now, p, err := c.read(ctx, o)
	if err != nil {
		return o, nil, toll.NewError(toll.CodeDatabaseUnavailable).WithCause(err)
	}
	return now, p, nil
}

func (c *waits) stops() bool {
	select {
	case <-c.stopping:
		return true
	default:
		return false
	}
}
