package chain_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
)

// The account of an order that was sent has other code for a day, so that neither the order nor its void can run: the order gives
// its place back, and not before. It stays open, and is decided when the code is ours again.
func TestYield_OtherCode(t *testing.T) {
	w, sink, change, owner, p := oneOrder(t)
	w.crashing(p, "transaction stored", 1, change)
	w.redelegates(owner)
	w.running(change)
	time.Sleep(100 * time.Millisecond)
	must.Do(t, w.Advance(23*time.Hour))
	w.eventually("the void is there", func() bool { return w.known("void:" + p.OrderID) })
	time.Sleep(500 * time.Millisecond)
	if n := sink.yields(p.OrderID); n != 0 {
		t.Errorf("the order has given its place back %d times within a day", n)
	}
	must.Do(t, w.Advance(2*time.Hour))
	w.eventually("the order gives its place back", func() bool { return sink.yields(p.OrderID) > 0 })
	if op := w.op(p.OrderID); op.State != chain.Sent && op.State != chain.Signed {
		t.Errorf("the order is %s (%+v)", op.State, op.Failure)
	}
	w.sendWith(w.outside, nil, w.authorization(owner, w.nonce(owner)))
	op := w.decided(p.OrderID, chain.Failed, chain.Final)
	w.eventually("the sink has heard", func() bool { return w.op(p.OrderID).Decided == op.State })
	sink.has(p.OrderID, op.State == chain.Final, map[bool]int{true: 1}[op.State == chain.Final])
}

// The holder of an account uses up the nonce of an order that was sent, and the only endpoint tells of no event that explains it:
// the order stays open, as it may be hidden that it was paid, and gives its place back after a day.
func TestYield_NonceUsed(t *testing.T) {
	w, sink, change, owner, p := oneOrder(t)
	w.crashing(p, "transaction stored", 1, change)
	w.countsUp(owner, userop.OrderKey(p.OrderID))
	w.redelegates(owner)
	w.running(remote, w.through(chaintest.NewDouble(t, w.Client())), change)
	time.Sleep(100 * time.Millisecond)
	must.Do(t, w.Advance(25*time.Hour))
	w.eventually("the order gives its place back", func() bool {
		w.blocks(8)
		return sink.yields(p.OrderID) > 0
	})
	if op := w.op(p.OrderID); op.State != chain.Sent && op.State != chain.Signed {
		t.Errorf("the order is %s (%+v)", op.State, op.Failure)
	}
	sink.has(p.OrderID, false, 0)
}
