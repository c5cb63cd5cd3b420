package store_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// Eight processes start on one empty database: all come up, on one schema.
func TestMigrateTogether(t *testing.T) {
	for _, v := range storetest.Variants() {
		t.Run(string(v), func(t *testing.T) {
			cfg := storetest.Config(t, v)
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					cfg := cfg
					cfg.Admin = v == storetest.SQLite && i > 0 // there is one service on a directory
					st, err := store.Open(context.Background(), cfg)
					if err != nil {
						t.Errorf("starter %d: %v", i, err)
						return
					}
					defer st.Close()
					if err := st.Tx(t.Context(), func(tx *store.Tx) error { return put(t.Context(), tx, "a", "b") }); err != nil {
						t.Errorf("starter %d: %v", i, err)
					}
				})
			}
			wg.Wait()
			st := storetest.OpenConfig(t, cfg)
			var n, versions int64
			if err := st.QueryRow(t.Context(), "SELECT COUNT(*), COUNT(DISTINCT version_id) FROM goose_db_version").Scan(&n, &versions); err != nil {
				t.Fatal(err)
			}
			if files, err := os.ReadDir("migrations"); err != nil || n != versions || versions != int64(len(files))+1 { // and version 0
				t.Errorf("%d rows, %d versions for %d files, %v", n, versions, len(files), err)
			}
		})
	}
}

func TestNewerSchema(t *testing.T) {
	for _, v := range storetest.Variants() {
		t.Run(string(v), func(t *testing.T) {
			st, cfg := storetest.OpenVariant(t, v)
			write(t, st, func(tx *store.Tx) error {
				_, err := tx.Exec(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, TRUE)")
				return err
			})
			cfg.Admin = true
			_, err := store.Open(t.Context(), cfg)
			if !errors.Is(err, store.ErrNewerSchema) {
				t.Errorf("open: %v", err)
			}
		})
	}
}

// A migration that fails leaves what came before it and nothing of itself; the next start goes on from there. Nothing
// changes under a running service.
func TestMigrateResumes(t *testing.T) {
	for _, e := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			db := emptyDatabase(t, e)
			dir := fstest.MapFS{
				"0001_a.sql": file("CREATE TABLE a (n BIGINT);"),
				"0002_b.sql": file("CREATE TABLE b (n BIGINT);\nCREATE TABLE a (n BIGINT);"),
			}
			migrate := func(frozen bool) error {
				return store.MigrateFrom(t.Context(), db, e, dir, frozen, slog.New(slog.DiscardHandler))
			}
			count := func(table string) (n int) {
				t.Helper()
				if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n); err != nil {
					return -1
				}
				return n
			}
			if err := migrate(true); err == nil || count("a") != -1 {
				t.Fatalf("migrated under a running service: %v, a %d", err, count("a"))
			}
			if err := migrate(false); err == nil {
				t.Fatal("no error")
			}
			if count("a") != 0 || count("b") != -1 {
				t.Fatalf("after the failure: a %d, b %d", count("a"), count("b"))
			}
			dir["0002_b.sql"] = file("CREATE TABLE b (n BIGINT);\nINSERT INTO b VALUES (1);")
			for range 2 {
				if err := migrate(false); err != nil {
					t.Fatal(err)
				}
			}
			if count("b") != 1 {
				t.Errorf("b %d", count("b"))
			}
			if err := migrate(true); err != nil {
				t.Errorf("nothing to do under a running service: %v", err)
			}
		})
	}
}

func file(up string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte("-- +goose Up\n" + up + "\n")}
}

func emptyDatabase(t *testing.T, e store.Engine) *sql.DB {
	t.Helper()
	cfg := storetest.Empty(t, storetest.Variant(e))
	var db *sql.DB
	if e == store.SQLite {
		var err error
		if db, err = sql.Open("sqlite", filepath.Join(cfg.Data, "x.db")); err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(1)
	} else {
		db = stdlib.OpenDB(*storetest.ConnConfig(t, cfg.Database))
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// What both engines understand alike, and what a distributed PostgreSQL allows.
func TestMigrationsArePortable(t *testing.T) {
	forbidden := regexp.MustCompile(`(?i)\b(sequence|serial|bigserial|identity|autoincrement|trigger|function|now\s*\(|current_timestamp|enum|generated|like|timestamp|jsonb?|real|double|float|numeric|default)\b`)
	comment := regexp.MustCompile(`(?m)--.*$`)
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text, err := fs.ReadFile(os.DirFS("."), f)
		if err != nil {
			t.Fatal(err)
		}
		if word := forbidden.Find(comment.ReplaceAll(text, nil)); word != nil {
			t.Errorf("%s: %s", f, word)
		}
	}
}
