package store_test

import (
	"maps"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// Revenue sums 100,000 rows for an answer, and refuses a range with more.
func TestRevenue_Bound(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		owner := toll.MustAddress("0x00000000000000000000000000000000000000b1")
		f := store.UsageFilter{By: store.ByDay, Owner: owner, Since: time.UnixMicro(0), Until: time.UnixMicro(1 << 50)}
		change := func(statement string, args ...any) {
			t.Helper()
			must.Do(t, st.Tx(ctx, func(tx *store.Tx) error { _, err := tx.Exec(ctx, statement, args...); return err }))
		}
		change(`INSERT INTO revenue_hours (plan_id, hour, currency, owner, orders, amount)
			WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100001)
			SELECT '1', CAST(i AS BIGINT) * 3600000000, 'USD', $1, 1, '10' FROM n`, owner.Lower())
		if _, err := store.Revenue(ctx, st, f, store.Page{}); toll.AsError(err).Code != toll.CodeBadRequest {
			t.Errorf("100,001 rows: %v", err)
		}
		f.Since = time.UnixMicro(2 * 3600000000)
		list, err := store.Revenue(ctx, st, f, store.Page{Size: 1, Ascending: true})
		if err != nil || list.Total != 4167 || list.Items[0].Orders != 22 || list.Items[0].Amount.String() != "220" {
			t.Errorf("100,000 rows: %d %+v, %v", list.Total, list.Items, err)
		}
	})
}

// One query finds the last settlement of each subscriber of each plan that is asked for, from a day on.
func TestLastSettled(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		alice, bob := toll.MustAddress("0x00000000000000000000000000000000000000a1"), toll.MustAddress("0x00000000000000000000000000000000000000b1")
		const day = int64(24 * time.Hour / time.Microsecond)
		for _, row := range []struct {
			plan    string
			day, at int64
			who     toll.Address
		}{
			{"1", 5, 5*day + 7, alice}, {"1", 6, 6*day + 1, alice}, {"2", 5, 5*day + 9, alice}, {"2", 1, day, bob}, {"3", 6, 6 * day, bob},
		} {
			if err := st.Tx(ctx, func(tx *store.Tx) error {
				_, err := tx.Exec(ctx, `INSERT INTO usage_days (plan_id, day, subscriber, settled, credits_high, credits_low, last_at)
					VALUES ($1, $2, $3, 1, 0, 1, $4)`, row.plan, row.day*day, row.who.Lower(), row.at)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		of := []store.PlanSubscriber{
			{Plan: "1", Subscriber: alice}, {Plan: "1", Subscriber: bob}, {Plan: "2", Subscriber: alice}, {Plan: "2", Subscriber: bob},
		}
		got, err := store.LastSettled(ctx, st, of, store.FromMicros(2*day))
		want := map[store.PlanSubscriber]time.Time{of[0]: store.FromMicros(6*day + 1), of[2]: store.FromMicros(5*day + 9)}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
		if none, err := store.LastSettled(ctx, st, nil, time.Time{}); err != nil || len(none) > 0 {
			t.Errorf("of none: %v, %v", none, err)
		}
	})
}
