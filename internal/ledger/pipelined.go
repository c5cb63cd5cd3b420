package ledger

import (
	"context"
	"fmt"

	"github.com/tollhq/toll/internal/store"
)

// pipelined decides and writes a batch in two trips to PostgreSQL: lock and read, write and commit.
func (w *writer) pipelined(ctx context.Context, gs []*group, depth int, retried bool) (outcomes [][]outcome, err error) {
	committed := false
	defer func() {
		if !committed {
			w.pipe.Reset()
		}
	}()
	if err := w.makeAccounts(ctx, gs); err != nil {
		return nil, err
	}
	w.l.failpoint("read")
	read := newReading(gs)
	if err := w.pipe.Run(ctx, read.statements(depth)...); err != nil {
		return nil, err
	}
	for _, g := range gs {
		g.state.lotsAll = len(g.state.lots) < depth
	}
	if burns := read.ofKeys(); burns != nil {
		if err := w.pipe.Run(ctx, burns...); err != nil {
			return nil, err
		}
	}
	if due := read.due(); due != nil {
		if err := w.pipe.Run(ctx, due...); err != nil {
			return nil, err
		}
		if more := read.ofDue(); more != nil {
			if err := w.pipe.Run(ctx, more...); err != nil {
				return nil, err
			}
		}
	}
	for _, g := range gs {
		w.judge(g, w.l.clock())
	}
	w.l.failpoint("locked")
	outcomes = make([][]outcome, len(gs))
	changed := false
	for i, g := range gs {
		if outcomes[i], err = decide(g, retried); err != nil {
			return nil, err
		}
		changed = changed || g.state.changed()
	}
	if !changed {
		return outcomes, nil
	}
	w.l.failpoint("decided")
	if err := w.pipe.Run(ctx, append(writing(gs), store.Stmt{SQL: "commit"})...); err != nil {
		return outcomes, store.MapCommitError(err)
	}
	committed = true
	w.l.st.Wrote(nil)
	w.l.failpoint("committed")
	return outcomes, nil
}

// makeAccounts adds the rows of accounts that a mint may open, in a transaction of their own: made inside the batch they
// would be locked before accounts that sort earlier, and two processes could wait for each other.
func (w *writer) makeAccounts(ctx context.Context, gs []*group) error {
	var stmts []store.Stmt
	for _, g := range gs {
		if g.needs.plan != "" {
			stmts = append(stmts, makeAccount(g.id, g.needs.plan, g.needs.subscriber))
		}
	}
	if stmts == nil {
		return nil
	}
	return w.pipe.Run(ctx, stmts...)
}

// reading collects what one batch reads.
type reading struct {
	byID     map[AccountID]*group
	accounts [][]byte
	gs       []*group
}

func newReading(gs []*group) *reading {
	r := &reading{byID: make(map[AccountID]*group, len(gs)), gs: gs}
	for _, g := range gs {
		r.byID[g.id] = g
		r.accounts = append(r.accounts, g.id[:])
	}
	return r
}

func (r *reading) group(id []byte) (*group, error) {
	if g := r.byID[AccountID(id)]; g != nil {
		return g, nil
	}
	return nil, fmt.Errorf("ledger: the store answered with an account that was not asked for: %x", id)
}

// pairs returns two arrays: the account and the key of everything that the groups need of one kind.
func pairs[T any](gs []*group, of func(*needs) []T) (accounts [][]byte, keys []T) {
	for _, g := range gs {
		for _, k := range of(&g.needs) {
			accounts = append(accounts, g.id[:])
			keys = append(keys, k)
		}
	}
	return accounts, keys
}

func (r *reading) statements(depth int) []store.Stmt {
	stmts := []store.Stmt{
		{SQL: "begin"},
		{SQL: sqlAccountsLock, Args: []any{r.accounts}, Row: r.account},
		{SQL: sqlLotsOf, Args: []any{r.accounts, depth}, Row: func(scan func(...any) error) error {
			return r.lot(scan, func(g *group, l *lotRow) { g.state.lots = append(g.state.lots, l) })
		}},
	}
	if accounts, ids := pairs(r.gs, func(n *needs) []string { return n.requests }); ids != nil {
		refs := make([][]byte, len(ids))
		for i := range ids {
			refs[i] = store.RefOf(ids[i], [16]byte(accounts[i]))
		}
		stmts = append(stmts,
			store.Stmt{SQL: sqlRequestsOf, Args: []any{accounts, ids}, Row: r.requestOf((*group).addRequest)},
			store.Stmt{SQL: sqlBurnsOf, Args: []any{accounts, refs}, Row: r.burn})
	}
	if accounts, ids := pairs(r.gs, func(n *needs) []string { return n.releases }); ids != nil {
		stmts = append(stmts, store.Stmt{SQL: sqlPermissionsOfRequests, Args: []any{accounts, ids}, Row: r.permission})
	}
	if accounts, keys := pairs(r.gs, func(n *needs) []string { return n.keys }); keys != nil {
		stmts = append(stmts,
			store.Stmt{SQL: sqlKeysOf, Args: []any{accounts, keys}, Row: r.key},
			store.Stmt{SQL: sqlRequestsByKey, Args: []any{accounts, keys}, Row: r.requestOf((*group).addRequest)})
	}
	if accounts, hashes := pairs(r.gs, func(n *needs) [][]byte { return n.permBytes() }); hashes != nil {
		stmts = append(stmts, store.Stmt{SQL: sqlPermissionsOf, Args: []any{accounts, hashes}, Row: r.permission})
	}
	if accounts, refs := pairs(r.gs, func(n *needs) []string { return n.refs }); refs != nil {
		stmts = append(stmts, store.Stmt{SQL: sqlLotsByRef, Args: []any{accounts, refs}, Row: func(scan func(...any) error) error {
			return r.lot(scan, func(g *group, l *lotRow) { g.addRef(l) })
		}})
	}
	return stmts
}

func (n *needs) permBytes() [][]byte {
	out := make([][]byte, len(n.perms))
	for i := range n.perms {
		out[i] = n.perms[i][:]
	}
	return out
}

// scan returns a scan of rows with an account before the other columns, which sets the group of the account.
func (r *reading) scan(scan scanFunc, g **group) scanFunc {
	return func(dest ...any) error {
		var id []byte
		err := scan(append([]any{&id}, dest...)...)
		if err == nil {
			*g, err = r.group(id)
		}
		return err
	}
}

func (r *reading) account(scan func(...any) error) error {
	var a Account
	if err := scanAccount(scan, &a); err != nil {
		return err
	}
	g, err := r.group(a.ID[:])
	if err == nil {
		g.state.account = a
		g.state.hot, err = parseHot(a.hot)
	}
	return err
}

func (r *reading) lot(scan func(...any) error, add func(*group, *lotRow)) error {
	var g *group
	l, err := scanLot(r.scan(scan, &g), &hot{})
	if err == nil {
		g.state.hot.ofLot(l)
		add(g, l)
	}
	return err
}

// addRequest keeps one value per request, whichever query found it.
func (g *group) addRequest(r *requestRow) {
	if g.state.requests[r.ID] == nil {
		g.state.requests[r.ID] = r
	}
}

// requestOf reads a request and adds it to its group.
func (r *reading) requestOf(add func(*group, *requestRow)) func(scan func(...any) error) error {
	return func(scan func(...any) error) error {
		row := &requestRow{stored: true}
		if err := scanRequest(scan, &row.Request); err != nil {
			return err
		}
		g, err := r.group(row.Account[:])
		if err == nil {
			add(g, row)
		}
		return err
	}
}

// burn reads a settled request and adds it to its group.
func (r *reading) burn(scan func(...any) error) error {
	row, err := store.ScanJournal(scan)
	if err != nil {
		return err
	}
	g, err := r.group(row.Account[:])
	if err == nil {
		g.addRequest(&requestRow{stored: true, Request: RequestOf(&row)})
	}
	return err
}

// ofKeys returns the statement that reads the burns of requests that a key names and that have no other row, nil when there is no
// such request.
func (r *reading) ofKeys() []store.Stmt {
	var accounts, refs [][]byte
	for _, g := range r.gs {
		for _, id := range g.state.keys {
			if g.state.requests[id] == nil {
				accounts = append(accounts, g.id[:])
				refs = append(refs, store.RefOf(id, g.id))
			}
		}
	}
	if accounts == nil {
		return nil
	}
	return []store.Stmt{{SQL: sqlBurnsOf, Args: []any{accounts, refs}, Row: r.burn}}
}

func (r *reading) key(scan func(...any) error) error {
	var id []byte
	var key, requestID string
	if err := scan(&id, &key, &requestID); err != nil {
		return err
	}
	g, err := r.group(id)
	if err == nil {
		g.state.keys[key] = requestID
	}
	return err
}

func (r *reading) permission(scan func(...any) error) error {
	var g *group
	p := &permissionRow{}
	err := scanPermission(r.scan(scan, &g), &p.Permission, &hot{})
	if err == nil && g.state.perms[p.Hash] == nil {
		g.state.hot.ofPermission(&p.Permission)
		g.state.perms[p.Hash] = p
	}
	return err
}

// due returns the statements that read the holds at their end, nil when no account has one.
func (r *reading) due() []store.Stmt {
	var accounts [][]byte
	var times []int64 // each account has its own: what a fast clock wrote to one must end nothing of another
	for _, g := range r.gs {
		if at := g.state.dueAt(); g.state.account.nextHoldEnd <= at {
			accounts = append(accounts, g.id[:])
			times = append(times, at)
		}
	}
	if accounts == nil {
		return nil
	}
	return []store.Stmt{
		{SQL: sqlRequestsDueOf, Args: []any{accounts, times}, Row: r.requestOf((*group).addDue)},
		{SQL: sqlNextDueOf, Args: []any{accounts, times}, Row: func(scan func(...any) error) error {
			var id []byte
			var next int64
			if err := scan(&id, &next); err != nil {
				return err
			}
			g, err := r.group(id)
			if err == nil {
				g.state.nextDue = next
			}
			return err
		}},
	}
}

// ofDue returns the statements that read the permissions of the holds at their end and the claims
// of these permissions, nil when no hold is at its end.
func (r *reading) ofDue() []store.Stmt {
	var accounts, hashes [][]byte
	for _, g := range r.gs {
		for _, h := range g.duePermissions() {
			accounts = append(accounts, g.id[:])
			hashes = append(hashes, h[:])
		}
	}
	if hashes == nil {
		return nil
	}
	return []store.Stmt{
		{SQL: sqlPermissionsOf, Args: []any{accounts, hashes}, Row: r.permission},
		{SQL: sqlClaimsOf, Args: []any{accounts, hashes}, Row: r.requestOf((*group).addClaim)},
	}
}

// columns turns rows into one array per column, the form of a bulk write.
type columns struct{ cols []column }

// column is the values of one column: the slice of its type is used, the others stay nil.
type column struct {
	bytes [][]byte
	texts []string
	ints  []int64
}

func (c *columns) add(row []any) {
	if c.cols == nil {
		c.cols = make([]column, len(row))
	}
	for i, v := range row {
		col := &c.cols[i]
		switch v := v.(type) {
		case []byte:
			col.bytes = append(col.bytes, v)
		case string:
			col.texts = append(col.texts, v)
		case int64:
			col.ints = append(col.ints, v)
		default:
			panic(fmt.Sprintf("ledger: a column of type %T", v))
		}
	}
}

func (c *columns) args() []any {
	args := make([]any, len(c.cols))
	for i, col := range c.cols {
		switch {
		case col.bytes != nil:
			args[i] = col.bytes
		case col.texts != nil:
			args[i] = col.texts
		default:
			args[i] = col.ints
		}
	}
	return args
}

// writing returns the statements that write what the batch changed, the rows of the journal last, under their lock.
func writing(gs []*group) []store.Stmt {
	changed := make([]columns, len(writes))
	for _, g := range gs {
		g.state.rows(g.id[:], func(kind int, row []any) { changed[kind].add(row) })
	}
	var stmts []store.Stmt
	for kind, c := range changed {
		if c.cols != nil {
			if kind == writesEntry {
				stmts = append(stmts, store.JournalLock)
			}
			stmts = append(stmts, store.Stmt{SQL: writes[kind].many, Args: c.args()})
		}
	}
	return stmts
}
