package store_test

import (
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
			if files, err := os.ReadDir("migrations"); err != nil || n != versions || versions != int64(len(files))+2 { // and version 0, and the one that is no file
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
	if err := st.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(t, st, func(tx *store.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, TRUE)")
		return errors.Join(err, store.PutSetting(t.Context(), tx, "schema_floor", []byte("9999")))
	})
	if err := st.Ping(t.Context()); err != nil {
		t.Errorf("a connection from before: %v", err)
	}
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
			cfg.Admin = true
			write(t, st, func(tx *store.Tx) error {
				_, err := tx.Exec(t.Context(), "DELETE FROM goose_db_version WHERE version_id = $1", store.KnownSchema())
				return err
			})
			for _, rule := range []store.SchemaRule{store.MakeSchema, store.NeedSchema} {
				cfg.Schema = rule
				_, err := store.Open(t.Context(), cfg)
				if !errors.Is(err, store.ErrOlderSchema) || !strings.Contains(err.Error(), "toll migrate") {
					t.Errorf("rule %d: %v", rule, err)
				}
			}
			cfg.Schema, cfg.ReadOnly = store.AnySchema, true
			reader := storetest.OpenConfig(t, cfg)
			s, err := reader.Schema(t.Context())
			if err != nil || len(s.Pending()) != 1 || s.Known != store.KnownSchema() || s.Version >= s.Known {
				t.Errorf("schema: %+v, pending %v, %v", s, s.Pending(), err)
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
			db := emptyDatabase(t, e)
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
				if err := migrate(); err != nil {
					t.Fatal(err)
				}
			}
			if count("b") != 1 {
				t.Errorf("b %d", count("b"))
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

// A migration that is marked as online only adds: earlier releases must be able to write the tables
// that they know.
func TestOnlineMigrationsOnlyAdd(t *testing.T) {
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
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

// migrator returns what runs the migrations from one file name up to another, and a statement.
func migrator(t *testing.T, e store.Engine, db *sql.DB) (migrate func(from, to string), exec func(q string)) {
	t.Helper()
	dir := fstest.MapFS{}
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	migrate = func(from, to string) {
		t.Helper()
		for _, f := range files {
			if name := filepath.Base(f); name >= from && name < to {
				text, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				dir[name] = &fstest.MapFile{Data: []byte(store.Words(e, 0).Replace(string(text)))}
			}
		}
		if _, err := store.MigrateFrom(t.Context(), db, e, dir, nil, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	exec = func(q string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	return migrate, exec
}

// texts returns the only column of the rows of a query.
func texts(t *testing.T, db *sql.DB, query string) (all []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// Keys from before rights existed are the operator's, with all of them; but those of a consent export no wallet.
func TestMigratedKeys(t *testing.T) {
	for _, e := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			db := emptyDatabase(t, e)
			migrate, exec := migrator(t, e, db)
			migrate("0000", "0026")
			hash := func(n int) string {
				digits := fmt.Sprintf("%064x", n)
				if e == store.SQLite {
					return "X'" + digits + "'"
				}
				return `'\x` + digits + `'`
			}
			for n := range 4 {
				exec("INSERT INTO api_keys (id, address, hash, prefix, tail, version, created_at, expires_at, revoked_at, last_used_at) VALUES (" +
					hash(n) + ", '" + alice.Lower() + "', " + hash(n) + ", 'sandbox', '', '1.1', 1, 0, 0, 0)")
			}
			for n, client := range map[int]string{1: "", 2: "program"} {
				exec("INSERT INTO oauth_grants (grant_id, client_id, client_name, digest, owner, kind, scope, resource, nonce, plan_id, agent_id, delegation_id, " +
					"refreshes, life, created_at, ends_at, revoked_at, revoking) VALUES (" + hash(100+n) + ", '" + client + "', '', " + hash(0) + ", '" + alice.Lower() +
					"', 'api_key', '', '', '', '', '', '', FALSE, 1, 1, 1, 0, FALSE)")
				exec("INSERT INTO oauth_access (id, grant_id, created_at) VALUES (" + hash(n) + ", " + hash(100+n) + ", 1)")
			}
			migrate("0026", "0027")
			got := texts(t, db, "SELECT COALESCE(made_by, 'none') || ' ' || COALESCE(rights, 'none') FROM api_keys ORDER BY id")
			const left = "read sell spend manage money keys"
			same(t, got, []string{"none none", "user " + left, "grant " + left, "none none"})
		})
	}
}

// Of the lapsed holds that were there before, a permission keeps the newest as claims.
func TestMigratedClaims(t *testing.T) {
	for _, e := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			db := emptyDatabase(t, e)
			migrate, exec := migrator(t, e, db)
			migrate("0000", "0027")
			blob := map[store.Engine]string{store.SQLite: "x'%02x'", store.Postgres: `'\x%02x'`}[e]
			bytes := func(b int) string { return fmt.Sprintf(blob, b) }
			for i := range 70 {
				for permission, state := range map[int]int{1: 4, 2: 3} {
					exec(fmt.Sprintf("INSERT INTO requests (account_id, agent_request_id, state, content, permission_hash, agent_id, resource, held, amount, "+
						"hold_ends_at, created_at, ended_at, entry_seq, previous_burn, answer) VALUES (%s, 'r%d-%02d', %d, %s, %s, '', '', 1, 0, %d, 0, 0, 0, 0, %s)",
						bytes(9), permission, i, state, bytes(0), bytes(permission), i+1, bytes(0)))
				}
			}
			migrate("0027", "0028")
			got := texts(t, db, "SELECT state || ' ' || COUNT(*) || ' ' || MIN(agent_request_id) FROM requests GROUP BY state ORDER BY 1")
			same(t, got, []string{"3 70 r2-00", "4 64 r1-06", "5 6 r1-00"})
		})
	}
}

// Plans that were there before have their receivers in the table that is new.
func TestMigratedReceivers(t *testing.T) {
	for _, e := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			db := emptyDatabase(t, e)
			migrate, exec := migrator(t, e, db)
			migrate("0000", "0023")
			for id, price := range map[string]string{
				"1": `{"receivers":["0xAb","0xcd"]}`, "2": `{"receivers":["0xAB"],"amounts":["1"]}`, "3": `{"receivers":null}`, "4": `{}`, "5": `{"receivers":[]}`,
			} {
				exec("INSERT INTO plans (plan_id, owner, name, metadata, price, credits, access_limit, max_orders, is_trial, is_listed, created_at, updated_at) " +
					"VALUES ('" + id + "', '0x1', '', '{}', '" + price + "', '{}', '', 0, FALSE, TRUE, 0, 0)")
			}
			migrate("0023", "0024")
			got := texts(t, db, "SELECT owner || ' ' || receiver FROM plan_receivers ORDER BY 1")
			same(t, got, []string{"0x1 0xab", "0x1 0xcd"})
		})
	}
}
