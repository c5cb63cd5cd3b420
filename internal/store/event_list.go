package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tollhq/toll"
)

// maxStep bounds the events that a list reads at once. It reads more than a page where many are late.
const maxStep = 512

// Events lists a stream in the order of its sequence. Events of runs in it are complete.
//
// What it reads is bounded by the page. With [EventFilter.Since] it reads also the numbers of runs, in an index, and the events with
// rows, that are not older; and the single events of runs in which there are older and newer ones.
func Events(ctx context.Context, q Querier, f EventFilter, p Page) (list List[*Event], err error) {
	for range 3 { // events may go while the list is read
		if list, err = listEvents(ctx, q, f, p); !errors.Is(err, ErrForgotten) {
			break
		}
	}
	return list, err
}

// ErrForgotten says that events were removed while they were read. A repeat reads what is left.
var ErrForgotten = errors.New("store: events were removed while they were read")

func listEvents(ctx context.Context, q Querier, f EventFilter, p Page) (List[*Event], error) {
	list := List[*Event]{Items: []*Event{}}
	if f.Type != "" && f.Type != toll.EventSettlementSettled {
		return listEventRows(ctx, q, f, p)
	}
	p, from, err := p.checked()
	if err != nil {
		return list, err
	}
	if p.Sort != SortCreated {
		return list, toll.NewError(toll.CodeBadPage).WithDetails("sortBy %q", string(p.Sort))
	}
	s, err := readStream(ctx, q, f.Principal)
	if err != nil {
		return list, err
	}
	v := &view{ctx: ctx, q: q, s: s, settled: f.Type != "", first: 1, since: Micros(f.Since)}
	if err := v.measure(); err != nil {
		return list, err
	}
	list.Total = v.total
	at, err := v.begin(p, from)
	if err != nil {
		return list, err
	}
	if list.Items, err = v.collect(at, p); err != nil {
		return list, err
	}
	if len(list.Items) > p.Size {
		list.Items = list.Items[:p.Size]
		last := list.Items[p.Size-1]
		id, err := uuidBytes(last.ID)
		if err != nil {
			return list, err
		}
		list.Next = encodeCursor(p, last.Sequence, id)
	}
	return list, nil
}

// listEventRows lists events of a type that has rows only.
func listEventRows(ctx context.Context, q Querier, f EventFilter, p Page) (List[*Event], error) {
	l := Listing{
		Where: "principal = $1 AND type = $2", Args: []any{f.Principal.Lower(), string(f.Type)}, ID: "event_id",
		Sorts: map[Sort]string{SortCreated: "seq"},
	}
	if !f.Since.IsZero() {
		l.Where, l.Args = l.Where+" AND created_at >= $3", append(l.Args, Micros(f.Since))
	}
	return eventRows.list(ctx, q, l, p)
}

// view is a stream, or the settlements in it, as a list whose items have places: 1, 2, 3 without a gap.
type view struct {
	ctx context.Context
	q   Querier
	s   *stream

	settled bool  // settlements only
	size    int64 // places

	since int64
	first int64   // place of the first event that is not created before since
	late  []int64 // places behind first, ascending, of events that are: another one was numbered before them
	total int64   // events of the list
}

// measure sets what depends on the whole stream.
func (v *view) measure() (err error) {
	principal := v.s.principal.Lower()
	if v.size = v.s.last; v.settled {
		v.size = v.s.settled
	}
	if v.first = v.s.kept; v.settled && v.s.kept > 1 {
		gone, err := value[int64](v.ctx, v.q, sqlRunsForgotten, principal, v.s.tail.before)
		if err != nil {
			return err
		}
		v.first = min(gone, v.s.tail.before) + 1
	}
	if v.total = v.size - v.first + 1; v.since == 0 {
		return nil
	}
	var begin, sum, from int64
	if !v.settled {
		begin, err = value[int64](v.ctx, v.q, "SELECT COALESCE(MIN(seq), 0) FROM events WHERE principal = $1 AND created_at >= $2 AND seq <= $3",
			principal, v.since, v.s.last)
		if err != nil {
			return err
		}
	}
	if err := v.q.QueryRow(v.ctx, sqlRunsSince, principal, v.since, v.s.tail.before).Scan(&sum, &from); err != nil {
		return err
	}
	if tail := &v.s.tail; sum == 0 && len(tail.events) > 0 && tail.lastAt >= v.since {
		from = tail.first
	}
	if begin == 0 || from > 0 && from < begin {
		begin = from
	}
	if begin == 0 {
		v.first, v.total = v.size+1, 0
		return nil
	}
	if v.first, err = v.upTo(begin); err != nil {
		return err
	}
	if err := v.findLate(begin, sum); err != nil {
		return err
	}
	v.total = v.size - v.first + 1 - int64(len(v.late))
	return nil
}

// findLate notes the events that are created before since, of those from a sequence on. newer are the events of runs, in which one
// at least is not.
func (v *view) findLate(begin, newer int64) (err error) {
	principal := v.s.principal.Lower()
	if !v.settled {
		v.late, err = values[int64](v.ctx, v.q, "SELECT seq FROM events WHERE principal = $1 AND seq >= $2 AND seq <= $3 AND created_at < $4",
			principal, begin, v.s.last, v.since)
		if err != nil {
			return err
		}
	}
	around, err := All(v.ctx, v.q, scanRun, sqlRunsAround, principal, v.since, v.since)
	if err != nil {
		return err
	}
	// The run that reaches into begin, if there is one, and those behind it.
	first, before := begin, int64(0)
	at, err := All(v.ctx, v.q, scanRun, sqlRunsBetween, principal, begin, begin)
	if err != nil {
		return err
	}
	for _, r := range at {
		if before = r.before; r.last >= begin {
			first = r.first
		} else {
			before += int64(len(r.events))
		}
	}
	if newer < v.s.tail.before-before { // some are older altogether
		behind, err := All(v.ctx, v.q, scanRun, sqlRunsBehind, principal, first, v.since)
		if err != nil {
			return err
		}
		around = append(around, behind...)
	}
	around = slices.DeleteFunc(around, func(r run) bool { return !v.s.ended(&r) })
	for _, r := range append(around, v.s.tail) {
		if r.firstAt >= v.since {
			continue
		}
		events := v.s.appendRun(nil, &r, func(runEvent) bool { return true })
		if r.lastAt >= v.since {
			if err := complete(v.ctx, v.q, events); err != nil {
				return err
			}
		}
		for i, e := range events {
			place := e.Sequence
			if v.settled {
				place = r.before + int64(i) + 1
			}
			if place >= v.first && (r.lastAt < v.since || !v.in(e)) {
				v.late = append(v.late, place)
			}
		}
	}
	slices.Sort(v.late)
	return nil
}

func (v *view) in(e *Event) bool { return Micros(e.CreatedAt) >= v.since }

// upTo returns the place of the last event whose sequence is not above one, 0 when there is none.
func (v *view) upTo(seq int64) (int64, error) {
	if seq = min(seq, v.s.last); !v.settled {
		return max(seq, 0), nil
	}
	n := v.s.settled - v.s.tail.before
	place := v.s.tail.before
	if n > 0 && seq >= v.s.tail.first {
		return place + countUpTo(&v.s.tail, seq), nil
	}
	runs, err := All(v.ctx, v.q, scanRun, sqlRunsBetween, v.s.principal.Lower(), seq, seq)
	if err != nil {
		return 0, err
	}
	if len(runs) > 0 && v.s.ended(&runs[0]) {
		return runs[0].before + countUpTo(&runs[0], seq), nil
	}
	if len(runs) > 0 { // the tail became a row meanwhile, and begins behind seq
		return place, nil
	}
	return 0, nil
}

func countUpTo(r *run, seq int64) (n int64) {
	for _, e := range r.events {
		if e.seq <= seq {
			n++
		}
	}
	return n
}

// read returns the complete events of places, in order.
func (v *view) read(from, to int64) (events []*Event, err error) {
	from, to = max(from, 1), min(to, v.size)
	if from > to {
		return nil, nil
	}
	if !v.settled {
		events, err = v.s.between(v.ctx, v.q, from, to)
	} else {
		events, err = v.readSettled(from, to)
	}
	if err == nil && int64(len(events)) != to-from+1 {
		if now, e := readStream(v.ctx, v.q, v.s.principal); e == nil && now.kept > v.s.kept {
			return nil, ErrForgotten
		}
		err = fmt.Errorf("store: the event stream of %s has %d events from number %d to %d", v.s.principal, len(events), from, to)
	}
	if err != nil {
		return nil, err
	}
	return events, complete(v.ctx, v.q, events)
}

func (v *view) readSettled(from, to int64) (events []*Event, err error) {
	from, to = from-1, to-1 // places in runs, from 0
	var runs []run
	if from < v.s.tail.before {
		if runs, err = All(v.ctx, v.q, scanRun, sqlRunsByNumber, v.s.principal.Lower(), from, min(to+1, v.s.tail.before)); err != nil {
			return nil, err
		}
	}
	for _, r := range append(runs, v.s.tail) {
		low, high := max(from-r.before, 0), min(to-r.before+1, int64(len(r.events)))
		if low < high {
			r.events = r.events[low:high]
			events = v.s.appendRun(events, &r, func(runEvent) bool { return true })
		}
	}
	return events, nil
}

// begin returns the place at which a page begins.
func (v *view) begin(p Page, from *cursor) (int64, error) {
	if from != nil {
		key, _, err := from.values()
		if err != nil {
			return 0, err
		}
		seq := key.(int64)
		if p.Ascending {
			at, err := v.upTo(seq)
			return max(at+1, v.first), err
		}
		return v.upTo(max(seq, 1) - 1)
	}
	skip := int64(p.Number-1) * int64(p.Size)
	if skip >= v.total {
		return 0, nil
	}
	if !p.Ascending {
		skip = v.total - 1 - skip
	}
	at := v.first + skip
	for _, place := range v.late {
		if place > at {
			break
		}
		at++
	}
	return at, nil
}

// collect returns the events of the list from a place on, one more than the page holds if there are so many.
func (v *view) collect(at int64, p Page) ([]*Event, error) {
	out := []*Event{}
	step := int64(p.Size + 1)
	for at >= v.first && at <= v.size && at > 0 {
		from, to := at, at+step-1
		if !p.Ascending {
			from, to = max(at-step+1, v.first), at
		}
		events, err := v.read(from, to)
		if err != nil {
			return nil, err
		}
		for i := range events {
			e := events[i]
			if !p.Ascending {
				e = events[len(events)-1-i]
			}
			if v.in(e) {
				out = append(out, e)
			}
		}
		if len(out) > p.Size {
			break
		}
		if at = to + 1; !p.Ascending {
			at = from - 1
		}
		step = min(2*step, maxStep) // late events do not count
	}
	return out, nil
}

// EventsAfter returns events of a stream behind a sequence, at most limit, in order. Those of runs are complete.
func EventsAfter(ctx context.Context, q Querier, principal toll.Address, sequence int64, limit int) ([]*Event, error) {
	s, err := readStream(ctx, q, principal)
	if err != nil {
		return nil, err
	}
	from := max(sequence+1, s.kept)
	events, err := s.between(ctx, q, from, from+int64(limit)-1)
	if err != nil {
		return nil, err
	}
	return events, complete(ctx, q, events)
}

// EventBySequence returns an event of a stream, or [ErrNotFound].
func EventBySequence(ctx context.Context, q Querier, principal toll.Address, sequence int64) (*Event, error) {
	events, err := EventsAfter(ctx, q, principal, sequence-1, 1)
	if err != nil {
		return nil, err
	}
	if len(events) == 0 || events[0].Sequence != sequence {
		return nil, ErrNotFound
	}
	return events[0], nil
}

// SequenceOfEvent returns the place of an event in a stream by its id, or [ErrNotFound].
func SequenceOfEvent(ctx context.Context, q Querier, principal toll.Address, id string) (n int64, err error) {
	raw, err := uuidBytes(id)
	if err != nil {
		return 0, err
	}
	from := int64(binary.BigEndian.Uint64(raw[:8])>>16) * 1000
	to := from + int64(time.Millisecond/time.Microsecond)
	err = q.QueryRow(ctx, "SELECT seq FROM events WHERE principal = $1 AND created_at >= $2 AND created_at < $3 AND event_id = $4",
		principal.Lower(), from, to, raw).Scan(&n)
	if !errors.Is(err, ErrNotFound) {
		return n, err
	}
	s, err := readStream(ctx, q, principal)
	if err != nil {
		return 0, err
	}
	runs, err := All(ctx, q, scanRun, sqlRunsAround, principal.Lower(), from, to)
	if err != nil {
		return 0, err
	}
	id, _ = toll.ParseUUID(id) // uuidBytes has read it
	runs = slices.DeleteFunc(runs, func(r run) bool { return !s.ended(&r) })
	for _, r := range append(runs, s.tail) {
		if r.lastAt < from || r.firstAt >= to {
			continue
		}
		events := s.appendRun(nil, &r, func(runEvent) bool { return true })
		if err := complete(ctx, q, events); err != nil {
			return 0, err
		}
		for _, e := range events {
			if e.ID == id {
				return e.Sequence, nil
			}
		}
	}
	return 0, ErrNotFound
}
