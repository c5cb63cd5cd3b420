package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// withoutAccount returns the unique indexes and foreign keys of tables with an account_id that lack it. The database of
// accounts can then not be distributed (ledger.md, Beyond one machine, rule 1).
func withoutAccount(ctx context.Context, st *store.Store) ([]string, error) {
	return column(ctx, st, `
		SELECT i.indexrelid::regclass::text
		FROM pg_index i
		JOIN pg_class c ON c.oid = i.indrelid AND c.relkind IN ('r', 'p')
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'account_id'
		WHERE i.indisunique AND NOT a.attnum = ANY (i.indkey) AND c.relnamespace = current_schema()::regnamespace
		UNION ALL
		SELECT k.conname::text
		FROM pg_constraint k
		JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attname = 'account_id'
		WHERE k.contype = 'f' AND NOT a.attnum = ANY (k.conkey) AND k.connamespace = current_schema()::regnamespace
		ORDER BY 1`)
}

func TestKeysNameTheAccount(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.Postgres, storetest.Partitioned} {
		t.Run(string(v), func(t *testing.T) {
			st, cfg := storetest.OpenVariant(t, v)
			// On one machine positions alone are the key of the journal; where tables are partitioned the key has the account as well.
			want := []string{"journal_pkey"}
			if v == storetest.Partitioned {
				want = nil
			}
			if names := must.Get(withoutAccount(t.Context(), st))(t); !slices.Equal(names, want) {
				t.Errorf("without account_id: %v, want %v", names, want)
			}
			if v == storetest.Partitioned {
				return
			}
			// The test sees what it is for.
			storetest.Exec(t, cfg.Database, "CREATE UNIQUE INDEX wrong ON orders (order_id)")
			storetest.Exec(t, cfg.Database, "ALTER TABLE lots ADD CONSTRAINT wrong_key FOREIGN KEY (ref) REFERENCES settings (name)")
			same(t, must.Get(withoutAccount(t.Context(), st))(t), []string{"journal_pkey", "wrong", "wrong_key"})
		})
	}
}

// Every table of accounts is really partitioned by them in the third variant, and open twice keeps it so.
func TestPartitions(t *testing.T) {
	st, cfg := storetest.OpenVariant(t, storetest.Partitioned)
	storetest.OpenConfig(t, cfg)
	rows := must.Get(st.Query(t.Context(), `SELECT c.relname::text, pg_get_partkeydef(c.oid), COUNT(h.inhrelid)
		FROM pg_class c LEFT JOIN pg_inherits h ON h.inhparent = c.oid
		WHERE c.relkind = 'p' GROUP BY c.oid, c.relname ORDER BY c.relname`))(t)
	defer rows.Close()
	var tables []string
	for rows.Next() {
		var table, by string
		var n int64
		must.Do(t, rows.Scan(&table, &by, &n))
		if by != "HASH (account_id)" || n != int64(cfg.Partitions) {
			t.Errorf("%s: %d partitions by %s", table, n, by)
		}
		tables = append(tables, table)
	}
	must.Do(t, rows.Err())
	rows.Close()
	named := must.Get(column(t.Context(), st, `SELECT DISTINCT a.attrelid::regclass::text FROM pg_attribute a
		JOIN pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p') AND NOT c.relispartition
		WHERE a.attname = 'account_id' ORDER BY 1`))(t)
	if !slices.Equal(tables, named) {
		t.Errorf("partitioned are %v, with an account are %v", tables, named)
	}
	for _, table := range []string{"accounts", "journal", "journal_accounts", "lots", "orders", "permissions", "request_keys", "requests", "sub_tasks"} {
		if !slices.Contains(tables, table) {
			t.Errorf("%s is not partitioned", table)
		}
	}
}

func column(ctx context.Context, q store.Querier, text string) ([]string, error) {
	rows, err := q.Query(ctx, text)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var values []string
	for rows.Next() {
		var v string
		if err := rows.Scan(&v); err != nil {
			return nil, fmt.Errorf("scan: %w", err)
		}
		values = append(values, v)
	}
	return values, rows.Err()
}
