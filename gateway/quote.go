package gateway

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
)

// quote is the answer of a tool that waits for a confirmation. Message contains no untrusted text.
type quote struct {
	PlanID              string `json:"planId,omitempty"`
	Name                string `json:"name,omitempty"`
	Price               string `json:"price,omitempty"` // decimal amount in Currency
	PriceUnits          string `json:"priceUnits,omitempty"`
	Currency            string `json:"currency,omitempty"`
	Credits             string `json:"credits,omitempty"`
	AccessLimit         string `json:"accessLimit,omitempty"`
	DurationSecs        string `json:"durationSecs,omitempty"` // duration of an order
	FiatPaymentProvider string `json:"fiatPaymentProvider,omitempty"`
	PaymentType         string `json:"paymentType,omitempty"`
	Environment         string `json:"environment,omitempty"`

	// For a spending limit.
	SpendingLimitCents     string `json:"spendingLimitCents,omitempty"`
	DelegationDurationSecs int64  `json:"delegationDurationSecs,omitzero"`
	OrderLimit             int64  `json:"orderLimit,omitzero"`
	PaymentMethodID        string `json:"paymentMethodId,omitempty"`
	PaymentMethod          string `json:"paymentMethod,omitempty"` // for example "visa 4242"
	AgentURL               string `json:"agentUrl,omitempty"`
	AgentID                string `json:"agentId,omitempty"`       // the only agent that accepts the token
	ExpirationSecs         int64  `json:"expirationSecs,omitzero"` // life of the token

	RequiresConfirmation bool   `json:"requiresConfirmation,omitzero"`
	PriceChanged         bool   `json:"priceChanged,omitzero"` // since the last quote
	Message              string `json:"message,omitempty"`
}

// paymentTypeOf returns the payment type of a price, as in the arguments of tools: "crypto" or "fiat".
func paymentTypeOf(p toll.Price) string {
	if p.IsCrypto {
		return "crypto"
	}
	return "fiat"
}

// planQuote returns a quote that describes a plan to a buyer. It has no message yet.
func (c *call) planQuote(p *toll.Plan) quote {
	q := quote{
		PlanID:               string(p.ID),
		Name:                 plain.Name(p.Metadata.Name),
		Price:                p.Price.Text(),
		PriceUnits:           p.Price.Total().String(),
		Currency:             p.Price.CurrencyName(),
		Credits:              p.Credits.Amount.String(),
		AccessLimit:          string(p.AccessLimit),
		PaymentType:          paymentTypeOf(p.Price),
		Environment:          string(c.account.environment),
		RequiresConfirmation: true,
	}
	if !named(p.Price) {
		q.Price = q.PriceUnits // its decimals are unknown
	}
	if !p.Credits.DurationSecs.IsZero() {
		q.DurationSecs = p.Credits.DurationSecs.String()
	}
	if p.Price.IsFree() {
		q.Currency = ""
	}
	if !p.Price.IsCrypto {
		q.FiatPaymentProvider = string(toll.ProviderCard)
	}
	return q
}

// ask sets the message of a quote and whether its terms changed, and returns q.
func (q *quote) ask(c *call, changed bool, what string) *quote {
	q.PriceChanged, q.Message = changed, c.request(changed, what)
	return q
}

// request returns the message that requests a confirmation. what, a sentence, describes the action.
func (c *call) request(changed bool, what string) string {
	begin := "Nothing has been done yet. "
	switch {
	case changed:
		begin = "The terms have changed since the last quote, so nothing was done. "
	case c.args.flag("confirm"):
		begin = "Nothing was done: a confirmation requires a quote from the last ten minutes, and each quote can be confirmed only once. "
	}
	return begin + what +
		" Show this to the user. After the user agrees, repeat the call with confirm true."
}

// capped returns [OverCap] if a price exceeds the configured maximum or, with a maximum set, if the price has no cents.
func (c *call) capped(p toll.Price) error {
	most := c.account.maxOrder
	if most == 0 {
		return nil
	}
	switch cents, ok := centsOf(p); {
	case !ok:
		return errorf(OverCap,
			"The price is %s, which cannot be compared with the cap of %s cents.", readable(p), most,
		).withHint("Only the operator can change maxOrderCents.")
	case cents > most:
		return errorf(OverCap, "The price is %s, which is above the cap of %s cents.", readable(p), most).
			withHint("Only the operator can change maxOrderCents.")
	}
	return nil
}

// plan reads the plan that planID selects.
func (c *call) plan(ctx context.Context) (*toll.Plan, error) {
	id, err := c.planID()
	if err != nil {
		return nil, err
	}
	return c.account.service.Plan(ctx, id)
}

// planID returns the argument planId, else the configured plan, else the plan that this conversation registered last. Otherwise
// the error is [PlanRequired].
func (c *call) planID() (toll.PlanID, error) {
	if id := c.args.text("planId", string(c.account.PlanID)); id != "" {
		return toll.PlanID(id), nil
	}
	if id := c.registered().plan; id != "" {
		return id, nil
	}
	return "", errorf(PlanRequired,
		"planId is required: pass planId or set it in the plugin configuration.")
}

// agentID returns the argument agentId, else the configured agent, unless a different plan is configured. Without a configured
// agent, it returns the agent that this conversation registered last, if it belongs to plan. Otherwise it returns "".
func (c *call) agentID(plan toll.PlanID) toll.AgentID {
	if id := c.args.text("agentId", ""); id != "" {
		return toll.AgentID(id)
	}
	if c.account.AgentID != "" && (c.account.PlanID == "" || c.account.PlanID == plan) {
		return c.account.AgentID
	}
	if r := c.registered(); c.account.AgentID == "" && r.plan == plan {
		return r.agent
	}
	return ""
}

// pair is an agent and its plan.
type pair struct {
	agent toll.AgentID
	plan  toll.PlanID
}

// conversation identifies the conversation and the API key of a call, without a request for the workspace of the key.
func conversation(c *call) string { return digest(c.account.keyID.String(), c.caller.SessionKey) }

// registered returns the last registration of this conversation, or a zero pair.
func (c *call) registered() pair {
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	return c.core.registered[conversation(c)]
}

// maxRegistered is the maximum number of conversations whose last registration is kept.
const maxRegistered = 1024

// setRegistered stores a new agent and its plan as the defaults of this conversation. The configuration takes precedence over
// them. If maxRegistered conversations are stored, it first drops them all.
func (c *call) setRegistered(p pair) {
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	if c.core.registered == nil || len(c.core.registered) >= maxRegistered {
		c.core.registered = map[string]pair{}
	}
	c.core.registered[conversation(c)] = p
}
