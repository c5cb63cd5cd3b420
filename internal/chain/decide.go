package chain

import (
	"context"
	"errors"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// undecided reports whether the order of an operation has yet to take what became of it.
func (o *Op) undecided() bool {
	switch o.State {
	case Confirmed, Final, Failed:
		return o.Pays() && o.Decided != o.State
	}
	return false
}

// decide runs f, which stores what decides the order of an operation, in one transaction with the order and its credits. If the
// order cannot take it, f runs alone: what the chain says is stored, the operation stays undecided, and the tracker tries again
// later. It holds up no other operation. A database that cannot be used concerns all of them: that error is returned, and nothing
// is stored.
func (r *Rail) decide(ctx context.Context, op *Op, f func(tx *store.Tx) error) error {
	account, err := r.accountOf(ctx, op)
	if err != nil {
		return err
	}
	before := op.Decided
	op.Decided = op.State
	var refusal error
	if account == ([16]byte{}) {
		err = r.cfg.Store.Tx(ctx, f)
	} else {
		err = r.cfg.Orders.Change(ctx, account, func(t *rail.Tx) error {
			if refusal = t.Decide(op.ID, op.outcome()); refusal != nil {
				return refusal
			}
			if err := f(t.Tx); err != nil {
				return err
			}
			r.cfg.At(stepDeciding)
			return nil
		})
	}
	if err == nil {
		return nil
	}
	op.Decided = before
	if refusal == nil || ctx.Err() != nil || errors.Is(err, toll.NewError(toll.CodeDatabaseUnavailable)) || errors.Is(err, store.ErrFlush) {
		return err
	}
	r.log.Error("alarm: an order cannot take what became of its payment, which is kept", "order", op.ID, "state", op.State, "err", err)
	return r.cfg.Store.Tx(ctx, f)
}

// accountOf is the account of the order of an operation, the zero value when there is no order: the sale of another server. The
// operations of an earlier release have none of their own.
func (r *Rail) accountOf(ctx context.Context, op *Op) ([16]byte, error) {
	if op.Account != ([16]byte{}) {
		return op.Account, nil
	}
	order, err := store.OrderByID(ctx, r.cfg.Store, op.ID)
	if err == nil {
		return order.Account, nil
	}
	if !errors.Is(err, store.ErrNotFound) {
		return [16]byte{}, err
	}
	if _, err = store.ExactPaymentByID(ctx, r.cfg.Store, op.ID); errors.Is(err, store.ErrNotFound) {
		r.log.Error("alarm: the chain tells of an order that is not there", "order", op.ID, "state", op.State)
		err = nil
	}
	return [16]byte{}, err
}

// outcome is how an operation stands, as its order takes it. The states of operations have the words of orders.
func (o *Op) outcome() rail.Outcome {
	out := rail.Outcome{Status: toll.OrderStatus(o.State)}
	tx := o.Tx
	if o.Place.Tx != (common.Hash{}) {
		tx = o.Place.Tx
	}
	if tx != (common.Hash{}) {
		out.TxHash = tx.Hex()
	}
	if f := o.Failure; f != nil && o.State == Failed {
		out.FailureCode, out.FailureReason, out.Params, out.Ended = f.Code, f.Reason, f.Params, f.Place != (Place{})
	}
	return out
}

// decideAgain has orders take what they could not take before, beginning with those that wait longest. One that cannot rests, each
// time for longer, and holds up no other. It says when the next of them is due.
func (t *tracker) decideAgain(ctx context.Context) (time.Duration, error) {
	const page = 200
	for {
		most := page + len(t.refused)
		ops, err := t.rail.undecided(ctx, most)
		if err != nil {
			return 0, err
		}
		due, now := idle, time.Now()
		for _, op := range ops {
			if left := t.refused.left(op.ID, now); left > 0 {
				due = min(due, left)
				continue
			}
			switch err := t.rail.update(ctx, op); {
			case errors.Is(err, ErrChanged):
			case err != nil:
				return 0, err
			case op.undecided():
				due = min(due, t.refused.add(op.ID))
			default:
				delete(t.refused, op.ID)
			}
		}
		if len(ops) < most {
			t.refused.forget(now)
			return due, nil
		}
	}
}
