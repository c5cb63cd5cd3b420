package ledger_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// Thousands of holds and lots end in one second. They are swept in slices, payments go on between them, and the sums are
// exact.
// T184
func TestMassExpiry(t *testing.T) {
	t.Parallel()
	const crowd = 1000
	// Of some orders money went back before: of them the hold of 2 keeps none, or what is to go too.
	refunded := func(i int) toll.Credits { return toll.Credits(i % 3 / 2 * (i%5 + 1)) }
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		end := b.clock.now().Add(time.Minute)
		var wg sync.WaitGroup
		next := atomic.Int64{}
		for range 250 {
			wg.Go(func() {
				for i := next.Add(1); i <= crowd; i = next.Add(1) {
					who := toll.MustAddress(fmt.Sprintf("0x%040x", i))
					p := ledger.Permission{
						Hash: toll.NewHash(), Plan: plan, Subscriber: who, Scheme: "s", Network: "n",
						CreatedAt: b.clock.now(), ExpiresAt: b.clock.now().Add(time.Hour),
					}
					ref := toll.NewUUID()
					_, err := b.Mint(b.ctx, ledger.MintOp{Plan: plan, Subscriber: who, Amount: 5, EndsAt: end, Ref: ref})
					if err == nil {
						err = b.CreatePermission(b.ctx, p)
					}
					if err == nil {
						_, err = b.Hold(b.ctx, ledger.HoldOp{Plan: plan, Subscriber: who, Permission: p.Hash, Amount: 2, Until: end})
					}
					if back := refunded(int(i)); err == nil && back > 0 {
						err = b.Do(b.ctx, p.Account(), func(t *ledger.Tx) error {
							_, err := t.TakeBackTo(ref, back)
							return err
						})
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		b.mint(1_000_000, time.Time{})
		perm := b.permission(0)
		b.clock.add(2 * time.Minute)

		var paid atomic.Int64
		ctx, stop := context.WithCancel(b.ctx)
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if _, err := b.Settle(b.ctx, settleOp(perm, fmt.Sprintf("beside-%d", i), 1)); err != nil {
					t.Error(err)
					return
				}
				paid.Add(1)
			}
		})
		swept := 0
		for {
			before := paid.Load()
			n := must.Get(b.Sweep(b.ctx))(b)
			if n == 0 {
				break
			}
			if n > 256 {
				t.Errorf("a slice of %d accounts", n)
			}
			for end := time.Now().Add(2 * time.Minute); paid.Load() == before; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("nobody pays")
				}
			}
			swept += n
		}
		stop()
		wg.Wait()
		if swept != crowd {
			t.Errorf("%d accounts swept, want %d", swept, crowd)
		}
		for i := 1; i <= crowd; i += 97 {
			a := must.Get(b.Account(b.ctx, ledger.NewAccountID(plan, toll.MustAddress(fmt.Sprintf("0x%040x", i)))))(b)
			back := refunded(i)
			if a.Balance != 0 || a.Held != 0 || a.Expired != 5-back || a.TakenBack != back || back == 0 && a.Seq != 2 {
				t.Fatalf("account %d: %+v, taken back %d", i, a, back)
			}
		}
		b.balance(1_000_000-toll.Credits(paid.Load()), 0)
	})
}
