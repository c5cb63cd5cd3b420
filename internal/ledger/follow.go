package ledger

import (
	"context"
	"time"

	"github.com/tollhq/toll/internal/store"
)

// Consumer makes something of the journal: events, sums.
type Consumer struct {
	// Rows gets the next rows of the journal, in order, in the transaction that moves the cursor behind them: what it writes there is
	// written once for each row, whichever process follows and wherever it is killed. It is called again after a failure of the
	// transaction, and must not change anything but the database. An error stops the follower until it is gone.
	Rows func(ctx context.Context, tx *store.Tx, rows []store.JournalRow) error
	// Done is called after the commit. May be nil.
	Done func(rows []store.JournalRow)
}

// Rows of the journal in one transaction of the follower. On SQLite settlements wait for it.
const (
	followRows     = 4000
	followOnSQLite = 500
)

// Follow works off the next part of the journal: the indexes by commitment and by account, then consumers in their order, all in one
// transaction. It reports whether there may be more. Of several processes one does so at a time, and the others wait.
func (l *Ledger) Follow(ctx context.Context, consumers ...Consumer) (more bool, err error) {
	limit := followRows
	if l.st.Engine() == store.SQLite {
		limit = followOnSQLite
	}
	// Rows never change, so they are read before the transaction, which nobody has to wait for longer than needed.
	pos, err := store.JournalCursor(ctx, l.st, store.Follower)
	if err != nil {
		return false, err
	}
	rows, err := store.JournalAfter(ctx, l.st, pos, limit)
	if err != nil || len(rows) == 0 {
		return false, err
	}
	moved := false
	err = l.st.Tx(ctx, func(tx *store.Tx) error {
		now, err := store.LockJournalCursor(ctx, tx, store.Follower)
		if moved = now == pos; err != nil || !moved {
			return err // another process has done these
		}
		if err := store.MoveJournalCursor(ctx, tx, store.Follower, rows[len(rows)-1].Pos); err != nil {
			return err
		}
		if err := store.IndexJournal(ctx, tx, rows); err != nil {
			return err
		}
		for _, c := range consumers {
			if err := c.Rows(ctx, tx, rows); err != nil {
				return err
			}
		}
		l.failpoint("followed")
		return nil
	})
	if err != nil {
		return false, err
	}
	for _, c := range consumers {
		if moved && c.Done != nil {
			c.Done(rows)
		}
	}
	return len(rows) == limit || !moved, nil
}

// Lag returns how many entries the follower has yet to read, and for how long the first of them has waited.
func (l *Ledger) Lag(ctx context.Context) (entries int64, waited time.Duration, err error) {
	done, err := store.JournalCursor(ctx, l.st, store.Follower)
	if err != nil {
		return 0, 0, err
	}
	last, err := store.JournalLength(ctx, l.st)
	if err != nil || last <= done {
		return 0, 0, err
	}
	next, err := store.JournalAt(ctx, l.st, done+1)
	if err != nil || len(next) == 0 {
		return last - done, 0, err
	}
	return last - done, max(l.clock().Sub(micro(next[0].At)), 0), nil
}
