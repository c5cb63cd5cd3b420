package chain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
)

// countsUp has the holder of an account use up the nonce of a key without an operation.
func (w *world) countsUp(owner common.Address, key [24]byte) {
	w.Helper()
	w.give(owner, wei, int(1e16))
	data := append(crypto.Keccak256([]byte("incrementNonce(uint192)"))[:4], common.LeftPadBytes(key[:], 32)...)
	tx := w.transaction(owner, w.nonce(owner), contracts.EntryPoint, data, nil)
	w.eventually("the pool knows of the money, and takes the transaction", func() bool {
		err := w.Eth().SendTransaction(w.Context(), tx)
		if err != nil && !strings.Contains(strings.ToLower(err.Error()), "insufficient funds") {
			w.Fatal(err)
		}
		return err == nil
	})
	if r := w.receipt(tx.Hash()); r.Status != types.ReceiptStatusSuccessful {
		w.Fatal("the nonce is not counted up")
	}
}

// runsOwn has the holder of an account use up the nonce of a key with an operation that pays somebody else a base unit.
func (w *world) runsOwn(owner common.Address, key [24]byte) {
	w.Helper()
	own := w.operation(owner, "own", execute(w, usdc, move(transfer, receiver(2), 1)), func(op *userop.Operation) { op.Nonce = userop.Nonce(key) })
	if e := w.lands(own, owner); !e.success {
		w.Fatalf("the operation of the holder: %+v", e)
	}
}

// The holder of an exported key uses up the nonce of an order before it is signed: the order fails.
func TestPay_NonceUsedByTheHolder(t *testing.T) {
	for way, token := range map[string]common.Address{"token": usdc, "native": wei} {
		t.Run(way, func(t *testing.T) {
			w := newWorld(t, chaintest.New(t))
			sink := w.ledger()
			r := w.running(func(c *chain.Config) { c.Orders = sink })
			for _, use := range []func(common.Address, [24]byte){w.countsUp, w.runsOwn} {
				owner := w.account(usdc, 3_000_000, wei, 3_000_000)
				p := purchase(owner, token, receiver(1), 1_000_000)
				use(owner, userop.OrderKey(p.OrderID))
				w.fails(r, p, toll.CodeChainFailed)
				w.idle()
				sink.has(p.OrderID, false, 0)
			}
			w.has(receiver(1), token, 0)
		})
	}
}

// The order was paid, and the database has lost it: it does not fail, whatever became of the money since, and is not paid again.
func TestPay_NonceUsedByUs(t *testing.T) {
	for way, row := range map[string]struct {
		token common.Address
		has   int
		limit int64 // cents of a delegation, 0: none
		other bool  // the account gets other code
	}{
		"money is left":       {token: usdc, has: 3_000_000},
		"all is spent":        {token: usdc, has: 1_000_000},
		"native":              {token: wei, has: 3_000_000},
		"native, all spent":   {token: wei, has: 1_000_000},
		"other code":          {token: usdc, has: 3_000_000, other: true},
		"the limit is used":   {token: usdc, has: 3_000_000, limit: 100},
		"delegated and spent": {token: usdc, has: 1_000_000, limit: 300},
	} {
		t.Run(way, func(t *testing.T) {
			w := newWorld(t, chaintest.New(t))
			owner := w.account(row.token, row.has)
			p := purchase(owner, row.token, receiver(1), 1_000_000)
			if row.limit > 0 {
				p = by(w.delegation(owner, row.limit), p)
			}
			w.paid(w.running(), p)
			w.idle()
			if row.other {
				w.redelegates(owner)
			}
			w.forget()
			if o, err := w.rail().Pay(t.Context(), p); err == nil || o.Status != toll.OrderCreated {
				t.Errorf("Pay: %+v, %v", o, err)
			}
			if op := w.op(p.OrderID); op.State != chain.Created {
				t.Errorf("the order is %s (%+v)", op.State, op.Failure)
			}
			w.has(owner, row.token, row.has-1_000_000, receiver(1), row.token, 1_000_000)
		})
	}
}

// An order that is signed has run before its database was restored, and cannot run as its account is now: that decides nothing, and
// it is paid when its event is found.
func TestRelay_RunBeforeTheRestore(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	change := func(c *chain.Config) { c.Orders = sink }
	owner := w.account(usdc, 1_000_000)
	p := purchase(owner, usdc, receiver(1), 1_000_000)
	w.signs(w.rail(change), p)
	if e := w.lands(w.op(p.OrderID).Operation, owner); !e.success {
		t.Fatalf("the operation: %+v", e)
	}
	w.redelegates(owner)
	double := chaintest.NewDouble(t, w.Client())
	double.Refuse(-1, "eth_getLogs", "not now") // the relayer is faster than the tracker
	w.running(change, w.through(double))
	w.eventually("the nonce is known to be used", func() bool {
		op := w.op(p.OrderID)
		if op.State == chain.Failed {
			t.Fatalf("failure: %+v", op.Failure)
		}
		return !op.SentAt.IsZero()
	})
	double.Clear()
	w.decided(p.OrderID, chain.Final)
	w.eventually("the sink has heard", func() bool { return w.op(p.OrderID).Decided == chain.Final })
	sink.has(p.OrderID, true, 1)
}

// The holder of an exported key uses up the nonce of an order that is signed: the order is made impossible for certain, and fails.
func TestVoid_NonceUsedByTheHolder(t *testing.T) {
	for _, sent := range []bool{false, true} {
		t.Run(fmt.Sprintf("sent %t", sent), func(t *testing.T) {
			w, sink, change, owner, p := oneOrder(t)
			if sent {
				w.swallowed(p, change)
				w.countsUp(owner, userop.OrderKey(p.OrderID))
			} else {
				w.signs(w.rail(change), p)
				w.runsOwn(owner, userop.OrderKey(p.OrderID))
			}
			w.running(change)
			// From then on it counts as sent.
			w.eventually("the nonce is known to be used", func() bool { return !w.op(p.OrderID).SentAt.IsZero() })
			must.Do(t, w.Advance(11*time.Minute))
			if op := w.decided(p.OrderID, chain.Failed); op.Failure.Code != toll.CodeChainFailed {
				t.Errorf("failure: %+v", op.Failure)
			}
			w.eventually("the sink has heard", func() bool { return w.op(p.OrderID).Decided == chain.Failed })
			sink.has(p.OrderID, false, 0)
			w.has(receiver(1), usdc, 0)
		})
	}
}

// An order that was paid long ago is not made impossible at once when a reorganisation takes its block: it is sent again first.
func TestReorg_LongAfter(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	r := w.running(func(c *chain.Config) { c.Orders = sink })
	owner := w.account(usdc, 3_000_000)
	p := purchase(owner, usdc, receiver(1), 1_000_000)
	w.paid(r, p)
	w.idle()
	must.Do(t, w.Advance(time.Hour))
	before := w.op(p.OrderID)
	w.reorg(2, true)
	w.eventually("the order is paid again", func() bool {
		op := w.op(p.OrderID)
		return op.State == chain.Final && op.Position.Hash != before.Position.Hash
	})
	if _, err := w.records.Op(t.Context(), "void:"+p.OrderID); err == nil {
		t.Error("it was voided")
	}
	sink.has(p.OrderID, true, 1)
	w.has(owner, usdc, 2_000_000, receiver(1), usdc, 1_000_000)
}
