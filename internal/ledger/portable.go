package ledger

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// load fills the state of one account under its lock, row by row: the way of SQLite.
func load(ctx context.Context, tx *store.Tx, g *group, depth int) error {
	if err := tx.Run(ctx, lockAccount(tx, g.id, g.needs.plan, g.needs.subscriber, &g.state.account)...); err != nil {
		return err
	}
	return loadRest(func(stmts ...store.Stmt) error { return tx.Run(ctx, stmts...) }, g, depth)
}

// lockAccount returns the statements that lock the row of an account and read it. With a plan they make
// the account first, if it does not exist.
func lockAccount(tx *store.Tx, id AccountID, plan toll.PlanID, subscriber toll.Address, a *Account) []store.Stmt {
	var stmts []store.Stmt
	if plan != "" {
		stmts = append(stmts, makeAccount(id, plan, subscriber))
	}
	lock := sqlAccount
	if tx.Engine() == store.Postgres {
		lock = sqlAccountLock
	}
	return append(stmts, store.Stmt{SQL: lock, Args: []any{id[:]}, Row: func(scan func(...any) error) error { return scanAccount(scan, a) }})
}

// loadRest reads all but the row of the account, in at most four calls of run.
func loadRest(run func(stmts ...store.Stmt) error, g *group, depth int) error {
	s, id := g.state, g.id[:]
	var err error
	if s.hot, err = parseHot(s.account.hot); err != nil {
		return err
	}
	stmts := make([]store.Stmt, 0, 8)
	stmts = append(stmts, store.Stmt{SQL: sqlLotsTo[depth], Args: []any{id}, Row: func(scan func(...any) error) error {
		l, err := scanLot(scan, &s.hot)
		s.lots = append(s.lots, l)
		return err
	}})
	for _, ref := range g.needs.refs {
		stmts = append(stmts, store.Stmt{SQL: sqlLotByRef, Args: []any{id, ref}, Row: func(scan func(...any) error) error {
			l, err := scanLot(scan, &s.hot)
			if err == nil {
				g.addRef(l)
			}
			return err
		}})
	}
	if g.needs.ends {
		stmts = append(stmts, store.Stmt{SQL: sqlLotEnds, Args: []any{id}, Row: func(scan func(...any) error) error {
			var lot, end int64
			err := scan(&lot, &end)
			s.ends[lot] = end
			return err
		}})
	}
	for _, key := range g.needs.keys {
		stmts = append(stmts, store.Stmt{SQL: sqlKey, Args: []any{id, key}, Row: func(scan func(...any) error) error {
			var requestID string
			err := scan(&requestID)
			s.keys[key] = requestID
			g.needs.requests = append(g.needs.requests, requestID)
			return err
		}})
	}
	if err := run(stmts...); err != nil {
		return err
	}
	s.lotsAll = len(s.lots) < depth
	if err := loadRequests(run, g); err != nil {
		return err
	}
	if s.account.nextHoldEnd <= s.dueAt() {
		if err := loadDue(run, g); err != nil {
			return err
		}
	}
	return loadPermissions(run, g)
}

func loadRequests(run func(stmts ...store.Stmt) error, g *group) error {
	var stmts []store.Stmt
	for _, requestID := range g.needs.requests {
		stmts = append(stmts, store.Stmt{SQL: sqlRequest, Args: []any{g.id[:], requestID}, Row: requestInto(func(r *requestRow) {
			if g.state.requests[r.ID] == nil {
				g.state.requests[r.ID] = r
				g.needs.permission(r.Permission)
			}
		})})
	}
	if stmts == nil {
		return nil
	}
	if err := run(stmts...); err != nil {
		return err
	}
	stmts = stmts[:0]
	for _, requestID := range g.needs.requests {
		if g.state.requests[requestID] == nil {
			stmts = append(stmts, store.Stmt{
				SQL: store.SQLBurn, Args: []any{store.RefOf(requestID, g.id), g.id[:]}, Row: burnInto(g.addRequest),
			})
		}
	}
	if len(stmts) == 0 {
		return nil
	}
	return run(stmts...)
}

// requestInto returns a reader of rows that hands each request to add.
func requestInto(add func(*requestRow)) func(scan func(...any) error) error {
	return func(scan func(...any) error) error {
		r := &requestRow{stored: true}
		if err := scanRequest(scan, &r.Request); err != nil {
			return err
		}
		add(r)
		return nil
	}
}

// dueAt is the time that tidy will decide by.
func (s *state) dueAt() int64 { return max(s.now, micros(s.account.UpdatedAt, 0)) }

// loadDue reads the holds at their end, the next end, and the claims of their permissions.
func loadDue(run func(stmts ...store.Stmt) error, g *group) error {
	s, id := g.state, g.id[:]
	if err := run(
		store.Stmt{SQL: sqlRequestsDue, Args: []any{id, s.dueAt()}, Row: requestInto(g.addDue)},
		store.Stmt{SQL: sqlNextDue, Args: []any{id, s.dueAt()}, Row: func(scan func(...any) error) error { return scan(&s.nextDue) }},
	); err != nil {
		return err
	}
	var claims []store.Stmt
	for _, hash := range g.duePermissions() {
		claims = append(claims, store.Stmt{SQL: sqlClaims, Args: []any{id, hash[:]}, Row: requestInto(g.addClaim)})
	}
	if claims == nil {
		return nil
	}
	return run(claims...)
}

// addDue keeps one value per request, whichever query found it.
func (g *group) addDue(r *requestRow) {
	if known := g.state.requests[r.ID]; known != nil {
		r = known
	}
	g.state.requests[r.ID] = r
	g.state.due = append(g.state.due, r)
	g.needs.permission(r.Permission)
}

func loadPermissions(run func(stmts ...store.Stmt) error, g *group) error {
	var stmts []store.Stmt
	for _, hash := range g.needs.perms {
		if g.state.perms[hash] != nil {
			continue
		}
		stmts = append(stmts, store.Stmt{SQL: sqlPermission, Args: []any{g.id[:], hash[:]}, Row: func(scan func(...any) error) error {
			p := &permissionRow{}
			g.state.perms[hash] = p
			return scanPermission(scan, &p.Permission, &g.state.hot)
		}})
	}
	if stmts == nil {
		return nil
	}
	return run(stmts...)
}

// writes are the statements that write a row of each kind, and many rows.
var writes = []struct{ one, many string }{
	writesAccount:    {sqlAccountSave, sqlAccountsSave},
	writesLot:        {sqlLotSave, sqlLotsSave},
	writesRequest:    {sqlRequestAdd, sqlRequestsAdd},
	writesEnd:        {sqlRequestEnd, sqlRequestsEnd},
	writesSettled:    {sqlRequestSettled, sqlRequestsSettled},
	writesKey:        {sqlKeyAdd, sqlKeysAdd},
	writesPermission: {sqlPermissionSave, sqlPermissionsSave},
	writesLotLeft:    {sqlLotLeft, sqlLotsLeft},
	writesTerms:      {sqlPermissionTerms, sqlPermissionsTerms},
	writesEntry:      {store.SQLJournalAdd, store.SQLJournalAddMany}, // last: see [store.JournalLock]
}

const (
	writesAccount = iota
	writesLot
	writesRequest
	writesEnd
	writesSettled
	writesKey
	writesPermission
	writesLotLeft
	writesTerms
	writesEntry
)

// rows calls add for each row that the operations on one account changed, with its place in writes.
func (s *state) rows(id []byte, add func(kind int, row []any)) {
	if !s.changed() {
		return
	}
	cold := s.fold()
	s.account.version++
	add(writesAccount, s.account.row())
	for _, l := range cold.lots {
		add(writesLot, l.row(id))
	}
	for _, l := range cold.left {
		add(writesLotLeft, []any{id, l.id, int64(l.remaining)})
	}
	for _, r := range s.requests {
		switch {
		case !r.changed:
		case r.stored && r.State == StateSettled:
			add(writesSettled, []any{id, r.ID})
		case r.stored:
			add(writesEnd, []any{id, r.ID, int64(r.State), micros(r.EndedAt, 0)})
		case r.State != StateSettled:
			add(writesRequest, r.row())
		}
	}
	for _, k := range s.newKeys {
		add(writesKey, []any{id, k.key, k.requestID})
	}
	for _, p := range cold.permissions {
		add(writesPermission, p.row(id))
	}
	for _, p := range cold.terms {
		add(writesTerms, []any{id, p.Hash[:], p.Orders, micros(p.RevokedAt, 0)})
	}
	s.entryRows(func(row []any) { add(writesEntry, row) })
}

// changes returns the statements that write what the operations on one account changed, the rows of the journal last.
func (s *state) changes(id []byte) []store.Stmt {
	stmts := make([]store.Stmt, 0, 8)
	s.rows(id, func(kind int, row []any) { stmts = append(stmts, store.Stmt{SQL: writes[kind].one, Args: row}) })
	return stmts
}
