package catalogue

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

const (
	// listingTTL is how old the list may be. Every caller sees the same list, so one read serves all.
	listingTTL = 5 * time.Second
	// listedAgents and listedBytes bound the list. Owners share the room: an owner who needs less than its share has all agents listed.
	listedAgents = 10_000
	listedBytes  = 64 << 20
	// planBytes is what a plan of an agent counts in addition to the texts of the agent.
	planBytes = 256
	// maxChanged bounds the noted changes. Beyond it everything is read again, which the id everything stands for.
	maxChanged = 10_000
	everything = ""
)

// listing is what anyone can buy. It stores each text once and refers to it from items, so its size is that of the texts. It never
// changes; the next listing shares what did not change.
type listing struct {
	agents map[toll.AgentID]*listedAgent
	plans  map[toll.PlanID]*listedPlan
	items  []item         // last updated first
	sorted []*listedAgent // the same agents, last updated first
}

type listedAgent struct {
	stamp       *store.ListedAgent // the record that it was made from
	updated     int64              // microseconds since 1970
	description string
	text        string // in lower case: what a search looks through in addition to plans and URLs
	plans       []*listedPlan
	endpoints   []listedEndpoint         // sorted by their keys
	said        map[int]store.Discovered // by position, for endpoints that payments described
}

// listedPlan is a plan that agents share.
type listedPlan struct {
	updated int64
	terms   *x402.Terms
	name    string // in lower case
}

// listedEndpoint is an endpoint with an item. Its position in the agent is part of the item's key.
type listedEndpoint struct {
	resource string // as it is shown
	lower    string // the same in lower case, mostly the same text
	verb     string
	position int
	template bool // the path of the resource is a template
}

// item is one endpoint of the listing.
type item struct {
	agent *listedAgent
	index int
}

func (i item) endpoint() *listedEndpoint { return &i.agent.endpoints[i.index] }

func (i item) updated() int64 {
	if d, ok := i.agent.said[i.endpoint().position]; ok {
		return max(i.agent.updated, d.UpdatedAt.UnixMicro())
	}
	return i.agent.updated
}

func (i item) kind() string {
	if r := i.endpoint().resource; strings.EqualFold(r[:min(len(r), 4)], "mcp:") {
		return x402.ResourceMCP
	}
	return x402.ResourceHTTP
}

// spot is a position in the order of the listing, last updated first. The unique key orders equal times.
type spot struct {
	updated int64
	key     string
}

func (s spot) compare(o spot) int {
	return cmp.Or(cmp.Compare(o.updated, s.updated), strings.Compare(s.key, o.key))
}

func (l *listedAgent) spot() spot { return spot{l.updated, string(l.stamp.ID)} }

func (i item) spot() spot {
	return spot{i.updated(), string(i.agent.stamp.ID) + "/" + strconv.Itoa(i.endpoint().position)}
}

// noteChange shows a change by this process to an agent or a plan in the listing at once, even if its times did not change.
func (c *Catalogue) noteChange(ids ...string) {
	c.changedMu.Lock()
	for _, id := range ids {
		if c.changed == nil {
			c.changed = map[string]bool{}
		} else if len(c.changed) >= maxChanged {
			c.changed = map[string]bool{everything: true}
		}
		c.changed[id] = true
	}
	c.changedMu.Unlock()
	c.listing.Forget(struct{}{})
}

// readListing lists the endpoints and tools of listed agents with a listed plan. Only one call runs at a time.
func (c *Catalogue) readListing(ctx context.Context, _ struct{}) (*listing, error) {
	c.changedMu.Lock()
	changed := c.changed
	c.changed = nil
	c.changedMu.Unlock()
	l, err := c.renew(ctx, changed)
	if err != nil {
		c.noteChange(slices.Collect(maps.Keys(changed))...)
		return nil, err
	}
	c.last = l
	return l, nil
}

// renew returns a listing, for which it reads only the texts of what changed since the last one.
func (c *Catalogue) renew(ctx context.Context, changed map[string]bool) (*listing, error) {
	last := c.last
	if last == nil || changed[everything] {
		last = &listing{}
	}
	agents, err := store.ListedAgents(ctx, c.store, listedAgents)
	if err != nil {
		return nil, err
	}
	agents = withinRoom(agents, listedBytes)
	l := &listing{agents: make(map[toll.AgentID]*listedAgent, len(agents)), plans: map[toll.PlanID]*listedPlan{}}
	if err := c.renewPlans(ctx, l, last, changed, agents); err != nil {
		return nil, err
	}
	read := map[toll.AgentID]*listedAgent{}
	var ids, described []toll.AgentID
	for _, a := range agents {
		if known := last.agents[a.ID]; known != nil && !changed[string(a.ID)] && known.isOf(a, l.plans) {
			l.agents[a.ID] = known
			continue
		}
		read[a.ID] = &listedAgent{stamp: a}
		ids = append(ids, a.ID)
		if a.Said > 0 {
			described = append(described, a.ID)
		}
	}
	said := map[toll.AgentID][]store.Discovered{}
	err = store.EachDiscovered(ctx, c.store, described, func(d store.Discovered) error {
		said[d.Agent] = append(said[d.Agent], d)
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = store.EachAgent(ctx, c.store, ids, func(a *toll.Agent) error {
		listed := read[a.ID]
		for _, p := range listed.stamp.Plans {
			if known := l.plans[p.ID]; known != nil { // else it was unlisted meanwhile
				listed.plans = append(listed.plans, known)
			}
		}
		if a.IsListed && len(listed.plans) > 0 {
			listed.fill(a, said[a.ID])
			l.agents[a.ID] = listed
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.sort()
	return l, nil
}

// renewPlans takes over the plans that did not change, and reads the others.
func (c *Catalogue) renewPlans(ctx context.Context, l, last *listing, changed map[string]bool, agents []*store.ListedAgent) error {
	missing := map[toll.PlanID]bool{}
	for _, a := range agents {
		for _, p := range a.Plans {
			if known := last.plans[p.ID]; known != nil && known.updated == p.UpdatedAt && !changed[string(p.ID)] {
				l.plans[p.ID] = known
			} else {
				missing[p.ID] = true
			}
		}
	}
	return store.EachPlan(ctx, c.store, slices.Sorted(maps.Keys(missing)), func(p *toll.Plan) error {
		if p.IsListed {
			l.plans[p.ID] = &listedPlan{store.Micros(p.UpdatedAt), c.Brand.Terms(p), strings.ToLower(p.Metadata.Name)}
		}
		return nil
	})
}

// withinRoom returns the agents whose texts fit into the room. Each owner has the same share, and owners that need more divide what
// the others leave. An owner above its share keeps the agents that were updated last.
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

// fill sets what the listing shows of an agent. It leaves out endpoints that are paths or end in a wildcard, because no URL calls them.
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

// listedOf returns how the listing shows an endpoint, or false when it cannot.
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

func (l *listing) sort() {
	type run struct { // items of one agent with one time
		agent     *listedAgent
		spot      spot
		endpoints []int
	}
	var runs []run
	for _, a := range l.agents {
		byTime := map[int64][]int{}
		for i := range a.endpoints {
			at := item{a, i}.updated()
			byTime[at] = append(byTime[at], i)
		}
		for at, endpoints := range byTime {
			runs = append(runs, run{a, spot{at, string(a.stamp.ID) + "/"}, endpoints})
		}
	}
	slices.SortFunc(runs, func(a, b run) int { return a.spot.compare(b.spot) })
	for _, r := range runs {
		for _, i := range r.endpoints {
			l.items = append(l.items, item{r.agent, i})
		}
	}
	l.sorted = slices.SortedFunc(maps.Values(l.agents), func(a, b *listedAgent) int { return a.spot().compare(b.spot()) })
}
