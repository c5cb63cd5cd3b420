package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

const (
	sqlEventKept = `SELECT COALESCE(MIN(seq), $4) FROM events WHERE principal = $1 AND seq >= $2 AND seq < $4 AND created_at >= $3`

	sqlEventsForget = `DELETE FROM events WHERE principal = $1 AND seq < $2`
	sqlRunForget    = `DELETE FROM event_runs WHERE principal = $1 AND first = $2`
	sqlStreamForget = `UPDATE event_streams SET kept = $2, tail = $3 WHERE principal = $1`
	sqlStreamNames  = `SELECT principal FROM event_streams WHERE principal > $1 ORDER BY principal LIMIT $2`
)

// StreamsAfter returns principals that have a stream, in the order of their text behind one, at most limit.
func StreamsAfter(ctx context.Context, q Querier, after string, limit int64) ([]string, error) {
	return values[string](ctx, q, sqlStreamNames, after, limit)
}

// ForgetEvents removes events from the beginning of a stream, up to the first that was not created before a time, and at most limit. It
// returns how many it removed. Sequences and ids of others do not change. It locks the stream, and only if there is something to remove.
func ForgetEvents(ctx context.Context, st *Store, principal toll.Address, before time.Time, limit int64) (n int64, err error) {
	s, err := readStream(ctx, st, principal)
	if err != nil {
		return 0, err
	}
	if end, _, err := s.forgettable(ctx, st, Micros(before), limit); err != nil || end == s.kept {
		return 0, err
	}
	err = st.Tx(ctx, func(tx *Tx) error {
		n = 0
		streams, err := lockStreams(ctx, tx, []string{principal.Lower()})
		if err != nil {
			return err
		}
		s := streams[principal]
		end, runs, err := s.forgettable(ctx, tx, Micros(before), limit)
		if err != nil || end == s.kept { // another process was faster
			return err
		}
		n = end - s.kept
		return s.forget(ctx, tx, end, runs)
	})
	return n, err
}

// forgettable returns the first sequence that stays, and the runs before it.
func (s *stream) forgettable(ctx context.Context, q Querier, before, limit int64) (end int64, runs []run, err error) {
	end = min(s.kept+limit, s.last+1)
	if end == s.kept {
		return end, nil, nil
	}
	principal := s.principal.Lower()
	if end, err = value[int64](ctx, q, sqlEventKept, principal, s.kept, before, end); err != nil {
		return 0, nil, err
	}
	if runs, err = All(ctx, q, scanRun, sqlRunsBetween, principal, s.kept, end-1); err != nil {
		return 0, nil, err
	}
	for _, r := range append(runs, s.tail) {
		if len(r.events) == 0 || r.lastAt < before {
			continue
		}
		events := s.appendRun(nil, &r, func(e runEvent) bool { return e.seq >= s.kept && e.seq < end })
		if err := complete(ctx, q, events); err != nil {
			return 0, nil, err
		}
		for _, e := range events {
			if Micros(e.CreatedAt) >= before {
				end = min(end, e.Sequence)
			}
		}
	}
	return end, runs, nil
}

// forget removes what stands before a sequence from a stream that is locked.
func (s *stream) forget(ctx context.Context, tx *Tx, end int64, runs []run) error {
	principal := s.principal.Lower()
	s.kept = end
	s.tail.cut(end)
	if _, err := tx.Exec(ctx, sqlStreamForget, principal, s.kept, s.tail.packTail()); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, sqlEventsForget, principal, end); err != nil {
		return err
	}
	for i := range runs {
		r := &runs[i]
		if r.first >= end {
			continue
		}
		if _, err := tx.Exec(ctx, sqlRunForget, principal, r.first); err != nil {
			return err
		}
		if r.cut(end); len(r.events) == 0 {
			continue
		}
		if _, err := tx.Exec(ctx, sqlRunAdd, r.row(principal)...); err != nil {
			return err
		}
	}
	return nil
}

// cut removes the settlements before a sequence. The times stay: they are bounds.
func (r *run) cut(end int64) {
	n := countUpTo(r, end-1)
	r.events, r.before = r.events[n:], r.before+n
	if len(r.events) > 0 {
		r.first = r.events[0].seq
	}
}

func (r *run) row(principal string) []any {
	return []any{principal, r.first, r.last, r.before, int64(len(r.events)), r.firstAt, r.lastAt, r.pack()}
}
