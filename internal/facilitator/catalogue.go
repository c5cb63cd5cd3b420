package facilitator

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

const (
	// catalogueTTL is how old the catalogue may be. It is the same for everybody, so one read serves all.
	catalogueTTL = 5 * time.Second
	// catalogueAgents and catalogueBytes bound the catalogue. Owners share the room: those who need least have all of theirs.
	catalogueAgents = 10_000
	catalogueBytes  = 64 << 20
	// planBytes is what a plan of an agent counts beside the texts of the agent.
	planBytes = 256
)

// catalogue is what can be bought of everybody. It holds each text once, and items only as places in it, so its size is that
// of the texts. It never changes; the next one shares with it what did not change.
type catalogue struct {
	agents map[toll.AgentID]*listedAgent
	plans  map[toll.PlanID]*listedPlan
	items  []place        // last updated first
	listed []*listedAgent // the same agents, last updated first
}

// listedAgent is what all items of an agent share.
type listedAgent struct {
	stamp       *store.ListedAgent // of what it was made
	updated     int64              // microseconds since 1970
	description string
	text        string // in lower case: what a search looks through beside plans and url
	plans       []*listedPlan
	endpoints   []listedEndpoint         // by their keys
	said        map[int]store.Discovered // by position, of endpoints that payments described
}

// listedPlan is a plan that agents share.
type listedPlan struct {
	updated int64
	terms   *x402.Terms
	name    string // in lower case
}

// listedEndpoint is an endpoint that has an item. Its position in the agent is part of the item's key.
type listedEndpoint struct {
	resource string // as it is shown
	lower    string // the same in lower case, mostly the same text
	verb     string
	position int
	template bool // the path of the resource is a template
}

// place is an item of the catalogue.
type place struct {
	agent    *listedAgent
	endpoint int
}

func (p place) listed() *listedEndpoint { return &p.agent.endpoints[p.endpoint] }

func (p place) updated() int64 {
	if d, ok := p.agent.said[p.listed().position]; ok {
		return max(p.agent.updated, d.UpdatedAt.UnixMicro())
	}
	return p.agent.updated
}

// key is unique, and orders items that were updated at the same time.
func (p place) key() string {
	return string(p.agent.stamp.ID) + "/" + strconv.Itoa(p.listed().position)
}

// compare returns a positive number when l stands before the place with these values, which is the
// place of an agent: what was updated last comes first.
func (l *listedAgent) compare(updated int64, id string) int {
	return cmp.Or(cmp.Compare(l.updated, updated), strings.Compare(id, string(l.stamp.ID)))
}

// kind is the type of an item.
func (p place) kind() string {
	if r := p.listed().resource; strings.EqualFold(r[:min(len(r), 4)], "mcp:") {
		return x402.ResourceMCP
	}
	return x402.ResourceHTTP
}

// staleRecords are agents and plans that this process changed: what the catalogue has of them is read again, also when their
// times say that nothing changed.
type staleRecords struct {
	mu  sync.Mutex
	ids map[string]bool
	all bool
}

// maxStale bounds the ids that are remembered; beyond it everything is read again.
const maxStale = 10_000

func (s *staleRecords) add(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[string]bool{}
	}
	for _, id := range ids {
		if s.all = s.all || len(s.ids) >= maxStale; s.all {
			clear(s.ids)
			return
		}
		s.ids[id] = true
	}
}

// take empties the set and returns what was in it.
func (s *staleRecords) take() (ids map[string]bool, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids, all = s.ids, s.all
	s.ids, s.all = nil, false
	return ids, all
}

// forgetListed makes a change of this process to an agent or a plan show in the catalogue at once.
func (f *Facilitator) forgetListed(id string) {
	f.stale.add(id)
	f.catalogue.forget(struct{}{})
}

// readCatalogue makes the catalogue: the endpoints and tools of listed agents with a listed plan. It reads the texts of what
// changed since the last one.
func (f *Facilitator) readCatalogue(ctx context.Context, _ struct{}) (*catalogue, error) {
	ids, all := f.stale.take()
	c, err := f.renewCatalogue(ctx, f.lastCatalogue, ids, all)
	if err != nil {
		f.stale.add(slices.Collect(maps.Keys(ids))...)
		if all {
			f.stale.mu.Lock()
			f.stale.all = true
			f.stale.mu.Unlock()
		}
		return nil, err
	}
	f.lastCatalogue = c // only one read of the catalogue runs at a time
	return c, nil
}

func (f *Facilitator) renewCatalogue(ctx context.Context, last *catalogue, stale map[string]bool, all bool) (*catalogue, error) {
	if last == nil || all {
		last = &catalogue{}
	}
	agents, err := store.ListedAgents(ctx, f.Store, catalogueAgents)
	if err != nil {
		return nil, err
	}
	agents = withinRoom(agents, catalogueBytes)
	c := &catalogue{agents: make(map[toll.AgentID]*listedAgent, len(agents)), plans: map[toll.PlanID]*listedPlan{}}
	if err := f.renewPlans(ctx, c, last, stale, agents); err != nil {
		return nil, err
	}
	changed := map[toll.AgentID]*listedAgent{}
	var ids, described []toll.AgentID
	for _, a := range agents {
		if known := last.agents[a.ID]; known != nil && !stale[string(a.ID)] && known.isOf(a, c.plans) {
			c.agents[a.ID] = known
			continue
		}
		changed[a.ID] = &listedAgent{stamp: a}
		ids = append(ids, a.ID)
		if a.Said > 0 {
			described = append(described, a.ID)
		}
	}
	said := map[toll.AgentID][]store.Discovered{}
	err = store.EachDiscovered(ctx, f.Store, described, func(d store.Discovered) error {
		said[d.Agent] = append(said[d.Agent], d)
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = store.EachAgent(ctx, f.Store, ids, func(a *toll.Agent) error {
		l := changed[a.ID]
		for _, p := range l.stamp.Plans {
			if known := c.plans[p.ID]; known != nil { // else it has gone meanwhile
				l.plans = append(l.plans, known)
			}
		}
		if a.IsListed && len(l.plans) > 0 {
			l.fill(a, said[a.ID])
			c.agents[a.ID] = l
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.sort()
	return c, nil
}

// renewPlans takes over the plans that did not change, and reads the others.
func (f *Facilitator) renewPlans(ctx context.Context, c, last *catalogue, stale map[string]bool, agents []*store.ListedAgent) error {
	missing := map[toll.PlanID]bool{}
	for _, a := range agents {
		for _, p := range a.Plans {
			if known := last.plans[p.ID]; known != nil && known.updated == p.UpdatedAt && !stale[string(p.ID)] {
				c.plans[p.ID] = known
			} else {
				missing[p.ID] = true
			}
		}
	}
	return store.EachPlan(ctx, f.Store, slices.Sorted(maps.Keys(missing)), func(p *toll.Plan) error {
		if p.IsListed {
			c.plans[p.ID] = &listedPlan{store.Micros(p.UpdatedAt), f.termsOf(p), strings.ToLower(p.Metadata.Name)}
		}
		return nil
	})
}

// withinRoom returns the agents whose texts fit into the room. Each owner may have the same share, and what some do not need the
// others have. Of an owner who needs more, those that were last updated stay.
func withinRoom(agents []*store.ListedAgent, room int64) []*store.ListedAgent {
	size := func(a *store.ListedAgent) int64 { return a.Bytes + int64(len(a.Plans))*planBytes }
	needs := map[string]int64{}
	for _, a := range agents {
		needs[a.Owner] += size(a)
	}
	share, left := room, room
	for i, need := range slices.Sorted(maps.Values(needs)) {
		share = left / int64(len(needs)-i)
		if need > share {
			break
		}
		left -= need
	}
	used := map[string]int64{}
	return slices.DeleteFunc(agents, func(a *store.ListedAgent) bool {
		if needs[a.Owner] > share && used[a.Owner]+size(a) > share {
			return true
		}
		used[a.Owner] += size(a)
		return false
	})
}

// isOf reports whether l was made of these records.
func (l *listedAgent) isOf(a *store.ListedAgent, plans map[toll.PlanID]*listedPlan) bool {
	s := l.stamp
	if s.UpdatedAt != a.UpdatedAt || s.Bytes != a.Bytes || s.Said != a.Said || s.SaidAt != a.SaidAt || len(l.plans) != len(a.Plans) {
		return false
	}
	for i, p := range a.Plans {
		if l.plans[i] != plans[p.ID] {
			return false
		}
	}
	return true
}

// fill takes what the catalogue shows of an agent. Endpoints that are paths, or that end in a wildcard, have no url to call and
// are left out.
func (l *listedAgent) fill(a *toll.Agent, said []store.Discovered) {
	l.updated, l.description = store.Micros(a.UpdatedAt), a.Metadata.Description
	l.text = strings.ToLower(strings.Join(append([]string{a.Metadata.Name, a.Metadata.Description}, a.Metadata.Tags...), "\n"))
	for i, e := range a.API.Endpoints {
		listed, ok := listedOf(e)
		if !ok || slices.Contains(a.API.OpenEndpoints, e.URL) {
			continue
		}
		listed.position, listed.lower = i, strings.ToLower(listed.resource)
		l.endpoints = append(l.endpoints, listed)
		for _, d := range said {
			if d.Verb == e.Verb && d.URL == e.URL {
				if l.said == nil {
					l.said = map[int]store.Discovered{}
				}
				d.URL, d.Verb = "", "" // the endpoint has them
				l.said[i] = d
			}
		}
	}
	// The order of the keys.
	slices.SortFunc(l.endpoints, func(a, b listedEndpoint) int {
		return strings.Compare(strconv.Itoa(a.position), strconv.Itoa(b.position))
	})
}

// listedOf returns how the catalogue shows an endpoint; false when it has no place for it.
func listedOf(e toll.Endpoint) (l listedEndpoint, ok bool) {
	l.verb = toll.Verbs[max(slices.Index(toll.Verbs, e.Verb), 0)] // one text for all
	if _, ok := x402.ToolOf(e.URL); ok {
		l.resource = e.URL
		return l, true
	}
	if e.Verb == "OPTIONS" { // the extension has no such method
		return l, false
	}
	resource, template, ok := x402.RouteOf(e.URL)
	l.resource, l.template = resource, template != ""
	return l, ok
}

// sort makes the items of the agents, in their order.
func (c *catalogue) sort() {
	type run struct { // items of one agent with one time stand together
		agent     *listedAgent
		updated   int64
		endpoints []int
	}
	var runs []run
	n := 0
	for _, a := range c.agents {
		n += len(a.endpoints)
		byTime := map[int64][]int{}
		for i := range a.endpoints {
			at := place{a, i}.updated()
			byTime[at] = append(byTime[at], i)
		}
		for at, endpoints := range byTime {
			runs = append(runs, run{a, at, endpoints})
		}
	}
	slices.SortFunc(runs, func(a, b run) int {
		return cmp.Or(cmp.Compare(b.updated, a.updated), strings.Compare(string(a.agent.stamp.ID)+"/", string(b.agent.stamp.ID)+"/"))
	})
	c.listed = slices.SortedFunc(maps.Values(c.agents), func(a, b *listedAgent) int {
		return b.compare(a.updated, string(a.stamp.ID))
	})
	c.items = make([]place, 0, n)
	for _, r := range runs {
		for _, i := range r.endpoints {
			c.items = append(c.items, place{r.agent, i})
		}
	}
}
