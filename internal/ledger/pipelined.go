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
	lock := []store.Stmt{{SQL: "begin"}}
	for _, g := range gs { // in the order of their ids
		lock = append(lock, g.lock(store.Postgres)...)
	}
	run := func(stmts ...store.Stmt) error { return w.pipe.Run(ctx, stmts...) }
	if err := load(run, lock, gs, depth, true); err != nil {
		return nil, err
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
			panic(fmt.Sprintf("ledger: unsupported column type %T", v))
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
