package storetest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

var placeholder = regexp.MustCompile(`\$(\d+)`)

// Scans returns what is slow in the way in which a store runs a statement, "" for nothing: it reads a table without an index,
// or, unless it may, sorts rows. The planner of PostgreSQL is told to use an index wherever one can be used, as it reads
// small tables without. A subquery that a statement calls sums may be scanned: it is judged by how its own tables are read.
func Scans(t testing.TB, st *store.Store, statement string, maySort bool) (fault string) {
	t.Helper()
	params := 0
	for _, m := range placeholder.FindAllStringSubmatch(statement, -1) {
		n, _ := strconv.Atoi(m[1])
		params = max(params, n)
	}
	if st.Engine() == store.SQLite {
		for _, step := range steps(t, st, "EXPLAIN QUERY PLAN "+statement, make([]any, params)...) {
			switch {
			case strings.HasPrefix(step, "SCAN ") && !strings.Contains(step, "USING") && !strings.Contains(step, "CONSTANT ROW") && !strings.Contains(step, "SUBQUERY") && step != "SCAN sums":
				return step
			case strings.HasPrefix(step, "USE TEMP B-TREE") && !maySort:
				return step
			}
		}
		return ""
	}
	err := st.Tx(t.Context(), func(tx *store.Tx) error {
		settings := []string{"enable_seqscan = off", "plan_cache_mode = force_generic_plan"}
		if !maySort {
			settings = append(settings, "enable_sort = off", "enable_bitmapscan = off", "enable_incremental_sort = off")
		}
		for _, setting := range settings {
			if _, err := tx.Exec(t.Context(), "SET LOCAL "+setting); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(t.Context(), "PREPARE explained AS "+statement); err != nil {
			return err
		}
		nulls := ""
		if params > 0 {
			nulls = "(" + strings.TrimSuffix(strings.Repeat("NULL, ", params), ", ") + ")"
		}
		rows, err := tx.Query(t.Context(), "EXPLAIN EXECUTE explained"+nulls)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var step string
			if err := rows.Scan(&step); err != nil {
				return err
			}
			if strings.Contains(step, "Seq Scan") || !maySort && strings.Contains(step, "Sort  (") {
				fault = strings.TrimSpace(step)
			}
		}
		rows.Close()
		if err := rows.Err(); err != nil {
			return err
		}
		_, err = tx.Exec(t.Context(), "DEALLOCATE explained")
		return err
	})
	if err != nil {
		return fmt.Sprint("EXPLAIN failed: ", err)
	}
	return fault
}

func steps(t testing.TB, st *store.Store, statement string, args ...any) (all []string) {
	t.Helper()
	rows := must.Get(st.Query(t.Context(), statement, args...))(t)
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int64
		var step string
		must.Do(t, rows.Scan(&id, &parent, &unused, &step))
		all = append(all, step)
	}
	must.Do(t, rows.Err())
	return all
}
