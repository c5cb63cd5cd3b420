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

	// Position makes a settlement of a run, which has no row: it is that of its entry in the journal. Type, Kind, ID and Data are
	// not stored, and positions of one principal ascend.
	Position int64
}

// InsertEvent adds events in the transaction of the change, in their order. It locks the streams of the principals until the end of
// the transaction, after every other lock of it; all events of one transaction come in one call, so that two transactions never
// wait for each other. A principal that stands there twice gets both.
func InsertEvent(ctx context.Context, tx *Tx, events ...NewEvent) error {
	if len(events) == 0 {
		return nil
	}
	counts, runs := map[toll.Address]int64{}, false
	for i := range events {
		counts[events[i].Principal]++
		runs = runs || events[i].Position > 0
	}
	principals := make([]string, 0, len(counts))
	for p := range counts {
		principals = append(principals, p.Lower())
	}
	slices.Sort(principals)
	var streams map[toll.Address]*stream
	var err error
	if runs {
		streams, err = lockStreams(ctx, tx, principals)
	} else {
		streams, err = allocate(ctx, tx, principals, counts)
	}
	if err != nil {
		return err
	}
	rows := make([]*Event, 0, len(events))
	for i := range events {
		e := &events[i]
		s := streams[e.Principal]
		s.last++
		if e.Position > 0 {
			s.settle(runEvent{s.last, e.Position}, Micros(e.At))
			continue
		}
		row := &Event{
			Principal: e.Principal, Sequence: s.last, ID: e.id(), Type: e.Type, Kind: e.Kind, Object: e.ID,
			CreatedAt: e.At, Account: e.Account, Entry: e.Entry,
		}
		if e.Data != nil {
			data, err := x402.Encode(e.Data)
			if err != nil {
				return err
			}
			row.Data = string(data)
		}
		rows = append(rows, row)
	}
	if err := numberObjects(ctx, tx, rows); err != nil {
		return err
	}
	if runs {
		if err := saveStreams(ctx, tx, principals, streams); err != nil {
			return err
		}
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

// allocate takes the next sequences of principals, which are sorted, and returns the streams as they were before. The rows are
// locked in one order.
func allocate(ctx context.Context, tx *Tx, principals []string, counts map[toll.Address]int64) (map[toll.Address]*stream, error) {
	streams := make(map[toll.Address]*stream, len(principals))
	for part := range chunks(principals) {
		args := make([]any, 0, 2*len(part))
		for _, p := range part {
			args = append(args, p, counts[toll.MustAddress(p)])
		}
		rows, err := tx.Query(ctx, "INSERT INTO event_streams (principal, last) VALUES "+tuples(len(part), 2)+
			" ON CONFLICT (principal) DO UPDATE SET last = event_streams.last + excluded.last RETURNING principal, last", args...)
		if _, err := scanAll(rows, err, func(scan func(dest ...any) error) (*stream, error) {
			s := &stream{}
			var principal string
			err := scan(&principal, &s.last)
			if err == nil {
				s.principal, err = toll.ParseAddress(principal)
			}
			s.last -= counts[s.principal]
			streams[s.principal] = s
			return s, err
		}); err != nil {
			return nil, err
		}
	}
	return streams, nil
}

// numberObjects gives events their places among those of their object, but those of objects with one event.
func numberObjects(ctx context.Context, tx *Tx, events []*Event) error {
	type object struct{ principal, kind, id string }
	last := map[object]int64{}
	of := func(e *Event) object { return object{e.Principal.Lower(), e.Kind, e.Object} }
	for _, e := range events {
		last[of(e)]++
	}
	objects := slices.Collect(maps.Keys(last))
	for part := range chunks(objects) {
		args := make([]any, 0, 4*len(part))
		for _, o := range part {
			args = append(args, o.principal, o.kind, o.id, last[o])
		}
		rows, err := tx.Query(ctx, "INSERT INTO event_objects (principal, kind, object_id, last) VALUES "+tuples(len(part), 4)+
			" ON CONFLICT (principal, kind, object_id) DO UPDATE SET last = event_objects.last + excluded.last"+
			" RETURNING principal, kind, object_id, last", args...)
		if _, err := scanAll(rows, err, func(scan func(dest ...any) error) (o object, err error) {
			var n int64
			if err = scan(&o.principal, &o.kind, &o.id, &n); err == nil {
				last[o] = n - last[o] // before the first of these events
			}
			return o, err
		}); err != nil {
			return err
		}
	}
	for _, e := range events {
		last[of(e)]++
		e.ObjectSequence = last[of(e)]
	}
	return nil
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

	// Position is that of the entry in the journal, and Row the entry, of a settlement that stands in a run; else 0 and nil.
	Position int64
	Row      *JournalRow
}

var eventRows = newRecord[*Event]("events")

type EventFilter struct {
	Principal toll.Address
	Type      toll.EventType // "": all
	Since     time.Time      // zero: all; else those created at or after it
}

// LastSequences returns the length of each stream; principals without events are not in it.
func LastSequences(ctx context.Context, q Querier, principals []toll.Address) (map[toll.Address]int64, error) {
	out := make(map[toll.Address]int64, len(principals))
	for part := range chunks(principals) {
		args := Mapped(part, func(p toll.Address) any { return p.Lower() })
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
