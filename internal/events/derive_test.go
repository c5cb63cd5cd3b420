package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

func TestDerive_Kinds(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		ctx := t.Context()
		m.mint(subscriber, 100, "order-1", m.clock.now().Add(time.Hour))
		token := m.token(subscriber, 95)
		m.settle(subscriber, token, 90, "r1") // 10 left: not below a tenth
		m.settle(subscriber, token, 5, "r2")  // 5 left, and the permission is used up
		m.settle(subscriber, token, 0, "r3")  // burns nothing
		m.clock.advance(2 * time.Hour)
		must(t, m.ledger.Touch(ctx, ledger.NewAccountID(m.plan, subscriber))) // 5 expire
		m.mint(subscriber, 40, "order-2", time.Time{})
		must(t, m.ledger.Do(ctx, ledger.NewAccountID(m.plan, subscriber), func(t *ledger.Tx) error {
			if _, err := t.TakeBack("order-2", toll.Hash{}); err != nil {
				return err
			}
			_, err := t.Return("order-2", toll.Hash{})
			return err
		}))
		m.drain(m.events)

		mine, theirs := m.stream(subscriber), m.stream(builder)
		want := "credits.minted settlement.settled settlement.settled permission.exhausted credits.low settlement.settled credits.expired " +
			"credits.minted credits.taken_back credits.low credits.minted"
		if got := types(mine); got != want {
			t.Errorf("subscriber\n got %s\nwant %s", got, want)
		}
		if got := types(theirs); got != strings.Replace(want, "permission.exhausted ", "", 1) {
			t.Errorf("builder\n got %s", got)
		}
		var moved toll.CreditsMoved
		must(t, x402.Decode(mine[6].Data, &moved))
		if moved.Kind != "expire" || moved.Amount != 5 || moved.Balance != 0 || moved.HolderAddress != subscriber || moved.PlanID != m.plan || moved.Reference != "order-1" {
			t.Errorf("%s", mine[6].Data)
		}
		var settled toll.Settlement
		must(t, x402.Decode(mine[2].Data, &settled))
		if settled.AgentRequestID != "r2" || mine[2].Object.Kind != "settlement" || mine[2].Object.ID != settled.Transaction.String() {
			t.Errorf("%+v", mine[2])
		}
		if mine[3].Object.ID != token.String() {
			t.Errorf("%+v", mine[3])
		}
		ids := map[string]bool{}
		for _, e := range append(mine, theirs...) {
			if ids[e.ID] {
				t.Errorf("%s stands twice", e.ID)
			}
			ids[e.ID] = true
		}
		again := m.room(nil)
		if _, made, err := again.deriveBatch(ctx, []ledger.AccountID{ledger.NewAccountID(m.plan, subscriber)}); err != nil || made != 0 {
			t.Errorf("again: %d events, %v", made, err)
		}
	})
}

// A permission that was used up before its burns were looked at is told of once, at the burn that did it.
func TestDerive_ExhaustedLate(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		m.mint(subscriber, 1000, "o", time.Time{})
		token := m.token(subscriber, 150)
		for i := range 150 {
			m.settle(subscriber, token, 1, fmt.Sprint("r", i))
		}
		for i := range 70 { // more than one batch, all after it
			m.settle(subscriber, token, 0, fmt.Sprint("z", i))
		}
		m.drain(m.events)
		all := m.stream(subscriber)
		if n := strings.Count(types(all), "permission.exhausted"); n != 1 {
			t.Fatalf("told %d times", n)
		}
		if all[151].Type != toll.EventPermissionExhausted {
			t.Errorf("told at another place")
		}
	})
}

// The owner of a plan who subscribes to it gets one event, not two.
func TestDerive_OwnPlan(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	m := newMarket(t, st)
	m.mint(builder, 5, "o", time.Time{})
	m.drain(m.events)
	if got := types(m.stream(builder)); got != "credits.minted" {
		t.Error(got)
	}
}

// TestI20_OneEventForEachEntry: several derivers, some of which fail at each step, while others settle. Each entry ends up with
// one event for each side.
func TestI20_OneEventForEachEntry(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		const accounts, each = 6, 40
		var who []toll.Address
		var tokens []toll.Hash
		for i := range accounts {
			a := toll.MustAddress(fmt.Sprintf("0x%040x", 0x1000+i))
			who, tokens = append(who, a), append(tokens, m.token(a, 0))
			m.mint(a, each*2, "o", time.Time{})
		}
		var derivers sync.WaitGroup
		for d := range 3 {
			notes := NewNotes()
			e := m.room(notes)
			n := 0
			e.failpoint = func(at string) {
				if n++; d > 0 && n%7 == 0 {
					panic(errStop)
				}
			}
			derivers.Go(func() {
				for ctx.Err() == nil {
					behind, _, _, err := store.AccountsBehind(ctx, st, [16]byte{}, 100)
					if err != nil {
						continue
					}
					var ids []ledger.AccountID
					for _, b := range behind {
						ids = append(ids, b)
					}
					func() {
						defer func() {
							if p := recover(); p != nil && p != errStop {
								panic(p)
							}
						}()
						_, _, err = e.deriveBatch(ctx, ids)
						if err != nil && ctx.Err() == nil && !errors.Is(err, toll.NewError(toll.CodeDatabaseUnavailable)) {
							t.Error(err)
						}
					}()
				}
			})
		}
		var settlers sync.WaitGroup
		for i := range accounts {
			settlers.Go(func() {
				for j := range each {
					m.settle(who[i], tokens[i], 1, fmt.Sprintf("r%d", j))
				}
			})
		}
		settlers.Wait()
		deadline := time.Now().Add(2 * time.Minute)
		for {
			behind, _, _, err := store.AccountsBehind(t.Context(), st, [16]byte{}, 100)
			must(t, err)
			if len(behind) == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("never done")
			}
			time.Sleep(5 * time.Millisecond)
		}
		stop()
		derivers.Wait()
		seen := map[string]int{}
		for _, e := range m.stream(builder) {
			seen[e.ID]++
			seen[string(e.Type)]++
		}
		if seen["settlement.settled"] != accounts*each || seen["credits.minted"] != accounts {
			t.Errorf("the builder has %d settlements and %d mints", seen["settlement.settled"], seen["credits.minted"])
		}
		for _, a := range who {
			all := m.stream(a)
			if n := strings.Count(types(all), "settlement.settled"); n != each {
				t.Errorf("%s has %d settlements", a, n)
			}
		}
	})
}

var errStop = errors.New("stopped by the test")

// What the notes miss, the scan finds: entries of another process, and those of one that was killed.
func TestDerive_Run(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		e := m.room(nil) // hears nothing of the ledger
		m.mint(subscriber, 100, "o", time.Time{})
		token := m.token(subscriber, 0)
		m.settle(subscriber, token, 1, "r1")
		defer run(e.Loops()...)()
		eventually(t, func() bool { return types(m.stream(subscriber)) == "credits.minted settlement.settled" })
		m.settle(subscriber, token, 1, "r2")
		eventually(t, func() bool { return len(m.stream(builder)) == 3 })
	})
}

// Accounts that are always busy do not keep others from being found.
func TestDerive_BusyAccount(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		notes := NewNotes()
		e := m.room(notes)
		m.mint(builder, 100, "busy", time.Time{})
		busy := ledger.NewAccountID(m.plan, builder)
		notes.Add(busy)
		e.failpoint = func(string) { notes.Add(busy) } // each time that it is looked at
		defer run(e.Loops()...)()
		eventually(t, func() bool { return len(m.stream(builder)) == 1 })
		m.mint(subscriber, 100, "of another process", time.Time{})
		within(t, 20*time.Second, func() bool { return types(m.stream(subscriber)) == "credits.minted" })
	})
}

// run starts loops. The caller stops them with what it returns.
func run(loops ...jobs.Loop) (stop func()) {
	g := jobs.NewGroup(nil)
	g.Start(loops...)
	return func() { _ = g.Stop(context.Background()) } // the loops of this room end without errors
}

func eventually(t *testing.T, f func() bool) {
	t.Helper()
	within(t, 2*time.Minute, f)
}

func within(t *testing.T, wait time.Duration, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(wait); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come")
		}
	}
}

func TestNotes(t *testing.T) {
	n := NewNotes()
	for i := range maxNotes + 10 {
		n.Add(ledger.AccountID{byte(i), byte(i >> 8), byte(i >> 16)})
	}
	total := 0
	for got := n.take(100); len(got) > 0; got = n.take(100) {
		total += len(got)
	}
	if total != maxNotes || !n.empty() {
		t.Error(total)
	}
}
