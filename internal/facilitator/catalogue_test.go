package facilitator_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/facilitator"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// bigAgents registers n agents of the largest size that limits admit: 256 endpoints of 2,048 characters, 64 plans, 16 KiB of text.
func (s *scene) bigAgents(n int) {
	s.Helper()
	var plans []*toll.Plan
	for i := range toll.MaxPlansPerAgent {
		plans = append(plans, s.plan(func(p *toll.Plan) { p.Metadata.Name = fmt.Sprintf("%d%s", i, strings.Repeat("n", 250)) }))
	}
	for i := range n {
		s.agent(func(a *toll.Agent) {
			a.Metadata.Description = strings.Repeat("Word ", 16<<10/5)
			a.API.Endpoints = nil
			for e := range toll.MaxEndpoints {
				url := fmt.Sprintf([]string{"https://big%d.example/E%d/", "mcp://big%d/tools/E%d"}[e%2], i, e)
				a.API.Endpoints = append(a.API.Endpoints, toll.Endpoint{Verb: "POST", URL: url + strings.Repeat("a", 2048-len(url))})
			}
		}, plans...)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // what has finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What agents share is in memory once, and an answer is bounded: big agents cost what their texts are long, however many read.
// T178
func TestBigAgents(t *testing.T) {
	s := newScene(t, "sqlite", 1)
	s.bigAgents(50) // 26 MiB of urls
	before := heap()
	_, err := s.one().Catalogue(s.ctx, x402.CatalogueFilter{}, 1, 0)
	s.must(err)
	if grown := heap() - before; grown > 100<<20 {
		t.Errorf("the catalogue takes %d MiB", grown>>20)
	}
	var most int64
	var mu sync.Mutex
	var readers sync.WaitGroup
	for i := range 8 {
		readers.Go(func() {
			for j := range 10 {
				c, err := s.one().Catalogue(s.ctx, x402.CatalogueFilter{}, 100, (i*10+j)*100)
				if err != nil {
					t.Error(err)
					return
				}
				b, err := x402.Encode(c)
				if err != nil || len(b) > 1<<20 {
					t.Errorf("an answer of %d bytes, %v", len(b), err)
				}
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				mu.Lock()
				most = max(most, int64(m.HeapAlloc))
				mu.Unlock()
			}
		})
	}
	readers.Wait()
	if grown := most - before; grown > 300<<20 {
		t.Errorf("eight readers take %d MiB", grown>>20)
	}
}

// An answer that is shorter than asked for says so, and who goes on behind it misses nothing.
func TestCatalogueParts(t *testing.T) {
	s := newScene(t, "sqlite", 1)
	s.bigAgents(2)
	var all, found []string
	for {
		c, err := s.one().Catalogue(s.ctx, x402.CatalogueFilter{}, 100, len(all))
		s.must(err)
		if c.Pagination.Total != 2*toll.MaxEndpoints || len(c.Items) == 0 || c.Pagination.Limit != len(c.Items) && c.Pagination.Limit != 100 {
			t.Fatalf("%+v with %d items behind %d", c.Pagination, len(c.Items), len(all))
		}
		for _, i := range c.Items {
			all = append(all, i.Resource)
		}
		if len(all) == c.Pagination.Total {
			break
		}
		if c.Pagination.Limit != len(c.Items) {
			t.Fatalf("%+v with %d items", c.Pagination, len(c.Items))
		}
	}
	for cursor := ""; ; {
		r, err := s.one().Search(s.ctx, "word", x402.CatalogueFilter{}, 100, cursor)
		s.must(err)
		for _, i := range r.Resources {
			found = append(found, i.Resource)
		}
		if r.Pagination.Cursor == nil {
			break
		}
		cursor = *r.Pagination.Cursor
	}
	if !slices.Equal(all, found) {
		t.Errorf("%d items in the list, %d found", len(all), len(found))
	}
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != 2*toll.MaxEndpoints {
		t.Errorf("%d different items", n)
	}
}

// A search is bounded by what it looks for.
// T178
func TestLongQueries(t *testing.T) {
	s := newScene(t, "sqlite", 1)
	for query, ok := range map[string]bool{
		strings.Repeat("a ", 16): true, strings.Repeat("a ", 17): false, strings.Repeat("a", 256): true, strings.Repeat("a", 257): false,
	} {
		_, err := s.one().Search(s.ctx, query, x402.CatalogueFilter{}, 10, "")
		if ok {
			s.must(err)
			continue
		}
		s.code(err, toll.CodeBadPage)
		if toll.AsError(err).Params["parameter"] != "query" {
			t.Errorf("%+v", toll.AsError(err).Params)
		}
	}
}

// The catalogue reads again what changed and nothing else. What this process changed shows at once, also while the clock stands
// still; what another one changed shows after a few seconds.
func TestCatalogueChanges(t *testing.T) {
	each(t, func(s *scene) {
		p, q := s.plan(nil), s.plan(func(p *toll.Plan) { p.Metadata.Name = "Other" })
		a, b := s.agent(func(a *toll.Agent) { a.Metadata.Name = "First" }, p), s.agent(nil, q)
		urls := func() int { return len(s.resources(x402.CatalogueFilter{})) }
		finds := func(query string) int {
			r, err := s.one().Search(s.ctx, query, x402.CatalogueFilter{}, 10, "")
			s.must(err)
			return len(r.Resources)
		}
		if urls() != 2 || finds("first") != 1 || finds("other") != 1 {
			t.Fatal(urls(), finds("first"), finds("other"))
		}
		kept := s.one().Listed(b.ID)
		s.update(a, func(a *toll.Agent) { a.Metadata.Name = "Second" })
		if finds("first") != 0 || finds("second") != 1 {
			t.Error("the new name does not show at once")
		}
		if s.one().Listed(b.ID) != kept {
			t.Error("an agent that did not change was read again")
		}
		q.Metadata.Name = "Renamed"
		s.must(s.one().store.Tx(s.ctx, func(tx *store.Tx) error { return store.UpdatePlan(s.ctx, tx, q) }))
		s.one().ForgetPlan(q.ID)
		if finds("other") != 0 || finds("renamed") != 1 {
			t.Error("the new name of a plan does not show at once")
		}
		s.update(a, func(a *toll.Agent) { a.IsListed = false })
		if urls() != 1 {
			t.Error("an unlisted agent is listed")
		}
		s.update(a, func(a *toll.Agent) { a.IsListed = true })

		// Others.
		s.must(s.one().store.Tx(s.ctx, func(tx *store.Tx) error {
			_, err := store.AttachPlan(s.ctx, tx, b.ID, p.ID)
			return err
		}))
		s.clock.add(catalogueAge)
		if finds("basic") != 2 {
			t.Error("a plan that was attached does not show")
		}
		s.clock.add(time.Second)
		q.IsListed, q.UpdatedAt = false, s.clock.now()
		s.must(s.one().store.Tx(s.ctx, func(tx *store.Tx) error {
			if err := store.UpdatePlan(s.ctx, tx, q); err != nil {
				return err
			}
			_, err := store.DetachPlan(s.ctx, tx, b.ID, p.ID)
			return err
		}))
		s.clock.add(catalogueAge)
		if urls() != 1 {
			t.Error("an agent without a listed plan is listed")
		}
	})
}

// Owners share the room of the catalogue. Those who need little have all of theirs, however much others have.
func TestRoomOfOwners(t *testing.T) {
	agents := func(owner string, n int, bytes int64) (all []*store.ListedAgent) {
		for range n {
			all = append(all, &store.ListedAgent{Owner: owner, Bytes: bytes})
		}
		return all
	}
	left := func(room int64, all ...[]*store.ListedAgent) string {
		n := map[string]int64{}
		for _, a := range facilitator.WithinRoom(slices.Concat(all...), room) {
			n[a.Owner] += a.Bytes
		}
		return fmt.Sprint(n)
	}
	for _, c := range []struct{ got, want string }{
		{left(100, agents("a", 3, 10), agents("b", 2, 10)), "map[a:30 b:20]"},
		{left(100, agents("a", 50, 10)), "map[a:100]"},
		{left(100, agents("a", 50, 10), agents("b", 2, 10)), "map[a:80 b:20]"},
		{left(100, agents("a", 50, 10), agents("b", 40, 5), agents("c", 1, 4)), "map[a:40 b:45 c:4]"},
		{left(5, agents("a", 50, 10)), "map[]"},
		{left(5), "map[]"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}
