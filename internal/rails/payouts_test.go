package rails

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

var seller = toll.MustAddress("0x70997970C51812dc3A010C7d01b50e0d17dc79C8")

// sold writes the rows of an order that was paid, with 44 cents of fees.
func sold(t *testing.T, st *store.Store, cents int64, at time.Time) {
	t.Helper()
	err := st.Tx(t.Context(), func(tx *store.Tx) error {
		id := toll.NewUUID()
		err := store.InsertCardPayment(t.Context(), tx, &store.CardPayment{
			OrderID: id, Seller: seller, State: "paid", Attempt: 1, Cents: cents, Currency: "usd", CreatedAt: at, UpdatedAt: at, Data: []byte("{}"),
		})
		if err != nil {
			return err
		}
		return store.InsertCardMove(t.Context(), tx, &store.CardMove{ID: "txn_" + id, OrderID: id, Kind: "charge", Cents: cents, Fee: 44, Currency: "usd", At: at})
	})
	must.Do(t, err)
}

// A payout is recorded once, although several processes record it at the same time.
func TestMarkPayout(t *testing.T) {
	for _, v := range storetest.Variants() {
		t.Run(string(v), func(t *testing.T) {
			cfg := storetest.Config(t, v)
			stores := []*store.Store{storetest.OpenConfig(t, cfg)}
			if v != storetest.SQLite {
				stores = append(stores, storetest.OpenConfig(t, cfg))
			}
			ctx, st, noon := t.Context(), stores[0], time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
			for _, at := range []time.Time{noon, noon.Add(time.Hour), noon.AddDate(0, 1, 0)} {
				sold(t, st, 500, at)
			}
			owed := func(want string) {
				t.Helper()
				all := must.Get(card.OwedOf(ctx, st, "2026-11"))(t)
				if got, _ := json.Marshal(all); string(got) != want {
					t.Errorf("owed is %s, want %s", got, want)
				}
			}
			// The count is a number, amounts are text (wire contract, section 1).
			const begins = `[{"builder":"0x70997970C51812dc3A010C7d01b50e0d17dc79C8","month":"2026-11","currency":"usd","orders":2,"charged":"1000","refunded":"0","disputed":"0","fees":"88",`
			owed(begins + `"paidOut":"0","due":"912"}]`)

			pay := func(st *store.Store, id string, cents toll.Cents) error {
				return MarkPayout(ctx, st, Payout{ID: id, Builder: seller, Month: "2026-11", Currency: "usd", Cents: cents, PaidAt: toll.At(noon)}, false)
			}
			var paid atomic.Int64
			var all sync.WaitGroup
			for i := range 40 {
				all.Go(func() {
					switch err := pay(stores[i%len(stores)], toll.NewUUID(), 114); {
					case err == nil:
						paid.Add(1)
					case !errors.Is(err, ErrNotOwed):
						t.Error(err)
					}
				})
			}
			all.Wait()
			if paid.Load() != 8 {
				t.Errorf("%d payouts of an eighth of what is owed", paid.Load())
			}
			owed(begins + `"paidOut":"912","due":"0"}]`)

			sold(t, st, 500, noon)
			const once = "6fa1c0de-0000-4000-8000-000000000001"
			for i := range 3 {
				must.Check(t, pay(stores[i%len(stores)], once, 100))
			}
			if err := pay(st, once, 101); err == nil || errors.Is(err, ErrNotOwed) {
				t.Errorf("another payout under the same id: %v", err)
			}
			// A wrong payout is corrected by a row of its own, of at most what is recorded.
			correct := func(id string, cents toll.Cents, note string) error {
				p := Payout{ID: id, Builder: seller, Month: "2026-11", Currency: "usd", Cents: cents, Note: note, PaidAt: toll.At(noon)}
				return MarkPayout(ctx, st, p, true)
			}
			const correction = "6fa1c0de-0000-4000-8000-000000000002"
			for range 2 {
				must.Check(t, correct(correction, -12, "typed twice"))
			}
			for cents, note := range map[toll.Cents]string{-1: " ", -1001: "too much", -toll.MaxCents - 1: "beyond", 0: "none"} {
				if err := correct(toll.NewUUID(), cents, note); err == nil {
					t.Errorf("a correction of %s cents was recorded", cents)
				}
			}
			const after = `[{"builder":"0x70997970C51812dc3A010C7d01b50e0d17dc79C8","month":"2026-11","currency":"usd","orders":3,"charged":"1500","refunded":"0","disputed":"0","fees":"132",`
			owed(after + `"paidOut":"1000","due":"368"}]`)
			must.Check(t, correct(toll.NewUUID(), -1000, "all of it"))
			owed(after + `"paidOut":"0","due":"1368"}]`)
			for _, workspace := range []string{"", seller.Lower()} {
				acts := storetest.Acts(t, st, workspace, "payout.marked")
				got := slices.DeleteFunc(slices.Clone(acts), func(a string) bool { return !strings.HasPrefix(a, correction) })
				if len(acts) != 8+1+2 || len(got) != 1 || !strings.Contains(got[0], `"note":"typed twice"`) || !strings.Contains(got[0], "-12") {
					t.Errorf("the audit log of %q has %d payouts, of the correction %q", workspace, len(acts), got)
				}
			}
			if _, err := CardEvidenceOf(ctx, st, toll.NewUUID()); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("the story of no order: %v", err)
			}
		})
	}
}
