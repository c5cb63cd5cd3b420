package ledger

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tollhq/toll/internal/store"
)

// A commit from memory proves what was remembered: it fails if an account has another version, or if a request that was taken
// for new has a row. A new settlement needs no look at the journal, and a new hold none at requests: there the unique keys fail.
// docs/decisions/0059-hot-counters.md explains why nothing else can have changed.
const (
	sqlAccountSaveIf = sqlAccountSave + ` AND version = $17 - 1`
	// The last argument is the number of accounts.
	sqlAccountsSaveIf = `WITH saved AS (` + sqlAccountsSave + ` AND a.version = u.version - 1 RETURNING a.account_id)
		SELECT 1 / (CASE WHEN COUNT(*) = $20 THEN 1 ELSE 0 END) FROM saved`

	sqlRequestKnown = `SELECT 1 FROM requests WHERE account_id = $1 AND agent_request_id = $2
		UNION ALL SELECT 1 FROM journal WHERE account_id = $1 AND ref = $3 AND kind = 2`
	// Left joins, which keep PostgreSQL from planning these from the tables, as long as it takes them for small.
	sqlRequestsNone = `SELECT 1 / (CASE WHEN COUNT(r.account_id) = 0 THEN 1 ELSE 0 END)
		FROM unnest($1::bytea[], $2::text[]) AS u(account_id, agent_request_id)
		LEFT JOIN requests r ON r.account_id = u.account_id AND r.agent_request_id = u.agent_request_id`
	sqlBurnsNone = `SELECT 1 / (CASE WHEN COUNT(j.pos) = 0 THEN 1 ELSE 0 END)
		FROM unnest($1::bytea[], $2::bytea[]) AS u(account_id, ref)
		LEFT JOIN journal j ON j.account_id = u.account_id AND j.ref = u.ref AND j.kind = 2`
)

// quickLockWait bounds the wait for a row that somebody else keeps locked. After it the batch takes the way on which such an
// account is found out.
const quickLockWait = `SET LOCAL lock_timeout = '1s'`

// maxSkip bounds the batches that are read from the store after commits from memory that failed one after the other.
const maxSkip = 256

// quick decides what it can from memory and commits that in one trip to PostgreSQL. It answers the callers of what it has
// committed, and returns the others: those of accounts of which too little is remembered, and those that would be refused, as
// only what is read under the lock may refuse. When the commit fails, nothing is written and all of the batch is returned.
func (w *writer) quick(batch []*call) (rest []*call) {
	w.lost = 0
	if w.pipe == nil || w.mem.limit == 0 || slices.ContainsFunc(batch, func(c *call) bool { return c.retried }) {
		return batch
	}
	if w.skip > 0 {
		w.skip--
		return batch
	}
	gs := groups(batch, false)
	now := w.l.clock()
	var known []*group
	for _, g := range gs {
		g.reset(now.UnixMicro())
		if w.mem.recall(g, now) {
			known = append(known, g)
		} else {
			rest = append(rest, g.calls...)
		}
	}
	// Two commits in turn pay only when the first one serves the most.
	if 2*len(known) <= len(gs) {
		return batch
	}
	w.l.failpoint("begin")
	w.l.failpoint("recalled")
	w.l.failpoint("locked")
	var decided []*group
	var outcomes [][]outcome
	for _, g := range known {
		w.mem.forget(g.id) // the decision changes what was remembered
		out, err := decide(g, false)
		if err != nil || refuses(out) || !g.state.changed() {
			rest = append(rest, g.calls...)
			continue
		}
		decided, outcomes = append(decided, g), append(outcomes, out)
	}
	if len(decided) == 0 {
		return batch
	}
	w.l.failpoint("decided")
	if err := w.oneTrip(decided); err != nil {
		unknown := errors.Is(err, store.ErrUnknownOutcome)
		if isTransient(err) {
			w.lost = 1
		}
		clear(w.doubted)
		for i, g := range decided {
			w.doubted[g.id] = g.memory
			for j, c := range g.calls {
				if unknown {
					c.retried, c.unknown, c.decided = true, true, outcomes[i][j].answer
				}
			}
		}
		w.skip = min(2*w.skipped, maxSkip)
		w.skipped = w.skip + 1
		w.l.log.Debug("writing a ledger batch from cached state failed; retrying it with state from the database",
			"operations", len(batch), "err", err)
		return batch
	}
	w.skipped = 0
	w.l.st.Wrote(nil)
	w.l.failpoint("committed")
	w.answer(decided, outcomes)
	return rest
}

// oneTrip writes and commits what was decided from memory. The accounts come first: once their rows are locked with the
// remembered versions, nothing of theirs changes.
func (w *writer) oneTrip(gs []*group) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.l.batchTimeout)
	defer cancel()
	if err := w.pipe.Connect(ctx); err != nil {
		return err
	}
	changes := writing(gs)
	accounts := store.Stmt{SQL: sqlAccountsSaveIf, Args: append(changes[0].Args, int64(len(gs)))}
	stmts := append([]store.Stmt{{SQL: "begin"}, {SQL: quickLockWait}, accounts}, proofs(gs)...)
	stmts = append(append(stmts, changes[1:]...), store.Stmt{SQL: "commit"})
	err := w.pipe.Run(ctx, stmts...)
	if err != nil {
		w.pipe.Reset()
	}
	return store.MapCommitError(err)
}

// proofs returns the statements that fail if a request which was taken for new is known: one that is settled now in requests,
// any other one in the journal.
func proofs(gs []*group) (stmts []store.Stmt) {
	var requests, burns columns
	for _, g := range gs {
		for _, id := range g.fresh {
			if r := g.state.requests[id]; r != nil && r.State != StateSettled {
				burns.add([]any{g.id[:], store.RefOf(id, g.id)})
			} else {
				requests.add([]any{g.id[:], id})
			}
		}
	}
	if requests.cols != nil {
		stmts = append(stmts, store.Stmt{SQL: sqlRequestsNone, Args: requests.args()})
	}
	if burns.cols != nil {
		stmts = append(stmts, store.Stmt{SQL: sqlBurnsNone, Args: burns.args()})
	}
	return stmts
}

func refuses(out []outcome) bool {
	return slices.ContainsFunc(out, func(o outcome) bool { return o.err != nil })
}

// judge compares an account that was read with what was remembered when a commit failed.
func (w *writer) judge(g *group, now time.Time) {
	g.version = g.state.account.version
	e := w.doubted[g.id]
	if e == nil {
		return
	}
	delete(w.doubted, g.id)
	wrong := e.account.version != g.version
	for id := range g.state.requests {
		wrong = wrong || e.holds[id] == nil
	}
	if wrong {
		w.mem.mistrust(g.id, now)
	}
}

// answer tells the callers of groups that were committed.
func (w *writer) answer(gs []*group, outcomes [][]outcome) {
	committed := w.l.onCommit.Load()
	for i, g := range gs {
		entries := len(g.state.entries) > 0
		if committed != nil && g.state.account.version != g.version {
			permissions := make([]Permission, 0, len(g.state.perms))
			for _, p := range g.state.perms {
				permissions = append(permissions, p.Permission)
			}
			(*committed)(g.state.account, permissions)
		}
		w.mem.remember(g)
		for j, c := range g.calls {
			c.done <- outcomes[i][j]
		}
		if w.l.changed != nil && entries {
			w.l.changed(g.id)
		}
	}
}

// lite decides and writes a batch in one transaction of SQLite. It reads only the accounts of which too little is remembered,
// those that were changed elsewhere, and those that would be refused.
func (w *writer) lite(ctx context.Context, gs []*group, depth int, retried bool) (outcomes [][]outcome, err error) {
	now := w.l.clock()
	err = w.l.st.Tx(ctx, func(tx *store.Tx) error {
		outcomes = outcomes[:0]
		for _, g := range gs {
			out, err := w.liteRecalled(ctx, tx, g, now)
			if err == nil && out == nil {
				out, err = w.liteRead(ctx, tx, g, now, depth, retried)
			}
			if err != nil {
				return err
			}
			outcomes = append(outcomes, out)
		}
		w.l.failpoint("written")
		return nil
	})
	return outcomes, err
}

func (w *writer) liteRead(ctx context.Context, tx *store.Tx, g *group, now time.Time, depth int, retried bool) ([]outcome, error) {
	g.reset(now.UnixMicro())
	w.l.failpoint("read")
	run := func(stmts ...store.Stmt) error { return tx.Run(ctx, stmts...) }
	lock := g.lock(store.SQLite)
	if g.needs.plan != "" {
		lock = append([]store.Stmt{makeAccount(g.id, g.needs.plan, g.needs.subscriber)}, lock...)
	}
	if err := load(run, lock, []*group{g}, depth, false); err != nil {
		return nil, err
	}
	g.version = g.state.account.version
	w.l.failpoint("locked")
	out, err := decide(g, retried)
	if err != nil {
		return nil, err
	}
	w.l.failpoint("decided")
	return out, tx.Run(ctx, g.state.changes(g.id[:])...)
}

// liteRecalled decides one account from memory and writes it. Without outcomes nothing was written and the account must be read.
func (w *writer) liteRecalled(ctx context.Context, tx *store.Tx, g *group, now time.Time) ([]outcome, error) {
	g.reset(now.UnixMicro())
	if !w.mem.recall(g, now) {
		return nil, nil
	}
	w.mem.forget(g.id) // the decision changes what was remembered
	w.l.failpoint("recalled")
	if known, err := anyKnown(ctx, tx, g); err != nil || known {
		return nil, err
	}
	w.l.failpoint("locked")
	out, err := decide(g, false)
	if err != nil || refuses(out) || !g.state.changed() {
		return nil, nil
	}
	w.l.failpoint("decided")
	changes := g.state.changes(g.id[:])
	n, err := tx.Exec(ctx, sqlAccountSaveIf, changes[0].Args...)
	if err != nil || n != 1 {
		return nil, err
	}
	return out, tx.Run(ctx, changes[1:]...)
}

// anyKnown reports whether a request that was taken for new has a row.
func anyKnown(ctx context.Context, tx *store.Tx, g *group) (known bool, err error) {
	for _, id := range g.fresh {
		err = tx.Run(ctx, store.Stmt{
			SQL: sqlRequestKnown, Args: []any{g.id[:], id, store.RefOf(id, g.id)},
			Row: func(func(...any) error) error { known = true; return nil },
		})
		if err != nil || known {
			break
		}
	}
	return known, err
}
