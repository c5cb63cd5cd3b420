package ledger

import (
	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// lockAccount returns the statements that lock the row of an account and read it. With a plan they make
// the account first, if it does not exist.
func lockAccount(engine store.Engine, id AccountID, plan toll.PlanID, subscriber toll.Address, a *Account) []store.Stmt {
	var stmts []store.Stmt
	if plan != "" {
		stmts = append(stmts, makeAccount(id, plan, subscriber))
	}
	lock := sqlAccount
	if engine == store.Postgres {
		lock = sqlAccountLock
	}
	return append(stmts, store.Stmt{SQL: lock, Args: []any{id[:]}, Row: func(scan scanFunc) error {
		return scanAccount(scan, a)
	}})
}

// lock returns the statements that lock the row of the account and read it.
func (g *group) lock(engine store.Engine) []store.Stmt {
	s := g.state
	stmts := lockAccount(engine, g.id, "", toll.Address{}, &s.account)
	read := stmts[0].Row
	stmts[0].Row = func(scan scanFunc) (err error) {
		if err = read(scan); err == nil {
			s.hot, err = parseHot(s.account.hot)
		}
		return err
	}
	return stmts
}

// load reads what the operations on accounts need, after the statements of lock, in at most four calls of run: what a later
// call asks for follows from the rows of those before.
//
// Each statement names one account by a parameter. One statement for many accounts would take forms that Citus cannot plan
// (LATERAL, FOR UPDATE over shards); run sends all of them in one trip to PostgreSQL anyway.
//
// ahead asks for the burns of requests together with the requests: for a database to which each call is a trip.
func load(run func(...store.Stmt) error, lock []store.Stmt, gs []*group, depth int, ahead bool) error {
	stmts := lock
	for round := 0; ; round++ {
		for _, g := range gs {
			stmts = g.reads(stmts, round, depth, ahead)
		}
		if len(stmts) == 0 {
			return nil
		}
		if err := run(stmts...); err != nil {
			return err
		}
		stmts = stmts[:0]
	}
}

// reads appends the statements for what the operations of the account are known to need and what was not read yet.
func (g *group) reads(stmts []store.Stmt, round, depth int, ahead bool) []store.Stmt {
	s, id := g.state, g.id[:]
	switch {
	case round == 0:
		stmts = g.readsFirst(stmts, depth)
	case round == 1:
		s.lotsAll = len(s.lots) < depth
		if s.account.nextHoldEnd <= s.dueAt() {
			stmts = append(stmts,
				store.Stmt{SQL: sqlRequestsDue, Args: []any{id, s.dueAt()}, Row: requestInto(g.addDue)},
				store.Stmt{SQL: sqlNextDue, Args: []any{id, s.dueAt()}, Row: func(scan scanFunc) error { return scan(&s.nextDue) }})
		}
	case round == 2:
		for _, hash := range g.duePermissions() {
			stmts = append(stmts, store.Stmt{SQL: sqlClaims, Args: []any{id, hash[:]}, Row: requestInto(g.addClaim)})
		}
	}
	asked := &g.asked
	burns := asked.requests
	for ; asked.requests < len(g.needs.requests); asked.requests++ {
		stmts = append(stmts, store.Stmt{
			SQL: sqlRequest, Args: []any{id, g.needs.requests[asked.requests]}, Row: requestInto(g.addNeeded),
		})
	}
	if ahead {
		burns = asked.requests
	}
	for ; asked.burns < burns; asked.burns++ {
		if request := g.needs.requests[asked.burns]; s.requests[request] == nil {
			stmts = append(stmts, store.Stmt{
				SQL: store.SQLBurn, Args: []any{store.RefOf(request, g.id), id}, Row: burnInto(g.addRequest),
			})
		}
	}
	for ; asked.permissions < len(g.needs.perms); asked.permissions++ {
		hash := g.needs.perms[asked.permissions]
		stmts = append(stmts, store.Stmt{SQL: sqlPermission, Args: []any{id, hash[:]}, Row: func(scan scanFunc) error {
			p := &permissionRow{}
			s.perms[hash] = p
			return scanPermission(scan, &p.Permission, &s.hot)
		}})
	}
	return stmts
}

// readsFirst appends the statements for what no other row names.
func (g *group) readsFirst(stmts []store.Stmt, depth int) []store.Stmt {
	s, id := g.state, g.id[:]
	g.asked = asked{}
	stmts = append(stmts, store.Stmt{SQL: sqlLotsTo[depth], Args: []any{id}, Row: func(scan scanFunc) error {
		l, err := scanLot(scan, &s.hot)
		s.lots = append(s.lots, l)
		return err
	}})
	for _, ref := range g.needs.refs {
		stmts = append(stmts, store.Stmt{SQL: sqlLotByRef, Args: []any{id, ref}, Row: func(scan scanFunc) error {
			l, err := scanLot(scan, &s.hot)
			if err == nil {
				g.addRef(l)
			}
			return err
		}})
	}
	if g.needs.ends {
		stmts = append(stmts, store.Stmt{SQL: sqlLotEnds, Args: []any{id}, Row: func(scan scanFunc) error {
			var lot, end int64
			err := scan(&lot, &end)
			s.ends[lot] = end
			return err
		}})
	}
	if g.needs.unpaid {
		s.unpaid = map[int64]bool{}
		stmts = append(stmts, store.Stmt{SQL: sqlLotsUnpaid, Args: []any{id}, Row: func(scan scanFunc) error {
			var lot int64
			err := scan(&lot)
			s.unpaid[lot] = true
			return err
		}})
	}
	for _, key := range g.needs.keys {
		stmts = append(stmts, store.Stmt{SQL: sqlKey, Args: []any{id, key}, Row: func(scan scanFunc) error {
			var requestID string
			err := scan(&requestID)
			s.keys[key] = requestID
			g.needs.requests = append(g.needs.requests, requestID)
			return err
		}})
	}
	return stmts
}

// asked counts what was read of the lists of needs.
type asked struct{ requests, burns, permissions int }

// addRequest keeps one value per request, whichever query found it.
func (g *group) addRequest(r *requestRow) {
	if g.state.requests[r.ID] == nil {
		g.state.requests[r.ID] = r
	}
}

// addNeeded adds a request that an operation or a key names.
func (g *group) addNeeded(r *requestRow) {
	g.addRequest(r)
	g.needs.permission(r.Permission)
}

// requestInto returns a reader of rows that hands each request to add.
func requestInto(add func(*requestRow)) func(scanFunc) error {
	return func(scan scanFunc) error {
		r := &requestRow{stored: true}
		if err := scanRequest(scan, &r.Request); err != nil {
			return err
		}
		add(r)
		return nil
	}
}

func (s *state) dueAt() int64 { return max(s.now, micros(s.account.UpdatedAt, 0)) }

// addDue keeps one value per request, whichever query found it.
func (g *group) addDue(r *requestRow) {
	if known := g.state.requests[r.ID]; known != nil {
		r = known
	}
	g.state.requests[r.ID] = r
	g.state.due = append(g.state.due, r)
	g.needs.permission(r.Permission)
}
