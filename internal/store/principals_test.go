package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestPrincipalList: the list of all accounts has each of them once, the newest first, also those that were made at the same time,
// and reads only the rows of its part, by an index.
func TestPrincipalList(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		began := time.UnixMicro(1_700_000_000_000_000)
		const n = 23
		must.Do(t, st.Tx(t.Context(), func(tx *store.Tx) error {
			for i := range n {
				p := store.Principal{Address: toll.MustAddress(fmt.Sprintf("0x%040x", i+1)), CreatedAt: began.Add(time.Duration(i/3) * time.Second)}
				if err := store.InsertPrincipal(t.Context(), tx, p); err != nil {
					return err
				}
			}
			return nil
		}))
		var statements []string
		st.Trace(func(_ uint64, statement string) {
			if strings.Contains(statement, "principals") {
				statements = append(statements, statement)
			}
		})
		var got []string
		for _, ascending := range []bool{true, false} {
			got = nil
			for page := (store.Page{Size: 5, Ascending: ascending}); ; {
				list := must.Get(store.PrincipalList(t.Context(), st, page))(t)
				if list.Total != -1 {
					t.Errorf("a part says that there are %d", list.Total)
				}
				for _, p := range list.Items {
					got = append(got, p.Address.Lower())
				}
				if page.Cursor = list.Next; list.Next == "" {
					break
				}
			}
			want := slices.Clone(got)
			slices.Sort(want)
			if !ascending {
				slices.Reverse(want)
			}
			if len(got) != n || !slices.Equal(got, want) {
				t.Errorf("ascending %t: %d accounts: %v", ascending, len(got), got)
			}
		}
		st.Trace(nil)
		if list, err := store.PrincipalList(t.Context(), st, store.Page{Size: 100}); err != nil || list.Total != n {
			t.Errorf("one part with all: %d %v", list.Total, err)
		}
		if len(statements) < 4 {
			t.Errorf("only %d statements", len(statements))
		}
		for _, statement := range statements {
			if fault := storetest.Scans(t, st, statement, false); fault != "" {
				t.Errorf("%s\n%s", fault, statement)
			}
		}
	})
}
