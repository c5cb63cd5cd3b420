package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
)

// The records of the rail. Each write is one transaction, which is on disk when it returns nil. Any number of
// processes share the records. Reads return [store.ErrNotFound] for a missing record.

// CursorReader is the reader whose cursor the tracker moves.
const CursorReader = "tracker"

// records are the records of the rail. Those that decide an order are written with it.
type records struct{ cfg *Config }

// addOp is insertOp in a transaction of its own.
func (r *records) addOp(ctx context.Context, op *Op) (stored *Op, err error) {
	err = r.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		stored, err = r.insertOp(ctx, tx, op)
		return err
	})
	return stored, err
}

// insertOp stores a new operation and returns what is stored under its id: the given one, or an older one as it is. Of a sale it
// stores, too, that the authorization (token, payer, nonce) pays its order, for ever; [ErrSold] when it pays another one.
func (r *records) insertOp(ctx context.Context, tx *store.Tx, op *Op) (*Op, error) {
	row, err := rowOfOp(op)
	if err != nil {
		return nil, err
	}
	row.Version = 1
	if op.Kind == KindSale {
		if there, err := opOf(store.ChainOpByID(ctx, tx, op.ID)); !errors.Is(err, store.ErrNotFound) {
			return there, err
		}
		if err := r.recordSale(ctx, tx, op); err != nil {
			return nil, err
		}
	}
	there, err := opOf(store.InsertChainOp(ctx, tx, row))
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("chain: the nonce key of %s belongs to another operation", op.ID)
	}
	if err == nil && there.undecided() {
		err = putDecision(ctx, tx, op) // it failed as it was made
	}
	return there, err
}

// recordSale stores that an authorization pays its order. Checkout has done so with the order, as a rule.
func (r *records) recordSale(ctx context.Context, tx *store.Tx, op *Op) error {
	value, err := toll.ParseUnits(op.Payments[0].Amount.String())
	if err != nil {
		return err
	}
	after, err := stored(op.Sale.After)
	if err != nil {
		return err
	}
	before, err := stored(op.Before)
	if err != nil {
		return err
	}
	err = store.InsertAuthorization(ctx, tx, &store.Authorization{
		ChainID: int64(r.cfg.ChainID), Asset: toll.Address(op.Token), Payer: toll.Address(op.Payer), Nonce: op.Sale.Nonce, OrderID: op.ID,
		Receiver: toll.Address(op.Payments[0].To), Value: value, ValidAfter: after, ValidBefore: before, Signature: op.Sale.Signature,
		CreatedAt: op.CreatedAt,
	})
	if taken, ok := errors.AsType[*store.AuthorizationTaken](err); ok && taken.OrderID != op.ID {
		return ErrSold
	}
	return err
}

// update stores operations whose Version is still the stored one and counts it up in them, or changes nothing: [ErrChanged],
// also for one that is not there. One of them at most pays an order; when it decides it, the order is written with it.
func (r *records) update(ctx context.Context, ops ...*Op) error {
	f := func(tx *store.Tx) error { return updateOps(ctx, tx, ops) }
	if i := slices.IndexFunc(ops, (*Op).undecided); i >= 0 {
		refused, err := r.decide(ctx, ops[i], f)
		if refused {
			err = r.decideLater(ctx, ops[i], err, f)
		}
		return counted(ops, err)
	}
	return counted(ops, r.cfg.Store.Tx(ctx, f))
}

// counted counts the versions of operations up that were stored without an error.
func counted(ops []*Op, err error) error {
	if err == nil {
		for _, op := range ops {
			op.Version++
		}
	}
	return err
}

// updateOps is update inside a transaction. The operations keep their versions.
func updateOps(ctx context.Context, tx *store.Tx, ops []*Op) error {
	rows := make([]*store.ChainOp, len(ops))
	for i, op := range ops {
		var err error
		if rows[i], err = rowOfOp(op); err != nil {
			return err
		}
	}
	err := store.UpdateChainOps(ctx, tx, rows)
	return store.NotFoundAs(err, ErrChanged)
}

func (r *records) op(ctx context.Context, id string) (*Op, error) {
	return opOf(store.ChainOpByID(ctx, r.cfg.Store, id))
}

// opsIn lists operations in these states, those that have waited longest (UpdatedAt) first, at most limit.
func (r *records) opsIn(ctx context.Context, limit int, states ...State) ([]*Op, error) {
	words := store.Mapped(states, func(s State) string { return string(s) })
	return opsOf(store.ChainOpsIn(ctx, r.cfg.Store, limit, words...))
}

// opsAt lists operations in any state whose evidence ([Op.Evidence]) is in block from or a later one, by block.
func (r *records) opsAt(ctx context.Context, from uint64) ([]*Op, error) {
	block, err := stored(from)
	if err != nil {
		return nil, err
	}
	return opsOf(store.ChainOpsFrom(ctx, r.cfg.Store, block))
}

func opOf(row *store.ChainOp, err error) (*Op, error) {
	if err != nil {
		return nil, err
	}
	return opOfRow(row)
}

func opsOf(rows []*store.ChainOp, err error) ([]*Op, error) { return all(rows, err, opOfRow) }

func txsOf(rows []*store.ChainTx, err error) ([]*Tx, error) { return all(rows, err, txOfRow) }

func all[R, V any](rows []*R, err error, of func(*R) (*V, error)) ([]*V, error) {
	if err != nil {
		return nil, err
	}
	values := make([]*V, len(rows))
	for i, row := range rows {
		if values[i], err = of(row); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// addTx stores a transaction and its operations, all or nothing, as update does; [store.ErrLeased] when the lease is not held
// any more. replaces is the transaction with the same nonce that it takes the place of, or zero.
func (r *records) addTx(ctx context.Context, lease *jobs.Lease, t *Tx, replaces common.Hash, ops ...*Op) error {
	return r.writeTx(ctx, lease, t, replaces, ops, func(tx *store.Tx, row *store.ChainTx) error {
		if replaces != (common.Hash{}) {
			if err := store.SetChainTxState(ctx, tx, toll.Hash(replaces), string(TxReplaced)); err != nil {
				return err
			}
		}
		return store.InsertChainTx(ctx, tx, row)
	})
}

// updateTx stores state, place and SentBlock of a transaction and its operations, all or nothing, as addTx does.
func (r *records) updateTx(ctx context.Context, lease *jobs.Lease, t *Tx, ops ...*Op) error {
	var replaced common.Hash
	if t.State == TxReplaced {
		replaced = t.Hash
	}
	return r.writeTx(ctx, lease, t, replaced, ops, func(tx *store.Tx, row *store.ChainTx) error { return store.UpdateChainTx(ctx, tx, row) })
}

// writeTx stores operations, and by write the row of a transaction, under a lease. It returns [ErrChanged] if an operation would stay
// with a transaction that write replaces: the tracker has taken its event back since the relayer read it.
func (r *records) writeTx(
	ctx context.Context, lease *jobs.Lease, t *Tx, replaced common.Hash, ops []*Op, write func(*store.Tx, *store.ChainTx) error,
) error {
	row, err := rowOfTx(t)
	if err != nil {
		return err
	}
	return counted(ops, r.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := lease.Check(ctx, tx); err != nil {
			return err
		}
		if err := write(tx, row); err != nil {
			return err
		}
		if err := updateOps(ctx, tx, ops); err != nil || replaced == (common.Hash{}) {
			return err
		}
		old, err := txOf(store.ChainTxByHash(ctx, tx, toll.Hash(replaced)))
		if err != nil {
			return err
		}
		left, err := opsCarriedBy(ctx, tx, old)
		if err == nil && len(left) > 0 {
			err = ErrChanged
		}
		return err
	}))
}

// pendingTxs lists the transactions of a relayer that are not mined or replaced, by nonce.
func (r *records) pendingTxs(ctx context.Context, relayer common.Address) ([]*Tx, error) {
	return txsOf(store.PendingChainTxs(ctx, r.cfg.Store, toll.Address(relayer)))
}

// txsFrom lists the transactions of a relayer in any state with this nonce or a higher one, by nonce and CreatedAt.
func (r *records) txsFrom(ctx context.Context, relayer common.Address, nonce uint64) ([]*Tx, error) {
	from, err := stored(nonce)
	if err != nil {
		return nil, err
	}
	return txsOf(store.ChainTxsFrom(ctx, r.cfg.Store, toll.Address(relayer), from))
}

func (r *records) txOf(ctx context.Context, hash common.Hash) (*Tx, error) {
	return txOf(store.ChainTxByHash(ctx, r.cfg.Store, toll.Hash(hash)))
}

func txOf(row *store.ChainTx, err error) (*Tx, error) {
	if err != nil {
		return nil, err
	}
	return txOfRow(row)
}

// cursor returns where the tracker is, the zero value at the first start.
func (r *records) cursor(ctx context.Context) (Cursor, error) {
	c, err := store.ReadChainCursor(ctx, r.cfg.Store, CursorReader)
	return Cursor{
		Genesis: common.Hash(c.Genesis), Block: uint64(c.Block), Hash: common.Hash(c.Hash), Base: uint64(c.Base), BaseHash: common.Hash(c.BaseHash),
	}, store.NotFoundAs(err, nil)
}

// setCursor stores where the tracker is, under its lease.
func (r *records) setCursor(ctx context.Context, lease *jobs.Lease, c Cursor) error {
	if _, err := stored(max(c.Block, c.Base)); err != nil {
		return err
	}
	return r.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := lease.Check(ctx, tx); err != nil {
			return err
		}
		return store.PutChainCursor(ctx, tx, CursorReader, store.ChainCursor{
			Genesis: toll.Hash(c.Genesis), Block: int64(c.Block), Hash: toll.Hash(c.Hash), Base: int64(c.Base), BaseHash: toll.Hash(c.BaseHash),
		})
	})
}

// addOrphan stores an event that nothing explains, and reports whether it is new.
func (r *records) addOrphan(ctx context.Context, o *Orphan) (isNew bool, err error) {
	block, err := stored(o.Number)
	if err != nil {
		return false, err
	}
	data, err := json.Marshal(o)
	if err != nil {
		return false, err
	}
	err = r.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		isNew, err = store.InsertChainOrphan(ctx, tx, store.ChainOrphan{
			BlockHash: toll.Hash(o.Block), LogIndex: int64(o.LogIndex), Block: block, Data: data,
		})
		return err
	})
	return isNew, err
}

func (r *records) addDelegation(ctx context.Context, hash common.Hash, id string) error {
	return r.cfg.Store.Tx(ctx, func(tx *store.Tx) error { return store.PutChainDelegation(ctx, tx, toll.Hash(hash), id) })
}
