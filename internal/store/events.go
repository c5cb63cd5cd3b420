package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// NewEvent is a change of a record, or what follows from an entry of the ledger, that a principal is told about.
type NewEvent struct {
	Principal toll.Address
	Type      toll.EventType
	Kind, ID  string // of the object
	Data      any    // the record as it is read; nil: it is read with the event
	At        time.Time

	Account [16]byte // of the entry
	Entry   int64    // 0: none. The id of the event is made of principal, type and entry
	Single  bool     // the object has no other event: its sequence is 1 and is not counted
}

// InsertEvent adds events in the transaction of the change, in their order. It locks the streams of the principals until the end of
// the transaction, after every other lock of it; all events of one transaction come in one call, so that two transactions never
// wait for each other. A principal that stands there twice gets both.
func InsertEvent(ctx context.Context, tx *Tx, events ...NewEvent) error {
	counts := map[string]int64{}
	for _, e := range events {
		counts[e.Principal.Lower()]++
	}
	next, err := allocate(ctx, tx, counts)
	if err != nil {
		return err
	}
	rows := make([]*Event, len(events))
	for i, e := range events {
		principal := e.Principal.Lower()
		row := &Event{
			Principal: e.Principal, Sequence: next[principal], ID: e.id(), Type: e.Type, Kind: e.Kind, Object: e.ID,
			ObjectSequence: 1, CreatedAt: e.At, Account: e.Account, Entry: e.Entry,
		}
		if !e.Single {
			if row.ObjectSequence, err = nextOfObject(ctx, tx, principal, e.Kind, e.ID); err != nil {
				return err
			}
		}
		if e.Data != nil {
			data, err := x402.Encode(e.Data)
			if err != nil {
				return err
			}
			row.Data = string(data)
		}
		rows[i] = row
		next[principal]++
	}
	if err := eventRows.insertAll(ctx, tx, rows); err != nil {
		return err
	}
	return auditEvents(ctx, tx, events)
}

func (e *NewEvent) id() string {
	if e.Entry == 0 {
		return NewEventID(e.At)
	}
	h := sha256.New()
	h.Write([]byte(e.Principal.Lower() + "/" + string(e.Type) + "/"))
	h.Write(e.Account[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(e.Entry)))
	return toll.TimeUUID(e.At, [10]byte(h.Sum(nil))).String()
}

// NewEventID returns a fresh id of an event that is in no stream.
func NewEventID(at time.Time) string {
	return toll.NewTimeUUID(at).String()
}

func uuidText(b []byte) string {
	if len(b) != 16 {
		return ""
	}
	return toll.UUID(b).String()
}

// allocate takes the next sequences of each principal and returns the first of them. The rows are locked in one order.
func allocate(ctx context.Context, tx *Tx, counts map[string]int64) (map[string]int64, error) {
	principals := slices.Sorted(maps.Keys(counts))
	first := make(map[string]int64, len(principals))
	for part := range chunks(principals) {
		args := make([]any, 0, 2*len(part))
		for _, p := range part {
			args = append(args, p, counts[p])
		}
		rows, err := tx.Query(ctx, "INSERT INTO event_streams (principal, last) VALUES "+tuples(len(part), 2)+
			" ON CONFLICT (principal) DO UPDATE SET last = event_streams.last + excluded.last RETURNING principal, last", args...)
		if _, err := scanAll(rows, err, func(scan func(dest ...any) error) (last int64, err error) {
			var p string
			err = scan(&p, &last)
			first[p] = last - counts[p] + 1
			return last, err
		}); err != nil {
			return nil, err
		}
	}
	return first, nil
}

func nextOfObject(ctx context.Context, tx *Tx, principal, kind, id string) (n int64, err error) {
	err = tx.QueryRow(ctx, `INSERT INTO event_objects (principal, kind, object_id, last) VALUES ($1, $2, $3, 1)
		ON CONFLICT (principal, kind, object_id) DO UPDATE SET last = event_objects.last + 1 RETURNING last`, principal, kind, id).Scan(&n)
	return n, err
}

// chunks cuts a list into parts of few sizes, so that few statements are prepared.
func chunks[T any](all []T) func(yield func([]T) bool) {
	return func(yield func([]T) bool) {
		for len(all) > 0 {
			n := 1
			for _, size := range []int{64, 8} {
				if len(all) >= size {
					n = size
					break
				}
			}
			if !yield(all[:n]) {
				return
			}
			all = all[n:]
		}
	}
}

// tuples returns n groups of placeholders of the given width: ($1, $2), ($3, $4).
func tuples(n, width int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('(')
		for j := range width {
			if j > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "$%d", i*width+j+1)
		}
		b.WriteByte(')')
	}
	return b.String()
}

// Event is an event of a stream.
type Event struct {
	Principal      toll.Address   `db:"principal"`
	Sequence       int64          `db:"seq"`
	ID             string         `db:"event_id,uuid"` // UUID version 7
	Type           toll.EventType `db:"type"`
	Kind           string         `db:"kind"`
	Object         string         `db:"object_id"`
	ObjectSequence int64          `db:"object_seq"`
	CreatedAt      time.Time      `db:"created_at"`
	Data           string         `db:"data"`               // JSON; "" for an event that is derived from an entry
	Account        [16]byte       `db:"entry_account,null"` // of the entry
	Entry          int64          `db:"entry_seq"`          // 0: none
}

var (
	eventRows       = newRecord[*Event]("events")
	EventBySequence = by2[toll.Address, int64](eventRows, "principal = $1 AND seq = $2")
)

// EventFilter selects events of a principal.
type EventFilter struct {
	Principal toll.Address
	Type      toll.EventType // "": all
	Since     time.Time      // zero: all; else those created at or after it
}

// Events lists a stream in the order of its sequence.
func Events(ctx context.Context, q Querier, f EventFilter, p Page) (List[*Event], error) {
	l := Listing{
		Where: "principal = $1", Args: []any{f.Principal.Lower()}, ID: "event_id",
		Sorts: map[Sort]string{SortCreated: "seq"},
	}
	if f.Type != "" {
		l.Args = append(l.Args, string(f.Type))
		l.Where += fmt.Sprintf(" AND type = $%d", len(l.Args))
	}
	if !f.Since.IsZero() {
		l.Args = append(l.Args, Micros(f.Since))
		l.Where += fmt.Sprintf(" AND created_at >= $%d", len(l.Args))
	}
	if len(l.Args) == 1 {
		// A stream has no gap, so its last sequence is its length.
		l.Count = "SELECT COALESCE(MAX(last), 0) FROM event_streams WHERE principal = $1"
	}
	return eventRows.list(ctx, q, l, p)
}

// EventsAfter returns events of a stream behind a sequence, at most limit, in order.
func EventsAfter(ctx context.Context, q Querier, principal toll.Address, sequence int64, limit int) ([]*Event, error) {
	return eventRows.all(ctx, q, "WHERE principal = $1 AND seq > $2 ORDER BY seq LIMIT $3", principal.Lower(), sequence, int64(limit))
}

// SequenceOfEvent returns the place of an event in a stream by its id, or [ErrNotFound].
func SequenceOfEvent(ctx context.Context, q Querier, principal toll.Address, id string) (n int64, err error) {
	raw, err := uuidBytes(id)
	if err != nil {
		return 0, err
	}
	ms := int64(binary.BigEndian.Uint64(raw[:8]) >> 16)
	err = q.QueryRow(ctx, "SELECT seq FROM events WHERE principal = $1 AND created_at >= $2 AND created_at < $3 AND event_id = $4",
		principal.Lower(), ms*1000, (ms+1)*1000, raw).Scan(&n)
	return n, err
}

// LastSequences returns the length of each stream; principals without events are not in it.
func LastSequences(ctx context.Context, q Querier, principals []toll.Address) (map[toll.Address]int64, error) {
	out := make(map[toll.Address]int64, len(principals))
	for part := range chunks(principals) {
		args := make([]any, len(part))
		for i, p := range part {
			args[i] = p.Lower()
		}
		rows, err := q.Query(ctx, "SELECT principal, last FROM event_streams WHERE principal IN "+tuples(1, len(part)), args...)
		if _, err := scanAll(rows, err, func(scan func(dest ...any) error) (p toll.Address, err error) {
			var text string
			var last int64
			if err = scan(&text, &last); err == nil {
				p, err = toll.ParseAddress(text)
				out[p] = last
			}
			return p, err
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func uuidBytes(id string) ([]byte, error) {
	text, err := toll.ParseUUID(id)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, 16)
	_, err = fmt.Sscanf(strings.ReplaceAll(text, "-", ""), "%x", &out)
	return out, err
}
