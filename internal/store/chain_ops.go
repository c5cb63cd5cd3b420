package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
)

// JobDecide is the kind of jobs that have an order take what became of its operation, which it could not take before.
const JobDecide = "chain.decide"

// ChainOp is a user operation of the crypto rail. What the rail knows of it beside these columns is Data.
type ChainOp struct {
	ID        string    `db:"op_id,key"`
	Kind      string    `db:"kind"`
	State     string    `db:"state,set"`
	Version   int64     `db:"version,version"` // counts the writes; [UpdateChainOp] is conditional on it
	NonceKey  []byte    `db:"nonce_key"`
	Hash      []byte    `db:"op_hash,null,set"` // userOpHash; nil while it is not signed
	Undecided bool      `db:"untold,set"`       // its order has yet to take what became of it
	Evidence  *int64    `db:"evidence,set"`     // block that proves its state; nil while there is none
	UpdatedAt time.Time `db:"updated_at,set"`
	Data      []byte    `db:"data,text,set"` // JSON
	// Account is that of the order that it pays or voids; nil when there is none, or it is not known.
	Account []byte `db:"order_account,null"`
}

var (
	chainOps      = newRecord[*ChainOp]("chain_ops")
	ChainOpByID   = by[string](chainOps, "op_id = $1")
	ChainOpByHash = by[toll.Hash](chainOps, "op_hash = $1") // by its userOpHash
	// UpdateChainOp stores an operation whose Version is still the stored one, and counts that up there, not in the operation.
	// [ErrNotFound] when it is another one.
	UpdateChainOp = chainOps.update
	// ChainOpsFrom returns the operations whose evidence is in this block or a later one, by block.
	ChainOpsFrom = listBy[int64](chainOps, "evidence >= $1 ORDER BY evidence, op_id")
)

// InsertChainOp adds an operation unless there is one with its id, and returns the one that is there afterwards. The error is
// [ErrNotFound] when another id has its nonce key or its hash.
func InsertChainOp(ctx context.Context, tx *Tx, op *ChainOp) (*ChainOp, error) {
	// Whatever column conflicts: of two inserts at the same time, one may meet the other at the nonce key first.
	if _, err := chainOps.insertOr(ctx, tx, op, "ON CONFLICT DO NOTHING"); err != nil {
		return nil, err
	}
	return ChainOpByID(ctx, tx, op.ID)
}

// ChainOpsIn returns the operations in these states, those that were updated longest ago first, at most limit.
func ChainOpsIn(ctx context.Context, q Querier, limit int, states ...string) ([]*ChainOp, error) {
	if len(states) == 0 {
		return nil, nil
	}
	args := Mapped(states, func(s string) any { return s })
	return chainOps.all(ctx, q, "WHERE state IN "+tuples(1, len(states))+fmt.Sprintf(" ORDER BY updated_at, op_id LIMIT $%d", len(states)+1),
		append(args, int64(limit))...)
}

// UpdateChainOps is [UpdateChainOp] for several, in an order in which two callers do not wait for each other.
func UpdateChainOps(ctx context.Context, tx *Tx, ops []*ChainOp) error {
	byID := func(a, b *ChainOp) int { return strings.Compare(a.ID, b.ID) }
	for _, op := range slices.SortedFunc(slices.Values(ops), byID) {
		if err := UpdateChainOp(ctx, tx, op); err != nil {
			return err
		}
	}
	return nil
}
