package cli

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/x402"
)

func x402Command(a *app) *cobra.Command {
	return group("x402", "Verify and settle payments as a builder", "",
		x402Require(a), x402Verify(a, "verify"), x402Settle(a, "settle"),
		a.resource(call{
			use: "release REQUEST", short: "Release a hold", method: http.MethodPost, path: "/x402/release", into: "agentRequestId",
		}),
		a.resource(call{
			use: "renew REQUEST", short: "Renew an open hold", method: http.MethodPost, path: "/x402/renew", into: "agentRequestId",
			flags: []flag{{"hold-secs", "holdSecs", digits, "lifetime of the hold in seconds from now, 1 to 900; default 60"}},
		}),
		x402Settlement(a),
		x402Discover(a),
		a.get("supported", "Show the schemes and networks of the service", "/x402/supported"),
	)
}

// deployedCommands are topics under other names, left out of help.
func deployedCommands(a *app) []*cobra.Command {
	facilitator := group("facilitator", "Alias of toll x402", "", hidden("verify-permissions", x402Verify(a, "verify")), hidden("settle-permissions", x402Settle(a, "settle")))
	token := group("x402token", "Alias of toll tokens", "", hidden("get-x402-access-token", tokensCreate(a, "create")))
	facilitator.Hidden, token.Hidden = true, true
	return []*cobra.Command{facilitator, token}
}

// resourceFlags name the paid resource.
type resourceFlags struct{ endpoint, agent, verb string }

func (r *resourceFlags) bind(a *app, c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&r.endpoint, "endpoint", "", "URL of the paid resource")
	f.StringVar(&r.agent, "agent-id", "", "agent that serves the resource")
	f.StringVar(&r.verb, "verb", "", "HTTP method of the request")
	a.completeFlag(c, flag{name: "agent-id", kind: agentID})
	a.completeFlag(c, flag{name: "verb", kind: word.offering(toll.Verbs...)})
}

// requirementsOf reads the terms of the plan from the service and returns the payment requirements that a server would send.
func requirementsOf(ctx context.Context, a *app, plan string, r resourceFlags, amount string) (*x402.PaymentRequired, error) {
	plan, err := a.resolve(ctx, references[planID.ref], plan)
	if err != nil {
		return nil, err
	}
	id, err := toll.ParsePlanID(plan)
	if err != nil {
		return nil, err
	}
	if r.agent, err = a.resolve(ctx, references[agentID.ref], r.agent); err != nil {
		return nil, flagError("agent-id", err)
	}
	o := x402.Options{Namespace: a.set.names, Endpoint: r.endpoint, HTTPVerb: r.verb}
	if r.agent != "" {
		if o.AgentID, err = toll.ParseAgentID(r.agent); err != nil {
			return nil, flagError("agent-id", err)
		}
	}
	if amount != "" {
		n, err := toll.ParseCredits(amount)
		if err != nil {
			return nil, flagError("amount", err)
		}
		o.Amount = &n
	}
	terms, err := a.client().Terms(ctx, id)
	if err != nil {
		return nil, err
	}
	return x402.NewPaymentRequired([]*x402.Terms{terms}, o), nil
}

func x402Require(a *app) *cobra.Command {
	var of resourceFlags
	var amount string
	var header bool
	c := a.resource(call{
		use: "require PLAN", short: "Print the payment requirements that a server returns with a 402",
		local: func(ctx context.Context, r *request) (any, error) {
			return requirementsOf(ctx, a, r.args[0], of, amount)
		},
		show: func(_ *cobra.Command, got json.RawMessage) error {
			if !header || a.set.output == formatQuiet {
				return a.show(got)
			}
			_, err := fmt.Fprintln(a.out, base64.StdEncoding.EncodeToString(got))
			return err
		},
	})
	of.bind(a, c)
	c.Flags().StringVar(&amount, "amount", "", "maximum credits of the request")
	c.Flags().BoolVar(&header, "header", false, "print the value of the payment-required header")
	return c
}

// paymentCommand is a command with the body of verify and settle, from --params or from single flags.
func paymentCommand(a *app, use, short, path string, show func(*cobra.Command, json.RawMessage) error, more ...flag) *cobra.Command {
	var params, token, plan string
	var resource resourceFlags
	c := a.resource(call{
		use: use, short: short, method: http.MethodPost, path: path, show: show,
		flags: append(more,
			flag{"max-amount", "maxAmount", digits, "number of credits to verify or settle"},
			flag{"request-id", "agentRequestId", word, "id of the request"},
		),
		change: func(cmd *cobra.Command, r *request) error {
			if params != "" {
				raw, err := a.objectArgument("params", params)
				r.whole = raw
				return err
			}
			if token == "" || plan == "" {
				return usagef("set --params, or --token and --plan")
			}
			var err error
			if r.in["x402AccessToken"], err = a.textArgument(token); err != nil {
				return err
			}
			r.in["paymentRequired"], err = requirementsOf(cmd.Context(), a, plan, resource, "")
			return err
		},
	})
	f := c.Flags()
	f.StringVar(&params, "params", "", "the whole request body, as JSON")
	f.StringVar(&token, "token", "", "access token; - reads it from stdin, @path from a file")
	f.StringVar(&plan, "plan", "", "plan that pays")
	resource.bind(a, c)
	a.completeFlag(c, flag{name: "plan", kind: planID})
	return c
}

func x402Verify(a *app, use string) *cobra.Command {
	show := func(_ *cobra.Command, got json.RawMessage) error {
		if err := a.show(got); err != nil {
			return err
		}
		if at(got, "isValid") != "true" {
			a.say("refused", "%s", cmp.Or(at(got, "invalidMessage"), at(got, "invalidReason")))
			return printed(exitPayment)
		}
		return nil
	}
	whole := kind{name: "number", read: readLast(strconv.Atoi)}
	return paymentCommand(a, use, "Check whether a payment covers a request", "/x402/verify", show,
		flag{"hold", "hold", toggle, "hold the credits until the request is settled or released"},
		flag{"hold-secs", "holdSecs", whole, "lifetime of the hold in seconds, 1 to 900"})
}

func x402Settle(a *app, use string) *cobra.Command {
	show := func(_ *cobra.Command, got json.RawMessage) error {
		if err := a.show(got); err != nil {
			return err
		}
		return settled(got)
	}
	return paymentCommand(a, use, "Burn the credits of a request", "/x402/settle", show)
}

// settled returns the exit code of a settlement that was answered with status 200.
func settled(got json.RawMessage) error {
	switch {
	case at(got, "success") == "true":
		return nil
	case at(got, "errorReason") == x402.ReasonPending:
		return printed(exitTryAgain)
	default:
		return printed(exitPayment)
	}
}

func x402Settlement(a *app) *cobra.Command {
	return a.resource(call{
		use: "settlement [REQUEST]", short: "Show the outcome of a request",
		flags: []flag{{"transaction", "transaction", word, "transaction in the receipt, instead of REQUEST"}},
		change: func(_ *cobra.Command, r *request) error {
			if (len(r.args) == 0) == (r.in["transaction"] == nil) {
				return usagef("toll x402 settlement needs REQUEST or --transaction")
			}
			r.path = segments(append([]string{"x402", "settlements"}, r.args...)...)
			return nil
		},
	})
}

func x402Discover(a *app) *cobra.Command {
	var limit, offset int
	member := "items"
	c := a.resource(call{
		use: "discover [WORDS...]", short: "Find paid resources",
		long: `List the paid resources of the service, last updated first. With words, list only resources that contain every word in
their name, description, tags, plan names, or URL.

The list contains the endpoints of listed agents with a listed plan. It leaves out paths without a host, wildcards, and free endpoints.`,
		example: "toll x402 discover --type mcp\ntoll x402 discover weather -o json",
		path:    "/x402/discovery/resources",
		flags: []flag{
			{"type", "type", word.offering("http", "mcp"), "http or mcp"},
			{"pay-to", "payTo", word, "only resources that pay this address"},
			{"scheme", "scheme", word, "payment scheme"},
			{"network", "network", word, "network of the payment"},
			{"cursor", "cursor", word, "cursor from the previous response; only with words"},
		},
		change: func(_ *cobra.Command, r *request) error {
			r.in["limit"] = limit
			if len(r.args) == 0 {
				r.in["offset"] = offset
				return nil
			}
			r.path, member = "/x402/discovery/search", "resources"
			r.in["query"] = strings.Join(r.args, " ")
			return nil
		},
		show: func(_ *cobra.Command, got json.RawMessage) error {
			if a.set.output == formatTable && string(rawOf(got, member)) == "[]" {
				a.say("note", "no resources found: "+
					"the list contains only full URLs of paid endpoints, without wildcards, of listed agents with a listed plan")
			}
			return a.showPage(got, list.Local(member, list.Text("resource"), list.State("type"), list.Text("description"), list.Time("lastUpdatedAt", "Updated")))
		},
	})
	c.Args = cobra.ArbitraryArgs
	c.Flags().IntVar(&limit, "limit", 20, "maximum number of resources, 1 to 100")
	c.Flags().IntVar(&offset, "offset", 0, "resources to skip; only without words")
	return c
}
