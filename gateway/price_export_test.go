package gateway

import "github.com/tollhq/toll"

// ReadAmount reads an amount as the tools do, and returns it as they write it.
func ReadAmount(pricingType, token string, env toll.Environment, text string) (units, spelled string, err error) {
	p, err := newPricing(pricingType, token, env)
	if err != nil {
		return "", "", err
	}
	u, err := p.read("priceAmount", text)
	if err != nil {
		return "", "", err
	}
	return u.String(), p.spell(u), nil
}

// spell writes an amount so that [pricing.read] reads the same again.
func (p pricing) spell(u toll.Units) string {
	switch {
	case p.dollars():
		return "$" + toll.FormatAmount(u, p.decimals)
	case p.currency == toll.CurrencyETH:
		return toll.FormatAmount(u, p.decimals) + " " + toll.CurrencyETH
	}
	return u.String()
}

// ReadPrice reads the amounts of a price, whose receivers are all the same.
func ReadPrice(pricingType, token string, receivers int, amounts ...string) (readable string, err error) {
	p, err := newPricing(pricingType, token, toll.Sandbox)
	if err != nil {
		return "", err
	}
	own := toll.MustAddress("0x00000000000000000000000000000000000000aa")
	var to []string
	for range receivers {
		to = append(to, own.String())
	}
	price, err := p.price(amounts, to, own, [2]string{"priceAmounts", "priceReceivers"})
	if err != nil {
		return "", err
	}
	return echo(price).Readable, nil
}
