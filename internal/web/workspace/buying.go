package workspace

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
)

func listHoldings(c *page.Context) (page.View, error) {
	list, pace, err := held(c, c.ListPage())
	if err := c.Narrowed(err); err != nil {
		return nil, err
	}
	return c.Record("My plans", page.Record{
		Lead:  "Plans that this workspace bought, with the remaining credits and how long they will last, based on the last 7 days.",
		Table: heldTable(c, list, pace), Links: file(c, "holdings", nil),
	})
}

// paceDays are the days whose use says how long credits last.
const paceDays = 7

// held reads what the workspace has of the plans of others, and what requests burned of each in the last days.
func held(c *page.Context, body page.Listing) (holdings page.List[*toll.Balance], pace map[toll.PlanID]*big.Int, err error) {
	q := url.Values{}
	page.SetPage(q, body)
	holdings, err = page.PartOf[*toll.Balance](c, list.Holdings, q)
	pace = map[toll.PlanID]*big.Int{}
	if err != nil || len(holdings.Items) == 0 {
		return holdings, pace, err
	}
	days := page.Period{Until: c.Clock().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)}
	days.Since = days.Until.Add(-paceDays * 24 * time.Hour)
	rows, err := sumsOf[*toll.Usage](c, list.Usage, query(days, url.Values{"role": {"buyer"}}, "plan"))
	for _, r := range rows {
		pace[r.PlanID] = r.Credits.Int()
	}
	return holdings, pace, err
}

func heldTable(c *page.Context, holdings page.List[*toll.Balance], pace map[toll.PlanID]*big.Int) *page.Table {
	of := list.Holdings.And(list.Credits("available"), list.Credits("burned", "Burned (last 7 days)"), list.Time("lasts", "Runs out (estimate)")).
		Show("planName", "available", "held", "burned", "lasts", "expiresAt")
	t := page.TableOf(c, of, "plan", holdings, func(b *toll.Balance, cell page.Cells) {
		cell["planName"].To = c.To("holdings", string(b.PlanID))
		cell["burned"].Number = cmp.Or(pace[b.PlanID], new(big.Int)).String()
		if b.Balance == 0 && b.PlanType.Kind().Charges() { // a refund ends its credits at once
			*cell["expiresAt"] = page.Cell{Text: "no credits"}
		}
		switch at := lastsUntil(c, b, pace[b.PlanID]); {
		case !b.PlanType.Kind().Charges():
			cell["lasts"].Text = "at expiry"
		case !at.IsZero():
			*cell["lasts"] = page.At(at)
		case b.Available == 0:
			cell["lasts"].Text = "no credits"
		default:
			cell["lasts"].Text = "not in use"
		}
	})
	t.Empty = &page.Empty{Icon: "coins", Title: "No plans yet", Text: "Plans that you buy appear here with their balance.", To: page.PathExplore, Button: "Find a plan", Command: "toll plans order --help"}
	return t
}

// lastsUntil is when the credits of a plan run out if requests burn as many as in the last days; zero where nothing says so.
func lastsUntil(c *page.Context, b *toll.Balance, burned *big.Int) time.Time {
	if burned == nil || burned.Sign() == 0 || !b.PlanType.Kind().Charges() || b.Available == 0 {
		return time.Time{}
	}
	hours := new(big.Int).Mul(big.NewInt(int64(b.Available)), big.NewInt(paceDays*24))
	hours.Quo(hours, burned)
	const most = 10 * 365 * 24
	if hours.Cmp(big.NewInt(most)) > 0 {
		hours.SetInt64(most)
	}
	return c.Clock().Add(time.Duration(hours.Int64()) * time.Hour)
}

// endingCredits are the plans whose credits run out soon.
func endingCredits(c *page.Context, list page.List[*toll.Balance], pace map[toll.PlanID]*big.Int) (out []page.Task) {
	now := c.Clock()
	for _, b := range list.Items {
		at := lastsUntil(c, b, pace[b.PlanID])
		if at.IsZero() || at.After(now.Add(lowCredits)) {
			continue
		}
		out = append(out, page.Task{
			Tone: "warn", Title: "Credits of " + page.NameOf(b.PlanName) + " run out " + page.Ago(at, now), Text: page.Count(int64(b.Available), "credit") + " left. The estimate is based on the last 7 days.",
			To: c.To("holdings", string(b.PlanID)), Act: "Top up",
		})
	}
	return out
}

// lowCredits is how long before its credits run out a plan needs attention.
const lowCredits = 3 * 24 * time.Hour

// limits are what delegations that can pay now spent of their limits.
func limits(c *page.Context) (out []page.Bar, err error) {
	list, err := page.PartOf[*toll.Delegation](c, list.Delegations, url.Values{"accessible": {"true"}, "pageSize": {strconv.Itoa(mostRecent)}})
	for _, d := range list.Items {
		out = append(out, spentOf("Delegation "+page.Short(d.DelegationID), d))
	}
	return out, err
}

// heldPlan returns the plan of the page.
func heldPlan(c *page.Context) (p *toll.Plan, err error) {
	id, err := toll.ParsePlanID(c.Param("plan"))
	if err == nil {
		p, err = c.API.Plan(c.Acting(), id)
	}
	if err != nil {
		return nil, c.Failed("plan", err)
	}
	return p, nil
}

func (w *pages) showHolding(c *page.Context) (page.View, error) {
	p, err := heldPlan(c)
	if err != nil {
		return nil, err
	}
	b, err := c.API.Balance(c.Acting(), p.ID)
	if err != nil {
		return nil, c.Failed("plan", err)
	}
	days := page.Period{Until: c.Clock().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour), Step: 24 * time.Hour}
	days.Since = days.Until.Add(-page.OwnUsual)
	own := url.Values{"role": {"buyer"}, "planId": {string(p.ID)}}
	used, err := usage(c, days, own)
	if err != nil {
		return nil, c.Failed("plan", err)
	}
	labels, err := labelParts(c, days, own, "model", "route")
	if err != nil {
		return nil, c.Failed("plan", err)
	}
	for i := range labels {
		labels[i].Title += ", in 30 days"
	}
	tokens, err := tokensOf(c, url.Values{"planId": {string(p.ID)}})
	if err := c.Narrowed(err); err != nil {
		return nil, err
	}
	agents, err := listedAgents(c, p.ID)
	if err != nil {
		return nil, c.Failed("plan", err)
	}
	taken, err := takenBack(c, p.ID)
	if err != nil {
		return nil, c.Failed("plan", err)
	}
	s := page.Record{
		Stats: []page.Stat{
			{Label: "Available", Value: page.Grouped(b.Available.String()), Unit: "credits"},
			{Label: "Held", Value: page.Grouped(b.Held.String())}, {Label: "Used", Value: page.Grouped(b.Used.String())},
			{Label: "Granted", Value: page.Grouped(b.Total.String())},
		},
		Facts: []page.Fact{
			{Label: "ID", Cell: page.Cell{ID: string(p.ID)}}, {Label: "Seller", Cell: page.Cell{ID: p.Owner.String()}}, {Label: "Price", Cell: page.Cell{Text: page.PriceOf(p)}},
			{Label: "Per order", Cell: page.Cell{Text: page.BuysOf(p)}}, {Label: "Credits per request", Cell: page.Cell{Text: page.BurnsOf(p)}}, {Label: "Expires", Cell: page.AtOr(b.ExpiresAt, "never")},
		},
	}
	if taken > 0 {
		s.Stats = append(s.Stats, page.Stat{Label: "Refunded", Value: page.Grouped(taken.String())})
		if b.Balance == 0 {
			s.Facts = slices.DeleteFunc(s.Facts, func(f page.Fact) bool { return f.Label == "Expires" })
		}
	}
	if len(agents) > 0 {
		s.Parts = []page.Part{{Title: "Agents", Table: tryTable(c, agents, p.ID)}}
	}
	if !p.Kind().Charges() {
		s.Stats = nil
	} else {
		runsOut := "unknown: no credits burned in the last 7 days"
		if b.Available == 0 {
			runsOut = "no credits left"
		}
		week := page.Numbers(used.credits.Now[len(used.credits.Now)-paceDays:]).Total()
		s.Facts = append(s.Facts, page.Fact{Label: "Runs out (estimate)", Cell: page.AtOr(toll.AtPtr(lastsUntil(c, b, week)), runsOut)})
		s.Charts = []*page.Chart{page.NewChart("Credits burned in 30 days", days, used.credits, page.PlainNumber)}
	}
	s.Parts = append(s.Parts, labels...)
	if len(b.Lots) > 0 {
		t := &page.Table{Caption: "Credits by expiry", Head: []page.Column{{Text: "Expires"}, {Text: "Left", Num: true}, {Text: "Granted", Num: true}}}
		for _, l := range b.Lots {
			t.Rows = append(t.Rows, []page.Cell{page.AtOr(l.ExpiresAt, "never"), page.Credits(l.Remaining), page.Credits(l.Amount)})
		}
		s.Parts = append(s.Parts, page.Part{Title: "Credits by expiry", Table: t})
	}
	if c.Person.Rights.Has(toll.RightSpend) {
		s.Links = []page.Link{{Text: "Create access token", To: c.To("tokens", "new") + "?plan=" + url.QueryEscape(string(p.ID)), Plain: true}}
		s.Acts, s.Note = orderDialog(c, p, w.Cards)
	}
	s.Parts = append(s.Parts, page.Part{Title: "Access tokens", Table: tokens})
	return c.Record(page.NameOf(p.Metadata.Name), s)
}

// listedAgents returns listed agents of a plan, oldest first, at most [mostOffers].
func listedAgents(c *page.Context, plan toll.PlanID) ([]*toll.Agent, error) {
	part, err := page.PartOf[*toll.Agent](c, list.AgentsOfPlan.Under(string(plan)), url.Values{"pageSize": {strconv.Itoa(mostOffers)}, "sortOrder": {"asc"}})
	return slices.DeleteFunc(part.Items, func(a *toll.Agent) bool { return !a.IsListed }), err
}

// tryPath is the page that calls an agent and pays with a plan.
func tryPath(c *page.Context, a *toll.Agent, plan toll.PlanID) string {
	return c.To("try") + "?" + url.Values{"agent": {string(a.ID)}, "plan": {string(plan)}}.Encode()
}

// tryTable is a table of agents with their endpoints.
func tryTable(c *page.Context, agents []*toll.Agent, plan toll.PlanID) *page.Table {
	t := &page.Table{Caption: "Agents", Head: []page.Column{{Text: "Agent"}, {Text: "Endpoint"}, {Text: "Call"}}}
	for _, a := range agents {
		row := []page.Cell{{Text: page.NameOf(a.Metadata.Name), To: "/a/" + string(a.ID)}, {Text: "any URL of the agent"}, {}}
		if len(a.API.Endpoints) > 0 {
			row[1].Text = plain.Name(a.API.Endpoints[0].Verb + " " + a.API.Endpoints[0].URL)
		}
		if n := len(a.API.Endpoints) - 1; n > 0 {
			row[1].Sub = "and " + page.Count(int64(n), "more endpoint")
		}
		if c.Person.Rights.Has(toll.RightSpend) {
			row[2] = page.Cell{Text: "Try it", To: tryPath(c, a, plan)}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// takenBack sums the credits of refunds and disputes over the newest 100 orders of a plan.
func takenBack(c *page.Context, plan toll.PlanID) (n toll.Credits, err error) {
	orders, err := page.PartOf[*toll.Order](c, list.Orders, url.Values{"role": {"buyer"}, "planId": {string(plan)}, "pageSize": {"100"}})
	for _, o := range orders.Items {
		n += o.RefundedCredits
	}
	return n, err
}

// orderDialog returns the dialog that orders a plan again, or the reason why the person cannot order it here.
func orderDialog(c *page.Context, p *toll.Plan, cards bool) ([]page.Dialog, string) {
	if !p.Kind().Prepaid() {
		return nil, ""
	}
	button, why := page.OrderButton(c.Person, p, cards)
	payers := page.Field{Name: "payer", Label: "Pay with", Members: []string{"delegationId"}}
	if button != "" {
		payers.Options = append(payers.Options, page.Option{Value: "", Text: map[bool]string{true: "This workspace's wallet", false: "Card"}[p.Price.IsCrypto]})
	}
	if p.Price.IsFree() {
		payers.Options = []page.Option{{Value: "", Text: "Free"}}
	} else {
		payers.Options = append(payers.Options, purseOptions(c, p.ID)...)
	}
	if len(payers.Options) == 0 {
		return nil, why
	}
	return []page.Dialog{c.DialogOf("order", "Order plan", "Price: "+page.PriceOf(p)+". You get "+page.BuysOf(p)+".", payers)}, why
}

// mostOffers is how many plans of an agent, and how many delegations, a page offers.
const mostOffers = 20

// purseOptions are the delegations that can pay a plan.
func purseOptions(c *page.Context, plan toll.PlanID) (out []page.Option) {
	for d, err := range c.API.Delegations(c.Acting(), client.Accessible()) {
		if err != nil || len(out) == mostOffers {
			return out
		}
		if d.PlanID == nil || *d.PlanID == plan || plan == "" {
			out = append(out, page.Option{
				Value: d.DelegationID,
				Text:  "Delegation " + page.Short(d.DelegationID) + ", " + centsText(d.RemainingBudgetCents, d.Currency) + " left",
			})
		}
	}
	return out
}

func topUp(c *page.Context) (page.View, error) {
	p, err := heldPlan(c)
	if err != nil {
		return nil, err
	}
	return c.Finish(func() (page.Outcome, error) {
		if c.Form.Get("act") != "order" {
			return page.Outcome{}, toll.NewError(toll.CodeBadRequest)
		}
		payer := c.Form.Get("payer")
		if payer == "" && !p.Price.IsCrypto && !p.Price.IsFree() {
			back := c.Origin() + c.To("holdings", string(p.ID))
			made, err := c.API.Checkout(c.Once(), p.ID, client.CheckoutParams{SessionType: "embedded", CancelURL: back})
			if err != nil {
				return page.Outcome{}, err
			}
			return page.Outcome{To: made.Result.URL}, nil
		}
		var by []client.OrderOption
		if payer != "" {
			by = append(by, client.PaidBy(payer))
		}
		o, err := c.API.OrderPlan(c.Once(), p.ID, by...)
		if err != nil {
			return page.Outcome{}, err
		}
		return page.Outcome{To: c.To("orders", o.OrderID), Done: "Plan ordered."}, nil
	})
}

// tokensOf is a table of access tokens.
func tokensOf(c *page.Context, q url.Values) (*page.Table, error) {
	tokens, err := page.ListOf[*toll.Permission](c, list.Permissions, q)
	of := list.Permissions.Show("permissionHash", "planId", "status", "usedCredits", "maxCredits", "expiresAt")
	t := page.TableOf(c, of, "access token", tokens, func(p *toll.Permission, cell page.Cells) {
		cell["permissionHash"].To, cell["planId"].To = c.To("tokens", p.PermissionHash.String()), c.To("holdings", string(p.PlanID))
		if p.MaxCredits == nil {
			cell["maxCredits"].Text = "no limit"
		}
	})
	t.Empty = &page.Empty{
		Icon: "badge-check", Title: "No access tokens yet", Text: "An access token lets a program spend credits of a plan, up to a limit.", To: "", Button: "",
		Command: "toll tokens create --help",
	}
	return t, err
}

func listTokens(c *page.Context) (page.View, error) {
	states := []page.Option{{Value: "", Text: "All"}}
	for _, s := range []toll.PermissionStatus{toll.StatusActive, toll.StatusRevoked, toll.StatusExpired, toll.StatusExhausted} {
		states = append(states, page.Option{Value: string(s), Text: string(s)})
	}
	filter, q := c.Filters(page.Field{Name: "status", Label: "Status", Options: states}, page.Field{Name: "planId", Label: "Plan", Max: 80})
	t, err := tokensOf(c, q)
	if err := c.Narrowed(err); err != nil {
		return nil, err
	}
	s := page.Record{Lead: "Access tokens let programs spend credits, up to a limit and until they expire.", Filter: filter, Table: t}
	if c.Person.Rights.Has(toll.RightSpend) {
		s.Begin("Create access token", c.To("tokens", "new"))
	}
	s.Links = append(s.Links, file(c, "tokens", q)...)
	return c.Record("Access tokens", s)
}

// tokenLives are the lifetimes that an access token can have, in seconds.
var tokenLives = []page.Option{
	{Value: "86400", Text: "In a day"}, {Value: "3600", Text: "In an hour"}, {Value: "604800", Text: "In a week"},
	{Value: "2592000", Text: "In 30 days"}, {Value: "31536000", Text: "In a year"},
}

func askToken(c *page.Context) (page.View, error) {
	plans := page.Field{Name: "plan", Label: "Plan", Value: c.R.URL.Query().Get("plan"), Members: []string{"planId"}}
	for b, err := range c.API.Holdings(c.Acting()) {
		if err != nil {
			return nil, c.Failed("plan", err)
		}
		if len(plans.Options) == 100 {
			break
		}
		plans.Options = append(plans.Options, page.Option{Value: string(b.PlanID), Text: page.NameOf(b.PlanName) + ", " + page.Count(int64(b.Available), "credit")})
	}
	if c.Form.Get("plan") != "" {
		plans.Value = c.Form.Get("plan")
	}
	if id := plans.Value; id != "" && !page.HasOption(plans.Options, id) {
		plans.Options = append(plans.Options, page.Option{Value: id, Text: id})
	}
	if len(plans.Options) == 0 {
		plans.Hint, plans.Options = "This workspace has no plans. Buy a plan under Explore, or enter the id of a free plan.", nil
	}
	fields := []page.Field{
		plans,
		{Name: "limit", Label: "Credit limit (optional)", Unit: "credits", Mode: "numeric", Hint: "Leave empty to allow all available credits.", Members: []string{"redemptionLimit"}},
		{Name: "ends", Label: "Expires", Options: tokenLives, Members: []string{"expiresInSecs"}},
		agentField(c, plans),
	}
	if purses := purseOptions(c, ""); len(purses) > 0 {
		fields = append(fields,
			page.Field{
				Name: "purse", Label: "Automatic top-up", Hint: "The delegation that orders the plan again when its credits run out.",
				Options: append([]page.Option{{Value: "", Text: "None"}}, purses...), Members: []string{"delegationConfig", "delegationId"},
			},
			page.Field{Name: "orders", Label: "Maximum orders (optional)", Mode: "numeric", Hint: "How often the token can order the plan again. Leave empty to apply only the limits of the delegation.", Members: []string{"orderLimit"}},
		)
	}
	f := c.FormOf("make", "Create token", page.Group{Fields: fields})
	f.Cancel = c.To("tokens")
	return c.Record("Create access token", page.Record{Lead: "You can see the token only once.", Forms: []*page.Form{f}})
}

// agentField is the field that restricts a token to an agent: a choice if the form has one plan.
func agentField(c *page.Context, plans page.Field) page.Field {
	f := page.Field{Name: "agent", Label: "Agent (optional)", Max: 100, Hint: "Restrict the token to one agent of the plan.", Members: []string{"agentId"}}
	id := plans.Value
	if id == "" && len(plans.Options) == 1 {
		id = plans.Options[0].Value
	}
	plan, err := toll.ParsePlanID(id)
	var agents []*toll.Agent
	if err == nil {
		agents, err = listedAgents(c, plan)
	}
	if err != nil {
		f.Hint = "Enter the id of an agent to restrict the token to it. Leave empty to allow all agents of the plan."
		return f
	}
	f.Options = []page.Option{{Text: "All agents of the plan"}}
	for _, a := range agents {
		f.Options = append(f.Options, page.Option{Value: string(a.ID), Text: page.NameOf(a.Metadata.Name)})
	}
	return f
}

func makeToken(c *page.Context) (page.View, error) {
	return c.Finish(func() (page.Outcome, error) {
		life, err1 := seconds(c, "ends", tokenLives)
		limit, err2 := number(c, "limit")
		if err := page.Together(err1, err2); err != nil {
			return page.Outcome{}, err
		}
		with := []client.TokenOption{client.WithExpiry(life)}
		if limit > 0 {
			with = append(with, client.WithRedemptionLimit(limit))
		}
		if id := c.Text("agent"); id != "" {
			with = append(with, client.WithAgent(toll.AgentID(id)))
		}
		if id := c.Form.Get("purse"); id != "" {
			with = append(with, client.WithDelegation(id))
		}
		if text := c.Text("orders"); text != "" {
			n, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				return page.Outcome{}, page.OneFault("orders", "must be a whole number of at least 0")
			}
			with = append(with, client.WithOrderLimit(n))
		}
		t, err := c.API.AccessToken(c.Acting(), toll.PlanID(c.Text("plan")), with...)
		if err != nil {
			return page.Outcome{}, err
		}
		out := page.Outcome{
			To: c.To("tokens", t.PermissionHash.String()), Done: "Access token created.", Secret: &page.Secret{Label: "Access token", Text: t.AccessToken},
		}
		a, err := agentOf(c, toll.PlanID(c.Text("plan")), toll.AgentID(c.Text("agent")))
		if err == nil && a != nil { // the token exists, whatever can be read of the agent
			out.Also = &page.Secret{Label: "Call " + page.NameOf(a.Metadata.Name) + " with curl", Text: page.CallOnce(a, t.AccessToken)}
		}
		return out, nil
	})
}

// agentOf returns the agent of a token, or the first listed agent of its plan, or nil.
func agentOf(c *page.Context, plan toll.PlanID, id toll.AgentID) (*toll.Agent, error) {
	if id != "" {
		return c.API.Agent(c.Acting(), id)
	}
	agents, err := listedAgents(c, plan)
	if err != nil || len(agents) == 0 {
		return nil, err
	}
	return agents[0], nil
}

// token returns the permission of the page.
func token(c *page.Context) (p *toll.Permission, err error) {
	hash, err := toll.ParseHash(c.Param("token"))
	if err == nil {
		p, err = c.API.Permission(c.Acting(), hash)
	}
	if err != nil {
		return nil, c.Failed("access token", err)
	}
	return p, nil
}

func showToken(c *page.Context) (page.View, error) {
	p, err := token(c)
	if err != nil {
		return nil, err
	}
	s := page.Record{Facts: []page.Fact{
		{Label: "ID", Cell: page.Cell{ID: p.PermissionHash.String()}}, {Label: "Status", Cell: page.Cell{State: page.StateOf(p.Status)}},
		{Label: "Plan", Cell: page.Cell{ID: string(p.PlanID), To: c.To("holdings", string(p.PlanID))}}, {Label: "Agents", Cell: goodAt(c, p)},
		{Label: "Used", Cell: page.Cell{Number: p.UsedCredits.String(), Sub: limitText(p.MaxCredits)}}, {Label: "Created", Cell: madeBy(c, p)}, {Label: "Expires", Cell: page.Cell{At: p.ExpiresAt.Time}},
	}}
	if p.MaxCredits != nil && *p.MaxCredits > 0 {
		s.Bars = []page.Bar{{Label: "Credits", Value: int64(p.UsedCredits), Max: int64(*p.MaxCredits), Text: page.Grouped(p.UsedCredits.String()) + " of " + page.Grouped(p.MaxCredits.String())}}
	}
	if p.DelegationID != nil {
		s.Facts = append(s.Facts, page.Fact{Label: "Automatic top-up", Cell: page.Cell{ID: *p.DelegationID, To: c.To("delegations", *p.DelegationID)}},
			page.Fact{Label: "Orders", Cell: page.Cell{Number: strconv.FormatInt(p.UsedOrders, 10), Sub: ordersText(p.MaxOrders)}})
	}
	t := &page.Table{
		Caption: "Settlements", Head: []page.Column{{Text: "Time"}, {Text: "Request"}, {Text: "Transaction"}, {Text: "Credits", Num: true}},
		Empty: &page.Empty{Icon: "activity", Title: "No settlements yet", Text: "Requests paid with this token appear here after you reload the page."},
	}
	for _, u := range p.Transactions {
		t.Rows = append(t.Rows, []page.Cell{{At: u.CreatedAt.Time}, {ID: u.AgentRequestID, To: c.To("requests", u.AgentRequestID)}, {ID: u.Transaction.String()}, page.Credits(u.CreditsRedeemed)})
	}
	s.Parts = []page.Part{{Title: "Settlements", Table: t}}
	if p.Status == toll.StatusActive && c.Person.Rights.Has(toll.RightSpend) {
		var only toll.AgentID
		if p.AgentID != nil {
			only = *p.AgentID
		}
		if a, err := agentOf(c, p.PlanID, only); err == nil && a != nil {
			s.Links = []page.Link{{Text: "Try it", To: tryPath(c, a, p.PlanID), Plain: true}}
		}
		s.Acts = []page.Dialog{c.DangerOf("end", "Revoke", "The token stops working immediately. Held requests can still be settled.")}
	}
	return c.Record("Access token "+page.Short(p.PermissionHash.String()), s)
}

func goodAt(c *page.Context, p *toll.Permission) page.Cell {
	switch {
	case p.AgentID != nil:
		return page.Cell{ID: string(*p.AgentID)}
	case p.AllowedAgents != nil:
		return page.Cell{Text: page.Count(int64(len(p.AllowedAgents)), "agent")}
	}
	return page.Cell{Text: "all agents of the plan"}
}

// madeBy returns the time at which a token was created, and the name of the API key that created it.
func madeBy(c *page.Context, p *toll.Permission) page.Cell {
	cell := page.Cell{At: p.CreatedAt.Time}
	if p.APIKeyID != nil {
		if k, err := c.API.Key(c.Acting(), *p.APIKeyID); err == nil {
			cell.Sub = "with the API key " + plain.Name(nameOfKey(*k))
		}
	}
	return cell
}

func limitText(most *toll.Credits) string {
	if most == nil {
		return "no limit"
	}
	return "of at most " + page.Grouped(most.String())
}

func ordersText(most *int64) string {
	if most == nil {
		return "no limit"
	}
	return "of at most " + page.Grouped(strconv.FormatInt(*most, 10))
}

func endToken(c *page.Context) (page.View, error) {
	p, err := token(c)
	if err != nil {
		return nil, err
	}
	return c.Finish(func() (page.Outcome, error) {
		if c.Form.Get("act") != "end" {
			return page.Outcome{}, toll.NewError(toll.CodeBadRequest)
		}
		err := c.API.RevokePermission(c.Acting(), p.PermissionHash)
		return page.Outcome{To: c.To("tokens", p.PermissionHash.String()), Done: "Access token revoked."}, err
	})
}

// exports are the lists of the API that a page hands out as a file, by the name of the page. A field
// of the query takes the place of %s in the path.
var exports = map[string]struct {
	path, title string
	right       toll.Right
	field       string
}{
	"agents":              {"/protocol/agents", "Agents", toll.RightRead, ""},
	"plans":               {"/protocol/plans", "Plans", toll.RightRead, ""},
	"orders":              {"/protocol/orders", "Orders", toll.RightMoney, ""},
	"subscribers":         {"/protocol/plans/%s/subscribers", "Subscribers", toll.RightMoney, "plan"},
	"holdings":            {"/protocol/holdings", "My plans", toll.RightRead, ""},
	"usage":               {"/protocol/usage", "Usage", toll.RightRead, ""},
	"revenue":             {"/protocol/revenue", "Revenue", toll.RightMoney, ""},
	"refusals":            {"/protocol/refusals", "Refused requests", toll.RightRead, ""},
	"requests":            {"/protocol/requests", "Requests", toll.RightMoney, ""},
	"tokens":              {"/x402/permissions", "Access tokens", toll.RightRead, ""},
	"delegation-payments": {"/delegation/%s/transactions", "Delegation payments", toll.RightRead, "delegation"},
	"events":              {"/events", "Events", toll.RightRead, ""},
	"audit":               {"/audit-log", "Audit log", toll.RightMembers, ""},
}

// file leads to a list as a file, for people who may have it.
func file(c *page.Context, list string, q url.Values) []page.Link {
	if !c.Person.Rights.Has(exports[list].right) {
		return nil
	}
	text := "Export"
	if list == "refusals" || list == "subscribers" {
		text += " " + strings.ToLower(exports[list].title) // on a page of more than that
	}
	to := c.To("export", list)
	if len(q) > 0 {
		to += "?" + q.Encode()
	}
	q = maps.Clone(q)
	if q == nil {
		q = url.Values{}
	}
	q.Set("format", "ndjson")
	return []page.Link{{Text: text, Menu: []page.Link{{Text: "CSV for spreadsheets", To: to}, {Text: "NDJSON for programs", To: c.To("export", list) + "?" + q.Encode()}}}}
}

// export passes a file of the API on, as it is written.
func export(c *page.Context) (page.View, error) {
	of, ok := exports[c.Param("list")]
	if !ok {
		return nil, c.Missing("list")
	}
	if err := c.HasRight(of.right); err != nil {
		return nil, err
	}
	q := c.R.URL.Query()
	if q.Get("format") != "ndjson" {
		q.Set("format", "csv")
	}
	path := of.path
	if of.field != "" {
		path = fmt.Sprintf(path, url.PathEscape(q.Get(of.field)))
		q.Del(of.field)
	}
	r, err := http.NewRequestWithContext(c.Acting(), http.MethodGet, c.PublicURL+"/api/v1"+path+"?"+q.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	r.RequestURI, r.RemoteAddr = r.URL.RequestURI(), c.R.RemoteAddr
	return page.Stream(func() { c.Handler.ServeHTTP(c.W, r) }), nil
}
