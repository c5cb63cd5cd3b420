package ledger_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// usageWorld settles at random and remembers what usage must be.
type usageWorld struct {
	*bench
	random   *rand.Rand
	subs     []toll.Address
	perms    map[toll.Address]toll.Hash
	expected map[string]*toll.Usage // by what it is of: see key
	n        int
}

func usageKey(by store.UsageBy, u *toll.Usage) string {
	switch by {
	case store.ByPlan:
		return "plan " + string(u.PlanID)
	case store.ByAgent:
		return "agent " + string(u.AgentID)
	case store.BySubscriber:
		return "subscriber " + u.SubscriberAddress.Lower()
	case store.ByUpstream, store.ByRoute, store.ByModel:
		return string(by) + " " + u.Upstream + u.Route + u.Model
	}
	return fmt.Sprintf("%s %d", by, u.Start.UnixMicro())
}

func newUsageWorld(b *bench) *usageWorld {
	w := &usageWorld{bench: b, random: rand.New(rand.NewPCG(1, 2)), perms: map[toll.Address]toll.Hash{}, expected: map[string]*toll.Usage{}}
	for i := range 3 {
		who := toll.MustAddress(fmt.Sprintf("0x%040x", 0x100+i))
		must.Get(w.Mint(w.ctx, ledger.MintOp{Plan: plan, Subscriber: who, Amount: math.MaxInt64, Ref: "first"}))(w)
		p := ledger.Permission{Hash: toll.NewHash(), Plan: plan, Subscriber: who, CreatedAt: w.clock.now(), ExpiresAt: w.clock.now().Add(10000 * time.Hour)}
		must.Do(w, w.CreatePermission(w.ctx, p))
		w.subs, w.perms[who] = append(w.subs, who), p.Hash
	}
	return w
}

// settle burns credits of somebody, with a hold or without.
func (w *usageWorld) settle(amount toll.Credits) {
	w.Helper()
	w.n++
	who, agent := w.subs[w.random.IntN(3)], toll.AgentID([]string{"", "5", "6"}[w.random.IntN(3)])
	op := settleOp(w.perms[who], fmt.Sprint("u", w.n), amount)
	op.Subscriber, op.Agent = who, agent
	op.Labels = []toll.UsageLabels{{}, {Upstream: "gpu", Route: "POST /chat", Model: "small"}, {Upstream: "gpu", Route: "GET /search"}}[w.random.IntN(3)]
	took := time.Duration(-1)
	if w.random.IntN(2) == 0 {
		must.Get(w.Hold(w.ctx, ledger.HoldOp{
			Plan: plan, Subscriber: who, Agent: agent, Permission: op.Permission, RequestID: op.RequestID, Resource: op.Resource, Amount: amount,
			Until: w.clock.now().Add(time.Hour),
		}))(w)
		took = time.Duration(w.random.Int64N(int64(time.Minute))).Truncate(time.Microsecond)
		w.clock.add(took)
	}
	must.Get(w.Settle(w.ctx, op))(w)
	at := w.clock.now()
	hour, day := at.Truncate(time.Hour), at.Truncate(24*time.Hour)
	sums := map[store.UsageBy]toll.Usage{
		store.ByHour: {Start: toll.AtPtr(hour)}, store.ByDay: {Start: toll.AtPtr(day)}, store.ByPlan: {PlanID: plan}, store.ByAgent: {AgentID: agent},
		store.BySubscriber: {SubscriberAddress: &who},
	}
	if l := op.Labels; l.Route != "" {
		sums[store.ByUpstream], sums[store.ByRoute], sums[store.ByModel] = toll.Usage{Upstream: l.Upstream}, toll.Usage{Route: l.Route}, toll.Usage{Model: l.Model}
	}
	for by, u := range sums {
		k := usageKey(by, &u)
		e := w.expected[k]
		if e == nil {
			e = &u
			if by != store.BySubscriber && !by.Labeled() {
				e.HoldToSettle = make([]int64, len(toll.UsageTimes)+1)
			}
			w.expected[k] = e
		}
		e.Settled++
		e.Credits = e.Credits.Add(big.NewInt(int64(amount)))
		if by == store.BySubscriber {
			e.LastSettledAt = toll.AtPtr(at)
		} else if took >= 0 && !by.Labeled() {
			i, _ := slices.BinarySearch(toll.UsageTimes[:], took+1) // a bucket ends before its bound
			e.HoldToSettle[i]++
		}
	}
	w.clock.add(time.Duration(w.random.Int64N(int64(5 * time.Hour))))
}

// check compares what the tables say with what was settled.
func (w *usageWorld) check(st *store.Store, when string) {
	w.Helper()
	seen := 0
	for _, by := range []store.UsageBy{store.ByHour, store.ByDay, store.ByPlan, store.ByAgent, store.BySubscriber, store.ByUpstream, store.ByRoute, store.ByModel} {
		f := store.UsageFilter{By: by, Plan: plan, Since: start.Truncate(24 * time.Hour), Until: start.Add(5000 * time.Hour)}
		for p := (store.Page{Size: 7, Ascending: true}); ; {
			list := must.Get(store.Usage(w.ctx, st, f, p))(w)
			for _, u := range list.Items {
				seen++
				got, _ := json.Marshal(u)
				want, _ := json.Marshal(w.expected[usageKey(by, u)])
				if string(got) != string(want) {
					w.Errorf("%s: %s, not %s", when, got, want)
				}
			}
			if p.Cursor = list.Next; p.Cursor == "" {
				break
			}
		}
	}
	if seen != len(w.expected) {
		w.Errorf("%s: %d sums, not %d", when, seen, len(w.expected))
	}
	found := must.Get(store.AuditUsage(w.ctx, st))(w)
	if len(found) > 0 {
		w.Errorf("%s: %v", when, found)
	}
}

// Usage equals the entries after every way of counting them: late, at once, by several at a time, and
// counted anew, also while others count.
func TestUsage_EqualsEntries(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		w := newUsageWorld(open(t, st))
		for range 150 {
			w.settle(1 + toll.Credits(w.random.Int64N(9)))
		}
		w.count()
		w.check(st, "counted")
		for range 4 {
			w.settle(1 << 61) // the sum is more than a BIGINT
		}
		w.count()
		w.check(st, "sums of more than 63 bits")
		must.Do(w, w.RecountUsage(w.ctx))
		if at, err := w.UsageCounted(w.ctx); err != nil || !at.Equal(start) {
			t.Errorf("while nothing is counted, all is counted to %v, %v", at, err)
		}
		for range 520 {
			w.settle(1)
		}
		other := open2(w.bench, st)
		var wg sync.WaitGroup
		for _, l := range []*ledger.Ledger{w.Ledger, other, w.Ledger} {
			failures := 0
			wg.Go(func() {
				for more := true; more; {
					var err error
					if more, err = l.CountUsage(w.ctx); err != nil {
						if failures++; failures > 50 {
							t.Error(err)
							return
						}
						more = true
					}
				}
			})
		}
		wg.Wait()
		w.count()
		w.check(st, "counted anew by several")
		if at, err := w.UsageCounted(w.ctx); err != nil || !at.Equal(w.clock.now()) {
			t.Errorf("all is counted to %v, %v", at, err)
		}
		for _, change := range []string{
			"UPDATE usage_hours SET settled = settled + 1", "UPDATE usage_days SET credits_low = credits_low + 1", "DELETE FROM usage_days",
			"UPDATE usage_days SET last_at = last_at - 1", "UPDATE usage_labels SET settled = settled + 1", "DELETE FROM usage_buyer_labels",
		} {
			must.Do(w, st.Tx(w.ctx, func(tx *store.Tx) error { _, err := tx.Exec(w.ctx, change); return err }))
			if found, err := store.AuditUsage(w.ctx, st); err != nil || len(found) == 0 {
				t.Errorf("the audit does not see %s: %v", change, err)
			}
			must.Do(w, w.RecountUsage(w.ctx))
			w.count()
			w.check(st, "after the repair of "+change)
		}
	})
}

// A plan has at most 100 combinations of labels in a day, whatever models its buyers name; further ones count as other. A rebuild counts
// the same, and a buyer sees its own part without the upstream.
func TestUsage_LabelsBounded(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		w := newUsageWorld(open(t, st))
		settle := func(who, n int) {
			t.Helper()
			op := settleOp(w.perms[w.subs[who]], fmt.Sprint(who, "-", n), 2)
			op.Subscriber = w.subs[who]
			op.Labels = toll.UsageLabels{Upstream: "gpu", Route: "POST /chat", Model: fmt.Sprint("m", n)}
			must.Get(w.Settle(w.ctx, op))(w)
		}
		for n := range 130 {
			settle(0, n)
			if n%50 == 0 {
				w.count()
			}
		}
		settle(1, 99)
		settle(1, 100)
		check := func(f store.UsageFilter, want map[string]int64) {
			t.Helper()
			f.Since, f.Until = start.Truncate(24*time.Hour), start.Add(24*time.Hour)
			list := must.Get(store.Usage(w.ctx, st, f, store.Page{Size: 100, Ascending: true}))(w)
			if list.Total != want["groups"] {
				t.Errorf("%s: %d groups", f.By, list.Total)
			}
			for _, u := range list.Items {
				name := u.Upstream + u.Route + u.Model
				if n, ok := want[name]; ok && (n != u.Settled || u.Credits.String() != fmt.Sprint(2*n)) {
					t.Errorf("%s: %s has %d, %s", f.By, name, u.Settled, u.Credits)
				} else if !ok && u.Settled != 1 {
					t.Errorf("%s: %s has %d", f.By, name, u.Settled)
				}
			}
		}
		for range 2 {
			w.count()
			check(store.UsageFilter{By: store.ByUpstream, Plan: plan}, map[string]int64{"groups": 2, "gpu": 101, "other": 31})
			check(store.UsageFilter{By: store.ByModel, Plan: plan}, map[string]int64{"groups": 101, "m99": 2, "other": 31})
			check(store.UsageFilter{By: store.ByModel, Subscriber: w.subs[1]}, map[string]int64{"groups": 2, "m99": 1, "other": 1})
			check(store.UsageFilter{By: store.ByRoute, Subscriber: w.subs[0]}, map[string]int64{"groups": 2, "POST /chat": 100, "other": 30})
			if found, err := store.AuditUsage(w.ctx, st); err != nil || len(found) > 0 {
				t.Error(err, found)
			}
			must.Do(w, w.RecountUsage(w.ctx))
		}
	})
}

// What is removed after the horizon keeps its agents and times through a rebuild, and is not removed while it is not counted.
func TestUsage_KeptWithoutRequests(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		w := newUsageWorld(open(t, st))
		var ends time.Time
		for who := range w.perms { // another one, which ends soon
			p := ledger.Permission{Hash: toll.NewHash(), Plan: plan, Subscriber: who, CreatedAt: w.clock.now(), ExpiresAt: w.clock.now().Add(1000 * time.Hour)}
			must.Do(w, w.CreatePermission(w.ctx, p))
			w.perms[who], ends = p.Hash, p.ExpiresAt
		}
		for range 60 {
			w.settle(1 + toll.Credits(w.random.Int64N(9)))
		}
		follow(t, w.Ledger)
		horizon := ends.Add(2 * time.Hour)
		retain := func() (n ledger.Retained) {
			t.Helper()
			n, _, err := w.Retain(w.ctx, horizon)
			must.Do(w, err)
			return n
		}
		if n := retain(); n.Burns != 0 {
			t.Errorf("removed before usage counted: %+v", n)
		}
		w.count()
		must.Do(w, w.RecountUsage(w.ctx))
		if n := retain(); n.Burns != 0 {
			t.Errorf("removed in the midst of a rebuild: %+v", n)
		}
		w.count()
		if n := retain(); n.Burns != 60 {
			t.Fatalf("removed %+v", n)
		}
		w.check(st, "after the requests went")
		for _, when := range []string{"counted anew", "and again"} {
			must.Do(w, w.RecountUsage(w.ctx))
			w.count()
			w.check(st, when)
		}
		must.Get(w.CountUsage(w.ctx))(w)
		w.check(st, "with nothing left to do")
	})
}

// A rebuild whose process ends after it counted everything, and before removed settlements got their agents back, keeps what else is
// to be removed until then.
func TestUsage_KeptUntilRestored(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		w := newUsageWorld(open(t, st))
		// settleUntil settles under permissions that end soon, and returns from when on the settlements are removed.
		settleUntil := func() (horizon time.Time) {
			t.Helper()
			ends := w.clock.now().Add(1000 * time.Hour)
			for who := range w.perms {
				p := ledger.Permission{Hash: toll.NewHash(), Plan: plan, Subscriber: who, CreatedAt: w.clock.now(), ExpiresAt: ends}
				must.Do(w, w.CreatePermission(w.ctx, p))
				w.perms[who] = p.Hash
			}
			for range 20 {
				w.settle(1 + toll.Credits(w.random.Int64N(9)))
			}
			follow(t, w.Ledger)
			w.count()
			return ends.Add(2 * time.Hour)
		}
		retain := func(horizon time.Time) int64 {
			t.Helper()
			n, _, err := w.Retain(w.ctx, horizon)
			must.Do(w, err)
			return int64(n.Burns)
		}
		if n := retain(settleUntil()); n != 20 {
			t.Fatalf("removed %d", n)
		}
		horizon := settleUntil()
		must.Do(w, w.RecountUsage(w.ctx))
		ledger.SetFailpoint(w.Ledger, func(at string) {
			if at == "restored" {
				panic("killed")
			}
		})
		func() {
			defer func() {
				if p := recover(); p != "killed" {
					t.Fatal(p)
				}
			}()
			w.count()
		}()
		ledger.SetFailpoint(w.Ledger, func(string) {})
		if n := retain(horizon); n != 0 {
			t.Errorf("removed %d before the rebuild was done", n)
		}
		w.count()
		w.check(st, "after the kill")
		if n := retain(horizon); n != 20 {
			t.Errorf("removed %d after the rebuild", n)
		}
		must.Do(w, w.RecountUsage(w.ctx))
		w.count()
		w.check(st, "counted anew")
	})
}

// A process that is killed before the commit of its counts leaves none of them.
func TestUsage_Killed(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) {
			cfg := storetest.Config(t, v)
			var st *store.Store
			c := newClock()
			reopen := func() *ledger.Ledger {
				var err error
				if st, err = store.Open(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
				return ledger.New(st, ledger.Config{Clock: c.now, MACKey: []byte("0123456789abcdef0123456789abcdef")})
			}
			w := newUsageWorld(&bench{TB: t, Ledger: reopen(), clock: c, ctx: t.Context()})
			for range 20 {
				w.settle(2)
			}
			must.Do(w, w.Close(w.ctx))
			must.Do(w, st.Close())
			crash(t, cfg, "count", "counted", toll.NewHash(), "")
			w.Ledger = reopen()
			defer func() { must.Do(w, errors.Join(w.Close(w.ctx), st.Close())) }()
			if list, err := store.Usage(w.ctx, st, store.UsageFilter{By: store.ByPlan, Plan: plan, Until: start.Add(1000 * time.Hour)}, store.Page{}); err != nil ||
				len(list.Items) > 0 {
				t.Errorf("%v: it left %v", err, list.Items)
			}
			w.count()
			w.check(st, "after the kill")
		})
	}
}
