package chain

import (
	"context"
	"errors"
	"time"
)

// tell lets the sink hear what became of orders, beginning with those that wait longest. One that it does not take rests, each
// time for longer, and keeps no other from being told. It says when the next of them is due.
func (t *tracker) tell(ctx context.Context) (time.Duration, error) {
	r := t.rail
	const page = 200
	for {
		most := page + len(t.untaken)
		ops, err := r.untold(ctx, most)
		if err != nil {
			return 0, err
		}
		due, now := idle, time.Now()
		for _, op := range ops {
			if left := t.untaken.left(op.ID, now); left > 0 {
				due = min(due, left)
				continue
			}
			if err := r.tellOne(ctx, op); err == nil {
				delete(t.untaken, op.ID)
			} else if ctx.Err() != nil {
				return 0, ctx.Err()
			} else {
				due = min(due, t.untaken.add(op.ID))
				r.log.Warn("what became of an order was not taken", "order", op.ID, "state", op.State, "err", err)
			}
		}
		if len(ops) < most {
			t.untaken.forget(now)
			return due, nil
		}
	}
}

// tellOne tells one order and then notes that it was told: a crash between repeats the call.
func (r *Rail) tellOne(ctx context.Context, op *Op) error {
	said := op.State
	var err error
	switch op.State {
	case Failed:
		var f Failure
		if op.Failure != nil {
			f = *op.Failure
		}
		err = r.cfg.Sink.Failed(ctx, op.ID, f)
	case Confirmed:
		err = r.cfg.Sink.Paid(ctx, op.ID, op.Place.Tx)
	case Final:
		if op.Told != Confirmed {
			err = r.cfg.Sink.Paid(ctx, op.ID, op.Place.Tx)
		}
		if err == nil {
			err = r.cfg.Sink.Final(ctx, op.ID)
		}
	}
	if err != nil {
		return err
	}
	r.cfg.At(stepTold)
	// What was told is noted even when the order has moved on meanwhile: what it is now is told next.
	for {
		op.Told = said
		err := r.update(ctx, op)
		if !errors.Is(err, ErrChanged) {
			return err
		}
		if op, err = r.op(ctx, op.ID); err != nil {
			return err
		}
	}
}
