package store

import (
	"context"
	"slices"

	"github.com/tollhq/toll"
)

// EventCursor says up to which entry the events of an account are made.
type EventCursor struct {
	Account [16]byte
	Seq     int64
	LowMark toll.Credits // the balance below which the account is low

	// Read, not written: of the account and its plan.
	Plan       toll.PlanID
	Subscriber toll.Address
	Owner      toll.Address // zero when there is no record of the plan
}

const (
	sqlCursorMake  = `INSERT INTO event_cursors (account_id, seq, low_mark) VALUES ($1, 0, 0) ON CONFLICT (account_id) DO NOTHING`
	sqlCursorsMake = `INSERT INTO event_cursors (account_id, seq, low_mark) SELECT unnest($1::bytea[]), 0, 0
		ON CONFLICT (account_id) DO NOTHING`
	sqlCursor      = `SELECT account_id, seq, low_mark FROM event_cursors WHERE account_id = $1`
	sqlCursorsLock = `SELECT account_id, seq, low_mark FROM event_cursors WHERE account_id = ANY($1) ORDER BY account_id FOR UPDATE`
	sqlSides       = `SELECT a.account_id, a.plan_id, a.subscriber, COALESCE(p.owner, '') FROM accounts a
		LEFT JOIN plans p ON p.plan_id = a.plan_id WHERE a.account_id = $1`
	sqlSidesOf = `SELECT a.account_id, a.plan_id, a.subscriber, COALESCE(p.owner, '') FROM accounts a
		LEFT JOIN plans p ON p.plan_id = a.plan_id WHERE a.account_id = ANY($1)`
	sqlCursorSave  = `UPDATE event_cursors SET seq = $2, low_mark = $3 WHERE account_id = $1`
	sqlCursorsSave = `UPDATE event_cursors c SET seq = u.seq, low_mark = u.low_mark
		FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) AS u(account_id, seq, low_mark) WHERE c.account_id = u.account_id`
)

// LockEventCursors returns the cursors of accounts that exist, which nobody else moves until the end of the transaction. Every
// process locks them in the order of their ids.
func LockEventCursors(ctx context.Context, tx *Tx, accounts [][16]byte) ([]*EventCursor, error) {
	accounts = slices.Clone(accounts)
	slices.SortFunc(accounts, func(a, b [16]byte) int { return slices.Compare(a[:], b[:]) })
	accounts = slices.Compact(accounts)
	ids := make([][]byte, len(accounts))
	for i := range accounts {
		ids[i] = accounts[i][:]
	}
	var cursors []*EventCursor
	if tx.Engine() == Postgres {
		if _, err := tx.Exec(ctx, sqlCursorsMake, ids); err != nil {
			return nil, err
		}
		rows, err := tx.Query(ctx, sqlCursorsLock, ids)
		if cursors, err = scanAll(rows, err, scanCursor); err != nil {
			return nil, err
		}
		rows, err = tx.Query(ctx, sqlSidesOf, ids)
		sides, err := scanAll(rows, err, scanSides)
		if err != nil {
			return nil, err
		}
		byID := make(map[[16]byte]*EventCursor, len(sides))
		for _, s := range sides {
			byID[s.Account] = s
		}
		for _, c := range cursors {
			c.takeSides(byID[c.Account])
		}
		return cursors, nil
	}
	for _, id := range ids {
		if _, err := tx.Exec(ctx, sqlCursorMake, id); err != nil {
			return nil, err
		}
		c, err := scanCursor(tx.QueryRow(ctx, sqlCursor, id).Scan)
		if err != nil {
			return nil, err
		}
		sides, err := scanSides(tx.QueryRow(ctx, sqlSides, id).Scan)
		if err != nil {
			return nil, err
		}
		c.takeSides(sides)
		cursors = append(cursors, c)
	}
	return cursors, nil
}

func scanCursor(scan func(dest ...any) error) (*EventCursor, error) {
	var c EventCursor
	var id []byte
	err := scan(&id, &c.Seq, &c.LowMark)
	copy(c.Account[:], id)
	return &c, err
}

func scanSides(scan func(dest ...any) error) (*EventCursor, error) {
	var c EventCursor
	var id []byte
	var plan, subscriber, owner string
	err := scan(&id, &plan, &subscriber, &owner)
	if err != nil {
		return nil, err
	}
	copy(c.Account[:], id)
	c.Plan = toll.PlanID(plan)
	if c.Subscriber, err = toll.ParseAddress(subscriber); err == nil && owner != "" {
		c.Owner, err = toll.ParseAddress(owner)
	}
	return &c, err
}

func (c *EventCursor) takeSides(from *EventCursor) {
	if from != nil {
		c.Plan, c.Subscriber, c.Owner = from.Plan, from.Subscriber, from.Owner
	}
}

// SaveEventCursors moves cursors that are locked.
func SaveEventCursors(ctx context.Context, tx *Tx, cursors []*EventCursor) error {
	if tx.Engine() == Postgres {
		ids, seqs, marks := make([][]byte, len(cursors)), make([]int64, len(cursors)), make([]int64, len(cursors))
		for i, c := range cursors {
			ids[i], seqs[i], marks[i] = c.Account[:], c.Seq, int64(c.LowMark)
		}
		_, err := tx.Exec(ctx, sqlCursorsSave, ids, seqs, marks)
		return err
	}
	for _, c := range cursors {
		if _, err := tx.Exec(ctx, sqlCursorSave, c.Account[:], c.Seq, int64(c.LowMark)); err != nil {
			return err
		}
	}
	return nil
}

// AccountsBehind looks at a slice of the accounts, those behind an id, and returns which of them have entries without events,
// and where the slice ended. done says that it was the last one.
func AccountsBehind(ctx context.Context, q Querier, after [16]byte, slice int) (behind [][16]byte, last [16]byte, done bool, err error) {
	rows, err := q.Query(ctx, `SELECT a.account_id, a.seq, COALESCE(c.seq, 0)
		FROM (SELECT account_id, seq FROM accounts WHERE account_id > $1 ORDER BY account_id LIMIT $2) a
		LEFT JOIN event_cursors c ON c.account_id = a.account_id ORDER BY a.account_id`, after[:], int64(slice))
	last = after
	seen, err := scanAll(rows, err, func(scan func(dest ...any) error) (id []byte, err error) {
		var entries, made int64
		if err = scan(&id, &entries, &made); err != nil {
			return nil, err
		}
		copy(last[:], id)
		if entries > made {
			behind = append(behind, last)
		}
		return id, nil
	})
	return behind, last, len(seen) < slice, err
}
