package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the advisory lock of PostgreSQL under which a schema is changed ("toll" in ASCII).
const migrationLock = 0x746f6c6c

// words are what differs between the engines in the text of a migration.
func words(e Engine, partitions int) *strings.Replacer {
	if e == SQLite {
		return strings.NewReplacer("{{BYTES}}", "BLOB", "{{TEXT}}", "TEXT", "{{ROWID}}", " WITHOUT ROWID", "{{PARTITION}}", "",
			"{{ROOM}}", "")
	}
	// Rows that change with every settlement get room on their page, so that a new version needs no new index entry.
	// A partitioned table takes no storage parameter.
	partition, room := "", " WITH (fillfactor = 50)"
	if partitions > 0 {
		partition, room = " PARTITION BY HASH (account_id)", ""
	}
	// Texts that are sorted compare by bytes on both engines.
	return strings.NewReplacer("{{BYTES}}", "BYTEA", "{{TEXT}}", `TEXT COLLATE "C"`, "{{ROWID}}", "", "{{PARTITION}}", partition,
		"{{ROOM}}", room)
}

// rendered is a file system whose files have the words of one engine.
type rendered struct {
	fs.FS
	words *strings.Replacer
}

func (r rendered) Open(name string) (fs.File, error) {
	f, err := r.FS.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		return f, err
	}
	text, err := fs.ReadFile(r.FS, name)
	if err != nil {
		return nil, err
	}
	return renderedFile{f, strings.NewReader(r.words.Replace(string(text)))}, nil
}

type renderedFile struct {
	fs.File
	text *strings.Reader
}

func (f renderedFile) Read(b []byte) (int, error) { return f.text.Read(b) }

// SchemaSum names the schema that this program makes: 16 hexadecimal digits of the SHA-256 of its migrations.
func SchemaSum() string {
	sum := sha256.New()
	_ = fs.WalkDir(migrations, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := migrations.ReadFile(path)
		sum.Write(text)
		return err
	}) // files that are embedded can be read
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// errNewerSchema is a database that a newer program has migrated.
var errNewerSchema = errors.New("store: the schema of the database is newer than this program")

func migrate(ctx context.Context, db *sql.DB, e Engine, partitions int, frozen bool, log *slog.Logger) error {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	return migrateFrom(ctx, db, e, rendered{dir, words(e, partitions)}, frozen, log)
}

func migrateFrom(ctx context.Context, db *sql.DB, e Engine, dir fs.FS, frozen bool, log *slog.Logger) error {
	dialect := goose.DialectSQLite3
	if e == Postgres {
		dialect = goose.DialectPostgres
	}
	p, err := goose.NewProvider(dialect, db, dir, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return fmt.Errorf("store: migrations: %w", err)
	}
	current, target, err := p.GetVersions(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("store: migrations: %w", err)
	case current > target:
		return fmt.Errorf("%w: it is %d, this program knows %d; use a newer release", errNewerSchema, current, target)
	case current == target:
		return nil
	case frozen:
		return fmt.Errorf("store: the schema is %d, this program needs %d, and a service is running: stop it and start the newer one", current, target)
	}
	done, err := p.Up(ctx)
	for _, m := range done {
		log.InfoContext(ctx, "schema migrated", "version", m.Source.Version, "took", m.Duration)
	}
	if err != nil {
		return fmt.Errorf("store: migrations: %w", err)
	}
	return nil
}

// migrateSQLite is called under the turn of the directory. frozen refuses to change the schema.
func migrateSQLite(ctx context.Context, db *sql.DB, frozen bool, log *slog.Logger) error {
	return migrate(ctx, db, SQLite, 0, frozen, log)
}

func migratePostgres(ctx context.Context, pool *pgxpool.Pool, partitions int, log *slog.Logger) (err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return MapError(err)
	}
	// The lock belongs to the session: closing it lets go, whatever happened.
	defer func() {
		err = errors.Join(err, conn.Hijack().Close(context.WithoutCancel(ctx)))
	}()
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(migrationLock)); err != nil {
		return MapError(err)
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	// A migration waits for tables in which a running service writes, and may be the one that PostgreSQL gives up for another.
	// It is one transaction, so that nothing of it was done.
	for try := 1; ; try++ {
		err := migrate(ctx, db, Postgres, partitions, false, log)
		if isContention(err) && try < txAttempts {
			log.InfoContext(ctx, "a migration gave way to a running service and is tried again", "try", try)
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	return partition(ctx, pool, partitions)
}

// partition makes the partitions of the tables that are declared as partitioned.
func partition(ctx context.Context, pool *pgxpool.Pool, n int) error {
	if n <= 0 {
		return nil
	}
	rows, err := pool.Query(ctx, `SELECT c.relname FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
		WHERE c.relkind = 'p' AND s.nspname = current_schema() ORDER BY c.relname`)
	if err != nil {
		return MapError(err)
	}
	defer rows.Close()
	var ddl bytes.Buffer
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return err
		}
		for i := range n {
			fmt.Fprintf(&ddl, "CREATE TABLE IF NOT EXISTS %s_p%d PARTITION OF %s FOR VALUES WITH (MODULUS %d, REMAINDER %d);\n", table, i, table, n, i)
		}
	}
	if err := rows.Err(); err != nil {
		return MapError(err)
	}
	_, err = pool.Exec(ctx, ddl.String())
	return MapError(err)
}
