package ledger_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// sold mints 100 credits of an order until a time.
func (b *bench) sold(ref string, end time.Time) {
	b.Helper()
	must.Get(b.Mint(b.ctx, ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: 100, EndsAt: end, Ref: ref, Order: true}))(b)
}

// back sets how many credits of an order are out of use, twice, and compares the outcome.
func (b *bench) back(ref string, total, taken, left toll.Credits) {
	b.Helper()
	for range 2 {
		got := must.Get(b.takeBackTo(ref, total))(b)
		if got.Taken != taken || got.Left != left || got.Granted != 100 {
			b.Fatalf("%+v, want %d taken and %d left", got, taken, left)
		}
	}
	audit(b, b.Ledger)
}

// T83: unspent credits are taken back at once. Credits that holds need are taken back when the
// holds end, unless they were spent.
// T83
func TestTakeBackTo(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		perm := b.permission(0)
		account := ledger.NewAccountID(plan, subscriber)
		settle := func(id string, n toll.Credits) {
			t.Helper()
			must.Get(b.Settle(b.ctx, settleOp(perm, id, n)))(b)
		}
		hold := func(n toll.Credits) string {
			t.Helper()
			h := must.Get(b.Hold(b.ctx, b.holdOp(perm, n)))(b)
			return h.RequestID
		}
		// 60 are left of 100, 30 of them held, 50 are to go.
		b.sold("a", time.Time{})
		settle("a1", 40)
		held := hold(30)
		b.back("a", 50, 30, 20)
		b.balance(30, 30)
		if lots, err := b.Lots(b.ctx, account); err != nil || len(lots) != 1 || lots[0].Ref != "a" || lots[0].Remaining != 10 {
			t.Fatalf("%+v, %v", lots, err)
		}
		settle(held, 30) // 20 of those that were to go, and 10 of the others
		b.back("a", 50, 30, 0)
		b.balance(0, 0)
		// The money comes back: so do the credits that were taken, and no others.
		b.back("a", 0, 0, 0)
		b.balance(30, 0)
		b.back("a", 100, 30, 0)
		b.balance(0, 0)
		if a, err := b.Account(b.ctx, account); err != nil || a.Subscribed(b.clock.now()) || a.Orders != 1 {
			t.Fatalf("%+v, %v", a, err)
		}

		// A hold that settles less than it held leaves credits that a repeat finds.
		b.sold("b", time.Time{})
		settle("b1", 40)
		held = hold(60)
		b.back("b", 50, 0, 50)
		settle(held, 10)
		b.balance(10, 0)
		b.back("b", 50, 50, 0)
		b.balance(0, 0)

		// Down again while holds keep credits: first what they keep, then what is taken.
		b.sold("c", time.Time{})
		held = hold(40)
		b.back("c", 80, 60, 20)
		before := must.Get(b.Account(b.ctx, account))(b)
		b.back("c", 70, 60, 10)
		if a, err := b.Account(b.ctx, account); err != nil || a.Returned != before.Returned || a.Seq != before.Seq {
			t.Fatalf("%+v, %v", a, err)
		}
		b.back("c", 20, 20, 0)
		b.balance(80, 40)
		must.Get(b.Release(b.ctx, account, held))(b)
		b.back("c", 20, 20, 0)
		b.balance(80, 0)

		// Other credits stand in for what a hold needs.
		held = hold(60)
		b.sold("d", b.clock.now().Add(time.Hour))
		b.back("c", 100, 100, 0)
		b.balance(100, 60)
		must.Get(b.Release(b.ctx, account, held))(b)

		// All of the credits end the period of an order, and fewer bring it back. After its end what returns expires.
		b.back("b", 100, 50, 0)
		b.back("d", 100, 100, 0)
		if a, err := b.Account(b.ctx, account); err != nil || a.Subscribed(b.clock.now()) {
			t.Fatalf("%+v, %v", a, err)
		}
		b.back("d", 99, 99, 0)
		if a, err := b.Account(b.ctx, account); err != nil || !a.Subscribed(b.clock.now()) {
			t.Fatalf("%+v, %v", a, err)
		}
		b.clock.add(2 * time.Hour)
		b.back("d", 0, 0, 0)
		b.balance(0, 0)
		if a, err := b.Account(b.ctx, account); err != nil || a.Expired != 100 {
			t.Fatalf("%+v, %v", a, err)
		}
	})
}

func TestTakeBackTo_Refusals(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.sold("a", time.Time{})
		if _, err := b.takeBackTo("none", 1); !ledger.IsRefused(err, ledger.NotMinted) {
			t.Fatal(err)
		}
		must.Get(b.takeBack("a"))(b)
		if _, err := b.takeBackTo("a", 1); !ledger.IsRefused(err, ledger.NotMinted) {
			t.Fatal(err)
		}
		must.Get(b.giveBack("a"))(b)
		b.back("a", 60, 60, 0)
		must.Get(b.Mint(b.ctx, ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: toll.MaxCredits - 230, Ref: "rest"}))(b)
		if _, err := b.takeBackTo("a", 0); !ledger.IsRefused(err, ledger.Overflow) {
			t.Fatal(err)
		}
		b.balance(toll.MaxCredits-190, 0)
	})
}

// Before an account has more lots than are read at first, and after it.
func TestTakeBackTo_ManyLots(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		for i := range 80 {
			b.sold(toll.NewUUID(), b.clock.now().Add(time.Duration(i+1)*time.Hour))
		}
		b.sold("last", time.Time{})
		b.back("last", 30, 30, 0)
		b.back("last", 100, 100, 0)
		b.back("last", 10, 10, 0)
		b.balance(8090, 0)
		b.clock.add(79*time.Hour + 30*time.Minute)
		b.back("last", 0, 0, 0)
		b.balance(200, 0)
	})
}

// TestAudit_TakenBack plants faults in what was taken back.
func TestAudit_TakenBack(t *testing.T) {
	for fault, want := range map[string]string{
		"UPDATE lots SET taken = taken + 1 WHERE lot_id < 0":                               "I1",
		"UPDATE lots SET taken = taken - 1, remaining = remaining + 1 WHERE lot_id < 0":    "I1",
		"UPDATE lots SET granted = granted + 1 WHERE lot_id < 0":                           "I1",
		"UPDATE lots SET ref = 'back:other' WHERE lot_id < 0":                              "I1",
		"UPDATE lots SET remaining = remaining + 60, granted = 200 WHERE lot_id > 0":       "I1",
		"UPDATE journal SET ref = x'006f74686572' WHERE kind = 4":                          "I1",
		"UPDATE lots SET remaining = 90 WHERE lot_id > 0":                                  "I3",
		"DELETE FROM lots WHERE lot_id < 0":                                                "I1",
		"UPDATE lots SET lot_id = 900 WHERE lot_id < 0":                                    "I1",
		"UPDATE lots SET taken = 0, old_end = 0, remaining = remaining + 30 WHERE taken>0": "I1",
	} {
		t.Run(fault, func(t *testing.T) {
			st, _ := storetest.Open(t, store.SQLite)
			l := ledger.New(st, ledger.Config{MACKey: make([]byte, 32)})
			defer l.Close(context.Background())
			b := &bench{TB: t, Ledger: l, clock: newClock(), ctx: context.Background()}
			b.sold("a", time.Time{})
			must.Get(b.takeBackTo("a", 30))(b)
			if found, err := b.Audit(b.ctx); err != nil || len(found) > 0 {
				t.Fatal(found, err)
			}
			must.Do(b, st.Tx(b.ctx, func(tx *store.Tx) error {
				_, err := tx.Exec(b.ctx, fault)
				return err
			}))
			found := must.Get(b.Audit(b.ctx))(b)
			for _, f := range found {
				if f.Invariant == want && (strings.Contains(f.Detail, "lot") || strings.Contains(f.Detail, "order")) {
					return
				}
			}
			t.Fatalf("found %v, want %s", found, want)
		})
	}
}

// The receipts for a dispute are those of one account since a moment, the oldest first.
func TestBurnedSince(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		perm := b.permission(0)
		b.mint(100, time.Time{})
		var want []toll.Credits
		for i := range 4 {
			b.clock.add(time.Minute)
			n := toll.Credits(i + 1)
			must.Get(b.Settle(b.ctx, settleOp(perm, fmt.Sprint("r", i), n)))(b)
			want = append(want, n)
		}
		for limit, first := range map[int]int{9: 1, 2: 1} {
			got, _, err := b.BurnedSince(b.ctx, ledger.NewAccountID(plan, subscriber), b.clock.now().Add(-2*time.Minute), limit)
			must.Do(b, err)
			var burned []toll.Credits
			for i, r := range got {
				burned = append(burned, r.Credits)
				if r.Request != fmt.Sprint("r", first+i) || r.Resource != "https://a.example/ask" || r.Transaction.IsZero() || r.At.IsZero() {
					t.Errorf("%+v", r)
				}
			}
			if end := min(first+limit, len(want)); !slices.Equal(burned, want[first:end]) {
				t.Errorf("limit %d: %v, want %v", limit, burned, want[first:end])
			}
		}
		if got, _, err := b.BurnedSince(b.ctx, ledger.NewAccountID("12", subscriber), time.Time{}, 9); err != nil || len(got) != 0 {
			t.Errorf("of another account: %+v, %v", got, err)
		}
	})
}
