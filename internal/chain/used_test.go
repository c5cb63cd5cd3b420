package chain_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/userop"
)

// The holder of an exported key uses up the nonce of an order that nobody has sent yet with an operation of its own: the order is
// made impossible for certain, and fails.
func TestVoid_NonceUsedByTheHolder(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	change := func(c *chain.Config) { c.Sink = sink }
	owner := w.account(usdc, 3_000_000)
	p := purchase(owner, usdc, receiver(1), 1_000_000)
	w.signs(w.rail(change), p)
	own := w.operation(owner, "own", execute(t, usdc, move("transfer(address,uint256)", receiver(2), 1)), func(op *userop.Operation) {
		op.Nonce = userop.Nonce(userop.OrderKey(p.OrderID))
	})
	if e := w.lands(own, owner); !e.success {
		t.Fatalf("the operation of the holder: %+v", e)
	}
	w.running(change)
	// From then on it counts as sent.
	w.eventually("the nonce is known to be used", func() bool { return !w.op(p.OrderID).SentAt.IsZero() })
	if err := w.Advance(11 * time.Minute); err != nil {
		t.Fatal(err)
	}
	if op := w.decided(p.OrderID, chain.Failed); op.Failure.Code != toll.CodeChainFailed {
		t.Errorf("failure: %+v", op.Failure)
	}
	w.eventually("the sink has heard", func() bool { return w.op(p.OrderID).Told == chain.Failed })
	sink.has(p.OrderID, false, 0)
	w.has(owner, usdc, 2_999_999, receiver(1), usdc, 0)
}

// An order that was paid long ago is not made impossible at once when a reorganisation takes its block: it is sent again first.
func TestReorg_LongAfter(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	r := w.running(func(c *chain.Config) { c.Sink = sink })
	owner := w.account(usdc, 3_000_000)
	p := purchase(owner, usdc, receiver(1), 1_000_000)
	w.paid(r, p)
	w.idle()
	if err := w.Advance(time.Hour); err != nil {
		t.Fatal(err)
	}
	before := w.op(p.OrderID)
	w.reorg(2, true)
	w.eventually("the order is paid again", func() bool {
		op := w.op(p.OrderID)
		return op.State == chain.Final && op.Place.Hash != before.Place.Hash
	})
	if _, err := w.journal.Op(t.Context(), "void:"+p.OrderID); err == nil {
		t.Error("it was voided")
	}
	sink.has(p.OrderID, true, 1)
	w.has(owner, usdc, 2_000_000, receiver(1), usdc, 1_000_000)
}
