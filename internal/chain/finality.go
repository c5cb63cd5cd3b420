package chain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/store"
)

// Steps between which a process may end, in the words of [Config.At].
const (
	stepDeciding = "deciding" // before the commit
	stepFound    = "event stored"
)

// compare tells whether the chain still has the block of the cursor. behind: the endpoint that answers is not as far, and
// nothing can be said. A chain that has changed more deeply than is followed, or lost its blocks, stops the rail.
func (t *tracker) compare(ctx context.Context) (changed, behind bool, err error) {
	r, c, head := t.rail, t.cursor, t.pass.head.Number.Uint64()
	if head+overlap < c.Block {
		return false, false, r.mismatch(ctx, c.Block, c.Hash, fmt.Errorf("%w: the latest block is %d, but block %d was read before", ErrOtherChain, head, c.Block))
	}
	if head >= c.Block {
		hash, ok, err := t.hashAt(ctx, c.Block)
		if err != nil || ok && hash == c.Hash {
			return false, false, err
		}
		if !ok {
			return false, true, nil
		}
	} else if !r.cfg.Embedded {
		return false, true, nil
	}
	r.log.WarnContext(ctx, "the chain was reorganized", "block", c.Block, "head", head)
	hash, ok, err := t.hashAt(ctx, c.Base)
	if err == nil && (!ok || hash != c.BaseHash) {
		err = r.mismatch(ctx, c.Base, c.BaseHash, fmt.Errorf("%w: more than %d blocks below block %d have changed", ErrOtherChain, overlap, c.Block))
	}
	return true, false, err
}

// verify looks whether the blocks of all recent evidence are still there, and takes back what is gone. It says how many
// operations that were; behind as in [tracker.compare].
func (t *tracker) verify(ctx context.Context) (gone int, behind bool, err error) {
	ops, err := t.rail.records.opsAt(ctx, t.cursor.Base)
	if err != nil {
		return 0, false, err
	}
	for _, op := range ops {
		place := op.Evidence()
		hash, ok, err := t.hashAt(ctx, place.Block)
		switch {
		case err != nil:
			return gone, false, err
		case ok && hash == place.Hash:
			continue
		case !ok && !t.rail.cfg.Embedded:
			return gone, true, nil
		}
		if err := t.undo(ctx, op); err != nil {
			return gone, false, err
		}
		gone++
	}
	if gone > 0 {
		t.seen = common.Hash{}
		t.rail.work.Fire()
	}
	return gone, false, nil
}

// undo takes back an operation whose evidence is gone: its bytes may land again, and are sent again. The order stays as it is.
func (t *tracker) undo(ctx context.Context, op *Op) error {
	r := t.rail
	r.log.WarnContext(ctx, "a reorganization removed the event of an operation", "op", op.ID, "state", op.State, "block", op.Evidence().Block)
	op.Position, op.Failure, op.UpdatedAt = Position{}, nil, r.cfg.Clock()
	if !op.SentAt.IsZero() {
		op.SentAt = op.UpdatedAt // it has as long to land again as a new one before it is made impossible
	}
	if err := reopen(ctx, r.records, op, t.pass.head.Number.Uint64()); err != nil {
		return err
	}
	r.waiters.Wake(op.ID)
	return nil
}

// happened notes what the event of an operation says.
func (t *tracker) happened(ctx context.Context, op *Op, e *event, reason string) error {
	if op.Kind == KindSale {
		t.ran(ctx, op, e, reason)
		return nil
	}
	r := t.rail
	landed := op.State == Included || op.State == Confirmed || op.State == Final
	switch {
	case e.success && landed && op.Position == e.place:
		return nil
	case op.Failure != nil && op.Failure.Position == e.place:
		return nil
	}
	paid := false
	if e.success {
		var err error
		if paid, err = r.chain.made(ctx, op, e.place); err != nil {
			return err
		}
	}
	switch {
	case paid:
		if op.State == Failed {
			alarm.Log(ctx, r.log, alarm.LatePayment, "a failed operation moved money after all", "op", op.ID, "tx", e.place.Tx)
		}
		op.State, op.Position, op.Failure = Included, e.place, nil
	case op.State == Failed && op.Failure != nil && op.Failure.Position.Tx == (common.Hash{}):
		// It was decided by the time, and says the same now.
		return nil
	default:
		f := movedNothing(op)
		if e.success {
			alarm.Log(ctx, r.log, alarm.ChainMovedNothing, "an operation ran but moved no money", "op", op.ID, "account", op.Payer, "tx", e.place.Tx)
		} else {
			f = r.failure(ctx, op, reason)
		}
		f.Position = e.place
		op.State, op.Position, op.Failure = Sent, Position{}, f
	}
	op.Tx = e.place.Tx
	if op.SentAt.IsZero() {
		op.SentAt = r.cfg.Clock()
	}
	if _, err := t.step(ctx, op); err != nil {
		return err
	}
	return t.write(ctx, op)
}

// step moves an operation on as far as the depth of its evidence allows, without storing it, and reports whether it did.
func (t *tracker) step(ctx context.Context, op *Op) (moved bool, err error) {
	for {
		var next State
		switch {
		case op.State == Included && t.deep(ctx, op, op.Position.Block):
			next = Confirmed
		case op.State == Confirmed && t.final(ctx, op.Position.Block):
			next = Final
		case op.State == Sent && op.Failure != nil && t.deep(ctx, op, op.Failure.Position.Block):
			next = Failed
		default:
			return moved, nil
		}
		ok := true
		switch {
		case next != Final:
			ok, err = t.agreed(ctx, op, next == Confirmed)
		case op.Kind == KindVoid:
			ok, err = t.voided(ctx, op)
			moved = moved || op.State == Failed
		}
		if err != nil || !ok {
			return moved, err
		}
		op.State, moved = next, true
	}
}

// deep reports whether a block is so deep that what is in it decides about an operation.
func (t *tracker) deep(ctx context.Context, op *Op, block uint64) bool {
	confirmations, safe := t.rail.cfg.depth(op)
	if !safe {
		return t.pass.head.Number.Uint64() >= block+confirmations
	}
	header := t.tag(ctx, "safe")
	return header != nil && header.Number.Uint64() >= block
}

func (t *tracker) final(ctx context.Context, block uint64) bool {
	header := t.tag(ctx, "finalized")
	return header != nil && header.Number.Uint64() >= block
}

// agreed asks once more for the event that decides about an operation, on live two endpoints: one that invents it, or the block
// around it, is not believed. The chain in this process is not asked twice.
func (t *tracker) agreed(ctx context.Context, op *Op, success bool) (bool, error) {
	if t.rail.cfg.Embedded {
		return true, nil
	}
	place := op.Evidence()
	found, err := endpoints.Agree(ctx, t.rail.cfg.Pool, func(ctx context.Context, c *endpoints.Conn) (fate, error) {
		header, err := c.HeaderByNumber(ctx, new(big.Int).SetUint64(place.Block))
		switch {
		case errors.Is(err, ethereum.NotFound), err == nil && header.Hash() != place.Hash:
			return unused, nil
		case err != nil:
			return unused, err
		case op.Kind == KindSale:
			return fateAt(ctx, c, op, place)
		}
		return ranAt(ctx, c, t.rail.chainID, op, place)
	})
	if errors.Is(err, endpoints.ErrDisagree) || errors.Is(err, endpoints.ErrNone) {
		t.rail.log.WarnContext(ctx, "the endpoints disagree about an event", "op", op.ID, "block", place.Block, "err", err)
		return false, nil
	}
	if err == nil && (found == unused || success != (found == carried)) {
		alarm.Log(ctx, t.rail.log, alarm.EndpointDisagrees, "only one endpoint reports an event", "op", op.ID, "block", place.Block)
		t.seen = common.Hash{}
		return false, t.undo(ctx, op)
	}
	return err == nil, err
}

// ranAt reads what the event of an operation at a place says became of it: [carried] when it made its payments, else [otherwise].
func ranAt(ctx context.Context, c *endpoints.Conn, chainID *big.Int, op *Op, at Position) (fate, error) {
	logs, err := c.FilterLogs(ctx, ethereum.FilterQuery{
		BlockHash: &at.Hash, Addresses: []common.Address{contracts.EntryPoint}, Topics: [][]common.Hash{{topicRun}, {op.Hash}},
	})
	for i := range logs {
		e, ok := parseEvent(&logs[i])
		if !ok || e.place != at || !e.of(op) {
			continue
		}
		if e.success {
			e.success, err = moved(ctx, c, chainID, op, at)
		}
		if e.success && err == nil {
			return carried, nil
		}
		return otherwise, err
	}
	return unused, err
}

// write stores an operation that has moved on. With a void that is final, its order fails in the same write.
func (t *tracker) write(ctx context.Context, op *Op) error {
	r := t.rail
	op.UpdatedAt = r.cfg.Clock()
	ops := []*Op{op}
	if op.Kind == KindVoid && op.State == Final {
		order, err := r.records.op(ctx, orderOfVoid(op.ID))
		if err != nil {
			return err
		}
		if order.State == Signed || order.State == Sent {
			f := Failure{Code: toll.CodeChainFailed, Reason: "The payment was not included in a block in time and was voided."}
			if order.Failure != nil {
				f = *order.Failure
			}
			f.Position = op.Position
			order.State, order.Failure, order.UpdatedAt = Failed, &f, op.UpdatedAt
			ops = append(ops, order)
		}
	}
	if op.Kind == KindVoid && op.State == Failed {
		alarm.Log(ctx, r.log, alarm.OrderStuck, "the payment of an order could not be voided", "op", op.ID, "reason", op.Failure.Reason)
	}
	if err := r.records.update(ctx, ops...); err != nil {
		return err
	}
	r.cfg.At(stepFound)
	r.waiters.Wake(ids(ops)...)
	if op.Kind == KindVoid && op.State == Failed {
		r.work.Fire() // its order is sent again
	}
	return nil
}

// alone reports whether an error is about one operation: what endpoints answer when they are asked about it, or that they do not
// say the same. That none answers, or that the database does not, concerns all.
func alone(err error) bool {
	_, answer := errors.AsType[rpc.Error](err)
	return answer || errors.Is(err, endpoints.ErrDisagree) || errors.Is(err, errAnswer) || errors.Is(err, ethereum.NotFound)
}

// advance moves operations on whose evidence has become deeper, and ends those that time ends. One about which the chain does not
// tell now rests, each time for longer, and holds up no other.
func (t *tracker) advance(ctx context.Context) error {
	r := t.rail
	open, err := r.records.opsIn(ctx, maxOpen, underWay...)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, op := range open {
		if t.unread[op.ID] || t.unclear.left(op.ID, now) > 0 {
			continue
		}
		err := t.proceed(ctx, op)
		switch {
		case err == nil:
			delete(t.unclear, op.ID)
		case !alone(err):
			return err
		default:
			t.unclear.add(op.ID)
			r.log.WarnContext(ctx, "the outcome of an operation is not known yet", "op", op.ID, "state", op.State, "err", err)
		}
	}
	t.unclear.forget(now)
	t.asked.forget(now)
	maps.DeleteFunc(t.spoilt, func(id string, _ bool) bool { _, soon := t.asked[id]; return !soon })
	return t.finish(ctx)
}

// proceed is [tracker.advance] for one operation.
func (t *tracker) proceed(ctx context.Context, op *Op) error {
	moved, err := t.step(ctx, op)
	if err == nil && !moved {
		moved, err = t.expire(ctx, op)
	}
	if err != nil || !moved {
		return err
	}
	return t.write(ctx, op)
}

// finish makes paid operations final, the oldest first, when the finalized block has moved. Voids of which the chain does not tell
// what they did stay, and hold up no other.
func (t *tracker) finish(ctx context.Context) error {
	r := t.rail
	const page = 200
	stay := map[string]bool{}
	for {
		most := page + len(stay)
		paid, err := r.records.opsIn(ctx, most, Confirmed)
		if err != nil || len(paid) == 0 {
			return err
		}
		header := t.tag(ctx, "finalized")
		if header == nil || header.Hash() == t.final0 {
			return nil
		}
		young := false
		for _, op := range paid {
			if stay[op.ID] {
				continue
			}
			moved, err := t.step(ctx, op)
			if err == nil && moved {
				err = t.write(ctx, op)
			}
			switch {
			case alone(err):
				moved = false
				r.log.WarnContext(ctx, "the outcome of an operation is not known yet", "op", op.ID, "state", op.State, "err", err)
			case err != nil:
				return err
			}
			if !moved {
				stay[op.ID] = true
				young = young || !t.final(ctx, op.Position.Block)
			}
		}
		if young || len(paid) < most {
			t.final0 = header.Hash()
			return nil
		}
	}
}

// reopen stores an operation that lost its evidence, in one write with the transaction that last carried it. The operation is [Sent]
// while that transaction can land, which its relayer checks again, otherwise [Signed]. head is the number of the latest block.
func reopen(ctx context.Context, r *records, op *Op, head uint64) error {
	return counted([]*Op{op}, r.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		op.State = Sent
		t, found, err := store.IfThere(txOf(store.ChainTxForUpdate(ctx, tx, toll.Hash(op.Tx))))
		switch {
		case err != nil:
			return err
		case !found, t.State == TxReplaced:
			// Another transaction has the nonce by now, so a new transaction must carry the operation.
			op.State = Signed
		case t.State == TxMined:
			t.State, t.Position, t.SentBlock = TxPending, Position{}, head
			row, err := rowOfTx(t)
			if err == nil {
				err = store.UpdateChainTx(ctx, tx, row)
			}
			if err != nil {
				return err
			}
		}
		return updateOps(ctx, tx, []*Op{op})
	}))
}
