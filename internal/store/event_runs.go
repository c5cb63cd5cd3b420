package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/tollhq/toll"
)

const (
	// maxRun bounds the settlements of one row of event_runs, and minRun those that stay in the row
	// of the stream: a stream with few settlements changes that row alone.
	maxRun    = 1024
	minRun    = 128
	packedRun = 1
)

var errBadRun = errors.New("store: a row of packed events cannot be decoded")

// runEvent is a settlement in a stream: the entry that settled it says the rest.
type runEvent struct {
	seq      int64 // in the stream
	position int64 // in the journal
}

// run is a part of a stream: settlements, packed, between events that may have rows of their own.
type run struct {
	first, last     int64 // sequences of its first and its last settlement
	before          int64 // settlements of runs before it in the stream
	firstAt, lastAt int64 // the earliest and the latest time of its settlements, in microseconds
	events          []runEvent
}

func (r *run) add(e runEvent, at int64) {
	if len(r.events) == 0 {
		r.first, r.firstAt, r.lastAt = e.seq, at, at
	}
	r.last, r.firstAt, r.lastAt = e.seq, min(r.firstAt, at), max(r.lastAt, at)
	r.events = append(r.events, e)
}

// pack returns the version and, of each settlement, how far its position is behind the one before, shifted by one bit. The
// bit says that sequences of other events lie between; then their number follows.
func (r *run) pack() []byte {
	out := make([]byte, 1, 1+3*len(r.events))
	out[0] = packedRun
	before := runEvent{seq: r.first - 1}
	for _, e := range r.events {
		step, gap := uint64(e.position-before.position)<<1, uint64(e.seq-before.seq-1)
		if gap == 0 {
			out = binary.AppendUvarint(out, step)
		} else {
			out = binary.AppendUvarint(binary.AppendUvarint(out, step|1), gap)
		}
		before = e
	}
	return out
}

func (r *run) unpack(b []byte) error {
	if len(b) == 0 || b[0] != packedRun {
		return errBadRun
	}
	b = b[1:]
	next := func() uint64 {
		v, n := binary.Uvarint(b)
		b = b[max(n, 0):]
		return v
	}
	e := runEvent{seq: r.first - 1}
	r.events = make([]runEvent, 0, len(b)/2)
	for len(b) > 0 {
		left := len(b)
		step := next()
		e.position += int64(step >> 1)
		e.seq++
		if step&1 == 1 {
			e.seq += int64(next())
		}
		if len(b) == left {
			return errBadRun
		}
		r.events = append(r.events, e)
	}
	r.last = e.seq
	return nil
}

// packTail returns the form of a run that stands in the row of its stream: sequence and times, and the packed run.
func (r *run) packTail() []byte {
	if len(r.events) == 0 {
		return nil
	}
	head := binary.AppendUvarint(nil, uint64(r.first))
	head = binary.AppendUvarint(head, uint64(r.firstAt))
	head = binary.AppendUvarint(head, uint64(r.lastAt-r.firstAt))
	return append(head, r.pack()...)
}

// unpackTail reads what packTail made; settled are the settlements of all runs of the stream.
func (r *run) unpackTail(b []byte, settled int64) error {
	*r = run{before: settled}
	if len(b) == 0 {
		return nil
	}
	var head [3]int64
	for i := range head {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return errBadRun
		}
		head[i], b = int64(v), b[n:]
	}
	r.first, r.firstAt, r.lastAt = head[0], head[1], head[1]+head[2]
	if err := r.unpack(b); err != nil {
		return err
	}
	r.before = settled - int64(len(r.events))
	return nil
}

type stream struct {
	principal toll.Address
	last      int64
	kept      int64 // the first sequence that is kept: see [ForgetEvents]
	settled   int64 // settlements of all its runs
	tail      run   // the newest run, as long as it is short
	full      []run // that this transaction ends
}

func (s *stream) settle(e runEvent, at int64) {
	s.tail.add(e, at)
	s.settled++
	if len(s.tail.events) == maxRun {
		s.end()
	}
}

// end makes a row of the tail.
func (s *stream) end() {
	s.full = append(s.full, s.tail)
	s.tail = run{before: s.settled}
}

const (
	sqlStreamsLock = `SELECT principal, last, kept, settled, tail FROM event_streams WHERE principal = ANY($1) ORDER BY principal FOR UPDATE`
	// It locks rows that exist and makes those that do not, in one order.
	sqlStreamsMake = `INSERT INTO event_streams (principal, last) SELECT unnest($1::text[]), 0
		ON CONFLICT (principal) DO UPDATE SET last = event_streams.last RETURNING principal, last, kept, settled, tail`
	sqlStreamsSave = `UPDATE event_streams s SET last = u.last, settled = u.settled, tail = u.tail
		FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bytea[]) AS u(principal, last, settled, tail)
		WHERE s.principal = u.principal`
	sqlStream     = `SELECT principal, last, kept, settled, tail FROM event_streams WHERE principal = $1`
	sqlStreamSave = `INSERT INTO event_streams (principal, last, settled, tail) VALUES ($1, $2, $3, $4)
		ON CONFLICT (principal) DO UPDATE SET last = excluded.last, settled = excluded.settled, tail = excluded.tail`
	sqlRunAdd = `INSERT INTO event_runs (principal, first, last, events_before, events, first_at, last_at, packed)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`
	sqlRunsAdd = `INSERT INTO event_runs (principal, first, last, events_before, events, first_at, last_at, packed)
		SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[])`
)

func scanStream(scan func(dest ...any) error) (*stream, error) {
	s := &stream{}
	var principal string
	var kept, settled *int64 // NULL while there is no settlement, and nothing was removed
	var tail []byte
	err := scan(&principal, &s.last, &kept, &settled, &tail)
	if err != nil {
		return nil, err
	}
	s.kept = 1
	if kept != nil {
		s.kept = *kept
	}
	if settled != nil {
		s.settled = *settled
	}
	if s.principal, err = toll.ParseAddress(principal); err == nil {
		err = s.tail.unpackTail(tail, s.settled)
	}
	return s, err
}

// lockStreams returns the streams of principals, which nobody else adds to until the end of the transaction. Every
// process locks them in the order of the principals.
func lockStreams(ctx context.Context, tx *Tx, principals []string) (map[toll.Address]*stream, error) {
	var all []*stream
	var err error
	if tx.Engine() == Postgres {
		if all, err = All(ctx, tx, scanStream, sqlStreamsLock, principals); err == nil && len(all) < len(principals) {
			all, err = All(ctx, tx, scanStream, sqlStreamsMake, principals)
		}
	} else {
		for _, p := range principals {
			s, e := scanStream(tx.QueryRow(ctx, sqlStream, p).Scan)
			if err = e; errors.Is(err, ErrNotFound) {
				s = &stream{kept: 1}
				s.principal, err = toll.ParseAddress(p)
			}
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		}
	}
	out := make(map[toll.Address]*stream, len(all))
	for _, s := range all {
		out[s.principal] = s
	}
	return out, err
}

// saveStreams stores streams that are locked, and the runs that this transaction ended.
func saveStreams(ctx context.Context, tx *Tx, principals []string, streams map[toll.Address]*stream) error {
	var rows, ended [][]any
	for _, p := range principals {
		s := streams[toll.MustAddress(p)]
		if len(s.tail.events) >= minRun {
			s.end()
		}
		rows = append(rows, []any{p, s.last, s.settled, s.tail.packTail()})
		for i := range s.full {
			ended = append(ended, s.full[i].row(p))
		}
	}
	if err := addRows(ctx, tx, sqlStreamSave, sqlStreamsSave, rows); err != nil {
		return err
	}
	return addRows(ctx, tx, sqlRunAdd, sqlRunsAdd, ended)
}

// addRows runs a statement for each row on SQLite, and on PostgreSQL one that takes the columns as arrays.
func addRows(ctx context.Context, tx *Tx, one, many string, rows [][]any) error {
	if len(rows) > 0 && tx.Engine() == Postgres {
		return done(tx.Exec(ctx, many, turned(rows)...))
	}
	for _, row := range rows {
		if _, err := tx.Exec(ctx, one, row...); err != nil {
			return err
		}
	}
	return nil
}

// turned returns the columns of rows, of which there is at least one, as arrays of PostgreSQL.
func turned(rows [][]any) []any {
	columns := make([]any, len(rows[0]))
	for c := range columns {
		switch rows[0][c].(type) {
		case string:
			columns[c] = column[string](rows, c)
		case int64:
			columns[c] = column[int64](rows, c)
		default:
			columns[c] = column[[]byte](rows, c)
		}
	}
	return columns
}

func column[T any](rows [][]any, c int) []T {
	return Mapped(rows, func(row []any) T { return row[c].(T) })
}

const (
	runColumns = `first, events_before, first_at, last_at, packed`
	// Runs do not overlap, so the run before the first sequence is the only one that may reach into it.
	sqlRunsBetween = `SELECT ` + runColumns + ` FROM event_runs WHERE principal = $1 AND first <= $3
		AND first >= (SELECT COALESCE(MAX(first), 0) FROM event_runs WHERE principal = $1 AND first <= $2) ORDER BY first`
	sqlRunsByNumber = `SELECT ` + runColumns + ` FROM event_runs WHERE principal = $1 AND events_before < $3
		AND events_before >= (SELECT COALESCE(MAX(events_before), 0) FROM event_runs WHERE principal = $1 AND events_before <= $2)
		ORDER BY events_before`
	sqlRunsSince = `SELECT COALESCE(CAST(SUM(events) AS BIGINT), 0), COALESCE(MIN(first), 0)
		FROM event_runs WHERE principal = $1 AND last_at >= $2 AND events_before < $3`
	sqlRunsAround = `SELECT ` + runColumns + ` FROM event_runs WHERE principal = $1 AND last_at >= $2 AND first_at < $3`
	// The settlements before the first run that is kept; as many as there are before the tail when there is none.
	sqlRunsForgotten = `SELECT COALESCE(MIN(events_before), $2) FROM event_runs WHERE principal = $1`
	sqlRunsBehind    = `SELECT ` + runColumns + ` FROM event_runs WHERE principal = $1 AND first >= $2 AND last_at < $3`
)

func scanRun(scan func(dest ...any) error) (run, error) {
	var r run
	var packed []byte
	err := scan(&r.first, &r.before, &r.firstAt, &r.lastAt, &packed)
	if err == nil {
		err = r.unpack(packed)
	}
	return r, err
}

// readStream returns a stream as it is at one moment: what it holds up to its last sequence does not change any more.
func readStream(ctx context.Context, q Querier, principal toll.Address) (*stream, error) {
	s, err := scanStream(q.QueryRow(ctx, sqlStream, principal.Lower()).Scan)
	if errors.Is(err, ErrNotFound) {
		return &stream{principal: principal, kept: 1}, nil
	}
	return s, err
}

// between returns the events with sequences from one to another, in order. Those of runs have a Position.
func (s *stream) between(ctx context.Context, q Querier, from, to int64) ([]*Event, error) {
	to = min(to, s.last)
	if from > to {
		return nil, nil
	}
	events, err := eventRows.all(ctx, q, "WHERE principal = $1 AND seq >= $2 AND seq <= $3 ORDER BY seq", s.principal.Lower(), from, to)
	if err != nil || int64(len(events)) == to-from+1 {
		return events, err
	}
	in := func(e runEvent) bool { return e.seq >= from && e.seq <= to }
	events = s.appendRun(events, &s.tail, in)
	if len(s.tail.events) == 0 || from < s.tail.first {
		runs, err := All(ctx, q, scanRun, sqlRunsBetween, s.principal.Lower(), from, to)
		if err != nil {
			return nil, err
		}
		for i := range runs {
			if s.ended(&runs[i]) {
				events = s.appendRun(events, &runs[i], in)
			}
		}
	}
	slices.SortFunc(events, func(a, b *Event) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return events, nil
}

// ended reports whether a run was one of the rows when the stream was read. One that was the tail then stands in both.
func (s *stream) ended(r *run) bool { return r.before < s.tail.before }

func (s *stream) appendRun(events []*Event, r *run, in func(runEvent) bool) []*Event {
	for _, e := range r.events {
		if in(e) {
			events = append(events, &Event{
				Principal: s.principal, Sequence: e.seq, Type: toll.EventSettlementSettled, Kind: "settlement", ObjectSequence: 1, Position: e.position,
			})
		}
	}
	return events
}

// complete reads the rows of the journal from which events of runs are made, for all of them with one statement, and gives
// the events what these say. It leaves other events alone.
func complete(ctx context.Context, q Querier, events []*Event) error {
	var positions []int64
	for _, e := range events {
		if e.Position > 0 {
			positions = append(positions, e.Position)
		}
	}
	rows, err := JournalAt(ctx, q, positions...)
	if err != nil {
		return err
	}
	byPosition := make(map[int64]*JournalRow, len(rows))
	for i := range rows {
		byPosition[rows[i].Pos] = &rows[i]
	}
	for _, e := range events {
		if e.Position == 0 {
			continue
		}
		row := byPosition[e.Position]
		if row == nil {
			return fmt.Errorf("store: the journal has no row %d for event %d of %s", e.Position, e.Sequence, e.Principal)
		}
		e.Row, e.Account, e.Entry, e.CreatedAt, e.Object = row, row.Account, row.Seq, FromMicros(row.At), row.Commitment.String()
		n := NewEvent{Principal: e.Principal, Type: e.Type, At: e.CreatedAt, Account: e.Account, Entry: e.Entry}
		e.ID = n.id()
	}
	return nil
}
