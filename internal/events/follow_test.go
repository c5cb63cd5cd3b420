package events

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

func next(t *testing.T, s *Stream) []*toll.Event {
	t.Helper()
	all, over, err := s.Next(t.Context(), 2*time.Minute)
	must(t, err)
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
		s, err := m.events.Follow(ctx, builder, "")
		must(t, err)
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
			again, err := m.events.Follow(ctx, builder, after)
			must(t, err)
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

// TestT179_StreamsAreBounded: an address has few streams, closed ones count no more, and other addresses have theirs.
func TestT179_StreamsAreBounded(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	m := newMarket(t, st)
	ctx := t.Context()
	var open []*Stream
	for range MaxStreams {
		s, err := m.events.Follow(ctx, builder, "")
		must(t, err)
		open = append(open, s)
	}
	for range 100 {
		if _, err := m.events.Follow(ctx, builder, ""); !errors.Is(err, toll.NewError(toll.CodeRateLimited)) {
			t.Fatal(err)
		}
	}
	other, err := m.events.Follow(ctx, subscriber, "")
	must(t, err)
	other.Close()
	open[0].Close()
	open[0].Close()
	s, err := m.events.Follow(ctx, builder, "")
	must(t, err)
	s.Close()
	for i := range 3000 {
		who := toll.MustAddress(fmt.Sprintf("0x%040x", i+1))
		if _, err = m.events.Follow(ctx, who, ""); err != nil {
			break
		}
	}
	if !errors.Is(err, toll.NewError(toll.CodeRateLimited)) || m.events.hub.all != maxStreamsInAll {
		t.Errorf("%d streams, %v", m.events.hub.all, err)
	}
}
