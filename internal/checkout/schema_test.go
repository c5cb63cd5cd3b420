package checkout_test

import (
	"bytes"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

var updateRows = flag.Bool("update", false, "rewrite internal/store/testdata/schema/1.1.0/rows.jsonl")

// TestSchema_Rows makes the data set of release 1.1.0, which has orders and holds in every state. With -update it writes the rows;
// store.TestSchema110 reads them. Until the tag v1.1.0 exists, a change of the baseline needs new rows.
func TestSchema_Rows(t *testing.T) {
	cfg := storetest.Config(t, storetest.SQLite)
	s := newShop(t, storetest.SQLite, railtest.New(), cfg)
	limit := func() string { return s.cardDelegation(1000) } // a dispute freezes it
	s.bought(limit(), 0, nil)
	for _, a := range []rail.Adjustment{
		{RefundedCents: 250}, {Dispute: store.DisputeOpen, DisputedCents: 100}, {Dispute: store.DisputeWon}, {Dispute: store.DisputeLost, DisputedCents: 500},
	} {
		_, id, _ := s.bought(limit(), 40, nil)
		s.adjust(id, a)
	}
	p, id, perm := s.bought(limit(), 0, nil)
	s.hold(p, perm, 100, 20*time.Hour) // it keeps what the refund takes back
	s.adjust(id, rail.Adjustment{RefundedCents: 500})
	for _, end := range []func(id string){
		func(string) {}, func(id string) { must.Do(s, s.decides(s.at(0), id, rail.Outcome{Status: toll.OrderFinal})) }, func(id string) { s.undo(0, id) },
	} {
		o := must.Get(s.order(0, holder, s.plan(usdc(100))))(s)
		end(o.OrderID)
	}
	s.rail.Behave(railtest.Behaviour{Decline: true, Code: toll.CodeChainBalance, Reason: "too little"})
	_, err := s.order(0, holder, s.plan(usdc(100)))
	s.code(err, toll.CodeChainBalance)
	s.rail.Behave(railtest.Behaviour{})

	p, _, perm = s.bought(limit(), 7, nil)
	s.hold(p, perm, 5, 20*time.Hour)
	must.Get(s.ledgers[0].Release(s.ctx, perm.Account(), s.hold(p, perm, 5, time.Hour)))(s)
	for range 2 { // the second claim is more than the balance could hold at a time, and the first is given up
		s.hold(p, perm, 60, time.Minute)
		s.now.Add((2 * time.Minute).Microseconds())
		must.Do(s, s.ledgers[0].Touch(s.ctx, perm.Account()))
	}
	s.rail.Behave(railtest.Behaviour{Hang: true})
	must.Get(s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: s.plan(usdc(100)), Wait: time.Millisecond}, nil))(s)
	s.close(s.at(0))
	for what, statement := range map[string]string{
		"created confirmed final failed": "SELECT DISTINCT status FROM orders", "1 3 4 5": "SELECT DISTINCT CAST(state AS TEXT) FROM requests",
		"lost open won": "SELECT DISTINCT dispute FROM orders WHERE dispute IS NOT NULL",
	} {
		want := strings.Fields(what)
		slices.Sort(want)
		if got := s.words(statement); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", statement, got, want)
		}
	}
	if *updateRows && !t.Failed() {
		must.Do(s, os.WriteFile(filepath.Join("..", "store", "testdata", "schema", "1.1.0", "rows.jsonl"), s.dump(cfg), 0o644))
	}
}

// words returns a column of texts, sorted.
func (s *shop) words(statement string) (all []string) {
	s.Helper()
	rows := must.Get(s.store.Query(s.ctx, statement))(s)
	defer rows.Close()
	for rows.Next() {
		var word string
		must.Do(s, rows.Scan(&word))
		all = append(all, word)
	}
	must.Do(s, rows.Err())
	slices.Sort(all)
	return all
}

// dump returns the rows of all tables, those of tables that others refer to first. A row is an array of the table and its columns
// that are not NULL; bytes are an array with one text of hexadecimal digits.
func (s *shop) dump(cfg store.Config) []byte {
	s.Helper()
	db := must.Get(sql.Open("sqlite", filepath.Join(cfg.Data, "toll.db")))(s)
	defer db.Close()
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	for _, table := range s.words("SELECT printf('%06d ', rowid) || name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name <> 'goose_db_version'") {
		_, table, _ = strings.Cut(table, " ")
		rows := must.Get(db.QueryContext(s.ctx, "SELECT * FROM "+table))(s)
		types := must.Get(rows.ColumnTypes())(s)
		for rows.Next() {
			values, into := make([]any, len(types)), make([]any, len(types))
			for i := range values {
				into[i] = &values[i]
			}
			must.Do(s, rows.Scan(into...))
			row := map[string]any{}
			for i, v := range values {
				switch typed := v.(type) {
				case []byte:
					v = []string{hex.EncodeToString(typed)}
				case int64:
					if types[i].DatabaseTypeName() == "BOOLEAN" {
						v = typed != 0
					}
				}
				row[types[i].Name()] = v
			}
			maps.DeleteFunc(row, func(_ string, v any) bool { return v == nil })
			if table != "settings" { // they are of the test rail and of the schema
				must.Do(s, encoder.Encode([]any{table, row}))
			}
		}
		must.Do(s, rows.Err())
	}
	return out.Bytes()
}
