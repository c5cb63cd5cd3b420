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
	"github.com/tollhq/toll/internal/list"
)

func agentsCommand(a *app) *cobra.Command {
	metadata := flag{"agent-metadata", "metadataAttributes", object, "name, description, and other metadata, as JSON"}
	api := flag{"agent-api", "agentApiAttributes", object, "endpoints and other API settings, as JSON"}
	return group("agents", "Manage agents", "",
		a.resource(call{
			use: "list", short: "List your agents", aliases: []string{"get-agents"},
			list: list.Agents,
		}),
		a.get("get AGENT", "Show an agent", "/protocol/agents/AGENT", "get-agent"),
		a.resource(call{
			use: "plans AGENT", short: "List the plans of an agent", aliases: []string{"get-agent-plans"},
			list: list.PlansOfAgent,
		}),
		a.resource(call{
			use: "create", short: "Create an agent for existing plans", aliases: []string{"register-agent"},
			example: `toll agents create --agent-metadata '{"name":"Ask"}' --agent-api api.json --payment-plans 4474,5063`,
			method:  http.MethodPost, path: "/protocol/agents", made: "agentId", fixed: true,
			flags: []flag{
				metadata, api, {"payment-plans", "plans", words.naming(planID.ref), "plan ids or names, separated by commas"},
			},
			require: []string{"agent-metadata", "agent-api", "payment-plans"},
		}),
		agentsCreateWithPlan(a),
		agentsUpdate(a, metadata, api),
		agentsAddEndpoints(a),
		attachment(a, "attach", "add-plan-to-agent", "Attach a plan to an agent", http.MethodPost),
		attachment(a, "detach", "remove-plan-from-agent", "Detach a plan from an agent", http.MethodDelete),
		a.act("publish AGENT", "Allow payments to an agent", http.MethodPut, "/protocol/agents/AGENT/list/true"),
		a.act("unpublish AGENT", "Stop new payments to an agent; open holds can still be settled",
			http.MethodPut, "/protocol/agents/AGENT/list/false"),
	)
}

func agentsCreateWithPlan(a *app) *cobra.Command {
	return a.resource(call{
		use: "create-with-plan", short: "Create an agent and its plan together",
		aliases: []string{"register-agent-and-plan"},
		example: `toll agents create-with-plan --agent-metadata agent.json --agent-api api.json \
  --plan-metadata '{"name":"Basic"}' --price-config '{"priceType":"FREE"}' --credits-config '{"amount":100,"minAmount":1}'`,
		method: http.MethodPost, path: "/protocol/agents/plans", made: "agentId", fixed: true,
		flags: []flag{
			{"agent-metadata", "agentMetadata", object, "name, description, and other metadata of the agent, as JSON"},
			{"agent-api", "agentApi", object, "endpoints and other API settings, as JSON"},
			{"plan-metadata", "planMetadata", object, "name, description, and other metadata of the plan, as JSON"},
			{"price-config", "priceConfig", object, "price, as JSON"},
			{"credits-config", "creditsConfig", object, "credits, as JSON"},
			{"access-limit", "accessLimit", word, accessLimits},
		},
		require: []string{"agent-metadata", "agent-api", "plan-metadata", "price-config", "credits-config"},
	})
}

func agentsUpdate(a *app, flags ...flag) *cobra.Command {
	var version int64
	c := a.resource(call{
		use: "update AGENT", short: "Change an agent", aliases: []string{"update-agent-metadata"},
		long: `Change an agent. Each JSON member that you set replaces the stored value, and null clears it. Members that you leave out do
not change.

The command reads the agent and then changes it. If the agent was changed in between, the command tries again, a few times. With
--if-version, the command fails instead if the agent has changed since you read it.

If a new list of endpoints removes endpoints, the command shows them. To add endpoints and keep the existing ones, use
toll agents add-endpoints.`,
		example: `toll agents update 5063 --agent-api '{"endpoints":[{"POST":"https://agent.example.com/ask"}]}'`,
		flags:   flags, oneOf: true,
		change: func(cmd *cobra.Command, _ *request) error { return checkIfVersion(cmd, version) },
		local: func(ctx context.Context, r *request) (any, error) {
			id, err := toll.ParseAgentID(r.args[0])
			if err != nil {
				return nil, err
			}
			return updateAgent(ctx, a, id, r.in, version)
		},
	})
	ifVersion(c, &version)
	return c
}

// ifVersion adds the flag of a change that must apply to the version that the caller has read.
func ifVersion(c *cobra.Command, version *int64) {
	const usage = "fail unless the record has this version, as shown by get"
	c.Flags().Int64Var(version, "if-version", 0, usage)
}

func checkIfVersion(cmd *cobra.Command, version int64) error {
	if cmd.Flags().Changed("if-version") && version < 1 {
		return usagef("--if-version must be 1 or more; got %d", version)
	}
	return nil
}

// updateAgent sends a change of an agent that applies to the given version, or, for 0, to the version that it reads.
func updateAgent(ctx context.Context, a *app, id toll.AgentID, in body, version int64) (json.RawMessage, error) {
	var got json.RawMessage
	var removed toll.EndpointList
	change := func(ctx context.Context, agent *toll.Agent) (err error) {
		got, err = a.call(ctx, http.MethodPut, "/protocol/agents/"+string(id), nil, in)
		removed = endpointsWithout(agent.API.Endpoints, in["agentApiAttributes"])
		return err
	}
	var err error
	if c := a.client(); version == 0 {
		err = c.EditAgent(ctx, id, change)
	} else if agent, e := c.Agent(ctx, id); e != nil {
		err = e
	} else {
		err = change(client.WithIfMatch(ctx, version), agent)
	}
	if err == nil && len(removed) > 0 {
		a.say("note", "removed these endpoints from the agent: %s", endpointTexts(removed))
	}
	return got, err
}

// endpointsWithout returns the endpoints that an update of the API removes. It returns none for an update that cannot be read,
// which the service refuses.
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
	return slices.DeleteFunc(slices.Clone(stored), func(e toll.Endpoint) bool { return slices.Contains(kept, e) })
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

// readEndpoint reads a value of --endpoint.
func readEndpoint(text string) (toll.Endpoint, error) {
	verb, url, ok := strings.Cut(strings.TrimSpace(text), " ")
	verb = strings.ToUpper(verb)
	if !ok || !slices.Contains(toll.Verbs, verb) {
		return toll.Endpoint{}, usagef(`--endpoint must be an HTTP method and a URL, such as "POST https://agent.example.com/ask"; got %q`, text)
	}
	return toll.Endpoint{Verb: verb, URL: strings.TrimSpace(url)}, nil
}

func agentsAddEndpoints(a *app) *cobra.Command {
	texts := kind{name: "endpoint", read: func(_ *app, _ string, given []string) (any, error) {
		var list toll.EndpointList
		for _, t := range given {
			e, err := readEndpoint(t)
			if err != nil {
				return nil, err
			}
			list = append(list, e)
		}
		return list, nil
	}}
	return a.resource(call{
		use: "add-endpoints AGENT", short: "Add endpoints to an agent and keep its existing endpoints",
		long:    "Add endpoints to an agent. Existing endpoints stay, and an endpoint that the agent already has is not added again.",
		example: `toll agents add-endpoints 5063 --endpoint "POST https://agent.example.com/ask" --endpoint "GET https://agent.example.com/files/:name"`,
		method:  http.MethodPost, path: "/protocol/agents/AGENT/endpoints", oneOf: true,
		flags: []flag{
			{"endpoint", "endpoints", texts, `HTTP method and URL, such as "POST https://agent.example.com/ask"`},
			{"open-endpoint", "openEndpoints", urls, "URL that callers may use without payment"},
		},
	})
}

func attachment(a *app, use, deployed, short, method string) *cobra.Command {
	return a.resource(call{
		use: use + " PLAN", short: short, aliases: []string{deployed}, method: method,
		flags: []flag{{"agent-id", "agent", agentID, "the agent"}}, require: []string{"agent-id"},
		change: func(_ *cobra.Command, r *request) error {
			r.path = segments("protocol", "agents", fmt.Sprint(r.in["agent"]), "plan", r.args[0])
			r.in = nil
			return nil
		},
	})
}
