package web

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

// period is the range of times that a page is of. Each has one before it of the same length.
type period struct {
	Key          string // of the usual range that is chosen, in the query string
	Own          bool   // from and to days that somebody chose
	Since, Until time.Time
	Step         time.Duration // an hour or a day
}

// periods are the ranges by their keys, in steps.
var periods = []struct {
	Key, Text string
	Steps     int
	Step      time.Duration
}{
	{"24h", "24 h", 24, time.Hour}, {"7d", "7 d", 7, 24 * time.Hour}, {"30d", "30 d", 30, 24 * time.Hour},
	{"90d", "90 d", 90, 24 * time.Hour},
}

// usualPeriod is the index of the range of a page that names none.
const usualPeriod = 2

// Bounds of a range that somebody chose: one that names no begin, the longest, and the longest in hours.
const (
	ownUsual = 30 * 24 * time.Hour
	ownMost  = 366 * 24 * time.Hour
	ownHours = 48 * time.Hour
)

// periodOf returns the range of the page: the days since and until that its query names, or a usual
// range, which ends with the hour or day that has begun. It says on the page why days cannot be taken.
func periodOf(v *visit) period {
	at := usualPeriod
	for i, p := range periods {
		if p.Key == v.r.URL.Query().Get("range") {
			at = i
		}
	}
	p := periods[at]
	if own, ok := ownPeriod(v, p.Key); ok {
		return own
	}
	until := v.w.Clock().UTC().Truncate(p.Step).Add(p.Step)
	return period{Key: p.Key, Since: until.Add(-time.Duration(p.Steps) * p.Step), Until: until, Step: p.Step}
}

// ownPeriod returns the range of the days in the query. ok is false for none.
func ownPeriod(v *visit, key string) (p period, ok bool) {
	q := v.r.URL.Query()
	if q.Get("since") == "" && q.Get("until") == "" {
		return p, false
	}
	p = period{Key: key, Own: true, Step: 24 * time.Hour}
	var err1, err2 error
	p.Until = v.w.Clock().UTC().Truncate(p.Step).Add(p.Step)
	if day := q.Get("until"); day != "" {
		p.Until, err1 = time.Parse(time.DateOnly, day)
	}
	p.Since = p.Until.Add(-ownUsual)
	if day := q.Get("since"); day != "" {
		p.Since, err2 = time.Parse(time.DateOnly, day)
	}
	length := p.Until.Sub(p.Since)
	if err1 != nil || err2 != nil || length <= 0 || length > ownMost {
		v.status, v.fault = http.StatusBadRequest, "The first day must be before the other one, and at most 366 days before it."
		return p, false
	}
	if length <= ownHours {
		p.Step = time.Hour
	}
	return p, true
}

func (p period) before() period {
	p.Since, p.Until = p.Since.Add(p.Since.Sub(p.Until)), p.Since
	return p
}

// narrow is the period as the query of the API, by its steps.
func (p period) narrow(plan toll.PlanID) url.Values {
	const form = "2006-01-02T15:04:05.000Z"
	q := url.Values{"since": {p.Since.Format(form)}, "until": {p.Until.Format(form)}, "by": {string(p.query(checkout.UsageQuery{}).By)}}
	if plan != "" {
		q.Set("planId", string(plan))
	}
	return q
}

func (p period) steps() int { return int(p.Until.Sub(p.Since) / p.Step) }

// query narrows a query to the period, by its steps.
func (p period) query(q checkout.UsageQuery) checkout.UsageQuery {
	q.Since, q.Until, q.By = p.Since, p.Until, store.ByDay
	if p.Step == time.Hour {
		q.By = store.ByHour
	}
	return q
}

// segment is one of a few choices that lead to the same page.
type segment struct {
	Text, To string
	Here     bool
}

// ranges lead to the page with another range.
func ranges(v *visit, of period) []segment {
	var out []segment
	q := v.r.URL.Query()
	for _, name := range []string{"cursor", "form", "since", "until"} {
		q.Del(name)
	}
	for _, p := range periods {
		q.Set("range", p.Key)
		out = append(out, segment{p.Text, v.r.URL.Path + "?" + q.Encode(), p.Key == of.Key && !of.Own})
	}
	return out
}

// rangeFields are fields for days of one's own, beside those that narrow the page.
func rangeFields(v *visit, p period, beside []field) []field {
	fields, _ := v.filters(
		field{Name: "since", Label: "From", Type: "date"}, field{Name: "until", Label: "Before", Type: "date"},
	)
	return slices.Concat(beside, fields, []field{{Name: "range", Type: "hidden", Value: p.Key}})
}

// maxSums bounds how many sums a page reads for one of its lists: those of a year in some currencies.
const maxSums = 4000

// everyOf reads the parts of a list, at most maxSums of it.
func everyOf[T any](read func(store.Page) (store.List[T], error)) ([]T, error) {
	var all []T
	page := store.Page{Size: 100, Ascending: true}
	for {
		list, err := read(page)
		if err != nil {
			return nil, err
		}
		all = append(all, list.Items...)
		if list.Next == "" || len(all) >= maxSums {
			return all, nil
		}
		page.Cursor = list.Next
	}
}

// numbers are amounts by the steps of a period.
type numbers []*big.Int

func (p period) zeros() numbers {
	out := make(numbers, p.steps())
	for i := range out {
		out[i] = new(big.Int)
	}
	return out
}

// add puts an amount into the step of a time.
func (n numbers) add(p period, at *toll.Time, amount *big.Int) {
	if at == nil {
		return
	}
	if i := int(at.Sub(p.Since) / p.Step); i >= 0 && i < len(n) {
		n[i].Add(n[i], amount)
	}
}

func (n numbers) total() *big.Int {
	sum := new(big.Int)
	for _, x := range n {
		sum.Add(sum, x)
	}
	return sum
}

// pair is the numbers of a period and of the one before it.
type pair struct{ now, before numbers }

// stat is the figure of a pair, with what it is compared to. more says whether more is good.
func (p pair) stat(label, unit string, format func(*big.Int) string, more bool) stat {
	now, before := p.now.total(), p.before.total()
	s := stat{Label: label, Value: format(now), Unit: unit, Note: "from " + format(before), Spark: spark(p.now)}
	if before.Sign() == 0 {
		s.Note = "nothing before"
		return s
	}
	s.Change = changed(now, before)
	if c := now.Cmp(before); c != 0 && (c > 0) == more {
		s.Tone = "good"
	} else if c != 0 {
		s.Tone = "bad"
	}
	return s
}

// changed is how much more a number is than another one above 0, in per cent.
func changed(now, before *big.Int) string {
	n := new(big.Int).Sub(now, before)
	n.Mul(n, big.NewInt(1000)).Quo(n, before)
	sign, abs := "+", new(big.Int).Abs(n)
	switch n.Sign() {
	case 0:
		return "the same"
	case -1:
		sign = "−"
	}
	whole, tenth := new(big.Int).QuoRem(abs, big.NewInt(10), new(big.Int))
	if whole.Cmp(big.NewInt(100)) >= 0 {
		return sign + grouped(whole.String()) + " %"
	}
	return fmt.Sprintf("%s%s.%s %%", sign, whole, tenth)
}

func plainNumber(n *big.Int) string { return grouped(n.String()) }

// used is what was settled.
type used struct {
	settled, credits pair
	took             []int64 // see [toll.Usage.HoldToSettle]
}

// usage reads what was settled in a period and in the one before it.
func usage(v *visit, p period, q checkout.UsageQuery) (u used, err error) {
	var err1, err2 error
	u.settled.now, u.credits.now, u.took, err1 = settled(v, p, q)
	u.settled.before, u.credits.before, _, err2 = settled(v, p.before(), q)
	return u, errors.Join(err1, err2)
}

func settled(v *visit, p period, q checkout.UsageQuery) (settled, credits numbers, took []int64, err error) {
	q = p.query(q)
	rows, err := everyOf(func(page store.Page) (store.List[*toll.Usage], error) {
		q.Page = page
		list, _, err := v.w.Checkout.Usage(v.ctx(), v.person.Address, q)
		return list, err
	})
	settled, credits, took = p.zeros(), p.zeros(), make([]int64, len(toll.UsageTimes)+1)
	for _, r := range rows {
		settled.add(p, r.Start, big.NewInt(r.Settled))
		credits.add(p, r.Start, r.Credits.Int())
		for i, n := range r.HoldToSettle {
			took[i] += n
		}
	}
	return settled, credits, took, err
}

func (u used) stats() []stat {
	return []stat{
		u.settled.stat("Paid requests", "", plainNumber, true), u.credits.stat("Credits burned", "", plainNumber, true),
	}
}

// median is how long half of the requests took at most, from hold to settlement.
func (u used) median() string {
	all, seen := int64(0), int64(0)
	for _, n := range u.took {
		all += n
	}
	if all == 0 {
		return "not known yet"
	}
	for i, n := range u.took {
		if seen += n; 2*seen >= all && i < len(toll.UsageTimes) {
			return "half within " + toll.UsageTimes[i].String()
		}
	}
	return "half longer than " + toll.UsageTimes[len(toll.UsageTimes)-1].String()
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
func payersOf(v *visit, p period, plan toll.PlanID) ([]stat, error) {
	if p.Step == time.Hour {
		return nil, nil
	}
	key, now := payersKey{v.person.Address, plan, p.Since, p.Until}, v.w.Machine()
	if known, ok := v.w.payers.Get(key, now); ok {
		return known, nil
	}
	stats, counted, err := countPayers(v, p, plan)
	if err == nil && counted > 0 { // the first one shows at once
		v.w.payers.Put(key, stats, now.Add(countedLife), now)
	}
	return stats, err
}

// countPayers also returns of how many plans it counted.
func countPayers(v *visit, p period, plan toll.PlanID) (stats []stat, counted int, err error) {
	var of pair
	plans := map[toll.PlanID]bool{}
	for _, in := range []struct {
		of *numbers
		period
	}{{&of.now, p}, {&of.before, p.before()}} {
		used, err := usedPlans(v, in.period, plan)
		if err != nil || len(used) > mostCounted {
			return nil, 0, err
		}
		*in.of = numbers{new(big.Int)}
		for _, id := range used {
			q := in.period.query(checkout.UsageQuery{Plan: id, Page: store.Page{Size: 1}})
			q.By = store.BySubscriber
			list, _, err := v.w.Checkout.Usage(v.ctx(), v.person.Address, q)
			if err != nil {
				return nil, 0, err
			}
			plans[id] = true
			(*in.of)[0].Add((*in.of)[0], big.NewInt(list.Total))
		}
	}
	s := of.stat("Paying subscribers", "", plainNumber, true)
	if len(plans) > 1 {
		s.Note += ", counted for each plan"
	}
	return []stat{s}, len(plans), nil
}

// usedPlans are the plans whose requests were settled in a period, or the one that is chosen.
func usedPlans(v *visit, p period, chosen toll.PlanID) (ids []toll.PlanID, err error) {
	if chosen != "" {
		return []toll.PlanID{chosen}, nil
	}
	q := p.query(checkout.UsageQuery{Page: store.Page{Size: mostCounted + 1}})
	q.By = store.ByPlan
	list, _, err := v.w.Checkout.Usage(v.ctx(), v.person.Address, q)
	for _, u := range list.Items {
		ids = append(ids, u.PlanID)
	}
	return ids, err
}

// refused is what was refused, by reason.
type refused struct {
	now, before map[string]int64
	steps       pair
}

// refusals reads what was refused in a period and in the one before it.
func refusals(v *visit, p period, q checkout.UsageQuery) (r refused, err error) {
	var err1, err2, err3, err4 error
	r.now, err1 = reasons(v, p, q)
	r.before, err2 = reasons(v, p.before(), q)
	r.steps.now, err3 = refusedIn(v, p, q)
	r.steps.before, err4 = refusedIn(v, p.before(), q)
	return r, errors.Join(err1, err2, err3, err4)
}

func reasons(v *visit, p period, q checkout.UsageQuery) (map[string]int64, error) {
	q = p.query(q)
	q.By = store.ByReason
	out := map[string]int64{}
	rows, err := refusalRows(v, q)
	for _, r := range rows {
		out[r.Reason] = r.Refused
	}
	return out, err
}

func refusedIn(v *visit, p period, q checkout.UsageQuery) (numbers, error) {
	rows, err := refusalRows(v, p.query(q))
	out := p.zeros()
	for _, r := range rows {
		out.add(p, r.Start, big.NewInt(r.Refused))
	}
	return out, err
}

func refusalRows(v *visit, q checkout.UsageQuery) ([]*toll.Refusals, error) {
	return everyOf(func(page store.Page) (store.List[*toll.Refusals], error) {
		q.Page = page
		list, _, err := v.w.Checkout.Refusals(v.ctx(), v.person.Address, q, "")
		return list, err
	})
}

// reasonWords are the reasons of refusals that sellers meet most, in words.
var reasonWords = map[string]string{
	"insufficient_funds": "no credits left", "redemption_limit_reached": "the limit of the access token is used up",
	"plan_expired": "the period of the plan is over", "agent_inactive": "the agent is not listed", "plan_unlisted": "the plan is not listed",
	"invalid_payload": "the access token cannot be read", "trial_used": "the trial was used before", "hold_expired": "the answer came too late",
	"payment_in_flight": "the payment is in use", "order_limit_reached": "the access token may buy no more", "rate_limited": "too many requests",
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
func (r refused) last(p period) cell {
	for i, n := range slices.Backward(r.steps.now) {
		if n.Sign() > 0 {
			at := p.Since.Add(time.Duration(i) * p.Step)
			if p.Step > time.Hour {
				return cell{Text: at.Format("2 January 2006"), Sub: "refusals are counted by hour and day"}
			}
			return cell{Text: at.Format("2 January 2006, 15:04") + " to " + at.Add(p.Step).Format("15:04 UTC"), Sub: "refusals are counted by hour and day"}
		}
	}
	return cell{Text: "not in this time"}
}

func (r refused) stat() stat {
	s := r.steps.stat("Refused", "", plainNumber, false)
	if most := r.most(); most != "" {
		s.Note = "most: " + reasonText(most)
	}
	return s
}

func (r refused) table() *table {
	t := &table{
		Caption: "Refusals by reason",
		Head:    []column{{Text: "Reason"}, {Text: "Word of the API"}, {Text: "Refused", Num: true}, {Text: "Before", Num: true}},
		Empty:   &empty{Icon: "circle-check", Title: "Nothing was refused", Text: "Requests that the service refuses to charge are counted here."},
	}
	words := slices.Sorted(maps.Keys(r.now))
	for word := range r.before {
		if _, ok := r.now[word]; !ok {
			words = append(words, word)
		}
	}
	slices.SortStableFunc(words, func(a, b string) int { return int(r.now[b] - r.now[a]) })
	for _, word := range words {
		t.Rows = append(t.Rows, []cell{
			{Text: reasonText(word)}, {Text: plain.Name(word)}, credits(toll.Credits(r.now[word])), credits(toll.Credits(r.before[word])),
		})
	}
	return t
}

// earned is what was paid in one currency.
type earned struct {
	currency       string
	amount         pair // base units
	orders         pair
	returned       *big.Int
	returnedOrders int64
}

// format is an amount of the currency in whole units.
func (e *earned) format(n *big.Int) string {
	units, err := toll.ParseUnits(n.String())
	if err != nil {
		return grouped(n.String()) + " base units" // more than an amount can be
	}
	return grouped(toll.FormatAmount(units, decimalsOf(e.currency)))
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
func revenue(v *visit, p period, q checkout.UsageQuery) ([]*earned, error) {
	by := map[string]*earned{}
	of := func(currency string) *earned {
		if by[currency] == nil {
			by[currency] = &earned{
				currency: currency, amount: pair{p.zeros(), p.zeros()}, orders: pair{p.zeros(), p.zeros()}, returned: new(big.Int),
			}
		}
		return by[currency]
	}
	now, err1 := revenueRows(v, p.query(q))
	for _, r := range now {
		e := of(r.Currency)
		e.amount.now.add(p, r.Start, r.Amount.Int())
		e.orders.now.add(p, r.Start, big.NewInt(r.Orders))
		e.returned.Add(e.returned, r.Returned.Int())
		e.returnedOrders += r.ReturnedOrders
	}
	before, err2 := revenueRows(v, p.before().query(q))
	for _, r := range before {
		e := of(r.Currency)
		e.amount.before.add(p.before(), r.Start, r.Amount.Int())
		e.orders.before.add(p.before(), r.Start, big.NewInt(r.Orders))
	}
	all := slices.SortedFunc(maps.Values(by), func(a, b *earned) int {
		if c := b.orders.now.total().Cmp(a.orders.now.total()); c != 0 {
			return c
		}
		return strings.Compare(a.currency, b.currency)
	})
	return all, errors.Join(err1, err2)
}

func revenueRows(v *visit, q checkout.UsageQuery) ([]*toll.Revenue, error) {
	return everyOf(func(page store.Page) (store.List[*toll.Revenue], error) {
		q.Page = page
		list, _, err := v.w.Checkout.Revenue(v.ctx(), v.person.Address, q)
		return list, err
	})
}

// stat is the figure of a currency.
func (e *earned) stat(to string) stat {
	s := e.amount.stat("Revenue", strings.ToUpper(e.currency), e.format, true)
	s.To = to
	return s
}

// revenueStats are the figures of all currencies, one of nothing where there is none.
func revenueStats(all []*earned, to string) (out []stat) {
	if len(all) == 0 {
		return []stat{{Label: "Revenue", Value: "0", Note: "nothing was paid yet", To: to}}
	}
	for _, e := range all {
		out = append(out, e.stat(to))
	}
	return out
}

// usagePages are the sums of a seller.
func usagePages() []areaPage {
	return []areaPage{
		{
			Path: "/subscribers", Title: "Subscribers", Template: "sheet", Group: groupSell, Nav: "Subscribers", Icon: "users", Key: "s",
			Right: toll.RightRead, Get: listSubscribers,
		},
		{
			Path: "/usage", Title: "Usage", Template: "sheet", Group: groupSell, Nav: "Usage", Icon: "activity", Key: "u",
			Right: toll.RightRead, Get: showUsage,
		},
		{
			Path: "/revenue", Title: "Revenue", Template: "sheet", Group: groupSell, Nav: "Revenue", Icon: "coins", Key: "r",
			Right: toll.RightRead, Get: showRevenue,
		},
	}
}

// planFilter is the field of a name that narrows a page to one plan, and what it says. It has
// answered when ok is false.
func planFilter(v *visit, name string) (of field, chosen toll.PlanID, ok bool) {
	plans, err := store.PlansOfOwner(v.ctx(), v.w.Store, v.person.Address, store.Page{Size: mostPlans})
	if v.failed("page", err) {
		return of, "", false
	}
	f := field{Name: name, Label: "Plan", Value: v.r.URL.Query().Get(name), Options: []option{{Text: "All plans"}}}
	for _, p := range plans.Items {
		f.Options = append(f.Options, option{Value: string(p.ID), Text: nameOf(p.Metadata.Name)})
	}
	if f.Value == "" {
		return f, "", true
	}
	if chosen, err = toll.ParsePlanID(f.Value); err != nil {
		v.missing("plan")
		return f, "", false
	}
	if !hasOption(f.Options, f.Value) {
		f.Options = append(f.Options, option{Value: f.Value, Text: short(f.Value)}) // an older one
	}
	return f, chosen, true
}

// agentFilter is planFilter for agents.
func agentFilter(v *visit, name string) (of field, chosen *toll.AgentID, ok bool) {
	agents, err := store.AgentsOfOwner(v.ctx(), v.w.Store, v.person.Address, store.Page{Size: mostPlans})
	if v.failed("page", err) {
		return of, nil, false
	}
	f := field{Name: name, Label: "Agent", Value: v.r.URL.Query().Get(name), Options: []option{{Text: "All agents"}}}
	for _, a := range agents.Items {
		f.Options = append(f.Options, option{Value: string(a.ID), Text: nameOf(a.Metadata.Name)})
	}
	if f.Value == "" {
		return f, nil, true
	}
	id, err := toll.ParseAgentID(f.Value)
	if err != nil {
		v.missing("agent")
		return f, nil, false
	}
	if !hasOption(f.Options, f.Value) {
		f.Options = append(f.Options, option{Value: f.Value, Text: short(f.Value)}) // an older one
	}
	return f, &id, true
}

func showUsage(v *visit) {
	p := periodOf(v)
	filter, plan, ok := planFilter(v, "plan")
	if !ok {
		return
	}
	q := checkout.UsageQuery{Plan: plan}
	u, err1 := usage(v, p, q)
	refused, err2 := refusals(v, p, q)
	byPlan, err3 := usageBy(v, p, q, store.ByPlan)
	byAgent, err4 := usageBy(v, p, q, store.ByAgent)
	who, err5 := payersOf(v, p, plan)
	if v.failed("plan", errors.Join(err1, err2, err3, err4, err5)) {
		return
	}
	byReason := p.narrow(plan)
	byReason.Del("by")
	v.sheet("Usage", sheet{
		Lead:  "Requests to your agents that were paid with credits, and those that were refused. Counts follow within seconds.",
		Links: slices.Concat(file(v, "usage", p.narrow(plan)), file(v, "refusals", byReason)),
		Range: ranges(v, p), Filter: rangeFields(v, p, []field{filter}), Stats: slices.Concat(u.stats(), who, []stat{refused.stat()}),
		Charts: []*chart{
			newChart("Credits burned", p, u.credits, plainNumber), newChart("Paid requests", p, u.settled, plainNumber),
		},
		Facts: []fact{{"Time to settle", cell{Text: u.median()}}},
		Parts: []part{{"By plan", byPlan}, {"By agent", byAgent}, {"Refused, by reason", refused.table()}},
	})
}

// usageBy is a table of what was settled by plan or by agent, with the most credits first.
func usageBy(v *visit, p period, q checkout.UsageQuery, by store.UsageBy) (*table, error) {
	q = p.query(q)
	q.By = by
	rows, err := everyOf(func(page store.Page) (store.List[*toll.Usage], error) {
		q.Page = page
		list, _, err := v.w.Checkout.Usage(v.ctx(), v.person.Address, q)
		return list, err
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(rows, func(a, b *toll.Usage) int { return b.Credits.Int().Cmp(a.Credits.Int()) })
	rows = rows[:min(len(rows), mostRows)]
	var plans []toll.PlanID
	var agents []toll.AgentID
	for _, r := range rows {
		plans, agents = append(plans, r.PlanID), append(agents, r.AgentID)
	}
	t := &table{
		Caption: "Usage by " + string(by),
		Head:    []column{{Text: "Name"}, {Text: "Requests", Num: true}, {Text: "Credits", Num: true}},
		Empty:   &empty{Icon: "activity", Title: "Nothing was settled", Text: "Paid requests of this time appear here."},
	}
	names, err := namesOf(v, plans, agents)
	for _, r := range rows {
		c := cell{Text: "no agent named"}
		if by == store.ByPlan {
			c = cell{Text: names[string(r.PlanID)], To: v.to("plans", string(r.PlanID))}
		} else if r.AgentID != "" {
			c = cell{Text: names[string(r.AgentID)], To: v.to("agents", string(r.AgentID))}
		}
		t.Rows = append(t.Rows, []cell{c, credits(toll.Credits(r.Settled)), {Number: r.Credits.String(), Num: true}})
	}
	return t, err
}

// namesOf returns the names of plans and agents by their ids.
func namesOf(v *visit, plans []toll.PlanID, agents []toll.AgentID) (map[string]string, error) {
	names := map[string]string{}
	err1 := store.EachPlan(v.ctx(), v.w.Store, unique(plans), func(p *toll.Plan) error {
		names[string(p.ID)] = nameOf(p.Metadata.Name)
		return nil
	})
	err2 := store.EachAgent(v.ctx(), v.w.Store, unique(agents), func(a *toll.Agent) error {
		names[string(a.ID)] = nameOf(a.Metadata.Name)
		return nil
	})
	return names, errors.Join(err1, err2)
}

// unique returns the ids that are there, each once.
func unique[ID ~string](ids []ID) []ID {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id ID) bool { return id == "" })
	slices.Sort(ids)
	return slices.Compact(ids)
}

func showRevenue(v *visit) {
	p := periodOf(v)
	filter, plan, ok := planFilter(v, "plan")
	if !ok {
		return
	}
	q := checkout.UsageQuery{Plan: plan}
	all, err1 := revenue(v, p, q)
	t, err2 := revenueByPlan(v, p, q)
	if v.failed("plan", errors.Join(err1, err2)) {
		return
	}
	s := sheet{
		Lead:  "What buyers paid for orders of your plans. Each currency stands for itself.",
		Links: file(v, "revenue", p.narrow(plan)), Range: ranges(v, p), Filter: rangeFields(v, p, []field{filter}), Stats: revenueStats(all, ""),
		Parts: []part{{"By plan", t}},
	}
	for _, e := range all {
		s.Charts = append(s.Charts, newChart("Revenue in "+strings.ToUpper(e.currency), p, e.amount, e.format))
		text := "nothing"
		if e.returnedOrders > 0 {
			text = e.format(e.returned) + " " + strings.ToUpper(e.currency) + " of " + count(e.returnedOrders, "order")
		}
		s.Facts = append(s.Facts,
			fact{"Orders in " + strings.ToUpper(e.currency), cell{Number: e.orders.now.total().String()}}, fact{"Given back", cell{Text: text}})
	}
	v.sheet("Revenue", s)
}

func revenueByPlan(v *visit, p period, q checkout.UsageQuery) (*table, error) {
	q = p.query(q)
	q.By = store.ByPlan
	rows, err := revenueRows(v, q)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(rows, func(a, b *toll.Revenue) int { return int(b.Orders - a.Orders) })
	rows = rows[:min(len(rows), mostRows)]
	var ids []toll.PlanID
	for _, r := range rows {
		ids = append(ids, r.PlanID)
	}
	names, err := namesOf(v, ids, nil)
	t := &table{
		Caption: "Revenue by plan",
		Head:    []column{{Text: "Plan"}, {Text: "Orders", Num: true}, {Text: "Paid", Num: true}, {Text: "Given back", Num: true}},
		Empty:   &empty{Icon: "coins", Title: "Nothing was paid", Text: "Orders of plans with a price appear here."},
	}
	for _, r := range rows {
		e := earned{currency: r.Currency}
		t.Rows = append(t.Rows, []cell{
			{Text: names[string(r.PlanID)], To: v.to("plans", string(r.PlanID))}, credits(toll.Credits(r.Orders)),
			{Sum: &sum{e.format(r.Amount.Int()), strings.ToUpper(r.Currency)}, Num: true},
			{Sum: &sum{e.format(r.Returned.Int()), strings.ToUpper(r.Currency)}, Num: true},
		})
	}
	return t, err
}

// mostPlansShown is how many plans the page of all subscribers has, and fewSubscribers how many of
// each: the rest is on the page of the plan.
const (
	mostPlansShown = 10
	fewSubscribers = 5
)

func listSubscribers(v *visit) {
	page := store.Page{Size: mostPlansShown, Cursor: v.r.URL.Query().Get("cursor")}
	plans, err := store.PlansOfOwner(v.ctx(), v.w.Store, v.person.Address, page)
	if v.failed("part of the list", err) {
		return
	}
	t := &table{
		Caption: "Subscribers",
		Head: []column{
			{Text: "Subscriber"}, {Text: "Plan"}, {Text: "Available", Num: true}, {Text: "Held", Num: true}, {Text: "Used", Num: true},
			{Text: "Last seen"},
		},
		Empty: &empty{"users", "No subscribers yet", "Each buyer of a plan of yours appears here, with what is left.", v.to("plans"), "Your plans", "toll subscribers --help"},
		Pager: v.pagerOf(plans.Total, plans.Next, "plan"),
	}
	for _, p := range plans.Items {
		list, err := v.w.Checkout.Subscribers(v.ctx(), v.person.Address, p.ID, store.Page{Size: fewSubscribers})
		if v.failed("part of the list", err) {
			return
		}
		rows, err := subscriberRows(v, p.ID, list.Items)
		if v.failed("part of the list", err) {
			return
		}
		to := v.to("plans", string(p.ID))
		for _, row := range rows {
			t.Rows = append(t.Rows, slices.Insert(row, 1, cell{Text: nameOf(p.Metadata.Name), To: to}))
		}
		if more := list.Total - int64(len(list.Items)); more > 0 {
			t.Rows = append(t.Rows, []cell{
				{Text: count(more, "more subscriber"), To: to}, {Text: nameOf(p.Metadata.Name), To: to}, {}, {}, {}, {},
			})
		}
	}
	v.sheet("Subscribers", sheet{Lead: "Who holds credits of your plans, with the first of each plan.", Table: t})
}

// subscriberRows are balances of a plan, each with when the subscriber used it last.
func subscriberRows(v *visit, plan toll.PlanID, of []toll.Balance) ([][]cell, error) {
	var rows [][]cell
	now := v.w.Clock()
	for _, b := range of {
		f := store.UsageFilter{By: store.BySubscriber, Plan: plan, Subscriber: b.HolderAddress, Since: now.Add(-longAgo), Until: now.Add(time.Hour)}
		list, err := store.Usage(v.ctx(), v.w.Store, f, store.Page{Size: 1})
		if err != nil {
			return nil, err
		}
		seen := cell{Text: "not yet"}
		if len(list.Items) > 0 && list.Items[0].LastSettledAt != nil {
			seen = at(list.Items[0].LastSettledAt.Time)
		}
		rows = append(rows, []cell{
			{ID: b.HolderAddress.String()}, credits(b.Available), credits(b.Held), credits(b.Used), seen,
		})
	}
	return rows, nil
}

// longAgo is how far back a page looks for the last use of a plan.
const longAgo = 400 * 24 * time.Hour
