package cli

import (
	"cmp"
	"encoding/json"
	"math/big"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/list"
)

// accessLimits describes the values of --access-limit.
var accessLimits = strings.Join(toll.AccessLimits(), ", ") + ", or the maximum number of orders"

// free is the price of a free plan in words.
const free = "free"

// planWords returns the words with which a table describes members of a plan.
var planWords = map[string]func(*toll.Plan) string{
	"accessLimit": func(p *toll.Plan) string {
		words := string(p.AccessLimit)
		if p.IsTrial {
			words += ", trial"
		}
		if !p.Kind().Prepaid() {
			words += ", pay as you go"
		}
		return words
	},
	"metadata.main.price": func(p *toll.Plan) string {
		if p.Price.IsFree() {
			return free
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
		case !p.Kind().Charges() && secs.IsZero():
			return "never expires"
		case !p.Kind().Charges():
			return period(secs)
		case !secs.IsZero():
			return p.Credits.Amount.String() + " for " + period(secs)
		}
		return p.Credits.Amount.String()
	},
	"registry.credits.maxAmount": func(p *toll.Plan) string {
		switch least, most := p.Credits.MinAmount, p.Credits.MaxAmount; {
		case !p.Kind().Charges():
			return ""
		case least != most:
			return least.String() + " to " + most.String()
		default:
			return most.String()
		}
	},
	"priceConfig.receivers": func(p *toll.Plan) string {
		var all []string
		for _, to := range p.Price.Receivers {
			all = append(all, to.String())
		}
		return strings.Join(all, ", ")
	},
}

// period returns a duration in the largest unit that divides it.
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

func plansCommand(a *app) *cobra.Command {
	register := func(use, kind string, trial bool) *cobra.Command {
		return hidden(use, plansCreate(a, kind, trial))
	}
	c := group("plans", "Manage plans", "",
		a.resource(call{
			use: "list", short: "List your plans", aliases: []string{"get-plans"},
			list: list.Plans,
		}),
		a.resource(call{use: "get PLAN", short: "Show a plan", path: "/protocol/plans/PLAN", aliases: []string{"get-plan"}, record: list.OnePlan}),
		a.resource(call{
			use: "balance PLAN", short: "Show your balance for a plan, or the balance of another address", aliases: []string{"get-plan-balance"},
			path:  "/protocol/plans/PLAN/balance",
			flags: []flag{{"account-address", "holder", address, "address of the subscriber; default your own"}},
			change: func(_ *cobra.Command, r *request) error {
				if holder, ok := r.in["holder"].(string); ok {
					r.path += segments(holder)
				}
				r.in = nil
				return nil
			},
		}),
		a.resource(call{
			use: "agents PLAN", short: "List the agents of a plan", aliases: []string{"get-agents-associated-to-a-plan"},
			list: list.AgentsOfPlan,
		}),
		plansCreate(a, "", false), plansUpdate(a),
		a.act("publish PLAN", "Allow new orders for a plan", http.MethodPut, "/protocol/plans/PLAN/list/true"),
		a.act("unpublish PLAN", "Stop new orders for a plan; existing credits keep working",
			http.MethodPut, "/protocol/plans/PLAN/list/false"),
		plansOrder(a), plansCheckout(a), plansMint(a), plansTakeBack(a),
		register("register-plan", "", false),
		register("register-credits-plan", "credits", false),
		register("register-time-plan", "time", false),
		register("register-credits-trial-plan", "credits", true),
		register("register-time-trial-plan", "time", true),
	)
	c.AddCommand(deployedBuilders(a)...)
	return c
}

// plansCreate creates a plan. Deployed names set kind and trial.
func plansCreate(a *app, kind string, trial bool) *cobra.Command {
	c := a.resource(call{
		use: "create", short: "Create a plan",
		long: `Create a plan. On a terminal, the command prompts for missing values.

To set more than the flags can describe, use JSON: --plan-metadata, --price-config (see toll price), and --credits-config (see toll credits).
You cannot change the price and the credits later, so the command rejects JSON with unknown members unless you set --yes.`,
		example: `toll plans create --name Pro --price 20 --currency usd --credits 500
toll plans create --name Month --price 4.99 --currency usdc --expires-after 30d
toll plans create --plan-metadata '{"name":"Basic","tags":["text"]}' --price-config '{"priceType":"FREE"}' --credits-config '{"amount":100}'`,
		method: http.MethodPost, path: "/protocol/plans", made: "planId", fixed: true,
		flags: slices.Concat(planWordFlags, planJSONFlags, []flag{
			{"nonce", "nonce", digits, "number that makes the command idempotent: a repetition returns the same plan"},
			{"access-limit", "accessLimit", word.offering(toll.AccessLimits()...), accessLimits},
			{"max-orders", "maxOrders", digits, "maximum number of orders"},
		}),
		change: func(cmd *cobra.Command, r *request) error {
			limit, _ := r.in["accessLimit"].(string)
			switch kind = strings.ToLower(kind); {
			case kind != "" && !slices.Contains(toll.AccessLimits(), kind):
				return usagef("--type must be %s", strings.Join(toll.AccessLimits(), " or "))
			case isDigits(limit) && r.in["maxOrders"] != nil:
				return usagef("a number in --access-limit is the maximum number of orders: set it or --max-orders, not both")
			case isDigits(limit): // a number is the maximum number of orders; --type then sets the access limit
				r.in["maxOrders"] = limit
				delete(r.in, "accessLimit")
				r.in.text("accessLimit", kind)
			default:
				r.in.text("accessLimit", cmp.Or(limit, kind))
			}
			if trial {
				r.in["isTrialPlan"] = true
			}
			return describePlan(cmd, a, r.in, value[string](r.in, "accessLimit"))
		},
	})
	c.Flags().StringVar(&kind, "type", kind, strings.Join(toll.AccessLimits(), " or "))
	c.Flags().BoolVar(&trial, "trial", trial, "trial plan: each address can order it only once")
	a.completeFlag(c, flag{name: "type", kind: word.offering(toll.AccessLimits()...)})
	return c
}

func plansUpdate(a *app) *cobra.Command {
	var version int64
	orNone := cleared(digits)
	orNone.read = func(a *app, flag string, given []string) (any, error) {
		if given[len(given)-1] == "null" {
			return nil, nil
		}
		return digits.read(a, flag, given)
	}
	c := a.resource(call{
		use: "update PLAN", short: "Change the metadata of a plan",
		long:    "Change the metadata of a plan. Each JSON member that you set replaces the stored value, and null clears it. Price and credits never change.",
		example: `toll plans update 4474 --plan-metadata '{"description":"now with pictures"}'`,
		method:  http.MethodPut, path: "/protocol/plans/PLAN", oneOf: true,
		flags: []flag{
			{"plan-metadata", "metadataAttributes", object, "metadata to change, as JSON"},
			{"max-orders", "maxOrders", orNone, "maximum number of orders; null removes the limit"},
		},
		change: func(cmd *cobra.Command, _ *request) error {
			cmd.SetContext(client.WithIfMatch(cmd.Context(), version))
			return checkIfVersion(cmd, version)
		},
	})
	ifVersion(c, &version)
	return c
}

func plansCheckout(a *app) *cobra.Command {
	var open bool
	c := a.resource(call{
		use: "checkout PLAN", short: "Get the card payment page of a plan", aliases: []string{"order-fiat-plan"},
		long:   "Get the card payment page of a plan. It opens in any browser. The credits arrive when the card processor has confirmed the payment.",
		method: http.MethodPost, path: "/protocol/plans/PLAN/checkout",
		flags: []flag{
			{"success-url", "successUrl", word, "address to open after the payment"},
			{"cancel-url", "cancelUrl", word, "address to open if the payment is canceled"},
		},
		change: func(_ *cobra.Command, r *request) error {
			r.in["sessionType"] = "hosted"
			return nil
		},
		show: func(cmd *cobra.Command, got json.RawMessage) error {
			shown := got
			if a.set.output == formatTable || a.set.output == formatCSV {
				// The relevant members are in the result; the page comes first.
				shown = objectOf([]jsonMember{
					{"checkoutUrl", rawOf(got, "result.checkoutUrl")}, {"orderId", rawOf(got, "orderId")},
					{"paymentStatus", rawOf(got, "result.paymentStatus")}, {"linkExpiresAt", timeOf(rawOf(got, "result.linkExpiresAt"))},
				})
			}
			if err := a.show(shown); err != nil || !open {
				return err
			}
			return browse(cmd.Context(), &a.console, at(got, "result.checkoutUrl"))
		},
	})
	c.Flags().BoolVar(&open, "open", false, "open the page in the browser")
	return c
}

// timeOf is a Unix time as the other times of answers are written.
func timeOf(value json.RawMessage) json.RawMessage {
	secs, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return value
	}
	text, _ := json.Marshal(time.Unix(secs, 0).UTC()) // years that have no JSON are no times of pages
	return text
}

func plansMint(a *app) *cobra.Command {
	return a.resource(call{
		use: "mint PLAN", short: "Grant credits of your plan to an address",
		aliases: []string{"mint-plan-credits", "mint-plan-expirable"},
		method:  http.MethodPost, path: "/protocol/plans/mint",
		flags: []flag{
			{"credits-amount", "amount", digits, "credits to grant"},
			{"credits-receiver", "creditsReceiver", address, "address that receives the credits"},
			{"credits-duration", "creditsDuration", digits, "seconds until the credits expire; default never"},
		},
		require: []string{"credits-amount", "credits-receiver"},
		into:    "planId",
		change: func(_ *cobra.Command, r *request) error {
			if r.in["creditsDuration"] != nil {
				r.path = "/protocol/plans/mintExpirable"
				r.in["creditsAmount"] = r.in["amount"]
				delete(r.in, "amount")
			}
			return nil
		},
	})
}

func plansTakeBack(a *app) *cobra.Command {
	return a.resource(call{
		use: "take-back PLAN", short: "Remove credits of your plan that were granted without a payment",
		long: `Remove credits of your plan from an address. You can remove only credits that were granted without a payment: credits that you
minted (toll plans mint), and credits from free orders. The credits must be neither spent nor on hold. To remove credits of a paid order,
refund the order (toll orders refund).`,
		method: http.MethodPost, path: "/protocol/plans/takeBack",
		flags: []flag{
			{"credits-amount", "amount", digits, "credits to remove"},
			{"holder", "holderAddress", address, "address from which the credits are removed"},
		},
		require: []string{"credits-amount", "holder"}, into: "planId",
	})
}
