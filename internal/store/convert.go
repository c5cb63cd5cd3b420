package store

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"log/slog"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/tollhq/toll"
)

// Migration 42 is no SQL: it moves the entries and the settled requests of older releases into the journal. afterConversion is the
// file of the migration that needs it.
const (
	conversionVersion = 42
	afterConversion   = "0043_requests.sql"
	// conversionSlice is how many rows are moved in one transaction, so that a migration that was killed resumes.
	conversionSlice = 10000
)

// converter moves entries into the journal.
type converter struct {
	// inTx runs f in a transaction of its own.
	inTx func(ctx context.Context, f func(tx *Tx) error) error
	log  *slog.Logger
}

// conversion returns the migration that moves entries, nil when dir ends before it.
func conversion(ctx context.Context, db *sql.DB, e Engine, dir fs.FS, log *slog.Logger) (*goose.Migration, error) {
	if _, err := fs.Stat(dir, afterConversion); err != nil {
		return nil, nil
	}
	var file string
	if e == SQLite {
		if err := db.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&file); err != nil {
			return nil, MapError(err)
		}
	}
	run := func(ctx context.Context, db *sql.DB) error {
		if e == SQLite {
			return convertSQLite(ctx, file, log)
		}
		return convertPostgres(ctx, db, log)
	}
	return goose.NewGoMigration(conversionVersion, &goose.GoFunc{RunDB: run}, nil), nil
}

// convertSQLite works on a connection of its own, as that of the migration cannot be shared.
func convertSQLite(ctx context.Context, file string, log *slog.Logger) (err error) {
	conn, err := connect(file, append([]string{"busy_timeout(30000)", "cache_size(-262144)", "temp_store(MEMORY)"}, durablePragmas...)...)
	if err != nil {
		return MapError(err)
	}
	w := &writer{conn: conn, stmts: map[string]*statement{}}
	defer func() {
		for _, s := range w.stmts {
			err = errors.Join(err, s.close())
		}
		err = errors.Join(err, conn.close())
	}()
	c := &converter{log: log, inTx: func(_ context.Context, f func(tx *Tx) error) error {
		if _, err := w.exec("BEGIN IMMEDIATE", nil); err != nil {
			return err
		}
		err := f(&Tx{lite: w})
		if err == nil {
			_, err = w.exec("COMMIT", nil)
		}
		if err != nil {
			_, _ = w.exec("ROLLBACK", nil) // fails only when SQLite has rolled back already
		}
		return err
	}}
	return c.run(ctx)
}

func convertPostgres(ctx context.Context, db *sql.DB, log *slog.Logger) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(driver any) error {
		session := driver.(*stdlib.Conn).Conn()
		c := &converter{log: log, inTx: func(ctx context.Context, f func(tx *Tx) error) error {
			// Statistics may be missing: each slice is to read its part by the primary key, whatever the planner thinks.
			_, err := session.Exec(ctx, `BEGIN; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off;
				SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off;
				SET LOCAL plan_cache_mode = force_custom_plan`)
			if err == nil {
				err = f(&Tx{pg: session})
			}
			if err == nil {
				_, err = session.Exec(ctx, "COMMIT")
			}
			if err != nil {
				_, _ = session.Exec(context.WithoutCancel(ctx), "ROLLBACK") // the session ends with the migration
			}
			return err
		}}
		return c.run(ctx)
	})
}

// Entries whose events an earlier release has made come first, each account by itself, then the others: the follower begins there.
const (
	sqlOldEntries = `SELECT e.account_id, e.seq, e.kind, e.amount, e.balance_after, e.ref, e.at, e.commitment,
			r.content, r.permission_hash, r.agent_id, r.resource, r.held, r.hold_ends_at, r.created_at, r.previous_burn, r.answer,
			p.last_burn
		FROM entries e
		LEFT JOIN event_cursors c ON c.account_id = e.account_id
		LEFT JOIN requests r ON e.kind = 2 AND r.agent_request_id = e.ref AND r.account_id = e.account_id
		LEFT JOIN permissions p ON p.account_id = e.account_id AND p.permission_hash = r.permission_hash
			AND p.redemption_limit IS NOT NULL AND p.redeemed >= p.redemption_limit
		WHERE (e.account_id, e.seq) > ($1, $2) AND `
	sqlOldDone   = sqlOldEntries + `e.seq <= COALESCE(c.seq, 0) ORDER BY e.account_id, e.seq LIMIT $3`
	sqlOldBehind = sqlOldEntries + `e.seq > COALESCE(c.seq, 0) ORDER BY e.account_id, e.seq LIMIT $3`

	sqlOldMark = `SELECT granted FROM lots WHERE account_id = $1 AND lot_id > 0 AND lot_id < $2 ORDER BY lot_id DESC LIMIT 1`
	// From the last burn under a permission back to the last one that took credits.
	sqlOldLastRedemption = `WITH RECURSIVE uses(seq, amount, ref) AS (
			SELECT e.seq, e.amount, e.ref FROM permissions p JOIN entries e ON e.account_id = $1 AND e.seq = p.last_burn
				WHERE p.account_id = $1 AND p.permission_hash = $2
			UNION ALL
			SELECT e.seq, e.amount, e.ref FROM uses u
				JOIN requests r ON r.account_id = $1 AND r.agent_request_id = u.ref
				JOIN entries e ON e.account_id = $1 AND e.seq = r.previous_burn
				WHERE u.amount = 0)
		SELECT COALESCE(MAX(seq), 0) FROM uses WHERE amount > 0`
)

// oldRow is an entry of an older release.
type oldRow struct {
	JournalRow
	usedUp *int64 // last burn of the permission, if that is used up by now
}

func scanOld(scan func(dest ...any) error) (r oldRow, err error) {
	var account, commitment, content, permission, answer []byte
	var agent, resource *string
	var held, holdEnds, created, previous *int64
	err = scan(&account, &r.Seq, &r.Kind, &r.Amount, &r.BalanceAfter, &r.Ref, &r.At, &commitment, &content, &permission, &agent, &resource,
		&held, &holdEnds, &created, &previous, &answer, &r.usedUp)
	if err != nil {
		return r, err
	}
	copy(r.Account[:], account)
	copy(r.Commitment[:], commitment)
	if r.Kind != kindBurn {
		return r, nil
	}
	if held == nil {
		return r, errors.New("store: an entry of an older release has no request: run toll audit with that release")
	}
	r.Burn = &Burn{
		Agent: toll.AgentID(*agent), Resource: *resource, Held: toll.Credits(*held), HoldEndsAt: *holdEnds, CreatedAt: *created,
		Previous: *previous, Answer: answer,
	}
	copy(r.Burn.Content[:], content)
	copy(r.Burn.Permission[:], permission)
	return r, nil
}

// run moves what is not moved yet. The journal itself says how far an earlier run came.
func (c *converter) run(ctx context.Context) error {
	behind, more := false, true
	for more || !behind {
		if !more {
			behind = true
		}
		err := c.inTx(ctx, func(tx *Tx) (err error) {
			more, err = c.slice(ctx, tx, &behind)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// slice moves a part of the entries, and reports whether there may be more of the same kind. behind says which kind it is; it becomes
// true when an earlier run had come so far.
func (c *converter) slice(ctx context.Context, tx *Tx, behind *bool) (more bool, err error) {
	last, err := JournalLength(ctx, tx)
	if err != nil {
		return false, err
	}
	after := JournalRow{Account: [16]byte{}}
	if last > 0 {
		at, err := JournalAt(ctx, tx, last)
		if err != nil {
			return false, err
		}
		after = at[0]
		done, err := value[int64](ctx, tx, "SELECT COALESCE(MAX(seq), 0) FROM event_cursors WHERE account_id = $1", after.Account[:])
		if err != nil {
			return false, err
		}
		switch isBehind := after.Seq > done; {
		case isBehind:
			*behind = true
		case *behind: // the first of those
			after = JournalRow{}
		}
	}
	statement := sqlOldDone
	if *behind {
		statement = sqlOldBehind
	}
	old, err := All(ctx, tx, scanOld, statement, after.Account[:], after.Seq, int64(conversionSlice))
	if err != nil || len(old) == 0 {
		return false, err
	}
	rows := make([]JournalRow, len(old))
	var mark toll.Credits
	redemptions := map[toll.Hash]int64{}
	for i := range old {
		r := &old[i]
		r.Pos = last + int64(i) + 1
		if *behind {
			if i == 0 || r.Account != old[i-1].Account {
				clear(redemptions)
				if mark, err = value[toll.Credits](ctx, tx, sqlOldMark, r.Account[:], r.Seq); err != nil && !errors.Is(err, ErrNotFound) {
					return false, err
				}
				mark /= lowShare
			}
			if err := r.flag(ctx, tx, &mark, redemptions); err != nil {
				return false, err
			}
		}
		rows[i] = r.JournalRow
	}
	if err := addJournal(ctx, tx, rows); err != nil {
		return false, err
	}
	if !*behind {
		if err := IndexJournal(ctx, tx, rows); err != nil {
			return false, err
		}
		if err := MoveJournalCursor(ctx, tx, Follower, rows[len(rows)-1].Pos); err != nil {
			return false, err
		}
	}
	c.log.DebugContext(ctx, "entries moved into the journal", "position", rows[len(rows)-1].Pos)
	return len(rows) == conversionSlice, nil
}

// lowShare is the share of the last grant below which an account is low.
const lowShare = 10

// flag sets the flags of an entry whose events are not made yet, as the ledger sets them.
func (r *oldRow) flag(ctx context.Context, tx *Tx, mark *toll.Credits, redemptions map[toll.Hash]int64) error {
	const mint, giveBack = 1, 5
	before := r.BalanceAfter + r.Amount
	if r.Kind == mint || r.Kind == giveBack {
		before = r.BalanceAfter - r.Amount
	}
	if r.Kind == mint {
		*mark = r.Amount / lowShare
	}
	r.Low = before >= *mark && r.BalanceAfter < *mark
	if r.usedUp == nil || r.Amount == 0 {
		return nil
	}
	seq, known := redemptions[r.Burn.Permission]
	if !known {
		var err error
		if seq, err = value[int64](ctx, tx, sqlOldLastRedemption, r.Account[:], r.Burn.Permission[:]); err != nil {
			return err
		}
		redemptions[r.Burn.Permission] = seq
	}
	r.UsedUp = seq == r.Seq
	return nil
}

// addJournal adds rows whose positions are the next ones.
func addJournal(ctx context.Context, tx *Tx, rows []JournalRow) error {
	values := func(r JournalRow) []any { return r.Values() }
	return addRows(ctx, tx, SQLJournalAdd, SQLJournalAddMany, Mapped(rows, values))
}
