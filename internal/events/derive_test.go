package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
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
		must.Do(t, m.ledger.Touch(ctx, ledger.NewAccountID(m.plan, subscriber))) // 5 expire
		m.mint(subscriber, 40, "order-2", time.Time{})
		must.Do(t, m.ledger.Do(ctx, ledger.NewAccountID(m.plan, subscriber), func(t *ledger.Tx) error {
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
		must.Do(t, x402.Decode(mine[6].Data, &moved))
		if moved.Kind != "expire" || moved.Amount != 5 || moved.Balance != 0 || moved.HolderAddress != subscriber || moved.PlanID != m.plan || moved.Reference != "order-1" {
			t.Errorf("%s", mine[6].Data)
		}
		var settled toll.Settlement
		must.Do(t, x402.Decode(mine[2].Data, &settled))
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
		if m.drain(m.room()); len(m.stream(subscriber)) != len(mine) {
			t.Error("another process made events again")
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

// TestOneEventForEachEntry: several processes follow the journal, some of which end at each step, while others settle. Each
// entry ends up with one event for each side.
// I20
func TestOneEventForEachEntry(t *testing.T) {
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
		var followers sync.WaitGroup
		for d := range 3 {
			e, l := m.room(), ledger.New(st, ledger.Config{Clock: m.clock.now, MACKey: []byte("0123456789abcdef")})
			t.Cleanup(func() { must.Do(t, l.Close(context.WithoutCancel(t.Context()))) })
			n := 0
			e.failpoint = func(at string) {
				if n++; d > 0 && n%7 == 0 {
					panic(errStop)
				}
			}
			followers.Go(func() {
				for ctx.Err() == nil {
					func() {
						defer func() {
							if p := recover(); p != nil && p != errStop {
								panic(p)
							}
						}()
						_, err := l.Follow(ctx, e.Consumer())
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
		eventually(t, func() bool { return m.behind() == 0 })
		stop()
		followers.Wait()
		seen := map[string]int{}
		for _, e := range m.stream(builder) {
			seen[e.ID]++
			if seen[string(e.Type)]++; seen[e.ID] > 1 {
				t.Errorf("%s stands twice", e.ID)
			}
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

// TestKilledAtEachStep: a process that ends while it derives leaves all events of its batch, or none.
// I20
func TestKilledAtEachStep(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		m.mint(subscriber, 1000, "o", time.Time{})
		token, want := m.token(subscriber, 0), "credits.minted"
		for i, step := range []string{"locked", "written", "committed"} {
			m.settle(subscriber, token, 1, fmt.Sprint("r", i))
			before, done := len(m.stream(subscriber)), 0
			if want += " settlement.settled"; step == "committed" {
				done = 1
			}
			dying := m.room()
			dying.failpoint = func(at string) {
				if at == step {
					panic(errStop)
				}
			}
			func() {
				defer func() {
					if p := recover(); p != errStop {
						t.Fatalf("%s: %v", step, p)
					}
				}()
				m.follow(dying)
			}()
			if got := len(m.stream(subscriber)); got != before+done {
				t.Errorf("%s: %d events after the end, %d before", step, got, before)
			}
			m.drain(m.room())
			if got := types(m.stream(subscriber)); got != want {
				t.Errorf("%s: %s", step, got)
			}
		}
	})
}

// An account that is always busy does not delay the events of others: they come in the order of the journal.
func TestDerive_BusyAccount(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		m := newMarket(t, st)
		m.mint(builder, 1<<40, "busy", time.Time{})
		token := m.token(builder, 0)
		ctx, stop := context.WithCancel(t.Context())
		var busy sync.WaitGroup
		for i := range 8 {
			busy.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					m.settle(builder, token, 1, fmt.Sprintf("b%d-%d", i, n))
				}
			})
		}
		defer busy.Wait()
		defer stop()
		loop := jobs.Loop{Name: "follow", Every: 10 * time.Millisecond, Run: jobs.Sweep(func(ctx context.Context) (bool, error) {
			return m.ledger.Follow(ctx, m.events.Consumer())
		})}
		defer run(loop)()
		eventually(t, func() bool { return m.length(builder) > 100 })
		m.mint(subscriber, 100, "o", time.Time{})
		within(t, 20*time.Second, func() bool { return m.length(subscriber) == 1 })
	})
}

// A page of events of settlements, and a batch of deliveries of them, reads their entries with one statement.
func TestDerive_OneStatement(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	m := newMarket(t, st)
	m.mint(subscriber, 1000, "o", time.Time{})
	token := m.token(subscriber, 0)
	for i := range 300 {
		m.settle(subscriber, token, 1, fmt.Sprint("r", i))
	}
	m.drain(m.events)
	r := newReceiver(t, nil)
	w := m.hook(r.URL)
	var mu sync.Mutex
	var journal, all int
	st.Trace(func(_ uint64, statement string) {
		mu.Lock()
		defer mu.Unlock()
		if all++; strings.Contains(statement, "FROM journal ") {
			journal++
		}
	})
	for _, page := range []store.Page{{Size: 100}, {Size: 100, Number: 3}, {Size: 1, Number: 150, Ascending: true}} {
		journal, all = 0, 0
		l := must.Get(m.events.List(t.Context(), store.EventFilter{Principal: builder}, page))(t)
		if len(l.Items) != page.Size || journal != 1 || all > 4 {
			t.Errorf("%+v: %d events, %d statements, %d of the journal", page, len(l.Items), all, journal)
		}
	}
	st.Trace(nil)
	for i := range 3 {
		m.settle(subscriber, token, 1, fmt.Sprint("hook", i))
	}
	m.drain(m.events)
	m.deliver(m.events)
	sent := r.all()
	if len(sent) != 3 {
		t.Fatalf("%d deliveries", len(sent))
	}
	for i, d := range sent {
		var s toll.Settlement
		must.Do(t, x402.Decode(d.event.Data, &s))
		if s.AgentRequestID != fmt.Sprint("hook", i) || d.id != d.event.ID || d.event.Sequence != int64(302+i) {
			t.Errorf("delivery %d: %s", i, d.body)
		}
	}
	again := must.Get(m.events.Resend(t.Context(), builder, w.ID, m.deliveries(w.ID)[0].ID))(t)
	m.deliver(m.events)
	sent = r.all()
	first := slices.IndexFunc(sent, func(d delivered) bool { return d.id == again.EventID })
	if len(sent) != 4 || first < 0 || sent[3].id != again.EventID || string(sent[3].body) != string(sent[first].body) {
		t.Errorf("it was sent again as %s", sent[len(sent)-1].body)
	}
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
