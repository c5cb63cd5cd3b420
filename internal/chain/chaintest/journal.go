package chaintest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll/internal/chain"
)

// Journal is a [chain.Journal] in memory. What processes are in a test are rails that share one.
type Journal struct {
	mu          sync.Mutex
	ops         map[string]*chain.Op
	txs         map[common.Hash]*chain.Tx
	leases      map[string]chain.Lease
	cursor      chain.Cursor
	orphans     []chain.Orphan
	delegations map[common.Hash]string
	sales       map[string]string // order ids by authorization
}

// NewJournal returns an empty journal.
func NewJournal() *Journal {
	return &Journal{
		ops: map[string]*chain.Op{}, txs: map[common.Hash]*chain.Tx{}, leases: map[string]chain.Lease{},
		delegations: map[common.Hash]string{}, sales: map[string]string{},
	}
}

var _ chain.Journal = (*Journal)(nil)

// stored returns v as a database gives it back: what JSON does not carry is lost, and nothing is shared.
func stored[T any](v *T) *T {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	c := new(T)
	if err := json.Unmarshal(b, c); err != nil {
		panic(err)
	}
	return c
}

// given returns a copy of what is stored, which shares nothing with it. It costs a tenth of what stored costs: hundreds of orders that
// wait are read some times a second each.
func given[T any](v *T) *T {
	c := new(T)
	copyInto(reflect.ValueOf(c).Elem(), reflect.ValueOf(v).Elem())
	return c
}

func copyInto(to, from reflect.Value) {
	switch from.Kind() {
	case reflect.Pointer:
		if n, ok := from.Interface().(*big.Int); ok && n != nil {
			to.Set(reflect.ValueOf(new(big.Int).Set(n)))
		} else if !from.IsNil() {
			to.Set(reflect.New(from.Type().Elem()))
			copyInto(to.Elem(), from.Elem())
		}
	case reflect.Slice:
		if from.IsNil() {
			return
		}
		to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
		if kind := from.Type().Elem().Kind(); kind == reflect.Uint8 || kind == reflect.String {
			reflect.Copy(to, from)
			return
		}
		for i := range from.Len() {
			copyInto(to.Index(i), from.Index(i))
		}
	case reflect.Map:
		if from.IsNil() {
			return
		}
		to.Set(reflect.MakeMap(from.Type()))
		for each := from.MapRange(); each.Next(); {
			value := reflect.New(from.Type().Elem()).Elem()
			copyInto(value, each.Value())
			to.SetMapIndex(each.Key(), value)
		}
	case reflect.Interface:
		if from.IsNil() {
			return
		}
		value := reflect.New(from.Elem().Type()).Elem()
		copyInto(value, from.Elem())
		to.Set(value)
	case reflect.Struct:
		to.Set(from)
		for i := range from.NumField() {
			if from.Type().Field(i).IsExported() {
				copyInto(to.Field(i), from.Field(i))
			}
		}
	default:
		to.Set(from)
	}
}

var errTaken = errors.New("chaintest: another operation has this nonce key or hash")

func (j *Journal) taken(op *chain.Op) bool {
	for id, o := range j.ops {
		if id != op.ID && (o.NonceKey == op.NonceKey || o.Hash == op.Hash && op.Hash != common.Hash{}) {
			return true
		}
	}
	return false
}

// AddOp is that of [chain.Journal].
func (j *Journal) AddOp(ctx context.Context, op *chain.Op) (*chain.Op, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if old, ok := j.ops[op.ID]; ok {
		return given(old), nil
	}
	if j.taken(op) {
		return nil, errTaken
	}
	if op.Kind == chain.KindSale {
		key := fmt.Sprint(op.Token, op.Payer, op.Sale.Nonce)
		if id, ok := j.sales[key]; ok && id != op.ID {
			return nil, chain.ErrSold
		}
		j.sales[key] = op.ID
	}
	c := stored(op)
	c.Version = 1
	j.ops[op.ID] = c
	return given(c), nil
}

// current is called with the lock held.
func (j *Journal) current(ops []*chain.Op) error {
	seen := map[string]bool{}
	for _, op := range ops {
		if old, ok := j.ops[op.ID]; !ok || old.Version != op.Version || seen[op.ID] {
			return chain.ErrChanged
		}
		if j.taken(op) {
			return errTaken
		}
		seen[op.ID] = true
	}
	return nil
}

func (j *Journal) put(ops []*chain.Op) {
	for _, op := range ops {
		op.Version++
		j.ops[op.ID] = stored(op)
	}
}

// UpdateOp is that of [chain.Journal].
func (j *Journal) UpdateOp(ctx context.Context, ops ...*chain.Op) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := j.current(ops); err != nil {
		return err
	}
	j.put(ops)
	return nil
}

// Op is that of [chain.Journal].
func (j *Journal) Op(ctx context.Context, id string) (*chain.Op, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	op, ok := j.ops[id]
	if !ok {
		return nil, chain.ErrUnknown
	}
	return given(op), nil
}

// OpOfHash is that of [chain.Journal].
func (j *Journal) OpOfHash(ctx context.Context, hash common.Hash) (*chain.Op, error) {
	return j.one(ctx, func(o *chain.Op) bool { return o.Hash == hash && hash != common.Hash{} })
}

// OpOfKey is that of [chain.Journal].
func (j *Journal) OpOfKey(ctx context.Context, key [24]byte) (*chain.Op, error) {
	return j.one(ctx, func(o *chain.Op) bool { return o.NonceKey == key })
}

func (j *Journal) one(ctx context.Context, is func(*chain.Op) bool) (*chain.Op, error) {
	all, err := j.list(ctx, is, byAge)
	if err == nil && len(all) == 0 {
		err = chain.ErrUnknown
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

func byAge(a, b *chain.Op) int {
	return cmp.Or(a.UpdatedAt.Compare(b.UpdatedAt), cmp.Compare(a.ID, b.ID))
}

func (j *Journal) list(ctx context.Context, is func(*chain.Op) bool, order func(a, b *chain.Op) int) ([]*chain.Op, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []*chain.Op
	for _, o := range j.ops {
		if is(o) {
			found = append(found, given(o))
		}
	}
	slices.SortFunc(found, order)
	return found, ctx.Err()
}

// OpsIn is that of [chain.Journal].
func (j *Journal) OpsIn(ctx context.Context, limit int, states ...chain.State) ([]*chain.Op, error) {
	found, err := j.list(ctx, func(o *chain.Op) bool { return slices.Contains(states, o.State) }, byAge)
	return found[:min(limit, len(found))], err
}

// OpsAt is that of [chain.Journal].
func (j *Journal) OpsAt(ctx context.Context, from uint64) ([]*chain.Op, error) {
	return j.list(ctx, func(o *chain.Op) bool {
		e := o.Evidence()
		return e != chain.Place{} && e.Block >= from
	}, func(a, b *chain.Op) int {
		return cmp.Or(cmp.Compare(a.Evidence().Block, b.Evidence().Block), cmp.Compare(a.ID, b.ID))
	})
}

// Untold is that of [chain.Journal].
func (j *Journal) Untold(ctx context.Context, limit int) ([]*chain.Op, error) {
	found, err := j.list(ctx, func(o *chain.Op) bool {
		decided := o.State == chain.Confirmed || o.State == chain.Final || o.State == chain.Failed
		return o.Pays() && decided && o.Told != o.State
	}, byAge)
	return found[:min(limit, len(found))], err
}

// held is called with the lock held.
func (j *Journal) held(l chain.Lease) bool {
	now, ok := j.leases[l.Name]
	return ok && now.Fence == l.Fence && now.Holder == l.Holder
}

// AddTx is that of [chain.Journal].
func (j *Journal) AddTx(ctx context.Context, lease chain.Lease, tx *chain.Tx, replaces common.Hash, ops ...*chain.Op) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if !j.held(lease) {
		return chain.ErrLeased
	}
	if _, twice := j.txs[tx.Hash]; twice {
		return errors.New("chaintest: the transaction is stored already")
	}
	old, known := j.txs[replaces]
	if replaces != (common.Hash{}) && !known {
		return chain.ErrUnknown
	}
	if err := j.current(ops); err != nil {
		return err
	}
	if known {
		old.State = chain.TxReplaced
	}
	j.txs[tx.Hash] = stored(tx)
	j.put(ops)
	return nil
}

// UpdateTx is that of [chain.Journal].
func (j *Journal) UpdateTx(ctx context.Context, lease chain.Lease, tx *chain.Tx, ops ...*chain.Op) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if !j.held(lease) {
		return chain.ErrLeased
	}
	old, known := j.txs[tx.Hash]
	if !known {
		return chain.ErrUnknown
	}
	if err := j.current(ops); err != nil {
		return err
	}
	old.State, old.Place, old.SentBlock = tx.State, tx.Place, tx.SentBlock
	j.put(ops)
	return nil
}

// PendingTxs is that of [chain.Journal].
func (j *Journal) PendingTxs(ctx context.Context, relayer common.Address) ([]*chain.Tx, error) {
	return j.listTxs(ctx, func(t *chain.Tx) bool { return t.Relayer == relayer && t.State == chain.TxPending })
}

// TxsFrom is that of [chain.Journal].
func (j *Journal) TxsFrom(ctx context.Context, relayer common.Address, nonce uint64) ([]*chain.Tx, error) {
	return j.listTxs(ctx, func(t *chain.Tx) bool { return t.Relayer == relayer && t.Nonce >= nonce })
}

func (j *Journal) listTxs(ctx context.Context, is func(*chain.Tx) bool) ([]*chain.Tx, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []*chain.Tx
	for _, t := range j.txs {
		if is(t) {
			found = append(found, given(t))
		}
	}
	slices.SortFunc(found, func(a, b *chain.Tx) int {
		return cmp.Or(cmp.Compare(a.Nonce, b.Nonce), a.CreatedAt.Compare(b.CreatedAt), a.Hash.Cmp(b.Hash))
	})
	return found, ctx.Err()
}

// TxOf is that of [chain.Journal].
func (j *Journal) TxOf(ctx context.Context, hash common.Hash) (*chain.Tx, error) {
	found, err := j.listTxs(ctx, func(t *chain.Tx) bool { return t.Hash == hash })
	if err == nil && len(found) == 0 {
		err = chain.ErrUnknown
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// MaxNonce is that of [chain.Journal].
func (j *Journal) MaxNonce(ctx context.Context, relayer common.Address) (uint64, bool, error) {
	found, err := j.TxsFrom(ctx, relayer, 0)
	if err != nil || len(found) == 0 {
		return 0, false, err
	}
	return found[len(found)-1].Nonce, true, nil
}

// Acquire is that of [chain.Journal].
func (j *Journal) Acquire(ctx context.Context, name, holder string, now time.Time, ttl time.Duration) (chain.Lease, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return chain.Lease{}, err
	}
	l := j.leases[name]
	switch {
	case l.Holder == holder:
	case l.Holder != "" && l.Until.After(now):
		return chain.Lease{}, chain.ErrLeased
	default:
		l.Name, l.Holder = name, holder
		l.Fence++
	}
	l.Until = now.Add(ttl)
	j.leases[name] = l
	return l, nil
}

// Release is that of [chain.Journal].
func (j *Journal) Release(ctx context.Context, lease chain.Lease) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.held(lease) {
		j.leases[lease.Name] = chain.Lease{Name: lease.Name, Fence: lease.Fence}
	}
	return ctx.Err()
}

// Cursor is that of [chain.Journal].
func (j *Journal) Cursor(ctx context.Context) (chain.Cursor, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.cursor, ctx.Err()
}

// SetCursor is that of [chain.Journal].
func (j *Journal) SetCursor(ctx context.Context, lease chain.Lease, c chain.Cursor) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if !j.held(lease) {
		return chain.ErrLeased
	}
	j.cursor = c
	return nil
}

// AddOrphan is that of [chain.Journal].
func (j *Journal) AddOrphan(ctx context.Context, o chain.Orphan) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, have := range j.orphans {
		if have.Block == o.Block && have.LogIndex == o.LogIndex {
			return false, ctx.Err()
		}
	}
	j.orphans = append(j.orphans, o)
	return true, ctx.Err()
}

// Orphans are the events that nothing explains, in the order in which they came.
func (j *Journal) Orphans() []chain.Orphan {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.orphans)
}

// AddDelegation is that of [chain.Journal].
func (j *Journal) AddDelegation(ctx context.Context, hash common.Hash, id string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.delegations[hash]; !ok {
		j.delegations[hash] = id
	}
	return ctx.Err()
}

// DelegationOfHash is that of [chain.Journal].
func (j *Journal) DelegationOfHash(ctx context.Context, hash common.Hash) (string, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	id, ok := j.delegations[hash]
	if !ok {
		return "", chain.ErrUnknown
	}
	return id, ctx.Err()
}
