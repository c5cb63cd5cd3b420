package events

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
)

var (
	builder    = toll.MustAddress("0x70997970C51812dc3A010C7d01b50e0d17dc79C8")
	subscriber = toll.MustAddress("0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC")
	stranger   = toll.MustAddress("0x90F79bf6EB2c4f870365E785982E1f101E93b906")
)

type testClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// market is a ledger with one plan of the builder, and the room on it.
type market struct {
	t      testing.TB
	st     *store.Store
	clock  *testClock
	ledger *ledger.Ledger
	events *Events
	plan   toll.PlanID
	log    *strings.Builder
}

func newMarket(t testing.TB, st *store.Store) *market {
	t.Helper()
	m := &market{t: t, st: st, clock: &testClock{at: time.Date(2026, 11, 21, 1, 52, 17, 872_000_000, time.UTC)}, log: &strings.Builder{}}
	m.ledger = ledger.New(st, ledger.Config{Clock: m.clock.now, MACKey: []byte("0123456789abcdef")})
	t.Cleanup(func() { must.Do(t, m.ledger.Close(context.WithoutCancel(t.Context()))) })
	m.plan = m.newPlan()
	m.events = m.room()
	return m
}

// patience is what receivers have in place of [deliveryTimeout]: the clock of the tests stands, and what fails because the machine
// stood still would never be sent again.
const patience = 2 * time.Minute

// room is another process on the same database.
func (m *market) room() *Events {
	ring := seal.New([32]byte{1, 2, 3})
	return New(Config{
		Store: m.st, Ledger: m.ledger, Clock: m.clock.now, Seal: ring.Seal, Open: ring.Open,
		Log:      slog.New(slog.NewTextHandler(&lockedWriter{w: m.log}, nil)),
		Outbound: outbound.Config{Loopback: true, Timeout: patience},
		Settlements: func(_ context.Context, _ toll.Address, burns []*store.JournalRow) (out []*toll.Settlement, err error) {
			for _, b := range burns {
				r := ledger.RequestOf(b)
				out = append(out, &toll.Settlement{AgentRequestID: r.ID, Status: r.State.String(), PlanID: m.plan, Transaction: &b.Commitment, CreatedAt: toll.At(r.CreatedAt)})
			}
			return out, nil
		},
		Permission: func(ctx context.Context, _ toll.Address, hash toll.Hash) (*toll.Permission, error) {
			p, err := m.ledger.PermissionByHash(ctx, hash)
			return &toll.Permission{PermissionHash: p.Hash, PlanID: p.Plan}, err
		},
		Delegation: func(d *store.Delegation) *toll.Delegation { return &toll.Delegation{DelegationID: d.ID} },
	})
}

type lockedWriter struct {
	mu sync.Mutex
	w  *strings.Builder
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

func (m *market) newPlan() toll.PlanID {
	m.t.Helper()
	p := &toll.Plan{
		ID: toll.NewPlanID(), Owner: builder, Metadata: toll.Metadata{Name: "P"}, AccessLimit: toll.LimitCredits, IsListed: true,
		CreatedAt: m.clock.now(), UpdatedAt: m.clock.now(),
	}
	must.Do(m.t, m.st.Tx(m.t.Context(), func(tx *store.Tx) error { return store.InsertPlan(m.t.Context(), tx, p, "", nil) }))
	return p.ID
}

func (m *market) mint(who toll.Address, n toll.Credits, ref string, ends time.Time) {
	m.t.Helper()
	must.Get(m.ledger.Mint(m.t.Context(), ledger.MintOp{Plan: m.plan, Subscriber: who, Amount: n, Ref: ref, EndsAt: ends}))(m.t)
}

// token makes a permission; limit 0 is none.
func (m *market) token(who toll.Address, limit toll.Credits) toll.Hash {
	m.t.Helper()
	p := ledger.Permission{
		Hash: toll.NewHash(), Plan: m.plan, Subscriber: who, Scheme: "svc:erc4337", CreatedAt: m.clock.now(), ExpiresAt: m.clock.now().Add(1000 * time.Hour),
	}
	if limit > 0 {
		p.RedemptionLimit = &limit
	}
	must.Do(m.t, m.ledger.CreatePermission(m.t.Context(), p))
	return p.Hash
}

func (m *market) settle(who toll.Address, token toll.Hash, n toll.Credits, id string) {
	m.t.Helper()
	must.Get(m.ledger.Settle(m.t.Context(), ledger.SettleOp{
		Plan: m.plan, Subscriber: who, Permission: token, RequestID: id, Amount: n,
		Render: func(r ledger.Receipt) []byte { return fmt.Appendf(nil, `{"id":%q}`, r.RequestID) },
	}))(m.t)
}

// drain derives until nothing is left.
func (m *market) drain(e *Events) {
	m.t.Helper()
	for m.follow(e) {
	}
}

func (m *market) follow(e *Events) (more bool) {
	m.t.Helper()
	more = must.Get(m.ledger.Follow(m.t.Context(), e.Consumer()))(m.t)
	return more
}

// behind returns how many entries have no events yet.
func (m *market) behind() int64 {
	m.t.Helper()
	done := must.Get(store.JournalCursor(m.t.Context(), m.st, store.Follower))(m.t)
	all := must.Get(store.JournalLength(m.t.Context(), m.st))(m.t)
	return all - done
}

// length returns how many events an address has.
func (m *market) length(who toll.Address) int64 {
	m.t.Helper()
	last := must.Get(store.LastSequences(m.t.Context(), m.st, []toll.Address{who}))(m.t)
	return last[who]
}

// stream returns all events of an address, with their data, after looking at their numbers.
func (m *market) stream(who toll.Address) []*toll.Event {
	m.t.Helper()
	var out []*toll.Event
	objects := map[string]int64{}
	p := store.Page{Size: 100, Ascending: true}
	for {
		l := must.Get(m.events.List(m.t.Context(), store.EventFilter{Principal: who}, p))(m.t)
		for _, e := range l.Items {
			out = append(out, e)
			objects[e.Object.Kind+e.Object.ID]++
			if e.Sequence != int64(len(out)) || e.Object.Sequence != objects[e.Object.Kind+e.Object.ID] {
				m.t.Fatalf("event %d of %s: %+v", len(out), who, e)
			}
		}
		if l.Next == "" {
			return out
		}
		p = store.Page{Size: 100, Cursor: l.Next}
	}
}

func types(all []*toll.Event) string {
	var out []string
	for _, e := range all {
		out = append(out, string(e.Type))
	}
	return strings.Join(out, " ")
}
