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
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var embedded embed.FS

// migrations holds the files of [embedded]. Tests add to it.
var migrations fs.FS = embedded

// words are what differs between the engines in the text of a migration.
func words(e Engine, partitions int) *strings.Replacer {
	if e == SQLite {
		return strings.NewReplacer("{{BYTES}}", "BLOB", "{{TEXT}}", "TEXT", "{{ROWID}}", " WITHOUT ROWID", "{{PARTITION}}", "",
			"{{ROOM}}", "", "{{POS}}", "INTEGER", "{{AND_ACCOUNT}}", "")
	}
	// Rows that change with every settlement get room on their page, so that a new version needs no new index entry. A partitioned table
	// takes no storage parameter. A unique key of it has the account, as on a cluster.
	partition, room, account := "", " WITH (fillfactor = 50)", ""
	if partitions > 0 {
		partition, room, account = " PARTITION BY HASH (account_id)", "", ", account_id"
	}
	// Texts that are sorted compare by bytes on both engines.
	return strings.NewReplacer("{{BYTES}}", "BYTEA", "{{TEXT}}", `TEXT COLLATE "C"`, "{{ROWID}}", "", "{{PARTITION}}", partition,
		"{{ROOM}}", room, "{{POS}}", "BIGINT", "{{AND_ACCOUNT}}", account)
}

// rendered is a file system whose files have the words of one engine. A migration that is not
// online also moves the floor, in its own transaction.
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
	for _, m := range migrationList {
		if strings.HasPrefix(name, fmt.Sprintf("%04d_", m.version)) && !m.online {
			text = append(text, "\n"+floorStatement(m.version)...)
		}
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
		text, err := fs.ReadFile(migrations, path)
		sum.Write(text)
		return err
	}) // files that are embedded can be read
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// provider returns what runs the migrations in dir. sessions is taken on the connection that runs them; nil takes none.
func provider(db *sql.DB, e Engine, dir fs.FS, sessions lock.SessionLocker) (*goose.Provider, error) {
	dialect := goose.DialectSQLite3
	if e == Postgres {
		dialect = goose.DialectPostgres
	}
	options := []goose.ProviderOption{goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger())}
	if sessions != nil {
		options = append(options, goose.WithSessionLocker(sessions))
	}
	return goose.NewProvider(dialect, db, dir, options...)
}

// migrate runs the pending migrations, each in a transaction, and notes which release did it.
func migrate(
	ctx context.Context, db *sql.DB, e Engine, cfg Config, sessions lock.SessionLocker,
	log *slog.Logger,
) error {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	done, err := migrateFrom(ctx, db, e, rendered{dir, words(e, cfg.Partitions)}, sessions, log)
	if err != nil || !done || cfg.Release == "" {
		return err
	}
	query := `INSERT INTO settings (name, value) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`
	if e == SQLite {
		query = toPositional(query).text
	}
	_, err = db.ExecContext(ctx, query, settingMigratedBy, []byte(cfg.Release))
	return err
}

// migrateFrom runs the pending migrations in dir, and reports whether there was one.
func migrateFrom(
	ctx context.Context, db *sql.DB, e Engine, dir fs.FS, sessions lock.SessionLocker,
	log *slog.Logger,
) (bool, error) {
	p, err := provider(db, e, dir, sessions)
	if err != nil {
		return false, fmt.Errorf("store: migrations: %w", err)
	}
	done, err := p.Up(ctx)
	logMigrated(ctx, log, p.ListSources(), done)
	if refused, ok := errors.AsType[refusedSchema](err); ok {
		return false, refused
	}
	if err != nil {
		return false, fmt.Errorf("store: migrations: %w", err)
	}
	return len(done) > 0, nil
}

// logMigrated logs the migrations that were applied, in one line. all are the migrations of this release, in order.
func logMigrated(ctx context.Context, log *slog.Logger, all []*goose.Source, done []*goose.MigrationResult) {
	if len(done) == 0 {
		return
	}
	var from int64
	for _, source := range all {
		if source.Version < done[0].Source.Version {
			from = source.Version
		}
	}
	var took time.Duration
	for _, m := range done {
		took += m.Duration
	}
	to := done[len(done)-1].Source.Version
	if from == 0 {
		log.InfoContext(ctx, "database schema created", "schema", to, "took", took)
		return
	}
	log.InfoContext(ctx, "database schema migrated", "migrations", len(done), "from", from, "to", to, "took", took)
}

type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func schemaThrough(ctx context.Context, conn rowQuerier, e Engine) (Schema, error) {
	return readSchema(ctx, e, func(ctx context.Context, query string, dest ...any) error {
		return conn.QueryRowContext(ctx, query).Scan(dest...)
	})
}

// upgrades returns nil when the rule has the schema migrated that is unusable because of err, else err.
func (c Config) upgrades(err error) error {
	if errors.Is(err, ErrNoSchema) && (c.Schema == MakeSchema || c.Schema == UpgradeSchema) ||
		errors.Is(err, ErrOlderSchema) && c.Schema == UpgradeSchema {
		return nil
	}
	return err
}

// migrateSQLite makes the schema usable as the rule of cfg says. It is called under the turn of the
// directory. free says that no service has the directory.
func migrateSQLite(
	ctx context.Context, db *sql.DB, cfg Config, free bool, log *slog.Logger,
) error {
	s, err := schemaThrough(ctx, db, SQLite)
	if err != nil {
		return MapError(err)
	}
	unusable := s.Usable()
	if unusable == nil || cfg.Schema == AnySchema {
		return nil
	}
	if err := cfg.upgrades(unusable); err != nil {
		return err
	}
	if !free && s.Version > 0 && !(cfg.Online && len(s.Unsafe()) == 0) {
		return s.inUse("a service is using "+cfg.Data, cfg.Online)
	}
	return migrate(ctx, db, SQLite, cfg, nil, log)
}

// partition makes the partitions of the tables that are declared as partitioned.
func partition(ctx context.Context, db *sql.DB, n int) error {
	if n <= 0 {
		return nil
	}
	rows, err := db.QueryContext(ctx, `SELECT c.relname FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
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
	_, err = db.ExecContext(ctx, ddl.String())
	return MapError(err)
}
