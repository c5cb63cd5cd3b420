package ledger_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store/storetest"
)

// Statements that PostgreSQL planned while the journal was empty, and never analyzed, still use its keys when it has grown.
func TestPlans_JournalThatGrew(t *testing.T) {
	cfg := storetest.Config(t, storetest.Postgres)
	conn := must.Get(pgx.ConnectConfig(t.Context(), storetest.ConnConfig(t, cfg.Database)))(t)
	defer conn.Close(t.Context())
	exec := func(q string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	texts := map[string]string{}
	for _, dir := range []string{".", filepath.Join("..", "store")} {
		for _, s := range statements(t, dir) {
			texts[s.name] = s.text
		}
	}
	const hash = `'\x00000000000000000000000000000000'`
	checked := map[string][]string{ // arguments
		"JournalAfter":   {"100", "500"},
		"SQLBurn":        {`'\x00'`, hash},
		"sqlAccountTail": {"49000", "1099511627776", hash, "1", "500"},
		"sqlTail":        {"49000", "1099511627776", hash},
		"sqlChunks":      {hash, "0", "4"},
		"sqlPositions":   {"7"},
		"sqlMirrorBurns": {"100", "5000", "5000"},
		"sqlBurnsByID":   {`'\x00'`, "'0x1'", "64"},
		"JournalAt":      {"5", "6", "7", "8"},
	}
	for _, table := range []string{"journal", "journal_commitments", "journal_accounts"} {
		exec("ALTER TABLE " + table + " SET (autovacuum_enabled = off)")
	}
	types := map[string]string{}
	for name, args := range checked {
		text := texts[name]
		if text == "" {
			t.Fatalf("%s is no statement any more", name)
		}
		if name == "JournalAt" {
			text += "($1, $2, $3, $4)"
		}
		exec("PREPARE " + name + types[name] + " AS " + text)
		for range 6 { // then PostgreSQL may keep a plan
			exec("EXECUTE " + name + "(" + strings.Join(args, ", ") + ")")
		}
	}
	exec(`INSERT INTO journal SELECT n, n, 2, 1, 1, n, decode(lpad(to_hex(n % 100), 32, '0'), 'hex'), decode(lpad(to_hex(n), 64, '0'), 'hex'),
		decode(lpad(to_hex(n), 50, '0'), 'hex'), decode(repeat('00', 150), 'hex') FROM generate_series(1, 50000) AS n`)
	exec(`INSERT INTO journal_commitments SELECT n, n FROM generate_series(1, 50000) AS n`)
	exec(`INSERT INTO journal_accounts SELECT decode(lpad(to_hex(n % 100), 32, '0'), 'hex'), n, '\x00' FROM generate_series(1, 5000) AS n`)
	for name, args := range checked {
		rows := must.Get(conn.Query(t.Context(), "EXPLAIN EXECUTE "+name+"("+strings.Join(args, ", ")+")", pgx.QueryExecModeSimpleProtocol))(t)
		plan := must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
		text := strings.Join(plan, "\n")
		if strings.Contains(text, "Seq Scan on journal") || strings.Contains(text, "Index Scan on journal_burns") {
			t.Errorf("%s:\n%s", name, text)
		}
		t.Log(fmt.Sprint(name, ":\n", text))
	}
}
