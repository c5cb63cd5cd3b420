package store_test

import (
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
