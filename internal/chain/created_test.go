package chain_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/rail"
)

// killed is the panic of a process that ends at a step.
type killed struct{}

// dies has a process end when it comes to a step of an order.
func (w *world) dies(step string, p rail.Purchase) {
	w.Helper()
	var at atomic.Bool
	r := w.rail(func(c *chain.Config) {
		c.At = func(s string) {
			if s == step {
				at.Store(true)
				panic(killed{})
			}
		}
	})
	func() {
		defer func() {
			if p := recover(); p != nil && p != (killed{}) {
				panic(p)
			}
		}()
		ctx, cancel := context.WithTimeout(w.Context(), patience)
		defer cancel()
		o, err := r.Pay(ctx, p)
		w.Errorf("Pay: %+v, %v", o, err)
	}()
	if !at.Load() {
		w.Fatalf("the order never came to %q", step)
	}
}

// A process that ends before anything is sent: another one pays the order, once.
// F10
func TestKilledBeforeItIsSent(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		owner := w.account(usdc, 100_000_000)
		d := w.delegation(owner, 10_000)
		var killed []rail.Purchase
		for _, step := range []string{"order", "created", "signing", "signed"} {
			for _, p := range []rail.Purchase{purchase(owner, usdc, receiver(1), 1_000_000), by(d, purchase(owner, usdc, receiver(2), 1_000_000))} {
				w.dies(step, p)
				w.dies("order", p) // and the next one, too
				killed = append(killed, p)
			}
		}
		w.has(owner, usdc, 100_000_000)
		r := w.running()
		for _, p := range killed {
			w.paid(r, p)
		}
		w.has(owner, usdc, 92_000_000, receiver(1), usdc, 4_000_000, receiver(2), usdc, 4_000_000)
	})
}

// An order that cannot be paid is given back once, also when the process ends around its failure.
// F10
func TestKilledAtAFailure(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	owner := w.account(usdc, 999_999)
	first, second := purchase(owner, usdc, receiver(1), 1_000_000), purchase(owner, usdc, receiver(1), 1_000_000)
	w.dies("signing", first)
	w.dies("signed", second)
	w.give(owner, usdc, 1)
	r := w.running()
	w.fails(r, second, toll.CodeChainBalance) // that was decided
	w.paid(r, first)                          // that was not
	w.has(owner, usdc, 0, receiver(1), usdc, 1_000_000)
	w.idle()
	w.books.mu.Lock()
	defer w.books.mu.Unlock()
	if f, ok := w.books.failed[second.OrderID]; !ok || f.Code != toll.CodeChainBalance {
		t.Errorf("the sink heard of the failure: %+v", f)
	}
	if _, ok := w.books.paid[first.OrderID]; !ok {
		t.Error("the sink did not hear of the payment")
	}
}
