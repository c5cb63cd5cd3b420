package ledger_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// catalogue reads lists of names from a database.
func catalogue(t *testing.T, st *store.Store, query string) []string {
	t.Helper()
	rows, err := st.Query(t.Context(), query)
	must.Do(t, err, query)
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		must.Do(t, rows.Scan(&s))
		out = append(out, s)
	}
	must.Do(t, rows.Err())
	return out
}

// Rules 1 to 3 of "Beyond one machine" as the database has them: each key of a table of accounts holds the account, columns
// are portable, and nothing happens that a statement does not say. goose_db_version is the migration library's own.
func TestCatalogue(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		// Each row: table, a blank, and the columns of a primary key or unique index, with commas.
		keys, columnTypes := keysOfSQLite, typesOfSQLite
		extras := []string{`SELECT name FROM sqlite_schema WHERE type IN ('trigger', 'view')`}
		if st.Engine() == store.Postgres {
			keys, columnTypes = keysOfPostgres, typesOfPostgres
			extras = []string{
				`SELECT tgname FROM pg_trigger WHERE NOT tgisinternal`,
				`SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
					WHERE n.nspname = current_schema() AND relkind IN ('S', 'v', 'm') AND relname NOT LIKE 'goose_db_version%'`,
				`SELECT typname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
					WHERE n.nspname = current_schema() AND typtype IN ('e', 'd')`,
				`SELECT proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = current_schema()`,
				`SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = current_schema()
					AND (column_default IS NOT NULL OR is_generated <> 'NEVER' OR is_identity <> 'NO') AND table_name <> 'goose_db_version'`,
			}
		}
		seen := map[string]bool{}
		for _, row := range catalogue(t, st, keys) {
			name, cols, _ := strings.Cut(row, " ")
			seen[name] = true
			if name == "journal" && cols == "pos" && !strings.HasSuffix(t.Name(), string(storetest.Partitioned)) {
				continue // a table that is spread has the account in this key
			}
			if slices.Contains(accountTables, name) && !slices.Contains(strings.Split(cols, ","), "account_id") {
				t.Errorf("a unique key of %s is (%s): without account_id it cannot be spread over machines", name, cols)
			}
		}
		for _, name := range accountTables {
			if !seen[name] {
				t.Errorf("table %s has no key", name)
			}
		}
		for _, row := range catalogue(t, st, columnTypes) {
			name, kind, _ := strings.Cut(row, " ")
			if name == "journal.pos" && kind == "INTEGER" && st.Engine() == store.SQLite {
				continue // the number of the row itself
			}
			if !slices.Contains([]string{"text", "bigint", "boolean", "blob", "bytea"}, strings.ToLower(kind)) {
				t.Errorf("column %s is of type %s, which is not portable", name, kind)
			}
		}
		for _, query := range extras {
			if names := catalogue(t, st, query); len(names) > 0 {
				t.Errorf("the database has %s\n%s", strings.Join(names, ", "), query)
			}
		}
	})
}

const (
	keysOfSQLite = `SELECT m.name || ' ' || (SELECT GROUP_CONCAT(c.name) FROM pragma_index_info(i.name) c)
		FROM sqlite_schema m, pragma_index_list(m.name) i WHERE m.type = 'table' AND i."unique" = 1
		UNION ALL SELECT m.name || ' ' || (SELECT GROUP_CONCAT(c.name) FROM pragma_table_info(m.name) c WHERE c.pk > 0)
		FROM sqlite_schema m WHERE m.type = 'table' AND m.name NOT IN ('goose_db_version', 'sqlite_sequence')`
	typesOfSQLite = `SELECT m.name || '.' || c.name || ' ' || c.type FROM sqlite_schema m, pragma_table_info(m.name) c
		WHERE m.type = 'table' AND m.name NOT IN ('goose_db_version', 'sqlite_sequence') AND m.name NOT LIKE 'sqlite_stat%'`
	keysOfPostgres = `SELECT c.relname || ' ' || string_agg(a.attname, ',')
		FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
		WHERE n.nspname = current_schema() AND i.indisunique AND c.relname <> 'goose_db_version' AND NOT c.relispartition
		GROUP BY c.relname, i.indexrelid`
	typesOfPostgres = `SELECT table_name || '.' || column_name || ' ' || data_type FROM information_schema.columns
		WHERE table_schema = current_schema() AND table_name <> 'goose_db_version'`
)
