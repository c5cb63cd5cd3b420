package workspace

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/web/page"
)

const startWhy = "Start selling creates an API key for your server. First, confirm that it is you. The confirmation is valid for ten minutes."

// startFields is the initial content of the form that starts selling, besides the currency.
var startFields = url.Values{"kind": {kindCredits}, "price": {"1.00"}, "amount": {"100"}, "least": {"1"}, "lifeUnit": {"86400"}}

// currencies are the payment methods that the service has, and free plans.
func (d *Deps) currencies() []page.Option {
	return slices.DeleteFunc(slices.Concat(ways[1:], ways[:1]), func(o page.Option) bool {
		switch o.Value {
		case "free":
			return false
		case toll.CurrencyUSD, toll.CurrencyEUR:
			return !d.Cards
		}
		return !d.Coins
	})
}

// askStart is the form that creates an agent, its plan, and the API key of its server.
func (d *Deps) askStart(c *page.Context) (page.View, error) {
	if err := page.NeedProof(c, startWhy); err != nil {
		return nil, err
	}
	pay := d.currencies()
	first := pay[0].Value
	if i := slices.IndexFunc([]string{toll.CurrencyUSD, toll.CurrencyUSDC}, func(v string) bool { return page.HasOption(pay, v) }); i >= 0 {
		first = []string{toll.CurrencyUSD, toll.CurrencyUSDC}[i]
	}
	f := c.FormOf("start", "Start selling",
		page.Group{Fields: []page.Field{
			{Name: "name", Label: "Name", Max: toll.MaxNameRunes, Required: true, Hint: "The name that buyers see."},
			{
				Name: "endpoints", Label: "Endpoint", Max: toll.MaxURLRunes, Required: true,
				Hint: "The URL that callers pay for, such as https://agent.example.com/ask or http://127.0.0.1:3000/ask. For a method other than POST, write it first: GET https://… " +
					"If the path ends in /mcp, the tools of the MCP server are sold too.",
			},
			{
				Name: "price", Label: "Price", Value: startFields.Get("price"), Mode: "decimal", Required: true, Members: []string{"amounts"},
				Hint: "Price of " + startFields.Get("amount") + " credits. Each request costs 1 credit. Card payments start at 1.00.",
			},
			{Name: "pay", Label: "How buyers pay", Value: first, Options: pay, Members: []string{"currency", "isCrypto", "tokenAddress"}},
		}},
		page.Group{Title: "More options", Folded: true, Fields: []page.Field{
			{Name: "amount", Label: "Credits per order", Value: startFields.Get("amount"), Mode: "numeric"},
			{Name: "least", Label: "Credits per request", Value: startFields.Get("least"), Mode: "numeric", Members: []string{"minAmount", "maxAmount"}},
			{Name: "description", Label: "Description", Area: true, Hint: "Tell buyers what the agent does."},
		}},
	)
	f.Cancel = c.Base()
	return c.Record("Start selling", page.Record{
		Lead:  "This form creates an agent, a plan that buyers order to pay for it, and an API key for your server. The next page shows the code that takes payments. Buyers can find the agent under Explore until you unlist it.",
		Forms: []*page.Form{f},
	})
}

// startInput is the body that registers the agent and the plan of the form.
func (d *Deps) startInput(c *page.Context) (*toll.AgentPlanInput, error) {
	for _, name := range []string{"kind", "lifeUnit"} {
		c.Form.Set(name, startFields.Get(name))
	}
	at, err1 := endpoints(c)
	plan, err2 := planInput(c)
	if !page.HasOption(d.currencies(), c.Form.Get("pay")) {
		err2 = page.Together(err2, page.OneFault("pay", "must be one of the options"))
	}
	if err := page.Together(err1, err2); err != nil {
		return nil, err
	}
	if len(at) == 0 {
		return nil, page.OneFault("endpoints", "is required")
	}
	if u, err := url.Parse(at[0].URL); err == nil && strings.HasSuffix(u.Path, "/mcp") {
		at = append(at, toll.Endpoint{Verb: http.MethodPost, URL: "mcp://" + page.MCPName(*plan.Name) + "/tools/*"})
	}
	return &toll.AgentPlanInput{
		Agent: &toll.AgentInput{Name: plan.Name, Description: plan.Description, Endpoints: at}, Plan: &plan,
	}, nil
}

// start creates an agent, a plan, an API key, and a test command. Every creation has the ticket of the form as its idempotency key, so that
// a repetition after a failure returns the existing records. Only the agent and the plan are required: the page that follows offers the rest again.
func (d *Deps) start(c *page.Context) (page.View, error) {
	if err := page.NeedProof(c, startWhy); err != nil {
		return nil, err
	}
	return page.Resume(c, func() (out page.Outcome, err error) {
		in, err := d.startInput(c)
		if err != nil {
			return out, err
		}
		var made client.Registered
		if err := c.API.Call(c.Once(), http.MethodPost, "/api/v1/protocol/agents/plans", nil, in, &made); err != nil {
			return out, err
		}
		out = page.Outcome{To: c.To("agents", string(made.AgentID), "start"), Done: "Agent, plan, and API key created."}
		k, err := c.API.CreateKey(c.Once(), client.KeyParams{Name: *in.Plan.Name, Rights: toll.Rights{toll.RightRead, toll.RightSell}})
		switch e := toll.AsError(err); {
		case err == nil:
			out.Secret = &page.Secret{Label: "API key", Text: k.Key}
		case e.HTTPStatus() >= http.StatusInternalServerError:
			return out, err
		default:
			out.Done = "Agent and plan created. The API key was not created: " + e.Text()
		}
		out.Also, err = testCall(c, made.AgentID, made.PlanID)
		if err != nil && toll.AsError(err).HTTPStatus() < http.StatusInternalServerError {
			err = nil
		}
		return out, err
	})
}

// testLife is the life of the access token of a test command.
const testLife = time.Hour

// testCall returns a command that calls an agent once. The workspace sells the plan, and gets the credits for this call from itself.
func testCall(c *page.Context, id toll.AgentID, plan toll.PlanID) (*page.Secret, error) {
	a, err := c.API.Agent(c.Acting(), id)
	if err != nil {
		return nil, err
	}
	p, err := c.API.Plan(c.Acting(), plan)
	if err != nil {
		return nil, err
	}
	if _, err := c.API.Mint(c.Once(), plan, c.Person.Address, p.Credits.MaxAmount, 0); err != nil {
		return nil, err
	}
	token, err := c.API.AccessToken(c.Once(), plan, client.WithAgent(id), client.WithRedemptionLimit(p.Credits.MaxAmount),
		client.WithOrderLimit(0), client.WithExpiry(testLife))
	if err != nil {
		return nil, err
	}
	return &page.Secret{Label: "curl", Text: page.CallOnce(a, token.AccessToken)}, nil
}

// startPage leads a seller to the first settlement of an agent.
type startPage struct {
	Done    string
	Secret  *page.Secret // API key of the server, shown once
	NewKey  string       // page that creates one; "" for a person who may not
	Selling []page.Snippet
	Test    []page.Snippet // commands that send a paid request; the one with a token is shown once
	Form    *page.Form     // creates the command with a token; nil if the page shows it, or if no plan can pay
	Try     string         // page that sends the request
	NoPlan  bool           // no plan is attached
	Left    string         // test credits of the workspace, or ""
	Share   string         // public page, after the first settlement
	Live    page.Live
	First   *page.Table
	Agent   string
}

func (d *Deps) showStart(c *page.Context) (page.View, error) {
	a, err := agent(c)
	if err != nil {
		return nil, err
	}
	live, err := d.liveOf(c)
	if err != nil {
		return nil, err
	}
	o, err := c.Outcome()
	if err != nil {
		return nil, err
	}
	body := startPage{Done: o.Done, Secret: o.Secret, Live: live, Agent: c.To("agents", string(a.ID)), NewKey: c.To("keys", "new"), NoPlan: len(a.Plans) == 0}
	key := ""
	if o.Secret != nil {
		key, body.NewKey = o.Secret.Text, ""
	}
	if !c.Person.Rights.Has(toll.RightKeys) || !c.Person.HasName() {
		body.NewKey = ""
	}
	if o.Also != nil {
		body.Test = []page.Snippet{{Name: o.Also.Label, Text: o.Also.Text}}
	}
	credits := toll.Credits(1)
	if len(a.Plans) > 0 {
		p, err1 := c.API.Plan(c.Acting(), a.Plans[0].PlanID)
		b, err2 := c.API.Balance(c.Acting(), a.Plans[0].PlanID)
		if err := errors.Join(err1, err2); err != nil {
			return nil, c.Failed("agent", err)
		}
		if b.Available > 0 {
			body.Left = "Your workspace has " + page.Count(int64(b.Available), "free test credit") + "."
		}
		credits = p.Credits.MinAmount
		if c.Person.Rights.Has(toll.RightSpend) {
			body.Try = c.To("try") + "?agent=" + string(a.ID)
		}
		if c.Person.Rights.Has(toll.RightSpend) && c.Person.Rights.Has(toll.RightManage) && p.Kind().Charges() {
			if o.Also == nil {
				body.Form = c.FormOf("test", "Create test command")
			}
			body.Test = append(body.Test, page.Snippet{Name: "toll try", Text: page.Try(c, a)})
		}
	}
	body.Selling = page.Selling(c, a, "", credits, key)
	if body.First, err = d.firstSettled(c, a); err != nil {
		return nil, c.Failed("agent", err)
	}
	if len(body.First.Rows) > 0 {
		body.Share = shareURL(c, a.ID)
	}
	return c.Draw("Sell "+page.NameOf(a.Metadata.Name), body)
}

// makeTest makes another test command.
func makeTest(c *page.Context) (page.View, error) {
	a, err := agent(c)
	if err != nil {
		return nil, err
	}
	return page.Resume(c, func() (page.Outcome, error) {
		out := page.Outcome{To: c.To("agents", string(a.ID), "start"), Done: "Test command created."}
		if c.Form.Get("act") != "test" || len(a.Plans) == 0 {
			return out, toll.NewError(toll.CodeBadRequest)
		}
		var err error
		out.Also, err = testCall(c, a.ID, a.Plans[0].PlanID)
		return out, err
	})
}

// firstSettled returns a table of the newest settlements of an agent. It is empty until the first settlement.
func (d *Deps) firstSettled(c *page.Context, a *toll.Agent) (*page.Table, error) {
	all, plans, _, err := settlements(c, d.Records, page.MostRows)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s toll.Settlement) bool { return s.AgentID == nil || *s.AgentID != a.ID })
	if len(all) == 0 { // older settlements were not read
		q := url.Values{"agentId": {string(a.ID)}, "status": {"settled"}, "pageSize": {"1"}}
		old, err := page.PartOf[toll.Settlement](c, list.Requests, q)
		if err != nil {
			return nil, err
		}
		all = old.Items
		for _, s := range all {
			if plans[s.PlanID] == nil {
				if plans, err = d.Records.Plans(c.Ctx(), []toll.PlanID{s.PlanID}); err != nil {
					return nil, err
				}
			}
		}
	}
	t, err := d.paidTable(c, all[:min(len(all), mostRecent)], plans)
	if t != nil {
		t.Empty = &page.Empty{
			Icon: "zap", Title: "Waiting for the first settlement", Text: "Start your server, then send a test request. The settlement appears here.",
		}
	}
	return t, err
}

// mostUnattached bounds the tasks for plans without an agent.
const mostUnattached = 3

// unattached returns tasks for listed plans without an agent.
func unattached(c *page.Context, plans []*toll.Plan, agents page.List[*toll.Agent]) (out []page.Task, err error) {
	for _, p := range plans {
		if !p.IsListed || slices.ContainsFunc(agents.Items, func(a *toll.Agent) bool { return a.HasPlan(p.ID) }) {
			continue
		}
		if agents.Next != "" { // not all agents were read
			some, err := page.PartOf[*toll.Agent](c, list.AgentsOfPlan.Under(string(p.ID)), url.Values{"pageSize": {"1"}})
			if err != nil {
				return nil, err
			}
			if len(some.Items) > 0 {
				continue
			}
		}
		out = append(out, page.Task{
			Tone: "warn", Title: "Plan " + page.NameOf(p.Metadata.Name), Text: noAgent, To: c.To("plans", string(p.ID)), Act: "Attach",
		})
		if len(out) == mostUnattached {
			break
		}
	}
	return out, nil
}

// noAgent is the text for a plan without an agent.
const noAgent = "No agent accepts it yet."

// attachDialog attaches a plan to an agent of the workspace; a zero dialog where there is none.
func attachDialog(c *page.Context) (page.Dialog, error) {
	agents, err := page.PartOf[*toll.Agent](c, list.Agents, newest)
	if err != nil || len(agents.Items) == 0 {
		return page.Dialog{}, err
	}
	f := page.Field{Name: "agent", Label: "Agent", Members: []string{"agentId"}}
	for _, a := range agents.Items {
		f.Options = append(f.Options, page.Option{Value: string(a.ID), Text: page.NameOf(a.Metadata.Name)})
	}
	return c.DialogOf("attach", "Attach", "Credits of the plan pay for requests to this agent.", f), nil
}
