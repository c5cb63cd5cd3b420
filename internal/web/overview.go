package web

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

// overviewPages are the first page of a workspace.
func overviewPages() []areaPage {
	return []areaPage{{
		Title: "Overview", Template: "overview", Group: groupSell, Nav: "Overview", Icon: "layout-grid", Key: "o",
		Right: toll.RightRead, Get: showOverview,
	}}
}

// overviewPage is how a seller's business goes, and what needs attention.
type overviewPage struct {
	Live   live
	Range  []segment
	Filter []field // nil: ToFilter leads to them
	Stats  []stat
	Charts []*chart
	Tasks  []task
	Latest *table // nil where the figures are of one plan or agent, as Sales
	Sales  *table
	Held   *table // what the workspace bought; nil: nothing
	Limits []bar  // of money that access tokens may spend
	To     string // all requests
	Buyer  bool   // nothing was sold: what was bought comes first

	ToFilter string
}

const (
	// mostRecent is how many records of another list a page shows.
	mostRecent = 5
	// mostLatest is how many settlements the overview shows.
	mostLatest = 8
	// soon is how long before its end a key needs attention.
	soon = 7 * 24 * time.Hour
)

func showOverview(v *visit) {
	p := periodOf(v)
	filter, q, ok := overviewFilter(v, p)
	if !ok {
		return
	}
	now, err0 := liveOf(v)
	u, err1 := usage(v, p, q)
	refused, err2 := refusals(v, p, q)
	tasks, err3 := tasks(v)
	held, pace, err4 := held(v, store.Page{Size: mostRecent})
	limits, err5 := limits(v)
	if v.failed("workspace", errors.Join(err0, err1, err2, err3, err4, err5)) {
		return
	}
	page := overviewPage{
		Live: now, Range: ranges(v, p), Filter: filter, ToFilter: v.base() + "?filter=yes&range=" + p.Key,
		Tasks: append(tasks, endingCredits(v, held, pace)...), Limits: limits, To: v.to("requests"),
	}
	worst := []string{"bad", "warn", "quiet"}
	slices.SortStableFunc(page.Tasks, func(a, b task) int { return slices.Index(worst, a.Tone) - slices.Index(worst, b.Tone) })
	if len(held.Items) > 0 {
		page.Held = heldTable(v, held, pace)
		page.Held.Pager = nil
	}
	var paid []*earned
	var payers []stat
	var err6, err7, err8, err9 error
	if q.Agent == nil { // neither is counted by agent
		paid, err6 = revenue(v, p, q)
		payers, err7 = payersOf(v, p, q.Plan)
	}
	if q.Plan == "" && q.Agent == nil {
		page.Latest, err8 = latest(v)
		var sold store.List[*toll.Order]
		sold, err9 = v.w.Checkout.Orders(v.ctx(), v.person.Address, checkout.OrderQuery{AsSeller: true, Page: store.Page{Size: mostRecent}})
		page.Sales = ordersTable(v, sold, nil)
		if page.Buyer = page.Held != nil && len(page.Latest.Rows)+len(sold.Items) == 0; page.Buyer {
			page.Sales = nil
		}
	}
	if v.failed("workspace", errors.Join(err6, err7, err8, err9)) {
		return
	}
	refusedStat := refused.stat()
	refusedStat.To = v.to("usage")
	if q.Agent == nil {
		page.Stats = revenueStats(paid, v.to("revenue"))
	}
	for _, s := range u.stats() {
		s.To = v.to("usage")
		page.Stats = append(page.Stats, s)
	}
	for _, s := range payers {
		s.To = v.to("subscribers")
		page.Stats = append(page.Stats, s)
	}
	page.Stats = append(page.Stats, refusedStat)
	if len(paid) > 0 {
		page.Charts = []*chart{newChart("Revenue in "+paid[0].currency, p, paid[0].amount, paid[0].format)}
	} else {
		page.Charts = []*chart{newChart("Credits burned", p, u.credits, plainNumber)}
	}
	v.draw("Overview", page)
}

// overviewFilter are the fields that narrow the overview, and what they say. The overview reads itself
// after each settlement, so that the choices are read only for who narrows it. It has answered when ok
// is false.
func overviewFilter(v *visit, p period) (fields []field, q checkout.UsageQuery, ok bool) {
	asked := v.r.URL.Query()
	if !slices.ContainsFunc([]string{"filter", "plan", "agent", "since", "until"}, asked.Has) {
		return nil, q, true
	}
	var plans, agents field
	if plans, q.Plan, ok = planFilter(v, "plan"); !ok {
		return nil, q, false
	}
	if agents, q.Agent, ok = agentFilter(v, "agent"); !ok {
		return nil, q, false
	}
	return rangeFields(v, p, []field{plans, agents}), q, true
}

// latest is a table of the newest settlements of plans of the workspace.
func latest(v *visit) (*table, error) {
	t := &table{
		Caption: "Latest settlements",
		Head: []column{
			{Text: "Time"}, {Text: "Agent"}, {Text: "Subscriber"}, {Text: "Plan"}, {Text: "Credits", Num: true}, {Text: "Left", Num: true},
		},
		Empty: &empty{
			Icon: "zap", Title: "No settlements yet", Text: "Each paid request to an agent of yours appears here at once.",
			To: v.to("agents"), Button: "Your agents",
		},
	}
	list, err := v.w.Events.List(v.ctx(), store.EventFilter{Principal: v.person.Address, Type: toll.EventSettlementSettled}, store.Page{Size: mostRows})
	if err != nil {
		return nil, err
	}
	var all []toll.Settlement
	var ids []toll.PlanID
	var agents []toll.AgentID
	for _, e := range list.Items {
		var s toll.Settlement
		if err := json.Unmarshal(e.Data, &s); err != nil {
			return nil, err
		}
		all, ids = append(all, s), append(ids, s.PlanID)
		if s.AgentID != nil {
			agents = append(agents, *s.AgentID)
		}
	}
	mine := map[toll.PlanID]*toll.Plan{}
	err = store.EachPlan(v.ctx(), v.w.Store, unique(ids), func(p *toll.Plan) error {
		if p.Owner == v.person.Address {
			mine[p.ID] = p
		}
		return nil
	})
	names, err2 := namesOf(v, nil, agents)
	for _, s := range all {
		p := mine[s.PlanID]
		if p == nil || len(t.Rows) == mostLatest {
			continue // this workspace is the buyer
		}
		agent := cell{Text: "no agent named"}
		if s.AgentID != nil {
			agent = cell{Text: names[string(*s.AgentID)], To: v.to("agents", string(*s.AgentID))}
		}
		if s.Resource != nil {
			agent.Sub = plain.Name(*s.Resource)
		}
		row := []cell{{}, agent, {ID: s.Payer.String()}, {Text: nameOf(p.Metadata.Name), To: v.to("plans", string(p.ID))}, {}, {}}
		if s.SettledAt != nil {
			row[0] = at(s.SettledAt.Time)
		}
		if s.CreditsRedeemed != nil {
			row[4] = credits(*s.CreditsRedeemed)
		}
		if s.RemainingBalance != nil {
			row[5] = credits(*s.RemainingBalance)
		}
		t.Rows = append(t.Rows, row)
	}
	return t, errors.Join(err, err2)
}

// tasks are what needs attention, the worst first.
func tasks(v *visit) (out []task, err error) {
	owner := v.person.Address
	hooks, err1 := v.w.Events.Webhooks(v.ctx(), owner, "", store.Page{Size: 100})
	keys, err2 := endingKeys(v)
	agents, err3 := store.AgentsOfOwner(v.ctx(), v.w.Store, owner, store.Page{Size: 1})
	plans, err4 := store.PlansOfOwner(v.ctx(), v.w.Store, owner, store.Page{Size: 1})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	for _, h := range hooks.Items {
		to := v.to("webhooks", h.ID)
		switch {
		case h.FailingSince != nil && h.Status == toll.WebhookPaused:
			out = append(out, task{"bad", "A webhook is paused, for it failed too long", plain.Name(h.URL), to, "Inspect"})
		case h.FailingSince != nil:
			out = append(out, task{"bad", "A webhook fails", "For the first time " + ago(h.FailingSince.Time, v.w.Clock()) + ": " + plain.Name(h.URL), to, "Inspect"})
		}
	}
	out = append(out, keys...)
	if p := v.person; p.User != nil && p.Workspace.Name == "" && p.Rights.Has(toll.RightMembers) {
		out = append(out, task{"quiet", "This workspace has no name", "Its members see the name in place of an address.", v.to("settings"), "Name it"})
	}
	if plans.Total == 0 {
		out = append(out, task{"warn", "You sell no plan", "Buyers pay for a plan, and your agents for its credits.", v.to("plans", "new"), "Make one"})
	}
	if agents.Total == 0 {
		out = append(out, task{"warn", "You have no agent", "An agent is a server that requests are paid for.", v.to("agents", "new"), "Register one"})
	}
	return out, nil
}

// endingKeys are the API keys of the workspace that end soon.
func endingKeys(v *visit) (out []task, err error) {
	now := v.w.Clock()
	list, err := v.w.Auth.Keys(v.ctx(), v.person.Address, store.Page{Size: 100})
	var older int64
	for _, k := range list.Items {
		if k.Status == toll.StatusActive && len(v.w.Changes(k.Version)) > 0 {
			older++
		}
		if k.Status != toll.StatusActive || k.ExpiresAt == nil || k.ExpiresAt.After(now.Add(soon)) || k.ExpiresAt.Before(now) || briefKey(k) {
			continue
		}
		text := "It was not used yet."
		if k.LastUsedAt != nil {
			text = "Used " + ago(k.LastUsedAt.Time, now) + "."
		}
		name := ""
		if k.Name != nil {
			name = *k.Name
		}
		out = append(out, task{"warn", "The key " + nameOf(name) + " ends " + ago(k.ExpiresAt.Time, now), text, v.to("keys", k.ID.String()), "Rotate"})
	}
	if older > 0 {
		out = append(out, task{"quiet", "The API has a newer version", count(older, "API key") + " with the answers of an older one.", v.to("keys"), "Compare"})
	}
	return out, err
}

// briefKey reports whether a key was made for a short time, as a sign-in makes one: its end surprises
// nobody.
func briefKey(k toll.APIKey) bool { return k.ExpiresAt.Sub(k.CreatedAt.Time) <= soon }

// live says which part of a page follows what happens.
type live struct {
	To    string // where the page waits for news
	After int64  // of the stream: what the page shows
}

// liveOf returns how the page follows the events of its workspace. It is read before what the page shows.
func liveOf(v *visit) (live, error) {
	last, err := store.LastSequences(v.ctx(), v.w.Store, []toll.Address{v.person.Address})
	return live{v.to("live"), last[v.person.Address]}, err
}
