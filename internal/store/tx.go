package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tollhq/toll/internal/backoff"
)

// Tx is a running write transaction. It is not safe for concurrent use, and one result of a query is open at a time.
type Tx struct {
	pg    session
	last  []Stmt
	lite  *writer
	wrote bool // a statement changed a row
	trace func(statement string)
}

// session is a connection to PostgreSQL that is in a transaction.
type session interface {
	Exec(ctx context.Context, q string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, q string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Last adds statements that run before the commit, after all others. On PostgreSQL they make one trip with it, so that a lock that
// they take is not kept while the network or this process is slow.
func (t *Tx) Last(stmts ...Stmt) { t.last = append(t.last, stmts...) }

// commitWait bounds the wait for the answer to a commit. When it ends, the outcome is unknown (F04). It must be above the 10 s that a
// slow flush takes (F15), and below the 30 s that clients wait.
const commitWait = 25 * time.Second

// txAttempts bounds how often a transaction that met contention or a lost connection is run.
const txAttempts = 8

var errReadOnly = errors.New("store: the database is open for reading only")

// Tx runs f in a write transaction and commits when it returns nil; otherwise, and on a panic, it rolls back and returns the error of f. f
// is run again after a serialization failure, a deadlock or a lost connection, so it must not change anything but the database. f must not
// start another transaction of the store. An error that is [ErrUnknownOutcome] may stand for a commit.
func (s *Store) Tx(ctx context.Context, f func(tx *Tx) error) error {
	if s.readOnly {
		return errReadOnly
	}
	wrote := false
	err := s.tx(ctx, func(tx *Tx) error {
		if tx.trace = s.trace(); tx.trace != nil {
			tx.trace("begin")
			defer tx.trace("end")
		}
		err := f(tx)
		wrote = tx.wrote || len(tx.last) > 0
		if err == nil && tx.trace != nil {
			for _, s := range tx.last {
				tx.trace(s.SQL)
			}
		}
		return err
	})
	if err != nil || wrote {
		s.Wrote(err)
	}
	return err
}

func (s *Store) tx(ctx context.Context, f func(tx *Tx) error) error {
	if s.pool == nil {
		return s.lite.writer.tx(ctx, f)
	}
	for attempt := 1; ; attempt++ {
		err := s.txPostgres(ctx, f)
		if attempt == txAttempts || !IsRetryable(err) {
			return MapError(err)
		}
		pause := backoff.Delay(4*time.Millisecond, time.Second, attempt)
		s.log.DebugContext(ctx, "transaction is retried", "attempt", attempt, "pause", pause, "cause", cause(err))
		if !backoff.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// cause returns the text of the innermost error. Those around it, of the driver, name the whole connection.
func cause(err error) string {
	for {
		switch e := err.(type) { // each layer is looked at
		case interface{ Unwrap() []error }:
			all := e.Unwrap()
			err = all[len(all)-1]
		default:
			inner := errors.Unwrap(err)
			if inner == nil {
				return err.Error()
			}
			err = inner
		}
	}
}

func (s *Store) txPostgres(ctx context.Context, f func(tx *Tx) error) (err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "begin isolation level read committed"); err != nil {
		return err
	}
	defer func() {
		if conn.Conn().PgConn().TxStatus() != 'I' {
			// The caller's time may be over; the connection is to be left clean all the same.
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_, _ = conn.Exec(end, "rollback") // a connection that cannot roll back is closed by the pool
		}
	}()
	tx := &Tx{pg: conn}
	if err := f(tx); err != nil {
		return err
	}
	// A caller that leaves now would only make the outcome unknown.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitWait)
	defer cancel()
	return MapCommitError(tx.commit(end))
}

// commit runs the last statements and commits on PostgreSQL.
func (t *Tx) commit(ctx context.Context) error {
	if len(t.last) == 0 {
		tag, err := t.pg.Exec(ctx, "commit")
		if err == nil && tag.String() == "ROLLBACK" {
			err = pgx.ErrTxCommitRollback
		}
		return err
	}
	stmts := append(t.last, Stmt{SQL: "commit"})
	var b pgx.Batch
	for _, s := range stmts {
		b.Queue(s.SQL, s.Args...)
	}
	return runBatch(t.pg.SendBatch(ctx, &b), stmts)
}

// Engine returns the kind of database.
func (t *Tx) Engine() Engine {
	if t.pg != nil {
		return Postgres
	}
	return SQLite
}

// ForUpdate is the end of a SELECT that locks its rows: empty on SQLite, whose transactions are alone anyway.
func (t *Tx) ForUpdate() string {
	if t.pg != nil {
		return " FOR UPDATE"
	}
	return ""
}

// ForShare is the end of a SELECT that keeps its rows from being changed: empty on SQLite, whose transactions are alone anyway.
func (t *Tx) ForShare() string {
	if t.pg != nil {
		return " FOR SHARE"
	}
	return ""
}

// Exec runs a statement and returns the number of rows that it changed. After an error the transaction must end.
func (t *Tx) Exec(ctx context.Context, q string, args ...any) (int64, error) {
	if t.trace != nil {
		t.trace(q)
	}
	if t.pg == nil {
		n, err := t.lite.exec(q, args)
		t.wrote = t.wrote || n > 0
		return n, err
	}
	tag, err := t.pg.Exec(ctx, q, args...)
	if err != nil {
		return 0, MapError(err)
	}
	t.wrote = t.wrote || tag.RowsAffected() > 0
	return tag.RowsAffected(), nil
}

// Run runs statements in their order, on PostgreSQL in one round trip. After an error the transaction must end.
func (t *Tx) Run(ctx context.Context, stmts ...Stmt) error {
	if t.trace != nil {
		for _, s := range stmts {
			t.trace(s.SQL)
		}
	}
	if t.pg == nil {
		for _, s := range stmts {
			if err := t.run(s); err != nil {
				return err
			}
		}
		return nil
	}
	var b pgx.Batch
	for _, s := range stmts {
		t.wrote = t.wrote || s.Row == nil
		b.Queue(s.SQL, s.Args...)
	}
	return runBatch(t.pg.SendBatch(ctx, &b), stmts)
}

func (t *Tx) run(s Stmt) error {
	if s.Row == nil {
		n, err := t.lite.exec(s.SQL, s.Args)
		t.wrote = t.wrote || n > 0
		return err
	}
	rows, err := t.lite.query(s.SQL, s.Args)
	return each(rows, err, s.Row)
}

// Query reads in the transaction.
func (t *Tx) Query(ctx context.Context, q string, args ...any) (*Rows, error) {
	if t.trace != nil {
		t.trace(q)
	}
	if t.pg == nil {
		return t.lite.query(q, args)
	}
	rows, err := t.pg.Query(ctx, q, args...)
	if err != nil {
		return nil, MapError(err)
	}
	return &Rows{pg: rows}, nil
}

func (t *Tx) QueryRow(ctx context.Context, q string, args ...any) *Row {
	rows, err := t.Query(ctx, q, args...)
	return &Row{rows: rows, err: err}
}
