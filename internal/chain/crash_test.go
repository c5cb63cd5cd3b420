package chain_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// ledger are orders that grant as the service does: once for an order, however often it is decided.
type ledger struct {
	*books
	t testing.TB

	each    sync.Mutex
	grants  map[string]int // credits of an order were granted so often
	granted map[string]bool
	calls   map[string]int
}

func (w *world) ledger() *ledger {
	return &ledger{books: w.books, t: w, grants: map[string]int{}, granted: map[string]bool{}, calls: map[string]int{}}
}

func (l *ledger) Paid(id string, tx common.Hash) {
	l.each.Lock()
	defer l.each.Unlock()
	l.calls["paid "+id]++
	if !l.granted[id] {
		l.granted[id] = true
		l.grants[id]++
	}
	l.books.Paid(id, tx)
}

func (l *ledger) Failed(id string, f chain.Failure) {
	l.each.Lock()
	defer l.each.Unlock()
	l.calls["failed "+id]++
	l.granted[id] = false
	l.books.Failed(id, f)
}

// has fails the test unless an order has credits or not, after this many grants.
func (l *ledger) has(id string, credits bool, grants int) {
	l.t.Helper()
	l.each.Lock()
	defer l.each.Unlock()
	if l.granted[id] != credits || l.grants[id] != grants {
		l.t.Errorf("order %s has credits: %t, after %d grants; want %t, %d", id, l.granted[id], l.grants[id], credits, grants)
	}
}

// crashing pays an order in a process that ends at a step, the nth time it comes there, without another word: it gives no lease
// back and no answer.
func (w *world) crashing(p rail.Purchase, step string, nth int, change ...func(*chain.Config)) {
	w.Helper()
	w.crashes(func(ctx context.Context, r *chain.Rail) { _, _ = r.Pay(ctx, p) }, step, nth, change...)
}

// crashes is crashing for whatever is asked of a rail.
func (w *world) crashes(ask func(context.Context, *chain.Rail), step string, nth int, change ...func(*chain.Config)) {
	w.Helper()
	dead := make(chan struct{})
	ctx, kill := context.WithCancel(context.Background())
	defer kill()
	var mu sync.Mutex
	at := func(here string) {
		mu.Lock()
		if here == step {
			nth--
		}
		over := nth <= 0
		if over && ctx.Err() == nil {
			kill()
			close(dead)
		}
		mu.Unlock()
		if over {
			runtime.Goexit()
		}
	}
	r := w.rail(append(change, func(c *chain.Config) { c.At = at })...)
	var all sync.WaitGroup
	all.Go(func() { _ = r.Run(ctx) })
	all.Go(func() { ask(ctx, r) })
	select {
	case <-dead:
	case <-time.After(patience):
		w.Errorf("nothing comes to the step %q", step)
	}
	kill()
	all.Wait()
	// The leases of the dead end.
	must.Do(w, w.Advance(20*time.Second))
}

// TestCryptoOrder ends the process after each row of the crash table of an order: one payment, one grant, and the order
// becomes final by itself, once the client has repeated what never reached the database.
// F10
func TestCryptoOrder(t *testing.T) {
	for _, row := range []struct {
		step   string
		nth    int
		repeat bool // the client has to ask again
	}{
		{"order", 1, true},
		{"created", 1, true},
		{"signing", 1, true},
		{"signed", 1, false},
		{"transaction stored", 1, false},
		{"transaction sent", 1, false},
		{"transaction concluded", 1, false},
		{"event stored", 1, false},
		{"deciding", 1, false},
	} {
		for _, way := range []string{"direct", "delegated"} {
			t.Run(row.step+", "+way, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, chaintest.New(t))
				sink := w.ledger()
				with := func(c *chain.Config) { c.Orders = sink }
				owner := w.account(usdc, 10_000_000)
				p := purchase(owner, usdc, receiver(1), 1_000_000)
				if way == "delegated" {
					p = by(w.delegation(owner, 500), p)
				}
				w.crashing(p, row.step, row.nth, with)
				if !row.repeat {
					must.Get(w.records.Op(t.Context(), p.OrderID))(t)
				} else if op, err := w.records.Op(t.Context(), p.OrderID); err == nil && op.State != chain.Created || err != nil && !errors.Is(err, store.ErrNotFound) {
					t.Fatalf("before the repeat: %+v, %v", op, err)
				}
				r := w.running(with)
				if row.repeat {
					w.paid(r, p)
				}
				w.decided(p.OrderID, chain.Final)
				w.idle()
				w.has(owner, usdc, 9_000_000, receiver(1), usdc, 1_000_000)
				sink.has(p.OrderID, true, 1)
				w.nonces()
				w.paid(r, p) // the repeat of a client that heard nothing
				w.has(owner, usdc, 9_000_000, receiver(1), usdc, 1_000_000)
				sink.has(p.OrderID, true, 1)
				if got := w.op(p.OrderID).Decided; got != chain.Final {
					t.Errorf("the sink has heard %q", got)
				}
			})
		}
	}
}

// An order that does not take what decides it does not hold up the chain: the evidence is kept, and it is decided later, once.
func TestDecide_Refused(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := &deaf{ledger: w.ledger(), refuse: 1 << 30}
	r := w.running(func(c *chain.Config) { c.Orders = sink })
	owner := w.account(usdc, 10_000_000)
	p := purchase(owner, usdc, receiver(1), 1_000_000)
	w.paid(r, p)
	if op := w.op(p.OrderID); op.State != chain.Final || op.Decided != "" {
		t.Errorf("the operation is %s, and its order took %q", op.State, op.Decided)
	}
	sink.has(p.OrderID, false, 0)
	other := purchase(owner, usdc, receiver(2), 1_000_000)
	w.paid(r, other)
	sink.mu.Lock()
	sink.refuse = 0
	sink.mu.Unlock()
	w.idle()
	sink.has(p.OrderID, true, 1)
	sink.has(other.OrderID, true, 1)
	if n := sink.calls["paid "+p.OrderID]; n != 1 {
		t.Errorf("taken %d times", n)
	}
}

// A database that is away refuses nothing: the operation stays as it was, and is decided with its order when the database is there.
func TestDecide_DatabaseAway(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := &deaf{ledger: w.ledger(), refuse: 1 << 30, why: toll.NewError(toll.CodeDatabaseUnavailable)}
	r := w.running(func(c *chain.Config) { c.Orders = sink })
	p := purchase(w.account(usdc, 1_000_000), usdc, receiver(1), 1_000_000)
	paid := make(chan rail.Payment, 1)
	go func() { paid <- w.pay(r, p) }()
	w.eventually("the order was to be decided some times", func() bool {
		sink.mu.Lock()
		defer sink.mu.Unlock()
		return sink.refuse < 1<<30-2
	})
	switch op := w.op(p.OrderID); op.State {
	case chain.Confirmed, chain.Final, chain.Failed:
		t.Errorf("the operation is %s without its order", op.State)
	}
	sink.mu.Lock()
	sink.refuse = 0
	sink.mu.Unlock()
	if o := <-paid; o.Status != toll.OrderConfirmed && o.Status != toll.OrderFinal {
		t.Errorf("the order is %s (%+v)", o.Status, o)
	}
	w.idle()
	sink.has(p.OrderID, true, 1)
}

// deaf are orders that take no outcome for some time.
type deaf struct {
	*ledger
	mu     sync.Mutex
	refuse int
	why    error
}

func (d *deaf) refuses(string, rail.Outcome) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse--; d.refuse >= 0 {
		return cmp.Or(d.why, errors.New("not now"))
	}
	return nil
}

// More orders than are read at a time never take what decides them: those after them do all the same.
func TestDecide_RefusedForEver(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := &choosy{w.ledger()}
	for n := range 250 {
		id := fmt.Sprintf("refused %d", n)
		_, err := w.records.AddOp(t.Context(), &chain.Op{
			ID: id, Account: account, Kind: chain.KindOrder, State: chain.Failed, NonceKey: userop.OrderKey(id), UpdatedAt: w.Now(), Failure: &chain.Failure{},
		})
		must.Do(t, err)
	}
	r := w.running(func(c *chain.Config) { c.Orders = sink })
	owner := w.account(usdc, 2_000_000)
	for range 2 {
		p := purchase(owner, usdc, receiver(1), 1_000_000)
		w.paid(r, p)
		w.eventually("the sink has heard", func() bool { return w.op(p.OrderID).Decided == chain.Final })
		sink.has(p.OrderID, true, 1)
	}
}

// choosy are orders that take no failure.
type choosy struct{ *ledger }

func (*choosy) refuses(_ string, out rail.Outcome) error {
	if out.Status == toll.OrderFailed {
		return errors.New("never")
	}
	return nil
}
