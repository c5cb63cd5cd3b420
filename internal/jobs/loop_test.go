package jobs_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A turn that is due at a time that is over comes at once, also when only Wake starts others.
func TestLoop_DueBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns atomic.Int64
		g := jobs.NewGroup(nil)
		g.Start(jobs.Loop{Name: "a", Run: func(context.Context) (time.Duration, error) {
			if turns.Add(1) == 1 {
				return -time.Microsecond, nil
			}
			return 0, nil
		}})
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := turns.Load(); n != 2 {
			t.Errorf("%d turns", n)
		}
		must.Check(t, g.Stop(t.Context()))
	})
}

// Turns follow each other after Every, at once when there is more to do, and when the loop is woken.
func TestLoop_Turns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		wake := jobs.NewSignal()
		g := jobs.NewGroup(nil)
		g.Start(jobs.Loop{Name: "a", Every: time.Minute, Wake: wake, Gather: time.Second, Run: func(context.Context) (time.Duration, error) {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(began))
			if len(at) == 1 {
				return jobs.AtOnce, nil
			}
			return 0, nil
		}})
		time.Sleep(time.Second)
		for range 5 {
			wake.Fire() // a burst is one turn
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		mu.Lock()
		if len(at) != 3 || at[1] > time.Millisecond || at[2] != 2*time.Second {
			t.Errorf("turns at %v", at)
		}
		mu.Unlock()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		mu.Lock()
		if n := len(at); n < 9 || n > 16 {
			t.Errorf("%d turns in ten minutes", n)
		}
		mu.Unlock()
		must.Check(t, g.Stop(t.Context()))
	})
}

// A loop with Rest takes a share of the time, whatever wakes it, and does not multiply a long wait for a slow database (F15).
func TestLoop_Rest(t *testing.T) {
	for work, want := range map[time.Duration]time.Duration{
		0: time.Millisecond, 10 * time.Millisecond: 190 * time.Millisecond, 10 * time.Second: 2 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			var begins []time.Time
			wake := jobs.NewSignal()
			g := jobs.NewGroup(nil)
			g.Start(jobs.Loop{Name: "a", IdleFactor: 19, Wake: wake, Run: func(context.Context) (time.Duration, error) {
				begins = append(begins, time.Now())
				time.Sleep(work)
				wake.Fire()
				return 0, nil
			}})
			time.Sleep(time.Minute)
			must.Check(t, g.Stop(context.Background()))
			if got := begins[1].Sub(begins[0]) - work; got != want {
				t.Errorf("after work of %v: %v, want %v", work, got, want)
			}
		})
	}
}

// A loop that fails or panics backs off, says so once a minute, and works again.
func TestLoop_Fails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		var mu sync.Mutex
		turns, broken := 0, true
		g := jobs.NewGroup(log)
		g.Start(jobs.Loop{Name: "a", Every: time.Millisecond, Run: func(context.Context) (time.Duration, error) {
			mu.Lock()
			defer mu.Unlock()
			turns++
			switch {
			case broken && turns%2 == 0:
				panic("oops")
			case broken:
				return jobs.AtOnce, errors.New("no database")
			}
			return 0, nil
		}})
		time.Sleep(110 * time.Second)
		synctest.Wait()
		mu.Lock()
		if turns < 20 || turns > 60 { // every 2.5 to 5 s
			t.Errorf("%d turns in 110 s", turns)
		}
		if n := strings.Count(out.String(), "a background loop failed"); n != 2 {
			t.Errorf("%d lines:\n%s", n, &out)
		}
		s := g.Status()[0]
		if s.Failures != uint64(turns) || s.Error == "" || time.Since(s.Failing) < time.Minute {
			t.Errorf("status %+v", s)
		}
		broken = false
		mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := g.Status()[0]; s.Error != "" || !s.Failing.IsZero() || strings.Count(out.String(), "works again") != 1 {
			t.Errorf("status %+v:\n%s", s, &out)
		}
		must.Check(t, g.Stop(t.Context()))
	})
}

// A shutdown stops what was started last first, waits for turns and ends, and has one deadline.
func TestGroup_Stop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		note := func(s string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, s)
		}
		loop := func(name string) jobs.Loop {
			return jobs.Loop{
				Name: name,
				Run: func(ctx context.Context) (time.Duration, error) {
					<-ctx.Done()
					time.Sleep(time.Second)
					note("turn " + name)
					return 0, ctx.Err()
				},
				End: func(context.Context) error { note("end " + name); return nil },
			}
		}
		g := jobs.NewGroup(nil)
		g.OnStop("database", func(context.Context) error { note("database"); return nil })
		g.Start(loop("a"))
		g.OnStop("ledger", func(context.Context) error { note("ledger"); return errors.New("not empty") })
		g.Start(loop("b"))
		synctest.Wait()
		err := g.Stop(t.Context())
		want := []string{"turn b", "end b", "ledger", "turn a", "end a", "database"}
		if !slices.Equal(order, want) || err == nil || err.Error() != "ledger: not empty" {
			t.Errorf("%v, %v", order, err)
		}
		if again := g.Stop(t.Context()); again == nil || again.Error() != err.Error() || len(order) != len(want) {
			t.Errorf("again: %v, %v", order, again)
		}
		g.Start(jobs.Loop{Name: "late", Run: func(context.Context) (time.Duration, error) { note("late"); return 0, nil }})
		synctest.Wait()
		if len(order) != len(want) {
			t.Errorf("a loop was started after the shutdown: %v", order)
		}
	})
}

// F22: a turn that hangs delays a shutdown up to its deadline, and the error says so.
// F22
func TestStopEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var closed atomic.Bool
		g := jobs.NewGroup(nil)
		g.OnStop("database", func(context.Context) error { closed.Store(true); return nil })
		g.Start(jobs.Loop{Name: "stuck", Run: func(context.Context) (time.Duration, error) { <-release; return 0, nil }})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		err := g.Stop(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "stuck") || time.Since(began) != 5*time.Second || !closed.Load() {
			t.Errorf("%v after %v, database closed: %t", err, time.Since(began), closed.Load())
		}
		close(release)
	})
}
