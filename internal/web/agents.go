package web

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

// mostPlans is how many plans a form offers, the newest ones.
const mostPlans = 100

// agentPages are the agents of a workspace.
func agentPages() []areaPage {
	return []areaPage{
		{
			Path: "/agents", Title: "Agents", Template: "sheet", Group: groupSell, Nav: "Agents", Icon: "bot", Key: "a",
			Right: toll.RightRead, Get: listAgents,
		},
		{
			Path: "/agents/new", Title: "Register an agent", Template: "sheet", Under: "/agents", Right: toll.RightManage, Get: askAgent,
			Post: registerAgent,
		},
		{
			Path: "/agents/{agent}", Template: "sheet", Under: "/agents", Right: toll.RightRead, Act: toll.RightManage,
			Get: showAgent, Post: actOnAgent,
		},
		{
			Path: "/agents/{agent}/edit", Template: "sheet", Under: "/agents", Right: toll.RightManage,
			Get: askAgentEdit, Post: editAgent,
		},
	}
}

func listAgents(v *visit) {
	list, err := store.AgentsOfOwner(v.ctx(), v.w.Store, v.person.Address, v.pageOf(nameSorts))
	if v.failed("part of the list", err) {
		return
	}
	v.sheet("Agents", sheet{
		Lead: "Servers of yours that others pay for, request by request.", Table: agentsTable(v, list),
		Links: append(mayBegin(v, "Register an agent", "agents", "new"), file(v, "agents", nil)...),
	})
}

// mayBegin is a link to a page that makes something, for people who may.
func mayBegin(v *visit, text string, to ...string) []link {
	if !v.person.Rights.Has(toll.RightManage) {
		return nil
	}
	return []link{{Text: text, To: v.to(to...)}}
}

func agentsTable(v *visit, list store.List[*toll.Agent]) *table {
	t := &table{
		Caption: "Agents", Head: []column{{Text: "Name"}, {Text: "Id"}, {Text: "State"}, {Text: "Plans", Num: true}, {Text: "Registered"}},
		Empty: &empty{
			"bot", "No agents yet", "An agent is a server of yours that others pay for, request by request.",
			v.to("agents", "new"), "Register an agent", "toll agents create --help",
		},
		Pager: v.pagerOf(list.Total, list.Next, "agent"),
	}
	for _, a := range list.Items {
		t.Rows = append(t.Rows, []cell{
			{Text: nameOf(a.Metadata.Name), To: v.to("agents", string(a.ID))}, {ID: string(a.ID)},
			{State: listedState(a.IsListed)}, credits(toll.Credits(len(a.Plans))), at(a.CreatedAt),
		})
	}
	return t
}

// agent returns the agent of the page. It has answered when that is nil.
func agent(v *visit) *toll.Agent {
	id, err := toll.ParseAgentID(v.param("agent"))
	var a *toll.Agent
	if err == nil {
		a, err = store.AgentByID(v.ctx(), v.w.Store, id)
	}
	if errors.Is(err, store.ErrNotFound) || err == nil && a.Owner != v.person.Address {
		v.missing("agent")
		return nil
	}
	if v.failed("agent", err) {
		return nil
	}
	return a
}

// authTypes are how an agent lets its callers in.
var authTypes = []option{
	{Value: "none", Text: "Open: it asks for nothing"}, {Value: "bearer", Text: "A token"},
	{Value: "basic", Text: "A user name and a password"}, {Value: "oauth", Text: "OAuth"},
}

// agentGroups are the fields of an agent.
func agentGroups(a *toll.Agent) []group {
	var endpoints []string
	for _, e := range a.API.Endpoints {
		endpoints = append(endpoints, e.Verb+" "+e.URL)
	}
	strict, secret := "", "Kept sealed, and never shown again."
	if a.API.StrictEndpoints {
		strict = "yes"
	}
	if a.API.HasCredentials {
		secret = "Secrets are stored. What you type here replaces them."
	}
	return []group{
		{Fields: []field{
			{Name: "name", Label: "Name", Value: a.Metadata.Name, Max: toll.MaxNameRunes, Required: true, Hint: "Buyers read it first."},
			{Name: "description", Label: "Description", Value: a.Metadata.Description, Area: true, Hint: "What it does, and for whom."},
			{Name: "tags", Label: "Tags", Value: strings.Join(a.Metadata.Tags, ", "), Hint: "Separated by commas. People search for them."},
		}},
		{Title: "Where it answers", Fields: []field{
			{
				Name: "endpoints", Label: "Paid endpoints", Area: true, Value: strings.Join(endpoints, "\n"),
				Hint: "One on a line, such as: POST https://agent.example.com/ask. Patterns like /users/:id and /files/* work.",
			},
			{
				Name: "openEndpoints", Label: "Open endpoints", Area: true, Value: strings.Join(a.API.OpenEndpoints, "\n"),
				Hint: "Addresses that cost nothing, one on a line.",
			},
			{
				Name: "agentDefinitionUrl", Label: "Definition", Value: a.API.AgentDefinitionURL, Type: "url",
				Hint: "Address of its OpenAPI document, agent card or MCP server.",
			},
			{
				Name: "strictEndpoints", Label: "Refuse payments for addresses that are not in the list", Type: "checkbox", Value: strict,
			},
		}},
		{Title: "Sign-in at the agent", Hint: "For an agent that has a sign-in of its own.", Fields: []field{
			{Name: "authType", Label: "What it asks for", Value: a.API.AuthType, Options: authTypes},
			{Name: "username", Label: "User name", Hint: secret},
			{Name: "password", Label: "Password", Type: "password"},
			{Name: "token", Label: "Token", Type: "password"},
		}},
	}
}

func askAgent(v *visit) {
	plans, err := store.PlansOfOwner(v.ctx(), v.w.Store, v.person.Address, store.Page{Size: mostPlans})
	if v.failed("agent", err) {
		return
	}
	groups := agentGroups(&toll.Agent{})
	if len(plans.Items) > 0 {
		choice := field{Name: "plans", Label: "Plans", Type: "checks"}
		for _, p := range plans.Items {
			choice.Options = append(choice.Options, option{Value: string(p.ID), Text: nameOf(p.Metadata.Name), Hint: priceOf(p) + " for " + buys(p)})
		}
		groups = slices.Insert(groups, 1, group{Title: "What pays for it", Fields: []field{choice}})
	}
	f := v.formOf("register", "Register the agent", groups...)
	f.Cancel = v.to("agents")
	v.sheet("Register an agent", sheet{
		Lead: "An agent is a server that answers requests. Toll takes the payment and tells it when to answer.", Forms: []*form{f},
	})
}

// endpoints reads the field of paid endpoints: a verb, POST unless it is there, and a url.
func endpoints(v *visit) (toll.EndpointList, error) {
	out := toll.EndpointList{}
	for _, line := range v.lines("endpoints") {
		words := strings.Fields(line)
		if len(words) == 1 {
			words = []string{"POST", words[0]}
		}
		verb := strings.ToUpper(words[0])
		if len(words) != 2 || !slices.Contains(toll.Verbs, verb) {
			return nil, oneFault("endpoints", "must have a method and an address on each line; got "+strconv.Quote(plain.Name(line)))
		}
		out = append(out, toll.Endpoint{Verb: verb, URL: words[1]})
	}
	return out, nil
}

func registerAgent(v *visit) {
	v.finish(func() (outcome, error) {
		endpoints, err := endpoints(v)
		if err != nil {
			return outcome{}, err
		}
		in := client.AgentParams{
			Metadata: toll.Metadata{Name: v.text("name"), Description: v.text("description"), Tags: v.words("tags")},
			API: toll.AgentAPI{
				Endpoints: endpoints, OpenEndpoints: v.lines("openEndpoints"), AgentDefinitionURL: v.text("agentDefinitionUrl"),
				AuthType: v.text("authType"), StrictEndpoints: v.text("strictEndpoints") != "",
			},
			Credentials: toll.Credentials{Username: v.text("username"), Password: v.form.Get("password"), Token: v.form.Get("token")},
		}
		for _, id := range v.form["plans"] {
			in.Plans = append(in.Plans, toll.PlanID(id))
		}
		made, err := v.w.API.RegisterAgent(v.acting(), in)
		if err != nil {
			return outcome{}, err
		}
		return outcome{To: v.to("agents", string(made.AgentID)), Done: "The agent is registered."}, nil
	})
}

func askAgentEdit(v *visit) {
	a := agent(v)
	if a == nil {
		return
	}
	f := v.formOf("edit", "Save", agentGroups(a)...)
	f.Cancel, f.Hidden = v.to("agents", string(a.ID)), versionOf(a.Version)
	v.sheet("Edit "+nameOf(a.Metadata.Name), sheet{Forms: []*form{f}})
}

// versionOf is the hidden field by which a change is refused when somebody else made one meanwhile.
func versionOf(n int64) []option {
	return []option{{Value: "version", Text: strconv.FormatInt(n, 10)}}
}

// unlessChanged is the context of a change that is refused when the record has another version than
// the form of [versionOf] was filled from.
func unlessChanged(v *visit) (context.Context, error) {
	n, err := strconv.ParseInt(v.form.Get("version"), 10, 64)
	if err != nil || n < 1 {
		return nil, toll.NewError(toll.CodeRecordChanged)
	}
	return client.WithIfMatch(v.acting(), n), nil
}

func editAgent(v *visit) {
	a := agent(v)
	if a == nil {
		return
	}
	v.finish(func() (outcome, error) {
		ctx, err1 := unlessChanged(v)
		endpoints, err2 := endpoints(v)
		if err := together(err1, err2); err != nil {
			return outcome{}, err
		}
		u := toll.AgentUpdate{
			Name: toll.SetTo(v.text("name")), Description: toll.SetTo(v.text("description")), Tags: toll.SetTo(v.words("tags")),
			Endpoints: toll.SetTo(endpoints), OpenEndpoints: toll.SetTo(v.lines("openEndpoints")),
			AgentDefinitionURL: toll.SetTo(v.text("agentDefinitionUrl")), AuthType: toll.SetTo(v.text("authType")),
			StrictEndpoints: toll.SetTo(toll.Bool(v.text("strictEndpoints") != "")),
		}
		for name, to := range map[string]*toll.Change[string]{
			"username": &u.API.Username, "password": &u.API.Password, "token": &u.API.Token,
		} {
			if text := v.form.Get(name); text != "" {
				*to = toll.SetTo(text)
			}
		}
		_, err := v.w.API.UpdateAgent(ctx, a.ID, u)
		return outcome{To: v.to("agents", string(a.ID)), Done: "The agent is saved."}, err
	})
}

func actOnAgent(v *visit) {
	a := agent(v)
	if a == nil {
		return
	}
	v.finish(func() (out outcome, err error) {
		out.To = v.to("agents", string(a.ID))
		plan := toll.PlanID(v.form.Get("plan"))
		switch v.form.Get("act") {
		case "list":
			out.Done = "The agent is listed."
			_, err = v.w.API.SetAgentListed(v.acting(), a.ID, true)
		case "unlist":
			out.Done = "The agent is not listed any more, and takes no new payments."
			_, err = v.w.API.SetAgentListed(v.acting(), a.ID, false)
		case "attach":
			out.Done = "The plan pays for the agent."
			_, err = v.w.API.AttachPlan(v.acting(), a.ID, plan)
		case "detach":
			out.Done = "The plan does not pay for the agent any more."
			_, err = v.w.API.DetachPlan(v.acting(), a.ID, plan)
		default:
			err = toll.NewError(toll.CodeBadRequest)
		}
		return out, err
	})
}

func showAgent(v *visit) {
	a := agent(v)
	if a == nil {
		return
	}
	p := periodOf(v)
	plans, err1 := store.PlansOfAgent(v.ctx(), v.w.Store, a.ID, v.listPage())
	used, err2 := usage(v, p, checkout.UsageQuery{Agent: &a.ID})
	refused, err3 := refusals(v, p, checkout.UsageQuery{Agent: &a.ID})
	acts, err4 := actsOfAgent(v, a)
	last, err5 := lastSettled(v, a.ID)
	if v.failed("agent", errors.Join(err1, err2, err3, err4, err5)) {
		return
	}
	endpoints := &table{
		Caption: "Endpoints", Head: []column{{Text: "Verb"}, {Text: "Address"}, {Text: "Price"}},
		Empty: &empty{Icon: "server", Title: "No endpoints", Text: "Without endpoints any address of yours may take payments for this agent."},
	}
	for _, e := range a.API.Endpoints {
		endpoints.Rows = append(endpoints.Rows, []cell{{Text: e.Verb}, {Text: plain.Name(e.URL)}, {Text: "paid"}})
	}
	for _, u := range a.API.OpenEndpoints {
		endpoints.Rows = append(endpoints.Rows, []cell{{Text: "any"}, {Text: plain.Name(u)}, {Text: "open"}})
	}
	links := append(mayBegin(v, "Edit", "agents", string(a.ID), "edit"), link{Text: "Public page", To: "/a/" + string(a.ID), Plain: true},
		link{Text: "Requests", To: v.to("requests") + "?agentId=" + string(a.ID), Plain: true})
	if v.person.Rights.Has(toll.RightSpend) {
		links = append(links, link{Text: "Try it", To: v.to("try") + "?agent=" + string(a.ID), Plain: true})
	}
	v.sheet(nameOf(a.Metadata.Name), sheet{
		Lead:  plain.Name(a.Metadata.Description),
		Links: links,
		Range: ranges(v, p),
		Stats: append(used.stats(), refused.stat()),
		Facts: []fact{
			{"Id", cell{ID: string(a.ID)}}, {"State", cell{State: listedState(a.IsListed)}}, {"Time to settle", cell{Text: used.median()}},
			{"Last settled", last}, {"Last refused", refused.last(p)},
			{"Registered", at(a.CreatedAt)}, {"Changed", at(a.UpdatedAt)},
		},
		Acts: acts,
		Parts: []part{
			{"Endpoints", endpoints}, {"Plans", plansTable(v, plans)}, {"Refused, by reason", refused.table()},
		},
		Snippets: snippets(v, a, ""),
	})
}

// lastSettled is the time of the last settlement at an agent, and the request.
func lastSettled(v *visit, id toll.AgentID) (cell, error) {
	q := url.Values{"agentId": {string(id)}, "status": {"settled"}, "pageSize": {"1"}}
	list, err := partOf[*toll.Settlement](v, "/protocol/requests", "requests", q)
	switch {
	case err != nil:
		return cell{}, err
	case len(list.Items) > 0:
		s := list.Items[0]
		c := atOr(s.EndedAt, "just now")
		c.Sub = "request " + plain.Name(short(s.AgentRequestID))
		return c, nil
	case list.Next != "":
		return cell{Text: "not among the last requests"}, nil
	}
	return cell{Text: "not in the last 90 days"}, nil
}

func actsOfAgent(v *visit, a *toll.Agent) ([]dialog, error) {
	if !v.person.Rights.Has(toll.RightManage) {
		return nil, nil
	}
	plans, err := store.PlansOfOwner(v.ctx(), v.w.Store, v.person.Address, store.Page{Size: mostPlans})
	if err != nil {
		return nil, err
	}
	attach, detach := field{Name: "plan", Label: "Plan", Members: []string{"planId"}}, field{Name: "plan", Label: "Plan"}
	for _, p := range plans.Items {
		if !a.HasPlan(p.ID) {
			attach.Options = append(attach.Options, option{Value: string(p.ID), Text: nameOf(p.Metadata.Name)})
		}
	}
	for _, p := range a.Plans {
		detach.Options = append(detach.Options, option{Value: string(p.PlanID), Text: nameOf(p.Name)})
	}
	var acts []dialog
	if len(attach.Options) > 0 {
		acts = append(acts, v.dialogOf("attach", "Attach a plan", "Its credits pay for requests to this agent.", attach))
	}
	if len(detach.Options) > 0 {
		acts = append(acts, v.dialogOf("detach", "Detach a plan", "Access tokens for it stop working here. What is held still settles.", detach))
	}
	if a.IsListed {
		return append(acts, v.dangerOf("unlist", "Unlist", "It takes no new payments, and nobody finds it. What is held still settles.")), nil
	}
	return append(acts, v.dialogOf("list", "List", "People find it, and it takes payments.")), nil
}
