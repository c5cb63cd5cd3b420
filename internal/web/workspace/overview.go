package workspace

import (
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
)

// overviewPage is how a seller's business goes, and what needs attention.
type overviewPage struct {
	Live   page.Live
	Range  []page.Segment
	Filter []page.Field // nil: ToFilter leads to them
	Stats  []page.Stat
	Charts []*page.Chart
	Tasks  []page.Task
	Latest *page.Table // nil where the figures are of one plan or agent, as Sales
	Sales  *page.Table
	Held   *page.Table // what the workspace bought; nil: nothing
	Limits []page.Bar  // of money that access tokens may spend
	To     string      // all requests
	Buyer  bool        // nothing was sold: what was bought comes first

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

func (w *pages) showOverview(c *page.Context) (page.View, error) {
	p := page.PeriodOf(c)
	filter, q, err := overviewFilter(c, p)
	if err != nil {
		return nil, err
	}
	now, err0 := w.liveOf(c)
	u, err1 := usage(c, p, q)
	refused, err2 := refusals(c, p, q)
	tasks, err3 := w.tasks(c)
	held, pace, err4 := held(c, page.Listing{Size: mostRecent})
	limits, err5 := limits(c)
	if err := errors.Join(err0, err1, err2, err3, err4, err5); err != nil {
		return nil, c.Failed("page", err)
	}
	body := overviewPage{
		Live: now, Range: page.Ranges(c, p), Filter: filter, ToFilter: c.Base() + "?filter=yes&range=" + p.Key,
		Tasks: append(tasks, endingCredits(c, held, pace)...), Limits: limits, To: c.To("requests"),
	}
	worst := []string{"bad", "warn", "quiet"}
	slices.SortStableFunc(body.Tasks, func(a, b page.Task) int { return slices.Index(worst, a.Tone) - slices.Index(worst, b.Tone) })
	if len(held.Items) > 0 {
		body.Held = heldTable(c, held, pace)
		body.Held.Pager = nil
	}
	var paid []*income
	var payers []page.Stat
	var err6, err7, err8, err9 error
	if !q.Has("agentId") { // neither is counted by agent
		paid, err6 = revenue(c, p, q)
		payers, err7 = w.payersOf(c, p, toll.PlanID(q.Get("planId")))
	}
	if toll.PlanID(q.Get("planId")) == "" && !q.Has("agentId") {
		body.Latest, err8 = w.latest(c)
		var sold page.List[*toll.Order]
		sold, err9 = page.PartOf[*toll.Order](c, list.Orders, url.Values{"role": {"seller"}, "pageSize": {strconv.Itoa(mostRecent)}})
		body.Sales = ordersTable(c, sold)
		body.Sales.Pager = nil
		if body.Buyer = body.Held != nil && len(body.Latest.Rows)+len(sold.Items) == 0; body.Buyer {
			body.Sales = nil
		}
	}
	if err := errors.Join(err6, err7, err8, err9); err != nil {
		return nil, c.Failed("page", err)
	}
	refusedStat := refused.stat()
	refusedStat.To = c.To("usage")
	if !q.Has("agentId") {
		body.Stats = revenueStats(paid, c.To("revenue"))
	}
	for _, s := range u.stats() {
		s.To = c.To("usage")
		body.Stats = append(body.Stats, s)
	}
	for _, s := range payers {
		s.To = c.To("subscribers")
		body.Stats = append(body.Stats, s)
	}
	body.Stats = append(body.Stats, refusedStat)
	if len(paid) > 0 {
		body.Charts = []*page.Chart{page.NewChart("Revenue in "+paid[0].currency, p, paid[0].amount, paid[0].format)}
	} else {
		body.Charts = []*page.Chart{page.NewChart("Credits burned", p, u.credits, page.PlainNumber)}
	}
	return c.Draw("Overview", body)
}

// overviewFilter are the fields that narrow the overview, and what they say. The overview reads itself
// after each settlement, so that the choices are read only for who narrows it.
func overviewFilter(c *page.Context, p page.Period) (fields []page.Field, q url.Values, err error) {
	q = url.Values{}
	asked := c.R.URL.Query()
	if !slices.ContainsFunc([]string{"filter", "plan", "agent", "since", "until"}, asked.Has) {
		return nil, q, nil
	}
	plans, plan, err := planFilter(c, "plan")
	if err != nil {
		return nil, q, err
	}
	q = planQuery(plan)
	agents, agent, err := agentFilter(c, "agent")
	if err != nil {
		return nil, q, err
	}
	if agent != nil {
		q.Set("agentId", string(*agent))
	}
	return page.RangeFields(c, p, []page.Field{plans, agents}), q, nil
}

// latest is a table of the newest settlements of plans of the workspace.
func (w *pages) latest(c *page.Context) (*page.Table, error) {
	all, plans, more, err := settlements(c, w, 2*mostLatest)
	if err == nil && more && len(all) < mostLatest {
		all, plans, _, err = settlements(c, w, page.MostRows)
	}
	if err != nil {
		return nil, err
	}
	var agents []toll.AgentID
	for _, s := range all {
		if s.AgentID != nil {
			agents = append(agents, *s.AgentID)
		}
	}
	names, err := w.namesOf(c, nil, agents)
	of := list.Requests.And(list.Time("settledAt"), list.Credits("remainingBalance", "Left")).
		Show("settledAt", "agentId", "payer", "planId", "creditsRedeemed", "remainingBalance")
	shown := page.List[toll.Settlement]{Items: all[:min(len(all), mostLatest)]}
	t := page.TableOf(c, of, "paid request", shown, func(s toll.Settlement, cell page.Cells) {
		*cell["agentId"] = agentCell(c, names, &s, true)
		*cell["planId"] = page.Cell{Text: page.NameOf(plans[s.PlanID].Metadata.Name), To: c.To("plans", string(s.PlanID))}
	})
	t.Empty = &page.Empty{
		Icon: "zap", Title: "No paid requests yet", Text: "Paid requests to your agents appear here immediately.",
		To: c.To("agents"), Button: "Your agents",
	}
	return t, err
}

// settlements reads the newest n settlements of the workspace, and returns the sold ones with their plans. It reports whether the
// workspace may have more settlements.
func settlements(c *page.Context, w *pages, n int) (sold []toll.Settlement, plans map[toll.PlanID]*toll.Plan, more bool, err error) {
	q := url.Values{"type": {string(toll.EventSettlementSettled)}, "pageSize": {strconv.Itoa(n)}}
	events, err := page.PartOf[*toll.Event](c, list.Events, q)
	if err != nil {
		return nil, nil, false, err
	}
	var ids []toll.PlanID
	for _, e := range events.Items {
		var s toll.Settlement
		if err := json.Unmarshal(e.Data, &s); err != nil {
			return nil, nil, false, err
		}
		sold, ids = append(sold, s), append(ids, s.PlanID)
	}
	plans, err = w.Records.Plans(c.Ctx(), unique(ids))
	sold = slices.DeleteFunc(sold, func(s toll.Settlement) bool { // the other settlements of plans that it bought
		return plans[s.PlanID] == nil || plans[s.PlanID].Owner != c.Person.Address
	})
	return sold, plans, len(events.Items) == n, err
}

// tasks are what needs attention, the worst first.
func (w *pages) tasks(c *page.Context) (out []page.Task, err error) {
	hooks, err1 := page.PartOf[*toll.Webhook](c, list.Webhooks, newest)
	keys, err2 := w.endingKeys(c)
	agents, err3 := page.PartOf[*toll.Agent](c, list.Agents, url.Values{"pageSize": {"1"}})
	plans, err4 := page.PartOf[*toll.Plan](c, list.Plans, url.Values{"pageSize": {"1"}})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	for _, h := range hooks.Items {
		to := c.To("webhooks", h.ID)
		switch {
		case h.FailingSince != nil && h.Status == toll.WebhookPaused:
			out = append(out, page.Task{Tone: "bad", Title: "A webhook is paused because it kept failing", Text: plain.Name(h.URL), To: to, Act: "Inspect"})
		case h.FailingSince != nil:
			out = append(out, page.Task{Tone: "bad", Title: "A webhook is failing", Text: "First failed " + page.Ago(h.FailingSince.Time, c.Clock()) + ": " + plain.Name(h.URL), To: to, Act: "Inspect"})
		}
	}
	out = append(out, keys...)
	if p := c.Person; p.User != nil && p.Workspace.Name == "" && p.Rights.Has(toll.RightMembers) {
		out = append(out, page.Task{Tone: "quiet", Title: "This workspace has no name", Text: "Members see the name instead of an address.", To: c.To("settings"), Act: "Name workspace"})
	}
	if plans.Total == 0 {
		out = append(out, page.Task{Tone: "warn", Title: "Create your first plan", Text: "Buyers pay for a plan and spend its credits on your agents.", To: c.To("plans", "new"), Act: "Create plan"})
	}
	if agents.Total == 0 {
		out = append(out, page.Task{Tone: "warn", Title: "Create your first agent", Text: "An agent is a server that charges subscribers per request.", To: c.To("agents", "new"), Act: "Create agent"})
	}
	return out, nil
}

// endingKeys are the API keys of the workspace that end soon.
func (w *pages) endingKeys(c *page.Context) (out []page.Task, err error) {
	now := c.Clock()
	list, err := page.PartOf[toll.APIKey](c, list.Keys, newest)
	var older int64
	for _, k := range list.Items {
		if k.Status == toll.StatusActive && len(w.Changes(k.Version)) > 0 {
			older++
		}
		if k.Status != toll.StatusActive || k.ExpiresAt == nil || k.ExpiresAt.After(now.Add(soon)) || k.ExpiresAt.Before(now) || briefKey(k) {
			continue
		}
		text := "Not used yet."
		if k.LastUsedAt != nil {
			text = "Used " + page.Ago(k.LastUsedAt.Time, now) + "."
		}
		name := ""
		if k.Name != nil {
			name = *k.Name
		}
		out = append(out, page.Task{Tone: "warn", Title: "API key " + page.NameOf(name) + " expires " + page.Ago(k.ExpiresAt.Time, now), Text: text, To: c.To("keys", k.ID.String()), Act: "Rotate"})
	}
	if older > 0 {
		out = append(out, page.Task{Tone: "quiet", Title: "A newer API version is available", Text: page.Count(older, "API key") + " on an older version.", To: c.To("keys"), Act: "Compare"})
	}
	return out, err
}

// briefKey reports whether a key was made for a short time, as a sign-in makes one: its end surprises nobody.
func briefKey(k toll.APIKey) bool { return k.ExpiresAt.Sub(k.CreatedAt.Time) <= soon }

// liveOf returns how the page follows the events of its workspace. It is read before what the page shows.
func (w *pages) liveOf(c *page.Context) (page.Live, error) {
	const before = -1 // the stream is longer, so that Wait returns at once
	last, err := w.Events.Wait(c.Ctx(), c.Person.Address, "", before, 0)
	return page.Live{To: c.To("live"), After: last}, err
}
