package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

var (
	eventAlice = toll.MustAddress("0x70997970C51812dc3A010C7d01b50e0d17dc79C8")
	eventBob   = toll.MustAddress("0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC")
	eventTime  = time.Date(2026, 11, 21, 1, 52, 17, 872_123_000, time.UTC)
)

func planEvent(who toll.Address, id string) store.NewEvent {
	return store.NewEvent{Principal: who, Type: toll.EventPlanUpdated, Kind: "plan", ID: id, Data: json.RawMessage(`{"id":"` + id + `"}`), At: eventTime}
}

// TestEventsWithoutGap: many transactions at once on two streams, some rolled back, and each stream counts 1, 2, 3 ..., in
// the stream and in the object.
// I20
func TestEventsWithoutGap(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		undone := errors.New("undone")
		const writers, each = 8, 12
		var wg sync.WaitGroup
		errs := make(chan error, writers*each)
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					first, second := eventAlice, eventBob
					if w%2 == 0 {
						first, second = second, first
					}
					err := st.Tx(ctx, func(tx *store.Tx) error {
						if err := store.InsertEvent(ctx, tx, planEvent(first, fmt.Sprint(i%3)), planEvent(second, fmt.Sprint(i%3))); err != nil {
							return err
						}
						if i%4 == 3 {
							return undone
						}
						return nil
					})
					if err != nil && !errors.Is(err, undone) {
						errs <- err
					}
				}
			})
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			t.Error(err)
		}
		ids := map[string]bool{}
		for _, who := range []toll.Address{eventAlice, eventBob} {
			all := must.Get(store.EventsAfter(ctx, st, who, 0, 1000))(t)
			if want := writers * each * 3 / 4; len(all) != want {
				t.Errorf("%d events, want %d", len(all), want)
			}
			objects := map[string]int64{}
			for i, e := range all {
				objects[e.Object]++
				if e.Sequence != int64(i)+1 || e.ObjectSequence != objects[e.Object] {
					t.Fatalf("event %d has the sequence %d, of its object %d (want %d)", i+1, e.Sequence, e.ObjectSequence, objects[e.Object])
				}
				if ids[e.ID] {
					t.Fatalf("%s stands twice", e.ID)
				}
				ids[e.ID] = true
				if e.ID[14] != '7' || e.Principal != who || !e.CreatedAt.Equal(eventTime) {
					t.Fatalf("%+v", e)
				}
				if n, err := store.SequenceOfEvent(ctx, st, who, e.ID); err != nil || n != e.Sequence {
					t.Fatalf("by its id: %d, %v", n, err)
				}
			}
			last, err := store.LastSequences(ctx, st, []toll.Address{who})
			if err != nil || last[who] != int64(len(all)) {
				t.Errorf("last %v, %v", last, err)
			}
		}
	})
}

func TestEvents_List(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		insert := func(typ toll.EventType, at time.Time) {
			t.Helper()
			must.Do(t, st.Tx(ctx, func(tx *store.Tx) error {
				e := planEvent(eventAlice, "1")
				e.Type, e.At = typ, at
				return store.InsertEvent(ctx, tx, e, planEvent(eventBob, "2"))
			}))
		}
		for i := range 25 {
			typ := toll.EventPlanUpdated
			if i%5 == 0 {
				typ = toll.EventPlanListed
			}
			insert(typ, eventTime.Add(time.Duration(i)*time.Second))
		}
		pages := func(f store.EventFilter, p store.Page) (seqs []int64, total int64) {
			t.Helper()
			for {
				l := must.Get(store.Events(ctx, st, f, p))(t)
				total = l.Total
				for _, e := range l.Items {
					seqs = append(seqs, e.Sequence)
				}
				if l.Next == "" {
					return seqs, total
				}
				p = store.Page{Size: p.Size, Cursor: l.Next}
			}
		}
		all, total := pages(store.EventFilter{Principal: eventAlice}, store.Page{Size: 7, Ascending: true})
		if len(all) != 25 || total != 25 || all[0] != 1 || all[24] != 25 {
			t.Errorf("%d: %v", total, all)
		}
		listed, total := pages(store.EventFilter{Principal: eventAlice, Type: toll.EventPlanListed}, store.Page{Size: 2})
		if fmt.Sprint(listed) != "[21 16 11 6 1]" || total != 5 {
			t.Errorf("%d: %v", total, listed)
		}
		since, total := pages(store.EventFilter{Principal: eventAlice, Since: eventTime.Add(20 * time.Second)}, store.Page{Size: 2, Ascending: true})
		if fmt.Sprint(since) != "[21 22 23 24 25]" || total != 5 {
			t.Errorf("%d: %v", total, since)
		}
		if _, err := store.SequenceOfEvent(ctx, st, eventAlice, toll.NewUUID()); !errors.Is(err, store.ErrNotFound) {
			t.Error(err)
		}
	})
}

// Events and the change that they are about are one transaction.
func TestInsertEvent_RollsBack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err := st.Tx(ctx, func(tx *store.Tx) error {
			if err := store.InsertEvent(ctx, tx, planEvent(eventAlice, "1")); err != nil {
				return err
			}
			return errors.New("no")
		})
		all, e := store.EventsAfter(ctx, st, eventAlice, 0, 10)
		if err == nil || e != nil || len(all) != 0 {
			t.Error(err, e, all)
		}
	})
}

// TestInsertEvent_Data: an event has the record as it is read, a list without elements as [].
func TestInsertEvent_Data(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	ctx := t.Context()
	must.Do(t, st.Tx(ctx, func(tx *store.Tx) error {
		return store.InsertEvent(ctx, tx, store.NewEvent{
			Principal: eventAlice, Type: toll.EventDelegationCreated, Kind: "delegation", ID: "1", Data: &toll.Delegation{DelegationID: "<1>"},
			At: eventTime,
		})
	}))
	e, err := store.EventBySequence(ctx, st, eventAlice, 1)
	if err != nil || !strings.Contains(e.Data, `"allowedRecipients":[]`) || !strings.Contains(e.Data, `"<1>"`) {
		t.Errorf("%+v, %v", e, err)
	}
}
