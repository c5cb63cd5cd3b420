package checkout

import (
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// railOf returns the name of the rail that pays a plan unless the order names another one.
func railOf(plan *toll.Plan) string {
	if plan.Price.IsCrypto {
		return rail.Crypto
	}
	return rail.Card
}

// railMissing is the error of an order whose rail the service does not have.
func railMissing(name string) *toll.Error {
	switch name {
	case rail.Card:
		return toll.NewError(toll.CodeCardOff)
	case rail.Crypto:
		return toll.NewError(toll.CodeChainUnreachable)
	}
	return toll.NewError(toll.CodeUnavailable).WithDetails("rail %s", name)
}

// TakesCards reports whether fiat plans can be bought.
func (c *Checkout) TakesCards() bool { return c.rails[rail.Card] != nil }

// pays reports whether a delegation is of the provider and in the currency of a plan, neither of which ever changes.
func (c *Delegations) pays(d *store.Delegation, plan *toll.Plan) error {
	provider := toll.ProviderCard
	if plan.Price.IsCrypto {
		provider = toll.ProviderCrypto
	}
	switch {
	case d.Provider != provider:
		return toll.Errorf(toll.CodeUnsupportedScheme, "The provider of the delegation is %s, but the plan needs %s.", d.Provider, provider)
	case d.Currency != currencyOf(plan, c.env):
		return toll.Errorf(toll.CodeUnsupportedScheme, "The delegation is in %s, but the plan is priced in another currency.", d.Currency)
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
