package web

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"path"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

// Paths of the pages that everybody may open.
const (
	PathExplore  = "/explore"
	PathAgent    = "/a/{agent}"
	PathPlan     = "/p/{plan}"
	PathReceipts = "/receipts"
)

const (
	// exploreRows is how many agents a page of the catalogue has.
	exploreRows = 12
	// mostShown is how many endpoints, plans and agents a public page names.
	mostShown = 20
	// shortText and longText bound descriptions on public pages, in characters.
	shortText, longText = 160, 4000
)

// PublicRoutes are the routes of the pages that everybody may open, and of the look of the operator.
func (w *Web) PublicRoutes() []Route {
	return append(w.brandRoutes(), []Route{
		{http.MethodGet, PathExplore, w.public(explore, nil)},
		{http.MethodGet, PathAgent, w.public(showPublicAgent, nil)},
		{http.MethodGet, PathPlan, w.public(showPublicPlan, nil)},
		{http.MethodPost, PathPlan, w.public(nil, postPlan)},
		{http.MethodGet, PathReceipts, w.public(askReceipt, nil)},
		{http.MethodPost, PathReceipts, w.public(nil, checkReceipt)},
	}...)
}

// public serves a page that everybody may open. Where the installation closes its reads, it exists
// only for people who signed in.
func (w *Web) public(get, post func(*visit)) http.Handler {
	unlessClosed := func(h func(*visit)) func(*visit) {
		return func(v *visit) {
			if w.CloseReads && (v.person == nil || !v.person.Rights.Has(toll.RightRead)) {
				v.refuseNext(http.StatusNotFound, "There is no such page.", "")
				return
			}
			h(v)
		}
	}
	return w.page(unlessClosed(get), unlessClosed(post))
}

// drawPublic shows a public page.
func drawPublic(v *visit, name, title string, body any) {
	v.show(cmp.Or(v.status, http.StatusOK), name, shown{Title: title, Fault: v.fault, Public: true, Body: body}, "")
}

// pathID is the last part of the path of a public page, the id of its record.
func pathID(v *visit) string { return path.Base(v.r.URL.Path) }

// notFound answers for a public page without a record, and for every other failure. It reports whether
// there was one.
func notFound(v *visit, what string, err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, store.ErrNotFound) || toll.AsError(err).Code == toll.CodeBadID {
		v.refuseNext(http.StatusNotFound, "There is no such "+what+". The address was mistyped, or it is of another service.", "")
		return true
	}
	v.fail(err)
	return true
}

// explorePage is the catalogue.
type explorePage struct {
	Query       string
	Agents      []agentCard
	First, Next string // addresses of other parts; "" for none
}

// agentCard is an agent in the catalogue.
type agentCard struct {
	To, Name, Text, Price, More string
	Owner                       string
	Tags                        []tagLink
}

// tagLink searches for a tag.
type tagLink struct{ Text, To string }

func tagLinks(tags []string) []tagLink {
	var out []tagLink
	for _, tag := range tags[:min(len(tags), 6)] {
		if name := plain.Name(tag); name != "" {
			out = append(out, tagLink{name, PathExplore + "?" + url.Values{"q": {tag}}.Encode()})
		}
	}
	return out
}

func explore(v *visit) {
	q := v.r.URL.Query()
	page := explorePage{Query: q.Get("q")}
	found, next, err := v.w.FindAgents(v.ctx(), page.Query, exploreRows, q.Get("cursor"))
	if err != nil {
		v.fail(err)
		return
	}
	agents := map[toll.AgentID]*toll.Agent{}
	plans := map[toll.PlanID]*toll.Plan{}
	var ids []toll.AgentID
	var firsts []toll.PlanID
	for _, a := range found {
		ids = append(ids, a.ID)
		if len(a.Plans) > 0 {
			firsts = append(firsts, a.Plans[0].ID)
		}
	}
	err1 := store.EachAgent(v.ctx(), v.w.Store, ids, func(a *toll.Agent) error {
		a.API = toll.AgentAPI{} // may be large
		agents[a.ID] = a
		return nil
	})
	err2 := store.EachPlan(v.ctx(), v.w.Store, firsts, func(p *toll.Plan) error {
		plans[p.ID] = p
		return nil
	})
	if err := errors.Join(err1, err2); err != nil {
		v.fail(err)
		return
	}
	for _, of := range found {
		a := agents[of.ID]
		if a == nil || len(of.Plans) == 0 || plans[of.Plans[0].ID] == nil {
			continue // changed meanwhile
		}
		p := plans[of.Plans[0].ID]
		card := agentCard{
			To: "/a/" + string(a.ID), Name: nameOf(a.Metadata.Name), Text: plain.Text(a.Metadata.Description, shortText),
			Owner: a.Owner.String(), Tags: tagLinks(a.Metadata.Tags), Price: priceOf(p) + " for " + buys(p),
		}
		if !p.Kind().Prepaid() {
			card.Price = priceOf(p)
		}
		if n := len(of.Plans) - 1; n > 0 {
			card.More = count(int64(n), "more plan")
		}
		page.Agents = append(page.Agents, card)
	}
	pager := v.pagerOf(0, next, "agent")
	page.First, page.Next = pager.First, pager.Next
	drawPublic(v, "explore", "Explore", page)
}

// planCard is a plan as a buyer reads it.
type planCard struct {
	To, Name, Text, ID string
	Amount, Currency   string // Currency is "" for a free plan
	Buys, Request      string
	Requests           string // how many requests one order pays for; "" for a plan of time
	Sold               bool   // it can be ordered now
}

func cardOf(p *toll.Plan) planCard {
	c := planCard{
		To: "/p/" + string(p.ID), ID: string(p.ID), Name: nameOf(p.Metadata.Name), Amount: priceOf(p), Buys: buys(p), Sold: p.IsListed,
		Text: plain.Lines(p.Metadata.Description, longText),
	}
	if !p.Price.IsFree() && p.Kind().Prepaid() {
		c.Amount, c.Currency = grouped(p.Price.Text()), p.Price.CurrencyName()
	}
	if !p.Kind().Charges() {
		c.Request = "no credits"
		return c
	}
	c.Request = burns(p) + " credits"
	if burns(p) == "1" {
		c.Request = "1 credit"
	}
	if low, high := p.Credits.MinAmount, p.Credits.MaxAmount; low > 0 && high > 0 {
		few, many := grouped((p.Credits.Amount / high).String()), grouped((p.Credits.Amount / low).String())
		c.Requests = few + " to " + many + " requests"
		if few == many {
			c.Requests = count(int64(p.Credits.Amount/low), "request")
		}
	}
	return c
}

// publicAgent is the page of an agent.
type publicAgent struct {
	ID, Owner, Text string
	Listed          bool
	Tags            []tagLink
	Endpoints       *table
	More            string // endpoints that are not named; "" for none
	Plans           []planCard
	Snippets        []snippet
}

func showPublicAgent(v *visit) {
	id, err := toll.ParseAgentID(pathID(v))
	var a *toll.Agent
	if err == nil {
		a, err = store.AgentByID(v.ctx(), v.w.Store, id)
	}
	if notFound(v, "agent", err) {
		return
	}
	plans, err := store.PlansOfAgent(v.ctx(), v.w.Store, id, store.Page{Size: mostShown})
	if notFound(v, "agent", err) {
		return
	}
	page := publicAgent{
		ID: string(a.ID), Owner: a.Owner.String(), Listed: a.IsListed, Text: plain.Lines(a.Metadata.Description, longText),
		Tags:      tagLinks(a.Metadata.Tags),
		Endpoints: &table{Caption: "Endpoints", Head: []column{{Text: "Method"}, {Text: "Address"}}},
	}
	for _, e := range a.API.Endpoints[:min(len(a.API.Endpoints), mostShown)] {
		page.Endpoints.Rows = append(page.Endpoints.Rows, []cell{{Text: e.Verb}, {Text: plain.Text(e.URL, toll.MaxURLRunes)}})
	}
	if n := len(a.API.Endpoints) - mostShown; n > 0 {
		page.More = count(int64(n), "more endpoint")
	}
	for _, p := range plans.Items {
		if p.IsListed {
			c := cardOf(p)
			c.To += "?agent=" + string(a.ID)
			page.Plans = append(page.Plans, c)
		}
	}
	if len(page.Plans) > 0 {
		page.Snippets = callsOf(v, a, "")
	}
	drawPublic(v, "public_agent", nameOf(a.Metadata.Name), page)
}

// callsOf are the ways to call an agent, for strangers.
func callsOf(v *visit, a *toll.Agent, plan toll.PlanID) []snippet {
	all := snippets(v, a, plan)
	return all[:len(all)-1]
}

// formBuy is the first word of what the ticket of that form says.
const formBuy = "buy"

// publicPlan is the page on which a plan is bought.
type publicPlan struct {
	planCard
	Owner           string
	Charges, Test   bool // requests charge credits; the service takes no real money
	Agents          []agentCard
	Snippets        []snippet // that call the first of them
	Workspace       string    // that buys; "" for a stranger
	Holds           string    // what it has of the plan; "" for nothing
	Holdings, Try   string    // pages with all that it has, and on which it calls the agent; Try is "" where nothing pays
	Order, Why      string    // label of the button, or why there is none
	Action, Ticket  string
	SignIn, SignUp  string // of a stranger; SignUp is "" where nobody may
	Everlasting     bool   // credits never end
	CardPaid, Coins bool   // how the plan is paid
}

// showPublicPlan shows a plan; a person who signed in buys it there.
func showPublicPlan(v *visit) {
	if p, of := offered(v); p != nil {
		drawPlan(v, p, of)
	}
}

// offered reads the plan of the page, and what it is for the workspace of the person, nil for a
// stranger. A nil plan: the answer was written.
func offered(v *visit) (*toll.Plan, *offer) {
	id, err := toll.ParsePlanID(pathID(v))
	var p *toll.Plan
	if err == nil {
		p, err = store.PlanByID(v.ctx(), v.w.Store, id)
	}
	if notFound(v, "plan", err) {
		return nil, nil
	}
	if v.person == nil || v.person.Address.IsZero() {
		return p, nil
	}
	o, err := v.w.offer(v.ctx(), v.person.Address, p)
	if notFound(v, "plan", err) {
		return nil, nil
	}
	if o.Order, o.Why = v.w.waysToOrder(v.person, o); !p.Kind().Prepaid() {
		o.Order, o.Why = "", "There is nothing to buy before: each request buys the credits that it needs."
	}
	return p, o
}

func drawPlan(v *visit, p *toll.Plan, o *offer) {
	agents, err := agentsOf(v, p)
	if notFound(v, "plan", err) {
		return
	}
	here := v.r.URL.RequestURI()
	page := publicPlan{
		planCard: cardOf(p), Owner: p.Owner.String(), Charges: p.Kind().Charges(), Test: v.w.Environment != toll.Live, Action: here,
		Everlasting: p.Credits.DurationSecs.IsZero(), CardPaid: !p.Price.IsCrypto && !p.Price.IsFree(), Coins: p.Price.IsCrypto && !p.Price.IsFree(),
	}
	for _, a := range agents {
		page.Agents = append(page.Agents, agentCard{To: "/a/" + string(a.ID), Name: nameOf(a.Metadata.Name), Text: plain.Text(a.Metadata.Description, shortText)})
	}
	if len(agents) > 0 {
		page.Snippets = callsOf(v, agents[0], p.ID)
	}
	if o == nil {
		next := url.Values{"next": {here}}.Encode()
		page.SignIn = PathSignIn + "?" + next
		if v.w.mayRegister() {
			page.SignUp = PathSignUp + "?" + next
		}
	} else {
		page.Workspace = cmp.Or(plain.Name(v.person.Workspace.Name), short(v.person.Address.String()))
		page.Order, page.Why, page.Ticket, page.Holdings = o.Order, o.Why, v.ticket(append([]string{formBuy}, o.says()...)...), v.to("holdings")
		if len(agents) > 0 && o.Ready() {
			page.Try = v.to("try") + "?" + url.Values{"agent": {string(agents[0].ID)}, "plan": {page.ID}}.Encode()
		}
		switch {
		case o.Until != "":
			page.Holds = "It runs: " + o.Until
		case o.Available > 0:
			page.Holds = count(int64(o.Available), "credit") + " left"
		}
	}
	drawPublic(v, "public_plan", nameOf(p.Metadata.Name), page)
}

// agentsOf are the agents at which a plan pays. The one that the query names comes first.
func agentsOf(v *visit, p *toll.Plan) ([]*toll.Agent, error) {
	list, err := store.AgentsOfPlan(v.ctx(), v.w.Store, p.ID, store.Page{Size: mostServers, Ascending: true})
	if err != nil {
		return nil, err
	}
	var out []*toll.Agent
	wanted, err := toll.ParseAgentID(v.r.URL.Query().Get("agent"))
	if err == nil {
		a, err := store.AgentByID(v.ctx(), v.w.Store, wanted)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		if err == nil && a.HasPlan(p.ID) {
			out = append(out, a)
		}
	}
	for _, a := range list.Items {
		if a.IsListed && (len(out) == 0 || a.ID != out[0].ID) {
			out = append(out, a)
		}
	}
	return out, nil
}

// postPlan orders the plan, once for each form.
func postPlan(v *visit) {
	v.at = place(v.r.URL.RequestURI())
	if v.person == nil {
		askSignIn(v, http.StatusForbidden, "You are not signed in any more, so nothing was ordered.", v.at, "")
		return
	}
	p, o := offered(v)
	if p == nil {
		return
	}
	if o == nil || !v.holds(v.form.Get("ticket"), append([]string{formBuy}, o.says()...)...) {
		v.status, v.fault = http.StatusForbidden, "Nothing was ordered: the plan changed since this page was shown, or you signed in again. Read it once more."
		drawPlan(v, p, o)
		return
	}
	pay, err := v.w.once(v.ctx(), v.form.Get("ticket"), func() (string, error) {
		if o.Order == "" {
			return "", toll.Errorf(toll.CodeBadRequest, "%s", o.Why)
		}
		return buy(v, v.ctx(), p, v.origin()+v.at)
	})
	if errors.Is(err, errAnswered) {
		err = nil // the first of two equal forms ordered it
	}
	again := func(status int, fault string) {
		v.status, v.fault = status, "Nothing was ordered: "+fault
		drawPlan(v, p, o)
	}
	if v.faulty(err, again) {
		return
	}
	v.redirect(http.StatusSeeOther, cmp.Or(pay, v.at))
}
