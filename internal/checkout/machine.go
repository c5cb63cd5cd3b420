package checkout

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/backoff"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

const (
	// payTimeout bounds one call of a rail.
	payTimeout = 30 * time.Second
	// payFirstRetry and payMaxRetry bound the pause before a lost answer of a rail is asked for again.
	payFirstRetry, payMaxRetry = 20 * time.Millisecond, 80 * time.Millisecond
	// orderFirstRetry and orderMaxRetry bound the pause before the next try of an order that is not decided.
	orderFirstRetry, orderMaxRetry = time.Second, time.Minute
	// finishTimeout bounds the second transaction of an order.
	finishTimeout = 15 * time.Second
	// readEvery is how often a waiting caller reads an order that another process may decide. What this process does wakes it.
	readEvery = time.Second
	// lastReadTimeout bounds each of the last two reads for a caller whose wait has ended: of the order, and of its rail. When the
	// database or the rail is slower, the caller gets the order as it was, or an error that it can retry.
	lastReadTimeout = 2 * time.Second
	// personEvery is how often a page is asked for whose person has not paid yet.
	personEvery = 15 * time.Second
)

// page is the stored form of the page on which a person pays.
type page struct {
	Input     rail.SessionInput `json:"input"`
	ID        string            `json:"id,omitempty"`
	URL       string            `json:"url,omitempty"`
	CreatedAt int64             `json:"createdAt,omitempty"` // seconds since 1970
	ExpiresAt int64             `json:"expiresAt,omitempty"`
}

func pageOf(o *store.Order) (p page, err error) {
	if o.Session != "" {
		err = json.Unmarshal([]byte(o.Session), &p)
	}
	return p, err
}

// run is the work of this process on an order.
type run struct{ done chan struct{} }

// start has an open order paid in the background, unless this process is at it.
func (c *Checkout) start(o *store.Order) *run {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.runs[o.ID]; r != nil {
		return r
	}
	r := &run{done: make(chan struct{})}
	if c.closed {
		close(r.done)
		return r
	}
	c.runs[o.ID] = r
	c.running.Go(func() {
		c.run(o)
		c.mu.Lock()
		delete(c.runs, o.ID)
		c.mu.Unlock()
		close(r.done)
		c.waiters.wake(o.ID)
	})
	return r
}

func (c *Checkout) runOf(id string) *run {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs[id]
}

// run works on an order until it is decided, a person must act, or the rail gives no answer.
func (c *Checkout) run(o *store.Order) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("a payment panicked", "order", o.ID, "panic", p)
		}
	}()
	plan, err := store.PlanByID(c.work, c.store, o.Plan)
	for try := 0; err == nil; try++ {
		c.failpoint("pay")
		p, cause := c.pay(plan, o)
		c.failpoint("paid")
		if c.work.Err() != nil {
			return
		}
		if cause == nil && p.Decided() {
			if cause = c.finish(o, &p); cause == nil {
				return
			}
		}
		// An answer that was lost is asked for again at once; a rail that cannot be used is not.
		if cause == nil || unusable(cause) != nil || try == 2 {
			err = c.reschedule(o, &p, cause)
			break
		}
		if !backoff.Sleep(c.work, backoff.Double(payFirstRetry, payMaxRetry, 2*try+1)) {
			return
		}
	}
	if err != nil {
		c.log.Warn("an order was left to the reconciler", "order", o.ID, "err", err)
	}
}

// unusable returns the error of a rail, or of the database, that cannot be used now, or that knows the order with other content,
// which no repeat changes; nil for another error.
func unusable(err error) *toll.Error {
	if e, ok := errors.AsType[*toll.Error](err); ok && (e.HTTPStatus() == 503 || e.Code == toll.CodeChainOrderConflict) {
		return e
	}
	return nil
}

func (c *Checkout) pay(plan *toll.Plan, o *store.Order) (rail.Payment, error) {
	by := c.rails.byName(o.Rail)
	if by == nil {
		return rail.Payment{}, railMissing(o.Rail)
	}
	ctx, cancel := context.WithTimeout(c.work, payTimeout)
	defer cancel()
	if isSale(o) {
		return c.paySale(ctx, o)
	}
	pg, err := pageOf(o)
	if err != nil {
		return rail.Payment{}, err
	}
	if pg.URL != "" {
		return by.Outcome(ctx, o.ID)
	}
	p := rail.Purchase{
		OrderID: o.ID, Account: o.Account, OrderedAt: o.CreatedAt, Plan: plan, Token: plan.Price.PayToken(c.env), Subscriber: o.Subscriber,
		Credits: o.Credits, Amounts: plan.Price.Amounts, Receivers: plan.Price.Receivers, Total: o.Amount,
		DelegationID: o.DelegationID, TopUp: o.RequestID != "" || o.Permission != nil,
	}
	if o.Session != "" {
		p.Session = &pg.Input
	}
	if plan.IsPayAsYouGo() {
		p.Amounts = make([]toll.Units, len(plan.Price.Amounts))
		for i, a := range plan.Price.Amounts {
			p.Amounts[i] = times(a, o.Credits)
		}
	}
	if o.DelegationID != "" {
		d, err := store.DelegationByID(ctx, c.store, o.DelegationID)
		if err != nil {
			return rail.Payment{}, err
		}
		p.PaymentMethod, p.Delegation = d.PaymentMethod, details(d)
	}
	return by.Pay(ctx, p)
}

// finish writes what the rail decided, once, whoever else does the same.
func (c *Checkout) finish(o *store.Order, p *rail.Payment) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.work), finishTimeout)
	defer cancel()
	c.failpoint("finish")
	o, err := store.OrderOfAccount(ctx, c.store, o.Account, o.ID) // the rail may have decided it
	if err == nil {
		err = c.decideAs(ctx, o, p)
	}
	c.failpoint("finished")
	return err
}

// reschedule keeps what is known of an order that is not decided, and sets the time of its next try.
func (c *Checkout) reschedule(o *store.Order, p *rail.Payment, cause error) error {
	if cause != nil {
		c.log.Warn("an order waits for its rail", "order", o.ID, "rail", o.Rail, "tries", o.Tries, "err", cause)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.work), finishTimeout)
	defer cancel()
	return c.store.Tx(ctx, func(tx *store.Tx) error {
		next, err := store.OrderForUpdate(ctx, tx, o.Account, o.ID)
		if err != nil || !next.Open {
			return err
		}
		pause := backoff.Delay(orderFirstRetry, orderMaxRetry, int(min(next.Tries, 32)))
		switch p.Status {
		case toll.OrderSigned, toll.OrderSent, toll.OrderIncluded:
			next.Status = p.Status
			pause = min(pause*2, time.Minute/2)
		}
		next.FailureCode = ""
		if e := unusable(cause); e != nil {
			next.FailureCode = e.Code
			pause = max(pause, time.Duration(e.RetryAfterSecs)*time.Second)
		}
		if p.TxHash != "" {
			next.TxHash = p.TxHash
		}
		if p.CheckoutURL != "" {
			pg, err := pageOf(next)
			if err != nil {
				return err
			}
			pg.ID, pg.URL, pg.CreatedAt, pg.ExpiresAt = p.SessionID, p.CheckoutURL, p.CreatedAt.Unix(), p.ExpiresAt.Unix()
			text, err := json.Marshal(pg)
			if err != nil {
				return err
			}
			next.Session = string(text)
			pause = personEvery
		}
		next.TryAt, next.UpdatedAt = c.now().Add(pause), c.now()
		return store.UpdateOrder(ctx, tx, next)
	})
}

// await returns an order when it is decided, when a person must act, at shutdown, or when the wait is over. The error is that
// of a rail which cannot be used now; the order is then open, and is returned too.
func (c *Checkout) await(ctx context.Context, o *store.Order, wait time.Duration) (*store.Order, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	changed, leave := c.waiters.join(o.ID)
	defer leave()
	for {
		now, err := store.OrderOfAccount(ctx, c.store, o.Account, o.ID)
		if ctx.Err() != nil {
			return c.lastRead(o)
		}
		if err != nil {
			return o, fault(err)
		}
		o = now
		if done, err := isSettled(o); done || err != nil {
			return o, fault(err)
		}
		r := c.runOf(o.ID)
		if r == nil {
			if r, err = c.resume(ctx, o); err != nil {
				return o, fault(err)
			}
		}
		if r == nil && o.FailureCode != "" {
			e := toll.NewError(o.FailureCode)
			if e.HTTPStatus() == 503 {
				e.RetryAfterSecs = max(int(o.TryAt.Sub(c.now())/time.Second), 1)
			}
			return o, e
		}
		select {
		case <-changed:
		case <-time.After(readEvery):
		case <-c.stopping:
			return c.lastRead(o)
		case <-ctx.Done():
			return c.lastRead(o)
		}
	}
}

// isSettled reports whether nobody has to wait for an order: it is decided, or a person must act.
func isSettled(o *store.Order) (bool, error) {
	pg, err := pageOf(o)
	return !o.Open || pg.URL != "", err
}

// lastRead returns an order as it is when the wait for it is over, with what its rail knows of its transaction.
func (c *Checkout) lastRead(o *store.Order) (*store.Order, error) {
	ctx, cancel := context.WithTimeout(c.work, lastReadTimeout)
	defer cancel()
	now, err := store.OrderOfAccount(ctx, c.store, o.Account, o.ID)
	if err != nil {
		return o, toll.NewError(toll.CodeDatabaseUnavailable).WithCause(err)
	}
	if done, err := isSettled(now); done || err != nil {
		return now, fault(err)
	}
	return c.progress(now), nil
}

// progress asks the rail for status and transaction of an open order, for a caller that gets 202. An order of which the rail
// knows no transaction stays unchanged.
func (c *Checkout) progress(o *store.Order) *store.Order {
	by := c.rails.byName(o.Rail)
	select {
	case <-c.stopping:
		return o
	default:
	}
	if by == nil || o.TxHash != "" {
		return o
	}
	ctx, cancel := context.WithTimeout(c.work, lastReadTimeout)
	defer cancel()
	p, err := by.Outcome(ctx, o.ID)
	if err != nil || p.TxHash == "" || p.Decided() {
		return o
	}
	err = c.store.Tx(ctx, func(tx *store.Tx) error {
		next, err := store.OrderForUpdate(ctx, tx, o.Account, o.ID)
		if err != nil || !next.Open {
			return err
		}
		next.Status, next.TxHash, next.UpdatedAt = p.Status, p.TxHash, c.now()
		return store.UpdateOrder(ctx, tx, next)
	})
	if err != nil {
		c.log.Warn("the progress of an order is not kept", "order", o.ID, "err", err)
	}
	now := *o
	now.Status, now.TxHash = p.Status, p.TxHash
	return &now
}

// resume restarts an order that a caller is waiting for, once it is due. An order whose rail was down is retried sooner while
// someone waits, at most once a second. It returns nil when there is nothing to do.
func (c *Checkout) resume(ctx context.Context, o *store.Order) (*run, error) {
	now := c.now()
	asked := o.FailureCode != "" && !now.Before(o.UpdatedAt.Add(time.Second))
	if !asked && now.Before(o.TryAt) {
		return nil, nil
	}
	return c.claim(ctx, o)
}

// claim starts an order that is due, unless another process has just claimed it; then it returns nil.
func (c *Checkout) claim(ctx context.Context, o *store.Order) (*run, error) {
	if r := c.runOf(o.ID); r != nil {
		return r, nil
	}
	claimed := false
	err := c.store.Tx(ctx, func(tx *store.Tx) (err error) {
		claimed, err = store.ClaimOrder(ctx, tx, o, c.now().Add(lease))
		return err
	})
	if err != nil || !claimed {
		return nil, err
	}
	return c.start(o), nil
}
