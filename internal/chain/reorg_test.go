package chain_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
)

func (w *world) reorg(n int, drop bool) {
	w.Helper()
	must.Do(w, w.Reorg(n, drop))
}

// TestReorgAfterMint replaces the block of an order after its credits were granted.
// T56
func TestReorgAfterMint(t *testing.T) {
	for what, drop := range map[string]bool{"transactions come back": false, "transactions are dropped": true} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, chaintest.New(t))
			sink := w.ledger()
			r := w.running(func(c *chain.Config) { c.Orders = sink })
			owner := w.account(usdc, 10_000_000)
			p := purchase(owner, usdc, receiver(1), 1_000_000)
			tx := w.paid(r, p)
			w.idle()
			before := w.op(p.OrderID)
			w.reorg(1, drop)
			w.eventually("the order is in another block", func() bool {
				op := w.op(p.OrderID)
				return op.State == chain.Final && op.Position.Hash != before.Position.Hash
			})
			w.idle()
			w.has(owner, usdc, 9_000_000, receiver(1), usdc, 1_000_000)
			sink.has(p.OrderID, true, 1)
			if got := w.op(p.OrderID); got.Position.Tx != tx || got.Hash != before.Hash {
				t.Errorf("it is in transaction %s, was in %s: the same bytes were to be sent", got.Position.Tx, tx)
			}
			if mined, op := must.Get(w.records.TxOf(t.Context(), tx))(t), w.op(p.OrderID); mined.Position.Hash != op.Position.Hash {
				t.Errorf("the transaction is in block %s, and the order in %s", mined.Position.Hash, op.Position.Hash)
			}
			w.nonces()
			w.paid(r, purchase(owner, usdc, receiver(1), 1_000_000))
			w.has(owner, usdc, 8_000_000)
		})
	}
}

// hookedKeys are keys that call a function before one is opened.
type hookedKeys struct {
	*chaintest.Keys
	before func(account common.Address)
}

func (k hookedKeys) Open(ctx context.Context, account common.Address) ([]byte, error) {
	k.before(account)
	return k.Keys.Open(ctx, account)
}

// The relayer sees a reorganization before the tracker does. It sends the same bytes again. If it replaces them, and the tracker takes
// the event back at that moment, the order stays with a transaction that can land.
// T56
func TestReorg_RelayerFirst(t *testing.T) {
	for what, underpriced := range map[string]bool{"same bytes": false, "replaced": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w, sink, change, owner, p := oneOrder(t)
			double := chaintest.NewDouble(t, w.Client())
			sign := func(common.Address) {}
			s := must.Get(signer.New(signer.Config{
				ChainID: w.chainID(), Keys: hookedKeys{&w.keys, func(a common.Address) { sign(a) }}, Service: w.service,
				Relayers: []common.Address{w.relayer}, Clock: w.Now, Log: slog.New(slog.DiscardHandler),
			}))(t)
			r := w.rail(change, w.through(double), func(c *chain.Config) { c.Signer = s })
			another := purchase(w.account(usdc, 1), usdc, receiver(2), 1)
			w.signs(r, p)
			relay, track := r.Turns(w.relayer), r.Tracks()
			final := func(what string, is func(op *chain.Op) bool) {
				t.Helper()
				w.eventually(what, func() bool {
					must.Get(relay(t.Context()))(t)
					must.Get(track(t.Context()))(t)
					pending := must.Get(w.records.PendingTxs(t.Context(), w.relayer))(t)
					op := w.op(p.OrderID)
					return len(pending) == 0 && op.State == chain.Final && is(op)
				})
			}
			final("the order is paid", func(*chain.Op) bool { return true })
			before := w.op(p.OrderID)
			w.signs(r, another) // for which the relayer looks at the chain
			w.reorg(1, true)
			replaced := false
			if underpriced {
				double.Refuse(1, "eth_sendRawTransaction", "replacement transaction underpriced")
				sign = func(a common.Address) {
					if replaced || a != w.relayer {
						return
					}
					replaced = true
					must.Get(track(t.Context()))(t)
				}
			}
			must.Get(relay(t.Context()))(t)
			final("the order is paid again", func(op *chain.Op) bool { return op.Position.Hash != before.Position.Hash })
			sink.has(p.OrderID, true, 1)
			w.has(owner, usdc, 2_000_000, receiver(1), usdc, 1_000_000)
			w.nonces()
			if op := w.op(p.OrderID); replaced != underpriced || op.Tx != before.Tx {
				t.Errorf("the order was in %s and is in %s; a replacement was signed: %t", before.Tx, op.Tx, replaced)
			}
		})
	}
}

// The money of an order was minted in a block that goes, too: its operation comes back and fails, and the credits are taken back.
// T56
func TestReorgMakesImpossible(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	r := w.running(func(c *chain.Config) { c.Orders = sink })
	owner := w.account()
	w.paid(r, purchase(w.account(usdc, 5), usdc, receiver(2), 5))
	w.idle()
	w.give(owner, usdc, 1_000_000)
	p := purchase(owner, usdc, receiver(1), 1_000_000)
	w.paid(r, p)
	w.idle()
	sink.has(p.OrderID, true, 1)
	w.reorg(2, true)
	op := w.decided(p.OrderID, chain.Failed)
	if op.Failure == nil || op.Failure.Code != toll.CodeChainBalance || op.Failure.Position.Tx == (common.Hash{}) {
		t.Errorf("failure: %+v", op.Failure)
	}
	w.idle()
	sink.has(p.OrderID, false, 1)
	w.has(owner, usdc, 0, receiver(1), usdc, 0)
	w.nonces()
}

// An order has failed on the chain, and that block goes: it is paid after all.
// T56
func TestReorgOfFailure(t *testing.T) {
	w, sink, change, owner, p := oneOrder(t)
	w.signs(w.rail(change), p)
	// The owner moves the money away without us, and a stranger brings our operation to the chain.
	w.lands(w.operation(owner, "elsewhere", execute(t, usdc, move("transfer(address,uint256)", receiver(2), 3_000_000))), owner)
	if e := w.lands(w.op(p.OrderID).Operation); e.success {
		t.Fatal("the order has money")
	}
	r := w.running(change)
	w.fails(r, p, toll.CodeChainBalance)
	if f := w.op(p.OrderID).Failure; f.Position.Tx == (common.Hash{}) {
		t.Errorf("failure without evidence: %+v", f)
	}
	w.idle()
	sink.has(p.OrderID, false, 0)
	if n := sink.calls["failed "+p.OrderID]; n != 1 {
		t.Errorf("the sink heard %d times that it failed", n)
	}
	w.reorg(2, true)
	w.decided(p.OrderID, chain.Final)
	w.idle()
	sink.has(p.OrderID, true, 1)
	w.has(owner, usdc, 2_000_000, receiver(1), usdc, 1_000_000, receiver(2), usdc, 0)
}

// A process that was killed finds a chain without its last blocks.
func TestReorg_WhileDown(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	change := func(c *chain.Config) { c.Orders = sink }
	owner := w.account(usdc, 10_000_000)
	p := purchase(owner, usdc, receiver(1), 1_000_000)
	w.crashing(p, "event stored", 1, change)
	w.reorg(2, true) // the order, and the block that crashing has made
	w.has(receiver(1), usdc, 0)
	w.running(change)
	w.eventually("the order is paid again", func() bool { return w.balance(usdc, receiver(1)) == 1_000_000 && w.op(p.OrderID).State == chain.Final })
	w.idle()
	sink.has(p.OrderID, true, 1)
	w.has(owner, usdc, 9_000_000)
}

// More than 64 blocks are replaced, or the chain is another one: nothing is taken back and nothing is sent.
func TestTracker_OtherChain(t *testing.T) {
	paid := func(t *testing.T) (*world, *ledger, rail.Purchase) {
		// All anvils have one genesis.
		w := newWorld(t, chaintest.Embedded(t))
		sink := w.ledger()
		owner := w.account(usdc, 10_000_000)
		p := purchase(owner, usdc, receiver(1), 1_000_000)
		w.crashing(p, "event stored", 1, func(c *chain.Config) { c.Orders = sink })
		return w, sink, p
	}
	stays := func(w *world, sink *ledger, p rail.Purchase, c *chaintest.Chain) {
		w.Helper()
		if w.Chain != c { // a rail that runs reads it
			w.Chain = c
		}
		r := w.running(func(c *chain.Config) { c.Orders = sink })
		before := w.op(p.OrderID)
		w.eventually("the rail has stopped", func() bool {
			err := r.Ready(w.Context())
			return err != nil && errors.Is(err, chain.ErrOtherChain)
		})
		time.Sleep(50 * time.Millisecond)
		if after := w.op(p.OrderID); after.Version != before.Version {
			w.Errorf("the order went from %s to %s", before.State, after.State)
		}
		sink.has(p.OrderID, true, 1)
		if n := w.nonce(w.relayer); c != nil && n > 1 {
			w.Errorf("the relayer has sent %d transactions", n)
		}
	}
	t.Run("foreign genesis", func(t *testing.T) {
		w, sink, p := paid(t)
		other := chaintest.New(t, w.relayer)
		if err := other.Advance(20 * time.Second); err != nil { // the leases of the dead end by its clock, too
			t.Fatal(err)
		}
		stays(w, sink, p, other)
	})
	t.Run("deep reorganisation", func(t *testing.T) {
		w, sink, p := paid(t)
		for range 70 {
			must.Do(t, w.Advance(time.Second))
		}
		r := w.running(func(c *chain.Config) { c.Orders = sink })
		w.paid(r, purchase(w.account(usdc, 1), usdc, receiver(2), 1))
		w.idle()
		w.reorg(75, true)
		stays(w, sink, p, w.Chain)
	})
}
