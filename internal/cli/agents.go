package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
)

var agentColumns = []column{{"AGENT", "agentId"}, {"NAME", "name"}, {"LISTED", "isListed"}, {"CREATED", "metadata.main.dateCreated"}}

func (a *app) agentsCommand() *cobra.Command {
	return group("agents", "Agents that take payment", "",
		a.agentsList("list"), a.agentsGet("get"), a.agentsPlans("plans"),
		a.agentsCreate("create"), a.agentsCreateWithPlan("create-with-plan"),
		a.agentsUpdate("update"), a.agentsAddEndpoints("add-endpoints"),
		a.agentsAttach("attach"), a.agentsDetach("detach"),
		a.listing("publish", "AGENT", "Let an agent take payment", "agents", true),
		a.listing("unpublish", "AGENT", "Let an agent take no new payment; open holds of it still settle", "agents", false),
		hidden("update-agent-metadata", a.agentsUpdate("update")), hidden("add-plan-to-agent", a.agentsAttach("attach")),
		hidden("remove-plan-from-agent", a.agentsDetach("detach")),
		hidden("get-agents", a.agentsList("list")), hidden("get-agent", a.agentsGet("get")), hidden("get-agent-plans", a.agentsPlans("plans")),
		hidden("register-agent", a.agentsCreate("create")), hidden("register-agent-and-plan", a.agentsCreateWithPlan("create-with-plan")),
	)
}

func (a *app) agentsList(use string) *cobra.Command {
	return a.listCommand(use, "List your agents", "agents", agentColumns, func([]string) string { return "/protocol/agents" })
}

func (a *app) agentsGet(use string) *cobra.Command {
	return command(use+" AGENT", "Show an agent", func(cmd *cobra.Command, args []string) error {
		return a.get(cmd.Context(), segments("protocol", "agents", args[0]), nil)
	})
}

func (a *app) agentsPlans(use string) *cobra.Command {
	return a.listCommand(use+" AGENT", "List the plans of an agent", "plans", planColumns, func(args []string) string {
		return segments("protocol", "agents", args[0], "plans")
	})
}

func (a *app) agentsCreate(use string) *cobra.Command {
	var metadata, api string
	var plans []string
	c := command(use, "Register an agent for plans that exist", nil)
	c.Example = `toll agents create --agent-metadata '{"name":"Ask"}' --agent-api api.json --payment-plans 4474,5063`
	c.Flags().StringVar(&metadata, "agent-metadata", "", "name, description and so on, as JSON")
	c.Flags().StringVar(&api, "agent-api", "", "endpoints and so on, as JSON")
	c.Flags().StringArrayVar(&plans, "payment-plans", nil, "plan ids: a list, or one with commas")
	require(c, "agent-metadata", "agent-api", "payment-plans")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		in := body{"plans": idList(plans)}
		if err := in.json(a, "metadataAttributes", "agent-metadata", metadata); err != nil {
			return err
		}
		if err := in.json(a, "agentApiAttributes", "agent-api", api); err != nil {
			return err
		}
		if err := a.allKnown(); err != nil {
			return err
		}
		return a.make(cmd.Context(), "/protocol/agents", in, "agentId")
	}
	return c
}

// idList takes ids apart that were given in several flags, with commas, or as a JSON array.
func idList(given []string) []string {
	ids := []string{}
	for _, g := range given {
		var list []string
		if json.Unmarshal([]byte(g), &list) == nil {
			ids = append(ids, list...)
			continue
		}
		for id := range strings.FieldsFuncSeq(g, func(r rune) bool { return r == ',' || r == ' ' }) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (a *app) agentsCreateWithPlan(use string) *cobra.Command {
	var agentMetadata, agentAPI, planMetadata, price, credits, limit string
	c := command(use, "Register an agent and its plan in one act", nil)
	c.Example = `toll agents create-with-plan --agent-metadata agent.json --agent-api api.json \
  --plan-metadata '{"name":"Basic"}' --price-config '{"priceType":"FREE"}' --credits-config '{"amount":100,"minAmount":1}'`
	f := c.Flags()
	f.StringVar(&agentMetadata, "agent-metadata", "", "name, description and so on of the agent, as JSON")
	f.StringVar(&agentAPI, "agent-api", "", "endpoints and so on, as JSON")
	f.StringVar(&planMetadata, "plan-metadata", "", "name, description and so on of the plan, as JSON")
	f.StringVar(&price, "price-config", "", "price, as JSON")
	f.StringVar(&credits, "credits-config", "", "credits, as JSON")
	f.StringVar(&limit, "access-limit", "", "credits, time, or the maximum number of orders")
	require(c, "agent-metadata", "agent-api", "plan-metadata", "price-config", "credits-config")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		in := body{}
		in.text("accessLimit", limit)
		for _, m := range []struct{ name, flag, arg string }{
			{"agentMetadata", "agent-metadata", agentMetadata}, {"agentApi", "agent-api", agentAPI}, {"planMetadata", "plan-metadata", planMetadata},
			{"priceConfig", "price-config", price}, {"creditsConfig", "credits-config", credits},
		} {
			if err := in.json(a, m.name, m.flag, m.arg); err != nil {
				return err
			}
		}
		if err := a.allKnown(); err != nil {
			return err
		}
		return a.make(cmd.Context(), "/protocol/agents/plans", in, "agentId")
	}
	return c
}

func (a *app) agentsUpdate(use string) *cobra.Command {
	var metadata, api string
	var version int64
	c := command(use+" AGENT", "Change an agent", nil)
	c.Long = `Change an agent. A member that is given replaces the one that is stored, null clears it, and what is left out stays.

The agent is read first, and changed only if it still is what was read; otherwise both are repeated, a few times. Endpoints that a new list
takes away are named. add-endpoints adds without taking any away. --if-version refuses when the agent is no longer the one that you read.`
	c.Example = `toll agents update 5063 --agent-api '{"endpoints":[{"POST":"https://agent.example.com/ask"}]}'`
	c.Flags().StringVar(&metadata, "agent-metadata", "", "members of the description, as JSON")
	c.Flags().StringVar(&api, "agent-api", "", "endpoints and so on, as JSON")
	ifVersion(c, &version)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		in := body{}
		if err := in.json(a, "metadataAttributes", "agent-metadata", metadata); err != nil {
			return err
		}
		if err := in.json(a, "agentApiAttributes", "agent-api", api); err != nil {
			return err
		}
		if len(in) == 0 {
			return usagef("%s needs --agent-metadata or --agent-api", cmd.CommandPath())
		}
		id, err := toll.ParseAgentID(args[0])
		if err != nil {
			return err
		}
		if err := checkIfVersion(cmd, version); err != nil {
			return err
		}
		return a.updateAgent(cmd.Context(), id, in, version)
	}
	return c
}

// ifVersion is the flag of a change that depends on what its caller has read.
func ifVersion(c *cobra.Command, version *int64) {
	const usage = "refuse unless this is the version of the record, as get shows it"
	c.Flags().Int64Var(version, "if-version", 0, usage)
}

func checkIfVersion(cmd *cobra.Command, version int64) error {
	if cmd.Flags().Changed("if-version") && version < 1 {
		return usagef("--if-version must be 1 or more; got %d", version)
	}
	return nil
}

// updateAgent sends a change of an agent under the wanted version, or, for 0, under the one that it
// reads.
func (a *app) updateAgent(ctx context.Context, id toll.AgentID, in body, version int64) error {
	var got json.RawMessage
	var removed toll.EndpointList
	change := func(ctx context.Context, agent *toll.Agent) (err error) {
		got, err = a.call(ctx, http.MethodPut, segments("protocol", "agents", string(id)), nil, in)
		removed = endpointsWithout(agent.API.Endpoints, in["agentApiAttributes"])
		return err
	}
	c := a.client()
	if version == 0 {
		if err := c.EditAgent(ctx, id, change); err != nil {
			return err
		}
	} else {
		agent, err := c.Agent(ctx, id)
		if err != nil {
			return err
		}
		if err := change(client.WithIfMatch(ctx, version), agent); err != nil {
			return err
		}
	}
	if len(removed) > 0 {
		a.say("note", "the agent no longer has %s", endpointTexts(removed))
	}
	return a.record(got)
}

// endpointsWithout returns the endpoints that an update of the API takes away; nothing for one that
// cannot be read, which the service refuses.
func endpointsWithout(stored toll.EndpointList, update any) toll.EndpointList {
	raw, _ := update.(json.RawMessage)
	var u toll.AgentAPIUpdate
	if json.Unmarshal(raw, &u) != nil || !u.Endpoints.IsSet {
		return nil
	}
	var kept toll.EndpointList
	if u.Endpoints.Value != nil {
		kept = *u.Endpoints.Value
	}
	return slices.DeleteFunc(
		slices.Clone(stored),
		func(e toll.Endpoint) bool { return slices.Contains(kept, e) },
	)
}

// maxShownEndpoints bounds how many endpoints a message names.
const maxShownEndpoints = 10

func endpointTexts(list toll.EndpointList) string {
	var texts []string
	for _, e := range list[:min(len(list), maxShownEndpoints)] {
		texts = append(texts, clean(e.Verb+" "+e.URL))
	}
	if more := len(list) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, ", ")
}

func (a *app) agentsAddEndpoints(use string) *cobra.Command {
	var texts, open []string
	c := command(use+" AGENT", "Add endpoints to an agent, behind those that it has", nil)
	c.Long = "Add endpoints to an agent. Those that it has stay, and one that it has already is not added again."
	c.Example = `toll agents add-endpoints 5063 --endpoint "POST https://agent.example.com/ask" --endpoint "GET https://agent.example.com/files/:name"`
	f := c.Flags()
	f.StringArrayVar(&texts, "endpoint", nil, `verb and url, as "POST https://agent.example.com/ask"`)
	f.StringArrayVar(&open, "open-endpoint", nil, "url that anybody may call without payment")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(texts)+len(open) == 0 {
			return usagef("%s needs --endpoint or --open-endpoint", cmd.CommandPath())
		}
		in := toll.EndpointsInput{OpenEndpoints: open}
		for _, t := range texts {
			verb, url, ok := strings.Cut(strings.TrimSpace(t), " ")
			verb = strings.ToUpper(verb)
			if !ok || !slices.Contains(toll.Verbs, verb) {
				return usagef(
					`--endpoint must be a verb and a url, such as "POST https://agent.example.com/ask"; got %q`,
					t,
				)
			}
			in.Endpoints = append(
				in.Endpoints,
				toll.Endpoint{Verb: verb, URL: strings.TrimSpace(url)},
			)
		}
		return a.send(
			cmd.Context(),
			http.MethodPost,
			segments("protocol", "agents", args[0], "endpoints"),
			in,
		)
	}
	return c
}

func (a *app) agentsAttach(use string) *cobra.Command {
	return a.attachment(use, "Let an agent take payment with a plan", http.MethodPost)
}

func (a *app) agentsDetach(use string) *cobra.Command {
	return a.attachment(use, "Take a plan from an agent", http.MethodDelete)
}

func (a *app) attachment(use, short, method string) *cobra.Command {
	var agent string
	c := command(use+" PLAN", short, func(cmd *cobra.Command, args []string) error {
		if _, err := toll.ParseAgentID(agent); err != nil {
			return flagError("agent-id", err)
		}
		return a.send(cmd.Context(), method, segments("protocol", "agents", agent, "plan", args[0]), nil)
	})
	c.Flags().StringVar(&agent, "agent-id", "", "the agent")
	require(c, "agent-id")
	return c
}
