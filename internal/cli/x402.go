package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

func (a *app) x402Command() *cobra.Command {
	return group("x402", "Payments, as a builder sees them", "",
		a.x402Require(), a.x402Verify("verify"), a.x402Settle("settle"),
		command("release REQUEST", "Give a hold back", func(cmd *cobra.Command, args []string) error {
			return a.send(cmd.Context(), http.MethodPost, "/x402/release", body{"agentRequestId": args[0]})
		}),
		a.x402Settlement(),
		a.x402Discover(),
		command("supported", "Show the schemes and networks of the service", func(cmd *cobra.Command, _ []string) error {
			return a.get(cmd.Context(), "/x402/supported", nil)
		}),
	)
}

// deployedCommands are topics under other names, left out of help.
func (a *app) deployedCommands() []*cobra.Command {
	facilitator := group("facilitator", "The same as x402", "",
		hidden("verify-permissions", a.x402Verify("verify")), hidden("settle-permissions", a.x402Settle("settle")))
	token := group("x402token", "The same as tokens", "", hidden("get-x402-access-token", a.tokensCreate("create")))
	delegation := group("delegation", "The same as delegations and cards", "", hidden("list-payment-methods", a.cardsList("list")))
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
func (a *app) required(ctx context.Context, plan string, r resourceFlags, amount string) (*x402.PaymentRequired, error) {
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

func (a *app) x402Require() *cobra.Command {
	var r resourceFlags
	var amount string
	var header bool
	c := command("require PLAN", "Print what a server asks for when a payment is missing", nil)
	r.bind(c.Flags())
	c.Flags().StringVar(&amount, "amount", "", "most credits that the request may burn")
	c.Flags().BoolVar(&header, "header", false, "print the value of the payment-required header")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := a.required(cmd.Context(), args[0], r, amount)
		if err != nil {
			return err
		}
		if header {
			if a.set.output == formatQuiet {
				return nil
			}
			value, err := x402.EncodeHeader(p)
			if err != nil {
				return err
			}
			_, err = a.out.Write([]byte(value + "\n"))
			return err
		}
		b, err := x402.Encode(p)
		if err != nil {
			return err
		}
		return a.record(b)
	}
	return c
}

// payment is the body of verify and settle: whole, or made of flags.
type payment struct {
	params, token, plan, amount, request string
	resource                             resourceFlags
}

func (p *payment) bind(f *pflag.FlagSet) {
	f.StringVar(&p.params, "params", "", "the whole body, as JSON")
	f.StringVar(&p.token, "token", "", "access token; - reads it from stdin, @path from a file")
	f.StringVar(&p.plan, "plan", "", "plan that pays")
	f.StringVar(&p.amount, "max-amount", "", "credits")
	f.StringVar(&p.request, "request-id", "", "id of the request")
	p.resource.bind(f)
}

func (a *app) paymentBody(ctx context.Context, p payment) (any, body, error) {
	if p.params != "" {
		raw, err := a.objectArgument("params", p.params)
		return raw, nil, err
	}
	if p.token == "" || p.plan == "" {
		return nil, nil, usagef("give --params, or --token and --plan")
	}
	token, _, err := a.argument(p.token, false)
	if err != nil {
		return nil, nil, err
	}
	required, err := a.required(ctx, p.plan, p.resource, "")
	if err != nil {
		return nil, nil, err
	}
	in := body{"paymentRequired": required, "x402AccessToken": strings.TrimSpace(string(token))}
	in.text("agentRequestId", p.request)
	return nil, in, in.digits("maxAmount", "max-amount", p.amount)
}

func (a *app) x402Verify(use string) *cobra.Command {
	var p payment
	var hold bool
	var holdSecs int
	c := command(use, "Ask whether a request is payable", nil)
	p.bind(c.Flags())
	c.Flags().BoolVar(&hold, "hold", false, "set the credits aside")
	c.Flags().IntVar(&holdSecs, "hold-secs", 0, "life of the hold, 1 to 900 seconds")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		in, made, err := a.paymentBody(cmd.Context(), p)
		if err != nil {
			return err
		}
		if made != nil {
			if hold {
				made["hold"] = true
			}
			if holdSecs != 0 {
				made["holdSecs"] = holdSecs
			}
			in = made
		}
		got, err := a.call(cmd.Context(), http.MethodPost, "/x402/verify", nil, in)
		if err != nil {
			return err
		}
		if err := a.record(got); err != nil {
			return err
		}
		if at(got, "isValid") != "true" {
			a.say("refused", "%s", first(at(got, "invalidMessage"), at(got, "invalidReason")))
			return printed(exitPayment)
		}
		return nil
	}
	return c
}

func (a *app) x402Settle(use string) *cobra.Command {
	var p payment
	c := command(use, "Burn the credits of a request", nil)
	p.bind(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		in, made, err := a.paymentBody(cmd.Context(), p)
		if err != nil {
			return err
		}
		if made != nil {
			in = made
		}
		got, err := a.call(cmd.Context(), http.MethodPost, "/x402/settle", nil, in)
		if err != nil {
			return err
		}
		if err := a.record(got); err != nil {
			return err
		}
		return settled(got)
	}
	return c
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

func (a *app) x402Settlement() *cobra.Command {
	var transaction string
	c := command("settlement [REQUEST]", "Show what became of a request", nil)
	c.Flags().StringVar(&transaction, "transaction", "", "the transaction of its receipt, in place of its id")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 1 && transaction == "":
			return a.get(cmd.Context(), segments("x402", "settlements", args[0]), nil)
		case len(args) == 0 && transaction != "":
			return a.get(cmd.Context(), "/x402/settlements", url.Values{"transaction": {transaction}})
		}
		return usagef("toll x402 settlement needs REQUEST or --transaction")
	}
	return c
}

func (a *app) x402Discover() *cobra.Command {
	var by x402.CatalogueFilter
	var limit, offset int
	var cursor string
	columns := []column{{"RESOURCE", "resource"}, {"TYPE", "type"}, {"DESCRIPTION", "description"}, {"UPDATED", "lastUpdatedAt"}}
	c := command("discover [WORDS...]", "List what can be paid for through the service", nil)
	c.Long = `List what can be paid for through the service, last updated first. With words: what has each of them in its name, its
description, a tag, the name of a plan, or its url.

Listed are the endpoints of listed agents with a listed plan. Paths without a host, wildcards and what is free are not.`
	c.Example = "toll x402 discover --type mcp\ntoll x402 discover weather -o json"
	c.Args = cobra.ArbitraryArgs
	f := c.Flags()
	f.StringVar(&by.Type, "type", "", "http or mcp")
	f.StringVar(&by.PayTo, "pay-to", "", "address that is paid")
	f.StringVar(&by.Scheme, "scheme", "", "payment scheme")
	f.StringVar(&by.Network, "network", "", "network of the payment")
	f.IntVar(&limit, "limit", 20, "most resources, 1 to 100")
	f.IntVar(&offset, "offset", 0, "resources to skip, without words")
	f.StringVar(&cursor, "cursor", "", "continues where an earlier answer ended, with words")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		q := url.Values{"limit": {strconv.Itoa(limit)}}
		for name, value := range map[string]string{"type": by.Type, "payTo": by.PayTo, "scheme": by.Scheme, "network": by.Network, "cursor": cursor} {
			if value != "" {
				q.Set(name, value)
			}
		}
		path, member := "/x402/discovery/resources", "items"
		if len(args) > 0 {
			path, member = "/x402/discovery/search", "resources"
			q.Set("query", strings.Join(args, " "))
		} else {
			q.Set("offset", strconv.Itoa(offset))
		}
		got, err := a.call(cmd.Context(), http.MethodGet, path, q, nil)
		if err != nil {
			return err
		}
		if err := a.list(got, member, columns); err != nil {
			return err
		}
		if a.set.output == formatTable && string(rawOf(got, member)) == "[]" {
			a.say("note", "nothing was found: listed agents with a listed plan have their endpoints here, by whole urls; wildcards and what is free are not listed")
		}
		return nil
	}
	return c
}
