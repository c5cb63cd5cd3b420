package cli

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/x402"
)

// delegationFlags describe the delegation that buys missing credits.
type delegationFlags struct {
	id, paymentType, method, limit, duration string
	resolve                                  bool
	make                                     bool // create a delegation
}

func tokensCreate(a *app, use string) *cobra.Command {
	var d delegationFlags
	makers := []string{"spending-limit-cents", "delegation-duration-secs", "payment-method-id"}
	c := a.resource(call{
		use: use + " PLAN", short: "Create an access token for a plan", into: "planId",
		long: `Create an access token for a plan. You can see the token only once. Anyone who has it can spend the credits within its limits.

The token spends existing credits, and buys credits only if a delegation allows it: --delegation-id names a delegation, and
--spending-limit-cents, --delegation-duration-secs, or --payment-method-id creates a delegation for this plan only.`,
		example: "toll tokens create 4474 --agent-id 5063 --redemption-limit 100 --expiration 3600\ntoll tokens create 4474 --spending-limit-cents 1000",
		made:    "accessToken",
		flags: []flag{
			{"agent-id", "agentId", agentID, "restrict the token to one agent"},
			{"redemption-limit", "redemptionLimit", digits, "maximum credits that the token can burn"},
			{"order-limit", "orderLimit", digits, "maximum number of orders that the token can place; 0 allows none"},
			{"expiration", "expiration", span, "lifetime in seconds, or a duration such as 12h; default one day"},
			{"token-format", "tokenFormat", oneOf(x402.RenderingJWT, x402.RenderingX402), "jwt or x402"},
			{"resource", "resource", word, "URL to add to the audience of the token"},
			{"metadata", "metadata", object, "data to store with the token, as JSON"},
		},
		change: func(cmd *cobra.Command, r *request) error {
			d.make = slices.ContainsFunc(makers, cmd.Flags().Changed)
			var err error
			if d.id, err = a.resolve(cmd.Context(), references[refDelegation], d.id); err != nil {
				return flagError("delegation-id", err)
			}
			if d.method, err = a.resolve(cmd.Context(), references[refMethod], d.method); err != nil {
				return flagError("payment-method-id", err)
			}
			return d.scheme(a.set.names, r.in)
		},
		local: func(ctx context.Context, r *request) (any, error) { return createToken(ctx, a, r.in, d) },
	})
	f := c.Flags()
	f.StringVar(&d.id, "delegation-id", "", "delegation that buys missing credits")
	f.StringVar(&d.paymentType, "payment-type", "", "crypto or fiat; default the payment type of the plan")
	f.StringVar(&d.method, "payment-method-id", "", "id of the card for a new delegation, from toll cards list; default the first card")
	f.StringVar(&d.limit, "spending-limit-cents", "1000", "create a delegation with this spending limit")
	f.StringVar(&d.duration, "delegation-duration-secs", "3600", "create a delegation with this lifetime in seconds")
	f.BoolVar(&d.resolve, "auto-resolve-scheme", true, "use the payment scheme of the plan")
	for name, k := range map[string]kind{
		"delegation-id": delegationID, "payment-method-id": methodID, "payment-type": word.offering("crypto", "fiat"),
	} {
		a.completeFlag(c, flag{name: name, kind: k})
	}
	for _, name := range makers {
		c.MarkFlagsMutuallyExclusive("delegation-id", name)
	}
	return c
}

// scheme adds the scheme where it is not left to the plan.
func (d *delegationFlags) scheme(names x402.Namespace, in body) error {
	switch d.paymentType = strings.ToLower(d.paymentType); d.paymentType {
	case "crypto":
		in["scheme"] = names.SchemeCrypto()
	case "fiat":
		in["scheme"] = names.SchemeCard()
	case "":
		if !d.resolve {
			in["scheme"] = names.SchemeCrypto()
		}
	default:
		return usagef("--payment-type must be crypto or fiat")
	}
	if !isDigits(d.limit) || !isDigits(d.duration) {
		return usagef("--spending-limit-cents and --delegation-duration-secs must be whole numbers without a sign")
	}
	return nil
}

func createToken(ctx context.Context, a *app, in body, d delegationFlags) (json.RawMessage, error) {
	made := false
	if d.make && in["orderLimit"] != "0" {
		var err error
		if d.id, err = makeDelegation(ctx, a, value[string](in, "planId"), d); err != nil {
			return nil, err
		}
		made = d.id != ""
	}
	if d.id != "" {
		in["delegationConfig"] = body{"delegationId": d.id}
	}
	got, err := a.call(ctx, http.MethodPost, "/x402/permissions", nil, in)
	if err != nil && made {
		// Without the token, the delegation has no use.
		_, undo := a.call(context.WithoutCancel(ctx), http.MethodDelete, segments("delegation", d.id), nil, nil)
		err = errors.Join(err, undo)
	}
	return got, err
}

// sale describes how a plan is bought.
type sale struct {
	provider toll.Provider
	currency string  // of delegations, in lower case
	cents    big.Int // of one order, rounded up
}

// saleOf reads how a plan is bought. It returns nil if no delegation helps: the plan is free, its currency has no cents, or it does not
// exist, which the next request to the service reports better.
func saleOf(ctx context.Context, a *app, id toll.PlanID) (*sale, error) {
	plan, err := a.client().Plan(ctx, id)
	if err != nil {
		if exit := exitCode(err); exit == exitNotFound || exit == exitFailed {
			return nil, nil
		}
		return nil, err
	}
	if plan.Price.IsFree() {
		a.say("note", "plan %s is free, so no delegation was created", id)
		return nil, nil
	}
	s := &sale{currency: strings.ToLower(plan.Price.CurrencyName())}
	if s.provider, err = providerOf(s.currency); err != nil {
		a.say("note", "a delegation cannot buy a plan that is priced in the native token or in an unknown token: order the plan yourself; the access token spends only existing credits")
		return nil, nil
	}
	cent := big.NewInt(10_000) // all currencies of delegations have 6 decimals
	s.cents.Div(s.cents.Add(plan.Price.Total().Int(), big.NewInt(9_999)), cent)
	return s, nil
}

// makeDelegation creates a delegation that can buy the plan. It returns an empty id if no delegation can.
func makeDelegation(ctx context.Context, a *app, plan string, d delegationFlags) (id string, err error) {
	s, err := saleOf(ctx, a, toll.PlanID(plan))
	if err != nil || s == nil {
		return "", err
	}
	switch d.paymentType {
	case "crypto":
		s.provider = toll.ProviderCrypto
	case "fiat":
		s.provider = toll.ProviderCard
	}
	if limit, _ := new(big.Int).SetString(d.limit, 10); limit.Cmp(&s.cents) < 0 {
		a.say("note", "an order costs %s, which --spending-limit-cents does not cover: the access token spends only existing credits", count(s.cents.String(), "cent"))
		return "", nil
	}
	if s.provider == toll.ProviderCard && d.method == "" {
		cards, err := a.client().PaymentMethods(ctx, client.Accessible(), client.OfProvider(toll.ProviderCard))
		switch {
		case err != nil:
			return "", err
		case len(cards) > 0:
			d.method = cards[0].ID
		case d.paymentType == "fiat":
			return "", errors.New("no enrolled card is available to this API key: enroll a card first")
		default:
			a.say("note", "no enrolled card is available to this API key: the access token spends only existing credits")
			return "", nil
		}
	}
	in := body{
		"provider": s.provider, "spendingLimitCents": d.limit, "durationSecs": d.duration, "currency": s.currency, "planId": plan,
	}
	in.text("providerPaymentMethodId", d.method)
	got, err := a.call(ctx, http.MethodPost, "/delegation/create", nil, in)
	if err != nil {
		return "", err
	}
	id = at(got, "delegationId")
	a.say("note", "delegation %s was created: for this plan only, at most %s of %s, until %s", id, count(d.limit, "cent"), s.currency, at(got, "expiresAt"))
	return id, nil
}
