package page

import "github.com/tollhq/toll"

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
