package events

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

func next(t *testing.T, s *Stream) []*toll.Event {
	t.Helper()
	all, over, err := s.Next(t.Context(), 2*time.Minute)
	must.Do(t, err)
	if over || len(all) == 0 {
		t.Fatal("nothing came")
	}
	return all
}

func TestFollow(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		defer run(m.events.Loops()...)()
		m.tell("old")
		s := must.Get(m.events.Follow(ctx, builder, ""))(t)
		defer s.Close()
		m.tell("1") // by another process, for all that the hub knows
		m.tell("2")
		var got []*toll.Event
		for len(got) < 2 {
			got = append(got, next(t, s)...)
		}
		if got[0].Object.ID != "1" || got[1].Object.ID != "2" || got[1].Sequence != 3 {
			t.Errorf("%+v", got)
		}
		// Behind an event, and behind a sequence.
		for _, after := range []string{got[0].ID, "2"} {
			again := must.Get(m.events.Follow(ctx, builder, after))(t)
			if rest := next(t, again); len(rest) != 1 || rest[0].ID != got[1].ID {
				t.Errorf("%+v", rest)
			}
			again.Close()
		}
		for _, after := range []string{toll.NewUUID(), "x", "-1"} {
			if _, err := m.events.Follow(ctx, builder, after); !errors.Is(err, toll.NewError(toll.CodeBadRequest)) {
				t.Errorf("%q: %v", after, err)
			}
		}
		if _, over, _ := s.Next(ctx, 10*time.Millisecond); over {
			t.Error("over")
		}
		m.events.EndStreams()
		if _, over, _ := s.Next(ctx, 2*time.Minute); !over {
			t.Error("it goes on")
		}
		if _, err := m.events.Follow(ctx, builder, ""); !errors.Is(err, toll.NewError(toll.CodeUnavailable)) {
			t.Error(err)
		}
	})
}

// TestStreamsAreBounded: an address has few streams, closed ones count no more, and other addresses have theirs.
// T179
func TestStreamsAreBounded(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	m := newMarket(t, st)
	ctx := t.Context()
	var open []*Stream
	for range MaxStreams {
		s := must.Get(m.events.Follow(ctx, builder, ""))(t)
		open = append(open, s)
	}
	for range 100 {
		if _, err := m.events.Follow(ctx, builder, ""); !errors.Is(err, toll.NewError(toll.CodeRateLimited)) {
			t.Fatal(err)
		}
	}
	other, err := m.events.Follow(ctx, subscriber, "")
	must.Do(t, err)
	other.Close()
	open[0].Close()
	open[0].Close()
	s := must.Get(m.events.Follow(ctx, builder, ""))(t)
	s.Close()
	for i := range 3000 {
		who := toll.MustAddress(fmt.Sprintf("0x%040x", i+1))
		if _, err = m.events.Follow(ctx, who, ""); err != nil {
			break
		}
	}
	if !errors.Is(err, toll.NewError(toll.CodeRateLimited)) || m.events.hub.open[0] != maxStreamsInAll {
		t.Errorf("%d streams, %v", m.events.hub.open, err)
	}
}

// TestPagesThatWait: a session has few pages that wait, and they take no place of a program. Each learns of an event, and those
// that wait are let go when the process is going to stop.
// T179
func TestPagesThatWait(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	m := newMarket(t, st)
	defer run(m.events.Loops()...)()
	ctx := t.Context()
	m.tell("old")
	last := m.length(builder)
	got := make(chan int64, MaxStreams+1)
	wait := func(session string, after int64) {
		n, err := m.events.Wait(ctx, builder, session, after, time.Hour)
		must.Check(t, err)
		got <- n
	}
	waiting := func(n int) {
		t.Helper()
		eventually(t, func() bool {
			m.events.hub.mu.Lock()
			defer m.events.hub.mu.Unlock()
			return m.events.hub.open[1] == n
		})
	}
	go wait("one", last-1) // there is news already
	if n := <-got; n != last {
		t.Errorf("%d, want %d", n, last)
	}
	for range MaxStreams {
		go wait("one", last)
	}
	waiting(MaxStreams)
	if _, err := m.events.Wait(ctx, builder, "one", last, time.Hour); !errors.Is(err, toll.NewError(toll.CodeRateLimited)) {
		t.Errorf("one more of the session: %v", err)
	}
	if n, err := m.events.Wait(ctx, builder, "two", last, time.Millisecond); err != nil || n != last {
		t.Errorf("another session: %d, %v", n, err)
	}
	for range MaxStreams {
		s := must.Get(m.events.Follow(ctx, builder, ""))(t)
		defer s.Close()
	}
	m.tell("new")
	for range MaxStreams {
		if n := <-got; n != last+1 {
			t.Errorf("%d, want %d", n, last+1)
		}
	}
	waiting(0)
	if len(m.events.hub.each) != 1 {
		t.Errorf("%v is kept", m.events.hub.each)
	}
	go wait("one", last+1)
	waiting(1)
	m.events.EndStreams()
	if n := <-got; n != last+1 {
		t.Errorf("at the end: %d", n)
	}
	if _, err := m.events.Wait(ctx, builder, "one", last+1, time.Hour); !errors.Is(err, toll.NewError(toll.CodeUnavailable)) {
		t.Errorf("after the end: %v", err)
	}
}
