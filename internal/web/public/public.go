package public

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strconv"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/offer"
	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/internal/web/session"
)

const (
	// exploreRows is how many agents a page of the catalogue has.
	exploreRows = 12
	// mostShown is how many endpoints, plans and agents a public page names.
	mostShown = 20
	// mostAgents is how many agents of a plan its page reads.
	mostAgents = 5
	// shortText and longText bound descriptions on public pages, in characters.
	shortText, longText = 160, 4000
)

// open returns a page that everybody may open. Where the installation closes its reads, it exists only for people who signed in.
func open(path string, get, post func(*page.Context) (page.View, error)) page.Route {
	unlessClosed := func(h func(*page.Context) (page.View, error)) func(*page.Context) (page.View, error) {
		if h == nil {
			return nil
		}
		return func(c *page.Context) (page.View, error) {
			if c.CloseReads && (c.Person == nil || !c.Person.Rights.Has(toll.RightRead)) {
				return nil, c.RefuseNext(http.StatusNotFound, "This page does not exist.", "")
			}
			return h(c)
		}
	}
	return page.Route{Path: path, Get: unlessClosed(get), Post: unlessClosed(post)}
}

func drawPublic(c *page.Context, name, title string, body any) (page.View, error) {
	return c.Show(cmp.Or(c.Status, http.StatusOK), name, page.Layout{Title: title, Fault: c.Fault, Public: true, Body: body}, "")
}

func pathID(c *page.Context) string { return path.Base(c.R.URL.Path) }

// notFound returns the refusal for a public page without a record, and every other error as it is.
func notFound(c *page.Context, what string, err error) error {
	if toll.AsError(err).HTTPStatus() == http.StatusNotFound || toll.AsError(err).Code == toll.CodeBadID {
		return c.RefuseNext(http.StatusNotFound, "This "+what+" does not exist. Check the address: it may be mistyped or belong to another service.", "")
	}
	return err
}

type explorePage struct {
	Query       string
	Agents      []agentCard
	First, Next string // addresses of other parts; "" for none
}

type agentCard struct {
	To, Name, Text, Price, More string
	Owner                       string
	Tags                        []tagLink
}

type tagLink struct{ Text, To string }

func tagLinks(tags []string) []tagLink {
	var out []tagLink
	for _, tag := range tags[:min(len(tags), 6)] {
		if name := plain.Name(tag); name != "" {
			out = append(out, tagLink{name, page.PathExplore + "?" + url.Values{"q": {tag}}.Encode()})
		}
	}
	return out
}

func (w *pages) explore(c *page.Context) (page.View, error) {
	q := c.R.URL.Query()
	body := explorePage{Query: q.Get("q")}
	found, next, err := w.Records.FindAgents(c.Ctx(), body.Query, exploreRows, q.Get("cursor"))
	if err != nil {
		return nil, err
	}
	for _, of := range found {
		a, p := of.Agent, of.Plan
		card := agentCard{
			To: "/a/" + string(a.ID), Name: page.NameOf(a.Metadata.Name), Text: plain.Text(a.Metadata.Description, shortText),
			Owner: a.Owner.String(), Tags: tagLinks(a.Metadata.Tags), Price: page.OfferOf(p),
		}
		if n := of.Plans - 1; n > 0 {
			card.More = page.Count(int64(n), "more plan")
		}
		body.Agents = append(body.Agents, card)
	}
	pager := c.PagerOf(0, next, "agent")
	body.First, body.Next = pager.First, pager.Next
	return drawPublic(c, "explore", "Explore", body)
}

type planCard struct {
	To, Name, Text, ID string
	Amount, Currency   string // Currency is "" for a free plan
	Buys, Request      string
	Requests           string // how many requests one order pays for; "" for a plan of time
	Sold               bool   // it can be ordered now
}

func cardOf(p *toll.Plan) planCard {
	c := planCard{
		To: "/p/" + string(p.ID), ID: string(p.ID), Name: page.NameOf(p.Metadata.Name), Amount: page.PriceOf(p), Buys: page.BuysOf(p), Sold: p.IsListed,
		Text: plain.Lines(p.Metadata.Description, longText),
	}
	if !p.Price.IsFree() && p.Kind().Prepaid() {
		c.Amount, c.Currency = page.Grouped(p.Price.Text()), p.Price.CurrencyName()
	}
	if !p.Kind().Charges() {
		c.Request = "no credits"
		return c
	}
	c.Request = page.BurnsOf(p) + " credits"
	if page.BurnsOf(p) == "1" {
		c.Request = "1 credit"
	}
	if low, high := p.Credits.MinAmount, p.Credits.MaxAmount; low > 0 && high > 0 {
		few, many := page.Grouped((p.Credits.Amount / high).String()), page.Grouped((p.Credits.Amount / low).String())
		c.Requests = few + " to " + many + " requests"
		if few == many {
			c.Requests = page.Count(int64(p.Credits.Amount/low), "request")
		}
	}
	return c
}

type publicAgent struct {
	ID, Owner, Text string
	Listed          bool
	Tags            []tagLink
	Endpoints       *page.Table
	More            string // endpoints that are not named; "" for none
	Plans           []planCard
	Snippets        []page.Snippet
}

func showPublicAgent(c *page.Context) (page.View, error) {
	id, err := toll.ParseAgentID(pathID(c))
	var a *toll.Agent
	if err == nil {
		a, err = c.API.Agent(c.Acting(), id)
	}
	if err != nil {
		return nil, notFound(c, "agent", err)
	}
	plans, err := page.PartOf[*toll.Plan](c, list.PlansOfAgent.Under(string(id)), url.Values{"pageSize": {strconv.Itoa(mostShown)}})
	if err != nil {
		return nil, notFound(c, "agent", err)
	}
	body := publicAgent{
		ID: string(a.ID), Owner: a.Owner.String(), Listed: a.IsListed, Text: plain.Lines(a.Metadata.Description, longText),
		Tags:      tagLinks(a.Metadata.Tags),
		Endpoints: &page.Table{Caption: "Endpoints", Head: []page.Column{{Text: "Method"}, {Text: "URL"}}},
	}
	for _, e := range a.API.Endpoints[:min(len(a.API.Endpoints), mostShown)] {
		body.Endpoints.Rows = append(body.Endpoints.Rows, []page.Cell{{Text: e.Verb}, {Text: plain.Text(e.URL, toll.MaxURLRunes)}})
	}
	if n := len(a.API.Endpoints) - mostShown; n > 0 {
		body.More = page.Count(int64(n), "more endpoint")
	}
	for _, p := range plans.Items {
		if p.IsListed {
			card := cardOf(p)
			card.To += "?agent=" + string(a.ID)
			body.Plans = append(body.Plans, card)
		}
	}
	if len(body.Plans) > 0 {
		body.Snippets = page.Snippets(c, a, "")
	}
	return drawPublic(c, "public_agent", page.NameOf(a.Metadata.Name), body)
}

// First words of what the tickets of these forms say.
const formBuy, formEnroll = "buy", "enroll"

type publicPlan struct {
	planCard
	Owner           string
	Charges, Test   bool // requests charge credits; the service takes no real money
	Agents          []agentCard
	Snippets        []page.Snippet // that call the first of them
	Workspace       string         // that buys; "" for a stranger
	Holds           string         // what it has of the plan; "" for nothing
	Holdings, Try   string         // pages with all that it has, and on which it calls the agent; Try is "" where nothing pays
	Token           string         // page that creates an access token; "" for a person who may not
	Order, Why      string         // label of the button, or why there is none
	Action, Ticket  string
	SignIn, SignUp  string // of a stranger; SignUp is "" where nobody may
	Everlasting     bool   // credits never end
	CardPaid, Coins bool   // how the plan is paid
}

// showPublicPlan shows a plan; a person who signed in buys it there.
func (w *pages) showPublicPlan(c *page.Context) (page.View, error) {
	p, of, err := offered(c)
	if err != nil {
		return nil, err
	}
	return w.drawPlan(c, p, of)
}

// offered reads the plan of the page, and what it is for the workspace of the person, nil for a stranger.
func offered(c *page.Context) (*toll.Plan, *offer.Offer, error) {
	id, err := toll.ParsePlanID(pathID(c))
	var p *toll.Plan
	if err == nil {
		p, err = c.API.Plan(c.Acting(), id)
	}
	if err != nil {
		return nil, nil, notFound(c, "plan", err)
	}
	if c.Person == nil || c.Person.Address.IsZero() {
		return p, nil, nil
	}
	b, err := c.API.Balance(c.Acting(), id)
	if err != nil {
		return nil, nil, notFound(c, "plan", err)
	}
	o := offer.Of(p, b)
	if o.Order, o.Why = page.OrderButton(c.Person, p, c.Cards); !p.Kind().Prepaid() {
		o.Order, o.Why = "", "You do not need to buy anything in advance: each request buys the credits that it needs."
	}
	return p, o, nil
}

func (w *pages) drawPlan(c *page.Context, p *toll.Plan, o *offer.Offer) (page.View, error) {
	agents, err := agentsOf(c, p)
	if err != nil {
		return nil, notFound(c, "plan", err)
	}
	here := c.R.URL.RequestURI()
	body := publicPlan{
		planCard: cardOf(p), Owner: p.Owner.String(), Charges: p.Kind().Charges(), Test: c.Environment != toll.Live, Action: here,
		Everlasting: !p.Expires(), CardPaid: !p.Price.IsCrypto && !p.Price.IsFree(), Coins: p.Price.IsCrypto && !p.Price.IsFree(),
	}
	for _, a := range agents {
		body.Agents = append(body.Agents, agentCard{To: "/a/" + string(a.ID), Name: page.NameOf(a.Metadata.Name), Text: plain.Text(a.Metadata.Description, shortText)})
	}
	if len(agents) > 0 {
		body.Snippets = page.Snippets(c, agents[0], p.ID)
	}
	if o == nil {
		next := url.Values{"next": {here}}.Encode()
		body.SignIn = page.PathSignIn + "?" + next
		if w.SignUp {
			body.SignUp = page.PathSignUp + "?" + next
		}
	} else {
		body.Workspace = cmp.Or(plain.Name(c.Person.Workspace.Name), page.Short(c.Person.Address.String()))
		body.Order, body.Why, body.Ticket, body.Holdings = o.Order, o.Why, c.Ticket(append([]string{formBuy}, o.Says()...)...), c.To("holdings")
		if len(agents) > 0 && o.Ready() {
			body.Try = c.To("try") + "?" + url.Values{"agent": {string(agents[0].ID)}, "plan": {body.ID}}.Encode()
		}
		if c.Person.Rights.Has(toll.RightSpend) {
			body.Token = c.To("tokens", "new") + "?plan=" + body.ID
		}
		switch {
		case o.Until != "":
			body.Holds = "Expires: " + o.Until
		case o.Available > 0:
			body.Holds = page.Count(int64(o.Available), "credit") + " left"
		}
	}
	return drawPublic(c, "public_plan", page.NameOf(p.Metadata.Name), body)
}

// agentsOf are the agents at which a plan pays. The one that the query names comes first.
func agentsOf(c *page.Context, p *toll.Plan) ([]*toll.Agent, error) {
	list, err := page.PartOf[*toll.Agent](c, list.AgentsOfPlan.Under(string(p.ID)), url.Values{"pageSize": {strconv.Itoa(mostAgents)}, "sortOrder": {"asc"}})
	if err != nil {
		return nil, err
	}
	var out []*toll.Agent
	wanted, err := toll.ParseAgentID(c.R.URL.Query().Get("agent"))
	if err == nil {
		a, err := c.API.Agent(c.Acting(), wanted)
		if err != nil && toll.AsError(err).HTTPStatus() != http.StatusNotFound {
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
func (w *pages) postPlan(c *page.Context) (page.View, error) {
	c.At = page.LocalPath(c.R.URL.RequestURI())
	if c.Person == nil {
		return c.SignIn.Ask(c, http.StatusForbidden, "You are no longer signed in, so nothing was ordered.", c.At, "")
	}
	p, o, err := offered(c)
	if err != nil {
		return nil, err
	}
	if o == nil || !c.Holds(c.Form.Get("ticket"), append([]string{formBuy}, o.Says()...)...) {
		c.Status, c.Fault = http.StatusForbidden, "Nothing was ordered because the plan changed or you signed in again. Review the plan, then order again."
		return w.drawPlan(c, p, o)
	}
	pay, err := c.Sessions.Once(c.Ctx(), c.Form.Get("ticket"), func() (string, error) {
		if o.Order == "" {
			return "", toll.Errorf(toll.CodeBadRequest, "%s", o.Why)
		}
		return offer.Buy(c, p, "", c.Origin()+c.At)
	})
	if errors.Is(err, session.ErrAnswered) {
		err = nil // the first of two equal forms ordered it
	}
	again := func(status int, fault string) (page.View, error) {
		c.Status, c.Fault = status, "Nothing was ordered: "+fault
		return w.drawPlan(c, p, o)
	}
	if err != nil {
		return c.Rejected(err, again)
	}
	return c.Redirect(http.StatusSeeOther, cmp.Or(pay, c.At))
}
