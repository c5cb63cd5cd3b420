package chain_test

import (
	"maps"
	"math/big"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
)

// TestOrderRunTwice brings the stored bytes of an order to the chain again and again.
// T55
func TestOrderRunTwice(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	change := func(c *chain.Config) { c.Orders = sink }
	owner := w.account(usdc, 10_000_000)
	direct := purchase(owner, usdc, receiver(1), 1_000_000)
	delegated := by(w.delegation(owner, 1_000), purchase(owner, usdc, receiver(2), 2_000_000))
	r := w.running(change)
	for _, p := range []rail.Purchase{direct, delegated} {
		w.paid(r, p)
		op := w.op(p.OrderID).Operation
		w.idle()
		tx := must.Get(w.records.TxOf(t.Context(), w.op(p.OrderID).Tx))(t)
		var again types.Transaction
		must.Do(t, again.UnmarshalBinary(tx.Raw))
		if err := w.Eth().SendTransaction(t.Context(), &again); err == nil {
			t.Error("the chain takes the transaction of the order again")
		}
		is(t, "the operation once more", w.outer(nil, op), `FailedOp(0, "AA25 invalid account nonce")`)
		other := w.operation(w.service, "something else", execute(t, usdc, move(transfer, receiver(3), 0)))
		is(t, "in a batch", w.outer([]common.Address{w.service}, other, op), `FailedOp(1, "AA25 invalid account nonce")`)
		receipt := w.send(contracts.EntryPoint, userop.HandleOps([]*userop.Operation{op}, w.outside))
		if receipt.Status != types.ReceiptStatusFailed || len(receipt.Logs) != 0 {
			t.Errorf("a stranger sends it: status %d, %d logs", receipt.Status, len(receipt.Logs))
		}
	}
	// A database that has forgotten that the order was sent: the event explains it.
	forgotten := w.op(direct.OrderID)
	forgotten.State, forgotten.Tx, forgotten.Position, forgotten.SentAt, forgotten.Decided = chain.Signed, common.Hash{}, chain.Position{}, time.Time{}, ""
	w.forget()
	must.Get(w.records.AddOp(t.Context(), forgotten))(t)
	second := w.running(change)
	w.decided(direct.OrderID, chain.Final)
	w.paid(second, direct)
	w.has(owner, usdc, 7_000_000, receiver(1), usdc, 1_000_000, receiver(2), usdc, 2_000_000)
	sink.has(direct.OrderID, true, 1)
	sink.has(delegated.OrderID, true, 1)
}

// A stranger lands our operation, alone and from under a batch of ours: the order is paid, and those beside it are, too.
// T55
func TestStrangerIsFirst(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	owner := w.account(usdc, 10_000_000)
	quiet := w.rail()
	var orders []rail.Purchase
	for range 3 {
		orders = append(orders, purchase(owner, usdc, receiver(1), 1_000_000))
		w.signs(quiet, orders[len(orders)-1])
	}
	// Our batch is stored, and kept away from the chain until the stranger was there.
	double := chaintest.NewDouble(t, w.Client())
	double.Swallow()
	w.crashing(orders[0], "transaction sent", 1, w.through(double), func(c *chain.Config) { c.Orders = sink })
	w.lands(w.op(orders[1].OrderID).Operation, owner)
	w.running(func(c *chain.Config) { c.Orders = sink })
	for _, p := range orders {
		w.decided(p.OrderID, chain.Final)
	}
	w.idle()
	w.nonces()
	w.has(owner, usdc, 7_000_000, receiver(1), usdc, 3_000_000)
	for _, p := range orders {
		sink.has(p.OrderID, true, 1)
	}
}

// TestForgedEvidence shows the rail events that are not the one of the order.
// T57
func TestForgedEvidence(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	double := chaintest.NewDouble(t, w.Client())
	change := func(c *chain.Config) { c.Orders = sink }
	owner := w.account(usdc, 10_000_000)
	p := by(w.delegation(owner, 1_000), purchase(owner, usdc, receiver(1), 1_000_000))
	w.swallowed(p, change)
	op := w.op(p.OrderID)
	head := must.Get(w.Eth().HeaderByNumber(t.Context(), nil))(t)
	data := func(nonce *big.Int, success int64) []byte {
		return append(append(common.BigToHash(nonce).Bytes(), common.BigToHash(big.NewInt(success)).Bytes()...), make([]byte, 64)...)
	}
	topics := func(sender common.Address) []common.Hash {
		signature := crypto.Keccak256Hash([]byte("UserOperationEvent(bytes32,address,address,uint256,bool,uint256,uint256)"))
		return []common.Hash{signature, op.Hash, common.BytesToHash(sender[:]), {}}
	}
	log := types.Log{
		Address: contracts.EntryPoint, Topics: topics(op.Sender), Data: data(op.Operation.Nonce, 1), BlockNumber: head.Number.Uint64(),
		BlockHash: head.Hash(), TxHash: op.Tx,
	}
	forged := map[string]func(l *types.Log){
		"of another contract":    func(l *types.Log) { l.Address = receiver(66) },
		"of another account":     func(l *types.Log) { l.Topics = topics(owner) },
		"of another nonce key":   func(l *types.Log) { l.Data = data(userop.Nonce(userop.OrderKey("other")), 1) },
		"of another sequence":    func(l *types.Log) { l.Data = data(new(big.Int).Add(op.Operation.Nonce, big.NewInt(1)), 1) },
		"in a block of nowhere":  func(l *types.Log) { l.BlockHash = common.Hash{6, 6, 6} },
		"in a block to come":     func(l *types.Log) { l.BlockNumber += 1_000 },
		"that was taken back":    func(l *types.Log) { l.Removed = true },
		"that has another topic": func(l *types.Log) { l.Topics = append([]common.Hash{{1}}, l.Topics[1:]...) },
		"that is cut off":        func(l *types.Log) { l.Data = l.Data[:64] },
		"a transfer of the token": func(l *types.Log) {
			l.Address, l.Data = usdc, common.BigToHash(big.NewInt(1_000_000)).Bytes()
			l.Topics = []common.Hash{crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)")), common.BytesToHash(owner[:]), common.BytesToHash(receiver(1).Bytes())}
		},
	}
	index := uint(100)
	for _, change := range forged {
		l := log
		l.Index = index
		index++
		change(&l)
		double.InventLogs(l)
	}
	// A transaction that succeeded without logs, says the endpoint.
	double.InventReceipt(&types.Receipt{
		Status: 1, TxHash: op.Tx, BlockHash: head.Hash(), BlockNumber: head.Number, Logs: []*types.Log{}, EffectiveGasPrice: new(big.Int),
	})
	double.Swallow()
	w.running(w.through(double), change)
	for range 6 { // the sixth read follows all that came of the fifth
		before := double.Calls("eth_getLogs")
		must.Do(t, w.Advance(time.Second))
		w.eventually("the logs were read", func() bool { return double.Calls("eth_getLogs") > before })
	}
	if got := w.op(p.OrderID); got.State != chain.Sent || got.Position != (chain.Position{}) || got.Failure != nil {
		t.Errorf("the order is %s at %+v (%+v)", got.State, got.Position, got.Failure)
	}
	sink.has(p.OrderID, false, 0)
	w.has(owner, usdc, 10_000_000)
	double.Clear()
	w.arrives(p.OrderID)
	w.decided(p.OrderID, chain.Final)
	w.has(owner, usdc, 9_000_000)
	w.eventually("the credits are granted", func() bool { return w.op(p.OrderID).Decided == chain.Final })
	sink.has(p.OrderID, true, 1)
}

// TestUnknownOperation lets the service key sign what no record explains.
// T67
func TestUnknownOperation(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	r := w.running(func(c *chain.Config) { c.Orders = sink })
	owner := w.account(usdc, 10_000_000)
	d := w.delegation(owner, 1_000)
	w.paid(r, by(d, purchase(owner, usdc, receiver(1), 1_000_000)))
	w.idle()
	if n := len(w.orphans()); n != 0 {
		t.Fatalf("%d orphans before", n)
	}
	call := execute(t, contracts.DelegationManager, pack(t, "redeemDelegations", [][]byte{w.signedBy(owner, w.onChain(d)).Context()}, [][32]byte{simple},
		[][]byte{single(usdc, 0, move(transfer, receiver(6), 500_000))}))
	stolen := w.operation(w.service, "nobody knows", call)
	if e := w.lands(stolen); !e.success {
		t.Fatalf("the operation fails: %+v", e)
	}
	w.eventually("there is an orphan", func() bool { return len(w.orphans()) > 0 })
	w.paid(r, purchase(w.account(usdc, 1_000_000), usdc, receiver(1), 1_000_000)) // after the same blocks were read again
	all := w.orphans()
	if len(all) != 1 || all[0].OpHash != stolen.Hash(w.chainID()) || [24]byte(all[0].NonceKey) != userop.OrderKey("nobody knows") || all[0].Number == 0 {
		t.Errorf("orphans: %+v", all)
	}
	w.eventually("what was spent is counted", func() bool { return w.books.spentOf(d.ID) == "1500000" })
	if n := len(w.books.paid); n != 2 {
		t.Errorf("%d orders are paid", n)
	}
}

// TestReconcile_EmptyDatabase finds every delegated order of a lost database on the chain, with its flag, and nothing is granted.
func TestReconcile_EmptyDatabase(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	owner := w.account(usdc, 10_000_000)
	d := w.delegation(owner, 1_000)
	r := w.running()
	want := map[common.Hash]string{}
	for range 3 {
		p := by(d, purchase(owner, usdc, receiver(1), 1_000_000))
		w.paid(r, p)
		want[w.op(p.OrderID).Hash] = "an operation without a record, success=true"
	}
	w.idle()
	failing := w.operation(w.service, "fails", execute(t, usdc, move(transfer, receiver(2), 1)))
	if e := w.lands(failing); e.success {
		t.Fatal("the service account has money")
	}
	want[failing.Hash(w.chainID())] = "an operation without a record, success=false"
	for range 5 {
		must.Do(t, w.Advance(time.Second))
	}

	w.forget()
	w.books = newBooks()
	must.Do(t, w.records.AddDelegation(t.Context(), w.onChain(d).Hash(), d.ID))
	for range 2 { // twice is the same
		r = w.running()
		w.eventually("all are found", func() bool { return len(w.orphans()) == len(want) && w.books.spentOf(d.ID) == "3000000" })
		must.Do(t, w.Advance(30*time.Second))
	}
	w.paid(r, purchase(w.account(usdc, 1_000_000), usdc, receiver(1), 1_000_000))
	got := map[common.Hash]string{}
	for _, o := range w.orphans() {
		got[o.OpHash] = o.Reason
	}
	if !maps.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	if n := len(w.books.paid); n != 1 { // the later order
		t.Errorf("%d orders are paid", n)
	}
}

// The cursor is lost, and an order of long ago is open that was paid: it is not given up when its delegation has ended.
func TestReconcile_NoCursor(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	change := func(c *chain.Config) { remote(c); c.Orders = sink }
	owner := w.account(usdc, 1_000_000)
	d := w.delegation(owner, 100)
	d.ExpiresAt = w.Now().Add(10 * time.Minute)
	p := by(d, purchase(owner, usdc, receiver(1), 1_000_000))
	w.crashing(p, "transaction sent", 1, change)
	w.eventually("the money has moved", func() bool { return w.balance(usdc, receiver(1)) == 1_000_000 })
	open := w.op(p.OrderID)
	w.forget()
	must.Get(w.records.AddOp(t.Context(), open))(t)
	must.Do(t, w.Advance(20*time.Minute))
	w.blocks(140) // more than an empty database is read with
	w.running(change)
	if op := w.decided(p.OrderID, chain.Failed, chain.Final); op.State == chain.Failed {
		t.Fatalf("failure: %+v", op.Failure)
	}
	w.eventually("the sink has heard", func() bool { return w.op(p.OrderID).Decided == chain.Final })
	sink.has(p.OrderID, true, 1)
}

// The owner disables a delegation without us.
func TestReconcile_DisabledElsewhere(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	r := w.running()
	owner := w.account(usdc, 10_000_000)
	d := w.delegation(owner, 1_000)
	w.paid(r, by(d, purchase(owner, usdc, receiver(1), 1_000_000)))
	w.idle()
	w.lands(w.operation(owner, "revocation", execute(t, contracts.DelegationManager, userop.RevokeCall(*w.onChain(d)))))
	w.eventually("the sink has heard", func() bool {
		w.books.mu.Lock()
		defer w.books.mu.Unlock()
		return w.books.disabled[d.ID]
	})
}
