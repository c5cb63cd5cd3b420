package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/backoff"
	"github.com/tollhq/toll/internal/store"
)

const (
	// maxBatch bounds the operations of one commit.
	maxBatch = 512
	// maxAttempts bounds how often a batch is tried against a store that fails in passing.
	maxAttempts = 6
	// firstRetry and maxRetry bound the pause between two attempts.
	firstRetry, maxRetry = 15 * time.Millisecond, 240 * time.Millisecond
	// batchTimeout bounds one attempt of the writer, so that a store that hangs becomes an error. It must be above the 10 s that
	// a slow flush takes (F15), and below the 30 s that clients wait.
	batchTimeout = 25 * time.Second
)

// lotDepths are how many lots of an account are read: the first ones serve nearly always, and an account with thousands
// of lots costs no more than one with a single lot.
var lotDepths = []int{32, 1024, 1 << 30}

// call is one waiting operation.
type call struct {
	ctx  context.Context
	op   operation
	done chan outcome

	retried bool // an earlier attempt failed
	unknown bool // an earlier attempt may have been committed
	decided any  // the answer of the last attempt, committed or not
}

// flusher applies the operations of its accounts in groups.
type flusher struct {
	l     *Ledger
	limit int
	wake  chan struct{}
	done  chan struct{}

	mu     sync.Mutex
	queue  []*call
	closed bool
}

func (f *flusher) submit(ctx context.Context, op operation) (any, error) {
	c := &call{ctx: ctx, op: op, done: make(chan outcome, 1)}
	f.mu.Lock()
	switch {
	case f.closed:
		f.mu.Unlock()
		return nil, ErrClosed
	case len(f.queue) >= f.limit:
		f.mu.Unlock()
		return nil, ErrBusy
	}
	f.queue = append(f.queue, c)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
	select {
	case o := <-c.done:
		return o.answer, o.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
	}
}

func (f *flusher) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// take returns what waits, at most a batch, without the operations whose callers have gone.
func (f *flusher) take() (batch []*call, closed bool) {
	f.mu.Lock()
	n := min(len(f.queue), maxBatch)
	batch = slices.Clone(f.queue[:n])
	rest := copy(f.queue, f.queue[n:])
	clear(f.queue[rest:])
	f.queue = f.queue[:rest]
	closed = f.closed
	f.mu.Unlock()
	return slices.DeleteFunc(batch, func(c *call) bool { return c.ctx.Err() != nil }), closed
}

func (f *flusher) run() {
	defer close(f.done)
	w := newWriter(f.l)
	defer w.close()
	for range f.wake {
		for {
			batch, closed := f.take()
			if len(batch) == 0 {
				f.mu.Lock()
				empty := len(f.queue) == 0
				f.mu.Unlock()
				if closed && empty {
					return
				}
				if empty {
					break
				}
				continue
			}
			f.process(w, batch)
		}
	}
}

func (f *flusher) process(w *writer, batch []*call) {
	stop := f.l.timeBatch()
	if rest := w.quick(batch); len(rest) < len(batch) {
		stop(Batch{Operations: len(batch) - len(rest), Attempts: 1})
		if batch = rest; len(batch) == 0 {
			return
		}
		stop = f.l.timeBatch()
	}
	err := w.commit(batch)
	stop(Batch{Operations: len(batch), Attempts: w.attempts, Failed: err != nil})
	if err == nil {
		return
	}
	f.l.st.Wrote(err)
	if parts := apart(batch, err); parts != nil {
		f.l.log.Warn("a ledger batch failed; retrying it in parts", "operations", len(batch), "err", err)
		for _, part := range parts {
			f.process(w, part)
		}
		return
	}
	for _, c := range batch {
		c.done <- outcome{answer: c.decided, err: err}
	}
}

// apart returns the parts in which a failed batch is tried again, nil when it is not. A failure of one operation leaves
// the others alone; an account that somebody else keeps locked costs one attempt, however many operations wait for it.
func apart(batch []*call, err error) (parts [][]*call) {
	switch {
	case len(batch) == 1 || errors.Is(err, ErrUnknownOutcome) || isTransient(err):
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		gs := groups(batch, false)
		if len(gs) == 1 {
			return nil
		}
		for _, g := range gs {
			parts = append(parts, g.calls)
		}
		return parts
	}
	for _, c := range batch {
		parts = append(parts, []*call{c})
	}
	return parts
}

// group is the operations on one account.
type group struct {
	id    AccountID
	calls []*call
	ops   []operation
	needs needs
	state *state
	asked asked // what load has read of needs

	version int64       // of the account, before the operations
	memory  *remembered // where the state comes from; nil: it was read
	fresh   []string    // requests that memory takes for new ones
}

// groups sorts a batch by account, in the order in which every process locks them.
func groups(batch []*call, retried bool) []*group {
	byID := make(map[AccountID]*group, len(batch))
	var gs []*group
	for _, c := range batch {
		id := c.op.accountID()
		g := byID[id]
		if g == nil {
			g = &group{id: id, needs: needs{retried: retried}}
			byID[id] = g
			gs = append(gs, g)
		}
		g.calls = append(g.calls, c)
		g.ops = append(g.ops, c.op)
		c.op.needs(&g.needs)
	}
	slices.SortFunc(gs, func(a, b *group) int { return bytes.Compare(a.id[:], b.id[:]) })
	return gs
}

func (g *group) reset(now int64) {
	g.state = &state{
		now:      now,
		account:  newAccount(),
		requests: map[string]*requestRow{},
		keys:     map[string]string{},
		perms:    map[toll.Hash]*permissionRow{},
		refs:     map[string]*lotRow{},
		nextDue:  never,
	}
	g.memory, g.fresh = nil, nil
	if g.needs.ends {
		g.state.ends = map[int64]int64{}
	}
}

func newAccount() Account { return Account{nextLotEnd: never, nextHoldEnd: never} }

// writer commits batches on one connection.
type writer struct {
	l    *Ledger
	pipe *store.Pipe // PostgreSQL; nil on SQLite
	// attempts is how often the batch at hand was tried, lost how often from memory before, for a fault of the store.
	attempts, lost int
	mem            *memory
	// doubted is what was remembered of accounts when a commit from memory failed, until they are read.
	doubted map[AccountID]*remembered
	// skip is how many batches are still to be read from the store, skipped how many the last failure cost, and one.
	skip, skipped int
}

func newWriter(l *Ledger) *writer {
	w := &writer{l: l, mem: l.memory, doubted: map[AccountID]*remembered{}}
	if l.st.Engine() == store.Postgres {
		w.pipe = l.st.NewPipe()
	}
	return w
}

func (w *writer) close() {
	if w.pipe != nil {
		w.pipe.Close()
	}
}

// commit decides and writes a batch and answers its callers. An error means that none of them was answered.
func (w *writer) commit(batch []*call) error {
	depth := 0
	retried := slices.ContainsFunc(batch, func(c *call) bool { return c.retried })
	unknown := slices.ContainsFunc(batch, func(c *call) bool { return c.unknown })
	gs := groups(batch, retried)
	for attempt := 1; ; attempt++ {
		w.attempts = attempt + w.lost
		outcomes, err := w.attempt(gs, lotDepths[depth], retried)
		if err != nil {
			for i, out := range outcomes {
				for j, c := range gs[i].calls {
					c.decided = out[j].answer
				}
			}
		}
		switch {
		case err == nil:
			w.answer(gs, outcomes)
			return nil
		case errors.Is(err, errNeedLots) && depth < len(lotDepths)-1:
			depth++
			attempt--
		case errors.Is(err, store.ErrFlush):
			return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
		case !isTransient(err):
			if unknown && apart(batch, err) == nil {
				return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
			}
			return err
		case attempt >= maxAttempts:
			if retried {
				return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
			}
			return err
		default:
			w.l.log.Warn("retrying a ledger batch", "attempt", attempt, "operations", len(batch), "err", err)
			retried, unknown = true, unknown || errors.Is(err, store.ErrUnknownOutcome)
			for _, c := range batch {
				c.retried, c.unknown = true, unknown
			}
			gs = groups(batch, retried)
			time.Sleep(backoff.Delay(firstRetry, maxRetry, attempt))
		}
	}
}

// isTransient reports whether the batch may be tried again: every operation is known by its id, so that one which was committed
// after all is recognised.
func isTransient(err error) bool {
	return store.IsRetryable(err) || errors.Is(err, store.ErrUnknownOutcome)
}

func (w *writer) attempt(gs []*group, depth int, retried bool) ([][]outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), w.l.batchTimeout)
	defer cancel()
	now := w.l.clock().UnixMicro()
	for _, g := range gs {
		g.reset(now)
	}
	w.l.failpoint("begin")
	if w.pipe != nil {
		outcomes, err := w.pipelined(ctx, gs, depth, retried)
		if err != nil && ctx.Err() != nil && !errors.Is(err, store.ErrUnknownOutcome) {
			err = toll.NewError(toll.CodeDatabaseUnavailable).WithCause(errors.Join(ctx.Err(), err))
		}
		return outcomes, err
	}
	outcomes, err := w.lite(ctx, gs, depth, retried)
	if err == nil {
		w.l.failpoint("committed")
	}
	return outcomes, err
}

// decide is apply, in which a panic of one operation is an error of its batch, which is then taken apart.
func decide(g *group, retried bool) (out []outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("ledger: an operation panicked: %v", p)
		}
	}()
	return apply(g.state, g.ops, retried)
}
