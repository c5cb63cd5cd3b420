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
		return "a period of unlimited requests"
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

// OfferOf is the price of a plan with what an order of it buys.
func OfferOf(p *toll.Plan) string {
	if !p.Kind().Prepaid() {
		return PriceOf(p)
	}
	return PriceOf(p) + " for " + BuysOf(p)
}

// BurnsOf returns the number of credits that a request of a plan burns, or "none".
func BurnsOf(p *toll.Plan) string {
	low, high := p.Credits.MinAmount.String(), p.Credits.MaxAmount.String()
	switch {
	case !p.Kind().Charges():
		return "none"
	case low == high:
		return low
	}
	return low + " to " + high
}

// OrderButton returns the label of the button that orders a plan, or the reason why the person cannot order it. A plan is free, or paid
// by card or from the wallet of the workspace if the service holds its key.
func OrderButton(who *session.Person, p *toll.Plan, cards bool) (label, why string) {
	fiat := !p.Price.IsCrypto && !p.Price.IsFree()
	switch {
	case !who.Rights.Has(toll.RightSpend):
		return "", "You need the right spend in this workspace to order plans."
	case !p.IsListed:
		return "", "This plan is no longer sold."
	case p.Price.IsFree():
		return "Order for free", ""
	case fiat && !cards:
		return "", "Card payments are not available."
	case fiat:
		return "Pay " + PriceOf(p) + " by card", ""
	case who.External():
		return "", "Only you have the private key of this workspace's wallet, so the service cannot pay from it. Pay from the wallet with an x402 client."
	}
	return "Pay " + PriceOf(p) + " from this workspace's wallet", ""
}
