package workspace

import (
	"encoding/json"
	"errors"
	"math/big"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
)

// overviewPage has tasks, the sales of a seller, and the plans, spending, and receipts of a buyer.
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
	New    bool        // nothing was bought, and nothing is sold
	Start  string      // page that starts selling; "" for a person who may not

	Receipts, Spent *page.Table // of a buyer

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
	plans, err1 := ownPlans(c)
	agents, err2 := page.PartOf[*toll.Agent](c, list.Agents, newest)
	tasks, err3 := w.tasks(c)
	held, pace, err4 := held(c, page.Listing{Size: mostRecent})
	limits, err5 := limits(c)
	if err := errors.Join(err0, err1, err2, err3, err4, err5); err != nil {
		return nil, c.Failed("page", err)
	}
	body := overviewPage{
		Live: now, Range: page.Ranges(c, p), Filter: filter, Limits: limits, To: c.To("requests"),
	}
	if len(held.Items) > 0 {
		body.Held = heldTable(c, held, pace)
		body.Held.Pager = nil
	}
	switch sells := len(plans.Items)+len(agents.Items) > 0; {
	case sells || filter != nil:
		err = w.selling(c, &body, p, q)
	case body.Held != nil:
		err = w.buying(c, &body, p, held)
	default:
		body.Start = c.To("start")
		if !c.Person.Rights.Has(toll.RightManage) {
			body.Start = ""
		}
		body.New = true
	}
	open, err6 := unattached(c, plans.Items, agents)
	if err := errors.Join(err, err6); err != nil {
		return nil, c.Failed("page", err)
	}
	body.Tasks = slices.Concat(tasks, open, endingCredits(c, held, pace))
	if len(agents.Items) > 0 && len(plans.Items) == 0 {
		body.Tasks = append(body.Tasks, page.Task{
			Tone: "warn", Title: "Create your first plan", Text: "Buyers pay for a plan and spend its credits on your agents.", To: c.To("plans", "new"), Act: "Create plan",
		})
	}
	worst := []string{"bad", "warn", "quiet"}
	slices.SortStableFunc(body.Tasks, func(a, b page.Task) int { return slices.Index(worst, a.Tone) - slices.Index(worst, b.Tone) })
	return c.Draw("Overview", body)
}

// selling adds the figures of a seller.
func (w *pages) selling(c *page.Context, body *overviewPage, p page.Period, q url.Values) error {
	body.ToFilter = c.Base() + "?filter=yes&range=" + p.Key
	u, err1 := usage(c, p, q)
	refused, err2 := refusals(c, p, q)
	var paid []*income
	var payers []page.Stat
	var err3, err4, err5, err6 error
	if !q.Has("agentId") { // neither is counted by agent
		paid, err3 = revenue(c, p, q)
		payers, err4 = w.payersOf(c, p, toll.PlanID(q.Get("planId")))
	}
	if toll.PlanID(q.Get("planId")) == "" && !q.Has("agentId") {
		body.Latest, err5 = w.latest(c)
		var sold page.List[*toll.Order]
		sold, err6 = page.PartOf[*toll.Order](c, list.Orders, url.Values{"role": {"seller"}, "pageSize": {strconv.Itoa(mostRecent)}})
		body.Sales = ordersTable(c, sold)
		body.Sales.Pager = nil
	}
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return err
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
	return nil
}

// buying adds the figures of a workspace that only buys: its credits, access tokens, spending, and receipts.
func (w *pages) buying(c *page.Context, body *overviewPage, p page.Period, held page.List[*toll.Balance]) error {
	recent := strconv.Itoa(mostRecent)
	u, err1 := usage(c, p, url.Values{"role": {"buyer"}})
	tokens, err2 := page.PartOf[*toll.Permission](c, list.Permissions, url.Values{"status": {string(toll.StatusActive)}, "pageSize": {"100"}})
	orders, err3 := page.PartOf[*toll.Order](c, list.Orders, url.Values{"role": {"buyer"}, "pageSize": {recent}})
	paid, err4 := page.PartOf[*toll.Settlement](c, list.Requests, url.Values{"role": {"buyer"}, "status": {"settled"}, "pageSize": {recent}})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	left := new(big.Int)
	for _, b := range held.Items {
		left.Add(left, big.NewInt(int64(b.Available)))
	}
	note := ""
	if held.Next != "" {
		note = "of the newest " + page.Count(int64(len(held.Items)), "plan")
	}
	count := strconv.Itoa(len(tokens.Items))
	if tokens.Next != "" {
		count = "more than " + count
	}
	body.Stats = []page.Stat{{Label: "Credits left", Value: page.Grouped(left.String()), Note: note, To: c.To("holdings")}}
	for _, s := range u.stats() {
		s.To = c.To("requests") + "?role=buyer"
		body.Stats = append(body.Stats, s)
	}
	body.Stats = append(body.Stats, page.Stat{Label: "Active access tokens", Value: count, To: c.To("tokens")})
	body.Charts = []*page.Chart{page.NewChart("Credits burned", p, u.credits, page.PlainNumber)}
	body.Spent = tableOfOrders(c, list.Orders.Show("orderId", "status", "amount", "creditsGranted", "createdAt"), orders)
	body.Spent.Empty = &page.Empty{Icon: "shopping-cart", Title: "No orders yet", Text: "Plans that you order appear here with their price."}
	var err error
	if body.Receipts, err = w.requestsTable(c, paid, true); err != nil {
		return err
	}
	body.Receipts.Empty = &page.Empty{Icon: "receipt", Title: "No receipts yet", Text: "Each paid request appears here with a link to its receipt."}
	body.Spent.Pager, body.Receipts.Pager = nil, nil
	return nil
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
	all, plans, more, err := settlements(c, w.Records, 2*mostLatest)
	if err == nil && more && len(all) < mostLatest {
		all, plans, _, err = settlements(c, w.Records, page.MostRows)
	}
	if err != nil {
		return nil, err
	}
	t, err := w.paidTable(c, all[:min(len(all), mostLatest)], plans)
	if t != nil {
		t.Empty = &page.Empty{
			Icon: "zap", Title: "No paid requests yet", Text: "Paid requests to your agents appear here immediately.",
			To: c.To("agents"), Button: "Your agents",
		}
	}
	return t, err
}

// paidTable is a table of settlements of plans of the workspace.
func (d *Deps) paidTable(c *page.Context, sold []toll.Settlement, plans map[toll.PlanID]*toll.Plan) (*page.Table, error) {
	var agents []toll.AgentID
	for _, s := range sold {
		if s.AgentID != nil {
			agents = append(agents, *s.AgentID)
		}
	}
	names, err := d.namesOf(c, nil, agents)
	if err != nil {
		return nil, err
	}
	of := list.Requests.And(list.Time("settledAt"), list.Credits("remainingBalance", "Left")).
		Show("settledAt", "agentId", "payer", "planId", "creditsRedeemed", "remainingBalance")
	return page.TableOf(c, of, "paid request", page.List[toll.Settlement]{Items: sold}, func(s toll.Settlement, cell page.Cells) {
		*cell["agentId"] = agentCell(c, names, &s, true)
		if s.Payer == c.Person.Address {
			*cell["payer"] = page.Cell{Text: "this workspace"}
		}
		*cell["planId"] = page.Cell{Text: page.NameOf(plans[s.PlanID].Metadata.Name), To: c.To("plans", string(s.PlanID))}
	}), nil
}

// settlements reads the newest n settlements of the workspace, and returns the sold ones with their plans. It reports whether the
// workspace may have more settlements.
func settlements(c *page.Context, r Records, n int) (sold []toll.Settlement, plans map[toll.PlanID]*toll.Plan, more bool, err error) {
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
	plans, err = r.Plans(c.Ctx(), unique(ids))
	sold = slices.DeleteFunc(sold, func(s toll.Settlement) bool { // the other settlements of plans that it bought
		return plans[s.PlanID] == nil || plans[s.PlanID].Owner != c.Person.Address
	})
	return sold, plans, len(events.Items) == n, err
}

// tasks returns the tasks of the workspace, the most urgent first.
func (w *pages) tasks(c *page.Context) (out []page.Task, err error) {
	hooks, err1 := page.PartOf[*toll.Webhook](c, list.Webhooks, newest)
	keys, err2 := w.endingKeys(c)
	if err := errors.Join(err1, err2); err != nil {
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
func (d *Deps) liveOf(c *page.Context) (page.Live, error) {
	const before = -1 // the stream is longer, so that Wait returns at once
	last, err := d.Events.Wait(c.Ctx(), c.Person.Address, "", before, 0)
	return page.Live{To: c.To("live"), After: last}, err
}
