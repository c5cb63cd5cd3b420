package toll

import "strings"

// The builders return the price and the credits of a plan in the stored form (wire contract, section 8). Registering the
// plan checks the limits of amounts and whether price, credits, and access limit fit together.

// PriceFree returns the price of a free plan.
func PriceFree() Price {
	return Price{Amounts: []Units{}, Receivers: []Address{}, IsCrypto: true}
}

// PriceFiat returns a price that is paid by card. The amount has 6 decimals (2000000 is 2.00), the currency is
// [CurrencyUSD] or [CurrencyEUR] in any case, "" for USD.
//
// Errors: [CodeBadPriceConfig] for another currency or the zero address as receiver.
func PriceFiat(amount Units, receiver Address, currency string) (Price, error) {
	switch currency = strings.ToUpper(currency); currency {
	case "":
		currency = CurrencyUSD
	case CurrencyUSD, CurrencyEUR:
	default:
		return Price{}, Errorf(CodeBadPriceConfig, "A fiat price must be in USD or EUR.").WithParam("path", "currency")
	}
	p, err := priceTo(amount, receiver)
	p.IsCrypto, p.Currency = false, currency
	return p.or(err)
}

// PriceCrypto returns a price in base units of a token; the zero address is the native token.
//
// Errors: [CodeBadPriceConfig] for the zero address as receiver.
func PriceCrypto(amount Units, receiver, token Address) (Price, error) {
	p, err := priceTo(amount, receiver)
	p.TokenAddress = token
	return p.or(err)
}

// PriceNative returns a price in base units of the native token, which has 18 decimals.
//
// Errors: [CodeBadPriceConfig] for the zero address as receiver.
func PriceNative(amount Units, receiver Address) (Price, error) {
	return PriceCrypto(amount, receiver, Address{})
}

// PriceERC20 returns a price in base units of a token. As in the wire interface, the token comes before the receiver.
//
// Errors: [CodeBadPriceConfig] for the zero address as token or receiver.
func PriceERC20(amount Units, token, receiver Address) (Price, error) {
	if token.IsZero() {
		return Price{}, Errorf(CodeBadPriceConfig, "A token address is required. The zero address means the native token.").WithParam("path", "tokenAddress")
	}
	return PriceCrypto(amount, receiver, token)
}

// PriceEURC returns a price in base units of EURC, which has 6 decimals. The zero address as eurc means [EURCLive]. The
// service accepts the EURC address of either network and charges the EURC of its environment.
//
// Errors: [CodeBadPriceConfig] for the zero address as receiver.
func PriceEURC(amount Units, receiver, eurc Address) (Price, error) {
	if eurc.IsZero() {
		eurc = EURCLive
	}
	p, err := PriceCrypto(amount, receiver, eurc)
	p.Currency = CurrencyEURC
	return p.or(err)
}

// PricePayAsYouGo returns the price of one credit, in base units of a token, for a plan whose credits are bought request by
// request; the zero address is the native token.
//
// Errors: [CodeBadPriceConfig] for the zero address as receiver.
func PricePayAsYouGo(amount Units, receiver, token Address) (Price, error) {
	p, err := PriceCrypto(amount, receiver, token)
	p.TemplateAddress = PayAsYouGoTemplate
	return p.or(err)
}

func priceTo(amount Units, receiver Address) (Price, error) {
	if receiver.IsZero() {
		return Price{}, Errorf(CodeBadPriceConfig, "The zero address cannot receive payments.").WithParam("path", "receivers[0]")
	}
	return Price{Amounts: []Units{amount}, Receivers: []Address{receiver}, IsCrypto: true}, nil
}

// or returns the price, or the error alone.
func (p Price) or(err error) (Price, error) {
	if err != nil {
		return Price{}, err
	}
	return p, nil
}

// CreditsFixed returns a configuration in which every request burns perRequest credits. Both amounts are at least 1.
func CreditsFixed(granted, perRequest Credits) CreditsConfig {
	return CreditsConfig{
		IsRedemptionAmountFixed: true, RedemptionType: RedemptionSubscriber, DurationSecs: UnitsOf(0),
		Amount: granted, MinAmount: perRequest, MaxAmount: perRequest,
	}
}

// CreditsDynamic returns a configuration in which a request names the credits that it burns, clamped to [least, most]. All are at least 1.
func CreditsDynamic(granted, least, most Credits) CreditsConfig {
	return CreditsConfig{
		RedemptionType: RedemptionSubscriber, DurationSecs: UnitsOf(0), Amount: granted, MinAmount: least, MaxAmount: most,
	}
}

// CreditsPayAsYouGo returns the credits for [PricePayAsYouGo], bought one at a time.
func CreditsPayAsYouGo() CreditsConfig { return CreditsDynamic(1, 1, 1) }

// CreditsExpirable returns the credits of a plan that sells time: a period of this many seconds, see [DaySecs].
func CreditsExpirable(secs Units) CreditsConfig {
	c := CreditsDynamic(1, 1, 1)
	c.DurationSecs = secs
	return c
}

// CreditsNonExpirable returns one credit that never expires.
func CreditsNonExpirable() CreditsConfig { return CreditsDynamic(1, 1, 1) }

// WithRedemptionType returns the configuration with another redemption type, see [ParseRedemption]. The words fixed and
// dynamic set the flag isRedemptionAmountFixed too.
func (c CreditsConfig) WithRedemptionType(r RedemptionInput) CreditsConfig {
	c.RedemptionType = r.Type
	if r.Word != "" {
		c.IsRedemptionAmountFixed = r.Word == "fixed"
	}
	return c
}

// WithOnchainMirror returns a copy with the on-chain mirror of burns turned on or off.
func (c CreditsConfig) WithOnchainMirror(on bool) CreditsConfig {
	c.OnchainMirror = on
	return c
}

// ParseRedemption reads a redemption type: 0, 1, 2, 4, or fixed or dynamic in any case; else an error with [CodeBadRequest].
func ParseRedemption(s string) (r RedemptionInput, err error) {
	if s == "" || strings.EqualFold(s, "null") || strings.ContainsAny(s, `"\`) {
		return r, Errorf(CodeBadRequest, "A redemption type must be 0, 1, 2, 4, fixed, or dynamic.").WithDetails("value %s", clip(s))
	}
	err = r.UnmarshalJSON([]byte(s))
	return r, err
}
