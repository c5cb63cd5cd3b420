package store_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// What is watched of the mirror of burns and of audits: nothing at first, then the oldest period that is not final, and the
// outcome of the last audit.
func TestWatch(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		watch := func() store.Watched {
			t.Helper()
			return must.Get(st.Watch(t.Context()))(t)
		}
		if w := watch(); w.Mirror != 0 || !w.MirrorEnd.IsZero() || !w.Audit.At.IsZero() {
			t.Errorf("%+v", w)
		}
		at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
		end := at.Add(time.Hour)
		number := at.UnixMicro() / time.Hour.Microseconds()
		write(t, st, func(tx *store.Tx) error {
			ctx := t.Context()
			if _, err := store.PutSettingIfAbsent(ctx, tx, store.SettingMirrorPeriod, []byte("1h0m0s")); err != nil {
				return err
			}
			for n, state := range []string{"final", "closed", "closed"} {
				p := &store.MirrorPeriod{Period: number + int64(n) - 1, Credits: "0", State: state}
				if err := store.InsertMirrorPeriod(ctx, tx, p, nil, nil); err != nil {
					return err
				}
			}
			return store.NoteAudit(ctx, tx, store.LastAudit{At: end, Findings: 2})
		})
		if w := watch(); w.Mirror != 2 || !w.MirrorEnd.Equal(end) || !w.Audit.At.Equal(end) || w.Audit.Findings != 2 {
			t.Errorf("%+v", w)
		}
	})
}

// Open orders are counted by the state of their payment, whatever other orders and payments there are. Those beyond the bound count
// as not read, so that the sum is always that of the open orders.
func TestWatch_States(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		want := map[[2]string]int64{}
		undecided := int64(0)
		place := func(n int, rail, state string, open bool) {
			o := &store.Order{
				ID: toll.NewUUID(), Account: [16]byte{byte(n), byte(n >> 8)}, Plan: "5", Subscriber: bob, Status: toll.OrderCreated,
				Amount: toll.UnitsOf(7), Currency: "USDC", CreatedAt: noon, UpdatedAt: noon, Open: open, Rail: rail,
			}
			write(t, st, func(tx *store.Tx) (err error) {
				ctx := context.Background()
				switch rail {
				case "card":
					p := &store.CardPayment{
						OrderID: o.ID, Account: o.Account, Seller: bob, Payer: alice, State: state, Cents: 7, Currency: "usd",
						Undecided: state == "paid", CreatedAt: noon, UpdatedAt: noon, Data: []byte(`{}`),
					}
					if err = store.InsertCardPayment(ctx, tx, p); err == nil && p.Undecided {
						undecided++
						err = store.PutJob(ctx, tx, store.Job{Kind: store.JobCardDecide, Key: []byte(o.ID), Due: noon})
					}
				case "crypto":
					_, err = store.InsertChainOp(ctx, tx, &store.ChainOp{
						ID: o.ID, Kind: "order", State: state, NonceKey: []byte(o.ID), UpdatedAt: noon, Data: []byte(`{}`),
					})
				}
				if err != nil {
					return err
				}
				return store.InsertOrder(ctx, tx, o)
			})
			if open && rail != "" {
				want[[2]string{rail, state}]++
			}
		}
		orders := 0
		for range 25 { // more than one statement asks for
			for _, state := range []string{"page", "pending", "paid"} {
				place(orders, "card", state, true)
				place(orders+1, "card", state, false)
				orders += 2
			}
			for _, state := range []string{"signed", "sent"} {
				place(orders, "crypto", state, true)
				place(orders+1, "crypto", state, false)
				orders += 2
			}
		}
		place(orders, "", "", true)
		w, err := st.Watch(t.Context())
		if err != nil || !maps.Equal(w.States, want) {
			t.Errorf("%v, %v, want %v", w.States, err, want)
		}
		if w.Open["card"] != 75 || w.Open["crypto"] != 50 || w.Undecided["card"] != undecided {
			t.Errorf("%+v", w)
		}
		for limit, rest := range map[int]int64{0: 125, 30: 95, 124: 1, 125: 0} {
			got, err := store.OpenStates(st, t.Context(), limit, w.Open)
			sums, left := map[string]int64{}, int64(0)
			for of, n := range got {
				sums[of[0]] += n
				if of[1] == store.StateNotRead {
					left += n
				}
			}
			if err != nil || sums["card"] != 75 || sums["crypto"] != 50 || left != rest {
				t.Errorf("at most %d orders: %v, %v", limit, got, err)
			}
		}
	})
}

// What is watched is read at every scrape: no table that grows is read in whole.
func TestWatch_Plans(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) {
			st, _ := storetest.OpenVariant(t, v)
			write(t, st, func(tx *store.Tx) error { // a statement is made for open orders alone
				for _, r := range store.Rails {
					o := &store.Order{ID: toll.NewUUID(), Account: [16]byte{1}, Open: true, OpenKey: r.Name, Rail: r.Name, CreatedAt: noon, UpdatedAt: noon}
					if err := store.InsertOrder(t.Context(), tx, o); err != nil {
						return err
					}
				}
				return nil
			})
			statements := map[string]bool{}
			st.Trace(func(_ uint64, statement string) { statements[statement] = true })
			_, err := st.Watch(t.Context())
			st.Trace(nil)
			if err != nil || len(statements) < 10 {
				t.Errorf("%d statements, %v", len(statements), err)
			}
			for statement := range statements {
				if strings.Contains(statement, "FROM webhooks GROUP") || strings.Contains(statement, "goose_db_version") {
					continue // there are few
				}
				if fault := storetest.Scans(t, st, statement, true); fault != "" {
					t.Error(fmt.Sprint(fault, "\n", statement))
				}
			}
		})
	}
}
