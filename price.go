package toll

import (
	"encoding/json"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
)

// Currencies of prices. USD and EUR are paid by card; USDC and EURC are tokens. ETH names the native token in records only.
const (
	CurrencyUSD  = "USD"
	CurrencyEUR  = "EUR"
	CurrencyUSDC = "USDC"
	CurrencyEURC = "EURC"
	CurrencyETH  = "ETH"
)

// Tokens with a named currency, on Base Sepolia (sandbox) and Base (live). All have 6 decimals.
var (
	USDCSandbox = MustAddress("0x036CbD53842c5426634e7929541eC2318f3dCF7e")
	USDCLive    = MustAddress("0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913")
	EURCSandbox = MustAddress("0x808456652fdb597867f38412077A9182bf77359F")
	EURCLive    = MustAddress("0x60a3E35Cc302bFA44Cb288Bc5a4F316Fdb1adb42")
)

// PayAsYouGoTemplate marks the price of a plan whose credits are bought request by request. No contract is deployed there:
// it is the last 20 bytes of keccak256("toll:PayAsYouGoTemplate"), which clients read from GET /.
var PayAsYouGoTemplate = MustAddress("0x1FCcaBF8D461cCc8259CB09aE54b4Ff9a90718B3")

// Limits of a price. A fiat price is a sum in 6 decimals: 1.00 to 999,999.99.
const (
	MaxReceivers = 10
	MinFiatUnits = 1_000_000
	MaxFiatUnits = 999_999_990_000
	fiatCent     = 10_000
)

// USDC returns the USDC token of the environment.
func (e Environment) USDC() Address {
	if e == Live {
		return USDCLive
	}
	return USDCSandbox
}

// EURC returns the EURC token of the environment.
func (e Environment) EURC() Address {
	if e == Live {
		return EURCLive
	}
	return EURCSandbox
}

// tokenCurrency returns USDC or EURC for their tokens on either network, else "".
func tokenCurrency(token Address) string {
	switch token {
	case USDCSandbox, USDCLive:
		return CurrencyUSDC
	case EURCSandbox, EURCLive:
		return CurrencyEURC
	}
	return ""
}

// Price is the cost of an order of a plan, in the stored form (wire contract, section 8, dialect B).
type Price struct {
	TokenAddress         Address   `json:"tokenAddress" doc:"Token of the price. The zero address is the native token, or no token if the price is free or paid by card."`
	Amounts              []Units   `json:"amounts" doc:"Amounts in base units, one for each receiver. The price is their sum."`
	Receivers            []Address `json:"receivers"`
	ContractAddress      Address   `json:"contractAddress"`
	FeeController        Address   `json:"feeController"`
	ExternalPriceAddress Address   `json:"externalPriceAddress"`
	TemplateAddress      Address   `json:"templateAddress"` // zero, or PayAsYouGoTemplate
	IsCrypto             bool      `json:"isCrypto" doc:"False for a price that is paid by card."`
	Currency             string    `json:"currency,omitempty" doc:"Absent for the native token and for tokens without a name."`
}

// Total returns the sum of the amounts, which is below 2^256 for a normalized price.
func (p Price) Total() Units {
	if len(p.Amounts) == 1 {
		return p.Amounts[0]
	}
	var t Units
	for _, a := range p.Amounts {
		t, _ = t.Add(a)
	}
	return t
}

// IsFree reports whether an order costs nothing.
func (p Price) IsFree() bool { return p.Total().IsZero() }

// Decimals returns the number of fraction digits of an amount: 18 for the native token, else 6. Tokens other than USDC and
// EURC count as 6, because this service prices plans in stablecoins with 6 decimals.
func (p Price) Decimals() int {
	if p.IsCrypto && p.TokenAddress.IsZero() {
		return 18
	}
	return 6
}

// CurrencyName returns USD, EUR, USDC, EURC, ETH, or the address of an unknown token.
func (p Price) CurrencyName() string {
	switch {
	case p.Currency != "":
		return p.Currency
	case !p.IsCrypto:
		return CurrencyUSD
	case p.TokenAddress.IsZero():
		return CurrencyETH
	}
	if c := tokenCurrency(p.TokenAddress); c != "" {
		return c
	}
	return p.TokenAddress.String()
}

// Text returns the exact price in currency units, with at least two fraction digits: "2.00".
func (p Price) Text() string { return FormatAmount(p.Total(), p.Decimals()) }

// PayToken returns the payment token in this environment: the zero address for the native token and for fiat. USDC and EURC
// of either network become the token of this network.
func (p Price) PayToken(env Environment) Address {
	switch tokenCurrency(p.TokenAddress) {
	case CurrencyUSDC:
		return env.USDC()
	case CurrencyEURC:
		return env.EURC()
	}
	return p.TokenAddress
}

// PricePerCredit returns the price of one credit in currency units as a JSON number: 0 for a free plan. It uses integer arithmetic. A
// quotient with more than 12 digits below the base unit of the token is truncated there (1.00 for 3 credits is 0.333333333333333333).
func PricePerCredit(p *Plan) json.RawMessage {
	const below, shift = 12, 1_000_000_000_000
	total, amount := p.Price.Total(), uint64(max(p.Credits.Amount, 1))
	if total.IsZero() {
		return json.RawMessage("0")
	}
	var digits string
	if high, low := bits.Mul64(total.n.Uint64(), shift); total.n.IsUint64() && high < amount {
		n, _ := bits.Div64(high, low, amount)
		digits = strconv.FormatUint(n, 10)
	} else {
		n := total.Int()
		digits = n.Quo(n.Mul(n, big.NewInt(shift)), new(big.Int).SetUint64(amount)).String()
	}
	s := strings.TrimRight(fixed(digits, p.Price.Decimals()+below), "0")
	return json.RawMessage(strings.TrimSuffix(s, "."))
}

// PriceInput is a price in a request, in any dialect. A nil member was absent or null. See [NormalizePrice].
type PriceInput struct {
	// Dialects A and B.
	TokenAddress *Address  `json:"tokenAddress,omitzero"`
	Amounts      []Units   `json:"amounts,omitzero"`
	Receivers    []Address `json:"receivers,omitzero" doc:"One for each amount. With one amount, the receiver defaults to the caller."`
	// Dialect A: FREE or FIXED_PRICE.
	PriceType *string `json:"priceType,omitzero"`
	// Dialect B.
	IsCrypto             *Bool    `json:"isCrypto,omitzero"`
	Currency             *string  `json:"currency,omitzero"`
	TemplateAddress      *Address `json:"templateAddress,omitzero"`
	ContractAddress      *Address `json:"contractAddress,omitzero"`
	FeeController        *Address `json:"feeController,omitzero"`
	ExternalPriceAddress *Address `json:"externalPriceAddress,omitzero"`
	// File of the command line.
	Price           *Units   `json:"price,omitzero"`
	AmountOfCredits *Credits `json:"amountOfCredits,omitzero"`
}

// NormalizePrice returns the stored form of a price in any dialect. Members of dialect B override dialect A, which overrides the file. When
// there is one amount, the receiver defaults to the caller. The second result is amountOfCredits of the file, or nil.
//
// Errors are 400 with params.path: [CodeBadPriceConfig], [CodeFiatPriceTooHigh], [CodeFiatPriceTooLow], [CodeBadNumber],
// or [CodeBadRequest] with the list of malformed members.
func NormalizePrice(in PriceInput, caller Address) (Price, *Credits, error) {
	var f faultList
	p := normalizePrice(in, caller, "priceConfig", &f)
	if err := f.err(); err != nil {
		return Price{}, nil, err
	}
	return p, in.AmountOfCredits, nil
}

func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func normalizePrice(in PriceInput, caller Address, path string, f *faultList) Price {
	bad := func(member, format string, args ...any) {
		f.contradiction(CodeBadPriceConfig, at(path, member), format, args...)
	}
	p := Price{
		TokenAddress: orZero(in.TokenAddress), Amounts: in.Amounts, Receivers: in.Receivers,
		TemplateAddress: orZero(in.TemplateAddress), IsCrypto: in.IsCrypto == nil || bool(*in.IsCrypto),
		Currency: strings.ToUpper(orZero(in.Currency)),
	}
	if p.Amounts == nil && in.Price != nil {
		p.Amounts = []Units{*in.Price}
	}
	for i, a := range p.Amounts {
		if a.n == nil {
			f.add(at(path, index("amounts", i)), "must be a whole number")
			return p
		}
	}

	switch word := strings.ToUpper(orZero(in.PriceType)); {
	case in.PriceType == nil:
	case word == "FREE":
		if !p.IsFree() {
			bad("priceType", "A free price must not have amounts.")
		}
		p.Amounts, p.Receivers = nil, nil
	case word != "FIXED_PRICE":
		f.add(at(path, "priceType"), "must be FIXED_PRICE or FREE")
	case p.Amounts == nil:
		f.add(at(path, "amounts"), "is required for FIXED_PRICE")
	case len(p.Amounts) == 0:
		bad("amounts", "A fixed price requires an amount.")
	}

	if p.Receivers == nil && len(p.Amounts) == 1 {
		p.Receivers = []Address{caller}
	}
	checkShares(&p, path, f)
	for _, c := range []struct {
		member  string
		address *Address
	}{{"contractAddress", in.ContractAddress}, {"feeController", in.FeeController}, {"externalPriceAddress", in.ExternalPriceAddress}} {
		if !orZero(c.address).IsZero() {
			bad(c.member, "Prices computed by a contract are not supported: %s must be the zero address.", c.member)
		}
	}
	if !p.TemplateAddress.IsZero() {
		if p.TemplateAddress != PayAsYouGoTemplate {
			bad("templateAddress", "templateAddress must be the zero address or PayAsYouGoTemplate.")
		}
		if p.IsFree() {
			bad("templateAddress", "A pay-as-you-go plan requires a price.")
		}
	}
	checkCurrency(&p, path, f)
	if p.Amounts == nil {
		p.Amounts = []Units{}
	}
	if p.Receivers == nil {
		p.Receivers = []Address{}
	}
	return p
}

// checkShares checks that every amount has one nonzero receiver and that the sum is below 2^256.
func checkShares(p *Price, path string, f *faultList) {
	if len(p.Receivers) != len(p.Amounts) {
		f.contradiction(CodeBadPriceConfig, at(path, "receivers"), "The number of receivers must equal the number of amounts.")
	}
	if len(p.Receivers) > MaxReceivers {
		f.contradiction(CodeBadPriceConfig, at(path, "receivers"), "A price can have at most %d receivers.", MaxReceivers)
	}
	for i, r := range p.Receivers {
		if r.IsZero() {
			f.contradiction(CodeBadPriceConfig, at(path, index("receivers", i)), "The zero address cannot receive payments.")
		}
	}
	var sum Units
	for i, a := range p.Amounts {
		s, ok := sum.Add(a)
		if !ok {
			f.contradiction(CodeBadPriceConfig, at(path, index("amounts", i)), "The price must be less than 2^256 base units.")
			return
		}
		sum = s
	}
}

// checkCurrency fills in the currency and checks that it matches the token and that a fiat price is within its limits.
func checkCurrency(p *Price, path string, f *faultList) {
	bad := func(member, format string, args ...any) {
		f.contradiction(CodeBadPriceConfig, at(path, member), format, args...)
	}
	if p.IsCrypto {
		own := tokenCurrency(p.TokenAddress)
		switch p.Currency {
		case "", own:
			p.Currency = own
			if p.IsFree() {
				p.Currency = "" // nothing is paid in it
			}
		case CurrencyUSDC, CurrencyEURC:
			bad("currency", "tokenAddress must be the %s token.", p.Currency)
		case CurrencyUSD, CurrencyEUR:
			bad("currency", "%s is paid by card: isCrypto must be false.", p.Currency)
		default:
			bad("currency", "The currency must be USD, EUR, USDC, or EURC.")
		}
		return
	}
	switch p.Currency {
	case "":
		p.Currency = CurrencyUSD
	case CurrencyUSD, CurrencyEUR:
	default:
		bad("currency", "A fiat price must be in USD or EUR.")
	}
	if !p.TokenAddress.IsZero() {
		bad("tokenAddress", "A fiat price must not have a token.")
	}
	switch total := p.Total(); {
	case total.Cmp(UnitsOf(MaxFiatUnits)) > 0:
		f.contradiction(CodeFiatPriceTooHigh, at(path, "amounts"), "%s", CodeFiatPriceTooHigh.Info().Message)
	case total.Cmp(UnitsOf(MinFiatUnits)) < 0:
		f.contradiction(CodeFiatPriceTooLow, at(path, "amounts"), "%s", CodeFiatPriceTooLow.Info().Message)
	case new(big.Int).Rem(total.Int(), big.NewInt(fiatCent)).Sign() != 0:
		bad("amounts", "Card charges must be in full cents: the sum of the amounts must be a multiple of %d.", fiatCent)
	}
}
