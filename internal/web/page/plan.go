package page

import (
	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/web/session"
)

// BuysOf is what one order of a plan buys.
func BuysOf(p *toll.Plan) string {
	life := Span(p.Credits.DurationSecs)
	switch {
	case !p.Kind().Charges() && life == "":
		return "unlimited time"
	case !p.Kind().Charges():
		return life
	case life == "":
		return Count(int64(p.Credits.Amount), "credit")
	}
	return Count(int64(p.Credits.Amount), "credit") + " for " + life
}

// GrantsOf describes what an order of this many credits brings.
func GrantsOf(p *toll.Plan, credits toll.Credits) string {
	if !p.Kind().Charges() {
		return "a time in which requests burn nothing"
	}
	return credits.Text()
}

// PriceOf is the price of one order of a plan.
func PriceOf(p *toll.Plan) string {
	switch {
	case !p.Kind().Prepaid():
		return "pay as you go"
	case p.Price.IsFree():
		return "free"
	}
	return p.Price.Text() + " " + p.Price.CurrencyName()
}

// BurnsOf is how many credits a request of a plan burns.
func BurnsOf(p *toll.Plan) string {
	low, high := p.Credits.MinAmount.String(), p.Credits.MaxAmount.String()
	switch {
	case !p.Kind().Charges():
		return "nothing"
	case low == high:
		return low
	}
	return low + " to " + high
}

// OrderButton returns the label of the button with which the person orders a plan, or why there is none: free, by card, or
// from the wallet of the workspace, where the service holds the key of that.
func OrderButton(who *session.Person, p *toll.Plan, cards bool) (label, why string) {
	fiat := !p.Price.IsCrypto && !p.Price.IsFree()
	switch {
	case !who.Rights.Has(toll.RightSpend):
		return "", "Ordering takes the right spend, which you do not have in this workspace."
	case !p.IsListed:
		return "", "It is not sold any more."
	case p.Price.IsFree():
		return "Order it for free", ""
	case fiat && !cards:
		return "", "This service takes no cards."
	case fiat:
		return "Pay " + PriceOf(p) + " by card", ""
	case who.External():
		return "", "This workspace is a wallet of yours, which the service cannot make pay: buy the plan with the wallet, by x402."
	}
	return "Pay " + PriceOf(p) + " from the wallet of this workspace", ""
}
