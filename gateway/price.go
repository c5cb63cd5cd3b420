package gateway

import (
	"math/big"
	"strings"

	"github.com/tollhq/toll"
)

// pricing is the currency of a price. Amounts are exact big integers: an amount that does not fit is rejected, never rounded.
type pricing struct {
	card     bool
	token    toll.Address // zero for the native token and for cards
	currency string       // ETH, USDC, EURC, USD; the address of any other token
	decimals int          // 18 for ETH, 6 for USDC, EURC and USD; unknown for any other token
}

// newPricing parses the arguments pricingType and tokenAddress, each "" if absent. Errors are [InvalidParams].
func newPricing(kind, token string, env toll.Environment) (pricing, error) {
	var address toll.Address
	if token != "" {
		var err error
		if address, err = toll.ParseAddress(token); err != nil {
			return pricing{}, invalid("tokenAddress", "must be 0x followed by 40 hexadecimal digits; got %q", token)
		}
	}
	if kind == "" {
		kind = "crypto"
		if !address.IsZero() {
			kind = "erc20"
		}
	}
	switch {
	case kind == "erc20" && token == "":
		address = env.USDC()
	case kind == "erc20" && address.IsZero():
		return pricing{}, invalid("tokenAddress",
			"must not be the zero address with pricingType erc20; omit tokenAddress for a price in USDC")
	case kind != "erc20" && !address.IsZero():
		return pricing{}, invalid("tokenAddress", "requires pricingType erc20; got pricingType %q", kind)
	}
	p := toll.Price{TokenAddress: address, IsCrypto: kind != "fiat"}
	return pricing{
		card:     kind == "fiat",
		token:    address,
		currency: p.CurrencyName(),
		decimals: p.Decimals(),
	}, nil
}

// dollars reports whether amounts can be written as "$1.50" or "1.50".
func (p pricing) dollars() bool {
	switch p.currency {
	case toll.CurrencyUSDC, toll.CurrencyEURC, toll.CurrencyUSD:
		return true
	}
	return false
}

// read parses an amount into base units. name is the argument's name, for errors.
func (p pricing) read(name, text string) (toll.Units, error) {
	if units, err := toll.ParseUnits(text); err == nil {
		return units, nil
	}
	if sum, signed := strings.CutPrefix(text, "$"); (signed || strings.Contains(text, ".")) && p.dollars() {
		if units, err := toll.ParseAmount(sum, p.decimals); err == nil {
			return units, nil
		}
	}
	if sum, ok := strings.CutSuffix(text, " "+toll.CurrencyETH); ok && p.currency == toll.CurrencyETH {
		if units, err := toll.ParseAmount(sum, p.decimals); err == nil {
			return units, nil
		}
	}
	return toll.Units{}, invalid(name, "must be %s; got %q", p.forms(), text).withHint(p.hint())
}

// forms describes the accepted notations of an amount.
func (p pricing) forms() string {
	switch {
	case p.dollars():
		return `an amount like "$1.50" or "1.50" with at most 6 decimals, or a whole number of base units (1500000 is $1.50)`
	case p.currency == toll.CurrencyETH:
		return `an amount like "0.001 ETH" with at most 18 decimals, or a whole number of base units`
	}
	return "a whole number of base units of the token"
}

func (p pricing) hint() string {
	if p.currency == toll.CurrencyETH {
		return "For a price in dollars, set pricingType to erc20 (USDC) or fiat (card)."
	}
	return "Write amounts without a sign, exponent, or thousands separator. Amounts are never rounded."
}

// price returns the price with these amounts and receivers. Without receivers, the single amount goes to own. Errors use names,
// the argument names of amounts and receivers.
func (p pricing) price(
	amounts, receivers []string, own toll.Address, names [2]string,
) (toll.Price, error) {
	out := toll.PriceInput{IsCrypto: new(toll.Bool), TokenAddress: &p.token}
	*out.IsCrypto = toll.Bool(!p.card)
	wanted := len(receivers)
	if wanted == 0 {
		wanted = 1 // own
	}
	if len(amounts) != wanted {
		return toll.Price{}, invalid(names[1],
			"must have as many entries as %s (%d); got %d", names[0], len(amounts), len(receivers))
	}
	for i, text := range amounts {
		// A list splits "$1,500" at the comma into two amounts, so all amounts must have the same notation.
		if signed(text) != signed(amounts[0]) {
			return toll.Price{}, invalid(names[0], "must all use the same notation; got %q and %q", amounts[0], text)
		}
		units, err := p.read(names[0], text)
		if err != nil {
			return toll.Price{}, err
		}
		if len(amounts) > 1 && units.IsZero() {
			return toll.Price{}, invalid(names[0], "must be above 0; amount %d is 0", i+1)
		}
		out.Amounts = append(out.Amounts, units)
	}
	for _, text := range receivers {
		to, err := toll.ParseAddress(text)
		if err != nil || to.IsZero() {
			return toll.Price{}, invalid(names[1],
				"must be 0x followed by 40 hexadecimal digits, and not the zero address; got %q", text)
		}
		out.Receivers = append(out.Receivers, to)
	}
	made, _, err := toll.NormalizePrice(out, own)
	return made, err
}

// signed reports whether an amount is written as a sum rather than in base units.
func signed(amount string) bool { return strings.ContainsAny(amount, "$ .") }

// pricedAs repeats a price in both notations, so that a wrong unit is visible.
type pricedAs struct {
	Units     string   `json:"units"`    // total in base units
	Readable  string   `json:"readable"` // for example "1.50 USDC"
	Amounts   []string `json:"amounts"`  // in base units, one per receiver
	Receivers []string `json:"receivers"`
}

func echo(p toll.Price) pricedAs {
	out := pricedAs{
		Units:     p.Total().String(),
		Readable:  readable(p),
		Amounts:   []string{},
		Receivers: []string{},
	}
	for i, amount := range p.Amounts {
		out.Amounts = append(out.Amounts, amount.String())
		out.Receivers = append(out.Receivers, p.Receivers[i].String())
	}
	return out
}

// readable formats a price: "1.50 USDC", "0.001 ETH", "free". The price of a token without a name stays in base units, because
// its decimals are unknown.
func readable(p toll.Price) string {
	switch {
	case p.IsFree():
		return "free"
	case !named(p):
		return p.Total().String() + " base units of " + p.TokenAddress.String()
	}
	return p.Text() + " " + p.CurrencyName()
}

// named reports whether the currency of a price has a name and therefore known decimals.
func named(p toll.Price) bool { return !p.IsCrypto || p.CurrencyName() != p.TokenAddress.String() }

// centsOf returns a price in cents of its currency, rounded up, at most [toll.MaxCents] + 1. It returns false for a currency without cents.
func centsOf(p toll.Price) (toll.Cents, bool) {
	if p.IsFree() {
		return 0, true
	}
	if !named(p) || p.CurrencyName() == toll.CurrencyETH {
		return 0, false
	}
	cent := toll.UnitsOfCents(1).Int()
	n := p.Total().Int()
	n.Add(n, cent).Sub(n, big.NewInt(1)).Quo(n, cent)
	if !n.IsInt64() || toll.Cents(n.Int64()) > toll.MaxCents {
		return toll.MaxCents + 1, true
	}
	return toll.Cents(n.Int64()), true
}

// warnOfDust warns if a price is below one cent or 10^12 wei, because its unit is probably wrong.
func (c *call) warnOfDust(p toll.Price) {
	dust := toll.UnitsOfCents(1)
	if p.CurrencyName() == toll.CurrencyETH {
		dust = toll.UnitsOf(1_000_000_000_000)
	}
	if !p.IsFree() && named(p) && p.Total().Cmp(dust) < 0 {
		c.warn("The price is " + readable(p) + ", which is very low. Check its unit.")
	}
}
