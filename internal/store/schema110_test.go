package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

const (
	baseline110 = "0100_baseline.sql"
	rows110     = "testdata/schema/1.1.0/rows.jsonl"
	sum110      = "testdata/schema/1.1.0/sum"
)

// TestSchema110 upgrades a database of release 1.1.0, with orders and holds in every state, and finds its books right.
func TestSchema110(t *testing.T) {
	text := must.Get(os.ReadFile("migrations/" + baseline110))(t)
	rows := must.Get(os.ReadFile(rows110))(t)
	for _, e := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			db, cfg := emptyDatabase(t, e)
			floor := "INSERT INTO settings (name, value) VALUES ('schema_floor', CAST('100' AS {{BYTES}}));\n"
			dir := fstest.MapFS{baseline110: {Data: []byte(store.Words(e, 0).Replace(string(text) + "\n" + floor))}}
			must.Get(store.MigrateFrom(t.Context(), db, e, dir, nil, slog.New(slog.DiscardHandler)))(t)
			exec := func(q string, args ...any) {
				t.Helper()
				if _, err := db.ExecContext(t.Context(), q, args...); err != nil {
					t.Fatalf("%s: %v\nUntil 1.1.0 is released, go test ./internal/checkout -run TestSchema_Rows -update writes new rows", q, err)
				}
			}
			exec("DELETE FROM journal_cursors")
			for line := range bytes.Lines(rows) {
				statement, args := insertion(t, line)
				exec(statement, args...)
			}
			must.Do(t, db.Close())
			cfg.Schema = store.UpgradeSchema
			st := storetest.OpenConfig(t, cfg)
			now := time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC)
			books := ledger.New(st, ledger.Config{Clock: func() time.Time { return now }, MACKey: []byte("0123456789abcdef0123456789abcdef")})
			found, err := books.Audit(t.Context())
			if err := errors.Join(err, books.Close(context.Background())); err != nil || len(found) > 0 {
				t.Error(err, found)
			}
			orders, err := store.AuditOrders(t.Context(), st)
			logged, err2 := store.AuditChains(t.Context(), st)
			events, err3 := store.AuditEvents(t.Context(), st, nil)
			if err := errors.Join(err, err2, err3); err != nil || len(orders)+len(logged)+len(events) > 0 {
				t.Error(err, orders, logged, events)
			}
		})
	}
}

// insertion returns the statement that adds a row of the data set, and its values.
func insertion(t *testing.T, line []byte) (statement string, args []any) {
	t.Helper()
	var table string
	var row map[string]any
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	must.Do(t, d.Decode(&[]any{&table, &row}))
	names, marks := slices.Sorted(maps.Keys(row)), []string{}
	for i, name := range names {
		v := row[name]
		var err error
		switch typed := v.(type) {
		case json.Number:
			v, err = typed.Int64()
		case []any:
			v, err = hex.DecodeString(typed[0].(string))
		}
		must.Do(t, err)
		args, marks = append(args, v), append(marks, fmt.Sprintf("$%d", i+1))
	}
	return "INSERT INTO " + table + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(marks, ", ") + ")", args
}

// TestSchema110_Frozen: the schema of release 1.1.0 and its data set never change once it is released. The file sum, which the release
// adds, has their SHA-256; without it the test fails as soon as the tag v1.1.0 exists.
func TestSchema110_Frozen(t *testing.T) {
	sum := sha256.New()
	text, err := os.ReadFile("migrations/" + baseline110)
	rows, err2 := os.ReadFile(rows110)
	must.Do(t, errors.Join(err, err2))
	for _, words := range []*strings.Replacer{store.Words(store.SQLite, 0), store.Words(store.Postgres, 0), store.Words(store.Postgres, 1)} {
		sum.Write([]byte(words.Replace(string(text))))
	}
	sum.Write(rows)
	got := hex.EncodeToString(sum.Sum(nil))
	want, err := os.ReadFile(sum110)
	switch {
	case err == nil && strings.TrimSpace(string(want)) != got:
		t.Errorf("schema and rows of 1.1.0 have the sum %s, and were released with %s", got, want)
	case err != nil:
		tags, _ := exec.Command("git", "tag", "--list", "v1.1.0").Output() // an archive has no tags
		if len(tags) > 0 {
			t.Errorf("1.1.0 is released: write %s to internal/store/%s", got, sum110)
		}
	}
}
