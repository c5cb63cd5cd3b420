// Package store keeps the records of the service in one SQL database, SQLite or PostgreSQL. SQL is one portable text with $1..$N
// placeholders; each table has a file with its statements. Times are microseconds since 1970 in UTC, 0 for none.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tollhq/toll"
)

// Engine is the kind of database.
type Engine string

// Engines.
const (
	SQLite   Engine = "sqlite"
	Postgres Engine = "postgres"
)

// Config says where the database is.
type Config struct {
	// Data is the directory of the embedded database file toll.db. It is made, readable by its owner alone, when missing.
	Data string
	// Database is the postgres:// address of a database, including its secrets. It wins over Data.
	Database string
	// Admin opens for local administration beside a running service: it takes no service lock and waits up to 30 s for its turn to write.
	Admin bool
	// ReadOnly opens a database that exists without changing anything: transactions are refused, no file is made.
	ReadOnly bool
	// Schema says what to do about a schema that is missing or older.
	Schema SchemaRule
	// Online lets [UpgradeSchema] migrate while an older release is at work, if every pending migration is safe for it.
	Online bool
	// Release is the version of the program, which is noted in a database that it migrates.
	Release string
	// Partitions above 0 makes the ledger tables of a new PostgreSQL database hash partitioned by account. For tests.
	Partitions int
	// Log may be nil.
	Log *slog.Logger
}

// Store is an open database. It is safe for concurrent use.
type Store struct {
	engine   Engine
	log      *slog.Logger
	lite     *lite
	pool     *pgxpool.Pool
	dir      string // of an embedded database
	readOnly bool
	health   health
	tracer   atomic.Pointer[func(tx uint64, statement string)]
	traced   atomic.Uint64 // transactions
}

// Trace has f called with each statement before it runs, for tests: tx is the number of its transaction, 0 for none. A
// transaction begins with the statement "begin" and ends with "end"; a run of it that is repeated has another number. f is
// called on the goroutine that runs the statement. nil ends the tracing.
func (s *Store) Trace(f func(tx uint64, statement string)) {
	if f == nil {
		s.tracer.Store(nil)
		return
	}
	s.tracer.Store(&f)
}

// trace returns what follows the statements of a new transaction, nil when nobody does.
func (s *Store) trace() func(statement string) {
	f := s.tracer.Load()
	if f == nil {
		return nil
	}
	n := s.traced.Add(1)
	return func(statement string) { (*f)(n, statement) }
}

// Open opens the database, refuses one that does not keep what it commits, and does about its
// schema what [Config].Schema says. Several processes may do this at once.
//
// It fails with [ErrNoSchema], [ErrUnreleased], [ErrOlderSchema] or [ErrNewerSchema] when this release cannot work
// with the schema, with [ErrOlderInUse] when a migration has to wait for the end of an older
// release, and, except with Admin, when another service works on the same directory.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s := &Store{engine: SQLite, log: cfg.Log, readOnly: cfg.ReadOnly, dir: cfg.Data}
	s.health.written = make(chan struct{}, 1)
	s.health.row = fmt.Sprintf("probe/%d", rand.IntN(probeRows))
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var err error
	switch {
	case cfg.Database != "":
		s.engine = Postgres
		s.pool, err = openPostgres(ctx, cfg, s.log)
	case cfg.Data != "":
		if abs, e := filepath.Abs(cfg.Data); e == nil {
			s.dir = abs
		}
		s.lite, err = openSQLite(ctx, cfg, s.log)
		if e, ok := errors.AsType[*toll.Error](err); ok && e.Err != nil {
			free, _ := s.Disk()
			err = e.WithCause(fmt.Errorf("%s, %d bytes free: %w", s.Location(), free, e.Err))
		}
	default:
		err = errors.New("store: neither a data directory nor a database is configured")
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Engine returns the kind of database.
func (s *Store) Engine() Engine { return s.engine }

// Pool returns the PostgreSQL connections, nil on SQLite. Errors of its use go through [MapError] or, from a commit, [MapCommitError].
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	if s.pool != nil {
		return MapError(s.pool.Ping(ctx))
	}
	var one int64
	return s.QueryRow(ctx, "SELECT 1").Scan(&one)
}

// Failed is closed when a commit could not be flushed to disk: the process must end, see [ErrFlush]. It is nil on
// PostgreSQL, which looks after itself.
func (s *Store) Failed() <-chan struct{} {
	if s.lite == nil || s.lite.writer == nil {
		return nil
	}
	return s.lite.writer.failed
}

// Close waits for running transactions and closes the database. The store cannot be used afterwards.
func (s *Store) Close() error {
	if s.pool != nil {
		s.pool.Close()
		return nil
	}
	return s.lite.close()
}

// NonZero returns a pointer to v, or nil for the zero value, which JSON leaves out.
func NonZero[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

// Micros returns t as stored: microseconds since 1970, 0 for the zero time.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// FromMicros returns the time that is stored as n, the zero time for 0.
func FromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}
