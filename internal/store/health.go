package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"

	"github.com/tollhq/toll"
)

type health struct {
	writes  atomic.Uint64
	failure atomic.Pointer[error] // nil: the last write succeeded
	row     string                // that [Store.Probe] writes
	written chan struct{}         // see [Store.Written]
}

const (
	// probeTime bounds one probe. A connection that is dead without an answer is replaced by the next one.
	probeTime = 10 * time.Second
	// probeRows bounds the rows of probes. Processes on one database have different rows, by chance, so that one of them which stands
	// still in its transaction does not hold up the probes of the others.
	probeRows = 256
	// A probe after a failure writes more than a usual one: a full disk may have room for a row and not for a batch.
	probeBytes, probeBytesAfterFailure = 16, 64 << 10
)

// Wrote notes the outcome of a transaction that wrote: nil, or an error. Errors that say nothing about the database, such as a refusal or
// the end of a context, are passed over. [Store.Tx] notes its own; users of a [Pipe] call this.
func (s *Store) Wrote(err error) {
	switch {
	case err == nil:
		s.health.writes.Add(1)
		select {
		case s.health.written <- struct{}{}:
		default:
		}
		if s.health.failure.Load() != nil {
			s.health.failure.Store(nil)
		}
	case errors.Is(err, ErrFlush):
		s.health.failure.Store(&err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case errors.Is(MapError(err), toll.NewError(toll.CodeDatabaseUnavailable)):
		s.health.failure.Store(&err)
	}
}

// Writes returns how many transactions of this process have written, and why the last one could not, nil when it could.
func (s *Store) Writes() (n uint64, failure error) {
	if err := s.health.failure.Load(); err != nil {
		failure = *err
	}
	return s.health.writes.Load(), failure
}

// Written returns the signal of this process's transactions that wrote, for one reader. Several of them may give one signal.
func (s *Store) Written() chan struct{} { return s.health.written }

// Probe writes a row of 16 bytes, after a failure one of 64 KiB, and notes the outcome. It takes at most 10 s.
func (s *Store) Probe(ctx context.Context) error {
	probe, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	size := probeBytes
	if _, failure := s.Writes(); failure != nil {
		size = probeBytesAfterFailure
	}
	err := s.Tx(probe, func(tx *Tx) error {
		return PutSetting(probe, tx, s.health.row, make([]byte, size))
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the database did not answer within %v: %w", probeTime, err)
		s.health.failure.Store(&err)
	}
	return err
}

// Location names the database for a log: the path of the file, or host, port and name, without user and password.
func (s *Store) Location() string {
	if s.pool == nil {
		return filepath.Join(s.dir, databaseName)
	}
	c := s.pool.Config().ConnConfig
	return fmt.Sprintf("%s:%d/%s", c.Host, c.Port, c.Database)
}

// Disk returns the free space of the disk of an embedded database; ok is false when it is not known.
func (s *Store) Disk() (free int64, ok bool) {
	if s.pool != nil {
		return 0, false
	}
	return FreeBytes(s.dir)
}

// ErrorText returns what the database or the system said, without what this program says around it.
func ErrorText(err error) string { return cause(err) }

var sqliteName = regexp.MustCompile(`SQLITE_\w+`)

// ErrorCode returns the code that a database gave to an error, such as SQLITE_FULL or the SQLSTATE 53100, "" for none.
func ErrorCode(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	if code, ok := sqliteCode(err); ok {
		// Extended codes have the primary one in their last byte, and not all of them have a text.
		if name := sqliteName.FindString(sqlite.ErrorCodeString[code]); name != "" {
			return name
		}
		name := sqliteName.FindString(sqlite.ErrorCodeString[code&0xff])
		return strings.TrimSpace(fmt.Sprintf("%s (%d)", name, code))
	}
	return ""
}

// TableRows is how many rows a table has by the statistics of PostgreSQL.
type TableRows struct {
	Table      string // of all its partitions
	Live, Dead int64  // dead rows await a vacuum
}

// TableRows returns the rows of all tables, nil with the embedded database.
func (s *Store) TableRows(ctx context.Context) ([]TableRows, error) {
	if s.engine != Postgres {
		return nil, nil
	}
	return All(ctx, s, func(scan func(dest ...any) error) (t TableRows, err error) {
		return t, scan(&t.Table, &t.Live, &t.Dead)
	}, `SELECT COALESCE(p.relname, s.relname) AS name, CAST(SUM(s.n_live_tup) AS BIGINT), CAST(SUM(s.n_dead_tup) AS BIGINT)
		FROM pg_stat_user_tables s LEFT JOIN pg_inherits i ON i.inhrelid = s.relid LEFT JOIN pg_class p ON p.oid = i.inhparent
		WHERE s.schemaname = current_schema() GROUP BY 1`)
}
