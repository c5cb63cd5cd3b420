package server_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/backup"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// Migrations of two later releases. The first one adds what is safe for this release. The second one also moves a table, and then
// makes so many more that a kill meets one of them.
var (
	onlineMigration = map[string]string{"9001_next.sql": `-- +goose Up
-- online: this release reads and writes none of it.
ALTER TABLE requests ADD COLUMN next TEXT;
ALTER TABLE accounts ADD COLUMN next TEXT;
ALTER TABLE permissions ADD COLUMN next BIGINT;
ALTER TABLE plans ADD COLUMN next TEXT;
CREATE TABLE next (id BIGINT NOT NULL, PRIMARY KEY (id));
`}
	offlineMigrations = func() map[string]string {
		all := maps.Clone(onlineMigration)
		all["9002_moved.sql"] = "-- +goose Up\nALTER TABLE sub_tasks RENAME TO moved_sub_tasks;\n"
		for n := 9003; n <= lastMigration; n++ {
			all[fmt.Sprintf("%d_more.sql", n)] = fmt.Sprintf(`-- +goose Up
CREATE TABLE more_%[1]d (id BIGINT NOT NULL, PRIMARY KEY (id));
INSERT INTO more_%[1]d WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 10000) SELECT id FROM n;
`, n)
		}
		return all
	}()
)

const lastMigration = 9060

// The programs of later releases are built once.
var (
	laterSafe   = laterOnce("toll-safe", onlineMigration)
	laterUnsafe = laterOnce("toll-unsafe", offlineMigrations)
)

func laterOnce(name string, migrations map[string]string) func(t *testing.T) string {
	var once sync.Once
	var program string
	return func(t *testing.T) string {
		t.Helper()
		once.Do(func() {
			files := map[string]string{}
			for file, text := range migrations {
				files["internal/store/migrations/"+file] = text
			}
			program = servertest.Later(t, name, files)
		})
		if program == "" {
			t.Fatal("the later release was not built")
		}
		return program
	}
}

// schemaOf returns the version of the schema of a database.
func schemaOf(t *testing.T, o servertest.Options) (version int64) {
	t.Helper()
	if o.Database == "" {
		snapshot := must.Get(store.CheckSnapshot(t.Context(), copyOf(t, o)))(t)
		return snapshot.Schema.Version
	}
	conn := must.Get(pgx.ConnectConfig(t.Context(), storetest.ConnConfig(t, o.Database)))(t)
	defer conn.Close(context.Background())
	row := conn.QueryRow(t.Context(), "SELECT MAX(version_id) FROM goose_db_version WHERE is_applied")
	must.Do(t, row.Scan(&version))
	return version
}

// migrationsOf is [schemaOf] of a database that may have no schema yet: 0.
func migrationsOf(t *testing.T, o servertest.Options) (version int64) {
	t.Helper()
	var db *sql.DB
	if o.Database != "" {
		db = stdlib.OpenDB(*storetest.ConnConfig(t, o.Database))
	} else {
		var err error
		if db, err = sql.Open("sqlite", "file:"+filepath.Join(o.Data, "toll.db")+"?mode=rw"); err != nil {
			t.Fatal(err)
		}
	}
	defer db.Close()
	_ = db.QueryRowContext(t.Context(), "SELECT MAX(version_id) FROM goose_db_version WHERE is_applied").Scan(&version) // there may be none
	return version
}

// copyOf returns a copy of the embedded database with what is in its write-ahead log.
func copyOf(t *testing.T, o servertest.Options) string {
	t.Helper()
	st := must.Get(store.Open(t.Context(), store.Config{Data: o.Data, ReadOnly: true, Schema: store.AnySchema}))(t)
	defer st.Close()
	path := filepath.Join(t.TempDir(), "copy.db")
	must.Do(t, st.Snapshot(t.Context(), path))
	return path
}

// fails runs a command of a program that must be refused with words of why and what to do.
func fails(t *testing.T, program string, o servertest.Options, says string, args ...string) {
	t.Helper()
	out, code := servertest.Run(t, program, o, args...)
	if code != 1 || !strings.Contains(out, says) {
		t.Errorf("toll %s: exit %d, and it does not say %q:\n%s", strings.Join(args, " "), code, says, out)
	}
}

// works runs a command of a program that must be carried out.
func works(t *testing.T, program string, o servertest.Options, args ...string) string {
	t.Helper()
	out, code := servertest.Run(t, program, o, args...)
	if code != 0 {
		t.Errorf("toll %s: exit %d:\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// Only serve and migrate change a schema. Local commands of a later release leave the database to
// the release that serves it, whether that one runs or is stopped.
// F24
func TestLocalCommandsDoNotMigrate(t *testing.T) {
	t.Parallel() // it mostly waits for its build
	later := laterUnsafe(t)
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		ours := servertest.Program(t)
		servertest.Key(t, o, "ann")
		service := servertest.Start(t, o)
		before := schemaOf(t, o)
		commands := func(t *testing.T) {
			out := works(t, later, o, "doctor", "--url", service.URL)
			if !strings.Contains(out, "pending") || !strings.Contains(out, "toll migrate") {
				t.Errorf("doctor does not name the pending migration:\n%s", out)
			}
			fails(t, later, o, "toll migrate", "audit")
			fails(t, later, o, "toll migrate", "keys", "create", "--local", "--account", "bob")
			fails(t, later, o, "toll migrate", "keys", "create", "--local", "--init", "--account", "bob")
			fails(t, later, o, "toll migrate", "keys", "rotate-signing", "--local")
			if o.Database == "" {
				works(t, later, o, "backup", filepath.Join(t.TempDir(), "older.backup"))
			}
			if after := schemaOf(t, o); after != before {
				t.Fatalf("the schema was %d and is %d", before, after)
			}
			works(t, ours, o, "audit")
		}
		t.Run("running", commands)
		service.Kill()
		t.Run("stopped", func(t *testing.T) {
			for _, args := range [][]string{{"audit"}, {"keys", "create", "--local", "--account", "bob"}} {
				fails(t, later, o, "toll migrate", args...)
			}
			out, _ := servertest.Run(t, later, o, "doctor")
			if !strings.Contains(out, "pending") {
				t.Errorf("doctor does not name the pending migration:\n%s", out)
			}
			if after := schemaOf(t, o); after != before {
				t.Fatalf("the schema was %d and is %d", before, after)
			}
		})
		again := servertest.Start(t, o)
		works(t, ours, o, "audit")
		again.Kill()
	})
}

// A start that is killed again and again makes a part of the schema each time. The last one completes it and serves.
// F24
func TestKilledWhileItMigrates(t *testing.T) {
	t.Parallel()
	later := laterUnsafe(t)
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) {
			cfg := storetest.Empty(t, v)
			o := servertest.Options{Data: cfg.Data, Database: cfg.Database, MasterKeyFile: freshMasterKey(t)}
			parts := map[int64]bool{}
			var p *servertest.Process
			for pause := 40 * time.Millisecond; pause < patience; pause += pause / 12 {
				p = servertest.LaunchProgram(t, later, o)
				if p.WaitHealthy(pause) == nil {
					break
				}
				p.Kill()
				if n := migrationsOf(t, o); n > 0 {
					parts[n] = true
				}
			}
			whole := schemaOf(t, o)
			delete(parts, whole)
			t.Logf("killed with %d different parts of the schema %d", len(parts), whole)
			if len(parts) == 0 || whole != lastMigration {
				t.Errorf("it was never killed while it made the schema, or it made %d", whole)
			}
			c := newStand(t, p.URL, keyBy(t, later, o, "builder"), keyBy(t, later, o, "subscriber"), 10)
			if res, err := c.patient.settle(t.Context(), "one"); err != nil || !res.Success {
				t.Errorf("%+v %v", res, err)
			}
			works(t, later, o, "audit")
		})
	}
}

// keyBy makes an API key with a release of the program, which makes the schema, too.
func keyBy(t *testing.T, program string, o servertest.Options, account string) (k toll.APIKey) {
	t.Helper()
	out, code := servertest.Run(t, program, o, "keys", "create", "--local", "--init", "--account", account, "-o", "json")
	if err := json.Unmarshal([]byte(out[max(strings.Index(out, "{"), 0):]), &k); err != nil || code != 0 {
		t.Fatalf("toll keys create: %d %v\n%s", code, err, out)
	}
	return k
}

// A migration that is not safe for the release that serves waits until it has ended, whoever asks
// for it. Afterwards the earlier release says what to do.
// F24
func TestMigrateRefusesBesideAnOlderRelease(t *testing.T) {
	t.Parallel() // it mostly waits for its build
	later := laterUnsafe(t)
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		builder, subscriber := servertest.Key(t, o, "builder"), servertest.Key(t, o, "subscriber")
		service := servertest.Start(t, o)
		c := newStand(t, service.URL, builder, subscriber, 100)
		before := schemaOf(t, o)
		fails(t, later, o, "older release", "migrate")
		fails(t, later, o, "not safe", "migrate", "--online")
		next := servertest.LaunchProgram(t, later, o)
		code, err := next.Wait(patience)
		says := o.Database == "" || strings.Contains(next.Log.String(), "older release")
		if err != nil || code != 1 || !says {
			t.Errorf("a later release starts beside an older one: exit %d, %v\n%s", code, err, next.Log)
		}
		if after := schemaOf(t, o); after != before {
			t.Fatalf("the schema was %d and is %d", before, after)
		}
		if res, err := c.patient.settle(t.Context(), "during"); err != nil || !res.Success {
			t.Fatalf("settle after the refusals: %+v %v", res, err)
		}
		service.Kill()
		out := works(t, later, o, "migrate")
		if !strings.Contains(out, "roll back") {
			t.Errorf("migrate does not say how to roll back:\n%s", out)
		}
		if after := schemaOf(t, o); after != lastMigration {
			t.Fatalf("the schema is %d", after)
		}
		refusedToStart(t, o, "newer")
		key := []string{"keys", "create", "--local", "--account", "bob"}
		for _, args := range [][]string{{"audit"}, {"migrate"}, key} {
			fails(t, servertest.Program(t), o, "restore", args...)
		}
		out, code = servertest.Run(t, servertest.Program(t), o, "doctor")
		if code != 1 || !strings.Contains(out, "newer") || !strings.Contains(out, "restore") {
			t.Errorf("doctor of the older release: exit %d\n%s", code, out)
		}
		servertest.StartProgram(t, later, o).Kill()
		works(t, later, o, "audit")
	})
}

// A migration that is marked as safe is carried out beside the release that serves when it is told
// so. That release goes on, and may be started again.
// F24
func TestMigrateOnline(t *testing.T) {
	t.Parallel() // it mostly waits for its build
	later := laterSafe(t)
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		builder, subscriber := servertest.Key(t, o, "builder"), servertest.Key(t, o, "subscriber")
		service := servertest.Start(t, o)
		c := newStand(t, service.URL, builder, subscriber, 100)
		fails(t, later, o, "--online", "migrate")
		works(t, later, o, "migrate", "--online")
		if after := schemaOf(t, o); after != 9001 {
			t.Fatalf("the schema is %d", after)
		}
		if res, err := c.patient.settle(t.Context(), "during"); err != nil || !res.Success {
			t.Fatalf("settle beside the later schema: %+v %v", res, err)
		}
		service.Kill()
		again := servertest.Start(t, o)
		c = c.on(again.URL, builder, subscriber)
		if res, err := c.patient.settle(t.Context(), "again"); err != nil || !res.Success {
			t.Fatalf("settle after a restart on the later schema: %+v %v", res, err)
		}
		works(t, servertest.Program(t), o, "audit")
		servertest.Key(t, o, "carl")
		again.Kill()
		servertest.StartProgram(t, later, o).Kill()
	})
}

// A database from before 1.1.0 is refused by every command that works on one, and stays as it is.
func TestUnreleasedSchema(t *testing.T) {
	t.Parallel()
	const says = "created before 1.1.0 and cannot be upgraded"
	program := servertest.Program(t)
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		servertest.Key(t, o, "ann")
		st := must.Get(store.Open(t.Context(), store.Config{Data: o.Data, Database: o.Database}))(t)
		err := st.Tx(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE goose_db_version SET version_id = 94 WHERE version_id > 0")
			return errors.Join(err, store.PutSetting(t.Context(), tx, "schema_floor", []byte("94")))
		})
		must.Do(t, errors.Join(err, st.Close()))
		refusedToStart(t, o, says)
		archive := filepath.Join(t.TempDir(), "archive")
		for _, args := range [][]string{
			{"migrate"}, {"migrate", "--online"}, {"audit"}, {"doctor"}, {"export", "--before", "2026-01-01", archive}, {"keys", "create", "--local", "--account", "bob"},
		} {
			fails(t, program, o, says, args...)
		}
		if got := migrationsOf(t, o); got != 94 {
			t.Errorf("the schema is %d", got)
		}
		if o.Data == "" {
			return // restores are for the embedded database
		}
		sealed := filepath.Join(t.TempDir(), "old.backup")
		fails(t, program, o, says, "backup", sealed)
		writeOldBackup(t, o.Data, sealed)
		empty := servertest.Options{Data: t.TempDir(), MasterKeyFile: filepath.Join(o.Data, "master.key")}
		fails(t, program, empty, says, "restore", sealed)
		if left := filesOf(t, empty.Data); len(left) > 0 {
			t.Errorf("a refused restore left %v", left)
		}
	})
}

// writeOldBackup seals a database as it is, which no release of an unreleased schema does any more.
func writeOldBackup(t *testing.T, data, path string) {
	t.Helper()
	ring := must.Get(seal.FromFile(filepath.Join(data, "master.key"), false))(t)
	st := must.Get(store.Open(t.Context(), store.Config{Data: data, ReadOnly: true, Schema: store.AnySchema}))(t)
	defer st.Close()
	to, name, err := backup.ObjectStore{}.Split(path)
	must.Do(t, err)
	info := backup.Info{Environment: toll.Sandbox, CreatedAt: toll.At(time.Now()), MasterKeyID: ring.KeyID()}
	must.Get(backup.Write(t.Context(), st, ring, info, t.TempDir(), to, name))(t)
}

// A backup of an older schema is a copy of it as it is. It is restored as it is, and the next start
// migrates it.
// F24
func TestBackupOfAnOlderSchema(t *testing.T) {
	t.Parallel() // it mostly waits for its build
	later := laterUnsafe(t)
	o := servertest.Options{Data: t.TempDir()}
	servertest.Key(t, o, "ann")
	before := schemaOf(t, o)
	file := filepath.Join(t.TempDir(), "older.backup")
	works(t, later, o, "backup", file)
	restored := servertest.Options{Data: t.TempDir(), MasterKeyFile: filepath.Join(o.Data, "master.key")}
	works(t, later, restored, "restore", file)
	for _, at := range []servertest.Options{o, restored} {
		if got := schemaOf(t, at); got != before {
			t.Errorf("the schema was %d and is %d", before, got)
		}
	}
	servertest.StartProgram(t, later, restored).Kill()

	// The other way round: a backup of a later schema is of no use to this release.
	newer := filepath.Join(t.TempDir(), "newer.backup")
	works(t, later, restored, "backup", newer)
	empty := servertest.Options{Data: t.TempDir(), MasterKeyFile: restored.MasterKeyFile}
	fails(t, servertest.Program(t), empty, "newer", "restore", newer)
	fails(t, servertest.Program(t), restored, "newer", "backup", filepath.Join(t.TempDir(), "x.backup"))
}

// Doctor changes no byte of a data directory and adds no file, whether the service ended in order
// or was killed.
func TestDoctorChangesNothing(t *testing.T) {
	t.Parallel()
	program := servertest.Program(t)
	o := servertest.Options{Data: t.TempDir()}
	servertest.Key(t, o, "ann")
	check := func(t *testing.T) {
		before := filesOf(t, o.Data)
		works(t, program, o, "audit")
		out, _ := servertest.Run(t, program, o, "doctor")
		if !strings.Contains(out, "schema") {
			t.Errorf("doctor did not look at the database:\n%s", out)
		}
		after := filesOf(t, o.Data)
		delete(before, "toll.db-shm") // the index of the log, which readers share
		delete(after, "toll.db-shm")
		if !maps.Equal(before, after) {
			t.Errorf("before %v\nafter %v", before, after)
		}
	}
	t.Run("ended", check)
	servertest.Start(t, o).Kill()
	t.Run("killed", check)
}

// filesOf returns a hash of every file below a directory.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	must.Do(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir+"/")] = fmt.Sprintf("%x", sha256.Sum256(text))
		return err
	}))
	return files
}
