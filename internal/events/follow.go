package events

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
)

const (
	// MaxStreams and maxStreamsInAll bound the live streams of an address and of a process.
	MaxStreams      = 8
	maxStreamsInAll = 2000
	// hubEvery is how often the lengths of the streams are looked at: changes of other processes, and of records.
	hubEvery    = time.Second
	followBatch = 50
)

// hub wakes live streams. One look at the database serves them all.
type hub struct {
	e    *Events
	wake jobs.Signal

	mu      sync.Mutex
	all     int
	streams map[toll.Address]map[*Stream]struct{}
	ended   bool
}

func newHub(e *Events) *hub {
	return &hub{e: e, wake: jobs.NewSignal(), streams: map[toll.Address]map[*Stream]struct{}{}}
}

func (h *hub) turn(ctx context.Context) error {
	h.mu.Lock()
	principals := slices.Collect(maps.Keys(h.streams))
	h.mu.Unlock()
	if len(principals) == 0 {
		return nil
	}
	last, err := store.LastSequences(ctx, h.e.st, principals)
	h.mu.Lock()
	defer h.mu.Unlock()
	for p, n := range last {
		for s := range h.streams[p] {
			s.tell(n)
		}
	}
	return err
}

// end ends all streams, and those to come.
func (h *hub) end(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for _, streams := range h.streams {
		for s := range streams {
			s.finish()
		}
	}
	return nil
}

// EndStreams ends all live streams: the process is going to stop, and they would keep it.
func (e *Events) EndStreams() { _ = e.hub.end(context.Background()) } // it has no error

// Stream is a live stream of events. It is used by one goroutine.
type Stream struct {
	e         *Events
	principal toll.Address
	at        int64

	mu    sync.Mutex
	known int64
	news  chan struct{}
	over  chan struct{}
	done  bool
}

// Follow begins a live stream behind the event with the id after, which may also be a sequence as decimal digits; "" begins
// behind the newest one. Errors: [toll.CodeRateLimited] when the address has too many streams;
// an id that is not in the stream is [toll.CodeBadRequest].
func (e *Events) Follow(ctx context.Context, principal toll.Address, after string) (*Stream, error) {
	last, err := store.LastSequences(ctx, e.st, []toll.Address{principal})
	if err != nil {
		return nil, err
	}
	s := &Stream{e: e, principal: principal, at: last[principal], known: last[principal], news: make(chan struct{}, 1), over: make(chan struct{})}
	if after != "" {
		if s.at, err = e.position(ctx, principal, after, s.known); err != nil {
			return nil, err
		}
	}
	h := e.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended:
		return nil, toll.NewError(toll.CodeUnavailable)
	case len(h.streams[principal]) >= MaxStreams || h.all >= maxStreamsInAll:
		return nil, toll.Errorf(toll.CodeRateLimited, "There are too many event streams.").WithHint("Close a stream that nobody reads; GET /events reads in pages.")
	}
	if h.streams[principal] == nil {
		h.streams[principal] = map[*Stream]struct{}{}
	}
	h.streams[principal][s] = struct{}{}
	h.all++
	if s.at < s.known {
		s.tell(s.known)
	}
	return s, nil
}

// Close ends the stream.
func (s *Stream) Close() {
	h := s.e.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	streams := h.streams[s.principal]
	if _, ok := streams[s]; !ok {
		return
	}
	delete(streams, s)
	h.all--
	if len(streams) == 0 {
		delete(h.streams, s.principal)
	}
}

func (s *Stream) tell(n int64) {
	s.mu.Lock()
	s.known = max(s.known, n)
	fresh := s.known > s.at
	s.mu.Unlock()
	if fresh {
		select {
		case s.news <- struct{}{}:
		default:
		}
	}
}

// finish is called under the lock of the hub.
func (s *Stream) finish() {
	if !s.done {
		s.done = true
		close(s.over)
	}
}

// Next returns the next events, at most 50, as soon as there is one; none when the time is over first; over when the process is
// going to stop.
func (s *Stream) Next(ctx context.Context, wait time.Duration) (events []*toll.Event, over bool, err error) {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-s.news:
	case <-t.C:
		return nil, false, nil
	case <-s.over:
		return nil, true, nil
	case <-ctx.Done():
		return nil, true, nil
	}
	rows, err := store.EventsAfter(ctx, s.e.st, s.principal, s.at, followBatch)
	if err != nil {
		s.tell(0) // there may be more than was read
		return nil, false, err
	}
	for _, row := range rows {
		ev, err := s.e.event(ctx, row)
		if err != nil {
			return nil, false, err
		}
		events = append(events, ev)
		s.mu.Lock()
		s.at = row.Sequence
		s.mu.Unlock()
	}
	s.tell(0)
	return events, false, nil
}

// position finds the place in a stream behind which to go on.
func (e *Events) position(ctx context.Context, principal toll.Address, after string, last int64) (int64, error) {
	if n, ok := decimal(after); ok {
		return min(n, last), nil
	}
	n, err := store.SequenceOfEvent(ctx, e.st, principal, after)
	if err != nil {
		return 0, unknownPosition(err)
	}
	return n, nil
}
