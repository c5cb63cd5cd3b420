package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tollhq/toll/internal/backoff"
	"github.com/tollhq/toll/internal/store"
)

const (
	// pollEvery is how often a process looks for due jobs. A process that is killed costs the others holdTime.
	pollEvery = time.Second
	// holdTime is how long a claim lasts, and jobTime how long a run may take: it ends before somebody else claims the job.
	holdTime, jobTime = time.Minute, 45 * time.Second
	// jobsAtOnce bounds the runs of one kind in a process, so that a kind that hangs holds up no other.
	jobsAtOnce = 4
	// firstRetry and maxRetry bound the back-off of a job that failed.
	firstRetry, maxRetry = time.Second, time.Minute
	// adoptEvery is how often the flags of earlier releases are read.
	adoptEvery = time.Minute
)

// Queue runs the due jobs of a database. Any number of processes may do so; each job runs in one of them. A run may be repeated after
// a crash, so that handlers must be idempotent. It is safe for concurrent use.
type Queue struct {
	store  *store.Store
	clock  func() time.Time
	log    *slog.Logger
	holder string
	wake   Signal

	handlers map[string]handler
	runs     sync.WaitGroup
	work     context.Context // of the runs
	stop     context.CancelFunc
}

type handler struct {
	run   func(ctx context.Context, key []byte) error
	slots chan struct{}
}

// NewQueue returns the queue of a database. clock is that of those who write jobs; log may be nil.
func NewQueue(st *store.Store, clock func() time.Time, log *slog.Logger) *Queue {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	q := &Queue{
		store: st, clock: clock, log: log, wake: NewSignal(), handlers: map[string]handler{}, holder: newHolder(),
	}
	q.work, q.stop = context.WithCancel(context.Background())
	return q
}

// Handle has run called for the jobs of a kind, before the loops start. A run that returns an error is repeated after a back-off. Jobs of
// other kinds are left to processes of other releases.
func (q *Queue) Handle(kind string, run func(ctx context.Context, key []byte) error) {
	q.handlers[kind] = handler{run, make(chan struct{}, jobsAtOnce)}
}

// Loops returns what runs due jobs. A shutdown interrupts them and gives them back.
func (q *Queue) Loops() []Loop {
	return []Loop{
		{Name: "jobs.adopt", Every: adoptEvery, Turn: Do(func(ctx context.Context) error {
			return q.store.Tx(ctx, func(tx *store.Tx) error { return store.AdoptJobs(ctx, tx, q.clock()) })
		})},
		{Name: "jobs.run", Every: pollEvery, Wake: q.wake, Turn: Do(func(ctx context.Context) error {
			_, err := q.claim(ctx)
			return err
		}), End: func(ctx context.Context) error {
			q.stop()
			ended := make(chan struct{})
			go func() { q.runs.Wait(); close(ended) }()
			select {
			case <-ended:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}},
	}
}

// RunDue runs the jobs that are due now, as far as there are slots, and returns when they have ended, with their number.
func (q *Queue) RunDue(ctx context.Context) (int, error) {
	n, err := q.claim(ctx)
	q.runs.Wait()
	return n, err
}

// claim starts what is due, as far as there are slots.
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
			q.runs.Go(func() {
				q.run(h, j)
				<-h.slots
				q.wake.Fire() // there may be more
			})
		}
	}
	return n, errors.Join(errs...)
}

// run runs a claimed job and ends it, or gives it back for a later try.
func (q *Queue) run(h handler, j store.Job) {
	ctx, cancel := context.WithTimeout(q.work, jobTime)
	defer cancel()
	failed := func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		return h.run(ctx, j.Key)
	}()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdTime-jobTime)
	defer cancel()
	due := q.clock()
	if failed != nil && q.work.Err() == nil {
		due = due.Add(backoff.Delay(firstRetry, maxRetry, int(min(j.Attempt, 32))))
		q.log.Warn("a job failed", "kind", j.Kind, "key", fmt.Sprintf("%x", j.Key), "attempt", j.Attempt, "error", failed.Error())
	}
	err := q.store.Tx(end, func(tx *store.Tx) error {
		if failed == nil {
			if ended, err := store.EndJob(end, tx, j); ended || err != nil {
				return err
			}
		}
		return store.ReleaseJob(end, tx, j, due)
	})
	if err != nil {
		q.log.Warn("the end of a job was not written; it runs again", "kind", j.Kind, "key", fmt.Sprintf("%x", j.Key), "error", err.Error())
	}
}
