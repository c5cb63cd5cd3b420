package ledger_test

import (
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestPermissionsOfKey_Index: the end of an API key reads the access tokens of that key alone. SQLite
// takes a partial index only for a statement that repeats its condition.
func TestPermissionsOfKey_Index(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	rows := must.Get(st.Query(t.Context(), "EXPLAIN QUERY PLAN "+ledger.PermissionsOfKeySQL,
		"0x01", []byte{}, int64(0), int64(64)))(t)
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var id, parent, unused int64
		var step string
		must.Do(t, rows.Scan(&id, &parent, &unused, &step))
		plan = append(plan, step)
	}
	must.Do(t, rows.Err())
	if len(plan) != 2 || !strings.Contains(plan[0], "USING INDEX permissions_key (api_key_id=?") ||
		!strings.Contains(plan[1], "SEARCH a USING PRIMARY KEY (account_id=?)") {
		t.Errorf("the plan is %q", plan)
	}
}
