package store

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tollhq/toll"
)

var (
	// ErrNotFound says that there is no such row.
	ErrNotFound = errors.New("store: not found")
	// ErrUnknownOutcome says that the answer to a commit was lost: the transaction may be there or not.
	ErrUnknownOutcome = errors.New("store: the outcome of the commit is unknown")
	// ErrFlush says that the operating system could not put a commit on disk. It may have dropped what it could not
	// write, and a second flush would succeed without it, so nothing is written any more until a restart has read the
	// file anew. PostgreSQL restarts itself for the same reason.
	ErrFlush = errors.New("store: a commit could not be flushed to disk; the service must be restarted")
)

// IfThere returns what was read and whether it was there: [ErrNotFound] is no error.
func IfThere[T any](v T, err error) (T, bool, error) {
	return v, err == nil, NotFoundAs(err, nil)
}

// NotFoundAs returns other, which may be nil, in place of [ErrNotFound], and any other error as is.
func NotFoundAs(err, other error) error {
	if errors.Is(err, ErrNotFound) {
		return other
	}
	return err
}

func isFlushFailure(err error) bool {
	code, ok := sqliteCode(err)
	return ok && (code == sqlite3.SQLITE_IOERR_FSYNC || code == sqlite3.SQLITE_IOERR_DIR_FSYNC)
}

// IsUnique reports whether err is the violation of a primary key or a unique index.
func IsUnique(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code == "23505"
	}
	if code, ok := sqliteCode(err); ok {
		return code == sqlite3.SQLITE_CONSTRAINT_UNIQUE || code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
	}
	return false
}

// IsRetryable reports whether the transaction that failed with err is certainly not committed and may succeed when run
// again: a serialization failure, a deadlock, a lock that was not to be had, a lost connection.
func IsRetryable(err error) bool {
	return err != nil && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrFlush) && (isContention(err) || isUnavailable(err))
}

func isContention(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code {
		case "40001", "40P01", "55P03", // serialization_failure, deadlock_detected, lock_not_available
			"25P03": // idle_in_transaction_session_timeout: this process stood still, and the server rolled back
			return true
		}
		return false
	}
	if code, ok := sqliteCode(err); ok {
		primary := code & 0xff
		return primary == sqlite3.SQLITE_BUSY || primary == sqlite3.SQLITE_LOCKED
	}
	return false
}

func isUnavailable(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code {
		case "57P01", "57P02", "57P03", // the server stops or starts
			"53100", "53200", "53300", // no disk space, no memory, too many connections
			"58030", // the disk cannot be read or written
			"25006": // a replica: the primary has moved
			return true
		}
		return len(pg.Code) == 5 && pg.Code[:2] == "08" // connection exception
	}
	if code, ok := sqliteCode(err); ok {
		switch code & 0xff {
		case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY:
			return true
		}
		return false
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err)
}

// isUnreached reports whether a server took too long to let somebody in. It is as unavailable as one that refuses, but is not
// tried again at once: the next attempt would wait as long.
func isUnreached(err error) bool {
	_, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok && !errors.Is(err, context.Canceled)
}

// badText is what PostgreSQL makes of text with a NUL, which SQLite would store.
func badText() *toll.Error {
	return toll.Errorf(toll.CodeBadRequest, "Text must be valid UTF-8 without the character U+0000.")
}

func isBadText(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "22021" // character_not_in_repertoire
}

// MapError returns err as this package reports it: [ErrNotFound] for a missing row, [toll.CodeDatabaseUnavailable]
// around contention and lost connections, others as they are.
func MapError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrNoRows):
		return ErrNotFound
	case errors.Is(err, toll.NewError(toll.CodeDatabaseUnavailable)):
		return err
	case isBadText(err):
		return badText().WithCause(err)
	case isContention(err), isUnavailable(err), isUnreached(err):
		return toll.NewError(toll.CodeDatabaseUnavailable).WithCause(err)
	}
	return err
}

// MapCommitError is [MapError] for the failure of a commit: unless the database said that it rolled back, the error
// is [ErrUnknownOutcome] as well.
func MapCommitError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return err
	}
	if _, ok := errors.AsType[*pgconn.PgError](err); ok && !isUnavailable(err) {
		return MapError(err)
	}
	if isContention(err) { // SQLite keeps a transaction open whose commit found the file locked
		return MapError(err)
	}
	return toll.NewError(toll.CodeDatabaseUnavailable).WithCause(errors.Join(ErrUnknownOutcome, err))
}
