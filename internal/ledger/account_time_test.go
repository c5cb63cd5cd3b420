package ledger_test

import (
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

var otherSubscriber = toll.MustAddress("0x90F79bf6EB2c4f870365E785982E1f101E93b906")

// onFirst runs f the first time that the writer of l comes to this step.
func onFirst(l *ledger.Ledger, step string, f func()) {
	var once sync.Once
	ledger.SetFailpoint(l, func(at string) {
		if at == step {
			once.Do(f)
		}
	})
}

// TestAnotherAccountsTimeEndsNothing: the time of an account that a fast clock has written is its own. It must not end
// the lots and holds of an account that happens to be in the same batch.
// F21
func TestAnotherAccountsTimeEndsNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		mint := func(to toll.Address, end time.Time) {
			t.Helper()
			must.Get(b.Mint(b.ctx, ledger.MintOp{Plan: plan, Subscriber: to, Amount: 100, EndsAt: end, Ref: toll.NewUUID(), Order: true}))(b)
		}
		due := func(to toll.Address, life time.Duration) {
			t.Helper()
			h := toll.NewHash()
			must.Do(b, b.CreatePermission(b.ctx, ledger.Permission{Hash: h, Plan: plan, Subscriber: to, CreatedAt: b.clock.now(), ExpiresAt: b.clock.now().Add(24 * time.Hour)}))
			op := b.holdOp(h, 1)
			op.Subscriber, op.Until = to, b.clock.now().Add(life)
			must.Get(b.Hold(b.ctx, op))(b)
		}
		mint(subscriber, start.Add(30*time.Minute))
		due(subscriber, time.Second)
		b.clock.add(time.Hour) // the clock of another process
		mint(otherSubscriber, time.Time{})
		b.clock.add(-time.Hour)
		due(otherSubscriber, 0)
		b.clock.add(time.Minute)

		// Both accounts have a hold that is over, and their operations wait together behind a third.
		third := ledger.NewAccountID("12", subscriber)
		busy, locked := make(chan struct{}), make(chan struct{})
		onFirst(b.Ledger, "begin", func() { close(locked); <-busy })
		errs := make(chan error, 3)
		go func() { errs <- b.Touch(b.ctx, third) }()
		<-locked
		for _, to := range []toll.Address{subscriber, otherSubscriber} {
			go func() { errs <- b.Touch(b.ctx, ledger.NewAccountID(plan, to)) }()
		}
		for b.Waiting() < 2 {
			time.Sleep(time.Millisecond)
		}
		close(busy)
		for range 3 {
			must.Do(b, <-errs)
		}
		b.balance(100, 0)
	})
}

// TestHoldLivesByTheTimeOfItsAccount: a hold that a process with a slow clock makes on an account that a fast one has
// written is not over before it begins.
// F21
func TestHoldLivesByTheTimeOfItsAccount(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		perm := b.permission(0)
		b.clock.add(time.Hour)
		b.mint(10, time.Time{})
		b.clock.add(-time.Hour)
		h := must.Get(b.Hold(b.ctx, b.holdOp(perm, 10)))(b)
		must.Do(b, b.Touch(b.ctx, ledger.NewAccountID(plan, subscriber)))
		b.balance(10, 10)
		if want := start.Add(time.Hour + time.Minute); !h.Until.Equal(want) {
			t.Errorf("the hold ends at %v, want %v", h.Until, want)
		}
	})
}
