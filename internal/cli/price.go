package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
)

const usdcDecimals = 6

const buildersExample = `toll plans create --plan-metadata '{"name":"Basic"}' \
  --price-config "$(toll price free)" --credits-config "$(toll credits fixed --credits-granted 100)"
toll price free | toll plans create --price-config - --plan-metadata meta.json --credits-config credits.json`

// builderGroup returns a group of commands that print configurations.
func builderGroup(a *app, name, long, example string, builders []call) *cobra.Command {
	short := "Create " + name + " configurations"
	c := group(name, short, short+long)
	c.Example = example
	for _, b := range builders {
		b.aliases = nil // which lie under plans
		c.AddCommand(builder(a, b))
	}
	return c
}

func builder(a *app, b call) *cobra.Command {
	b.show = func(_ *cobra.Command, got json.RawMessage) error { return a.built(got) }
	c := a.resource(b)
	c.Annotations = withoutProfile
	return c
}

func priceCommand(a *app) *cobra.Command {
	return builderGroup(a, "price", ` for --price-config of toll plans create. The commands print a configuration and create no plan.

usdc, usd, and eur take amounts such as 1.00. The other commands take base units: 1000000 is 1.00 USDC, EURC, USD, or EUR; the
native token has 18 decimals.

In a pipe, the commands print JSON.`, "toll price usdc 1.00\ntoll price usd 5.00\n"+buildersExample, priceBuilders(a))
}

func creditsCommand(a *app) *cobra.Command {
	return builderGroup(a, "credits",
		" for --credits-config of toll plans create. The commands print a configuration and create no plan. In a pipe, they print JSON.",
		buildersExample, creditsBuilders())
}

func deployedBuilders(a *app) []*cobra.Command {
	var all []*cobra.Command
	for _, b := range append(priceBuilders(a), creditsBuilders()...) {
		if len(b.aliases) > 0 {
			c := hidden(b.aliases[0], builder(a, b))
			c.Aliases = nil
			all = append(all, c)
		}
	}
	return all
}

var (
	units   = kind{name: "number", read: readEach(toll.ParseUnits)}
	credits = kind{name: "number", read: readEach(toll.ParseCredits)}
	token   = kind{name: "address", read: readLast(toll.ParseAddress)}
)

func priceBuilders(a *app) []call {
	paidBy := func(use, short, alias string, make share, more ...flag) call {
		return call{
			use: use, short: short, aliases: []string{alias}, require: []string{"amount", "receiver"},
			flags: append(more,
				flag{"amount", "amounts", units, "price in base units; repeat the flag for each receiver"},
				flag{"receiver", "receivers", kind{name: "address", read: readEach(toll.ParseAddress)},
					"address to pay; repeat the flag for each amount, in the same order"}),
			local: func(_ context.Context, r *request) (any, error) { return makePrice(&a.console, r.in, make) },
		}
	}
	orNative := flag{"token-address", "token", token, "token address; default the native token"}
	fiat := paidBy("fiat", "Price paid by card, in base units", "get-fiat-price-config", nil, flag{"currency", "currency", word.offering(toll.CurrencyUSD, toll.CurrencyEUR), "USD (default) or EUR"})
	fiat.long = "Price paid by card, in base units with six decimals: 5000000 is 5.00. To enter an amount such as 5.00, use toll price usd 5.00."
	fiat.local = func(_ context.Context, r *request) (any, error) {
		return makePrice(&a.console, r.in, func(n toll.Units, to, _ toll.Address) (toll.Price, error) {
			return toll.PriceFiat(n, to, value[string](r.in, "currency"))
		})
	}
	erc20 := paidBy("erc20", "Price in an ERC-20 token", "get-erc20-price-config",
		func(n toll.Units, to, token toll.Address) (toll.Price, error) { return toll.PriceERC20(n, token, to) },
		flag{"token-address", "token", token, "token address"})
	erc20.require = append(erc20.require, "token-address")
	eurc := paidBy("eurc", "Price in EURC, in base units", "get-eurc-price-config", nil, flag{"eurc-address", "token", token,
		"address of the EURC token; default the EURC of the configured service, otherwise of Base"})
	eurc.long = `Price in EURC, in base units. Without --eurc-address, the token is the EURC of the configured service. If no URL is set or the service
does not answer, it is the EURC of the configured environment, or of Base (live) if no environment is set.`
	eurc.local = func(ctx context.Context, r *request) (any, error) {
		if r.in["token"] == nil {
			if err := a.loadProfile(); err != nil {
				return nil, err
			}
			r.in["token"] = eurcOfService(ctx, a)
		}
		return makePrice(&a.console, r.in, toll.PriceEURC)
	}
	byCard := func(currency string) call {
		return priceInWhole(a, currency, "Price in "+currency+", such as 5.00, paid by card",
			"Price in "+currency+", such as 5.00, paid by card. Without --receiver, the money is owed to your workspace.",
			"address to which the money is owed; default your workspace")
	}
	return []call{
		{
			use: "free", short: "Free plan", aliases: []string{"get-free-price-config"},
			flags: []flag{ // callers pass them to every builder
				{"amount", "amount", word, hiddenFlag},
				{"receiver", "receiver", word, hiddenFlag},
			},
			local: func(_ context.Context, r *request) (any, error) {
				if n := r.in["amount"]; n != nil && n != "0" {
					return nil, usagef("a free plan has no amount")
				}
				return toll.PriceFree(), nil
			},
		},
		paidBy("crypto", "Price in a token", "get-crypto-price-config", toll.PriceCrypto, orNative),
		paidBy("native", "Price in the native token", "get-native-token-price-config", toll.PriceCrypto),
		paidBy("payg", "Price per credit of a pay-as-you-go plan", "get-pay-as-you-go-price-config",
			toll.PricePayAsYouGo, orNative),
		fiat, erc20, eurc, byCard(toll.CurrencyUSD), byCard(toll.CurrencyEUR),
		priceInWhole(a, toll.CurrencyUSDC, "Price in USDC, such as 5.00", `Price in USDC, such as 5.00, with at most six decimals.

The configured service provides the address of its USDC and, without --receiver, the address of your wallet.`, "address to pay; default your wallet"),
	}
}

// share returns the price of a plan that pays one receiver.
type share func(amount toll.Units, receiver, token toll.Address) (toll.Price, error)

// makePrice returns a price of the given amounts, receivers, and token.
func makePrice(con *console, in body, make share) (toll.Price, error) {
	amounts, receivers := value[[]toll.Units](in, "amounts"), value[[]toll.Address](in, "receivers")
	if len(amounts) != len(receivers) {
		return toll.Price{}, usagef("--amount and --receiver must be given the same number of times")
	}
	if len(amounts) > toll.MaxReceivers {
		return toll.Price{}, usagef("a price has at most %d receivers", toll.MaxReceivers)
	}
	var made toll.Price
	for i, amount := range amounts {
		one, err := make(amount, receivers[i], value[toll.Address](in, "token"))
		if err != nil {
			return toll.Price{}, err
		}
		one.Amounts, one.Receivers = append(made.Amounts, amount), append(made.Receivers, receivers[i])
		made = one
	}
	warnOfDust(con, made)
	return made, nil
}

// dust is the price in the native token, in base units, below which the seller probably counted with the six decimals of other tokens.
var dust = new(big.Int).Exp(big.NewInt(10), big.NewInt(12), nil)

// warnOfDust warns about a price that was probably meant in a token with six decimals.
func warnOfDust(con *console, p toll.Price) {
	total := p.Total()
	if !p.IsCrypto || !p.TokenAddress.IsZero() || total.IsZero() || total.Int().Cmp(dust) >= 0 {
		return
	}
	con.say("warning", "%s base units are only %s of the native token, which has 18 decimals; "+
		"for a price in USDC, use: toll price usdc 1.00", total, toll.FormatAmount(total, 18))
}

// eurcOfService returns the address of EURC of the configured service or environment. It returns zero if neither is set, or if the
// service does not return an address.
func eurcOfService(ctx context.Context, a *app) toll.Address {
	if a.set.url == "" && a.set.environment == "" {
		return toll.Address{}
	}
	token, err := tokenOfService(ctx, a, toll.CurrencyEURC, toll.Environment.EURC)
	if err != nil {
		a.say("note", "%s did not return its EURC address; using EURC on Base: set --eurc-address to use another token", a.client().URL())
	}
	return token
}

// currencies are the currencies of plans and delegations.
var currencies = []string{"usd", "eur", "usdc", "eurc"}

// priceInWhole is the command for a price such as 5.00.
func priceInWhole(a *app, currency, short, long, receiver string) call {
	name := strings.ToLower(currency)
	return call{
		use: name + " AMOUNT", short: short, long: long, example: "toll price " + name + " 5.00",
		flags: []flag{{"receiver", "receiver", token, receiver}},
		local: func(ctx context.Context, r *request) (any, error) {
			amount, err := toll.ParseAmount(r.args[0], usdcDecimals)
			if err != nil {
				return nil, usagef("AMOUNT must be in %s, with at most %d decimals, such as 1.00; got %q", currency, usdcDecimals, r.args[0])
			}
			if amount.IsZero() {
				return nil, usagef("AMOUNT must not be 0; for a free plan, use: toll price free")
			}
			if r.in["receiver"] == nil || currency == toll.CurrencyUSDC {
				if err := a.loadProfile(); err != nil {
					return nil, err
				}
			}
			return priceIn(ctx, a, amount, currency, value[toll.Address](r.in, "receiver"))
		},
	}
}

// priceIn returns a price in a currency of six decimals. The service provides the address of a token. The zero address as receiver is the
// caller: its wallet, or for money of cards its workspace.
func priceIn(ctx context.Context, a *app, amount toll.Units, currency string, to toll.Address) (made toll.Price, err error) {
	var token toll.Address
	switch currency {
	case toll.CurrencyUSDC:
		token, err = tokenOfService(ctx, a, currency, toll.Environment.USDC)
	case toll.CurrencyEURC:
		token, err = tokenOfService(ctx, a, currency, toll.Environment.EURC)
	}
	if err != nil {
		return made, err
	}
	if to.IsZero() {
		if a.set.key == "" {
			return made, usagef("a price in %s needs --receiver, or an API key of the workspace to pay", currency)
		}
		if to, err = callerAddress(ctx, a.client()); err != nil {
			return made, err
		}
	}
	if token.IsZero() {
		return toll.PriceFiat(amount, to, currency)
	}
	made, err = toll.PriceERC20(amount, token, to)
	made.Currency = currency
	return made, err
}

// tokenOfService returns the address of a currency at the service, else in the configured environment.
func tokenOfService(ctx context.Context, a *app, currency string, in func(toll.Environment) toll.Address) (toll.Address, error) {
	if a.set.url != "" || a.set.environment == "" {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		info, err := a.client().Info(ctx)
		if err == nil {
			return toll.ParseAddress(cmp.Or(at(info.Deployment, "contracts."+currency), in(info.Environment).String()))
		}
		if a.set.environment == "" {
			return toll.Address{}, err
		}
		a.say("note", "%s did not return the address of its %s; using the address for %s", a.client().URL(), currency, a.set.environment)
	}
	return in(toll.Environment(a.set.environment)), nil
}

func creditsBuilders() []call {
	granted := flag{"credits-granted", "granted", credits, "credits per order"}
	config := flag{"credits-config", "config", object, "credits configuration, as JSON"}
	type of = func(in body) (any, error)
	builder := func(use, short, alias string, make of, require []string, flags ...flag) call {
		return call{
			use: use, short: short, aliases: []string{alias}, flags: flags, require: require,
			local: func(_ context.Context, r *request) (any, error) { return make(r.in) },
		}
	}
	number := func(in body, member string) toll.Credits { return last[toll.Credits](in, member, 1) }
	expirable := builder("expirable", "Access for a period, without burning credits", "get-expirable-duration-config",
		func(in body) (any, error) { return toll.CreditsExpirable(last(in, "secs", toll.Units{})), nil },
		[]string{"duration-of-plan"},
		flag{"duration-of-plan", "secs", units, "length of the period in seconds"})
	expirable.long = expirable.short + ". A day has 86400 seconds, a week 604800, a month 2629746, and a year 31557600."
	return []call{
		builder("fixed", "Credits with a fixed number per request", "get-fixed-credits-config",
			func(in body) (any, error) { return toll.CreditsFixed(number(in, "granted"), number(in, "each")), nil },
			[]string{granted.name},
			granted, flag{"credits-per-request", "each", credits, "credits per request; default 1"}),
		builder("dynamic", "Credits with a variable number per request", "get-dynamic-credits-config",
			func(in body) (any, error) {
				least, most := number(in, "least"), number(in, "most")
				if least > most {
					return nil, usagef("--min-credits-per-request must not exceed --max-credits-per-request")
				}
				return toll.CreditsDynamic(number(in, "granted"), least, most), nil
			}, []string{granted.name},
			granted, flag{"min-credits-per-request", "least", credits, "minimum credits per request; default 1"},
			flag{"max-credits-per-request", "most", credits, "maximum credits per request; default 1"}),
		builder("payg", "Credits bought one request at a time", "get-pay-as-you-go-credits-config",
			func(body) (any, error) { return toll.CreditsPayAsYouGo(), nil }, nil),
		expirable,
		builder("non-expirable", "Access that never expires", "get-non-expirable-duration-config",
			func(body) (any, error) { return toll.CreditsNonExpirable(), nil }, nil),
		builder("redemption-type", "Set the redemption type of a credits configuration", "set-redemption-type",
			func(in body) (any, error) {
				t := last(in, "type", toll.RedemptionInput{})
				change := []jsonMember{{"redemptionType", json.RawMessage(strconv.Itoa(t.Type))}}
				if t.Word != "" {
					change = append(change, jsonMember{"isRedemptionAmountFixed", fmt.Appendf(nil, "%t", t.Word == "fixed")})
				}
				return edited(in, change...)
			}, []string{config.name, "redemption-type"},
			config, flag{"redemption-type", "type", kind{name: "type", read: readEach(toll.ParseRedemption)},
				"redemption type: 0, 1, 2, 4, fixed, or dynamic"}),
		builder("mirror", "Set whether burns are mirrored on the chain", "set-onchain-mirror",
			func(in body) (any, error) {
				return edited(in, jsonMember{"onchainMirror", fmt.Appendf(nil, "%t", in["on"] != false)})
			}, []string{config.name},
			config, flag{"onchain-mirror", "on", toggle, "mirror burns on the chain; default true"}),
	}
}

// edited returns a credits configuration with some members changed. All other members stay as they were written, so that
// a file of any dialect can be changed.
func edited(in body, change ...jsonMember) (json.RawMessage, error) {
	members, err := membersOf(value[json.RawMessage](in, "config"))
	if err != nil {
		return nil, fmt.Errorf("--credits-config: %w", err)
	}
	for _, m := range change {
		members = withMember(members, m)
	}
	return objectOf(members), nil
}

// withMember replaces the member of the same name, or appends it.
func withMember(members []jsonMember, m jsonMember) []jsonMember {
	for i := range members {
		if members[i].name == m.name {
			members[i].value = m.value
			return members
		}
	}
	return append(members, m)
}

func objectOf(members []jsonMember) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(m.name) // a string always has JSON
		b.Write(name)
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}
