package workspace

import (
	"context"
	"errors"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
)

// newest is the query for the plans or agents that a form offers.
var newest = url.Values{"pageSize": {"100"}}

func ownPlans(c *page.Context) (page.List[*toll.Plan], error) {
	return page.PartOf[*toll.Plan](c, list.Plans, newest)
}

func listAgents(c *page.Context) (page.View, error) {
	agents, err := page.ListOf[*toll.Agent](c, list.Agents, nil, page.NameSorts...)
	if err != nil {
		return nil, c.Failed("list page", err)
	}
	links := mayBegin(c, "Start selling", "start")
	for _, more := range mayBegin(c, "Create agent", "agents", "new") {
		more.Plain = true
		links = append(links, more)
	}
	return c.Record("Agents", page.Record{
		Lead: "Servers that charge subscribers per request.", Table: agentsTable(c, agents), Links: append(links, file(c, "agents", nil)...),
	})
}

// mayBegin returns a link to a page that creates a record, for people with the right to manage.
func mayBegin(c *page.Context, text string, to ...string) []page.Link {
	if !c.Person.Rights.Has(toll.RightManage) {
		return nil
	}
	return []page.Link{{Text: text, To: c.To(to...)}}
}

func agentsTable(c *page.Context, agents page.List[*toll.Agent]) *page.Table {
	const created = "metadata.main.dateCreated"
	of := list.Agents.And(list.Count("plans")).Show("name", "agentId", "isListed", "plans", created)
	t := page.TableOf(c, of, "agent", agents, func(a *toll.Agent, cell page.Cells) {
		cell["name"].To, *cell["plans"] = c.To("agents", string(a.ID)), page.Credits(toll.Credits(len(a.Plans)))
	})
	t.Empty = &page.Empty{
		Icon: "bot", Title: "No agents yet", Text: "Your agents appear here. An agent is a server that charges subscribers per request.",
		To: c.To("start"), Button: "Start selling", Command: "toll agents create --help",
	}
	return t
}

// agent returns the agent of the page.
func agent(c *page.Context) (*toll.Agent, error) {
	id, err := toll.ParseAgentID(c.Param("agent"))
	var a *toll.Agent
	if err == nil {
		a, err = c.API.Agent(c.Acting(), id)
	}
	if err == nil && a.Owner != c.Person.Address {
		return nil, c.Missing("agent")
	}
	if err != nil {
		return nil, c.Failed("agent", err)
	}
	return a, nil
}

// authTypes are how an agent lets its callers in.
var authTypes = []page.Option{
	{Value: "none", Text: "None"}, {Value: "bearer", Text: "Bearer token"},
	{Value: "basic", Text: "Username and password"}, {Value: "oauth", Text: "OAuth"},
}

// agentGroups are the fields of an agent.
func agentGroups(a *toll.Agent) []page.Group {
	var endpoints []string
	for _, e := range a.API.Endpoints {
		endpoints = append(endpoints, e.Verb+" "+e.URL)
	}
	strict, secret := "", "The credentials are stored encrypted and never shown again."
	if a.API.StrictEndpoints {
		strict = "yes"
	}
	if a.API.HasCredentials {
		secret = "Credentials are stored. Enter new values to replace them."
	}
	return []page.Group{
		{Fields: []page.Field{
			{Name: "name", Label: "Name", Value: a.Metadata.Name, Max: toll.MaxNameRunes, Required: true, Hint: "The name that buyers see."},
			{Name: "description", Label: "Description", Value: a.Metadata.Description, Area: true, Hint: "Tell buyers what the agent does."},
			{Name: "tags", Label: "Tags", Value: strings.Join(a.Metadata.Tags, ", "), Hint: "Separate tags with commas. Buyers can search for them."},
		}},
		{Title: "Endpoints", Fields: []page.Field{
			{
				Name: "endpoints", Label: "Paid endpoints", Area: true, Value: strings.Join(endpoints, "\n"),
				Hint: "One per line, for example POST https://agent.example.com/ask. You can use patterns such as /users/:id and /files/*.",
			},
			{
				Name: "openEndpoints", Label: "Open endpoints", Area: true, Value: strings.Join(a.API.OpenEndpoints, "\n"),
				Hint: "URLs that cost nothing, one per line.",
			},
			{Name: "strictEndpoints", Label: "Reject payments that do not name the full URL of the request", Type: "checkbox", Value: strict, Hint: "If you do not check this, payments without a full URL are accepted. Payments for a URL that matches no paid endpoint are always rejected."},
			{
				Name: "agentDefinitionUrl", Label: "Definition URL", Value: a.API.AgentDefinitionURL, Type: "url",
				Hint: "The URL of the agent's OpenAPI document, agent card, or MCP server.",
			},
		}},
		{Title: "Agent authentication", Hint: "Fill in these fields only if your agent requires its own authentication. " + secret, Fields: []page.Field{
			{Name: "authType", Label: "Method", Value: a.API.AuthType, Options: authTypes},
		}},
		{For: "basic", Fields: []page.Field{{Name: "username", Label: "Username"}, {Name: "password", Label: "Password", Type: "password"}}},
		{For: "bearer oauth", Fields: []page.Field{{Name: "token", Label: "Token", Type: "password"}}},
	}
}

func askAgent(c *page.Context) (page.View, error) {
	plans, err := ownPlans(c)
	if err != nil {
		return nil, c.Failed("agent", err)
	}
	groups := agentGroups(&toll.Agent{})
	if len(plans.Items) > 0 {
		choice := page.Field{Name: "plans", Label: "Plans", Type: "checks"}
		for _, p := range plans.Items {
			choice.Options = append(choice.Options, page.Option{Value: string(p.ID), Text: page.NameOf(p.Metadata.Name), Hint: page.OfferOf(p)})
		}
		groups = slices.Insert(groups, 1, page.Group{Title: "Payment", Fields: []page.Field{choice}})
	}
	f := c.FormOf("register", "Create agent", groups...)
	f.Cancel = c.To("agents")
	return c.Record("Create agent", page.Record{
		Lead: "An agent is a server that answers paid requests. Toll checks the payment before the agent answers, and settles the payment afterward.", Forms: []*page.Form{f},
	})
}

// endpoints reads the field of paid endpoints: a verb, POST unless it is there, and a url.
func endpoints(c *page.Context) (toll.EndpointList, error) {
	out := toll.EndpointList{}
	for _, line := range c.Lines("endpoints") {
		words := strings.Fields(line)
		if len(words) == 1 {
			words = []string{"POST", words[0]}
		}
		verb := strings.ToUpper(words[0])
		if len(words) != 2 || !slices.Contains(toll.Verbs, verb) {
			return nil, page.OneFault("endpoints", "must have a method and a URL on each line; got "+strconv.Quote(plain.Name(line)))
		}
		out = append(out, toll.Endpoint{Verb: verb, URL: words[1]})
	}
	return out, nil
}

func registerAgent(c *page.Context) (page.View, error) {
	return c.Finish(func() (page.Outcome, error) {
		endpoints, err := endpoints(c)
		if err != nil {
			return page.Outcome{}, err
		}
		in := client.AgentParams{
			Metadata: toll.Metadata{Name: c.Text("name"), Description: c.Text("description"), Tags: c.Words("tags")},
			API: toll.AgentAPI{
				Endpoints: endpoints, OpenEndpoints: c.Lines("openEndpoints"), AgentDefinitionURL: c.Text("agentDefinitionUrl"),
				AuthType: c.Text("authType"), StrictEndpoints: c.Text("strictEndpoints") != "",
			},
			Credentials: toll.Credentials{Username: c.Text("username"), Password: c.Form.Get("password"), Token: c.Form.Get("token")},
		}
		for _, id := range c.Form["plans"] {
			in.Plans = append(in.Plans, toll.PlanID(id))
		}
		made, err := c.API.RegisterAgent(c.Acting(), in)
		if err != nil {
			return page.Outcome{}, err
		}
		return page.Outcome{To: c.To("agents", string(made.AgentID)), Done: "Agent created."}, nil
	})
}

func askAgentEdit(c *page.Context) (page.View, error) {
	a, err := agent(c)
	if err != nil {
		return nil, err
	}
	f := c.FormOf("edit", "Save", agentGroups(a)...)
	f.Cancel, f.Hidden = c.To("agents", string(a.ID)), versionOf(a.Version)
	return c.Record("Edit "+page.NameOf(a.Metadata.Name), page.Record{Forms: []*page.Form{f}})
}

// versionOf returns the hidden field with the version of a record. The API rejects a change when the record has a newer version.
func versionOf(n int64) []page.Option {
	return []page.Option{{Value: "version", Text: strconv.FormatInt(n, 10)}}
}

// unlessChanged is the context of a change that is refused when the record has another version than
// the form of [versionOf] was filled from.
func unlessChanged(c *page.Context) (context.Context, error) {
	n, err := strconv.ParseInt(c.Form.Get("version"), 10, 64)
	if err != nil || n < 1 {
		return nil, toll.NewError(toll.CodeRecordChanged)
	}
	return client.WithIfMatch(c.Acting(), n), nil
}

func editAgent(c *page.Context) (page.View, error) {
	a, err := agent(c)
	if err != nil {
		return nil, err
	}
	return c.Finish(func() (page.Outcome, error) {
		ctx, err1 := unlessChanged(c)
		endpoints, err2 := endpoints(c)
		if err := page.Together(err1, err2); err != nil {
			return page.Outcome{}, err
		}
		u := toll.AgentUpdate{
			Name: toll.SetTo(c.Text("name")), Description: toll.SetTo(c.Text("description")), Tags: toll.SetTo(c.Words("tags")),
			Endpoints: toll.SetTo(endpoints), OpenEndpoints: toll.SetTo(c.Lines("openEndpoints")),
			AgentDefinitionURL: toll.SetTo(c.Text("agentDefinitionUrl")), AuthType: toll.SetTo(c.Text("authType")),
			StrictEndpoints: toll.SetTo(toll.Bool(c.Text("strictEndpoints") != "")),
		}
		for name, to := range map[string]*toll.Change[string]{
			"username": &u.API.Username, "password": &u.API.Password, "token": &u.API.Token,
		} {
			if text := c.Form.Get(name); text != "" {
				*to = toll.SetTo(text)
			}
		}
		_, err := c.API.UpdateAgent(ctx, a.ID, u)
		return page.Outcome{To: c.To("agents", string(a.ID)), Done: "Agent saved."}, err
	})
}

func actOnAgent(c *page.Context) (page.View, error) {
	a, err := agent(c)
	if err != nil {
		return nil, err
	}
	return c.Finish(func() (out page.Outcome, err error) {
		out.To = c.To("agents", string(a.ID))
		plan := toll.PlanID(c.Form.Get("plan"))
		switch c.Form.Get("act") {
		case "list":
			out.Done = "Agent listed."
			_, err = c.API.SetAgentListed(c.Acting(), a.ID, true)
		case "unlist":
			out.Done = "Agent unlisted. It accepts no new payments."
			_, err = c.API.SetAgentListed(c.Acting(), a.ID, false)
		case "attach":
			out.Done = "Plan attached."
			_, err = c.API.AttachPlan(c.Acting(), a.ID, plan)
		case "detach":
			out.Done = "Plan detached."
			_, err = c.API.DetachPlan(c.Acting(), a.ID, plan)
		default:
			err = toll.NewError(toll.CodeBadRequest)
		}
		return out, err
	})
}

func showAgent(c *page.Context) (page.View, error) {
	a, err := agent(c)
	if err != nil {
		return nil, err
	}
	p, q := page.PeriodOf(c), url.Values{"agentId": {string(a.ID)}}
	plans, err1 := page.ListOf[*toll.Plan](c, list.PlansOfAgent.Under(string(a.ID)), nil)
	used, err2 := usage(c, p, q)
	refused, err3 := refusals(c, p, q)
	acts, err4 := actsOfAgent(c, a)
	last, err5 := lastSettled(c, a.ID)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return nil, c.Failed("agent", err)
	}
	plan, credits := gatePlan(plans.Items)
	attached := plansTable(c, plans, "No plans attached", "Attach a plan so that its credits can pay for requests to this agent. If you have no plan yet, create one first.")
	endpoints := &page.Table{
		Caption: "Endpoints", Head: []page.Column{{Text: "Method"}, {Text: "URL"}, {Text: "Access"}},
		Empty: &page.Empty{Icon: "server", Title: "No endpoints", Text: "Until you add endpoints, payments for this agent are accepted at any of your URLs."},
	}
	for _, e := range a.API.Endpoints {
		endpoints.Rows = append(endpoints.Rows, []page.Cell{{Text: e.Verb}, {Text: plain.Name(e.URL)}, {Text: "paid"}})
	}
	for _, u := range a.API.OpenEndpoints {
		endpoints.Rows = append(endpoints.Rows, []page.Cell{{Text: "any"}, {Text: plain.Name(u)}, {Text: "open"}})
	}
	links := append(mayBegin(c, "Edit", "agents", string(a.ID), "edit"), page.Link{Text: "Setup code", To: c.To("agents", string(a.ID), "start"), Plain: true},
		page.Link{Text: "Download gate.yaml", To: c.To("agents", string(a.ID), "gate.yaml"), Plain: true},
		page.Link{Text: "Public page", To: "/a/" + string(a.ID), Plain: true},
		page.Link{Text: "Requests", To: c.To("requests") + "?agentId=" + string(a.ID), Plain: true})
	if c.Person.Rights.Has(toll.RightSpend) {
		links = append(links, page.Link{Text: "Try it", To: c.To("try") + "?agent=" + string(a.ID), Plain: true})
	}
	return c.Record(page.NameOf(a.Metadata.Name), page.Record{
		Lead:  plain.Name(a.Metadata.Description),
		Links: links,
		Range: page.Ranges(c, p),
		Stats: append(used.stats(), refused.stat()),
		Facts: []page.Fact{
			{Label: "ID", Cell: page.Cell{ID: string(a.ID)}}, {Label: "Status", Cell: page.Cell{State: page.ListedState(a.IsListed)}}, {Label: "Settlement time", Cell: page.Cell{Text: used.median()}},
			{Label: "Last settled", Cell: last}, {Label: "Last refusal", Cell: refused.last(p)}, {Label: "Created", Cell: page.At(a.CreatedAt)}, {Label: "Updated", Cell: page.At(a.UpdatedAt)},
		},
		Acts: acts,
		Parts: []page.Part{
			{Title: "Endpoints", Table: endpoints}, {Title: "Plans", Table: attached}, {Title: "Refusals by reason", Table: refused.table(c)},
		},
		Selling: page.Selling(c, a, plan, credits, ""), Snippets: page.Snippets(c, a, ""),
	})
}

// gatePlan returns the first of the plans, or an empty id, and the price of a request.
func gatePlan(plans []*toll.Plan) (toll.PlanID, toll.Credits) {
	if len(plans) == 0 {
		return "", 1
	}
	return plans[0].ID, plans[0].Credits.MinAmount
}

// gateFile sends the configuration with which toll gate sells an agent.
func gateFile(c *page.Context) (page.View, error) {
	a, err := agent(c)
	if err != nil {
		return nil, err
	}
	plans, err := page.PartOf[*toll.Plan](c, list.PlansOfAgent.Under(string(a.ID)), newest)
	if err != nil {
		return nil, c.Failed("agent", err)
	}
	plan, credits := gatePlan(plans.Items)
	return page.Stream(func() {
		h := c.W.Header()
		h.Set("Content-Type", "application/yaml")
		h.Set("Content-Disposition", `attachment; filename="gate.yaml"`)
		h.Set("Cache-Control", "no-store")
		_, _ = io.WriteString(c.W, page.GateFile(a, plan, credits))
	}), nil
}

// lastSettled is the time of the last settlement at an agent, and the request.
func lastSettled(c *page.Context, id toll.AgentID) (page.Cell, error) {
	q := url.Values{"agentId": {string(id)}, "status": {"settled"}, "pageSize": {"1"}}
	list, err := page.PartOf[*toll.Settlement](c, list.Requests, q)
	switch {
	case err != nil:
		return page.Cell{}, err
	case len(list.Items) > 0:
		s := list.Items[0]
		cell := page.AtOr(s.EndedAt, "just now")
		cell.Sub = "request " + plain.Name(page.Short(s.AgentRequestID))
		return cell, nil
	case list.Next != "":
		return page.Cell{Text: "not in recent requests"}, nil
	}
	return page.Cell{Text: "none in the last 90 days"}, nil
}

func actsOfAgent(c *page.Context, a *toll.Agent) ([]page.Dialog, error) {
	if !c.Person.Rights.Has(toll.RightManage) {
		return nil, nil
	}
	plans, err := ownPlans(c)
	if err != nil {
		return nil, err
	}
	attach, detach := page.Field{Name: "plan", Label: "Plan", Members: []string{"planId"}}, page.Field{Name: "plan", Label: "Plan"}
	for _, p := range plans.Items {
		if !a.HasPlan(p.ID) {
			attach.Options = append(attach.Options, page.Option{Value: string(p.ID), Text: page.NameOf(p.Metadata.Name)})
		}
	}
	for _, p := range a.Plans {
		detach.Options = append(detach.Options, page.Option{Value: string(p.PlanID), Text: page.NameOf(p.Name)})
	}
	var acts []page.Dialog
	if len(attach.Options) > 0 {
		acts = append(acts, c.DialogOf("attach", "Attach plan", "Credits of the plan pay for requests to this agent.", attach))
	}
	if len(detach.Options) > 0 {
		acts = append(acts, c.DialogOf("detach", "Detach plan", "Access tokens of the plan stop working for this agent. Held requests can still be settled.", detach))
	}
	if a.IsListed {
		return append(acts, c.DangerOf("unlist", "Unlist", "The agent accepts no new payments and disappears from search results. Held requests can still be settled.")), nil
	}
	return append(acts, c.DialogOf("list", "List", "Buyers can find the agent, and it accepts payments.")), nil
}
