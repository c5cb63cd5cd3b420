package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// order mints the credits of an order.
func (b *bench) order(ref string, n toll.Credits) error {
	return b.DoNew(b.ctx, plan, subscriber, func(t *ledger.Tx) error {
		_, err := t.Mint(ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: n, Ref: ref, Order: true})
		return err
	})
}

func (b *bench) takeBack(ref string) (moved ledger.TakenBack, err error) {
	err = b.Do(b.ctx, ledger.NewAccountID(plan, subscriber), func(t *ledger.Tx) error {
		moved, err = t.TakeBack(ref, toll.Hash{})
		return err
	})
	return moved, err
}

func (b *bench) giveBack(ref string) (moved ledger.TakenBack, err error) {
	err = b.Do(b.ctx, ledger.NewAccountID(plan, subscriber), func(t *ledger.Tx) error {
		moved, err = t.Return(ref, toll.Hash{})
		return err
	})
	return moved, err
}

func (b *bench) takeBackTo(ref string, total toll.Credits) (moved ledger.TakenBack, err error) {
	err = b.Do(b.ctx, ledger.NewAccountID(plan, subscriber), func(t *ledger.Tx) error {
		moved, err = t.TakeBackTo(ref, total)
		return err
	})
	return moved, err
}

// withdraw takes n free credits, and finds an earlier run that was committed.
func (b *bench) withdraw(id string, n toll.Credits) (done ledger.Withdrawn, err error) {
	since := int64(-1)
	err = b.Do(b.ctx, ledger.NewAccountID(plan, subscriber), func(t *ledger.Tx) error {
		a, err := t.Account()
		if err != nil {
			return err
		}
		if since < 0 {
			since = a.Seq
		}
		got, err := t.Withdraw(id, n, since)
		if err == nil {
			done = got
		}
		return err
	})
	return done, err
}

// An error of the function rolls the credits back, and a mint says whether its lot was there already.
func TestDo_MintRollsBackWithItsRecords(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		boom := errors.New("boom")
		op := ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: 5, Ref: "order-1", Order: true}
		err := b.DoNew(b.ctx, plan, subscriber, func(t *ledger.Tx) error {
			if _, err := t.Mint(op); err != nil {
				return err
			}
			return boom
		})
		if !errors.Is(err, boom) {
			t.Fatal(err)
		}
		b.balance(0, 0)
		var all []ledger.Minted
		for range 2 {
			must.Do(b, b.DoNew(b.ctx, plan, subscriber, func(t *ledger.Tx) error {
				m, err := t.Mint(op)
				all = append(all, m)
				return err
			}))
		}
		b.balance(5, 0)
		if all[0].Replayed || !all[1].Replayed || all[0].Transaction != all[1].Transaction {
			t.Fatalf("got %+v", all)
		}
	})
}

// After an error of an operation the handle is dead, also when the function drops the error.
func TestDo_DeadHandle(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		must.Do(b, b.order("order-1", 5))
		account := ledger.NewAccountID(plan, subscriber)
		err := b.Do(b.ctx, account, func(tx *ledger.Tx) error {
			_, first := tx.TakeBack("no such order", toll.Hash{})
			b.refused(first, ledger.NotMinted)
			_, err := tx.TakeBack("order-1", toll.Hash{})
			b.refused(err, ledger.NotMinted)
			return nil
		})
		b.refused(err, ledger.NotMinted)
		b.balance(5, 0)

		err = b.Do(b.ctx, account, func(t *ledger.Tx) error {
			_, err := t.Mint(ledger.MintOp{Plan: plan + "1", Subscriber: subscriber, Amount: 5, Ref: "other"})
			return err
		})
		if err == nil {
			t.Error("a handle changed another account")
		}
		err = b.Do(b.ctx, ledger.NewAccountID(plan+"2", subscriber), func(t *ledger.Tx) error {
			_, err := t.Mint(ledger.MintOp{Plan: plan + "2", Subscriber: subscriber, Amount: 5, Ref: "other"})
			return err
		})
		if err == nil {
			t.Error("credits were minted for an account without a row, which nothing locks")
		}
	})
}

// ErrRecorded rolls back and is no error.
func TestDo_Recorded(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		must.Do(b, b.DoNew(b.ctx, plan, subscriber, func(t *ledger.Tx) error {
			if _, err := t.Mint(ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: 5, Ref: "order"}); err != nil {
				return err
			}
			return ledger.ErrRecorded
		}))
		b.balance(0, 0)
	})
}

// SQL through the handle sees what an operation wrote, and events are the last statement.
func TestDo_WritesBeforeItReturns(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		perm := b.permission(0)
		must.Do(b, b.DoNew(b.ctx, plan, subscriber, func(tx *ledger.Tx) error {
			tx.Event(store.NewEvent{Principal: subscriber, Type: toll.EventOrderPaid, Kind: "order", ID: "o", At: b.clock.now()})
			if _, err := tx.CountOrder(perm); err != nil {
				return err
			}
			if _, err := tx.Mint(ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: 5, Ref: "order", Order: true}); err != nil {
				return err
			}
			a, err := tx.Account()
			if err != nil {
				return err
			}
			p, err := tx.Permission(perm)
			if err != nil {
				return err
			}
			var balance, events int64
			if err := tx.QueryRow(b.ctx, "SELECT balance FROM accounts WHERE account_id = $1", a.ID[:]).Scan(&balance); err != nil {
				return err
			}
			if err := tx.QueryRow(b.ctx, "SELECT COUNT(*) FROM events").Scan(&events); err != nil {
				return err
			}
			if a.Balance != 5 || balance != 5 || p.Orders != 1 || events != 0 {
				t.Errorf("balance %d, row %d, orders %d, events %d", a.Balance, balance, p.Orders, events)
			}
			return nil
		}))
		var events int64
		must.Do(b, st.QueryRow(b.ctx, "SELECT COUNT(*) FROM events").Scan(&events))
		if events != 1 {
			t.Errorf("%d events", events)
		}
	})
}

// A handle makes at most 12 round trips, also on an account with many lots and holds that are over.
func TestDo_RoundTrips(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		perms := []toll.Hash{b.permission(0), b.permission(0), b.permission(0)}
		for i := range 40 {
			must.Do(b, b.order("lot-"+string(rune('a'+i)), 5))
		}
		for i, p := range perms {
			op := b.holdOp(p, toll.Credits(i+1))
			must.Get(b.Hold(b.ctx, op))(b)
		}
		b.clock.add(2 * time.Hour)
		most := 0
		act := func(f func(t *ledger.Tx) error) {
			t.Helper()
			must.Do(b, b.DoNew(b.ctx, plan, subscriber, func(t *ledger.Tx) error {
				err := f(t)
				most = max(most, ledger.Trips(t))
				return err
			}))
		}
		act(func(t *ledger.Tx) error {
			if _, err := t.TakeBack("lot-a", perms[0]); err != nil {
				return err
			}
			_, err := t.Account()
			return err
		})
		act(func(t *ledger.Tx) error {
			if _, err := t.Return("lot-a", perms[0]); err != nil {
				return err
			}
			return t.UncountOrder(perms[1])
		})
		if most > 12 || most < 3 {
			t.Errorf("a handle made %d round trips", most)
		}
	})
}
