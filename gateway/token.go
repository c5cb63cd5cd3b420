package gateway

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
)

// accessToken is the result of getAccessToken: a quote for a spending limit, or an access token.
type accessToken struct {
	quote
	AccessToken  string `json:"accessToken,omitempty"`
	Token        string `json:"token,omitempty"` // same as AccessToken
	Scheme       string `json:"scheme,omitempty"`
	Network      string `json:"network,omitempty"`
	DelegationID string `json:"delegationId,omitempty"`
	ExpiresAt    string `json:"expiresAt,omitempty"`
	Notice       string `json:"notice,omitempty"`
}

const tokenNotice = "This token is a secret: it can spend credits within its limits. Show it only to the agent that it pays."

func runGetAccessToken(ctx context.Context, c *call) (any, error) {
	plan, err := c.plan(ctx)
	if err != nil {
		return nil, err
	}
	ask := tokenAsk{
		purpose:    "getAccessToken",
		plan:       plan,
		agent:      c.agentID(plan.ID),
		redemption: toll.Credits(c.args.integer("redemptionLimit", 0)),
		orders:     c.args.integer("orderLimit", -1),
		life:       time.Duration(c.args.integer("expirationSecs", 3600)) * time.Second,
	}
	made, q, err := c.accessToken(ctx, ask)
	switch {
	case err != nil:
		return nil, err
	case q != nil:
		return accessToken{quote: *q}, nil
	}
	out := accessToken{
		quote:       quote{PlanID: string(made.PlanID)},
		AccessToken: made.AccessToken,
		Token:       made.AccessToken,
		Scheme:      made.Scheme,
		Network:     made.Network,
		ExpiresAt:   made.ExpiresAt.UTC().Format(time.RFC3339),
		Notice:      tokenNotice,
	}
	if made.DelegationID != nil {
		out.DelegationID = *made.DelegationID
	} else {
		c.warnOfNoCredits(ctx, plan)
	}
	return out, nil
}

// warnOfNoCredits warns if the account has no credits of the plan, because a token without a spending limit cannot buy any.
func (c *call) warnOfNoCredits(ctx context.Context, plan *toll.Plan) {
	b, err := c.account.service.Balance(ctx, plan.ID)
	if err != nil || b.Available > 0 || plan.Kind().Covers(b.Available, b.IsSubscriber, 1) {
		return
	}
	c.warn("This workspace has no credits of this plan, and this token cannot buy any. Order the plan, " +
		"or ask the user for spendingLimitCents, for example " + c.account.proposedLimit.String() + ".")
}

// tokenAsk describes the access token that a tool needs.
type tokenAsk struct {
	// purpose separates confirmations: confirming getAccessToken does not confirm a query.
	purpose    string
	plan       *toll.Plan
	agent      toll.AgentID  // "" means every agent of the plan
	agentURL   string        // recipient of the token, or "" if unknown
	redemption toll.Credits  // maximum credits; 0 means no limit
	orders     int64         // maximum orders under a spending limit, never 0; negative means as many as the limit pays
	life       time.Duration // 60 s to 365 days
}

// accessToken creates an access token from the arguments paymentType, paymentMethodId, spendingLimitCents, and delegationDurationSecs.
// Without a spending limit, the token spends existing credits and places no orders. With a spending limit, accessToken returns a quote and
// creates nothing until the user has confirmed. Errors are [InvalidParams], [OverCap], [NoPaymentMethod], or errors of the service.
func (c *call) accessToken(ctx context.Context, ask tokenAsk) (*toll.AccessToken, *quote, error) {
	opts := []client.TokenOption{client.WithExpiry(ask.life)}
	if ask.agent != "" {
		opts = append(opts, client.WithAgent(ask.agent))
	}
	if ask.redemption > 0 {
		opts = append(opts, client.WithRedemptionLimit(ask.redemption))
	}
	if err := c.checkPaymentType(ask.plan.Price); err != nil {
		return nil, nil, err
	}
	limit := toll.Cents(c.args.integer("spendingLimitCents", 0))
	if limit == 0 || ask.plan.Price.IsFree() {
		if limit != 0 {
			c.warn("The plan is free, so no spending limit was created.")
		}
		if ask.orders > 0 {
			c.warn("orderLimit applies only with spendingLimitCents: this token places no orders.")
		}
		if err := c.checkCard(ctx, ask.plan); err != nil {
			return nil, nil, err
		}
		opts = append(opts, client.WithOrderLimit(0))
		made, err := c.account.service.AccessToken(ctx, ask.plan.ID, opts...)
		return made, nil, err
	}
	return c.limitedToken(ctx, ask, limit, opts)
}

// checkPaymentType returns [InvalidParams] if the argument paymentType differs from the plan's. It ignores the configured type.
func (c *call) checkPaymentType(p toll.Price) error {
	if kind := c.args.text("paymentType", ""); kind != "" && kind != paymentTypeOf(p) {
		return invalid("paymentType", "must be %s, the payment type of the plan; got %q", paymentTypeOf(p), kind)
	}
	return nil
}

// checkCard returns [NoPaymentMethod] for a card plan if the account has neither a card nor credits.
func (c *call) checkCard(ctx context.Context, plan *toll.Plan) error {
	if plan.Price.IsCrypto {
		return nil
	}
	_, err := c.card(ctx)
	if e, ok := err.(*Error); !ok || e.Code != NoPaymentMethod {
		return err
	}
	b, failure := c.account.service.Balance(ctx, plan.ID)
	if failure != nil || b.Available > 0 || plan.Kind().Covers(b.Available, b.IsSubscriber, 1) {
		return failure
	}
	return err
}

// limitedToken creates an access token with a spending limit or, until the user has confirmed it, returns a quote.
func (c *call) limitedToken(
	ctx context.Context, ask tokenAsk, limit toll.Cents, opts []client.TokenOption,
) (*toll.AccessToken, *quote, error) {
	d, err := c.newBudget(ctx, ask, limit)
	if err != nil {
		return nil, nil, err
	}
	p, changed := c.agree("token "+ask.purpose+" "+string(ask.plan.ID), d.terms(ask))
	if p == nil {
		return nil, d.quote(c, ask, changed), nil
	}
	made, err := c.spendBudget(ctx, ask, d, p, opts)
	p.end(undecided(err))
	return made, nil, err
}

func (c *call) spendBudget(
	ctx context.Context, ask tokenAsk, d *budget, p *permit, opts []client.TokenOption,
) (*toll.AccessToken, error) {
	key := digest(p.key, p.agreed) // p.key can belong to an act on other terms, see agree
	if d.orders > 0 {
		opts = append(opts, client.WithOrderLimit(d.orders))
	}
	for {
		known := false
		if p.made == "" {
			var err error
			if p.made, known, err = c.delegation(ctx, d, key); err != nil {
				return nil, err
			}
		}
		opts := append(slices.Clip(opts), client.WithDelegation(p.made))
		made, err := c.account.service.AccessToken(client.WithIdempotencyKey(ctx, digest("token", key)), ask.plan.ID, opts...)
		// A member who logged in here earlier created this delegation. A member with a spending limit can use only their own.
		if known && errors.Is(err, toll.NewError(toll.CodeSpendLimitDelegation)) && c.forget(ctx, p.made) {
			p.made = ""
			continue
		}
		return made, err
	}
}

// budget is a spending limit for a user to confirm.
type budget struct {
	plan     *toll.Plan
	limit    toll.Cents
	provider toll.Provider
	currency string         // usdc, eurc, usd or eur
	card     *paymentMethod // nil for crypto
	lasts    time.Duration
	needed   time.Duration // minimum remaining time of an existing delegation: half of the lifetime of the token, or of lasts if shorter
	orders   int64         // maximum orders of the access token; 0 means that only the money limits them
}

// newBudget returns the budget for a limit, or an error if the plan or the configuration does not allow it.
func (c *call) newBudget(ctx context.Context, ask tokenAsk, limit toll.Cents) (*budget, error) {
	price := ask.plan.Price
	cents, ok := centsOf(price)
	switch {
	case !ok:
		return nil, invalid("spendingLimitCents",
			"cannot be used: the plan costs %s, which cannot be converted to cents", readable(price),
		).withHint("Order the plan instead; a token without spendingLimitCents then spends its credits.")
	case ask.orders == 0:
		return nil, invalid("orderLimit", "must be at least 1 with spendingLimitCents; got 0").
			withHint("Omit spendingLimitCents for an access token that places no orders.")
	case limit > c.account.maxLimit:
		return nil, errorf(OverCap,
			"spendingLimitCents may be at most %s; got %s.", c.account.maxLimit, limit,
		).withHint("Only the operator can change maxSpendingLimitCents.")
	case !ask.plan.Kind().Prepaid() && c.account.maxOrder > 0 && limit > c.account.maxOrder:
		// An order is as large as its request, so only the limit bounds it.
		return nil, errorf(OverCap,
			"spendingLimitCents may be at most %s for this plan; got %s.", c.account.maxOrder, limit,
		).withHint("Only the operator can change maxOrderCents.")
	case cents > limit && ask.plan.Kind().Prepaid():
		return nil, invalid("spendingLimitCents",
			"must cover one order, which costs %s cents; got %s", cents, limit)
	}
	if err := c.capped(price); err != nil {
		return nil, err
	}
	d := &budget{
		plan:     ask.plan,
		limit:    limit,
		provider: toll.ProviderCrypto,
		currency: strings.ToLower(price.CurrencyName()),
		lasts:    time.Duration(c.args.integer("delegationDurationSecs", c.account.delegationSecs)) * time.Second,
	}
	d.needed = min(d.lasts, ask.life) / 2
	d.orders = max(ask.orders, 0)
	if ask.plan.Kind().Prepaid() {
		// An existing delegation may have more money left than this limit, so limit the number of orders.
		most := int64(limit / cents)
		d.orders = min(cmp.Or(d.orders, most), most)
	}
	if price.IsCrypto {
		return d, nil
	}
	d.provider = toll.ProviderCard
	var err error
	d.card, err = c.card(ctx)
	return d, err
}

// terms returns a digest of the terms that the user agrees to.
func (d *budget) terms(ask tokenAsk) string {
	card := ""
	if d.card != nil {
		card = d.card.ID
	}
	return termsOf(
		d.plan, d.limit.String(), d.currency, d.lasts.String(), card, ask.redemption.String(),
		ask.life.String(), string(ask.agent), ask.agentURL, strconv.FormatInt(d.orders, 10),
	)
}

func (d *budget) quote(c *call, ask tokenAsk, changed bool) *quote {
	q := c.planQuote(d.plan)
	q.SpendingLimitCents = d.limit.String()
	q.DelegationDurationSecs = int64(d.lasts / time.Second)
	q.OrderLimit = d.orders
	q.AgentURL = ask.agentURL
	q.AgentID = string(ask.agent)
	q.ExpirationSecs = int64(ask.life / time.Second)
	if d.card != nil {
		q.PaymentMethodID = d.card.ID
		q.PaymentMethod = d.card.Brand + " " + d.card.Last4
	}
	return q.ask(c, changed, "The access token may buy credits of this plan. Price of the plan: "+
		readable(d.plan.Price)+". Spending limit: "+d.limit.String()+" cents ("+strings.ToUpper(d.currency)+
		") in total, for "+strconv.FormatInt(q.DelegationDurationSecs, 10)+" s.")
}

// card returns the card in the argument or configuration, else the first active card. Errors: [InvalidParams], [NoPaymentMethod].
func (c *call) card(ctx context.Context) (*paymentMethod, error) {
	all, err := c.account.service.PaymentMethods(ctx, client.Accessible())
	if err != nil {
		return nil, err
	}
	wanted := c.args.text("paymentMethodId", c.account.PaymentMethodID)
	for _, m := range all {
		if m.Type == toll.PaymentWallet || m.Status != toll.StatusActive || wanted != "" && m.ID != wanted {
			continue
		}
		found := paymentMethodOf(m)
		return &found, nil
	}
	if wanted != "" {
		return nil, invalid("paymentMethodId", "must be an active card of this workspace; got %q", wanted)
	}
	return nil, errorf(NoPaymentMethod, "No enrolled payment method found.").
		withHint("The user can enroll a card at " + c.account.service.URL() + "/cards/enroll")
}
