package chain

import (
	"context"
	"errors"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// undecided reports whether the order of an operation has yet to take its outcome.
func (o *Op) undecided() bool {
	switch o.State {
	case Confirmed, Final, Failed:
		return o.Pays() && o.Decided != o.State
	}
	return false
}

// decide stores the outcome of an operation, which f writes, in one transaction with its order and
// its credits. refused reports that the order cannot take the outcome; then nothing is stored, as
// with every error. An unavailable database concerns all operations, and is not a refusal.
func (r *records) decide(ctx context.Context, op *Op, f func(tx *store.Tx) error) (refused bool, err error) {
	account, err := r.accountOf(ctx, op)
	if err != nil {
		return false, err
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
	if err != nil {
		op.Decided = before
	}
	unusable := ctx.Err() != nil || errors.Is(err, toll.NewError(toll.CodeDatabaseUnavailable)) || errors.Is(err, store.ErrFlush)
	return err != nil && refusal != nil && !unusable, err
}

// decideLater stores what decides the order of an operation, which cannot take it now, and a job that tries again. It holds up no
// other operation.
func (r *records) decideLater(ctx context.Context, op *Op, why error, f func(tx *store.Tx) error) error {
	alarm.Log(ctx, r.cfg.Log, alarm.OrderUndecided, "the outcome of a payment could not be applied to its order; it is stored and retried", "order", op.ID, "state", op.State, "err", why)
	return r.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := f(tx); err != nil {
			return err
		}
		return putDecision(ctx, tx, op)
	})
}

// putDecision stores that the order of an operation has yet to be decided.
func putDecision(ctx context.Context, tx *store.Tx, op *Op) error {
	return store.PutJob(ctx, tx, store.Job{Kind: store.JobDecide, Key: []byte(op.ID), Due: op.UpdatedAt})
}

// RetryDecision runs a job of kind [store.JobDecide]. An error says that the order still cannot take what became of its payment.
func (r *Rail) RetryDecision(ctx context.Context, key []byte) error {
	op, found, err := store.IfThere(r.records.op(ctx, string(key)))
	if !found || !op.undecided() {
		return err
	}
	_, err = r.records.decide(ctx, op, func(tx *store.Tx) error { return updateOps(ctx, tx, []*Op{op}) })
	if errors.Is(err, ErrChanged) {
		return nil // who changed it has decided it, or put the job again
	}
	return err
}

// accountOf returns the account of the order of an operation. It is zero for a sale of another server, which has no order.
func (r *records) accountOf(ctx context.Context, op *Op) ([16]byte, error) {
	if op.Account != ([16]byte{}) {
		return op.Account, nil
	}
	_, err := store.ExactPaymentByID(ctx, r.cfg.Store, op.ID)
	if errors.Is(err, store.ErrNotFound) {
		alarm.Log(ctx, r.cfg.Log, alarm.ChainRecordMissing, "the chain reports an order that the database does not have", "order", op.ID, "state", op.State)
		err = nil
	}
	return [16]byte{}, err
}

// outcome is the state of an operation as its order takes it. Both use the same words for states.
func (o *Op) outcome() rail.Outcome {
	out := rail.Outcome{Status: toll.OrderStatus(o.State)}
	tx := o.Tx
	if o.Position.Tx != (common.Hash{}) {
		tx = o.Position.Tx
	}
	if tx != (common.Hash{}) {
		out.TxHash = tx.Hex()
	}
	if f := o.Failure; f != nil && o.State == Failed {
		out.FailureCode, out.FailureReason, out.Params, out.Ended = f.Code, f.Reason, f.Params, f.Position != (Position{})
	}
	return out
}
