package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// A withdrawal takes what is free, those credits first that end first, and leaves what holds need.
func TestWithdraw(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		perm := b.permission(0)
		account := ledger.NewAccountID(plan, subscriber)
		b.sold("mint:forever", time.Time{})
		b.sold("mint:month", b.clock.now().Add(time.Hour))
		h := must.Get(b.Hold(b.ctx, b.holdOp(perm, 30)))(b)

		done := must.Get(b.withdraw("one", 120))(b)
		if done.Balance != 80 || done.Available != 50 || done.Transaction.IsZero() {
			t.Fatalf("%+v", done)
		}
		lots := must.Get(b.Lots(b.ctx, account))(b)
		if len(lots) != 1 || lots[0].Ref != "mint:forever" || lots[0].Remaining != 80 {
			t.Fatalf("%+v", lots)
		}
		if _, err := b.withdraw("two", 51); !ledger.IsRefused(err, ledger.Insufficient) {
			t.Fatal("credits on hold were taken", err)
		}
		must.Get(b.withdraw("three", 50))(b)
		must.Get(b.Settle(b.ctx, settleOp(perm, h.RequestID, 30)))(b)
		b.balance(0, 0)
		if a, err := b.Account(b.ctx, account); err != nil || a.TakenBack != 170 || a.Orders != 2 {
			t.Fatalf("%+v, %v", a, err)
		}
		// What was taken by hand does not come back with the money of an order.
		must.Get(b.takeBackTo("mint:forever", 100))(b)
		must.Get(b.takeBackTo("mint:forever", 0))(b)
		b.balance(0, 0)
		audit(b, b.Ledger)
	})
}

// A withdrawal whose commit was answered by an error happened once, however often the call runs.
func TestWithdraw_UnknownOutcome(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.sold("mint:a", time.Time{})
		account := ledger.NewAccountID(plan, subscriber)
		for i := range 3 {
			id, since := fmt.Sprint("w", i), int64(-1)
			runs := 0
			must.Do(b, b.Do(b.ctx, account, func(tx *ledger.Tx) error {
				if runs++; runs == 1 {
					a := must.Get(tx.Account())(b)
					since = a.Seq
					ledger.SetRetried(tx)
				}
				_, err := tx.Withdraw(id, 10, since)
				return err
			}))
			// The same act again, as a process does after a commit whose answer was lost.
			must.Do(b, b.Do(b.ctx, account, func(tx *ledger.Tx) error {
				ledger.SetRetried(tx)
				_, err := tx.Withdraw(id, 10, since)
				if !errors.Is(err, ledger.ErrRecorded) {
					t.Errorf("%s: %v, want ErrRecorded", id, err)
				}
				return err
			}))
			b.balance(toll.Credits(90-10*i), 0)
		}
		audit(b, b.Ledger)
	})
}

// A process that dies at any step of a withdrawal leaves nothing of it.
func TestWithdrawKilled(t *testing.T) {
	t.Parallel()
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		for _, point := range []string{"locked", "written"} {
			t.Run(fmt.Sprintf("%s/%s", v, point), func(t *testing.T) {
				cfg := storetest.Config(t, v)
				use := func(f func(b *bench)) {
					st := must.Get(store.Open(context.Background(), cfg))(t)
					defer func() { _ = st.Close() }()
					c := newClock()
					l := ledger.New(st, ledger.Config{Clock: c.now, MACKey: []byte("0123456789abcdef0123456789abcdef")})
					defer func() { _ = l.Close(context.Background()) }()
					b := &bench{TB: t, Ledger: l, clock: c, ctx: context.Background()}
					f(b)
					audit(t, l)
				}
				use(func(b *bench) { b.sold("mint:a", time.Time{}) })
				crash(t, cfg, "withdraw", point, toll.Hash{}, "w")
				use(func(b *bench) {
					b.balance(100, 0)
					must.Get(b.withdraw("w", 10))(b)
					b.balance(90, 0)
				})
			})
		}
	}
}

// Credits of an order are taken by hand when no rail paid it. An account with more lots than are read at first is read whole, and a
// refusal says how many credits of it can be taken.
func TestWithdraw_Unpaid(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		account := ledger.NewAccountID(plan, subscriber)
		order := func(id, rail string, end time.Time) {
			t.Helper()
			b.sold(id, end)
			must.Do(b, st.Tx(b.ctx, func(tx *store.Tx) error {
				return store.InsertOrder(b.ctx, tx, &store.Order{
					ID: id, Account: account, Plan: plan, Subscriber: subscriber, Status: toll.OrderConfirmed, Credits: 100, Rail: rail,
				})
			}))
		}
		for i := range 40 {
			order(fmt.Sprint("paid", i), "card", b.clock.now().Add(time.Hour))
		}
		b.sold("lost", b.clock.now().Add(time.Hour)) // its order is not in the database
		order("free", "", b.clock.now().Add(2*time.Hour))
		b.sold("mint:a", time.Time{})

		_, err := b.withdraw("more", 201)
		if r, ok := errors.AsType[*ledger.Refusal](err); !ok || r.Kind != ledger.Insufficient || r.Available != 200 {
			t.Fatalf("%v, want 200 available", err)
		}
		done := must.Get(b.withdraw("one", 130))(b)
		if len(done.Of) != 2 || done.Of["free"] != 100 || done.Of["mint:a"] != 30 {
			t.Fatalf("%+v", done)
		}
		must.Do(b, st.Tx(b.ctx, func(tx *store.Tx) error { return store.CountWithdrawn(b.ctx, tx, account, done.Of) }))
		if o, err := store.OrderByID(b.ctx, st, "free"); err != nil || o.Withdrawn != 100 {
			t.Fatalf("%+v, %v", o, err)
		}
		_, byHand, err := b.BurnedSince(b.ctx, account, time.Time{}, 1)
		if err != nil || len(byHand) != 1 || byHand[0].Amount != 130 || byHand[0].Commitment != done.Transaction {
			t.Fatalf("%+v, %v", byHand, err)
		}
		// What was taken of unpaid credits says nothing about paid ones.
		a := must.Get(b.Account(b.ctx, account))(b)
		if n, err := b.PaidTakenByHand(b.ctx, &a); err != nil || n != 0 {
			t.Errorf("%d paid credits were taken by hand, %v", n, err)
		}
		// An earlier build took of paid lots: here the order of 'free' turns out to be paid.
		must.Do(b, st.Tx(b.ctx, func(tx *store.Tx) error {
			_, err := tx.Exec(b.ctx, "UPDATE orders SET rail = 'card' WHERE order_id = 'free'")
			return err
		}))
		if n, err := b.PaidTakenByHand(b.ctx, &a); err != nil || n != 30 {
			t.Errorf("%d paid credits were taken by hand, %v; want 30", n, err)
		}
		audit(b, b.Ledger)
	})
}
