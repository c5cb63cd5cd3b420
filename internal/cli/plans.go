package cli

import (
	"math/big"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
)

var planColumns = []column{
	{"PLAN", "planId"}, {"NAME", "name"}, {"LIMIT", "accessLimit"}, {"PRICE", "metadata.main.price"}, {"CURRENCY", "metadata.plan.currency"},
	{"CREDITS", "registry.credits.amount"}, {"LISTED", "isListed"},
}

// planWords say in a table what a plan is where its record has only members.
var planWords = map[string]func(*toll.Plan) string{
	"accessLimit": func(p *toll.Plan) string {
		words := string(p.AccessLimit)
		if p.IsTrial {
			words += ", trial"
		}
		if p.IsPayAsYouGo() {
			words += ", pay as you go"
		}
		return words
	},
	"metadata.main.price": func(p *toll.Plan) string {
		if p.Price.IsFree() {
			return "free"
		}
		return p.Price.Text()
	},
	"metadata.plan.currency": func(p *toll.Plan) string {
		if p.Price.IsFree() {
			return ""
		}
		return p.Price.CurrencyName()
	},
	"registry.credits.amount": func(p *toll.Plan) string {
		secs := p.Credits.DurationSecs
		switch {
		case p.IsTime() && secs.IsZero():
			return "without end"
		case p.IsTime():
			return period(secs)
		case !secs.IsZero():
			return p.Credits.Amount.String() + " for " + period(secs)
		}
		return p.Credits.Amount.String()
	},
}

// period is a time in the largest unit of which it is a whole number.
func period(secs toll.Units) string {
	for _, unit := range []struct {
		secs int64
		word string
	}{
		{toll.YearSecs, "year"}, {toll.MonthSecs, "month"}, {toll.WeekSecs, "week"}, {toll.DaySecs, "day"}, {3600, "hour"}, {60, "minute"},
	} {
		if n, rest := new(big.Int).QuoRem(secs.Int(), big.NewInt(unit.secs), new(big.Int)); rest.Sign() == 0 {
			return count(n.String(), unit.word)
		}
	}
	return count(secs.String(), "second")
}

func (a *app) plansCommand() *cobra.Command {
	register := func(use, kind string, trial bool) *cobra.Command {
		return hidden(use, a.plansCreate("create", kind, trial))
	}
	c := group("plans", "Plans: what agents sell", "",
		a.plansList("list"), a.plansGet("get"), a.plansBalance("balance"), a.plansAgents("agents"), a.plansCreate("create", "", false),
		a.plansUpdate(), a.listing("publish", "PLAN", "Let a plan take orders", "plans", true),
		a.listing("unpublish", "PLAN", "Let a plan take no new orders; credits that exist keep working", "plans", false),
		a.plansOrder("order"), a.plansCheckout("checkout"), a.plansMint("mint"),
		hidden("get-plans", a.plansList("list")), hidden("get-plan", a.plansGet("get")), hidden("get-plan-balance", a.plansBalance("balance")),
		hidden("get-agents-associated-to-a-plan", a.plansAgents("agents")),
		register("register-plan", "", false), register("register-credits-plan", "credits", false), register("register-time-plan", "time", false),
		register("register-credits-trial-plan", "credits", true), register("register-time-trial-plan", "time", true),
		hidden("order-plan", a.plansOrder("order")), hidden("order-fiat-plan", a.plansCheckout("checkout")),
		hidden("mint-plan-credits", a.plansMint("mint")), hidden("mint-plan-expirable", a.plansMint("mint")),
	)
	c.AddCommand(a.deployedBuilders()...)
	return c
}

func (a *app) plansList(use string) *cobra.Command {
	return a.listCommand(use, "List your plans", "plans", planColumns, func([]string) string { return "/protocol/plans" })
}

func (a *app) plansGet(use string) *cobra.Command {
	return command(use+" PLAN", "Show a plan", func(cmd *cobra.Command, args []string) error {
		return a.get(cmd.Context(), segments("protocol", "plans", args[0]), nil)
	})
}

func (a *app) plansBalance(use string) *cobra.Command {
	var address string
	c := command(use+" PLAN", "Show what you, or an address, have of a plan", func(cmd *cobra.Command, args []string) error {
		path := []string{"protocol", "plans", args[0], "balance"}
		if address != "" {
			if err := checkAddress("account-address", address); err != nil {
				return err
			}
			path = append(path, address)
		}
		return a.get(cmd.Context(), segments(path...), nil)
	})
	c.Flags().StringVar(&address, "account-address", "", "address of the holder; default your own")
	return c
}

func (a *app) plansAgents(use string) *cobra.Command {
	return a.listCommand(use+" PLAN", "List the agents of a plan", "agents", agentColumns, func(args []string) string {
		return segments("protocol", "plans", args[0], "agents")
	})
}

// plansCreate registers a plan. kind and trial are set by deployed names.
func (a *app) plansCreate(use, kind string, trial bool) *cobra.Command {
	var metadata, price, credits, nonce, limit, maxOrders string
	c := command(use, "Register a plan", nil)
	c.Long = `Register a plan. Its price and credits never change afterwards: JSON with a member that the service does not know is refused
unless --yes is given.`
	c.Example = `toll plans create --plan-metadata '{"name":"Basic"}' --price-config '{"priceType":"FREE"}' --credits-config '{"amount":100}'`
	f := c.Flags()
	f.StringVar(&metadata, "plan-metadata", "", "name, description and so on, as JSON")
	f.StringVar(&price, "price-config", "", "price, as JSON")
	f.StringVar(&credits, "credits-config", "", "credits, as JSON")
	f.StringVar(&nonce, "nonce", "", "number that makes the registration repeatable")
	f.StringVar(&limit, "access-limit", "", "credits, time, or the maximum number of orders")
	f.StringVar(&maxOrders, "max-orders", "", "maximum number of orders")
	f.StringVar(&kind, "type", kind, "credits or time")
	f.BoolVar(&trial, "trial", trial, "one order per address, ever")
	require(c, "plan-metadata", "price-config", "credits-config")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		in := body{}
		for _, m := range []struct{ name, flag, arg string }{
			{"metadataAttributes", "plan-metadata", metadata}, {"priceConfig", "price-config", price}, {"creditsConfig", "credits-config", credits},
		} {
			if err := in.json(a, m.name, m.flag, m.arg); err != nil {
				return err
			}
		}
		if err := in.digits("nonce", "nonce", nonce); err != nil {
			return err
		}
		if err := in.digits("maxOrders", "max-orders", maxOrders); err != nil {
			return err
		}
		switch kind = strings.ToLower(kind); {
		case kind != "" && kind != "credits" && kind != "time":
			return usagef("--type is credits or time")
		case isDigits(limit) && maxOrders != "":
			return usagef("a number in --access-limit is the maximum of orders: give it or --max-orders, not both")
		case isDigits(limit): // a number is the maximum of orders, and leaves the word to --type
			in["maxOrders"] = limit
			in.text("accessLimit", kind)
		default:
			in.text("accessLimit", first(limit, kind))
		}
		if trial {
			in["isTrialPlan"] = true
		}
		if err := a.allKnown(); err != nil {
			return err
		}
		return a.make(cmd.Context(), "/protocol/plans", in, "planId")
	}
	return c
}

func (a *app) plansUpdate() *cobra.Command {
	var metadata, maxOrders string
	var version int64
	c := command("update PLAN", "Change the description of a plan", nil)
	c.Long = "Change the description of a plan. A member that is given replaces the one that is stored, null clears it; price and credits never change."
	c.Example = `toll plans update 4474 --plan-metadata '{"description":"now with pictures"}'`
	c.Flags().StringVar(&metadata, "plan-metadata", "", "members of the description, as JSON")
	c.Flags().StringVar(&maxOrders, "max-orders", "", "maximum number of orders; null takes it away")
	ifVersion(c, &version)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		in := body{}
		if err := in.json(a, "metadataAttributes", "plan-metadata", metadata); err != nil {
			return err
		}
		if maxOrders == "null" {
			in["maxOrders"] = nil
		} else if err := in.digits("maxOrders", "max-orders", maxOrders); err != nil {
			return err
		}
		if len(in) == 0 {
			return usagef("toll plans update needs --plan-metadata or --max-orders")
		}
		if err := checkIfVersion(cmd, version); err != nil {
			return err
		}
		return a.send(
			client.WithIfMatch(cmd.Context(), version),
			http.MethodPut,
			segments("protocol", "plans", args[0]),
			in,
		)
	}
	return c
}

// listing is a command that lists or unlists a plan or an agent.
func (a *app) listing(use, argument, short, kind string, listed bool) *cobra.Command {
	return command(use+" "+argument, short, func(cmd *cobra.Command, args []string) error {
		return a.send(cmd.Context(), http.MethodPut, segments("protocol", kind, args[0], "list", strconv.FormatBool(listed)), nil)
	})
}

func (a *app) plansCheckout(use string) *cobra.Command {
	var open bool
	var success, cancelled string
	c := command(use+" PLAN", "Get the page on which a card pays for a plan", nil)
	c.Long = "Get the page on which a card pays for a plan. It opens in any browser; the credits are there once the card processor has confirmed the payment."
	c.Flags().BoolVar(&open, "open", false, "open the page in the browser")
	c.Flags().StringVar(&success, "success-url", "", "where the page goes after the payment")
	c.Flags().StringVar(&cancelled, "cancel-url", "", "where the page goes without a payment")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		in := body{"sessionType": "hosted"}
		in.text("successUrl", success)
		in.text("cancelUrl", cancelled)
		got, err := a.call(cmd.Context(), http.MethodPost, segments("protocol", "plans", args[0], "checkout"), nil, in)
		if err != nil {
			return err
		}
		if a.set.output == formatTable || a.set.output == formatCSV {
			// What matters lies in the result; the page comes first.
			err = a.record(objectOf([]jsonMember{
				{"checkoutUrl", rawOf(got, "result.checkoutUrl")}, {"orderId", rawOf(got, "orderId")},
				{"paymentStatus", rawOf(got, "result.paymentStatus")}, {"linkExpiresAt", rawOf(got, "result.linkExpiresAt")},
			}))
		} else {
			err = a.record(got)
		}
		if err != nil || !open {
			return err
		}
		return a.browse(cmd.Context(), at(got, "result.checkoutUrl"))
	}
	return c
}

func (a *app) plansMint(use string) *cobra.Command {
	var amount, receiver, duration string
	c := command(use+" PLAN", "Give credits of your plan to an address", nil)
	f := c.Flags()
	f.StringVar(&amount, "credits-amount", "", "credits to give")
	f.StringVar(&receiver, "credits-receiver", "", "address that gets them")
	f.StringVar(&duration, "credits-duration", "", "seconds until they end; default without end")
	require(c, "credits-amount", "credits-receiver")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		path, amountName := "/protocol/plans/mint", "amount"
		if duration != "" {
			path, amountName = "/protocol/plans/mintExpirable", "creditsAmount"
		}
		if err := checkAddress("credits-receiver", receiver); err != nil {
			return err
		}
		in := body{"planId": args[0], "creditsReceiver": receiver}
		if err := in.digits(amountName, "credits-amount", amount); err != nil {
			return err
		}
		if err := in.digits("creditsDuration", "credits-duration", duration); err != nil {
			return err
		}
		return a.send(cmd.Context(), http.MethodPost, path, in)
	}
	return c
}
