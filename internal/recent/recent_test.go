package recent

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// source counts its reads, and holds them up while the test wants it.
type source struct {
	value, reads atomic.Int64
	now          atomic.Int64
	gate         chan struct{} // nil: open
	fail         error
}

func (s *source) clock() time.Time { return time.Unix(0, s.now.Load()) }

func (s *source) load(context.Context, int) (int64, error) {
	v := s.value.Load()
	s.reads.Add(1)
	if s.gate != nil {
		<-s.gate
	}
	return v, s.fail
}

func (s *source) cache(bound int) *Reader[int, int64] {
	return New(s.clock, time.Second, bound, s.load)
}

func TestCacheLife(t *testing.T) {
	s, ctx := &source{}, t.Context()
	s.now.Store(time.Hour.Nanoseconds())
	c := s.cache(10)
	get := func(want int64, wantCached bool) {
		t.Helper()
		if v, cached, err := c.Get(ctx, 1); err != nil || v != want || cached != wantCached {
			t.Fatalf("%d, cached %v, %v; want %d, %v", v, cached, err, want, wantCached)
		}
	}
	get(0, false)
	s.value.Store(1)
	get(0, true)
	s.now.Add(time.Second.Nanoseconds() - 1)
	get(0, true)
	s.now.Add(1)
	get(1, false)
	s.value.Store(2)
	c.Forget(1)
	get(2, false)
	// A clock that is set back does not make a value live longer.
	s.value.Store(3)
	s.now.Add(-time.Minute.Nanoseconds())
	get(3, false)
	s.fail = errors.New("down")
	c.Forget(1)
	if _, _, err := c.Get(ctx, 1); err == nil {
		t.Fatal("no error")
	}
	s.fail = nil
	get(3, false)
}

func TestCacheBound(t *testing.T) {
	s := &source{}
	c := s.cache(100)
	for i := range 10_000 {
		if _, _, err := c.Get(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		if c.kept.Len() > 100 {
			t.Fatalf("%d entries", c.kept.Len())
		}
	}
	if c.kept.Len() < 50 || len(c.flights) != 0 {
		t.Fatalf("%d entries, %d flights", c.kept.Len(), len(c.flights))
	}
}

// Who comes while a read runs shares the next one: the running read may have begun before what the caller knows of.
func TestCacheCoalesces(t *testing.T) { synctest.Test(t, testCacheCoalesces) }

func testCacheCoalesces(t *testing.T) {
	s := &source{gate: make(chan struct{})}
	c := s.cache(10)
	var wg sync.WaitGroup
	first := make(chan int64, 1)
	wg.Go(func() {
		v, _ := c.Read(t.Context(), 1)
		first <- v
	})
	synctest.Wait()  // the first read runs
	s.value.Store(7) // a purchase, after the first read began
	seen := make(chan int64, 50)
	for range 50 {
		wg.Go(func() {
			v, _ := c.Read(t.Context(), 1)
			seen <- v
		})
	}
	synctest.Wait() // all have come
	close(s.gate)
	wg.Wait()
	close(seen)
	for v := range seen {
		if v != 7 {
			t.Fatalf("a caller saw %d", v)
		}
	}
	if v := <-first; v != 0 {
		t.Fatalf("the first read saw %d", v)
	}
	if n := s.reads.Load(); n != 2 {
		t.Fatalf("%d reads", n)
	}
}

// What a read that began before a change brings is not kept after it.
func TestCacheForgetWhileReading(t *testing.T) {
	s := &source{gate: make(chan struct{})}
	c := s.cache(10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = c.Read(t.Context(), 1)
	}()
	for s.reads.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	s.value.Store(1)
	c.Forget(1)
	close(s.gate)
	<-done
	if v, cached, _ := c.Get(t.Context(), 1); v != 1 || cached {
		t.Fatalf("%d, cached %v", v, cached)
	}
}

func TestCacheCallerGoes(t *testing.T) {
	s := &source{gate: make(chan struct{})}
	c := s.cache(10)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Read(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(s.gate)
	if _, err := c.Read(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
}

// What nobody reads any more does not stay because there is room.
func TestCacheForgetsExpired(t *testing.T) {
	var now time.Time
	c := New(func() time.Time { return now }, time.Second, 1<<14, func(_ context.Context, k int) (int, error) { return k, nil })
	for k := range 10_000 {
		now = now.Add(10 * time.Millisecond) // a hundred within the ttl
		if v, _, err := c.Get(t.Context(), k); v != k || err != nil {
			t.Fatal(v, err)
		}
	}
	if n := c.kept.Len(); n > 1000 {
		t.Errorf("%d entries are kept", n)
	}
}
