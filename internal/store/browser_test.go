package store_test

import (
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestMemberSessionList_Index: the sessions of a member are found without a look at the uses of all sessions.
func TestMemberSessionList_Index(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	rows, err := st.Query(t.Context(), "EXPLAIN QUERY PLAN SELECT 1 FROM browser_sessions WHERE "+store.MemberSessions, []byte{1}, int64(0), int64(0), "0x")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int64
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(step, "SCAN") {
			t.Error(step)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}
