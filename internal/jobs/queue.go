package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tollhq/toll/internal/backoff"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/traces"
)

const (
	// pollEvery is how often a process looks for due jobs. A process that is killed costs the others holdTime.
	pollEvery = time.Second
	// holdTime is how long a claim lasts, and jobTime how long a run may take: it ends before somebody else claims the job.
	holdTime, jobTime = time.Minute, 45 * time.Second
	// jobsAtOnce bounds the claimed runs of one kind in a process, so that a kind that hangs holds up no other.
	jobsAtOnce = 16
	// firstRetry and maxRetry bound the back-off of a job that failed. [Queue.Take] may bring it forward to firstRetry.
	firstRetry, maxRetry = time.Second, time.Minute
)

// Queue runs the due jobs of a database. Any number of processes may do so; each job runs in one of them. A run may be repeated after a
// crash, so handlers must be idempotent. It is safe for concurrent use.
type Queue struct {
	store  *store.Store
	clock  func() time.Time
	log    *slog.Logger
	holder string
	wake   Signal

	handlers map[string]handler
	work     context.Context // of the runs
	stop     context.CancelFunc

	mu     sync.Mutex
	closed bool
	runs   sync.WaitGroup
	here   map[string]chan struct{} // runs of this process, by kind and key; closed when they end
}

// Retry is the error of a run whose job must run again. It counts as a failure only with Err.
type Retry struct {
	// After is the shortest pause before the next run. With 0 and Err the pause is a back-off. With
	// 0 and no Err the job stays held, without a write, until its hold ends or it is dropped.
	After time.Duration
	Err   error
}

func (a *Retry) Error() string { return fmt.Sprintf("the job is not done: %v", a.Err) }
func (a *Retry) Unwrap() error { return a.Err }

type handler struct {
	run   func(ctx context.Context, key []byte) error
	slots chan struct{}
}

// NewQueue returns the queue of a database. clock is that of those who write jobs; log may be nil.
func NewQueue(st *store.Store, clock func() time.Time, log *slog.Logger) *Queue {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	q := &Queue{
		store: st, clock: clock, log: log, wake: NewSignal(), handlers: map[string]handler{}, holder: newHolder(),
		here: map[string]chan struct{}{},
	}
	q.Under(context.Background())
	return q
}

// Under has the contexts of runs made of ctx, before the loops start.
func (q *Queue) Under(ctx context.Context) { q.work, q.stop = context.WithCancel(ctx) }

// Handle has run called for the jobs of a kind, before the loops start. A run that returns an error is repeated after a back-off. Jobs of
// other kinds are left to processes of other releases.
func (q *Queue) Handle(kind string, run func(ctx context.Context, key []byte) error) {
	q.handlers[kind] = handler{run, make(chan struct{}, jobsAtOnce)}
}

// Loops returns the loops that claim and run due jobs. A shutdown interrupts the runs and gives their jobs back.
func (q *Queue) Loops() []Loop {
	return []Loop{
		{Name: "jobs.run", Every: pollEvery, Wake: q.wake, Run: Do(func(ctx context.Context) error {
			_, err := q.claim(ctx)
			return err
		}), End: q.Close},
	}
}

// Close interrupts the runs, gives their jobs back, and waits for that until ctx ends. Nothing runs afterwards.
func (q *Queue) Close(ctx context.Context) error {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.stop()
	ended := make(chan struct{})
	go func() { q.runs.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Own returns a new job that this process holds for a time from now. The caller stores it in the
// transaction that needs it, and calls [Queue.Start] after the commit.
func (q *Queue) Own(kind string, key []byte, hold time.Duration) store.Job {
	now := q.clock()
	return store.Job{Kind: kind, Key: key, Due: now, Attempt: 1, Holder: q.holder, Until: now.Add(hold)}
}

// Start runs a job of [Queue.Own] at once. cause is the request that wants it: its id and trace are those of the run.
func (q *Queue) Start(cause context.Context, j store.Job, run func(ctx context.Context) error) {
	q.begin(cause, j, func(ctx context.Context, _ []byte) error { return run(ctx) }, func() {})
}

// Take runs a job at once for a waiting caller, also before it is due, at most once a second in all processes. It returns a channel that is
// closed when the run of this process ends, or nil if this process does not run the job.
func (q *Queue) Take(ctx context.Context, kind string, key []byte) (<-chan struct{}, error) {
	q.mu.Lock()
	over, h := q.here[kind+string(key)], q.handlers[kind]
	q.mu.Unlock()
	if over != nil || h.run == nil {
		return over, nil
	}
	var claimed []store.Job
	err := q.store.Tx(ctx, func(tx *store.Tx) (err error) {
		now := q.clock()
		claimed, err = store.TakeJob(ctx, tx, kind, key, q.holder, now, now.Add(holdTime))
		return err
	})
	if err != nil || len(claimed) == 0 {
		return nil, err
	}
	return q.begin(ctx, claimed[0], h.run, func() {}), nil
}

// begin runs a job that this process holds.
func (q *Queue) begin(cause context.Context, j store.Job, run func(ctx context.Context, key []byte) error, ended func()) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		ended()
		return nil
	}
	id, over := j.Kind+string(j.Key), make(chan struct{})
	q.here[id] = over
	q.runs.Go(func() {
		q.run(traces.Follow(q.work, cause), run, j)
		q.mu.Lock()
		if q.here[id] == over {
			delete(q.here, id)
		}
		q.mu.Unlock()
		close(over)
		ended()
	})
	return over
}

// RunDue runs the jobs that are due now, as far as there are slots, and returns their number when all runs have ended.
func (q *Queue) RunDue(ctx context.Context) (int, error) {
	n, err := q.claim(ctx)
	q.mu.Lock()
	here := slices.Collect(maps.Values(q.here))
	q.mu.Unlock()
	for _, over := range here {
		<-over
	}
	return n, err
}

// claim claims and starts due jobs, as far as there are slots, and returns their number.
func (q *Queue) claim(ctx context.Context) (n int, err error) {
	kinds, err := store.DueJobs(ctx, q.store, q.clock())
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, kind := range kinds {
		h, known := q.handlers[kind]
		free := cap(h.slots) - len(h.slots)
		if !known || free == 0 {
			continue
		}
		var claimed []store.Job
		err := q.store.Tx(ctx, func(tx *store.Tx) (err error) {
			now := q.clock()
			claimed, err = store.ClaimJobs(ctx, tx, kind, q.holder, now, now.Add(holdTime), free)
			return err
		})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		n += len(claimed)
		for _, j := range claimed {
			h.slots <- struct{}{} // one loop claims, so there is room
			q.begin(ctx, j, h.run, func() {
				<-h.slots
				q.wake.Fire() // there may be more
			})
		}
	}
	return n, errors.Join(errs...)
}

// run runs a claimed job and ends it, or gives it back for a later try.
func (q *Queue) run(ctx context.Context, run func(ctx context.Context, key []byte) error, j store.Job) {
	ctx, cancel := context.WithTimeout(ctx, jobTime)
	defer cancel()
	ctx, span := traces.Start(ctx, "job "+j.Kind, keyText(j.Key))
	failed := func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		return run(ctx, j.Key)
	}()
	again, _ := errors.AsType[*Retry](failed)
	if again == nil {
		again = &Retry{Err: failed}
	}
	span.End(again.Err)
	if failed != nil && *again == (Retry{}) && q.work.Err() == nil {
		return
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdTime-jobTime)
	defer cancel()
	due, idle := q.clock(), q.clock()
	if failed != nil && q.work.Err() == nil {
		pause := again.After
		if again.Err != nil {
			pause = max(pause, backoff.Delay(firstRetry, maxRetry, int(min(j.Attempt, 32))))
		}
		due, idle = due.Add(pause), idle.Add(min(pause, firstRetry))
	}
	if again.Err != nil && q.work.Err() == nil {
		q.log.WarnContext(ctx, "a job failed", "kind", j.Kind, "key", keyText(j.Key), "attempt", j.Attempt, "error", failed.Error())
	}
	err := q.store.Tx(end, func(tx *store.Tx) error {
		if failed == nil {
			if ended, err := store.EndJob(end, tx, j); ended || err != nil {
				return err
			}
		}
		return store.ReleaseJob(end, tx, j, due, idle)
	})
	if err != nil {
		q.log.WarnContext(ctx, "cannot save the outcome of a job; the job will run again",
			"kind", j.Kind, "key", keyText(j.Key), "error", err.Error())
	}
}

// keyText is a key as the log has it: a key of printable ASCII as it is, such as the id of an order, and each other one in hexadecimal.
func keyText(key []byte) string {
	if slices.ContainsFunc(key, func(c byte) bool { return c <= ' ' || c > '~' }) {
		return fmt.Sprintf("%x", key)
	}
	return string(key)
}
