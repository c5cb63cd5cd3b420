package ledger

import (
	"context"
	"errors"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// load fills the state of one account under its lock, row by row: the way of SQLite, and of single transactions.
func load(ctx context.Context, tx *store.Tx, g *group, depth int) error {
	if g.needs.plan != "" {
		if err := makeAccount(ctx, tx, g); err != nil {
			return err
		}
	}
	s, id := g.state, g.id[:]
	lock := sqlAccount
	if tx.Engine() == store.Postgres {
		lock = sqlAccountLock
	}
	err := scanAccount(tx.QueryRow(ctx, lock, id).Scan, &s.account)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	rows, err := tx.Query(ctx, sqlLotsTo[depth], id)
	if err != nil {
		return err
	}
	if err := each(rows, func() error {
		l := &lotRow{}
		s.lots = append(s.lots, l)
		return rows.Scan(l.scanInto()...)
	}); err != nil {
		return err
	}
	s.lotsAll = len(s.lots) < depth
	for _, ref := range g.needs.refs {
		l := &lotRow{}
		switch err := tx.QueryRow(ctx, sqlLotByRef, id, ref).Scan(l.scanInto()...); {
		case err == nil:
			g.addRef(l)
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
	}
	if g.needs.ends {
		rows, err := tx.Query(ctx, sqlLotEnds, id)
		if err != nil {
			return err
		}
		if err := each(rows, func() error {
			var lot, end int64
			err := rows.Scan(&lot, &end)
			s.ends[lot] = end
			return err
		}); err != nil {
			return err
		}
	}
	for _, key := range g.needs.keys {
		var requestID string
		switch err := tx.QueryRow(ctx, sqlKey, id, key).Scan(&requestID); {
		case err == nil:
			s.keys[key] = requestID
			g.needs.requests = append(g.needs.requests, requestID)
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
	}
	for _, requestID := range g.needs.requests {
		if s.requests[requestID] != nil {
			continue
		}
		r := &requestRow{stored: true}
		switch err := scanRequest(tx.QueryRow(ctx, sqlRequest, id, requestID).Scan, &r.Request); {
		case err == nil:
			s.requests[requestID] = r
			g.needs.perms = append(g.needs.perms, r.Permission)
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
	}
	if s.account.nextHoldEnd <= s.dueAt() {
		if err := loadDue(ctx, tx, g); err != nil {
			return err
		}
	}
	for _, hash := range g.needs.perms {
		if err := loadPermission(ctx, tx, g, hash); err != nil {
			return err
		}
	}
	return nil
}

// dueAt is the time that tidy will decide by.
func (s *state) dueAt() int64 { return max(s.now, micros(s.account.UpdatedAt, 0)) }

func loadDue(ctx context.Context, tx *store.Tx, g *group) error {
	s, id := g.state, g.id[:]
	read := func(add func(*requestRow), query string, args ...any) error {
		rows, err := tx.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		return each(rows, func() error {
			r := &requestRow{stored: true}
			if err := scanRequest(rows.Scan, &r.Request); err != nil {
				return err
			}
			add(r)
			return nil
		})
	}
	if err := read(g.addDue, sqlRequestsDue, id, s.dueAt()); err != nil {
		return err
	}
	for _, hash := range g.duePermissions() {
		if err := read(g.addClaim, sqlClaims, id, hash[:]); err != nil {
			return err
		}
	}
	err := tx.QueryRow(ctx, sqlNextDue, id, s.dueAt()).Scan(&s.nextDue)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// addDue keeps one value per request, whichever query found it.
func (g *group) addDue(r *requestRow) {
	if known := g.state.requests[r.ID]; known != nil {
		r = known
	}
	g.state.requests[r.ID] = r
	g.state.due = append(g.state.due, r)
	g.needs.perms = append(g.needs.perms, r.Permission)
}

func loadPermission(ctx context.Context, tx *store.Tx, g *group, hash toll.Hash) error {
	if g.state.perms[hash] != nil {
		return nil
	}
	p := &permissionRow{}
	err := scanPermission(tx.QueryRow(ctx, sqlPermission, g.id[:], hash[:]).Scan, &p.Permission)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	g.state.perms[hash] = p
	return err
}

// rows is what both engines give back for a query.
type rows interface {
	Next() bool
	Err() error
	Close()
}

func each(r rows, f func() error) error {
	for r.Next() {
		if err := f(); err != nil {
			r.Close()
			return err
		}
	}
	r.Close()
	return r.Err()
}

// save writes what the operations on one account changed.
func save(ctx context.Context, tx *store.Tx, g *group) error {
	s, id := g.state, g.id[:]
	exec := func(sql string, args []any) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	}
	if s.accountChanged {
		if err := exec(sqlAccountSave, s.account.row()); err != nil {
			return err
		}
	}
	for _, l := range s.changedLots() {
		if err := exec(sqlLotSave, l.row(id)); err != nil {
			return err
		}
	}
	for i := range s.entries {
		if err := exec(sqlEntryAdd, s.entries[i].row()); err != nil {
			return err
		}
	}
	for _, r := range s.requests {
		if !r.changed {
			continue
		}
		sql, args := sqlRequestAdd, r.row
		if r.stored {
			sql, args = sqlRequestEnd, r.end
		}
		if err := exec(sql, args()); err != nil {
			return err
		}
	}
	for _, k := range s.newKeys {
		if err := exec(sqlKeyAdd, []any{id, k.key, k.requestID}); err != nil {
			return err
		}
	}
	for _, p := range s.perms {
		if !p.changed {
			continue
		}
		if err := exec(sqlPermissionSave, p.use(id)); err != nil {
			return err
		}
	}
	return nil
}
