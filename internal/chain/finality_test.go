package chain_test

import (
	"context"
	"math/big"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
)

// remote makes a rail take the chain for one that others run.
func remote(c *chain.Config) {
	c.Embedded, c.Confirmations, c.TopUpConfirmations, c.FastLimitCents = false, 3, 1, 1_000
}

func (w *world) blocks(n int) {
	w.Helper()
	for range n {
		must.Do(w, w.Advance(time.Second))
	}
}

// stays fails the test when an order leaves a state before some looks at the chain have passed.
func (w *world) stays(id string, s chain.State) {
	w.Helper()
	time.Sleep(1200 * time.Millisecond)
	if op := w.op(id); op.State != s {
		w.Errorf("the order is %s, want %s", op.State, s)
	}
}

// Credits are granted at the depth that the price asks for, and an order is final with its block.
func TestFinality(t *testing.T) {
	for what, row := range map[string]struct {
		p      func(owner common.Address) rail.Purchase
		blocks int
	}{
		"small price": {func(a common.Address) rail.Purchase { return purchase(a, usdc, receiver(1), 1_000_000) }, 3},
		"top-up": {func(a common.Address) rail.Purchase {
			p := purchase(a, usdc, receiver(1), 20_000_000)
			p.TopUp = true
			return p
		}, 1},
		// The head of this chain is safe.
		"large price":   {func(a common.Address) rail.Purchase { return purchase(a, usdc, receiver(1), 20_000_000) }, 0},
		"native, price": {func(a common.Address) rail.Purchase { return purchase(a, wei, receiver(1), 20) }, 0},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			// On anvil each block finalizes the one before the last, so an order is final before a test can look.
			w := newWorld(t, chaintest.Embedded(t))
			sink := w.ledger()
			r := w.running(remote, func(c *chain.Config) { c.Orders = sink })
			owner := w.account(usdc, 50_000_000, wei, 1_000)
			p := row.p(owner)
			go r.Pay(t.Context(), p)
			if row.blocks > 0 {
				w.decided(p.OrderID, chain.Included)
				if row.blocks > 1 {
					w.blocks(row.blocks - 1)
				}
				w.stays(p.OrderID, chain.Included)
				sink.has(p.OrderID, false, 0)
				w.blocks(1)
			}
			w.decided(p.OrderID, chain.Confirmed)
			w.eventually("the credits are granted", func() bool { return w.op(p.OrderID).Decided == chain.Confirmed })
			sink.has(p.OrderID, true, 1)
			w.blocks(40) // the finalized block moves every 32
			w.decided(p.OrderID, chain.Final)
			w.eventually("the sink has heard", func() bool { return w.op(p.OrderID).Decided == chain.Final })
			sink.has(p.OrderID, true, 1)
		})
	}
}

// A failure on the chain counts at the same depth as a payment, and not before.
func TestFinality_Failure(t *testing.T) {
	w, sink, change, owner, p := oneOrder(t)
	w.signs(w.rail(remote, change), p)
	w.lands(w.operation(owner, "elsewhere", execute(t, usdc, move(transfer, receiver(2), 3_000_000))), owner)
	w.lands(w.op(p.OrderID).Operation)
	w.running(remote, change)
	w.eventually("the event is known", func() bool { op := w.op(p.OrderID); return op.State == chain.Sent && op.Failure != nil })
	w.stays(p.OrderID, chain.Sent)
	w.blocks(3)
	op := w.decided(p.OrderID, chain.Failed)
	if op.Failure.Code != toll.CodeChainBalance || op.Failure.Position.Tx == (common.Hash{}) {
		t.Errorf("failure: %+v", op.Failure)
	}
	w.eventually("the sink has heard", func() bool { return w.op(p.OrderID).Decided == chain.Failed })
	sink.has(p.OrderID, false, 0)
}

// A reorganisation before the depth is reached grants nothing twice, and one after it takes nothing back that comes again.
func TestFinality_Reorg(t *testing.T) {
	// Anvil finalizes too soon, as in TestFinality.
	w := newWorld(t, chaintest.Embedded(t))
	sink := w.ledger()
	r := w.running(remote, func(c *chain.Config) { c.Orders = sink })
	owner := w.account(usdc, 3_000_000)
	p := purchase(owner, usdc, receiver(1), 1_000_000)
	go r.Pay(t.Context(), p)
	first := w.decided(p.OrderID, chain.Included)
	w.blocks(1)
	w.reorg(2, true)
	w.eventually("the order is in another block", func() bool {
		op := w.op(p.OrderID)
		return op.State == chain.Included && op.Position.Hash != first.Position.Hash
	})
	sink.has(p.OrderID, false, 0)
	w.blocks(3)
	second := w.decided(p.OrderID, chain.Confirmed)
	w.eventually("the credits are granted", func() bool { return w.op(p.OrderID).Decided == chain.Confirmed })
	head := must.Get(w.Eth().BlockNumber(t.Context()))(t)
	w.reorg(int(head-second.Position.Block+1), true)
	w.eventually("the order is in a third block", func() bool {
		op := w.op(p.OrderID)
		return op.State != chain.Sent && op.Position.Hash != second.Position.Hash
	})
	sink.has(p.OrderID, true, 1)
	w.blocks(40)
	w.decided(p.OrderID, chain.Final)
	w.eventually("the sink has heard", func() bool { return w.op(p.OrderID).Decided == chain.Final })
	sink.has(p.OrderID, true, 1)
	w.has(owner, usdc, 2_000_000, receiver(1), usdc, 1_000_000)
}

// contract places code and returns its address.
func (w *world) contract(runtime string) common.Address {
	w.Helper()
	body := common.FromHex(runtime)
	creation := append([]byte{0x61, byte(len(body) >> 8), byte(len(body)), 0x80, 0x60, 0x0a, 0x3d, 0x39, 0x3d, 0xf3}, body...)
	salt := [32]byte{1}
	w.send(contracts.Create2Deployer, append(salt[:], creation...))
	return crypto.CreateAddress2(contracts.Create2Deployer, salt, crypto.Keccak256(creation))
}

// TestGasAbuse has receivers that turn bad after their order was signed: their orders fail, what it costs is bounded, and the
// orders beside them are paid.
// T69
func TestGasAbuse(t *testing.T) {
	for what, blind := range map[string]bool{"found before it is sent": false, "found on the chain": true} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, chaintest.New(t))
			double := chaintest.NewDouble(t, w.Client())
			if blind {
				double.Refuse(-1, "eth_simulateV1", "the method eth_simulateV1 does not exist")
			}
			owner := w.account(wei, 1_000)
			burns := w.contract("36600a575f54601057005b60015f55005b601056")   // after a call with data it jumps around for ever
			reverts := w.contract("36600a575f54601057005b60015f55005b5f5ffd") // the same, and reverts
			reenters := w.contract("5f5f5f5f5f335af1505f5f5f5f5f7f" +         // calls the account back,
				common.Bytes2Hex(common.LeftPadBytes(contracts.EntryPoint[:], 32)) + "5af100") // and the EntryPoint
			quiet := w.rail()
			good := []rail.Purchase{purchase(owner, wei, receiver(1), 10), purchase(owner, wei, reenters, 20), purchase(owner, wei, receiver(2), 30)}
			bad := []rail.Purchase{purchase(owner, wei, burns, 100), purchase(owner, wei, reverts, 200)}
			for _, p := range []rail.Purchase{good[0], bad[0], good[1], bad[1], good[2]} {
				w.signs(quiet, p)
			}
			w.send(burns, []byte{1})
			w.send(reverts, []byte{1})
			before := w.balance(wei, w.relayer)
			w.running(w.through(double))
			for _, p := range good {
				w.decided(p.OrderID, chain.Final)
			}
			for _, p := range bad {
				op := w.decided(p.OrderID, chain.Failed)
				if op.Failure.Code != toll.CodeChainFailed || blind != (op.Failure.Position.Tx != common.Hash{}) {
					t.Errorf("failure: %+v", op.Failure)
				}
			}
			w.idle()
			w.nonces()
			w.has(owner, wei, 940, receiver(1), wei, 10, reenters, wei, 20, receiver(2), wei, 30, burns, wei, 0, reverts, wei, 0)
			if n := w.nonce(w.relayer); n > 2 {
				t.Errorf("%d transactions", n)
			}
			if cost := before - w.balance(wei, w.relayer); cost <= 0 || cost > 2_000_000*20_000_000 {
				t.Errorf("it cost %d wei", cost)
			}
		})
	}
}

// TestBaseFeeOverTheCap sends nothing while it is too dear, and what waits when it is not any more.
// T69
func TestBaseFeeOverTheCap(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	owner := w.account(usdc, 3_000_000)
	p := purchase(owner, usdc, receiver(1), 1_000_000)
	w.signs(w.rail(), p)
	ctx, stop := context.WithCancel(t.Context())
	dear := w.rail(func(c *chain.Config) { c.MaxBaseFee, c.RelayerFloor = big.NewInt(1), new(big.Int) })
	over := make(chan error, 1)
	go func() { over <- dear.Run(ctx) }()
	w.stays(p.OrderID, chain.Signed)
	stop()
	<-over
	if n := w.nonce(w.relayer); n != 0 {
		t.Errorf("%d transactions were sent", n)
	}
	w.running()
	w.decided(p.OrderID, chain.Final)
}
