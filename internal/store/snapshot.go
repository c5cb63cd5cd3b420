package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ErrNoSnapshot is a database that has tools of its own for copies of itself: PostgreSQL.
var ErrNoSnapshot = errors.New("store: a PostgreSQL database must be backed up with pg_dump or by archiving its write-ahead log")

// Snapshot writes the embedded database, as it is in one moment, into a file that is empty or does not exist. It makes one that only its
// owner can read. Others read and write the database meanwhile.
func (s *Store) Snapshot(ctx context.Context, path string) (err error) {
	if s.lite == nil {
		return ErrNoSnapshot
	}
	// SQLite would make it readable by everybody.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("store: snapshot: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("store: snapshot: %w", err)
	}
	// The readers of the store may not write anything, not even a copy.
	var seq int64
	var name, file string
	if err := s.QueryRow(ctx, "SELECT seq, name, file FROM pragma_database_list WHERE name = 'main'").Scan(&seq, &name, &file); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", readDSN(file))
	if err != nil {
		return fmt.Errorf("store: snapshot: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, "VACUUM INTO $1", path); err != nil {
		return fmt.Errorf("store: snapshot: %w", err)
	}
	return nil
}

// Snapshotted is what a file of [Store.Snapshot] says of itself.
type Snapshotted struct {
	Environment string
	Schema      Schema
}

// CheckSnapshot reads a whole file of [Store.Snapshot] and refuses one that is damaged or holds something else. It changes nothing.
func CheckSnapshot(ctx context.Context, path string) (s Snapshotted, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return s, err
	}
	db, err := sql.Open("sqlite", sqliteDSN(path, adminBusyTimeout, "query_only(1)")+"&immutable=1")
	if err != nil {
		return s, fmt.Errorf("store: snapshot: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var verdict string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&verdict); err != nil {
		return s, fmt.Errorf("store: snapshot: %w", err)
	}
	if !strings.EqualFold(verdict, "ok") {
		return s, fmt.Errorf("store: snapshot: the database is damaged: %s", verdict)
	}
	if err := db.QueryRowContext(ctx, "SELECT value FROM settings WHERE name = 'environment'").Scan(&s.Environment); err != nil {
		return s, fmt.Errorf("store: snapshot: the file is not a Toll database: %w", err)
	}
	if s.Schema, err = schemaThrough(ctx, db, SQLite); err != nil {
		return s, fmt.Errorf("store: snapshot: the file is not a Toll database: %w", err)
	}
	return s, nil
}

// Exists reports whether a directory holds an embedded database. Opening makes one where there is none.
func Exists(data string) (bool, error) {
	info, err := os.Stat(filepath.Join(data, databaseName))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Size() > 0, err
}
