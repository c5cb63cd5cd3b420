package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// journal adds burns at times, in microseconds after eventTime, and returns their positions.
func journal(t testing.TB, st *store.Store, at ...int64) []int64 {
	t.Helper()
	ctx := t.Context()
	first, err := store.JournalLength(ctx, st)
	fatal(t, err)
	positions := make([]int64, len(at))
	rows := make([]store.JournalRow, len(at))
	for i := range at {
		positions[i] = first + int64(i) + 1
		rows[i] = store.JournalRow{
			Account: [16]byte{1}, Seq: positions[i], Kind: 2, At: store.Micros(eventTime) + at[i], Commitment: toll.NewHash(),
			Ref: fmt.Sprint("r", positions[i]), Burn: &store.Burn{},
		}
	}
	fatal(t, st.Tx(ctx, func(tx *store.Tx) error { return store.AddJournal(ctx, tx, rows) }))
	return positions
}

func fatal(t testing.TB, err error) {
	t.Helper()
	must.Do(t, err)
}

func settlement(who toll.Address, position, at int64) store.NewEvent {
	return store.NewEvent{
		Principal: who, Type: toll.EventSettlementSettled, Position: position, At: eventTime.Add(time.Duration(at) * time.Microsecond),
		Account: [16]byte{1}, Entry: position,
	}
}

func insertEvents(t testing.TB, st *store.Store, events ...store.NewEvent) {
	t.Helper()
	fatal(t, st.Tx(t.Context(), func(tx *store.Tx) error { return store.InsertEvent(t.Context(), tx, events...) }))
}

// TestEventRuns_List compares lists of streams with runs, and with times that overlap, with what a walk through all events says.
func TestEventRuns_List(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx, r := t.Context(), rand.New(rand.NewPCG(1, 2))
		now := int64(0)
		var want []wanted
		add := func(batch []store.NewEvent, at []int64) {
			insertEvents(t, st, batch...)
			for i, e := range batch {
				want = append(want, wanted{int64(len(want) + 1), e.Type, at[i]})
			}
		}
		row := func() (store.NewEvent, int64) {
			e := planEvent(eventAlice, "p")
			e.At = eventTime.Add(time.Duration(now) * time.Microsecond)
			return e, now
		}
		settle := func() {
			var batch []store.NewEvent
			var at, burns []int64
			n := []int{1, 1, 2, 5, 40, 1500}[r.IntN(6)]
			for range n {
				now += r.Int64N(20)
				burns = append(burns, max(now-r.Int64N(400), 0))
			}
			positions := journal(t, st, burns...)
			for i, p := range positions {
				if r.IntN(20) == 0 {
					e, when := row()
					batch, at = append(batch, e), append(at, when)
				}
				if r.IntN(10) > 0 { // others are not this principal's
					batch, at = append(batch, settlement(eventAlice, p, burns[i])), append(at, burns[i])
				}
			}
			add(batch, at)
			insertEvents(t, st, settlement(eventBob, positions[0], burns[0]), planEvent(eventBob, "b"))
		}
		for range 60 {
			settle()
		}
		kept := int64(1)
		for try := range 300 {
			if try > 100 && try%20 == 0 { // the beginning of the stream goes, in parts, and the stream goes on
				before := min(now*int64(try-90)/200, now+1)
				if try == 280 {
					before = now + 1
				}
				for kept <= int64(len(want)) && want[kept-1].at < before {
					kept++
				}
				for removed := int64(1); removed > 0; {
					var err error
					removed, err = store.ForgetEvents(ctx, st, eventAlice, eventTime.Add(time.Duration(before)*time.Microsecond), 700)
					fatal(t, err)
				}
				settle()
				found, err := store.AuditEvents(ctx, st, nil)
				if err != nil || len(found) > 0 {
					t.Fatalf("try %d: %v, %v", try, err, found)
				}
				if after, err := store.EventsAfter(ctx, st, eventAlice, 0, 10); err != nil || len(after) == 0 || after[0].Sequence != kept {
					t.Fatalf("try %d: the first event: %v, %v, want %d", try, err, after, kept)
				}
				if _, err := store.EventBySequence(ctx, st, eventAlice, kept-1); !errors.Is(err, store.ErrNotFound) {
					t.Fatalf("try %d: an event that went: %v", try, err)
				}
			}
			f := store.EventFilter{Principal: eventAlice, Type: []toll.EventType{"", toll.EventSettlementSettled, toll.EventPlanUpdated}[r.IntN(3)]}
			since := int64(-1)
			if r.IntN(3) > 0 {
				since = r.Int64N(now + 10)
				f.Since = eventTime.Add(time.Duration(since) * time.Microsecond)
			}
			var all []int64
			for _, e := range want {
				if e.seq >= kept && e.at >= since && (f.Type == "" || f.Type == e.kind) {
					all = append(all, e.seq)
				}
			}
			p := store.Page{Size: []int{1, 7, 100}[r.IntN(3)], Ascending: r.IntN(2) == 0}
			if !p.Ascending {
				slices.Reverse(all)
			}
			number := 1 + r.IntN(len(all)/p.Size+2)
			if try%5 == 0 {
				number = 1
			}
			p.Number = number
			from := (number - 1) * p.Size
			for step := range 3 {
				l, err := store.Events(ctx, st, f, p)
				fatal(t, err)
				var got []int64
				for _, e := range l.Items {
					w := want[e.Sequence-1]
					if e.Type != w.kind || store.Micros(e.CreatedAt) != store.Micros(eventTime)+w.at || e.ID == "" || e.Object == "" || e.ObjectSequence < 1 {
						t.Fatalf("event %d: %+v", e.Sequence, e)
					}
					got = append(got, e.Sequence)
				}
				expected := all[min(from, len(all)):min(from+p.Size, len(all))]
				if !slices.Equal(got, expected) || l.Total != int64(len(all)) {
					t.Fatalf("try %d, step %d, type %q since %d, %+v: %v of %d, want %v of %d", try, step, f.Type, since, p, got, l.Total, expected, len(all))
				}
				if (l.Next != "") != (from+p.Size < len(all)) {
					t.Fatalf("try %d, %+v: next %q", try, p, l.Next)
				}
				if l.Next == "" {
					break
				}
				p, from = store.Page{Size: p.Size, Cursor: l.Next}, from+p.Size
			}
		}
		for _, seq := range []int64{kept, (kept + int64(len(want))) / 2, int64(len(want))} {
			e, err := store.EventBySequence(ctx, st, eventAlice, seq)
			fatal(t, err)
			if n, err := store.SequenceOfEvent(ctx, st, eventAlice, e.ID); err != nil || n != seq {
				t.Errorf("event %d by its id: %d, %v", seq, n, err)
			}
			if n, err := store.SequenceOfEvent(ctx, st, eventAlice, strings.ToUpper(e.ID)); err != nil || n != seq {
				t.Errorf("event %d by its id in capitals: %d, %v", seq, n, err)
			}
			if _, err := store.SequenceOfEvent(ctx, st, eventBob, e.ID); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("event %d of another stream: %v", seq, err)
			}
			after, err := store.EventsAfter(ctx, st, eventAlice, seq, 200)
			fatal(t, err)
			if len(after) != min(200, len(want)-int(seq)) || len(after) > 0 && after[len(after)-1].Sequence != seq+int64(len(after)) {
				t.Errorf("%d events behind %d", len(after), seq)
			}
		}
		if _, err := store.EventBySequence(ctx, st, eventAlice, int64(len(want))+1); !errors.Is(err, store.ErrNotFound) {
			t.Error(err)
		}
	})
}

type wanted struct {
	seq  int64
	kind toll.EventType
	at   int64
}

// TestRunsWithoutGap: transactions with and without settlements, some of which are undone, number the same streams at once.
// I20
func TestRunsWithoutGap(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		undone := errors.New("undone")
		var wg sync.WaitGroup
		wg.Go(func() { // the follower, of which there is one at a time
			for i := range 40 {
				positions := journal(t, st, make([]int64, 30)...)
				err := st.Tx(ctx, func(tx *store.Tx) error {
					var batch []store.NewEvent
					for _, p := range positions {
						batch = append(batch, settlement(eventBob, p, 0), settlement(eventAlice, p, 0))
					}
					err := store.InsertEvent(ctx, tx, batch...)
					if err == nil && i%4 == 3 {
						err = undone
					}
					return err
				})
				if err != nil && !errors.Is(err, undone) {
					t.Error(err)
				}
			}
		})
		for range 3 {
			wg.Go(func() {
				for range 20 {
					if err := st.Tx(ctx, func(tx *store.Tx) error {
						return store.InsertEvent(ctx, tx, planEvent(eventAlice, "1"), planEvent(eventBob, "1"))
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		for _, who := range []toll.Address{eventAlice, eventBob} {
			all, err := store.EventsAfter(ctx, st, who, 0, 10000)
			fatal(t, err)
			if len(all) != 30*30+60 {
				t.Errorf("%d events", len(all))
			}
			last := int64(0)
			for i, e := range all {
				if e.Sequence != int64(i)+1 {
					t.Fatalf("event %d has the sequence %d", i+1, e.Sequence)
				}
				if e.Position > 0 && e.Position <= last {
					t.Fatalf("event %d is of the position %d, after %d", e.Sequence, e.Position, last)
				}
				last = max(last, e.Position)
			}
		}
	})
}

// TestEventRuns_HostilePaging: whatever part of a long stream is asked for, a bounded number of entries is read: those of the page, and
// of runs that end after the time of since and begin before it.
func TestEventRuns_HostilePaging(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		const n = 20000
		for from := int64(0); from < n; from += 2000 {
			at := make([]int64, 2000)
			for i := range at {
				at[i] = from + int64(i)
			}
			var batch []store.NewEvent
			for i, p := range journal(t, st, at...) {
				batch = append(batch, settlement(eventAlice, p, at[i]))
			}
			insertEvents(t, st, append(batch, planEvent(eventAlice, "1"))...)
		}
		var mu sync.Mutex
		var entries, statements int
		st.Trace(func(_ uint64, statement string) {
			mu.Lock()
			defer mu.Unlock()
			if statements++; strings.Contains(statement, "FROM journal ") {
				entries++
			}
		})
		defer st.Trace(nil)
		since := func(at int64) time.Time { return eventTime.Add(time.Duration(at) * time.Microsecond) }
		for _, c := range []struct {
			f       store.EventFilter
			p       store.Page
			entries int // statements on the journal
		}{
			{store.EventFilter{}, store.Page{Size: 1, Number: n / 2}, 1},
			{store.EventFilter{}, store.Page{Size: 1, Number: 1 << 31}, 0},
			{store.EventFilter{}, store.Page{Size: 100, Number: n / 200, Ascending: true}, 1},
			{store.EventFilter{Type: toll.EventSettlementSettled}, store.Page{Size: 1, Number: n / 2}, 1},
			{store.EventFilter{Type: toll.EventSettlementSettled, Since: since(1)}, store.Page{Size: 1, Number: n - 10}, 10},
			{store.EventFilter{Since: since(1)}, store.Page{Size: 1, Number: n / 2}, 10},
			{store.EventFilter{Since: since(n / 2)}, store.Page{Size: 1, Number: n / 3}, 10},
			{store.EventFilter{Since: since(n / 2)}, store.Page{Size: 100, Number: 2, Ascending: true}, 10},
			{store.EventFilter{Since: since(n)}, store.Page{Size: 100}, 0},
		} {
			c.f.Principal, entries, statements = eventAlice, 0, 0
			l, err := store.Events(t.Context(), st, c.f, c.p)
			fatal(t, err)
			if entries > c.entries || statements > 11+c.entries {
				t.Errorf("%+v, %+v: %d items of %d, %d statements, %d of them on the journal", c.f, c.p, len(l.Items), l.Total, statements, entries)
			}
			if c.entries > 0 && len(l.Items) != c.p.Size {
				t.Errorf("%+v, %+v: %d items", c.f, c.p, len(l.Items))
			}
		}
	})
}

// The audit finds runs that are lost, that overlap, and that name no burn.
func TestAuditEvents(t *testing.T) {
	for _, c := range []struct{ damage, want string }{
		{"UPDATE event_runs SET first = first + 0", ""},
		{"DELETE FROM event_runs WHERE events_before = 0", "do not match its counters or the journal"},
		{"UPDATE event_runs SET first = first + 1", "do not match its counters or the journal"},
		{"UPDATE event_streams SET settled = settled - 1", "wrong event count"},
		{"DELETE FROM events", "wrong event count"},
		{"DELETE FROM journal WHERE pos = 1500", "do not match its counters or the journal"},
	} {
		st, _ := storetest.Open(t, store.SQLite)
		var batch []store.NewEvent
		for _, p := range journal(t, st, make([]int64, 2100)...) {
			batch = append(batch, settlement(eventAlice, p, 0))
		}
		insertEvents(t, st, append(batch, planEvent(eventAlice, "1"))...)
		fatal(t, st.Tx(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec(t.Context(), c.damage)
			return err
		}))
		found, err := store.AuditEvents(t.Context(), st, nil)
		fatal(t, err)
		if text := strings.Join(found, "\n"); c.want == "" && text != "" || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q", c.damage, text)
		}
	}
}

// TestEventRuns_Plans: the statements on runs use an index, also on a database without statistics.
func TestEventRuns_Plans(t *testing.T) {
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			st, _ := storetest.Open(t, engine)
			for name, statement := range store.RunStatements {
				if fault := storetest.Scans(t, st, statement, name == "sqlPayers"); fault != "" {
					t.Errorf("%s: %s", name, fault)
				}
			}
		})
	}
}

// A packed run that was cut or changed is an error, and no panic.
func FuzzRun(f *testing.F) {
	f.Add([]byte{1, 2, 4, 3, 1}, int64(5))
	f.Fuzz(func(t *testing.T, packed []byte, first int64) { store.UnpackRun(packed, first) })
}

// TestSettledBetween: a part of a stream has every settlement of a range of times, also of runs that reach over its ends, and
// few others.
func TestSettledBetween(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		const n, slice, step = 5000, 500, 10
		ctx, r := t.Context(), rand.New(rand.NewPCG(3, 4))
		at := make([]int64, n)
		for i := range at { // they overlap
			at[i] = max(int64(i)*step-r.Int64N(300), 0)
		}
		for begin := 0; begin < n; begin += slice {
			var batch []store.NewEvent
			for i, p := range journal(t, st, at[begin:begin+slice]...) {
				batch = append(batch, settlement(eventAlice, p, at[begin+i]))
			}
			insertEvents(t, st, batch...)
		}
		for try := range 60 {
			since, until := r.Int64N(n*step), r.Int64N(n*step)
			if since > until {
				since, until = until, since
			}
			within := func(at int64) bool { return at >= since && at < until }
			moment := func(at int64) time.Time { return eventTime.Add(time.Duration(at) * time.Microsecond) }
			part, err := store.SettledBetween(ctx, st, eventAlice, moment(since), moment(until))
			fatal(t, err)
			rows, err := part.After(0, try%2 == 0, n)
			fatal(t, err)
			got, want := 0, 0
			for i := range rows {
				if within(rows[i].Row.At - store.Micros(eventTime)) {
					got++
				}
			}
			for _, a := range at {
				if within(a) {
					want++
				}
			}
			if got != want || len(rows) > want+2*1024+300 {
				t.Errorf("from %d to %d: %d of %d, among %d that were read", since, until, got, want, len(rows))
			}
		}
	})
}
