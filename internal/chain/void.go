package chain

import (
	"context"
	"errors"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/store"
)

// voidGas is more than the call of incrementNonce needs.
const voidGas = 80_000

const voidPrefix = "void:"

func voidID(orderID string) string { return voidPrefix + orderID }

func orderOfVoid(id string) string { return strings.TrimPrefix(id, voidPrefix) }

// void has the operation of an order that was sent made impossible, and returns what does. The order fails when that is final. When
// its operation lands first, it is paid, and the void does no harm.
func (r *Rail) void(ctx context.Context, op *Op) (*Op, error) {
	switch old, err := r.records.op(ctx, voidID(op.ID)); {
	case err == nil && old.State == Failed && old.SentAt.IsZero():
		// The order was decided before it was sent, and a reorganisation has undone that.
		old.State, old.Failure, old.UpdatedAt = Signed, nil, r.cfg.Clock()
		if err := r.records.update(ctx, old); err != nil && !errors.Is(err, ErrChanged) {
			return nil, err
		}
		r.work.Fire()
		return old, nil
	case !errors.Is(err, store.ErrNotFound):
		return old, err
	}
	operation, err := r.cfg.Signer.Void(ctx, signer.Void{OrderID: op.ID, Sender: op.Sender, CallGas: voidGas})
	if err != nil {
		return nil, err
	}
	now := r.cfg.Clock()
	void, err := r.records.addOp(ctx, &Op{
		ID: voidID(op.ID), Account: op.Account, Kind: KindVoid, State: Signed, Sender: op.Sender, Payer: op.Sender, NonceKey: userop.VoidKey(op.ID),
		Operation: operation, Hash: operation.Hash(r.chainID), CreatedAt: now, UpdatedAt: now,
	})
	if err != nil {
		return nil, err
	}
	r.log.WarnContext(ctx, "the payment of an order is being voided", "order", op.ID, "sent_at", op.SentAt)
	r.work.Fire()
	r.moved.Fire()
	return void, nil
}

// expire ends an order that was sent and has no event, without storing it, if a finalized block proves that it cannot move money
// any more. One that has waited for too long is made impossible. A void that can never run is given up.
func (t *tracker) expire(ctx context.Context, op *Op) (bool, error) {
	if op.Kind == KindSale {
		return t.ended(ctx, op) // a void would not keep others from carrying it out
	}
	if op.Kind == KindRevoke || op.SentAt.IsZero() || op.Failure != nil || op.State != Sent && op.State != Signed {
		return false, nil
	}
	r := t.rail
	if op.Before != 0 && uint64(max(0, r.cfg.Clock().Unix())) >= op.Before {
		if final := t.tag(ctx, "finalized"); final != nil && final.Time >= op.Before {
			op.State = Failed
			op.Failure = &Failure{
				Code: toll.CodeDelegationExpired, Reason: "The delegation expired before the payment was included in a block.",
				Position: Position{Block: final.Number.Uint64(), Hash: final.Hash()},
			}
			return true, nil
		}
	}
	if r.cfg.Clock().Sub(op.SentAt) < r.cfg.VoidAfter {
		return false, nil
	}
	if op.Kind == KindOrder {
		void, err := r.void(ctx, op)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil:
			alarm.Log(ctx, r.log, alarm.OrderStuck, "the payment of an order is not in a block yet, and the attempt to void it failed", "order", op.ID, "err", err)
		case void.Position != (Position{}):
			return false, nil // it decides when it is final
		}
	}
	// While the account has other code, neither the order nor its void can run.
	final := t.tag(ctx, "finalized")
	spoiled, err := t.spoiled(ctx, op, final)
	if err != nil || !spoiled {
		return false, err
	}
	op.State, op.Failure = Failed, &Failure{
		Code: toll.CodeChainFailed, Reason: reasonNonce, Position: Position{Block: final.Number.Uint64(), Hash: final.Hash()},
	}
	return true, nil
}

// needless fails a void that was not sent when its order is decided already.
func (w *relayer) needless(ctx context.Context, op *Op) (bool, error) {
	if op.Kind != KindVoid || !op.SentAt.IsZero() {
		return false, nil
	}
	order, err := w.rail.records.op(ctx, orderOfVoid(op.ID))
	if err != nil || order.State == Signed || order.State == Sent {
		return false, err
	}
	w.end(ctx, op, &Failure{Code: toll.CodeChainFailed, Reason: "The order is already paid or failed."})
	return true, nil
}
