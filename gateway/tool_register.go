package gateway

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
)

// registeredAgent is the result of registerAgent and createPlan: the created agent and plan, or a quote if another account
// would receive the money.
type registeredAgent struct {
	AgentID string   `json:"agentId,omitempty"`
	PlanID  string   `json:"planId,omitempty"`
	TxHash  string   `json:"txHash,omitempty"`
	Price   pricedAs `json:"price"`

	RequiresConfirmation bool   `json:"requiresConfirmation,omitzero"`
	Message              string `json:"message,omitempty"`
}

func runRegisterAgent(ctx context.Context, c *call) (any, error) {
	agent, err := c.agentURL("agentUrl")
	if err != nil {
		return nil, err
	}
	w, err := c.newPlan("planName", "priceAmounts", "priceReceivers", toll.LimitCredits)
	if err != nil {
		return nil, err
	}
	name := c.args.text("name", "")
	key, done, q := c.mayCreate("registerAgent", w, name, agent.String())
	if q != nil {
		return q, nil
	}
	c.compareCard(ctx, agent, name)
	ctx = client.WithIdempotencyKey(ctx, key)
	made, err := c.account.service.RegisterAgentWithPlan(ctx, client.AgentParams{
		Metadata: toll.Metadata{Name: name, Description: c.args.text("description", "")},
		API:      toll.AgentAPI{Endpoints: toll.EndpointList{{Verb: "POST", URL: agent.String()}}},
	}, w)
	done(err)
	if err != nil {
		return nil, err
	}
	c.setRegistered(pair{made.AgentID, made.PlanID})
	return c.created(made, w), nil
}

// compareCard warns if the card of an agent has a different name or address than the registration. The warning repeats no text
// of the untrusted card.
func (c *call) compareCard(ctx context.Context, agent *url.URL, name string) {
	card := c.core.agentCard(ctx, c.account, agent)
	if card == nil {
		return
	}
	if card.Name != "" && !strings.EqualFold(card.Name, name) {
		c.warn("The name in the agent card (agent.json) differs from the registered name.")
	}
	if card.URL != "" && strings.TrimSuffix(card.URL, "/") != strings.TrimSuffix(agent.String(), "/") {
		c.warn("The URL in the agent card (agent.json) differs from the registered URL.")
	}
}

func runCreatePlan(ctx context.Context, c *call) (any, error) {
	limit := toll.AccessLimit(c.args.text("accessLimit", "credits"))
	w, err := c.newPlan("name", "priceAmount", "receiver", limit)
	if err != nil {
		return nil, err
	}
	key, done, q := c.mayCreate("createPlan", w)
	if q != nil {
		return q, nil
	}
	made, err := c.account.service.RegisterPlan(client.WithIdempotencyKey(ctx, key), w)
	done(err)
	if err != nil {
		return nil, err
	}
	return c.created(made, w), nil
}

// newPlan returns a plan to register. name, amount, and receiver are the names of its arguments.
func (c *call) newPlan(name, amount, receiver string, limit toll.AccessLimit) (client.PlanParams, error) {
	var none client.PlanParams
	how, err := newPricing(
		c.args.text("pricingType", ""), c.args.text("tokenAddress", ""), c.account.environment,
	)
	if err != nil {
		return none, err
	}
	names := [2]string{amount, receiver}
	price, err := how.price(c.texts(amount), c.texts(receiver), c.address, names)
	if err != nil {
		return none, err
	}
	c.warnOfDust(price)
	granted := toll.Credits(c.args.integer("creditsAmount", 0))
	made := client.PlanParams{
		Metadata: toll.Metadata{
			Name:        c.args.text(name, ""),
			Description: c.args.text("description", ""),
		},
		Price:       price,
		Credits:     toll.CreditsDynamic(granted, 1, granted),
		AccessLimit: limit,
	}
	duration := c.args.integer("durationSecs", 0)
	switch {
	case limit.Kind().NeedsPeriod() && duration == 0:
		return none, invalid("durationSecs", "is required with accessLimit time")
	case !limit.Kind().NeedsPeriod() && duration != 0:
		return none, invalid("durationSecs", "requires accessLimit time")
	}
	made.Credits.DurationSecs = toll.UnitsOf(duration)
	return made, nil
}

// texts returns a string or list argument as a list, or nil if it is absent.
func (c *call) texts(name string) []string {
	if s := c.args.text(name, ""); s != "" {
		return []string{s}
	}
	return c.args.list(name)
}

// mayCreate returns the Idempotency-Key for a registration and a function to call with its outcome. If another account would
// receive money and the user has not confirmed that, it returns a quote, and the caller must not create anything.
func (c *call) mayCreate(
	tool string, w client.PlanParams, more ...string,
) (key string, done func(error), q *registeredAgent) {
	terms := termsOf(&toll.Plan{Price: w.Price, Credits: w.Credits, AccessLimit: w.AccessLimit},
		append(more, w.Metadata.Name, w.Metadata.Description)...)
	subject := tool + " " + terms
	other := func(to toll.Address) bool { return to != c.address }
	if !slices.ContainsFunc(w.Price.Receivers, other) {
		return c.once(subject), func(error) {}, nil
	}
	p, _ := c.agree(subject, terms)
	if p != nil {
		return p.key, func(err error) { p.end(undecided(err)) }, nil
	}
	return "", nil, &registeredAgent{
		Price:                echo(w.Price),
		RequiresConfirmation: true,
		Message: c.request(false,
			"The price of the new plan is "+readable(w.Price)+", and other addresses would receive all or part of this amount."),
	}
}

func (c *call) created(made *client.Registered, w client.PlanParams) registeredAgent {
	return registeredAgent{
		AgentID: string(made.AgentID),
		PlanID:  string(made.PlanID),
		TxHash:  made.TxHash.String(),
		Price:   echo(w.Price),
	}
}
