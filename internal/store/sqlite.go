package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

const (
	databaseName       = "toll.db" // in the data directory
	sqliteReaders      = 8
	sqliteStatements   = 512 // cached for each side; more are prepared for one use
	serviceBusyTimeout = 10 * time.Second
	adminBusyTimeout   = 30 * time.Second
)

// lite is an open SQLite database: one connection that writes, some that read.
type lite struct {
	writer  *writer
	readers *sql.DB
	service *flock.Flock // nil with Admin

	path        string  // of the database file
	checkpoints *sql.DB // one connection, which only checkpoints; nil when read only
	logMu       sync.Mutex
	log         Log

	mu    sync.RWMutex
	stmts map[string]*sql.Stmt // of the readers
}

func openSQLite(ctx context.Context, cfg Config, log *slog.Logger) (_ *lite, err error) {
	if cfg.ReadOnly {
		return readSQLite(ctx, cfg)
	}
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return nil, fmt.Errorf("store: data directory: %w", err)
	}
	dir, err := filepath.Abs(cfg.Data)
	if err != nil {
		return nil, fmt.Errorf("store: data directory: %w", err)
	}
	path := filepath.Join(dir, databaseName)
	// SQLite would make the file readable by everybody; its side files copy the mode.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: database file: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("store: database file: %w", err)
	}

	l := &lite{path: path, stmts: map[string]*sql.Stmt{}}
	defer func() {
		if err != nil {
			_ = l.close() // the first error counts
		}
	}()

	turn := newLock(filepath.Join(dir, "toll.turn"))
	l.writer = &writer{busy: make(chan struct{}, 1), stmts: map[string]*statement{}, turn: turn, admin: cfg.Admin,
		failed: make(chan struct{})}

	timeout := serviceBusyTimeout
	if cfg.Admin {
		timeout = adminBusyTimeout
	}
	// Who opens takes the turn first, so that finding out whether a service runs, and the migration, are not disturbed.
	if err := takeLock(ctx, turn, timeout); err != nil {
		return nil, fmt.Errorf("store: %s is busy: %w", dir, err)
	}
	defer func() { err = errors.Join(err, turn.Unlock()) }()
	service := newLock(filepath.Join(dir, "toll.lock"))
	free, err := service.TryLock()
	switch {
	case err != nil:
		return nil, fmt.Errorf("store: lock file: %w", err)
	case !cfg.Admin && !free:
		return nil, fmt.Errorf("store: another service is using %s: stop it first, or use PostgreSQL to run several services", dir)
	case !cfg.Admin:
		l.service = service
	default:
		if err := service.Unlock(); err != nil {
			return nil, err
		}
	}

	if err := makeSQLite(ctx, path, timeout, cfg, free, log); err != nil {
		return nil, err
	}
	busy := fmt.Sprintf("busy_timeout(%d)", timeout.Milliseconds())
	alone := fmt.Sprintf("wal_autocheckpoint(%d)", commitCheckpointFrom)
	if l.writer.conn, err = connect(path, slices.Concat([]string{busy}, durablePragmas,
		[]string{"journal_mode(WAL)", "foreign_keys(1)", "cache_size(-65536)", "temp_store(MEMORY)", alone})...); err != nil {
		return nil, MapError(err)
	}
	if err := assertSQLite(l.writer); err != nil {
		return nil, err
	}
	if l.checkpoints, err = sql.Open("sqlite", sqliteDSN(path, checkpointBusyTimeout, durablePragmas...)); err != nil {
		return nil, err
	}
	l.checkpoints.SetMaxOpenConns(1)
	return l, l.openReaders(sqliteDSN(path, timeout, readerPragmas...))
}

func makeSQLite(ctx context.Context, path string, busy time.Duration, cfg Config, free bool, log *slog.Logger) (err error) {
	db, err := sql.Open("sqlite", sqliteDSN(path, busy, slices.Concat(durablePragmas, []string{"journal_mode(WAL)", "foreign_keys(1)"})...))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	return migrateSQLite(ctx, db, cfg, free, log)
}

// durablePragmas have commits and checkpoints wait until the disk has what they wrote.
var durablePragmas = []string{"synchronous(FULL)", "fullfsync(1)", "checkpoint_fullfsync(1)"}

var readerPragmas = []string{"query_only(1)", "cache_size(-16384)", "temp_store(MEMORY)"}

func (l *lite) openReaders(dsn string) (err error) {
	if l.readers, err = sql.Open("sqlite", dsn); err != nil {
		return err
	}
	l.readers.SetMaxOpenConns(sqliteReaders)
	l.readers.SetMaxIdleConns(sqliteReaders)
	return nil
}

// readSQLite opens a database for reading. It takes no lock, and makes no file that stays.
func readSQLite(ctx context.Context, cfg Config) (_ *lite, err error) {
	dir, err := filepath.Abs(cfg.Data)
	if err != nil {
		return nil, fmt.Errorf("store: data directory: %w", err)
	}
	path := filepath.Join(dir, databaseName)
	if info, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("store: database file: %w", err)
	} else if info.Size() == 0 {
		return nil, ErrNoSchema
	}
	l := &lite{stmts: map[string]*sql.Stmt{}}
	defer func() {
		if err != nil {
			_ = l.close() // the first error counts
		}
	}()
	if err := l.openReaders(readDSN(path, readerPragmas...)); err != nil {
		return nil, err
	}
	s, err := schemaThrough(ctx, l.readers, SQLite)
	if isUnavailable(err) && !hasLog(path) {
		// In a directory that cannot be written SQLite reads only a file that it may take for one that does not change.
		dsn := readDSN(path, readerPragmas...) + "&immutable=1"
		if err = errors.Join(l.readers.Close(), l.openReaders(dsn)); err != nil {
			return nil, err
		}
		s, err = schemaThrough(ctx, l.readers, SQLite)
	}
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", path, MapError(err))
	}
	if cfg.Schema == AnySchema {
		return l, nil
	}
	return l, s.Usable()
}

// readDSN is how a database is opened that must stay as it is. A log beside it may be that of a process that was killed: the last
// connection that may write would move it into the database. Without a log only such a connection removes the empty side files again.
func readDSN(path string, pragmas ...string) string {
	dsn := sqliteDSN(path, adminBusyTimeout, pragmas...)
	if hasLog(path) {
		dsn += "&mode=ro"
	}
	return dsn
}

// hasLog reports whether a database is in use, or was when its process was killed.
func hasLog(path string) bool {
	_, err := os.Stat(path + "-wal")
	return err == nil
}

func sqliteDSN(path string, busy time.Duration, pragmas ...string) string {
	q := url.Values{"_pragma": append([]string{fmt.Sprintf("busy_timeout(%d)", busy.Milliseconds())}, pragmas...)}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

func assertSQLite(w *writer) error {
	var journal string
	var synchronous int64
	rows, err := w.query("PRAGMA journal_mode", nil)
	if err := (&Row{rows: rows, err: err}).Scan(&journal); err != nil {
		return err
	}
	rows, err = w.query("PRAGMA synchronous", nil)
	if err := (&Row{rows: rows, err: err}).Scan(&synchronous); err != nil {
		return err
	}
	return checkSQLite(journal, int(synchronous))
}

// checkSQLite refuses settings under which a committed transaction may be lost.
func checkSQLite(journal string, synchronous int) error {
	if !strings.EqualFold(journal, "wal") {
		return fmt.Errorf("store: SQLite journal_mode is %q, not WAL; the file system of the data directory may not allow it", journal)
	}
	if synchronous < 2 {
		return fmt.Errorf("store: SQLite synchronous is %d, not FULL (2): committed credits could be lost", synchronous)
	}
	return nil
}

func (l *lite) close() error {
	var errs []error
	for _, s := range l.stmts {
		errs = append(errs, s.Close())
	}
	if l.readers != nil {
		errs = append(errs, l.readers.Close())
	}
	if l.checkpoints != nil {
		errs = append(errs, l.checkpoints.Close())
	}
	if l.writer != nil {
		errs = append(errs, l.writer.close())
	}
	if l.service != nil {
		errs = append(errs, l.service.Unlock())
	}
	return errors.Join(errs...)
}

func (l *lite) query(ctx context.Context, q string, args []any) (*Rows, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// A context that can end costs two goroutines for each query; reads are short.
	ctx = context.WithoutCancel(ctx)
	p := toPositional(q)
	args, err := p.args(args)
	if err != nil {
		return nil, err
	}
	stmt, err := l.prepare(ctx, p.text)
	if err != nil {
		return nil, MapError(err)
	}
	var rows *sql.Rows
	if stmt != nil {
		rows, err = stmt.QueryContext(ctx, args...)
	} else {
		rows, err = l.readers.QueryContext(ctx, p.text, args...)
	}
	if err != nil {
		return nil, MapError(err)
	}
	return &Rows{lite: rows}, nil
}

// prepare returns the cached statement, nil when the cache is full.
func (l *lite) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	l.mu.RLock()
	stmt, full := l.stmts[text], len(l.stmts) >= sqliteStatements
	l.mu.RUnlock()
	if stmt != nil || full {
		return stmt, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if stmt := l.stmts[text]; stmt != nil {
		return stmt, nil
	}
	stmt, err := l.readers.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	l.stmts[text] = stmt
	return stmt, nil
}
