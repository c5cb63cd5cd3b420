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
	"github.com/spf13/pflag"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/x402"
)

func x402Command(a *app) *cobra.Command {
	return group("x402", "Payments, as a builder sees them", "",
		x402Require(a), x402Verify(a, "verify"), x402Settle(a, "settle"),
		a.resource(call{
			use: "release REQUEST", short: "Give a hold back", method: http.MethodPost, path: "/x402/release", into: "agentRequestId",
		}),
		a.resource(call{
			use: "renew REQUEST", short: "Renew an open hold", method: http.MethodPost, path: "/x402/renew", into: "agentRequestId",
			flags: []flag{{"hold-secs", "holdSecs", digits, "life of the hold in seconds from now, 1 to 900; default 60"}},
		}),
		x402Settlement(a),
		x402Discover(a),
		a.get("supported", "Show the schemes and networks of the service", "/x402/supported"),
	)
}

// deployedCommands are topics under other names, left out of help.
func deployedCommands(a *app) []*cobra.Command {
	facilitator := group("facilitator", "The same as x402", "",
		hidden("verify-permissions", x402Verify(a, "verify")), hidden("settle-permissions", x402Settle(a, "settle")))
	token := group("x402token", "The same as tokens", "", hidden("get-x402-access-token", tokensCreate(a, "create")))
	delegation := group("delegation", "The same as delegations and cards", "", hidden("list-payment-methods", cardsList(a, "list")))
	facilitator.Hidden, token.Hidden, delegation.Hidden = true, true, true
	return []*cobra.Command{facilitator, token, delegation}
}

// resourceFlags say what is paid for.
type resourceFlags struct{ endpoint, agent, verb string }

func (r *resourceFlags) bind(f *pflag.FlagSet) {
	f.StringVar(&r.endpoint, "endpoint", "", "url that is paid for")
	f.StringVar(&r.agent, "agent-id", "", "agent that serves it")
	f.StringVar(&r.verb, "verb", "", "HTTP verb of the request")
}

// required asks the service for the terms of the plan and makes what a server would ask for.
func requirementsOf(ctx context.Context, a *app, plan string, r resourceFlags, amount string) (*x402.PaymentRequired, error) {
	id, err := toll.ParsePlanID(plan)
	if err != nil {
		return nil, err
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
		use: "require PLAN", short: "Print what a server asks for when a payment is missing",
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
	of.bind(c.Flags())
	c.Flags().StringVar(&amount, "amount", "", "most credits that the request may burn")
	c.Flags().BoolVar(&header, "header", false, "print the value of the payment-required header")
	return c
}

// paymentCommand is a command with the body of verify and settle: whole, or made of flags.
func paymentCommand(a *app, use, short, path string, show func(*cobra.Command, json.RawMessage) error, more ...flag) *cobra.Command {
	var params, token, plan string
	var resource resourceFlags
	c := a.resource(call{
		use: use, short: short, method: http.MethodPost, path: path, show: show,
		flags: append(more,
			flag{"max-amount", "maxAmount", digits, "credits"},
			flag{"request-id", "agentRequestId", word, "id of the request"},
		),
		change: func(cmd *cobra.Command, r *request) error {
			if params != "" {
				raw, err := a.objectArgument("params", params)
				r.whole = raw
				return err
			}
			if token == "" || plan == "" {
				return usagef("give --params, or --token and --plan")
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
	f.StringVar(&params, "params", "", "the whole body, as JSON")
	f.StringVar(&token, "token", "", "access token; - reads it from stdin, @path from a file")
	f.StringVar(&plan, "plan", "", "plan that pays")
	resource.bind(f)
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
	return paymentCommand(a, use, "Ask whether a request is payable", "/x402/verify", show,
		flag{"hold", "hold", toggle, "set the credits aside"},
		flag{"hold-secs", "holdSecs", whole, "life of the hold, 1 to 900 seconds"})
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

// settled tells the outcomes apart that come with status 200, on the stock body.
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
		use: "settlement [REQUEST]", short: "Show what became of a request",
		flags: []flag{{"transaction", "transaction", word, "the transaction of its receipt, in place of its id"}},
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
		use: "discover [WORDS...]", short: "List what can be paid for through the service",
		long: `List what can be paid for through the service, last updated first. With words: what has each of them in its name, its
description, a tag, the name of a plan, or its url.

Listed are the endpoints of listed agents with a listed plan. Paths without a host, wildcards and what is free are not.`,
		example: "toll x402 discover --type mcp\ntoll x402 discover weather -o json",
		path:    "/x402/discovery/resources",
		flags: []flag{
			{"type", "type", word, "http or mcp"},
			{"pay-to", "payTo", word, "address that is paid"},
			{"scheme", "scheme", word, "payment scheme"},
			{"network", "network", word, "network of the payment"},
			{"cursor", "cursor", word, "continues where an earlier answer ended, with words"},
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
				a.say("note", "nothing was found: listed agents with a listed plan have their endpoints here, by whole urls; wildcards and what is free are not listed")
			}
			return a.showPage(got, list.Local(member, list.Text("resource"), list.State("type"), list.Text("description"), list.Time("lastUpdatedAt", "Updated")))
		},
	})
	c.Args = cobra.ArbitraryArgs
	c.Flags().IntVar(&limit, "limit", 20, "most resources, 1 to 100")
	c.Flags().IntVar(&offset, "offset", 0, "resources to skip, without words")
	return c
}
