package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/internal/traces"
)

const kind = "test"

// table is a database with a clock that a test moves, and processes on it.
type table struct {
	*testing.T
	st  *store.Store
	now atomic.Int64
}

func eachTable(t *testing.T, f func(t *table)) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		tb := &table{T: t, st: st}
		tb.now.Store(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC).UnixMicro())
		f(tb)
	})
}

func (t *table) clock() time.Time { return time.UnixMicro(t.now.Load()).UTC() }

func (t *table) add(d time.Duration) { t.now.Add(d.Microseconds()) }

// process returns the queue of another process.
func (t *table) process(run func(ctx context.Context, key []byte) error) *jobs.Queue {
	q := jobs.NewQueue(t.st, t.clock, nil)
	q.Handle(kind, run)
	return q
}

func (t *table) tx(f func(ctx context.Context, tx *store.Tx) error) {
	t.Helper()
	must.Do(t, t.st.Tx(t.Context(), func(tx *store.Tx) error { return f(t.Context(), tx) }))
}

func (t *table) put(key string, due, until time.Time) {
	t.Helper()
	t.tx(func(ctx context.Context, tx *store.Tx) error {
		return store.PutJob(ctx, tx, store.Job{Kind: kind, Key: []byte(key), Due: due, Until: until})
	})
}

func (t *table) left() (n int64) {
	t.Helper()
	must.Do(t, t.st.QueryRow(context.Background(), "SELECT COUNT(*) FROM jobs").Scan(&n))
	return n
}

func (t *table) runs(q *jobs.Queue, want int) {
	t.Helper()
	if n, err := q.RunDue(context.Background()); n != want || err != nil {
		t.Errorf("%d jobs ran, want %d: %v", n, want, err)
	}
}

// A job runs when it is due and nobody holds it, and is gone after success. One that fails runs again after a back-off.
func TestQueue_Due(t *testing.T) {
	eachTable(t, func(t *table) {
		var mu sync.Mutex
		var ran []string
		fails := errors.New("not now")
		q := t.process(func(_ context.Context, key []byte) error {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, string(key))
			return fails
		})
		now := t.clock()
		t.put("later", now.Add(time.Minute), time.Time{})
		t.put("of a caller", now, now.Add(time.Minute))
		t.put("now", now, time.Time{})
		t.tx(func(ctx context.Context, tx *store.Tx) error {
			return store.PutJob(ctx, tx, store.Job{Kind: "of a newer release", Key: []byte("x"), Due: now})
		})
		t.runs(q, 1)
		t.runs(q, 0)
		t.add(time.Second)
		t.runs(q, 1)
		t.add(500 * time.Millisecond)
		t.runs(q, 0)
		fails = nil
		t.add(2 * time.Second)
		t.runs(q, 1)
		if fmt.Sprint(ran) != "[now now now]" || t.left() != 3 {
			t.Errorf("ran %v, %d left", ran, t.left())
		}
		t.add(time.Minute)
		t.runs(q, 2)
		t.add(time.Hour)
		t.runs(q, 0)
		if len(ran) != 5 || t.left() != 1 {
			t.Errorf("ran %v, %d left", ran, t.left())
		}
	})
}

// Two processes share the jobs, and run each once.
func TestQueue_TwoProcesses(t *testing.T) {
	eachTable(t, func(t *table) {
		const n = 60
		var mu sync.Mutex
		ran := map[string]int{}
		for i := range n {
			t.put(fmt.Sprint(i), t.clock(), time.Time{})
		}
		g := jobs.NewGroup(nil)
		for range 2 {
			g.Start(t.process(func(_ context.Context, key []byte) error {
				mu.Lock()
				defer mu.Unlock()
				ran[string(key)]++
				return nil
			}).Loops()...)
		}
		for end := time.Now().Add(time.Minute); t.left() > 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		}
		must.Check(t, g.Stop(context.Background()))
		if len(ran) != n {
			t.Errorf("%d of %d jobs ran", len(ran), n)
		}
		for key, times := range ran {
			if times != 1 {
				t.Errorf("job %s ran %d times", key, times)
			}
		}
	})
}

// What a killed process held, others run after its time, and a late end of the killed one changes nothing.
func TestQueue_KilledHolder(t *testing.T) {
	eachTable(t, func(t *table) {
		t.put("a", t.clock(), time.Time{})
		var dead []store.Job
		t.tx(func(ctx context.Context, tx *store.Tx) (err error) {
			dead, err = store.ClaimJobs(ctx, tx, kind, "dead", t.clock(), t.clock().Add(time.Minute), 10)
			return err
		})
		var fails atomic.Bool
		fails.Store(true)
		q := t.process(func(context.Context, []byte) error {
			if fails.Load() {
				return errors.New("not now")
			}
			return nil
		})
		t.runs(q, 0)
		t.add(time.Minute)
		t.runs(q, 1)
		t.tx(func(ctx context.Context, tx *store.Tx) error {
			ended, err := store.EndJob(ctx, tx, dead[0])
			if ended {
				t.Error("the killed process ended a job of another one")
			}
			return errors.Join(err, store.ReleaseJob(ctx, tx, dead[0], t.clock(), t.clock()))
		})
		t.runs(q, 0) // it backs off
		fails.Store(false)
		t.add(time.Minute)
		t.runs(q, 1)
		if t.left() != 0 {
			t.Error("the job is left")
		}
		// Of a process that was killed on a directory that has one service, nothing is waited for.
		t.put("b", t.clock(), time.Time{})
		t.tx(func(ctx context.Context, tx *store.Tx) error {
			_, err := store.ClaimJobs(ctx, tx, kind, "dead", t.clock(), t.clock().Add(time.Minute), 10)
			return err
		})
		t.tx(func(ctx context.Context, tx *store.Tx) error { return store.FreeHeld(ctx, tx) })
		t.runs(q, 1)
	})
}

// A claim takes no more than asked for, also when the database believes that the table is small and looks at it row by row.
func TestQueue_ClaimIsBounded(t *testing.T) {
	eachTable(t, func(t *table) {
		t.put("first", t.clock(), time.Time{})
		t.tx(func(ctx context.Context, tx *store.Tx) error {
			_, err := tx.Exec(ctx, "ANALYZE")
			return err
		})
		for i := range 20 {
			t.put(fmt.Sprint(i), t.clock(), time.Time{})
		}
		for range 3 {
			t.tx(func(ctx context.Context, tx *store.Tx) error {
				claimed, err := store.ClaimJobs(ctx, tx, kind, "a", t.clock(), t.clock().Add(time.Minute), 4)
				if len(claimed) != 4 {
					t.Errorf("%d jobs claimed", len(claimed))
				}
				return err
			})
		}
	})
}

// A job that is put again while it runs, runs again.
func TestQueue_PutAgain(t *testing.T) {
	eachTable(t, func(t *table) {
		n := 0
		q := t.process(func(context.Context, []byte) error {
			if n++; n == 1 {
				t.put("a", t.clock(), time.Time{})
			}
			return nil
		})
		t.put("a", t.clock(), time.Time{})
		t.runs(q, 1)
		t.runs(q, 1)
		t.runs(q, 0)
		if t.left() != 0 {
			t.Error("the job is left")
		}
	})
}

// A job that nobody tells of is found within the time of the poll; a shutdown interrupts runs and gives them back at once.
func TestQueue_PollAndStop(t *testing.T) {
	eachTable(t, func(t *table) {
		begun := make(chan struct{}, 1)
		g := jobs.NewGroup(nil)
		g.Start(t.process(func(ctx context.Context, _ []byte) error {
			begun <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}).Loops()...)
		t.put("a", t.clock(), time.Time{})
		select {
		case <-begun:
		case <-time.After(time.Minute):
			t.Fatal("the job was not found")
		}
		must.Check(t, g.Stop(context.Background()))
		t.runs(t.process(func(context.Context, []byte) error { return nil }), 1)
		if t.left() != 0 {
			t.Error("the job is left")
		}
	})
}

// A panic is a failure of the job, not of the process.
func TestQueue_Panic(t *testing.T) {
	eachTable(t, func(t *table) {
		t.put("a", t.clock(), time.Time{})
		t.runs(t.process(func(context.Context, []byte) error { panic("oops") }), 1)
		if t.left() != 1 {
			t.Error("the job is gone")
		}
	})
}

// The run of a job that a request started has the id of the request and its trace, for the log, and ends with the queue alone.
func TestQueue_Cause(t *testing.T) {
	eachTable(t, func(t *table) {
		q := t.process(func(context.Context, []byte) error { return nil })
		span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
		request, end := context.WithCancel(trace.ContextWithSpanContext(&traces.Context{Context: t.Context(), ID: "corr-1"}, span))
		got := make(chan context.Context)
		j := q.Own("test", []byte("a"), time.Minute)
		q.Start(request, j, func(ctx context.Context) error {
			end()
			got <- ctx
			<-ctx.Done()
			return nil
		})
		ctx := <-got
		if traces.ID(ctx) != "corr-1" || trace.SpanContextFromContext(ctx).TraceID() != span.TraceID() || ctx.Err() != nil {
			t.Errorf("%q, %v, %v", traces.ID(ctx), trace.SpanContextFromContext(ctx), ctx.Err())
		}
		must.Check(t, q.Close(t.Context()))
	})
}
