package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/gofrs/flock"
)

// turnWait bounds how long the service waits for local administration before a transaction. A stuck administrator
// must not stop it.
const turnWait = 2 * time.Second

// adminPause is how long an administrator stays away after its turn, several polls of the service's wait for it.
const adminPause = 5 * time.Millisecond

// writer is the one connection of a process that writes to SQLite, with its prepared statements.
//
// SQLite wakes who waits for its lock by polling, and a busy service takes the lock back long before the next poll of
// an administrator. So both pass a turn: the administrator keeps it from before its transaction to the end, the
// service lets go of it at once, and stops there while an administrator has it.
type writer struct {
	busy  chan struct{} // holds one token while a transaction runs
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
	turn  *flock.Flock
	admin bool

	failed chan struct{} // closed when the file can no longer be trusted to keep what is committed
}

var errClosed = errors.New("store: closed")

func (w *writer) tx(ctx context.Context, f func(tx *Tx) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case w.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-w.busy }()
	if w.conn == nil {
		return errClosed
	}
	select {
	case <-w.failed:
		return ErrFlush
	default:
	}
	if w.admin {
		if err := takeLock(ctx, w.turn, adminBusyTimeout); err != nil {
			return err
		}
		defer func() {
			_ = w.turn.Unlock() // the transaction has ended; closing the database tries again
			time.Sleep(adminPause)
		}()
	} else if err := pass(ctx, w.turn, turnWait); err != nil {
		return err
	}
	if _, err := w.exec("BEGIN IMMEDIATE", nil); err != nil {
		return err
	}
	committed := false
	defer func() {
		if !committed {
			_, _ = w.exec("ROLLBACK", nil) // fails only when SQLite has rolled back already
		}
	}()
	if err := f(&Tx{lite: w}); err != nil {
		return err
	}
	stmt, _, err := w.prepare("COMMIT")
	if err != nil {
		return MapError(err)
	}
	if _, err := stmt.ExecContext(context.Background()); err != nil {
		if isFlushFailure(err) {
			close(w.failed)
			return errors.Join(ErrFlush, err)
		}
		return MapCommitError(err)
	}
	committed = true
	return nil
}

func (w *writer) close() error {
	w.busy <- struct{}{}
	defer func() { <-w.busy }()
	var errs []error
	for _, s := range w.stmts {
		errs = append(errs, s.Close())
	}
	w.stmts = nil
	if w.conn != nil {
		errs = append(errs, w.conn.Close())
		w.conn = nil
	}
	return errors.Join(append(errs, w.turn.Unlock())...)
}

// prepare returns the statement, and whether it is to be closed after its use.
func (w *writer) prepare(text string) (stmt *sql.Stmt, once bool, err error) {
	if stmt := w.stmts[text]; stmt != nil {
		return stmt, false, nil
	}
	stmt, err = w.conn.PrepareContext(context.Background(), text)
	if err != nil {
		return nil, false, err
	}
	if len(w.stmts) >= sqliteStatements {
		return stmt, true, nil
	}
	w.stmts[text] = stmt
	return stmt, false, nil
}

// exec does not end with the caller's context: a transaction is short, and one that runs is finished.
func (w *writer) exec(q string, args []any) (int64, error) {
	p := toPositional(q)
	args, err := p.args(args)
	if err != nil {
		return 0, err
	}
	stmt, once, err := w.prepare(p.text)
	if err != nil {
		return 0, MapError(err)
	}
	if once {
		defer stmt.Close()
	}
	res, err := stmt.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, MapError(err)
	}
	n, err := res.RowsAffected()
	return n, MapError(err)
}

func (w *writer) query(q string, args []any) (*Rows, error) {
	p := toPositional(q)
	args, err := p.args(args)
	if err != nil {
		return nil, err
	}
	stmt, once, err := w.prepare(p.text)
	if err != nil {
		return nil, MapError(err)
	}
	if once {
		defer stmt.Close() // takes effect after the rows
	}
	rows, err := stmt.QueryContext(context.Background(), args...)
	if err != nil {
		return nil, MapError(err)
	}
	return &Rows{lite: rows}, nil
}
