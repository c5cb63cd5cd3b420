package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// turnWait bounds how long the service waits for local administration before a transaction. A stuck administrator must not stop it.
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
	conn  *connection
	stmts map[string]*statement
	turn  *flock.Flock
	admin bool

	fails  sync.Once
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
	t := &Tx{lite: w}
	if err := f(t); err != nil {
		return err
	}
	for _, s := range t.last {
		if err := t.run(s); err != nil {
			return err
		}
	}
	stmt, err := w.prepare("COMMIT")
	if err != nil {
		return MapError(err)
	}
	if _, err := stmt.exec(nil); err != nil {
		if isFlushFailure(err) {
			return w.fail(err)
		}
		return MapCommitError(err)
	}
	committed = true
	return nil
}

// fail ends all writing after a flush that failed.
func (w *writer) fail(err error) error {
	w.fails.Do(func() { close(w.failed) })
	return errors.Join(ErrFlush, err)
}

func (w *writer) close() error {
	w.busy <- struct{}{}
	defer func() { <-w.busy }()
	var errs []error
	for _, s := range w.stmts {
		errs = append(errs, s.close())
	}
	w.stmts = nil
	if w.conn != nil {
		errs = append(errs, w.conn.close())
		w.conn = nil
	}
	return errors.Join(append(errs, w.turn.Unlock())...)
}

// prepare returns a statement whose last use has ended.
func (w *writer) prepare(text string) (*statement, error) {
	known := w.stmts[text]
	if known != nil && !known.open {
		return known, nil
	}
	stmt, err := w.conn.prepare(text)
	if err != nil {
		return nil, err
	}
	if known != nil || len(w.stmts) >= sqliteStatements {
		stmt.once = true
	} else {
		w.stmts[text] = stmt
	}
	return stmt, nil
}

// ready returns a statement and its arguments in the order of its placeholders.
func (w *writer) ready(q string, args []any) (*statement, []any, error) {
	p := toPositional(q)
	args, err := p.args(args)
	if err != nil {
		return nil, nil, err
	}
	stmt, err := w.prepare(p.text)
	return stmt, args, MapError(err)
}

// exec does not end with the caller's context: a transaction is short, and one that runs is finished.
func (w *writer) exec(q string, args []any) (int64, error) {
	stmt, args, err := w.ready(q, args)
	if err != nil {
		return 0, err
	}
	n, err := stmt.exec(args)
	return n, MapError(err)
}

func (w *writer) query(q string, args []any) (*Rows, error) {
	stmt, args, err := w.ready(q, args)
	if err != nil {
		return nil, err
	}
	if err := stmt.query(args); err != nil {
		return nil, MapError(err)
	}
	return &Rows{writer: stmt, turn: stmt.turn}, nil
}
