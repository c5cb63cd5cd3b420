package chain_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
)

// The account of an order that was sent gets other code, so that neither the order nor its void can run. When the code is ours
// again, one of them does: the order is not stuck.
func TestVoid_AgainWhenItCanRun(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	change := func(c *chain.Config) { c.Sink = sink }
	owner := w.account(usdc, 3_000_000)
	p := purchase(owner, usdc, receiver(1), 1_000_000)
	w.crashing(p, "transaction stored", 1, change)
	w.redelegates(owner)
	w.running(change)
	time.Sleep(100 * time.Millisecond)
	if err := w.Advance(11 * time.Minute); err != nil {
		t.Fatal(err)
	}
	w.eventually("the void is there", func() bool {
		_, err := w.journal.Op(t.Context(), "void:"+p.OrderID)
		return err == nil
	})
	time.Sleep(500 * time.Millisecond)
	auth := w.authorization(owner, w.nonce(owner))
	w.sendWith(w.outside, nil, auth)
	if err := w.Advance(11 * time.Minute); err != nil {
		t.Fatal(err)
	}
	op := w.decided(p.OrderID, chain.Failed, chain.Final)
	w.eventually("the sink has heard", func() bool { return w.op(p.OrderID).Told == op.State })
	sink.has(p.OrderID, op.State == chain.Final, map[bool]int{true: 1}[op.State == chain.Final])
}
