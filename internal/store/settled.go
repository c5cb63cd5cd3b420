package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// sqlRunsWithin reads only the index by time.
const sqlRunsWithin = `SELECT COALESCE(MIN(events_before), -1), COALESCE(MAX(events_before + events), 0)
	FROM event_runs WHERE principal = $1 AND last_at >= $2 AND first_at < $3 AND events_before < $4`

// Settled is a part of the settlements in the stream of a principal: those of its plans, and those
// that it paid. Their order is that of the journal.
type Settled struct {
	view        *view
	first, last int64 // places of the first and the last one
}

// SettledRow is a settlement with its place in a stream.
type SettledRow struct {
	Sequence int64
	Row      JournalRow
}

// SettledBetween returns the part of a stream that has all settlements from one time to before another. It has some that are earlier or
// later, because the times of a run overlap. It reads the numbers of runs, not the settlements.
func SettledBetween(
	ctx context.Context, q Querier, principal toll.Address, since, until time.Time,
) (*Settled, error) {
	s, err := readStream(ctx, q, principal)
	if err != nil {
		return nil, err
	}
	v := &view{ctx: ctx, q: q, s: s, settled: true}
	if err := v.measure(); err != nil {
		return nil, err
	}
	var low, high int64
	from, to, tail := Micros(since), Micros(until), &s.tail
	err = q.QueryRow(ctx, sqlRunsWithin, principal.Lower(), from, to, tail.before).Scan(&low, &high)
	if err != nil {
		return nil, err
	}
	if len(tail.events) > 0 && tail.lastAt >= from && tail.firstAt < to {
		high = s.settled
		if low < 0 {
			low = tail.before
		}
	}
	out := &Settled{view: v, first: low + 1, last: high}
	if low < 0 {
		out.last = 0
	}
	out.first = max(out.first, v.first)
	return out, nil
}

// After returns the next settlements behind a sequence, at most n, and fewer only at the end. Zero is
// the place before all of them. An error is [ErrForgotten] when events were removed meanwhile.
func (s *Settled) After(sequence int64, ascending bool, n int) ([]SettledRow, error) {
	from, to := s.first, s.last
	if sequence > 0 && ascending {
		done, err := s.view.upTo(sequence)
		if err != nil {
			return nil, err
		}
		from = max(from, done+1)
	} else if sequence > 0 {
		done, err := s.view.upTo(sequence - 1)
		if err != nil {
			return nil, err
		}
		to = min(to, done)
	}
	if ascending {
		to = min(to, from+int64(n)-1)
	} else {
		from = max(from, to-int64(n)+1)
	}
	events, err := s.view.read(from, to)
	if err != nil {
		return nil, err
	}
	out := make([]SettledRow, len(events))
	for i, e := range events {
		at := i
		if !ascending {
			at = len(events) - 1 - i
		}
		out[at] = SettledRow{Sequence: e.Sequence, Row: *e.Row}
	}
	return out, nil
}
