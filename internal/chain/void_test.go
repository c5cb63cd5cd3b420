package chain_test

import (
	"math/big"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
)

// swallowed pays an order through an endpoint that takes transactions and tells nobody, so that the order is sent and does not
// land. The process has ended when it returns.
func (w *world) swallowed(p rail.Purchase, change ...func(*chain.Config)) {
	w.Helper()
	double := chaintest.NewDouble(w, w.Client())
	double.Swallow()
	pool := w.pool(endpoints.Config{URLs: []string{double.URL}})
	w.crashing(p, "transaction sent", 1, append(change, func(c *chain.Config) { c.Pool = pool })...)
	if op := w.op(p.OrderID); op.State != chain.Sent || op.SentAt.IsZero() {
		w.Fatalf("the order is %s, want it sent", op.State)
	}
}

// Nobody sees the transaction of an order for ten minutes while the only endpoint keeps it: the void lands, and the order fails.
func TestVoid_AfterTime(t *testing.T) {
	for _, way := range []string{"direct, without code", "delegated"} {
		t.Run(way, func(t *testing.T) {
			w := newWorld(t, chaintest.New(t))
			sink := w.ledger()
			second := w.keys.New(t)
			must.Get(w.Fund(t.Context(), second, big.NewInt(1e18)))(t)
			change := func(c *chain.Config) { c.Orders = sink }
			owner := w.account(usdc, 3_000_000)
			p := purchase(owner, usdc, receiver(1), 1_000_000)
			if way == "delegated" {
				p = by(w.delegation(owner, 500), p)
			}
			w.swallowed(p, change)
			stored := w.op(p.OrderID)
			// Another relayer goes on: the transaction of the first one stays away.
			first := w.relayer
			w.relayer = second
			w.running(change)
			time.Sleep(100 * time.Millisecond)
			if op := w.op(p.OrderID); op.State != chain.Sent {
				t.Fatalf("the order is %s before its time", op.State)
			}
			must.Do(t, w.Advance(11*time.Minute))
			op := w.decided(p.OrderID, chain.Failed)
			void := w.decided("void:"+p.OrderID, chain.Final)
			if op.Failure.Position != void.Position || op.Failure.Code != toll.CodeChainFailed {
				t.Errorf("failure: %+v, void at %+v", op.Failure, void.Position)
			}
			if void.Sender != stored.Sender || void.NonceKey != userop.VoidKey(p.OrderID) {
				t.Errorf("void: %+v", void)
			}
			w.eventually("the sink has heard", func() bool { return w.op(p.OrderID).Decided == chain.Failed })
			sink.has(p.OrderID, false, 0)
			if got := w.outer(nil, stored.Operation); got != `FailedOp(0, "AA25 invalid account nonce")` {
				t.Errorf("the operation of the order after the void: %s", got)
			}
			w.relayer = first
			w.has(owner, usdc, 3_000_000, receiver(1), usdc, 0)
		})
	}
}

// An order that was sent is being made impossible; its operation lands first.
func TestVoid_OriginalFirst(t *testing.T) {
	w, sink, change, owner, p := oneOrder(t)
	w.swallowed(p, change)
	must.Do(t, w.Advance(11*time.Minute))
	double := chaintest.NewDouble(t, w.Client())
	double.Swallow()
	w.until("there is a void", func() bool { return w.known("void:" + p.OrderID) }, change, w.through(double))
	w.running(change) // the stored transaction has the lower nonce
	w.decided(p.OrderID, chain.Final)
	w.decided("void:"+p.OrderID, chain.Final, chain.Failed)
	w.idle()
	sink.has(p.OrderID, true, 1)
	w.has(owner, usdc, 2_000_000, receiver(1), usdc, 1_000_000)
	w.nonces()
}

// The delegation ends while its order is sent and does not land: a finalized block after the end decides.
func TestVoid_DelegationEnds(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	second := w.keys.New(t)
	must.Get(w.Fund(t.Context(), second, big.NewInt(1e18)))(t)
	change := func(c *chain.Config) { c.Orders, c.VoidAfter = sink, 24*time.Hour }
	owner := w.account(usdc, 3_000_000)
	d := w.delegation(owner, 500)
	d.ExpiresAt = w.Now().Add(10 * time.Minute)
	p := by(d, purchase(owner, usdc, receiver(1), 1_000_000))
	w.swallowed(p, change)
	w.relayer = second
	w.running(change)
	must.Do(t, w.Advance(4*time.Minute))
	time.Sleep(100 * time.Millisecond)
	if op := w.op(p.OrderID); op.State != chain.Sent {
		t.Fatalf("the order is %s before the delegation has ended", op.State)
	}
	must.Do(t, w.Advance(7*time.Minute))
	op := w.decided(p.OrderID, chain.Failed)
	if op.Failure.Code != toll.CodeDelegationExpired || op.Failure.Position.Block == 0 {
		t.Errorf("failure: %+v", op.Failure)
	}
	if _, err := w.records.Op(t.Context(), "void:"+p.OrderID); err == nil {
		t.Error("it was voided")
	}
	if e := w.lands(w.op(p.OrderID).Operation, w.service, owner); e.success || e.reason != "TimestampEnforcer:expired-delegation" {
		t.Errorf("the operation that lands after all: %+v", e)
	}
	w.eventually("the sink has heard", func() bool { return w.op(p.OrderID).Decided == chain.Failed })
	sink.has(p.OrderID, false, 0)
	w.has(owner, usdc, 3_000_000, receiver(1), usdc, 0)
}
