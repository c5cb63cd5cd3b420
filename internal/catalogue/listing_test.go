package catalogue_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// resources are the urls of the catalogue that a filter picks.
func (s *scene) resources(by x402.CatalogueFilter) []string {
	s.Helper()
	c := must.Get(s.one().List(s.ctx, by, 100, 0))(s)
	var out []string
	for _, i := range c.Items {
		out = append(out, i.Resource)
	}
	if c.Pagination.Total != len(out) || c.Pagination.Limit != 100 {
		s.Errorf("%+v for %d items", c.Pagination, len(out))
	}
	return out
}

// update changes an agent as a builder does.
func (s *scene) update(a *toll.Agent, f func(a *toll.Agent)) {
	s.Helper()
	f(a)
	a.UpdatedAt = s.clock.now()
	must.Do(s, s.one().store.Tx(s.ctx, func(tx *store.Tx) error { return store.UpdateAgent(s.ctx, tx, a) }))
	s.one().ForgetAgent(a.ID)
}

func TestCatalogue(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 5))
		hidden := s.plan(func(p *toll.Plan) { p.IsListed = false })
		card := s.plan(func(p *toll.Plan) { p.Price.IsCrypto = false })
		s.agent(func(a *toll.Agent) { a.IsListed = false }, p)
		s.agent(nil)         // without a plan
		s.agent(nil, hidden) // whose plan nobody can order
		s.clock.add(time.Hour)
		a := s.agent(func(a *toll.Agent) {
			a.Metadata.Description, a.Metadata.Tags = "Ask the agent", []string{"Weather"}
			a.API.OpenEndpoints = []string{"https://a.example/health"}
			a.API.Endpoints = []toll.Endpoint{
				{Verb: "POST", URL: askURL}, {Verb: "GET", URL: "https://a.example/items/{id}"}, {Verb: "POST", URL: "mcp://demo/tools/ask"},
				{Verb: "GET", URL: "/path"}, {Verb: "GET", URL: "https://a.example/files/*"}, {Verb: "OPTIONS", URL: askURL}, {Verb: "GET", URL: "https://a.example/health"},
			}
		}, p)
		s.clock.add(time.Hour)
		s.agent(func(a *toll.Agent) {
			a.Metadata.Name, a.API.Endpoints = "Cards", []toll.Endpoint{{Verb: "DELETE", URL: "https://c.example/x"}}
		}, card, p)
		s.clock.add(listingAge)

		const ask, item, tool, cards = askURL, "https://a.example/items/:id", "mcp://demo/tools/ask", "https://c.example/x"
		for by, want := range map[x402.CatalogueFilter][]string{
			{}:                              {cards, ask, item, tool},
			{Type: "http"}:                  {cards, ask, item},
			{Type: "mcp"}:                   {tool},
			{Type: "ftp"}:                   nil,
			{Extension: "bazaar"}:           {cards, ask, item, tool},
			{Extension: "other"}:            nil,
			{Network: "eip155:84532"}:       {cards, ask, item, tool},
			{Network: "stripe"}:             {cards},
			{Network: "eip155:8453"}:        nil,
			{Scheme: "svc:card-delegation"}: {cards},
			{Scheme: "exact"}:               nil,
			{PayTo: b1.String()}:            {cards, ask, item, tool},
			{PayTo: strings.ToLower(b1.String()), Type: "mcp"}: {tool},
			{PayTo: b2.String()}: nil,
			{PayTo: "nobody"}:    nil,
			// One and the same entry has to pass.
			{Scheme: "svc:card-delegation", Network: "eip155:84532"}: nil,
		} {
			if got := s.resources(by); !slices.Equal(got, want) {
				t.Errorf("%+v: %q, want %q", by, got, want)
			}
		}
		c := must.Get(s.one().List(s.ctx, x402.CatalogueFilter{Type: "http"}, 1, 1))(s)
		b := must.Get(x402.Encode(c))(s)
		want := fmt.Sprintf(`{"x402Version":2,"items":[{"resource":"https://a.example/ask","type":"http","x402Version":2,"accepts":[{"scheme":"svc:erc4337","network":"eip155:84532","amount":"5","asset":"svc:credits","payTo":"%s","maxTimeoutSeconds":60,"planId":"%s","extra":{"version":"1","planId":"%s","agentId":"%s","httpVerb":"POST"}}],`+
			`"lastUpdated":1795266000,"lastUpdatedAt":"2026-11-21T13:00:00Z","description":"Ask the agent","metadata":{"agentId":"%s"},"extensions":{"bazaar":{"info":{"input":{"type":"http","method":"POST","bodyType":"json","body":{}}}}}}],"pagination":{"limit":1,"offset":1,"total":3}}`,
			b1, p.ID, p.ID, a.ID, a.ID)
		if string(b) != want {
			t.Errorf("got  %s\nwant %s", b, want)
		}
		if c, err := s.one().List(s.ctx, x402.CatalogueFilter{}, 10, 4); err != nil || len(c.Items) != 0 || c.Items == nil || c.Pagination.Total != 4 {
			t.Errorf("%+v, %v", c, err)
		}
		for _, i := range mustItems(s) {
			text := string(i.Extensions["bazaar"])
			switch i.Resource {
			case item:
				if text != `{"info":{"input":{"type":"http","method":"GET"}},"routeTemplate":"/items/:id"}` {
					t.Error(text)
				}
			case tool:
				if text != `{"info":{"input":{"type":"mcp","toolName":"ask","description":"Ask the agent","inputSchema":{"type":"object"}}}}` {
					t.Error(text)
				}
			}
		}

		// Search, part by part.
		find := func(query, cursor string, limit int) ([]string, *x402.FoundResources) {
			t.Helper()
			r := must.Get(s.one().Search(s.ctx, query, x402.CatalogueFilter{}, limit, cursor))(s)
			var out []string
			for _, i := range r.Resources {
				out = append(out, i.Resource)
			}
			if r.Pagination.Limit != len(out) || (r.Pagination.Cursor != nil) != r.PartialResults {
				t.Errorf("%+v", r)
			}
			return out, r
		}
		for query, want := range map[string][]string{
			"": {cards, ask, item, tool}, "WEATHER ask": {ask, item, tool}, "items": {item}, "nothing": nil, "basic": {cards, ask, item, tool}, "agent weather c.example": nil,
		} {
			if got, _ := find(query, "", 100); !slices.Equal(got, want) {
				t.Errorf("%q: %q, want %q", query, got, want)
			}
		}
		var all []string
		for cursor := ""; ; {
			got, r := find("", cursor, 1)
			all = append(all, got...)
			if r.Pagination.Cursor == nil {
				break
			}
			cursor = *r.Pagination.Cursor
		}
		if !slices.Equal(all, []string{cards, ask, item, tool}) {
			t.Errorf("part by part: %q", all)
		}
		for _, bad := range []string{"x", "MQ", "bm9uZSxrZXk", "===="} {
			_, err := s.one().Search(s.ctx, "", x402.CatalogueFilter{}, 1, bad)
			s.code(err, toll.CodeBadPage)
		}

		// What is taken off the list is gone here at once, and elsewhere soon.
		s.update(a, func(a *toll.Agent) { a.IsListed = false })
		if got := s.resources(x402.CatalogueFilter{}); !slices.Equal(got, []string{cards}) {
			t.Errorf("%q", got)
		}
		s.clock.add(listingAge)
		if c, err := s.other().List(s.ctx, x402.CatalogueFilter{}, 10, 0); err != nil || len(c.Items) != 1 {
			t.Errorf("elsewhere: %+v, %v", c, err)
		}
	})
}

func mustItems(s *scene) []x402.CatalogueItem {
	s.Helper()
	c := must.Get(s.one().List(s.ctx, x402.CatalogueFilter{}, 100, 0))(s)
	return c.Items
}

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
	s := sqlite(t)
	s.bigAgents(50) // 26 MiB of urls
	before := heap()
	must.Get(s.one().List(s.ctx, x402.CatalogueFilter{}, 1, 0))(s)
	if grown := heap() - before; grown > 100<<20 {
		t.Errorf("the catalogue takes %d MiB", grown>>20)
	}
	var most int64
	var mu sync.Mutex
	var readers sync.WaitGroup
	for i := range 8 {
		readers.Go(func() {
			for j := range 10 {
				c, err := s.one().List(s.ctx, x402.CatalogueFilter{}, 100, (i*10+j)*100)
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
	s := sqlite(t)
	s.bigAgents(2)
	var all, found []string
	for {
		c := must.Get(s.one().List(s.ctx, x402.CatalogueFilter{}, 100, len(all)))(s)
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
		r := must.Get(s.one().Search(s.ctx, "word", x402.CatalogueFilter{}, 100, cursor))(s)
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
	s := sqlite(t)
	for query, ok := range map[string]bool{
		strings.Repeat("a ", 16): true, strings.Repeat("a ", 17): false, strings.Repeat("a", 256): true, strings.Repeat("a", 257): false,
	} {
		_, err := s.one().Search(s.ctx, query, x402.CatalogueFilter{}, 10, "")
		if ok {
			must.Do(s, err)
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
			r := must.Get(s.one().Search(s.ctx, query, x402.CatalogueFilter{}, 10, ""))(s)
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
		must.Do(s, s.one().store.Tx(s.ctx, func(tx *store.Tx) error { return store.UpdatePlan(s.ctx, tx, q) }))
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
		must.Do(s, s.one().store.Tx(s.ctx, func(tx *store.Tx) error {
			_, err := store.AttachPlan(s.ctx, tx, b.ID, p.ID)
			return err
		}))
		s.clock.add(listingAge)
		if finds("basic") != 2 {
			t.Error("a plan that was attached does not show")
		}
		s.clock.add(time.Second)
		q.IsListed, q.UpdatedAt = false, s.clock.now()
		must.Do(s, s.one().store.Tx(s.ctx, func(tx *store.Tx) error {
			if err := store.UpdatePlan(s.ctx, tx, q); err != nil {
				return err
			}
			_, err := store.DetachPlan(s.ctx, tx, b.ID, p.ID)
			return err
		}))
		s.clock.add(listingAge)
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
		for _, a := range catalogue.WithinRoom(slices.Concat(all...), room) {
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
