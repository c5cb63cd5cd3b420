package ledger

import (
	"context"
	"time"

	"github.com/tollhq/toll/internal/store"
)

// CountUsage counts the next part of the journal in the tables of usage and revenue, and reports whether there may be more. It has a
// cursor of its own, which moves in the transaction of the counts: each entry is counted once, whichever process does it and wherever
// it is killed. After [Ledger.RecountUsage] it empties the tables first, in slices.
func (l *Ledger) CountUsage(ctx context.Context) (more bool, err error) {
	limit := followRows
	if l.st.Engine() == store.SQLite {
		limit = followOnSQLite
	}
	pos, err := store.JournalCursor(ctx, l.st, store.UsageCursor)
	if err != nil {
		return false, err
	}
	var rows []store.JournalRow
	if pos >= 0 {
		if rows, err = store.JournalAfter(ctx, l.st, pos, limit); err != nil {
			return false, err
		}
		if len(rows) == 0 {
			return l.restoreUsage(ctx)
		}
	}
	moved := false
	err = l.st.Tx(ctx, func(tx *store.Tx) error {
		now, err := store.LockJournalCursor(ctx, tx, store.UsageCursor)
		if moved = now == pos; err != nil || !moved {
			return err // another process has done these
		}
		if pos < 0 {
			more, err := store.EmptyUsage(ctx, tx)
			if err != nil || more {
				return err
			}
			return store.MoveJournalCursor(ctx, tx, store.UsageCursor, 0)
		}
		if err := store.MoveJournalCursor(ctx, tx, store.UsageCursor, rows[len(rows)-1].Pos); err != nil {
			return err
		}
		sides, err := store.SidesOf(ctx, tx, accountsIn(rows))
		if err != nil {
			return err
		}
		if err := store.AddUsage(ctx, tx, rows, sides); err != nil {
			return err
		}
		if err := store.AddRevenue(ctx, tx, rows); err != nil {
			return err
		}
		l.failpoint("counted")
		return nil
	})
	if err == nil && moved && l.counted != nil {
		l.counted(burnsIn(rows))
	}
	if err != nil || pos < 0 || len(rows) == limit || !moved {
		return true, err
	}
	return l.restoreUsage(ctx)
}

// restoreUsage ends a rebuild: once all is counted, settlements whose requests were removed get their agents back.
func (l *Ledger) restoreUsage(ctx context.Context) (more bool, err error) {
	if open, err := store.UsageToRestore(ctx, l.st); err != nil || !open {
		return false, err
	}
	err = l.st.Tx(ctx, func(tx *store.Tx) error {
		pos, err := store.LockJournalCursor(ctx, tx, store.UsageCursor)
		if err == nil && pos >= 0 {
			more, err = store.RestoreUsage(ctx, tx)
		}
		l.failpoint("restored")
		return err
	})
	return more, err
}

// burnsIn returns how many of the rows are settlements, and their credits.
func burnsIn(rows []store.JournalRow) (settlements, credits int64) {
	for i := range rows {
		if Kind(rows[i].Kind) == KindBurn {
			settlements++
			credits += int64(rows[i].Amount)
		}
	}
	return settlements, credits
}

// accountsIn returns the accounts of rows, each once.
func accountsIn(rows []store.JournalRow) (all [][16]byte) {
	seen := make(map[[16]byte]bool, len(rows))
	for i := range rows {
		if id := rows[i].Account; !seen[id] {
			seen[id] = true
			all = append(all, id)
		}
	}
	return all
}

// RecountUsage has usage and revenue counted anew, from the first entry on, by [Ledger.CountUsage]. Meanwhile they show less than
// there is; [Ledger.UsageCounted] says up to when they are right.
func (l *Ledger) RecountUsage(ctx context.Context) error {
	return l.st.Tx(ctx, func(tx *store.Tx) error {
		if _, err := store.LockJournalCursor(ctx, tx, store.UsageCursor); err != nil {
			return err
		}
		return store.MoveJournalCursor(ctx, tx, store.UsageCursor, -1)
	})
}

// UsageCounted returns the time up to which usage and revenue have all entries: now, or that of the first entry that is not counted.
func (l *Ledger) UsageCounted(ctx context.Context) (time.Time, error) {
	done, err := store.JournalCursor(ctx, l.st, store.UsageCursor)
	if err != nil {
		return time.Time{}, err
	}
	next, err := store.JournalAt(ctx, l.st, max(done, 0)+1)
	if err != nil || len(next) == 0 {
		return l.clock(), err
	}
	return micro(next[0].At), nil
}
