package checkout

import (
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// Rails are the ways that are there; nil for one that is not.
type Rails struct {
	Crypto rail.Rail // plans priced in tokens
	Card   rail.Rail // fiat plans
}

// Words of the rails in the records of orders.
const (
	railCrypto = "crypto"
	railCard   = "card"
)

func (r Rails) of(plan *toll.Plan) (string, rail.Rail) {
	if plan.Price.IsCrypto {
		return railCrypto, r.Crypto
	}
	return railCard, r.Card
}

func (r Rails) byName(name string) rail.Rail {
	switch name {
	case railCrypto:
		return r.Crypto
	case railCard:
		return r.Card
	}
	return nil
}

// TakesCards reports whether fiat plans can be bought.
func (c *Checkout) TakesCards() bool { return c.rails.Card != nil }

// pays reports whether a delegation is of the provider and in the currency of a plan, neither of which ever changes.
func (c *Delegations) pays(d *store.Delegation, plan *toll.Plan) error {
	provider := toll.ProviderCard
	if plan.Price.IsCrypto {
		provider = toll.ProviderCrypto
	}
	switch {
	case d.Provider != provider:
		return toll.Errorf(toll.CodeUnsupportedScheme, "The delegation is of the provider %s, the plan needs %s.", d.Provider, provider)
	case d.Currency != currencyOf(plan, c.env):
		return toll.Errorf(toll.CodeUnsupportedScheme, "The delegation is in %s, the plan is not.", d.Currency)
	}
	return nil
}

// currencyOf returns the currency of delegations that pay for a plan, "" when none does.
func currencyOf(plan *toll.Plan, env toll.Environment) string {
	if !plan.Price.IsCrypto {
		return strings.ToLower(plan.Price.CurrencyName())
	}
	switch plan.Price.PayToken(env) {
	case env.USDC():
		return "usdc"
	case env.EURC():
		return "eurc"
	}
	return ""
}
