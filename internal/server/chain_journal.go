package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/store"
)

// cursorReader is the reader whose cursor the tracker moves.
const cursorReader = "tracker"

// journal is the memory of the crypto rail in the database (decision 21).
type journal struct {
	store   *store.Store
	chainID int64
}

var _ chain.Journal = (*journal)(nil)

func (j *journal) AddOp(ctx context.Context, op *chain.Op) (*chain.Op, error) {
	row, err := rowOfOp(op)
	if err != nil {
		return nil, err
	}
	row.Version = 1
	var stored *store.ChainOp
	err = j.store.Tx(ctx, func(tx *store.Tx) error {
		if op.Kind == chain.KindSale {
			if err := j.sell(ctx, tx, op); err != nil {
				return err
			}
		}
		stored, err = store.InsertChainOp(ctx, tx, row)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("chain journal: the nonce key of %s belongs to another operation", op.ID)
	}
	if err != nil {
		return nil, err
	}
	return opOfRow(stored)
}

// sell stores that an authorization pays its order. Checkout has done so with the order, as a rule.
func (j *journal) sell(ctx context.Context, tx *store.Tx, op *chain.Op) error {
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
		ChainID: j.chainID, Asset: toll.Address(op.Token), Payer: toll.Address(op.Payer), Nonce: op.Sale.Nonce, OrderID: op.ID,
		Receiver: toll.Address(op.Payments[0].To), Value: value, ValidAfter: after, ValidBefore: before, Signature: op.Sale.Signature,
		CreatedAt: op.CreatedAt,
	})
	if taken, ok := errors.AsType[*store.AuthorizationTaken](err); ok && taken.OrderID != op.ID {
		return chain.ErrSold
	}
	return err
}

func (j *journal) UpdateOp(ctx context.Context, ops ...*chain.Op) error {
	return j.write(ctx, nil, ops, nil)
}

// write stores operations and what else belongs to them in one transaction, under a lease unless that is nil. The operations
// know their new version once it is committed.
func (j *journal) write(ctx context.Context, lease *chain.Lease, ops []*chain.Op, also func(tx *store.Tx) error) error {
	rows := make([]*store.ChainOp, len(ops))
	for i, op := range ops {
		var err error
		if rows[i], err = rowOfOp(op); err != nil {
			return err
		}
	}
	err := j.store.Tx(ctx, func(tx *store.Tx) error {
		if lease != nil {
			if err := store.HoldChainLease(ctx, tx, rowOfLease(*lease)); err != nil {
				return err
			}
		}
		if also != nil {
			if err := also(tx); err != nil {
				return err
			}
		}
		if err := store.UpdateChainOps(ctx, tx, rows); errors.Is(err, store.ErrNotFound) {
			return chain.ErrChanged
		} else if err != nil {
			return err
		}
		return nil
	})
	if errors.Is(err, store.ErrLeased) {
		return chain.ErrLeased
	}
	if err != nil {
		return err
	}
	for _, op := range ops {
		op.Version++
	}
	return nil
}

func (j *journal) Op(ctx context.Context, id string) (*chain.Op, error) {
	return opOf(store.ChainOpByID(ctx, j.store, id))
}

func (j *journal) OpOfHash(ctx context.Context, hash common.Hash) (*chain.Op, error) {
	return opOf(store.ChainOpByHash(ctx, j.store, toll.Hash(hash)))
}

func (j *journal) OpOfKey(ctx context.Context, key [24]byte) (*chain.Op, error) {
	return opOf(store.ChainOpByNonceKey(ctx, j.store, key))
}

func (j *journal) OpsIn(ctx context.Context, limit int, states ...chain.State) ([]*chain.Op, error) {
	words := make([]string, len(states))
	for i, s := range states {
		words[i] = string(s)
	}
	return opsOf(store.ChainOpsIn(ctx, j.store, limit, words...))
}

func (j *journal) OpsAt(ctx context.Context, from uint64) ([]*chain.Op, error) {
	block, err := stored(from)
	if err != nil {
		return nil, err
	}
	return opsOf(store.ChainOpsFrom(ctx, j.store, block))
}

func (j *journal) Untold(ctx context.Context, limit int) ([]*chain.Op, error) {
	return opsOf(store.UntoldChainOps(ctx, j.store, limit))
}

func (j *journal) AddTx(ctx context.Context, lease chain.Lease, t *chain.Tx, replaces common.Hash, ops ...*chain.Op) error {
	row, err := rowOfTx(t)
	if err != nil {
		return err
	}
	return j.write(ctx, &lease, ops, func(tx *store.Tx) error {
		if replaces != (common.Hash{}) {
			if err := store.SetChainTxState(ctx, tx, toll.Hash(replaces), string(chain.TxReplaced)); err != nil {
				return unknown(err)
			}
		}
		return store.InsertChainTx(ctx, tx, row)
	})
}

func (j *journal) UpdateTx(ctx context.Context, lease chain.Lease, t *chain.Tx, ops ...*chain.Op) error {
	row, err := rowOfTx(t)
	if err != nil {
		return err
	}
	return j.write(ctx, &lease, ops, func(tx *store.Tx) error { return unknown(store.UpdateChainTx(ctx, tx, row)) })
}

func (j *journal) PendingTxs(ctx context.Context, relayer common.Address) ([]*chain.Tx, error) {
	return txsOf(store.PendingChainTxs(ctx, j.store, toll.Address(relayer)))
}

func (j *journal) TxsFrom(ctx context.Context, relayer common.Address, nonce uint64) ([]*chain.Tx, error) {
	from, err := stored(nonce)
	if err != nil {
		return nil, err
	}
	return txsOf(store.ChainTxsFrom(ctx, j.store, toll.Address(relayer), from))
}

func txsOf(rows []*store.ChainTx, err error) ([]*chain.Tx, error) {
	if err != nil {
		return nil, err
	}
	txs := make([]*chain.Tx, len(rows))
	for i, row := range rows {
		if txs[i], err = txOfRow(row); err != nil {
			return nil, err
		}
	}
	return txs, nil
}

func (j *journal) TxOf(ctx context.Context, hash common.Hash) (*chain.Tx, error) {
	row, err := store.ChainTxByHash(ctx, j.store, toll.Hash(hash))
	if err != nil {
		return nil, unknown(err)
	}
	return txOfRow(row)
}

func (j *journal) MaxNonce(ctx context.Context, relayer common.Address) (uint64, bool, error) {
	n, ok, err := store.MaxChainNonce(ctx, j.store, toll.Address(relayer))
	return uint64(n), ok, err
}

func (j *journal) Acquire(ctx context.Context, name, holder string, now time.Time, ttl time.Duration) (chain.Lease, error) {
	var l store.ChainLease
	err := j.store.Tx(ctx, func(tx *store.Tx) (err error) {
		l, err = store.AcquireChainLease(ctx, tx, name, holder, now, now.Add(ttl))
		return err
	})
	if errors.Is(err, store.ErrLeased) {
		return chain.Lease{}, chain.ErrLeased
	}
	return chain.Lease{Name: l.Name, Holder: l.Holder, Fence: l.Fence, Until: l.Until}, err
}

func (j *journal) Release(ctx context.Context, lease chain.Lease) error {
	return j.store.Tx(ctx, func(tx *store.Tx) error { return store.ReleaseChainLease(ctx, tx, rowOfLease(lease)) })
}

func (j *journal) Cursor(ctx context.Context) (chain.Cursor, error) {
	c, err := store.ReadChainCursor(ctx, j.store, cursorReader)
	if errors.Is(err, store.ErrNotFound) {
		return chain.Cursor{}, nil
	}
	return chain.Cursor{
		Genesis: common.Hash(c.Genesis), Block: uint64(c.Block), Hash: common.Hash(c.Hash), Base: uint64(c.Base), BaseHash: common.Hash(c.BaseHash),
	}, err
}

func (j *journal) SetCursor(ctx context.Context, lease chain.Lease, c chain.Cursor) error {
	if _, err := stored(max(c.Block, c.Base)); err != nil {
		return err
	}
	return j.write(ctx, &lease, nil, func(tx *store.Tx) error {
		return store.PutChainCursor(ctx, tx, cursorReader, store.ChainCursor{
			Genesis: toll.Hash(c.Genesis), Block: int64(c.Block), Hash: toll.Hash(c.Hash), Base: int64(c.Base), BaseHash: toll.Hash(c.BaseHash),
		})
	})
}

type orphanData struct {
	Tx       common.Hash   `json:"tx"`
	OpHash   common.Hash   `json:"opHash"`
	NonceKey hexutil.Bytes `json:"nonceKey"`
	Reason   string        `json:"reason"`
}

func (j *journal) AddOrphan(ctx context.Context, o chain.Orphan) (isNew bool, err error) {
	block, err := stored(o.Number)
	if err != nil {
		return false, err
	}
	data, err := json.Marshal(orphanData{o.Tx, o.OpHash, o.NonceKey[:], o.Reason})
	if err != nil {
		return false, err
	}
	err = j.store.Tx(ctx, func(tx *store.Tx) error {
		isNew, err = store.InsertChainOrphan(ctx, tx, store.ChainOrphan{
			BlockHash: toll.Hash(o.Block), LogIndex: int64(o.LogIndex), Block: block, Data: data,
		})
		return err
	})
	return isNew, err
}

func (j *journal) AddDelegation(ctx context.Context, hash common.Hash, id string) error {
	return j.store.Tx(ctx, func(tx *store.Tx) error { return store.PutChainDelegation(ctx, tx, toll.Hash(hash), id) })
}

func (j *journal) DelegationOfHash(ctx context.Context, hash common.Hash) (string, error) {
	id, err := store.ChainDelegation(ctx, j.store, toll.Hash(hash))
	return id, unknown(err)
}

// unknown is the word of the rail for a row that is not there.
func unknown(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return chain.ErrUnknown
	}
	return err
}

// stored is a number of the chain as a database holds it.
func stored(n uint64) (int64, error) {
	if n > math.MaxInt64 {
		return 0, errors.New("chain journal: a number is above 2^63")
	}
	return int64(n), nil
}

func rowOfLease(l chain.Lease) store.ChainLease {
	return store.ChainLease{Name: l.Name, Holder: l.Holder, Fence: l.Fence, Until: l.Until}
}
