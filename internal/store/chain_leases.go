package store

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
)

// ErrLeased says that another process holds a lease.
var ErrLeased = errors.New("store: the lease is held by another process")

// ChainLease says that one process is at some work. Fence rises with each holder.
type ChainLease struct {
	Name   string    `db:"name,key"`
	Holder string    `db:"holder,set"`
	Fence  int64     `db:"fence,set"`
	Until  time.Time `db:"held_until,set"`
}

var chainLeases = newRecord[ChainLease]("chain_leases")

// AcquireChainLease takes a lease that nobody holds at this moment, or prolongs that of the same holder. Otherwise the error
// is [ErrLeased].
func AcquireChainLease(ctx context.Context, tx *Tx, name, holder string, now, until time.Time) (ChainLease, error) {
	// The row comes first, so that of two first holders the second one waits and then sees it.
	if _, err := chainLeases.insertOr(ctx, tx, ChainLease{Name: name}, "ON CONFLICT (name) DO NOTHING"); err != nil {
		return ChainLease{}, err
	}
	l, err := lockChainLease(ctx, tx, name)
	if err != nil {
		return ChainLease{}, err
	}
	switch {
	case l.Holder == holder:
	case l.Holder != "" && l.Until.After(now):
		return ChainLease{}, ErrLeased
	default:
		l.Holder = holder
		l.Fence++
	}
	l.Until = until
	return l, chainLeases.update(ctx, tx, l)
}

// HoldChainLease makes sure, until the transaction ends, that nobody else takes a lease. [ErrLeased] when somebody has.
func HoldChainLease(ctx context.Context, tx *Tx, l ChainLease) error {
	now, err := lockChainLease(ctx, tx, l.Name)
	if errors.Is(err, ErrNotFound) || err == nil && (now.Fence != l.Fence || now.Holder != l.Holder) {
		return ErrLeased
	}
	return err
}

// ReleaseChainLease gives a lease back. Nothing happens when another process has it.
func ReleaseChainLease(ctx context.Context, tx *Tx, l ChainLease) error {
	_, err := tx.Exec(ctx, "UPDATE chain_leases SET holder = '', held_until = 0 WHERE name = $1 AND holder = $2 AND fence = $3", l.Name, l.Holder, l.Fence)
	return err
}

// FreeChainLeases gives all leases back, for who knows that no other process is there: those of one that was killed would be
// waited for. Their fences stay.
func FreeChainLeases(ctx context.Context, tx *Tx) error {
	_, err := tx.Exec(ctx, "UPDATE chain_leases SET holder = '', held_until = 0 WHERE holder <> ''")
	return err
}

func lockChainLease(ctx context.Context, tx *Tx, name string) (ChainLease, error) {
	return chainLeases.one(ctx, tx, "WHERE name = $1"+tx.ForUpdate(), name)
}

// ChainCursor is how far a reader has read the chain.
type ChainCursor struct {
	Genesis  toll.Hash `db:"genesis"`
	Block    int64     `db:"block"`
	Hash     toll.Hash `db:"block_hash"` // of the block
	Base     int64     `db:"base"`       // a block so far below that a chain without it is another one
	BaseHash toll.Hash `db:"base_hash"`
}

var chainCursors = newRecord[ChainCursor]("chain_cursor")

// ReadChainCursor returns where a reader is, or [ErrNotFound].
func ReadChainCursor(ctx context.Context, q Querier, reader string) (ChainCursor, error) {
	return chainCursors.one(ctx, q, "WHERE reader = $1", reader)
}

// PutChainCursor stores where a reader is.
func PutChainCursor(ctx context.Context, tx *Tx, reader string, c ChainCursor) error {
	_, err := tx.Exec(ctx, `INSERT INTO chain_cursor (reader, genesis, block, block_hash, base, base_hash) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (reader) DO UPDATE SET genesis = excluded.genesis, block = excluded.block, block_hash = excluded.block_hash,
			base = excluded.base, base_hash = excluded.base_hash`,
		reader, c.Genesis[:], c.Block, c.Hash[:], c.Base, c.BaseHash[:])
	return err
}
