package workspace

import (
	"cmp"
	"errors"
	"maps"
	"math/big"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
)

// planQuery narrows sums to a plan, "" for all.
func planQuery(plan toll.PlanID) url.Values {
	if plan == "" {
		return url.Values{}
	}
	return url.Values{"planId": {string(plan)}}
}

// query narrows a query of sums to a period, by its steps or by another word.
func query(p page.Period, q url.Values, by string) url.Values {
	const form = "2006-01-02T15:04:05.000Z"
	q = maps.Clone(q)
	q.Set("since", p.Since.Format(form))
	q.Set("until", p.Until.Format(form))
	if q.Set("by", cmp.Or(by, "day")); by == "" && p.Step == time.Hour {
		q.Set("by", "hour")
	}
	return q
}

// maxSums bounds how many sums a page reads for one of its lists: those of a year in some currencies.
const maxSums = 4000

// sumsOf reads the sums of a list (usage, revenue or refusals) that a query names, at most maxSums of them.
func sumsOf[T any](c *page.Context, of list.List, q url.Values) (all []T, err error) {
	page.SetPage(q, page.Listing{Size: 100, Ascending: true})
	for {
		list, err := page.PartOf[T](c, of, q)
		if err != nil {
			return nil, err
		}
		all = append(all, list.Items...)
		if list.Next == "" || len(all) >= maxSums {
			return all, nil
		}
		q.Set("cursor", list.Next)
	}
}

// used is what was settled.
type used struct {
	settled, credits page.Pair
	took             []int64 // see [toll.Usage.HoldToSettle]
}

// usage reads what was settled in a period and in the one before it.
func usage(c *page.Context, p page.Period, q url.Values) (u used, err error) {
	var err1, err2 error
	u.settled.Now, u.credits.Now, u.took, err1 = settled(c, p, q)
	u.settled.Before, u.credits.Before, _, err2 = settled(c, p.Before(), q)
	return u, errors.Join(err1, err2)
}

func settled(c *page.Context, p page.Period, q url.Values) (settled, credits page.Numbers, took []int64, err error) {
	rows, err := sumsOf[*toll.Usage](c, list.Usage, query(p, q, ""))
	settled, credits, took = p.Zeros(), p.Zeros(), make([]int64, len(toll.UsageTimes)+1)
	for _, r := range rows {
		settled.Add(p, r.Start, big.NewInt(r.Settled))
		credits.Add(p, r.Start, r.Credits.Int())
		for i, n := range r.HoldToSettle {
			took[i] += n
		}
	}
	return settled, credits, took, err
}

func (u used) stats() []page.Stat {
	return []page.Stat{
		u.settled.Stat("Paid requests", "", page.PlainNumber, true), u.credits.Stat("Credits burned", "", page.PlainNumber, true),
	}
}

// median is how long half of the requests took at most, from hold to settlement.
func (u used) median() string {
	all, seen := int64(0), int64(0)
	for _, n := range u.took {
		all += n
	}
	if all == 0 {
		return "no data yet"
	}
	for i, n := range u.took {
		if seen += n; 2*seen >= all && i < len(toll.UsageTimes) {
			return "half of the requests within " + toll.UsageTimes[i].String()
		}
	}
	return "half of the requests took longer than " + toll.UsageTimes[len(toll.UsageTimes)-1].String()
}

const (
	// mostCounted is of how many plans a page counts the subscribers.
	mostCounted = 20
	// countedLife is how long a page shows such a count again: it reads a row of each subscriber and day, and the overview reads
	// itself after every settlement. mostPayers bounds the counts that are kept.
	countedLife, mostPayers = time.Minute, 10_000
)

// payersKey is what a count of subscribers is of.
type payersKey struct {
	workspace    toll.Address
	plan         toll.PlanID // "" for all
	since, until time.Time
}

// payersOf is how many subscribers paid for requests in a period and in the one before it: of one
// plan, or of each plan that was used. The API counts them by whole days and for one plan, so there
// is no figure for hours, and none where more plans were used than a page may count.
func (w *pages) payersOf(c *page.Context, p page.Period, plan toll.PlanID) ([]page.Stat, error) {
	if p.Step == time.Hour {
		return nil, nil
	}
	key, now := payersKey{c.Person.Address, plan, p.Since, p.Until}, c.Machine()
	if known, ok := w.payers.Get(key, now); ok {
		return known, nil
	}
	stats, counted, err := countPayers(c, p, plan)
	if err == nil && counted > 0 { // the first one shows at once
		w.payers.Put(key, stats, now.Add(countedLife), now)
	}
	return stats, err
}

// countPayers also returns of how many plans it counted.
func countPayers(c *page.Context, p page.Period, plan toll.PlanID) (stats []page.Stat, counted int, err error) {
	var of page.Pair
	plans := map[toll.PlanID]bool{}
	for _, in := range []struct {
		of *page.Numbers
		page.Period
	}{{&of.Now, p}, {&of.Before, p.Before()}} {
		used, err := usedPlans(c, in.Period, plan)
		if err != nil || len(used) > mostCounted {
			return nil, 0, err
		}
		*in.of = page.Numbers{new(big.Int)}
		for _, id := range used {
			q := query(in.Period, planQuery(id), "subscriber")
			page.SetPage(q, page.Listing{Size: 1})
			list, err := page.PartOf[*toll.Usage](c, list.Usage, q)
			if err != nil {
				return nil, 0, err
			}
			plans[id] = true
			own, err := settledBy(c, in.Period, id, c.Person.Address)
			if err != nil {
				return nil, 0, err
			}
			if own {
				list.Total-- // test requests of the seller
			}
			(*in.of)[0].Add((*in.of)[0], big.NewInt(list.Total))
		}
	}
	s := of.Stat("Paying subscribers", "", page.PlainNumber, true)
	if len(plans) > 1 {
		s.Note += ", counted per plan"
	}
	return []page.Stat{s}, len(plans), nil
}

// settledBy reports whether requests of a subscriber were settled in a period.
func settledBy(c *page.Context, p page.Period, plan toll.PlanID, subscriber toll.Address) (bool, error) {
	q := query(p, planQuery(plan), "day")
	q.Set("subscriber", subscriber.String())
	page.SetPage(q, page.Listing{Size: 1})
	days, err := page.PartOf[*toll.Usage](c, list.Usage, q)
	return len(days.Items) > 0, err
}

// usedPlans are the plans whose requests were settled in a period, or the one that is chosen.
func usedPlans(c *page.Context, p page.Period, chosen toll.PlanID) (ids []toll.PlanID, err error) {
	if chosen != "" {
		return []toll.PlanID{chosen}, nil
	}
	q := query(p, url.Values{}, "plan")
	page.SetPage(q, page.Listing{Size: mostCounted + 1})
	list, err := page.PartOf[*toll.Usage](c, list.Usage, q)
	for _, u := range list.Items {
		ids = append(ids, u.PlanID)
	}
	return ids, err
}

// refused is what was refused, by reason.
type refused struct {
	now, before map[string]int64
	steps       page.Pair
}

// refusals reads what was refused in a period and in the one before it.
func refusals(c *page.Context, p page.Period, q url.Values) (r refused, err error) {
	var err1, err2, err3, err4 error
	r.now, err1 = reasons(c, p, q)
	r.before, err2 = reasons(c, p.Before(), q)
	r.steps.Now, err3 = refusedIn(c, p, q)
	r.steps.Before, err4 = refusedIn(c, p.Before(), q)
	return r, errors.Join(err1, err2, err3, err4)
}

func reasons(c *page.Context, p page.Period, q url.Values) (map[string]int64, error) {
	out := map[string]int64{}
	rows, err := sumsOf[*toll.Refusals](c, list.Refusals, query(p, q, "reason"))
	for _, r := range rows {
		out[r.Reason] = r.Refused
	}
	return out, err
}

func refusedIn(c *page.Context, p page.Period, q url.Values) (page.Numbers, error) {
	rows, err := sumsOf[*toll.Refusals](c, list.Refusals, query(p, q, ""))
	out := p.Zeros()
	for _, r := range rows {
		out.Add(p, r.Start, big.NewInt(r.Refused))
	}
	return out, err
}

// reasonWords describe the most common reasons of refusals.
var reasonWords = map[string]string{
	"insufficient_funds": "no credits left", "redemption_limit_reached": "the access token reached its credit limit",
	"plan_expired": "the period of the plan has expired", "agent_inactive": "the agent is not listed", "plan_unlisted": "the plan is not listed",
	"invalid_payload": "the access token cannot be read", "trial_used": "the trial was already used", "hold_expired": "the hold expired before the settlement",
	"payment_in_flight": "the payment is already in use", "order_limit_reached": "the access token reached its order limit", "rate_limited": "too many requests",
	"settlement_exceeds_amount": "the settlement is larger than the hold", "payment_declined": "the payment was declined",
}

// reasonText is a reason as people read it.
func reasonText(word string) string {
	if text := reasonWords[word]; text != "" {
		return text
	}
	return plain.Name(strings.ReplaceAll(word, "_", " "))
}

// most returns the most frequent reason; "" for none.
func (r refused) most() string {
	best := ""
	for _, word := range slices.Sorted(maps.Keys(r.now)) {
		if best == "" || r.now[word] > r.now[best] {
			best = word
		}
	}
	return best
}

// last is the hour or day of a period in which something was refused last.
func (r refused) last(p page.Period) page.Cell {
	for i, n := range slices.Backward(r.steps.Now) {
		if n.Sign() > 0 {
			at := p.Since.Add(time.Duration(i) * p.Step)
			text := at.Format("January 2, 2006")
			if p.Step <= time.Hour {
				text += at.Format(", 15:04") + " to " + at.Add(p.Step).Format("15:04 UTC")
			}
			return page.Cell{Text: text, Sub: "the exact time is not recorded"}
		}
	}
	return page.Cell{Text: "none in this period"}
}

func (r refused) stat() page.Stat {
	s := r.steps.Stat("Refused requests", "", page.PlainNumber, false)
	if most := r.most(); most != "" {
		s.Note = "most frequent: " + reasonText(most)
	}
	return s
}

func (r refused) table(c *page.Context) *page.Table {
	words := slices.Sorted(maps.Keys(r.now))
	for word := range r.before {
		if _, ok := r.now[word]; !ok {
			words = append(words, word)
		}
	}
	slices.SortStableFunc(words, func(a, b string) int { return int(r.now[b] - r.now[a]) })
	reasons := page.List[toll.Refusals]{}
	for _, word := range words {
		reasons.Items = append(reasons.Items, toll.Refusals{Reason: word, Refused: r.now[word]})
	}
	of := list.Refusals.And(list.Count("before", "Previous period")).Show("reason", "refused", "before")
	t := page.TableOf(c, of, "refusal", reasons, func(one toll.Refusals, cell page.Cells) {
		*cell["reason"] = page.Cell{Text: reasonText(one.Reason), Sub: plain.Name(one.Reason)}
		cell["before"].Number = strconv.FormatInt(r.before[one.Reason], 10)
	})
	t.Empty = &page.Empty{Icon: "circle-check", Title: "No refusals", Text: "Requests that fail payment verification or settlement are counted here."}
	return t
}

// income is what was paid in one currency.
type income struct {
	currency       string
	amount         page.Pair // base units
	orders         page.Pair
	returned       *big.Int
	returnedOrders int64
}

// format is an amount of the currency in whole units.
func (e *income) format(n *big.Int) string {
	if n.Sign() < 0 { // more came back than is counted yet
		return "-" + e.format(new(big.Int).Neg(n))
	}
	units, err := toll.ParseUnits(n.String())
	if err != nil {
		return page.Grouped(n.String()) + " base units" // more than an amount can be
	}
	return page.Grouped(toll.FormatAmount(units, decimalsOf(e.currency)))
}

// decimalsOf is how many digits of an amount lie behind the point.
func decimalsOf(currency string) int {
	if currency == toll.CurrencyETH {
		return 18
	}
	return 6
}

// revenue reads what was paid in a period and in the one before it, by currency: those with the most
// orders first. Currencies are never added.
func revenue(c *page.Context, p page.Period, q url.Values) ([]*income, error) {
	by := map[string]*income{}
	of := func(currency string) *income {
		if by[currency] == nil {
			by[currency] = &income{
				currency: currency, amount: page.Pair{Now: p.Zeros(), Before: p.Zeros()}, orders: page.Pair{Now: p.Zeros(), Before: p.Zeros()}, returned: new(big.Int),
			}
		}
		return by[currency]
	}
	now, err1 := sumsOf[*toll.Revenue](c, list.Revenue, query(p, q, ""))
	for _, r := range now {
		e := of(r.Currency)
		e.amount.Now.Add(p, r.Start, r.Amount.Int())
		e.orders.Now.Add(p, r.Start, big.NewInt(r.Orders))
		e.returned.Add(e.returned, r.Returned.Int())
		e.returnedOrders += r.ReturnedOrders
	}
	before, err2 := sumsOf[*toll.Revenue](c, list.Revenue, query(p.Before(), q, ""))
	for _, r := range before {
		e := of(r.Currency)
		e.amount.Before.Add(p.Before(), r.Start, r.Amount.Int())
		e.orders.Before.Add(p.Before(), r.Start, big.NewInt(r.Orders))
	}
	all := slices.SortedFunc(maps.Values(by), func(a, b *income) int {
		if order := b.orders.Now.Total().Cmp(a.orders.Now.Total()); order != 0 {
			return order
		}
		return strings.Compare(a.currency, b.currency)
	})
	return all, errors.Join(err1, err2)
}

// stat is the figure of a currency, before refunds.
func (e *income) stat(to string) page.Stat {
	s := e.amount.Stat("Revenue", strings.ToUpper(e.currency), e.format, true)
	s.To = to
	return s
}

// net returns the revenue of a currency less refunds.
func (e *income) net(to string) page.Stat {
	s := e.stat(to)
	if e.returned.Sign() != 0 {
		s.Label, s.Value, s.Change = "Net revenue", e.format(new(big.Int).Sub(e.amount.Now.Total(), e.returned)), ""
		s.Note = "after " + e.format(e.returned) + " of refunds"
	}
	return s
}

// revenueStats are the figures of all currencies, one of nothing where there is none.
func revenueStats(all []*income, to string) (out []page.Stat) {
	if len(all) == 0 {
		return []page.Stat{{Label: "Revenue", Value: "0", Note: "no payments yet", To: to}}
	}
	for _, e := range all {
		out = append(out, e.net(to))
	}
	return out
}

// planFilter is the field of a name that narrows a page to one plan, and what it says.
func planFilter(c *page.Context, name string) (of page.Field, chosen toll.PlanID, err error) {
	plans, err := ownPlans(c)
	if err != nil {
		return of, "", c.Failed("page", err)
	}
	f := page.Field{Name: name, Label: "Plan", Value: c.R.URL.Query().Get(name), Options: []page.Option{{Text: "All plans"}}}
	for _, p := range plans.Items {
		f.Options = append(f.Options, page.Option{Value: string(p.ID), Text: page.NameOf(p.Metadata.Name)})
	}
	if f.Value == "" {
		return f, "", nil
	}
	if chosen, err = toll.ParsePlanID(f.Value); err != nil {
		return f, "", c.Missing("plan")
	}
	if !page.HasOption(f.Options, f.Value) {
		f.Options = append(f.Options, page.Option{Value: f.Value, Text: page.Short(f.Value)}) // an older one
	}
	return f, chosen, nil
}

// agentFilter is planFilter for agents.
func agentFilter(c *page.Context, name string) (of page.Field, chosen *toll.AgentID, err error) {
	agents, err := page.PartOf[*toll.Agent](c, list.Agents, newest)
	if err != nil {
		return of, nil, c.Failed("page", err)
	}
	f := page.Field{Name: name, Label: "Agent", Value: c.R.URL.Query().Get(name), Options: []page.Option{{Text: "All agents"}}}
	for _, a := range agents.Items {
		f.Options = append(f.Options, page.Option{Value: string(a.ID), Text: page.NameOf(a.Metadata.Name)})
	}
	if f.Value == "" {
		return f, nil, nil
	}
	id, err := toll.ParseAgentID(f.Value)
	if err != nil {
		return f, nil, c.Missing("agent")
	}
	if !page.HasOption(f.Options, f.Value) {
		f.Options = append(f.Options, page.Option{Value: f.Value, Text: page.Short(f.Value)}) // an older one
	}
	return f, &id, nil
}

func (w *pages) showUsage(c *page.Context) (page.View, error) {
	p := page.PeriodOf(c)
	filter, plan, err := planFilter(c, "plan")
	if err != nil {
		return nil, err
	}
	q := planQuery(plan)
	u, err1 := usage(c, p, q)
	refused, err2 := refusals(c, p, q)
	byPlan, err3 := w.usageBy(c, p, q, "plan")
	byAgent, err4 := w.usageBy(c, p, q, "agent")
	who, err5 := w.payersOf(c, p, plan)
	labels, err6 := labelParts(c, p, q, "upstream", "route", "model")
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return nil, c.Failed("plan", err)
	}
	byReason := query(p, q, "")
	byReason.Del("by")
	return c.Record("Usage", page.Record{
		Lead:  "Paid and refused requests to your agents. Counts are updated within seconds.",
		Links: slices.Concat(file(c, "usage", query(p, q, "")), file(c, "refusals", byReason)),
		Range: page.Ranges(c, p), Filter: page.RangeFields(c, p, []page.Field{filter}), Stats: slices.Concat(u.stats(), who, []page.Stat{refused.stat()}),
		Charts: []*page.Chart{
			page.NewChart("Credits burned", p, u.credits, page.PlainNumber), page.NewChart("Paid requests", p, u.settled, page.PlainNumber),
		},
		Facts: []page.Fact{{Label: "Settlement time", Cell: page.Cell{Text: u.median()}}},
		Parts: slices.Concat([]page.Part{{Title: "By plan", Table: byPlan}, {Title: "By agent", Table: byAgent}}, labels,
			[]page.Part{{Title: "Refusals by reason", Table: refused.table(c)}}),
	})
}

// labelParts returns a table of settlements for each kind of label, with the most credits first. A kind without settlements has no table.
func labelParts(c *page.Context, p page.Period, q url.Values, by ...string) (parts []page.Part, err error) {
	if p.Step == time.Hour { // labels are counted by days
		return nil, nil
	}
	for _, label := range by {
		rows, err := sumsOf[*toll.Usage](c, list.Usage, query(p, q, label))
		if err != nil {
			return nil, err
		}
		named := func(u *toll.Usage) bool { return u.Upstream+u.Route+u.Model != "" }
		if !slices.ContainsFunc(rows, named) {
			continue
		}
		slices.SortStableFunc(rows, func(a, b *toll.Usage) int { return b.Credits.Int().Cmp(a.Credits.Int()) })
		rows = rows[:min(len(rows), page.MostRows)]
		t := page.TableOf(c, list.Usage.Show(label, "settled", "credits"), label, page.List[*toll.Usage]{Items: rows}, func(u *toll.Usage, cell page.Cells) {
			if cell[label].Text = plain.Name(u.Upstream + u.Route + u.Model); !named(u) {
				cell[label].Text = "no " + label
			}
		})
		parts = append(parts, page.Part{Title: "By " + label, Table: t})
	}
	return parts, nil
}

// usageBy is a table of what was settled by plan or by agent, with the most credits first.
func (w *pages) usageBy(c *page.Context, p page.Period, q url.Values, by string) (*page.Table, error) {
	rows, err := sumsOf[*toll.Usage](c, list.Usage, query(p, q, by))
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(rows, func(a, b *toll.Usage) int { return b.Credits.Int().Cmp(a.Credits.Int()) })
	rows = rows[:min(len(rows), page.MostRows)]
	var plans []toll.PlanID
	var agents []toll.AgentID
	for _, r := range rows {
		plans, agents = append(plans, r.PlanID), append(agents, r.AgentID)
	}
	names, err := w.namesOf(c, plans, agents)
	t := page.TableOf(c, list.Usage.Show(by+"Id", "settled", "credits"), by, page.List[*toll.Usage]{Items: rows}, func(r *toll.Usage, cell page.Cells) {
		switch of := cell[by+"Id"]; {
		case by == "plan":
			*of = page.Cell{Text: names[string(r.PlanID)], To: c.To("plans", string(r.PlanID))}
		case r.AgentID != "":
			*of = page.Cell{Text: names[string(r.AgentID)], To: c.To("agents", string(r.AgentID))}
		default:
			*of = page.Cell{Text: "no agent"}
		}
	})
	t.Empty = &page.Empty{Icon: "activity", Title: "No paid requests", Text: "Paid requests of this period appear here."}
	return t, err
}

// namesOf returns the names of plans and agents by their ids.
func (d *Deps) namesOf(c *page.Context, plans []toll.PlanID, agents []toll.AgentID) (map[string]string, error) {
	names := map[string]string{}
	ofPlans, err1 := d.Records.Plans(c.Ctx(), unique(plans))
	for id, p := range ofPlans {
		names[string(id)] = page.NameOf(p.Metadata.Name)
	}
	ofAgents, err2 := d.Records.Agents(c.Ctx(), unique(agents))
	for id, a := range ofAgents {
		names[string(id)] = page.NameOf(a.Metadata.Name)
	}
	return names, errors.Join(err1, err2)
}

// unique returns the ids that are there, each once.
func unique[ID ~string](ids []ID) []ID {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id ID) bool { return id == "" })
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (w *pages) showRevenue(c *page.Context) (page.View, error) {
	p := page.PeriodOf(c)
	filter, plan, err := planFilter(c, "plan")
	if err != nil {
		return nil, err
	}
	q := planQuery(plan)
	all, err1 := revenue(c, p, q)
	t, err2 := w.revenueByPlan(c, p, q)
	if err := errors.Join(err1, err2); err != nil {
		return nil, c.Failed("plan", err)
	}
	s := page.Record{
		Lead:  "Payments for your plans, separately for each currency.",
		Links: file(c, "revenue", query(p, q, "")), Range: page.Ranges(c, p), Filter: page.RangeFields(c, p, []page.Field{filter}),
		Parts: []page.Part{{Title: "By plan", Table: t}},
	}
	if len(all) == 0 {
		s.Stats = revenueStats(all, "")
	}
	for _, e := range all {
		currency := strings.ToUpper(e.currency)
		s.Charts = append(s.Charts, page.NewChart("Gross revenue in "+currency, p, e.amount, e.format))
		gross, refunds, net := e.stat(""), page.Stat{Label: "Refunds", Value: e.format(e.returned), Unit: currency, Note: "none"}, new(big.Int).Sub(e.amount.Now.Total(), e.returned)
		if gross.Label = "Gross revenue"; e.returnedOrders > 0 {
			refunds.Note = page.Count(e.returnedOrders, "order") + ", disputed and reversed payments included"
		}
		s.Stats = append(s.Stats, gross, refunds, page.Stat{Label: "Net revenue", Value: e.format(net), Unit: currency, Note: "gross revenue less refunds"})
		s.Facts = append(s.Facts, page.Fact{Label: "Orders in " + currency, Cell: page.Cell{Number: e.orders.Now.Total().String()}})
	}
	return c.Record("Revenue", s)
}

func (w *pages) revenueByPlan(c *page.Context, p page.Period, q url.Values) (*page.Table, error) {
	rows, err := sumsOf[*toll.Revenue](c, list.Revenue, query(p, q, "plan"))
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(rows, func(a, b *toll.Revenue) int { return int(b.Orders - a.Orders) })
	rows = rows[:min(len(rows), page.MostRows)]
	var ids []toll.PlanID
	for _, r := range rows {
		ids = append(ids, r.PlanID)
	}
	names, err := w.namesOf(c, ids, nil)
	paid := page.List[*toll.Revenue]{Items: rows}
	of := list.Local("", list.ID("planId"), list.Count("orders"), list.Money("amount", "Gross"), list.Money("returned", "Refunds"), list.Money("net"))
	t := page.TableOf(c, of, "plan", paid, func(r *toll.Revenue, cell page.Cells) {
		*cell["planId"] = page.Cell{Text: names[string(r.PlanID)], To: c.To("plans", string(r.PlanID))}
		net := (&income{currency: r.Currency}).format(new(big.Int).Sub(r.Amount.Int(), r.Returned.Int()))
		cell["net"].Text, cell["net"].Sum = "", &page.Sum{Amount: net, Currency: strings.ToUpper(r.Currency)}
	})
	t.Empty = &page.Empty{Icon: "coins", Title: "No payments", Text: "Payments for your plans appear here."}
	return t, err
}

// mostPlansShown is how many plans the page of all subscribers has, and fewSubscribers how many of
// each: the rest is on the page of the plan.
const (
	mostPlansShown = 10
	fewSubscribers = 5
)

func (w *pages) listSubscribers(c *page.Context) (page.View, error) {
	q := url.Values{}
	page.SetPage(q, page.Listing{Size: mostPlansShown, Cursor: c.R.URL.Query().Get("cursor")})
	plans, err := page.PartOf[*toll.Plan](c, list.Plans, q)
	if err != nil {
		return nil, c.Failed("list page", err)
	}
	of := subscriberColumns.Show("holderAddress", "planName", "available", "held", "used", "seen")
	var all []toll.Balance
	some := make([]page.List[toll.Balance], len(plans.Items))
	for i, p := range plans.Items {
		some[i], err = page.PartOf[toll.Balance](c, list.Subscribers.Under(string(p.ID)), url.Values{"pageSize": {strconv.Itoa(fewSubscribers)}})
		if err != nil {
			return nil, c.Failed("list page", err)
		}
		all = append(all, some[i].Items...)
	}
	t, err := w.subscribersTable(c, of, page.List[toll.Balance]{Items: all})
	if err != nil {
		return nil, c.Failed("list page", err)
	}
	t.Empty = &page.Empty{Icon: "users", Title: "No subscribers yet", Text: "Subscribers to your plans appear here with their remaining credits.", To: c.To("plans"), Button: "Plans you sell", Command: "toll subscribers --help"}
	t.Pager = c.PagerOf(plans.Total, plans.Next, "plan")
	at := 0
	for i, p := range plans.Items {
		at += len(some[i].Items)
		if more := some[i].Total - int64(len(some[i].Items)); more > 0 {
			to := c.To("plans", string(p.ID))
			t.Rows = slices.Insert(t.Rows, at, append([]page.Cell{
				{Text: page.Count(more, "more subscriber"), To: to}, {Text: page.NameOf(p.Metadata.Name), To: to},
			}, make([]page.Cell, len(t.Head)-2)...))
			at++
		}
	}
	return c.Record("Subscribers", page.Record{Lead: "Subscribers to your plans. Up to 5 are shown for each plan.", Table: t})
}

var subscriberColumns = list.Subscribers.And(list.Name("planName", "Plan"), list.Credits("available"), list.Time("seen", "Last seen"))

// subscribersTable returns a table of balances of subscribers, each with the time of its last use.
func (w *pages) subscribersTable(c *page.Context, of list.List, balances page.List[toll.Balance]) (*page.Table, error) {
	last, err := w.Records.LastUses(c.Ctx(), balances.Items)
	if err != nil {
		return nil, err
	}
	i := 0
	return page.TableOf(c, of, "subscriber", balances, func(b toll.Balance, cell page.Cells) {
		if name := cell["planName"]; name != nil {
			name.To = c.To("plans", string(b.PlanID))
		}
		*cell["seen"] = page.At(last[i])
		i++
	}), nil
}
