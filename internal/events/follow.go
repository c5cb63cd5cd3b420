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
	// MaxStreams and maxStreamsInAll bound the live streams of an address and of a process. Pages
	// that wait count apart, by session: they take no place of a program.
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

	mu        sync.Mutex
	open      [2]int         // streams of programs, and pages that wait
	each      map[string]int // the same, by address and by session
	audiences map[toll.Address]*audience

	end   sync.Once
	ended chan struct{} // all streams end, and those to come
}

// audience are the live streams of an address.
type audience struct {
	last    int64 // length of what they follow, as the hub saw it
	streams map[*Stream]struct{}
}

func (h *hub) run(ctx context.Context) error {
	h.mu.Lock()
	principals := slices.Collect(maps.Keys(h.audiences))
	h.mu.Unlock()
	if len(principals) == 0 {
		return nil
	}
	last, err := store.LastSequences(ctx, h.e.st, principals)
	h.mu.Lock()
	defer h.mu.Unlock()
	for p, n := range last {
		if a := h.audiences[p]; a != nil && n > a.last {
			a.last = n
			for s := range a.streams {
				s.news.Fire()
			}
		}
	}
	return err
}

// EndStreams ends all live streams: the process is going to stop, and they would keep it.
func (e *Events) EndStreams() { e.hub.end.Do(func() { close(e.hub.ended) }) }

// Stream is a live stream of events. It is used by one goroutine.
type Stream struct {
	e         *Events
	principal toll.Address
	session   string // of a page; "" for a program
	at        int64
	news      jobs.Signal // there may be events behind at
}

// Follow begins a live stream behind the event with the id after, which may also be a sequence as decimal digits; "" begins
// behind the newest one. Errors: [toll.CodeRateLimited] when the address has too many streams;
// an id that is not in the stream is [toll.CodeBadRequest].
func (e *Events) Follow(ctx context.Context, principal toll.Address, after string) (*Stream, error) {
	lengths, err := store.LastSequences(ctx, e.st, []toll.Address{principal})
	if err != nil {
		return nil, err
	}
	last := lengths[principal]
	s := &Stream{e: e, principal: principal, at: last, news: jobs.NewSignal()}
	if after != "" {
		if s.at, err = e.position(ctx, principal, after, last); err != nil {
			return nil, err
		}
	}
	if err := e.hub.enter(s, last); err != nil {
		return nil, err
	}
	return s, nil
}

// enter begins to wake a stream. last is the length of what it follows, as the caller read it.
func (h *hub) enter(s *Stream, last int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.audiences[s.principal]
	if a == nil {
		a = &audience{last: last, streams: map[*Stream]struct{}{}}
	}
	select {
	case <-h.ended:
		return toll.NewError(toll.CodeUnavailable)
	default:
	}
	kind, who := s.counted()
	if h.each[who] >= MaxStreams || h.open[kind] >= maxStreamsInAll {
		return toll.Errorf(toll.CodeRateLimited, "Too many event streams are open.").WithHint("Close an unused stream, or read pages with GET /events.")
	}
	h.audiences[s.principal] = a
	a.streams[s] = struct{}{}
	h.open[kind]++
	h.each[who]++
	if s.at < max(last, a.last) {
		s.news.Fire()
	}
	return nil
}

// counted names what a stream counts for: a kind of hub.open, and a key of hub.each.
func (s *Stream) counted() (kind int, who string) {
	if s.session != "" {
		return 1, "session " + s.session
	}
	return 0, s.principal.Lower()
}

// Wait returns the length of the stream of an address as soon as it is above after, or what it is
// after a time, or when the process is going to stop. session names the session of the page that
// waits. Errors: [toll.CodeRateLimited] when too many pages of the session, or of the process, wait.
func (e *Events) Wait(
	ctx context.Context, principal toll.Address, session string, after int64, wait time.Duration,
) (last int64, err error) {
	read := func() (int64, error) {
		lengths, err := store.LastSequences(ctx, e.st, []toll.Address{principal})
		return lengths[principal], err
	}
	if last, err = read(); err != nil || last > after {
		return last, err
	}
	s := &Stream{e: e, principal: principal, session: session, at: last, news: jobs.NewSignal()}
	if err := e.hub.enter(s, last); err != nil {
		return last, err
	}
	defer s.Close()
	t := time.NewTimer(wait)
	defer t.Stop()
	for {
		select {
		case <-s.news:
		case <-t.C:
			return last, nil
		case <-e.hub.ended:
			return last, nil
		case <-ctx.Done():
			return last, ctx.Err()
		}
		if last, err = read(); err != nil || last > after {
			return last, err
		}
	}
}

func (s *Stream) Close() {
	h := s.e.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.audiences[s.principal]
	if a == nil {
		return
	}
	if _, ok := a.streams[s]; ok {
		delete(a.streams, s)
		kind, who := s.counted()
		h.open[kind]--
		if h.each[who]--; h.each[who] == 0 {
			delete(h.each, who)
		}
	}
	if len(a.streams) == 0 {
		delete(h.audiences, s.principal)
	}
}

// Next returns the next events, at most 50, as soon as there is one; none when the time is over first; over when the process is
// going to stop.
func (s *Stream) Next(ctx context.Context, wait time.Duration) (events []*toll.Event, over bool, err error) {
	t := time.NewTimer(wait)
	defer t.Stop()
	for len(events) == 0 {
		select {
		case <-s.news:
		case <-t.C:
			return nil, false, nil
		case <-s.e.hub.ended:
			return nil, true, nil
		case <-ctx.Done():
			return nil, true, nil
		}
		rows, err := store.EventsAfter(ctx, s.e.st, s.principal, s.at, followBatch)
		if err != nil || len(rows) == followBatch {
			s.news.Fire() // there may be more than was read
		}
		if err != nil {
			return nil, false, err
		}
		if events, err = s.e.render(ctx, s.principal, rows); err != nil {
			return nil, false, err
		}
		if len(rows) > 0 {
			s.at = rows[len(rows)-1].Sequence
		}
	}
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
