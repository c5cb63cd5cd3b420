package chain_test

import (
	"context"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
)

// TestExactSale ends the process after each step of a sale: one transfer and one grant, also when others carry the
// authorization out while nobody is there.
// F13
func TestExactSale(t *testing.T) {
	for _, row := range []struct {
		step   string
		repeat bool // the client has to ask again
		others bool // nothing is sent by us yet
	}{
		{"order", true, true},
		{"created", true, true},
		{"signing", true, true},
		{"signed", false, true},
		{"transaction stored", false, true},
		{"transaction sent", false, false},
		{"transaction concluded", false, false},
		{"event stored", false, false},
		{"deciding", false, false},
	} {
		for _, others := range []bool{false, true} {
			if others && !row.others {
				continue
			}
			name := row.step
			if others {
				name += ", others are faster"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, chaintest.New(t))
				sink := w.ledger()
				with := func(c *chain.Config) { c.Orders = sink }
				keys, buyer := w.stranger(usdc, 3_000_000)
				s := w.sale(keys, buyer, receiver(1), 1_000_000)
				w.crashes(func(ctx context.Context, r *chain.Rail) { _, _ = r.Sell(ctx, s) }, row.step, 1, with)
				if others {
					w.submit(s)
				}
				r := w.running(with)
				if row.repeat {
					w.sold(r, s)
				}
				w.decided(s.OrderID, chain.Final)
				w.idle()
				w.has(buyer, usdc, 2_000_000, receiver(1), usdc, 1_000_000)
				sink.has(s.OrderID, true, 1)
				w.nonces()
				w.sold(r, s) // the repeat of a client that heard nothing
				w.has(buyer, usdc, 2_000_000, receiver(1), usdc, 1_000_000)
				sink.has(s.OrderID, true, 1)
				if n := len(w.orphans()); n > 0 {
					t.Errorf("%d orphans", n)
				}
			})
		}
	}
}

// Nobody is there for longer than a sale lasts, while others carry one out and another one ends.
// F13
func TestAwayForLong(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	with := func(c *chain.Config) { c.Orders = sink }
	keys, buyer := w.stranger(usdc, 3_000_000)
	paid, unpaid, canceled := w.sale(keys, buyer, receiver(1), 1_000_000), w.sale(keys, buyer, receiver(2), 1_000_000), w.sale(keys, buyer, receiver(3), 1_000_000)
	for _, s := range []rail.Sale{paid, unpaid, canceled} {
		w.signsSale(w.rail(with), s)
	}
	w.submit(paid)
	w.cancels(keys, canceled)
	for range 70 { // more than is read again in any case
		must.Do(t, w.Advance(5*time.Second))
	}
	w.running(with)
	w.decided(paid.OrderID, chain.Final)
	if op := w.decided(unpaid.OrderID, chain.Failed); op.Failure.Params["reason"] != wordBefore {
		t.Errorf("the one that has ended: %+v", op.Failure)
	}
	if op := w.decided(canceled.OrderID, chain.Failed); op.Failure.Params["reason"] != wordNonce {
		t.Errorf("the one that was cancelled: %+v", op.Failure)
	}
	w.idle()
	sink.has(paid.OrderID, true, 1)
	sink.has(unpaid.OrderID, false, 0)
	sink.has(canceled.OrderID, false, 0)
	w.has(buyer, usdc, 2_000_000)
}

// A sale is carried out by others and has ended when our relayer looks at it: it is not given up, before the tracker was there.
// F13
func TestEndedAndCarriedOut(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	with := func(c *chain.Config) { c.Orders = sink }
	keys, buyer := w.stranger(usdc, 1_000_000)
	s := w.sale(keys, buyer, receiver(1), 1_000_000)
	w.signsSale(w.rail(with), s)
	w.submit(s)
	must.Do(t, w.Advance(10*time.Minute))
	double := chaintest.NewDouble(t, w.Client())
	double.Refuse(-1, "eth_getLogs", "not now") // nothing is followed
	ctx, stop := context.WithCancel(t.Context())
	r := w.rail(with, w.through(double))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Run(ctx)
	}()
	w.eventually("the relayer has tried it", func() bool { return double.Calls("eth_simulateV1") > 3 })
	if op := w.op(s.OrderID); op.State != chain.Signed {
		t.Errorf("the sale is %s (%+v)", op.State, op.Failure)
	}
	stop()
	<-done
	if err := w.Advance(20 * time.Second); err != nil { // the leases end
		t.Fatal(err)
	}
	w.running(with)
	w.decided(s.OrderID, chain.Final)
	w.idle()
	sink.has(s.OrderID, true, 1)
}

// The block of a sale goes, with or without the money of the wallet: it is paid again, or its credits are taken back at its end.
// T56
func TestReorg_ExactPayment(t *testing.T) {
	for what, poor := range map[string]bool{"it lands again": false, "the money is gone, too": true} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, chaintest.New(t))
			sink := w.ledger()
			r := w.running(func(c *chain.Config) { c.Orders = sink })
			keys, buyer := w.stranger()
			w.give(w.account(), usdc, 5) // the relayer and the service account are known to the chain
			w.paid(r, purchase(w.account(usdc, 5), usdc, receiver(2), 5))
			w.idle()
			blocks := 1
			if w.give(buyer, usdc, 1_000_000); poor {
				blocks = 2
			}
			s := w.sale(keys, buyer, receiver(1), 1_000_000)
			w.sold(r, s)
			w.idle()
			before := w.op(s.OrderID)
			w.reorg(blocks, true)
			if !poor {
				w.eventually("it is paid again", func() bool {
					op := w.op(s.OrderID)
					return op.State == chain.Final && op.Position.Hash != before.Position.Hash
				})
				w.idle()
				sink.has(s.OrderID, true, 1)
				w.has(buyer, usdc, 0, receiver(1), usdc, 1_000_000)
				w.nonces()
				return
			}
			w.decided(s.OrderID, chain.Sent, chain.Signed)
			must.Do(t, w.Advance(10*time.Minute))
			if op := w.decided(s.OrderID, chain.Failed); op.Failure.Params["reason"] != wordBefore {
				t.Errorf("failure: %+v", op.Failure)
			}
			w.idle()
			sink.has(s.OrderID, false, 1)
			w.has(receiver(1), usdc, 0)
		})
	}
}
