package chain

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/backoff"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/store"
)

const (
	// maxWaiting is how many operations are looked at for the next transactions.
	maxWaiting = 500
	// The first pause after something did not succeed, and the longest.
	firstRest = 250 * time.Millisecond
	longRest  = time.Minute
)

// outbox is what the relayers of this process share: which operations one of them has in hand, and which rest.
type outbox struct {
	mu     sync.Mutex
	taken  map[string]bool
	pauses pauses
}

// pauses are the pauses of operations after a failure, by id. Each is about twice as long as the one before.
type pauses map[string]pause

type pause struct {
	until    time.Time
	failures int
}

// add begins the next pause of an operation, and returns it.
func (m pauses) add(id string) time.Duration {
	failures := m[id].failures + 1
	wait := backoff.Delay(firstRest, longRest, failures)
	m[id] = pause{time.Now().Add(wait), failures}
	return wait
}

// left is how long an operation stays paused.
func (m pauses) left(id string, now time.Time) time.Duration { return max(m[id].until.Sub(now), 0) }

// forget lets go of pauses that ended long ago.
func (m pauses) forget(now time.Time) {
	maps.DeleteFunc(m, func(_ string, p pause) bool { return now.Sub(p.until) > 2*longRest })
}

// waiting lists operations to be sent that nobody of this process has in hand, those that have waited longest first, and
// says when the next paused one may be tried.
func (r *Rail) waiting(ctx context.Context) (ops []*Op, wake time.Duration, err error) {
	all, err := r.records.opsIn(ctx, maxWaiting, Signed)
	if err != nil {
		return nil, 0, err
	}
	now := time.Now()
	o := &r.outbox
	o.mu.Lock()
	defer o.mu.Unlock()
	wake = idle
	for _, op := range all {
		if left := o.pauses.left(op.ID, now); left > 0 {
			wake = min(wake, left)
			continue
		}
		if !o.taken[op.ID] {
			ops = append(ops, op)
		}
	}
	o.pauses.forget(now)
	return ops, wake, nil
}

// claim takes those operations in hand that no other relayer of this process has.
func (o *outbox) claim(ops []*Op) []*Op {
	o.mu.Lock()
	defer o.mu.Unlock()
	var mine []*Op
	for _, op := range ops {
		if !o.taken[op.ID] {
			o.taken[op.ID] = true
			mine = append(mine, op)
		}
	}
	return mine
}

func (o *outbox) release(ops []*Op) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, op := range ops {
		delete(o.taken, op.ID)
	}
}

// pause skips an operation for a while, longer each time.
func (o *outbox) pause(op *Op) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pauses.add(op.ID)
}

// judge decides about an operation that does not go through beside others: alone it may.
func (w *relayer) judge(ctx context.Context, op *Op) {
	err := w.rail.check(ctx, op)
	if f, ok := errors.AsType[*Failure](err); ok {
		w.refuse(ctx, op, f)
		return
	}
	w.wait(ctx, op, err)
}

// wait leaves an operation alone that cannot be sent now; the error may be nil.
func (w *relayer) wait(ctx context.Context, op *Op, why error) {
	if errors.Is(why, errNonceUsed) || errors.Is(why, errUsed) {
		w.rail.moved.Fire()
		if (op.Kind == KindOrder || op.Kind == KindVoid) && op.SentAt.IsZero() {
			w.exposed(ctx, op)
		}
	}
	if why != nil && ctx.Err() == nil {
		w.rail.log.WarnContext(ctx, "an operation cannot be sent now", "op", op.ID, "err", why)
	}
	w.rail.outbox.pause(op)
}

// exposed notes that somebody beside us may have the bytes of an operation, as the chain has run its nonce: if its event does not
// show up, its order is made impossible after a while, as one that was sent, and a void is given up.
func (w *relayer) exposed(ctx context.Context, op *Op) {
	now := *op
	now.SentAt, now.UpdatedAt = w.rail.cfg.Clock(), w.rail.cfg.Clock()
	if err := w.rail.records.update(ctx, &now); err != nil && !errors.Is(err, ErrChanged) {
		w.rail.log.WarnContext(ctx, "could not store that the nonce of an operation is used", "op", op.ID, "err", err)
	}
}

// refuse lets an operation fail that cannot run, if nobody but us has seen its bytes: not one whose nonce the chain has run. One
// that was sent could still land, so it waits for the chain to decide. So does a void, without which its order would never be decided.
func (w *relayer) refuse(ctx context.Context, op *Op, f *Failure) {
	if op.Kind == KindVoid {
		order := userop.OrderKey(orderOfVoid(op.ID))
		alarm.Log(ctx, w.rail.log, alarm.OrderStuck, "the payment of an order cannot be voided now", "order", orderOfVoid(op.ID), "account", op.Sender, "reason", f.Reason,
			"nonce_key", common.Bytes2Hex(order[:]))
		w.rail.outbox.pause(op)
		return
	}
	if !op.SentAt.IsZero() {
		w.rail.log.WarnContext(ctx, "a sent operation would now fail; waiting for its outcome on the chain", "op", op.ID, "reason", f.Reason)
		w.rail.outbox.pause(op)
		return
	}
	if err := w.rail.decidedBefore(ctx, op); err != nil {
		w.wait(ctx, op, err)
		return
	}
	w.end(ctx, op, f)
}

// end stores that an operation has failed.
func (w *relayer) end(ctx context.Context, op *Op, f *Failure) {
	r := w.rail
	now := *op
	now.State, now.Failure, now.UpdatedAt = Failed, f, r.cfg.Clock()
	err := r.records.update(ctx, &now)
	if err != nil && !errors.Is(err, ErrChanged) {
		r.log.WarnContext(ctx, "the failure of an operation could not be stored", "op", op.ID, "err", err)
		r.outbox.pause(op)
		return
	}
	r.waiters.Wake(op.ID)
	r.moved.Fire()
}

// freed returns the operations of a transaction that can be in another one, in state [Signed]: they are still said to be in
// it, and no event of theirs is known.
func (r *Rail) freed(ctx context.Context, tx *Tx) ([]*Op, error) {
	ops, err := opsCarriedBy(ctx, r.cfg.Store, tx)
	for _, op := range ops {
		op.State, op.UpdatedAt = Signed, r.cfg.Clock()
	}
	return ops, err
}

// opsCarriedBy returns the operations that only this transaction can bring to the chain now.
func opsCarriedBy(ctx context.Context, q store.Querier, tx *Tx) ([]*Op, error) {
	ops, err := contents(ctx, q, tx)
	return slices.DeleteFunc(ops, func(op *Op) bool { return !op.carriedBy(tx) }), err
}

// contents returns the operations of a transaction as they stand now.
func contents(ctx context.Context, q store.Querier, tx *Tx) ([]*Op, error) {
	ops := make([]*Op, len(tx.Ops))
	for i, id := range tx.Ops {
		var err error
		if ops[i], err = opOf(store.ChainOpByID(ctx, q, id)); err != nil {
			return nil, err
		}
	}
	return ops, nil
}

func ids(ops []*Op) []string { return store.Mapped(ops, func(op *Op) string { return op.ID }) }

// sensible leaves out what is not to be sent: orders that were sent before and are being made impossible, which would only
// race, and voids whose order is decided.
func (w *relayer) sensible(ctx context.Context, ops []*Op) ([]*Op, error) {
	var left []*Op
	for _, op := range ops {
		drop, err := w.needless(ctx, op)
		if err == nil && op.Kind == KindOrder && !op.SentAt.IsZero() {
			var void *Op
			void, err = w.rail.records.op(ctx, voidID(op.ID))
			drop = err == nil && void.State != Failed
			if errors.Is(err, store.ErrNotFound) {
				err = nil
			}
		}
		if err != nil {
			return nil, err
		}
		if !drop {
			left = append(left, op)
		}
	}
	return left, nil
}
