package chain

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// Records are the records of a database, for tests outside the package. They are written as a rail writes them.
type Records struct {
	Store *store.Store
	rail  *records
}

func NewRecords(st *store.Store) *Records {
	return &Records{Store: st, rail: &records{cfg: &Config{Store: st, ChainID: 84532}}}
}

func (r *Records) AddOp(ctx context.Context, op *Op) (*Op, error)       { return r.rail.addOp(ctx, op) }
func (r *Records) UpdateOp(ctx context.Context, ops ...*Op) error       { return r.update(ctx, ops) }
func (r *Records) Op(ctx context.Context, id string) (*Op, error)       { return r.rail.op(ctx, id) }
func (r *Records) TxOf(ctx context.Context, h common.Hash) (*Tx, error) { return r.rail.txOf(ctx, h) }

// update writes as [records.update] does, and decides no order.
func (r *Records) update(ctx context.Context, ops []*Op) error {
	return counted(ops, r.Store.Tx(ctx, func(tx *store.Tx) error { return updateOps(ctx, tx, ops) }))
}

func (r *Records) OpOfHash(ctx context.Context, h common.Hash) (*Op, error) {
	return opOf(store.ChainOpByHash(ctx, r.Store, toll.Hash(h)))
}

func (r *Records) OpsIn(ctx context.Context, limit int, states ...State) ([]*Op, error) {
	return r.rail.opsIn(ctx, limit, states...)
}

func (r *Records) OpsAt(ctx context.Context, from uint64) ([]*Op, error) {
	return r.rail.opsAt(ctx, from)
}

// Undecided are the operations whose orders have yet to take what became of them, those that have waited longest first.
func (r *Records) Undecided(ctx context.Context, limit int) (ops []*Op, err error) {
	rows, err := r.Store.Query(ctx, "SELECT op_id FROM chain_ops WHERE untold ORDER BY updated_at, op_id LIMIT $1", int64(limit))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		found = append(found, id)
	}
	rows.Close()
	for _, id := range found {
		op, e := r.Op(ctx, id)
		ops, err = append(ops, op), errors.Join(err, e)
	}
	return ops, errors.Join(err, rows.Err())
}

func (r *Records) AddTx(ctx context.Context, lease *jobs.Lease, tx *Tx, replaces common.Hash, ops ...*Op) error {
	return r.rail.addTx(ctx, lease, tx, replaces, ops...)
}

func (r *Records) UpdateTx(ctx context.Context, lease *jobs.Lease, tx *Tx, ops ...*Op) error {
	return r.rail.updateTx(ctx, lease, tx, ops...)
}

func (r *Records) Reopen(ctx context.Context, op *Op, head uint64) error {
	return reopen(ctx, r.rail, op, head)
}

func (r *Records) PendingTxs(ctx context.Context, relayer common.Address) ([]*Tx, error) {
	return r.rail.pendingTxs(ctx, relayer)
}

func (r *Records) TxsFrom(ctx context.Context, relayer common.Address, nonce uint64) ([]*Tx, error) {
	return r.rail.txsFrom(ctx, relayer, nonce)
}

func (r *Records) Cursor(ctx context.Context) (Cursor, error) { return r.rail.cursor(ctx) }

func (r *Records) SetCursor(ctx context.Context, lease *jobs.Lease, c Cursor) error {
	return r.rail.setCursor(ctx, lease, c)
}

func (r *Records) AddOrphan(ctx context.Context, o *Orphan) (bool, error) {
	return r.rail.addOrphan(ctx, o)
}

// Orphans are the events that nothing explains, by their place.
func (r *Records) Orphans(ctx context.Context) ([]Orphan, error) {
	rows, err := r.Store.Query(ctx, "SELECT block_hash, log_index, block, data FROM chain_orphans ORDER BY block, log_index")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []Orphan
	for rows.Next() {
		var hash []byte
		var index, block int64
		var data string
		if err := rows.Scan(&hash, &index, &block, &data); err != nil {
			return nil, err
		}
		o := Orphan{Block: common.BytesToHash(hash), LogIndex: uint(index), Number: uint64(block)}
		if err := json.Unmarshal([]byte(data), &o); err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, rows.Err()
}

func (r *Records) AddDelegation(ctx context.Context, hash common.Hash, id string) error {
	return r.rail.addDelegation(ctx, hash, id)
}

// RowOfOp, OpOfRow, RowOfTx and TxOfRow are the forms in which records are stored.
var (
	RowOfOp = rowOfOp
	OpOfRow = opOfRow
	RowOfTx = rowOfTx
	TxOfRow = txOfRow
)

// Run runs the loops and jobs of a rail until ctx ends.
func (r *Rail) Run(ctx context.Context) error {
	g := jobs.NewGroup(r.log)
	q := jobs.NewQueue(r.cfg.Store, r.cfg.Clock, r.log)
	q.Handle(store.JobDecide, r.RetryDecision)
	g.Start(append(r.Loops(), q.Loops()...)...)
	<-ctx.Done()
	return g.Stop(context.WithoutCancel(ctx))
}

// Turns returns a function that takes one turn of a relayer that does not run.
func (r *Rail) Turns(address common.Address) func(ctx context.Context) (time.Duration, error) {
	return r.newRelayer(address).runOnce
}

// Tracks returns a function that has a tracker that does not run look at the chain once.
func (r *Rail) Tracks() func(ctx context.Context) (time.Duration, error) {
	all := r.Loops()
	return all[slices.IndexFunc(all, func(l jobs.Loop) bool { return l.Name == "chain.tracker" })].Run
}

// Outcome is how an operation stands, as its order takes it.
func (o *Op) Outcome() rail.Outcome { return o.outcome() }

// Pay has an order begun and carried on as checkout does, and returns when it is decided or ctx ends.
func (r *Rail) Pay(ctx context.Context, p rail.Purchase) (rail.Payment, error) {
	op, err := r.newOrderOp(&p)
	if err != nil {
		return rail.Payment{}, err
	}
	r.cfg.At("order")
	want := op.Digest
	if op, err = r.records.addOp(ctx, op); err != nil {
		return rail.Payment{Outcome: rail.Outcome{Status: toll.OrderCreated}}, err
	}
	r.cfg.At("created")
	if op.Digest != want {
		return paymentOf(op), conflict(op.ID)
	}
	return r.awaitOutcome(ctx, op, p.Delegation)
}

// Outcome is how an order stands, created for one that was not begun.
func (r *Rail) Outcome(ctx context.Context, orderID string) (rail.Payment, error) {
	p, err := r.Payment(ctx, r.cfg.Store, orderID)
	if errors.Is(err, store.ErrNotFound) {
		return rail.Payment{Outcome: rail.Outcome{Status: toll.OrderCreated}}, nil
	}
	return p, err
}
