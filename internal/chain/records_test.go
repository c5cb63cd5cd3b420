package chain_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// noon is the time of records in [TestRecords], in whole microseconds as databases keep it.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 123_456_000, time.UTC)

// TestRecords checks what the functions on records promise, on each database.
func TestRecords(t *testing.T) {
	for name, f := range map[string]func(t *testing.T, j *chain.Records){
		"operations":       testOps,
		"lists":            testLists,
		"evidence":         testEvidence,
		"writers at once":  testWriters,
		"transactions":     testTxs,
		"a reorganization": testReopen,
		"all or nothing":   testAtomic,
		"fences":           testFences,
		"cursor":           testCursor,
		"orphans":          testOrphans,
		"hashes of limits": testDelegations,
		"an ended context": testEnded,
		"sales":            testSales,
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, st *store.Store) { f(t, chain.NewRecords(st)) })
		})
	}
}

func wants(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, exact, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s:\n%s", what, diff)
	}
}

// opOf is an operation with all that a record can hold.
func opOf(id string) *chain.Op {
	key := userop.OrderKey(id)
	n, ok := new(big.Int).SetString("115792089237316195423570985008687907853269984665640564039457584007913129639935", 10)
	if !ok {
		panic("no number")
	}
	return &chain.Op{
		ID: id, Kind: chain.KindOrder, State: chain.Created, Digest: common.Hash{1}, Sender: common.Address{2}, Payer: common.Address{3},
		Token: common.Address{4}, Payments: []chain.Payment{{To: common.Address{5}, Amount: n}, {To: common.Address{6}, Amount: big.NewInt(1)}},
		Cents: 1<<62 + 1, DelegationID: "0d4b6d9c-6d2e-4d0f-8f3f-0a51a4b0f9a1", TopUp: true, NonceKey: key, Before: 1<<63 + 7,
		Authorization: &types.SetCodeAuthorization{Address: common.Address{7}, Nonce: 8, V: 1},
		CreatedAt:     noon, UpdatedAt: noon,
	}
}

func add(t *testing.T, j *chain.Records, op *chain.Op) *chain.Op {
	t.Helper()
	return must.Get(j.AddOp(t.Context(), op))(t)
}

func update(t *testing.T, j *chain.Records, op *chain.Op, change func(*chain.Op)) *chain.Op {
	t.Helper()
	change(op)
	must.Do(t, j.UpdateOp(t.Context(), op))
	return op
}

func testOps(t *testing.T, j *chain.Records) {
	ctx := t.Context()
	_, err := j.Op(ctx, "a")
	wants(t, "an operation that is not there", err, store.ErrNotFound)
	_, err = j.OpOfHash(ctx, common.Hash{9})
	wants(t, "its hash", err, store.ErrNotFound)

	first := opOf("a")
	got := add(t, j, first)
	if got.Version < 1 {
		t.Errorf("the first version is %d", got.Version)
	}
	want := *first
	want.Version = got.Version
	same(t, "what AddOp returns", got, &want)
	_, err = j.OpOfHash(ctx, common.Hash{})
	wants(t, "the hash of an operation that is not signed", err, store.ErrNotFound)

	second := opOf("a")
	second.Digest, second.State = common.Hash{0xff}, chain.Failed
	same(t, "what AddOp returns for an id that is there", add(t, j, second), &want)

	op := got
	op.State, op.Hash, op.Tx = chain.Sent, common.Hash{9}, common.Hash{10}
	op.Operation = userop.New(op.Sender, op.NonceKey, []byte{1, 2, 3}, 45_000)
	op.Operation.Signature = []byte{4}
	// The JSON form of an operation has no absent bytes.
	op.Operation.InitCode, op.Operation.PaymasterAndData = []byte{}, []byte{}
	op.Position = chain.Position{Block: 11, Hash: common.Hash{12}, LogIndex: 13, Tx: common.Hash{14}}
	op.Failure = &chain.Failure{Code: "BCK.CHAIN.0003", Reason: "too \"low\"", Params: map[string]any{"needed": "5"}, Position: op.Position}
	op.Decided, op.SentAt, op.UpdatedAt = chain.Failed, noon.Add(time.Second), noon.Add(time.Minute)
	before := op.Version
	must.Do(t, j.UpdateOp(ctx, op))
	if op.Version != before+1 {
		t.Errorf("the version went from %d to %d", before, op.Version)
	}
	for what, read := range map[string]func() (*chain.Op, error){
		"by id":   func() (*chain.Op, error) { return j.Op(ctx, "a") },
		"by hash": func() (*chain.Op, error) { return j.OpOfHash(ctx, common.Hash{9}) },
	} {
		got := must.Get(read())(t)
		same(t, what, got, op)
	}

	stale := *op
	stale.Version = before
	wants(t, "an old version", j.UpdateOp(ctx, &stale), chain.ErrChanged)
	strange := opOf("b")
	strange.Version = 1
	wants(t, "an operation that is not there", j.UpdateOp(ctx, strange), chain.ErrChanged)
	if _, err := j.Op(ctx, "b"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an update has added an operation: %v", err)
	}
	got = must.Get(j.Op(ctx, "a"))(t)
	same(t, "after writes that were refused", got, op)
}

func listed(ops []*chain.Op, err error) string {
	if err != nil {
		return err.Error()
	}
	names := make([]string, len(ops))
	for i, op := range ops {
		names[i] = op.ID
	}
	return fmt.Sprint(names)
}

func testLists(t *testing.T, j *chain.Records) {
	ctx := t.Context()
	for i, s := range []chain.State{chain.Created, chain.Signed, chain.Sent, chain.Included, chain.Confirmed, chain.Final, chain.Failed} {
		for k := range 2 {
			op := opOf(fmt.Sprintf("%s%d", s, k))
			op.UpdatedAt = noon.Add(time.Duration(10*k-i) * time.Second)
			op.State = s
			add(t, j, op)
		}
	}
	void := opOf("void:x")
	void.Kind, void.State = chain.KindVoid, chain.Final
	add(t, j, void)
	for want, got := range map[string]string{
		"[signed0 created0 signed1 created1]": listed(j.OpsIn(ctx, 10, chain.Created, chain.Signed)),
		"[signed0 created0 signed1]":          listed(j.OpsIn(ctx, 3, chain.Created, chain.Signed)),
		"[sent0 sent1]":                       listed(j.OpsIn(ctx, 10, chain.Sent)),
		"[]":                                  listed(j.OpsIn(ctx, 10)),
		"[failed0 final0 confirmed0 failed1 final1 confirmed1]": listed(j.Undecided(ctx, 10)),
		"[failed0 final0]":       listed(j.Undecided(ctx, 2)),
		"[final0 void:x final1]": listed(j.OpsIn(ctx, 10, chain.Final)),
	} {
		if got != want {
			t.Errorf("listed %s, want %s", got, want)
		}
	}
	op := must.Get(j.Op(ctx, "final0"))(t)
	update(t, j, op, func(op *chain.Op) { op.Decided = chain.Confirmed })
	if got := listed(j.Undecided(ctx, 2)); got != "[failed0 final0]" {
		t.Errorf("a final order that was told to be paid: %s", got)
	}
	update(t, j, op, func(op *chain.Op) { op.Decided = chain.Final })
	if got := listed(j.Undecided(ctx, 2)); got != "[failed0 confirmed0]" {
		t.Errorf("after it was told: %s", got)
	}
	update(t, j, op, func(op *chain.Op) { op.State = chain.Sent })
	if got := listed(j.Undecided(ctx, 10)); got != "[failed0 confirmed0 failed1 final1 confirmed1]" {
		t.Errorf("after it was reorganised away: %s", got)
	}
	update(t, j, op, func(op *chain.Op) { op.State = chain.Failed })
	if got := listed(j.Undecided(ctx, 10)); got != "[failed0 final0 confirmed0 failed1 final1 confirmed1]" {
		t.Errorf("after it has failed: %s", got)
	}
}

func testEvidence(t *testing.T, j *chain.Records) {
	ctx := t.Context()
	at := func(block uint64) chain.Position { return chain.Position{Block: block, Hash: common.Hash{1}} }
	add(t, j, opOf("none"))
	placed := opOf("placed")
	placed.Position = at(7)
	add(t, j, placed)
	failed := opOf("failed")
	failed.Failure = &chain.Failure{Position: at(6)}
	op := add(t, j, failed)
	unsent := opOf("unsent")
	unsent.Failure = &chain.Failure{Reason: "nothing was sent"}
	add(t, j, unsent)
	for from, want := range map[uint64]string{0: "[failed placed]", 6: "[failed placed]", 7: "[placed]", 8: "[]"} {
		if got := listed(j.OpsAt(ctx, from)); got != want {
			t.Errorf("from block %d: %s, want %s", from, got, want)
		}
	}
	update(t, j, op, func(op *chain.Op) { op.Position = at(9) })
	if got := listed(j.OpsAt(ctx, 8)); got != "[failed]" {
		t.Errorf("after it was included: %s", got)
	}
	update(t, j, op, func(op *chain.Op) { op.Position, op.Failure = chain.Position{}, nil })
	if got := listed(j.OpsAt(ctx, 0)); got != "[placed]" {
		t.Errorf("after its evidence went: %s", got)
	}
}

// testWriters lets many writers change an operation: of those who read the same version one gets through.
func testWriters(t *testing.T, j *chain.Records) {
	add(t, j, opOf("a"))
	const writers, rounds = 4, 10
	var done atomic.Int64
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range rounds {
				for {
					op, err := j.Op(t.Context(), "a")
					if err != nil {
						t.Error(err)
						return
					}
					op.Cents++
					if err = j.UpdateOp(t.Context(), op); err == nil {
						done.Add(1)
						break
					}
					if !errors.Is(err, chain.ErrChanged) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	op := must.Get(j.Op(t.Context(), "a"))(t)
	if got, want := op.Cents-opOf("a").Cents, done.Load(); got != want || want != writers*rounds {
		t.Errorf("%d of %d writes are left", got, want)
	}
}

// lease is held by a process whose clock says this.
func lease(t *testing.T, j *chain.Records, now time.Time) *jobs.Lease {
	t.Helper()
	l := jobs.NewLease(j.Store, func() time.Time { return now }, "relayer:1")
	must.Do(t, l.Take(t.Context()))
	return l
}

func txOf(n byte, nonce uint64) *chain.Tx {
	return &chain.Tx{
		Hash: common.Hash{n}, Relayer: common.Address{1}, Nonce: nonce, Raw: []byte{2, n}, Ops: []string{"a"}, State: chain.TxPending,
		SentBlock: 5, CreatedAt: noon.Add(time.Duration(n) * time.Second),
	}
}

func hashes(txs []*chain.Tx, err error) string {
	if err != nil {
		return err.Error()
	}
	names := make([]string, len(txs))
	for i, tx := range txs {
		names[i] = fmt.Sprintf("%d:%d", tx.Nonce, tx.Hash[0])
	}
	return fmt.Sprint(names)
}

func testTxs(t *testing.T, j *chain.Records) {
	ctx, l := t.Context(), lease(t, j, noon)
	relayer := common.Address{1}
	_, any, err := store.MaxChainNonce(ctx, j.Store, toll.Address(relayer))
	if must.Do(t, err); any {
		t.Error("there is a nonce before there is a transaction")
	}
	op := add(t, j, opOf("a"))
	op.State = chain.Sent
	tx := txOf(1, 7)
	must.Do(t, j.AddTx(ctx, l, tx, common.Hash{}, op))
	got := must.Get(j.TxOf(ctx, tx.Hash))(t)
	same(t, "TxOf", got, tx)
	stored := must.Get(j.Op(ctx, "a"))(t)
	same(t, "the operation of a transaction", stored, op)

	must.Do(t, j.AddTx(ctx, l, txOf(2, 7), common.Hash{1}))
	must.Do(t, j.AddTx(ctx, l, txOf(3, 6), common.Hash{}))
	others := txOf(4, 9)
	others.Relayer = common.Address{2}
	must.Do(t, j.AddTx(ctx, l, others, common.Hash{}))
	if got := hashes(j.PendingTxs(ctx, relayer)); got != "[6:3 7:2]" {
		t.Errorf("pending: %s", got)
	}
	if got := hashes(j.TxsFrom(ctx, relayer, 7)); got != "[7:1 7:2]" {
		t.Errorf("from nonce 7: %s", got)
	}
	nonce, _, err := store.MaxChainNonce(ctx, j.Store, toll.Address(relayer))
	if must.Do(t, err); nonce != 7 {
		t.Errorf("the highest nonce is %d", nonce)
	}
	old := must.Get(j.TxOf(ctx, common.Hash{1}))(t)
	if old.State != chain.TxReplaced {
		t.Errorf("the one that was replaced is %s", old.State)
	}
	old.State, old.Position, old.SentBlock = chain.TxMined, chain.Position{Block: 8, Hash: common.Hash{3}, Tx: old.Hash}, 6
	op.State = chain.Signed
	must.Do(t, j.UpdateTx(ctx, l, old, op))
	got = must.Get(j.TxOf(ctx, old.Hash))(t)
	same(t, "after UpdateTx", got, old)
	_, err = j.TxOf(ctx, common.Hash{99})
	wants(t, "a transaction that is not there", err, store.ErrNotFound)
}

// The tracker takes the event of an operation back while a relayer replaces its transaction: the operation does not stay with one that
// cannot land.
func testReopen(t *testing.T, j *chain.Records) {
	ctx, l := t.Context(), lease(t, j, noon)
	stands := func(what string, hash common.Hash, tx chain.TxState, op chain.State) *chain.Tx {
		t.Helper()
		is, of := must.Get(j.TxOf(ctx, hash))(t), must.Get(j.Op(ctx, "a"))(t)
		if is.State != tx || of.State != op {
			t.Fatalf("%s: the transaction is %s and the operation %s, want %s and %s", what, is.State, of.State, tx, op)
		}
		return is
	}
	op, tx := add(t, j, opOf("a")), txOf(1, 7)
	op.State, op.Tx, op.Failure = chain.Sent, tx.Hash, nil
	must.Do(t, j.AddTx(ctx, l, tx, common.Hash{}, op))
	tx.State, tx.Position = chain.TxMined, chain.Position{Block: 8, Hash: common.Hash{3}, Tx: tx.Hash}
	must.Do(t, j.UpdateTx(ctx, l, tx))
	must.Do(t, j.Reopen(ctx, op, 9))
	if tx = stands("reopened", tx.Hash, chain.TxPending, chain.Sent); tx.Position != (chain.Position{}) || tx.SentBlock != 9 {
		t.Errorf("the reopened transaction: %+v", tx)
	}

	wants(t, "AddTx", j.AddTx(ctx, l, txOf(2, 7), tx.Hash), chain.ErrChanged)
	tx.State = chain.TxReplaced
	wants(t, "UpdateTx", j.UpdateTx(ctx, l, tx), chain.ErrChanged)
	stands("the tracker is first", tx.Hash, chain.TxPending, chain.Sent)

	update(t, j, op, func(op *chain.Op) { op.State = chain.Final })
	must.Do(t, j.AddTx(ctx, l, txOf(2, 7), tx.Hash))
	must.Do(t, j.Reopen(ctx, op, 9))
	stands("the relayer is first", tx.Hash, chain.TxReplaced, chain.Signed)

	for i := byte(10); i < 40; i++ {
		tx := txOf(i, uint64(i))
		must.Do(t, j.AddTx(ctx, l, tx, common.Hash{}))
		update(t, j, op, func(op *chain.Op) { op.State, op.Tx = chain.Final, tx.Hash })
		var wg sync.WaitGroup
		var replaced error
		wg.Go(func() { replaced = j.AddTx(ctx, l, txOf(i+100, uint64(i)), tx.Hash) })
		must.Do(t, j.Reopen(ctx, op, 9))
		wg.Wait()
		if errors.Is(replaced, chain.ErrChanged) {
			stands("at once, the tracker is first", tx.Hash, chain.TxPending, chain.Sent)
			continue
		}
		must.Do(t, replaced)
		stands("at once, the relayer is first", tx.Hash, chain.TxReplaced, chain.Signed)
	}
}

func testAtomic(t *testing.T, j *chain.Records) {
	ctx, l := t.Context(), lease(t, j, noon)
	a, b := add(t, j, opOf("a")), add(t, j, opOf("b"))
	stale := *b
	update(t, j, b, func(op *chain.Op) { op.Cents = 1 })
	good := *a
	good.Cents = 2
	wants(t, "UpdateOp", j.UpdateOp(ctx, &good, &stale), chain.ErrChanged)
	good = *a
	good.Cents = 2
	wants(t, "AddTx", j.AddTx(ctx, l, txOf(1, 7), common.Hash{}, &good, &stale), chain.ErrChanged)
	if got := hashes(j.TxsFrom(ctx, common.Address{1}, 0)); got != "[]" {
		t.Errorf("a transaction is left: %s", got)
	}
	tx := txOf(2, 7)
	must.Do(t, j.AddTx(ctx, l, tx, common.Hash{}))
	tx.State = chain.TxMined
	good = *a
	good.Cents = 2
	wants(t, "UpdateTx", j.UpdateTx(ctx, l, tx, &good, &stale), chain.ErrChanged)
	got := must.Get(j.TxOf(ctx, tx.Hash))(t)
	if got.State != chain.TxPending {
		t.Errorf("the transaction is %s", got.State)
	}
	left := must.Get(j.Op(ctx, "a"))(t)
	same(t, "the other operation", left, a)
	good = *a
	good.Cents = 3
	must.Do(t, j.UpdateOp(ctx, &good, b))
	if good.Version != a.Version+1 {
		t.Errorf("the version of the first one is %d", good.Version)
	}
}

// testFences lets a holder go on whose lease is over.
func testFences(t *testing.T, j *chain.Records) {
	ctx := t.Context()
	old := lease(t, j, noon)
	op := add(t, j, opOf("a"))
	tx := txOf(1, 7)
	must.Do(t, j.AddTx(ctx, old, tx, common.Hash{}))
	now := lease(t, j, noon.Add(2*time.Hour))
	changed := *op
	changed.Cents = 1
	for what, l := range map[string]*jobs.Lease{"over": old, "never taken": jobs.NewLease(j.Store, time.Now, "relayer:9")} {
		wants(t, what+": AddTx", j.AddTx(ctx, l, txOf(2, 8), common.Hash{}, &changed), store.ErrLeased)
		wants(t, what+": UpdateTx", j.UpdateTx(ctx, l, tx, &changed), store.ErrLeased)
		wants(t, what+": SetCursor", j.SetCursor(ctx, l, chain.Cursor{Block: 1}), store.ErrLeased)
	}
	if got := hashes(j.TxsFrom(ctx, tx.Relayer, 0)); got != "[7:1]" {
		t.Errorf("transactions: %s", got)
	}
	left := must.Get(j.Op(ctx, "a"))(t)
	same(t, "the operation", left, op)
	must.Do(t, j.AddTx(ctx, now, txOf(2, 8), common.Hash{}))
	must.Do(t, now.Release(ctx))
	wants(t, "given back: AddTx", j.AddTx(ctx, now, txOf(3, 9), common.Hash{}), store.ErrLeased)
}

func testCursor(t *testing.T, j *chain.Records) {
	ctx, l := t.Context(), lease(t, j, noon)
	c := must.Get(j.Cursor(ctx))(t)
	same(t, "the first cursor", c, chain.Cursor{})
	for i := range uint64(2) {
		want := chain.Cursor{Genesis: common.Hash{1}, Block: 200 + i, Hash: common.Hash{2}, Base: 136 + i, BaseHash: common.Hash{3, byte(i)}}
		must.Do(t, j.SetCursor(ctx, l, want))
		c = must.Get(j.Cursor(ctx))(t)
		same(t, "cursor", c, want)
	}
}

func testOrphans(t *testing.T, j *chain.Records) {
	key := userop.OrderKey("a")
	o := chain.Orphan{
		Block: common.Hash{1}, LogIndex: 2, Number: 3, Tx: common.Hash{4}, OpHash: common.Hash{5}, NonceKey: key[:], Reason: "why",
	}
	next := o
	next.LogIndex++
	for i, one := range []chain.Orphan{o, o, next, next, o} {
		added := must.Get(j.AddOrphan(t.Context(), &one))(t)
		if want := i == 0 || i == 2; added != want {
			t.Errorf("orphan %d is new: %t", i, added)
		}
	}
	all := must.Get(j.Orphans(t.Context()))(t)
	same(t, "orphans", all, []chain.Orphan{o, next})
}

func testDelegations(t *testing.T, j *chain.Records) {
	ctx := t.Context()
	_, err := store.ChainDelegation(ctx, j.Store, toll.Hash{1})
	wants(t, "a hash that is not known", err, store.ErrNotFound)
	must.Do(t, j.AddDelegation(ctx, common.Hash{1}, "x"))
	must.Do(t, j.AddDelegation(ctx, common.Hash{1}, "x"))
	id := must.Get(store.ChainDelegation(ctx, j.Store, toll.Hash{1}))(t)
	same(t, "id", id, "x")
}

func testEnded(t *testing.T, j *chain.Records) {
	ctx, end := context.WithCancel(t.Context())
	end()
	if _, err := j.AddOp(ctx, opOf("a")); err == nil {
		t.Error("AddOp has ended well")
	}
	if _, err := j.Op(t.Context(), "a"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an operation is left: %v", err)
	}
}

func saleOf(id string, change func(*chain.Op)) *chain.Op {
	op := opOf(id)
	op.Kind, op.DelegationID, op.Authorization, op.TopUp = chain.KindSale, "", nil, false
	op.Payments, op.Before = []chain.Payment{{To: common.Address{5}, Amount: big.NewInt(1_000_000)}}, 1_790_000_000
	op.Sale = &chain.SaleTerms{After: 1_780_000_000, Nonce: common.Hash{8}, Signature: make([]byte, 65)}
	if change != nil {
		change(op)
	}
	return op
}

// testSales lets an authorization pay one order, for ever.
func testSales(t *testing.T, j *chain.Records) {
	ctx := t.Context()
	first := add(t, j, saleOf("a", nil))
	same(t, "a sale", first, func() *chain.Op { op := saleOf("a", nil); op.Version = first.Version; return op }())
	same(t, "the sale again", add(t, j, saleOf("a", nil)), first)
	_, err := j.AddOp(ctx, saleOf("b", nil))
	wants(t, "its authorization for another order", err, chain.ErrSold)
	if _, err := j.Op(ctx, "b"); err == nil {
		t.Error("the other order is there")
	}
	_, err = j.AddOp(ctx, saleOf("b", func(op *chain.Op) { op.Payments[0].Amount = big.NewInt(2) }))
	wants(t, "its nonce with other content", err, chain.ErrSold)
	update(t, j, first, func(op *chain.Op) { op.State = chain.Failed })
	_, err = j.AddOp(ctx, saleOf("b", nil))
	wants(t, "its authorization after it has failed", err, chain.ErrSold)
	add(t, j, saleOf("nonce", func(op *chain.Op) { op.Sale.Nonce[31] = 1 }))
	add(t, j, saleOf("payer", func(op *chain.Op) { op.Payer[0]++ }))
	add(t, j, saleOf("token", func(op *chain.Op) { op.Token[0]++ }))
	if got := listed(j.Undecided(ctx, 10)); got != "[a]" {
		t.Errorf("untold: %s", got)
	}

	var sold, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := j.AddOp(ctx, saleOf("race"+string(rune('0'+i)), func(op *chain.Op) { op.Sale.Nonce[31] = 2 }))
			switch {
			case err == nil:
				sold.Add(1)
			default:
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	if sold.Load() != 1 || refused.Load() != 7 {
		t.Errorf("of eight orders at once %d have the authorization", sold.Load())
	}
}
