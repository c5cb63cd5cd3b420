package chain

import (
	"context"
	"errors"
)

// tell lets the sink hear what became of orders. A call that fails is repeated later, beginning with those that wait longest.
func (t *tracker) tell(ctx context.Context) error {
	r := t.rail
	const page = 200
	for {
		ops, err := r.cfg.Journal.Untold(ctx, page)
		if err != nil {
			return err
		}
		failed := 0
		for _, op := range ops {
			if err := r.tellOne(ctx, op); err != nil {
				failed++
				if ctx.Err() != nil {
					return ctx.Err()
				}
				r.log.Warn("what became of an order was not taken", "order", op.ID, "state", op.State, "err", err)
			}
		}
		if failed > 0 {
			return errUntaken
		}
		if len(ops) < page {
			return nil
		}
	}
}

var errUntaken = errors.New("chain: what became of some orders was not taken")

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
		err := r.cfg.Journal.UpdateOp(ctx, op)
		if !errors.Is(err, ErrChanged) {
			return err
		}
		if op, err = r.cfg.Journal.Op(ctx, op.ID); err != nil {
			return err
		}
	}
}
