package ledger_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestReversedOrderEndsItsPeriod: a time plan whose payment was reversed is over, unless another order still runs.
// T53
func TestReversedOrderEndsItsPeriod(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		account := ledger.NewAccountID(plan, subscriber)
		mint := func(ref string, d time.Duration) {
			t.Helper()
			_, err := b.Mint(b.ctx, ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: 1, EndsAt: b.clock.now().Add(d), Ref: ref, Order: true})
			b.must(err)
		}
		settle := func() error {
			op := settleOp(b.permission(0), "", 0)
			op.Kind = toll.LimitTime.Kind()
			_, err := b.Settle(b.ctx, op)
			return err
		}
		mint("month", 30*24*time.Hour)
		mint("day", 24*time.Hour)
		_, err := b.takeBack("month")
		b.must(err)
		a, err := b.Account(b.ctx, account)
		b.must(err)
		if want := start.Add(24 * time.Hour); !a.PeriodEnd().Equal(want) {
			t.Errorf("the period ends at %v, want %v", a.PeriodEnd(), want)
		}
		b.must(settle())
		_, err = b.takeBack("day")
		b.must(err)
		b.refused(settle(), ledger.PeriodOver)
		_, err = b.giveBack("month")
		b.must(err)
		b.must(settle())
	})
}
