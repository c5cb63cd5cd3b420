package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tollhq/toll/internal/must"
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
			must.Do(t, st.QueryRow(t.Context(), "SELECT COUNT(*), COUNT(DISTINCT version_id) FROM goose_db_version").Scan(&n, &versions))
			if files, err := os.ReadDir("migrations"); err != nil || n != versions || versions != int64(len(files))+1 { // and version 0
				t.Errorf("%d rows, %d versions for %d files, %v", n, versions, len(files), err)
			}
		})
	}
}

// A schema that a newer release made is used when that release says that this one can, and refused
// otherwise.
func TestNewerSchema(t *testing.T) {
	for _, v := range storetest.Variants() {
		t.Run(string(v), func(t *testing.T) {
			st, cfg := storetest.OpenVariant(t, v)
			cfg.Admin = true
			for _, c := range []struct {
				floor string // "" is a database that only releases without the setting have migrated
				want  error
			}{
				{fmt.Sprint(store.KnownSchema() + 1), store.ErrNewerSchema},
				{"9999", store.ErrNewerSchema},
				{fmt.Sprint(store.KnownSchema()), nil},
				{"1", nil},
				{"", store.ErrNewerSchema},
			} {
				write(t, st, func(tx *store.Tx) error {
					for _, q := range []string{
						"DELETE FROM goose_db_version WHERE version_id = 9999",
						"INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, TRUE)",
						"DELETE FROM settings WHERE name = 'schema_floor'",
					} {
						if _, err := tx.Exec(t.Context(), q); err != nil {
							return err
						}
					}
					if c.floor == "" {
						return store.PutSetting(t.Context(), tx, "schema_release", []byte("7.8.9"))
					}
					return store.PutSetting(t.Context(), tx, "schema_floor", []byte(c.floor))
				})
				for _, rule := range []store.SchemaRule{store.MakeSchema, store.UpgradeSchema, store.NeedSchema} {
					cfg.Schema = rule
					again, err := store.Open(t.Context(), cfg)
					if !errors.Is(err, c.want) {
						t.Errorf("floor %q, rule %d: %v", c.floor, rule, err)
					}
					if err == nil {
						_ = again.Close()
					}
				}
			}
			_, err := store.Open(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), "7.8.9") || !strings.Contains(err.Error(), "toll restore") {
				t.Errorf("the error does not say who migrated, and what to do: %v", err)
			}
		})
	}
}

// A process that is at work when a later release takes its database over gets no new connection.
func TestTakenOver(t *testing.T) {
	st, _ := storetest.Open(t, store.Postgres)
	must.Do(t, st.Ping(t.Context()))
	write(t, st, func(tx *store.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, TRUE)")
		return errors.Join(err, store.PutSetting(t.Context(), tx, "schema_floor", []byte("9999")))
	})
	must.Check(t, st.Ping(t.Context()), "a connection from before")
	st.Pool().Reset()
	if err := st.Ping(t.Context()); !errors.Is(err, store.ErrNewerSchema) {
		t.Errorf("a new connection: %v", err)
	}
}

// Only UpgradeSchema changes a schema that exists.
func TestOlderSchema(t *testing.T) {
	for _, v := range storetest.Variants() {
		t.Run(string(v), func(t *testing.T) {
			st, cfg := storetest.OpenVariant(t, v)
			must.Do(t, st.Close())
			store.AddMigrations(t, map[string]string{"0101_next.sql": "-- +goose Up\nCREATE TABLE next (n BIGINT);"})
			cfg.Admin = true
			for _, rule := range []store.SchemaRule{store.MakeSchema, store.NeedSchema} {
				cfg.Schema = rule
				_, err := store.Open(t.Context(), cfg)
				if !errors.Is(err, store.ErrOlderSchema) || !strings.Contains(err.Error(), "toll migrate") {
					t.Errorf("rule %d: %v", rule, err)
				}
			}
			reading := cfg
			reading.Schema, reading.ReadOnly = store.AnySchema, true
			reader := storetest.OpenConfig(t, reading)
			s, err := reader.Schema(t.Context())
			if err != nil || len(s.Pending()) != 1 || s.Known != 101 || s.Version != 100 {
				t.Errorf("schema: %+v, pending %v, %v", s, s.Pending(), err)
			}
			cfg.Schema = store.UpgradeSchema
			s, err = storetest.OpenConfig(t, cfg).Schema(t.Context())
			if err != nil || s.Version != 101 || s.Floor != 101 || len(s.Pending()) > 0 {
				t.Errorf("upgraded: %+v, %v", s, err)
			}
		})
	}
}

// No rule opens a database from before 1.1.0, which may be read only to look at its schema.
func TestUnreleasedSchema(t *testing.T) {
	for _, v := range storetest.Variants() {
		t.Run(string(v), func(t *testing.T) {
			st, cfg := storetest.OpenVariant(t, v)
			for _, version := range []int64{1, 94, 99} {
				write(t, st, func(tx *store.Tx) error {
					_, err := tx.Exec(t.Context(), "UPDATE goose_db_version SET version_id = $1 WHERE version_id > 0", version)
					return err
				})
				for _, readOnly := range []bool{false, true} {
					for _, rule := range []store.SchemaRule{store.MakeSchema, store.UpgradeSchema, store.NeedSchema} {
						to := cfg
						to.Admin, to.Schema, to.ReadOnly = true, rule, readOnly
						_, err := store.Open(t.Context(), to)
						if !errors.Is(err, store.ErrUnreleased) || !strings.Contains(err.Error(), "created before 1.1.0 and cannot be upgraded") {
							t.Errorf("schema %d, rule %d: %v", version, rule, err)
						}
					}
				}
				cfg := cfg
				cfg.Schema, cfg.ReadOnly = store.AnySchema, true
				if s, err := storetest.OpenConfig(t, cfg).Schema(t.Context()); err != nil || s.Version != version {
					t.Errorf("%+v, %v", s, err)
				}
			}
		})
	}
}

// An empty database gets a schema by the rules that make one, and by no other.
func TestEmptyDatabase(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) {
			cfg := storetest.Empty(t, v)
			cfg.Admin, cfg.Schema = true, store.NeedSchema
			if _, err := store.Open(t.Context(), cfg); !errors.Is(err, store.ErrNoSchema) {
				t.Errorf("NeedSchema: %v", err)
			}
			cfg.ReadOnly = true
			if _, err := store.Open(t.Context(), cfg); !errors.Is(err, store.ErrNoSchema) {
				t.Errorf("ReadOnly: %v", err)
			}
			cfg.ReadOnly, cfg.Schema, cfg.Release = false, store.MakeSchema, "1.2.3"
			st := storetest.OpenConfig(t, cfg)
			s, err := st.Schema(t.Context())
			if err != nil || s.Usable() != nil || s.Release != "1.2.3" || s.Floor == 0 {
				t.Errorf("schema: %+v, %v", s, err)
			}
		})
	}
}

// A database that was opened for reading takes no write and leaves no file behind, not even beside
// a log of a process that was killed. It can be read where nothing can be written.
func TestReadOnly(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) {
			st, cfg := storetest.OpenVariant(t, v)
			cfg.ReadOnly = true
			reader := storetest.OpenConfig(t, cfg)
			if err := reader.Tx(t.Context(), func(*store.Tx) error { return nil }); err == nil {
				t.Error("a transaction was begun")
			}
			err := reader.QueryRow(t.Context(), "DELETE FROM settings RETURNING name").Scan(new(string))
			if err == nil || errors.Is(err, store.ErrNotFound) {
				t.Errorf("a statement that writes was run: %v", err)
			}
			write(t, st, func(tx *store.Tx) error { return put(t.Context(), tx, "a", "b") })
			if got, err := store.Setting(t.Context(), reader, "a"); err != nil || string(got) != "b" {
				t.Errorf("read %q, %v", got, err)
			}
		})
	}
}

// A read-only store connects to the primary server that target_session_attrs asks for, as failover needs it, and cannot write there.
func TestReadOnly_TargetSession(t *testing.T) {
	_, cfg := storetest.OpenVariant(t, storetest.Postgres)
	cfg.ReadOnly = true
	for _, wanted := range []string{"read-write", "primary", "any", "prefer-standby"} {
		to := cfg
		to.Database += "&target_session_attrs=" + wanted
		reader := storetest.OpenConfig(t, to)
		if _, err := store.Setting(t.Context(), reader, "none"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", wanted, err)
		}
		err := reader.QueryRow(t.Context(), "DELETE FROM settings RETURNING name").Scan(new(string))
		if err == nil || !strings.Contains(store.ErrorText(err), "read-only") {
			t.Errorf("%s: a statement that writes: %v", wanted, err)
		}
	}
	cfg.Database += "&target_session_attrs=read-only"
	if _, err := store.Open(t.Context(), cfg); err == nil {
		t.Error("a primary server was taken for a standby")
	}
}

// A migration that fails leaves what came before it and nothing of itself. The next start resumes
// there.
func TestMigrateResumes(t *testing.T) {
	for _, e := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			db, _ := emptyDatabase(t, e)
			dir := fstest.MapFS{
				"0001_a.sql": file("CREATE TABLE a (n BIGINT);"),
				"0002_b.sql": file("CREATE TABLE b (n BIGINT);\nCREATE TABLE a (n BIGINT);"),
			}
			migrate := func() error {
				_, err := store.MigrateFrom(t.Context(), db, e, dir, nil, slog.New(slog.DiscardHandler))
				return err
			}
			count := func(table string) (n int) {
				t.Helper()
				if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n); err != nil {
					return -1
				}
				return n
			}
			if err := migrate(); err == nil {
				t.Fatal("no error")
			}
			if count("a") != 0 || count("b") != -1 {
				t.Fatalf("after the failure: a %d, b %d", count("a"), count("b"))
			}
			dir["0002_b.sql"] = file("CREATE TABLE b (n BIGINT);\nINSERT INTO b VALUES (1);")
			for range 2 {
				must.Do(t, migrate())
			}
			if count("b") != 1 {
				t.Errorf("b %d", count("b"))
			}
		})
	}
}

// All migrations of a start are one line of the log, which says whether the database is new.
func TestMigrate_Log(t *testing.T) {
	db, _ := emptyDatabase(t, store.SQLite)
	dir := fstest.MapFS{}
	for i, want := range []string{
		`"msg":"database schema created","schema":2,"took":`, "",
		`"msg":"database schema migrated","migrations":2,"from":2,"to":4,"took":`,
	} {
		if want != "" {
			for n := i + 1; n <= i+2; n++ {
				dir[fmt.Sprintf("%04d_t.sql", n)] = file(fmt.Sprintf("CREATE TABLE t%d (n BIGINT);", n))
			}
		}
		var log bytes.Buffer
		must.Get(store.MigrateFrom(t.Context(), db, store.SQLite, dir, nil, slog.New(slog.NewJSONHandler(&log, nil))))(t)
		if got := log.String(); strings.Count(got, "\n") != min(len(want), 1) || !strings.Contains(got, want) {
			t.Errorf("start %d logs %q, want %q", i, got, want)
		}
	}
}

func file(up string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte("-- +goose Up\n" + up + "\n")}
}

func emptyDatabase(t *testing.T, e store.Engine) (*sql.DB, store.Config) {
	t.Helper()
	cfg := storetest.Empty(t, storetest.Variant(e))
	var db *sql.DB
	if e == store.SQLite {
		var err error
		if db, err = sql.Open("sqlite", filepath.Join(cfg.Data, "toll.db")); err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(1)
	} else {
		db = stdlib.OpenDB(*storetest.ConnConfig(t, cfg.Database))
	}
	t.Cleanup(func() { _ = db.Close() })
	return db, cfg
}

// What both engines understand alike, and what a distributed PostgreSQL allows.
func TestMigrationsArePortable(t *testing.T) {
	forbidden := regexp.MustCompile(`(?i)\b(sequence|serial|bigserial|identity|autoincrement|trigger|function|now\s*\(|current_timestamp|enum|generated|like|timestamp|jsonb?|real|double|float|numeric|default)\b`)
	comment := regexp.MustCompile(`(?m)--.*$`)
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text := must.Get(fs.ReadFile(os.DirFS("."), f))(t)
		if word := forbidden.Find(comment.ReplaceAll(text, nil)); word != nil {
			t.Errorf("%s: %s", f, word)
		}
	}
}

// A migration that is marked as online only adds: earlier releases must be able to write the tables
// that they know.
func TestOnlineMigrationsOnlyAdd(t *testing.T) {
	files := must.Get(filepath.Glob("migrations/*.sql"))(t)
	for _, f := range files {
		text := must.Get(os.ReadFile(f))(t)
		if fault := store.OnlineFault(string(text)); fault != "" {
			t.Errorf("%s: %s", f, fault)
		}
	}
	const mark = "-- +goose Up\n-- online: a reason.\n"
	for text, faulty := range map[string]bool{
		mark + "CREATE TABLE a (n BIGINT NOT NULL);\nCREATE UNIQUE INDEX a_n ON a (n);":        false,
		mark + "ALTER TABLE plans ADD COLUMN a {{TEXT}};\n-- of a\nCREATE TABLE a (n BIGINT);": false,
		"-- +goose Up\nDROP TABLE plans;":                                                      false, // not marked
		"-- +goose Up\n-- online\nCREATE TABLE a (n BIGINT);":                                  true,  // without a reason
		"-- +goose Up\n-- Online: a reason.\nCREATE TABLE a (n BIGINT);":                       true,
		mark + "DROP TABLE plans;":                                                             true,
		mark + "ALTER TABLE plans ADD COLUMN a BIGINT NOT NULL;":                               true,
		mark + "ALTER TABLE plans RENAME TO a;":                                                true,
		mark + "CREATE INDEX plans_a ON plans (owner);":                                        true, // writers wait for it
		mark + "UPDATE plans SET owner = '';":                                                  true,
		mark + "DELETE FROM discovered;":                                                       true,
	} {
		if fault := store.OnlineFault(text); (fault != "") != faulty {
			t.Errorf("fault %q of\n%s", fault, text)
		}
	}
}
