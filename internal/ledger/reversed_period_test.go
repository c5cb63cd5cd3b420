package ledger_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
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
			must.Do(b, err)
		}
		settle := func() error {
			op := settleOp(b.permission(0), "", 0)
			op.Kind = toll.LimitTime.Kind()
			_, err := b.Settle(b.ctx, op)
			return err
		}
		mint("month", 30*24*time.Hour)
		mint("day", 24*time.Hour)
		must.Get(b.takeBack("month"))(b)
		a := must.Get(b.Account(b.ctx, account))(b)
		if want := start.Add(24 * time.Hour); !a.PeriodEnd().Equal(want) {
			t.Errorf("the period ends at %v, want %v", a.PeriodEnd(), want)
		}
		must.Do(b, settle())
		must.Get(b.takeBack("day"))(b)
		b.refused(settle(), ledger.PeriodOver)
		must.Get(b.giveBack("month"))(b)
		must.Do(b, settle())
	})
}
