package jobs_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

func (t *table) lease() *jobs.Lease { return jobs.NewLease(t.st, t.clock, "work") }

func (t *table) check(what string, l *jobs.Lease, want error) {
	t.Helper()
	err := t.st.Tx(t.Context(), func(tx *store.Tx) error { return l.Check(t.Context(), tx) })
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func (t *table) takes(what string, l *jobs.Lease, want error) {
	t.Helper()
	if err := l.Take(t.Context()); !errors.Is(err, want) || (err == nil) != (l.Fence() > 0) {
		t.Errorf("%s: %v with fence %d, want %v", what, err, l.Fence(), want)
	}
}

// One process has a lease: until its time is over, unless it prolongs it, and until it gives it back. Its fence rises.
func TestLease(t *testing.T) {
	eachTable(t, func(t *table) {
		one, two := t.lease(), t.lease()
		t.check("never taken", one, store.ErrLeased)
		t.takes("first", one, nil)
		t.check("taken", one, nil)
		first := one.Fence()
		t.takes("of another", two, store.ErrLeased)
		t.add(10 * time.Second)
		t.takes("prolonged", one, nil)
		if one.Fence() != first {
			t.Errorf("prolonged: the fence went from %d to %d", first, one.Fence())
		}
		t.add(14 * time.Second)
		t.takes("prolonged by another", two, store.ErrLeased)
		t.add(2 * time.Second)
		t.takes("over", two, nil)
		if two.Fence() <= first {
			t.Errorf("the fence went from %d to %d", first, two.Fence())
		}
		t.check("lost", one, store.ErrLeased)
		if one.Fence() != 0 {
			t.Errorf("lost: fence %d", one.Fence())
		}
		must.Check(t, one.Release(t.Context()))
		t.check("given back by a former holder", two, nil)
		t.takes("lost", one, store.ErrLeased)
		before := two.Fence()
		must.Check(t, two.Release(t.Context()))
		t.check("given back", two, store.ErrLeased)
		t.takes("free", one, nil)
		if one.Fence() != before+1 {
			t.Errorf("the fence went from %d to %d", before, one.Fence())
		}
		must.Check(t, jobs.NewLease(t.st, t.clock, "other work").Take(t.Context()))
	})
}

// Of those that take a lease at the same time, one gets it.
func TestLease_AtOnce(t *testing.T) {
	eachTable(t, func(t *table) {
		results := make(chan error)
		for range 6 {
			l := t.lease()
			go func() { results <- l.Take(t.Context()) }()
		}
		held := 0
		for range 6 {
			switch err := <-results; {
			case err == nil:
				held++
			case !errors.Is(err, store.ErrLeased):
				t.Error(err)
			}
		}
		if held != 1 {
			t.Errorf("%d hold the lease", held)
		}
	})
}

// A leased loop waits without a failure while another process has the lease, and gives it back when it ends.
func TestLoop_Lease(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	other := jobs.NewLease(st, time.Now, "work")
	must.Do(t, other.Take(t.Context()))
	mine := jobs.NewLease(st, time.Now, "work")
	var waited, worked atomic.Int64
	g := jobs.NewGroup(nil)
	g.Start(jobs.Loop{Name: "a", Lease: mine, Run: func(ctx context.Context) (time.Duration, error) {
		if err := mine.Take(ctx); err != nil {
			waited.Add(1)
			return jobs.AtOnce, err
		}
		worked.Add(1)
		return time.Hour, nil
	}})
	eventually(t, "the loop has waited", func() bool { return waited.Load() > 1 })
	if s := g.Status()[0]; s.Failures > 0 || s.Error != "" {
		t.Errorf("after %d turns: %+v", waited.Load(), s)
	}
	must.Do(t, other.Release(t.Context()))
	eventually(t, "the loop works", func() bool { return worked.Load() > 0 })
	if err := other.Take(t.Context()); !errors.Is(err, store.ErrLeased) {
		t.Errorf("the lease while the loop waits for its next turn: %v", err)
	}
	must.Do(t, g.Stop(t.Context()))
	must.Check(t, other.Take(t.Context()), "the lease after the end")
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
