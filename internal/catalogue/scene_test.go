package catalogue_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

var (
	b1 = toll.MustAddress("0x70997970C51812dc3A010C7d01b50e0d17dc79C8")
	b2 = toll.MustAddress("0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC")

	start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

const (
	askURL = "https://a.example/ask"
	// listingAge is longer than a listing lives.
	listingAge = 6 * time.Second
)

// clock is set by the test.
type clock struct{ us atomic.Int64 }

func (c *clock) now() time.Time      { return time.UnixMicro(c.us.Load()).UTC() }
func (c *clock) add(d time.Duration) { c.us.Add(d.Microseconds()) }

// instance is one service process.
type instance struct {
	*catalogue.Catalogue
	store *store.Store
}

// scene is a database with the processes that list what it sells.
type scene struct {
	testing.TB
	ctx   context.Context
	clock *clock
	inst  []*instance
}

func (s *scene) one() *instance   { return s.inst[0] }
func (s *scene) other() *instance { return s.inst[1] }

// each runs a test on all stores.
func each(t *testing.T, f func(s *scene)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, st *store.Store) { f(newScene(t, st)) })
}

func sqlite(t testing.TB) *scene {
	t.Helper()
	st, _ := storetest.Open(t, store.SQLite)
	return newScene(t, st)
}

// newScene starts two instances on a store.
func newScene(t testing.TB, st *store.Store) *scene {
	t.Helper()
	s := &scene{TB: t, ctx: context.Background(), clock: &clock{}}
	s.clock.us.Store(start.UnixMicro())
	for range 2 {
		s.inst = append(s.inst, &instance{catalogue.New(st, catalogue.Brand{}, s.clock.now, nil), st})
	}
	return s
}

func (s *scene) code(err error, want toll.Code) {
	s.Helper()
	if !errors.Is(err, toll.NewError(want)) {
		s.Fatalf("got the error %v, want %s", err, want)
	}
}

// plan registers a plan of b1: 100 credits, 5 per request, for a price, as f changes it.
func (s *scene) plan(f func(p *toll.Plan)) *toll.Plan {
	s.Helper()
	p := &toll.Plan{
		ID: toll.NewPlanID(), Owner: b1, Metadata: toll.Metadata{Name: "Basic"},
		Price:       toll.Price{IsCrypto: true, TokenAddress: toll.USDCSandbox, Amounts: []toll.Units{toll.UnitsOf(1_000_000)}, Receivers: []toll.Address{b1}},
		Credits:     toll.CreditsConfig{RedemptionType: 4, Amount: 100, MinAmount: 5, MaxAmount: 5},
		AccessLimit: toll.LimitCredits, IsListed: true, CreatedAt: s.clock.now(), UpdatedAt: s.clock.now(),
	}
	if f != nil {
		f(p)
	}
	must.Do(s, s.one().store.Tx(s.ctx, func(tx *store.Tx) error { return store.InsertPlan(s.ctx, tx, p, "", nil) }))
	return p
}

func dynamic(least, most toll.Credits) func(*toll.Plan) {
	return func(p *toll.Plan) { p.Credits.MinAmount, p.Credits.MaxAmount = least, most }
}

// agent registers an agent of b1 with the plans.
func (s *scene) agent(f func(a *toll.Agent), plans ...*toll.Plan) *toll.Agent {
	s.Helper()
	a := &toll.Agent{
		ID: toll.NewAgentID(), Owner: b1, Metadata: toll.Metadata{Name: "Ask"}, IsListed: true,
		API:       toll.AgentAPI{Endpoints: []toll.Endpoint{{Verb: "POST", URL: askURL}}, AuthType: "none"},
		CreatedAt: s.clock.now(), UpdatedAt: s.clock.now(),
	}
	for _, p := range plans {
		a.Plans = append(a.Plans, toll.PlanRef{PlanID: p.ID, Name: p.Metadata.Name})
	}
	if f != nil {
		f(a)
	}
	must.Do(s, s.one().store.Tx(s.ctx, func(tx *store.Tx) error { return store.InsertAgent(s.ctx, tx, a, nil) }))
	return a
}
