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

// builderGroup are commands that make configurations.
func builderGroup(a *app, name, long, example string, builders []call) *cobra.Command {
	short := "Make " + name + " configurations"
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
	return builderGroup(a, "price", `, for --price-config of plans create. Nothing is sent.

usdc, usd and eur take whole units. Amounts of the others are base units of the token: 1000000 is 1.00 of USDC, EURC, USD and EUR; the native token has
18 decimals.
In a pipe they print JSON.`, "toll price usdc 1.00\ntoll price usd 5.00\n"+buildersExample, priceBuilders(a))
}

func creditsCommand(a *app) *cobra.Command {
	return builderGroup(a, "credits",
		", for --credits-config of plans create. Nothing is sent. In a pipe they print JSON.",
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
				flag{"amount", "amounts", units, "price in base units; with several receivers, once for each"},
				flag{"receiver", "receivers", kind{name: "address", read: readEach(toll.ParseAddress)},
					"address that is paid, once for each amount and in the same order"}),
			local: func(_ context.Context, r *request) (any, error) { return makePrice(&a.console, r.in, make) },
		}
	}
	orNative := flag{"token-address", "token", token, "token; default the native one"}
	fiat := paidBy("fiat", "A price that is paid by card", "get-fiat-price-config", nil,
		flag{"currency", "currency", word, "USD (default) or EUR"})
	fiat.long = "A price that is paid by card. Amounts have six decimals: 5000000 is 5.00. toll price usd 5.00 takes whole units."
	fiat.local = func(_ context.Context, r *request) (any, error) {
		return makePrice(&a.console, r.in, func(n toll.Units, to, _ toll.Address) (toll.Price, error) {
			return toll.PriceFiat(n, to, value[string](r.in, "currency"))
		})
	}
	erc20 := paidBy("erc20", "A price in an ERC-20 token", "get-erc20-price-config",
		func(n toll.Units, to, token toll.Address) (toll.Price, error) { return toll.PriceERC20(n, token, to) },
		flag{"token-address", "token", token, "token"})
	erc20.require = append(erc20.require, "token-address")
	eurc := paidBy("eurc", "A price in EURC", "get-eurc-price-config", nil, flag{"eurc-address", "token", token,
		"address of EURC; default that of the service whose url is set, else that of Base"})
	eurc.long = `A price in EURC. Without --eurc-address the token is the EURC of the service that is configured: it is asked when a url is
set; else the environment that is set decides; else it is that of Base, as live has it.`
	eurc.local = func(ctx context.Context, r *request) (any, error) {
		if r.in["token"] == nil {
			if err := a.loadProfile(); err != nil {
				return nil, err
			}
			r.in["token"] = eurcOfService(ctx, a)
		}
		return makePrice(&a.console, r.in, toll.PriceEURC)
	}
	return []call{
		{
			use: "free", short: "A plan that costs nothing", aliases: []string{"get-free-price-config"},
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
		paidBy("crypto", "A price in a token", "get-crypto-price-config", toll.PriceCrypto, orNative),
		paidBy("native", "A price in the native token", "get-native-token-price-config", toll.PriceCrypto),
		paidBy("payg", "A price for each credit, bought request by request", "get-pay-as-you-go-price-config",
			toll.PricePayAsYouGo, orNative),
		fiat, erc20, eurc, priceByCard(a, toll.CurrencyUSD), priceByCard(a, toll.CurrencyEUR),
		{
			use: "usdc AMOUNT", short: "A price in USDC, in whole units", example: "toll price usdc 1.00",
			long: `A price in USDC, in whole units such as 1.00, exact to six decimals.

The service that is configured is asked for the address of its USDC and, without --receiver, for the wallet of your account.`,
			flags: []flag{{"receiver", "receiver", token, "address that is paid; default the wallet of your account"}},
			local: func(ctx context.Context, r *request) (any, error) { return priceUSDC(ctx, a, r) },
		},
	}
}

// share makes the price of a plan that pays one receiver.
type share func(amount toll.Units, receiver, token toll.Address) (toll.Price, error)

// price makes a price of the amounts, the receivers and the token that were given.
func makePrice(con *console, in body, make share) (toll.Price, error) {
	amounts, receivers := value[[]toll.Units](in, "amounts"), value[[]toll.Address](in, "receivers")
	if len(amounts) != len(receivers) {
		return toll.Price{}, usagef("--amount and --receiver belong together: give as many of the one as of the other")
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

// dust is the price in the native token, in base units, below which somebody has counted with the
// six decimals of other tokens.
var dust = new(big.Int).Exp(big.NewInt(10), big.NewInt(12), nil)

// warnOfDust says what a price is that was probably meant in a token with six decimals.
func warnOfDust(con *console, p toll.Price) {
	total := p.Total()
	if !p.IsCrypto || !p.TokenAddress.IsZero() || total.IsZero() || total.Int().Cmp(dust) >= 0 {
		return
	}
	con.say("warning", "%s base units of the native token are %s of it, as it has 18 decimals; "+
		"a price in USDC is made with: toll price usdc 1.00", total, toll.FormatAmount(total, 18))
}

// eurc is the address of EURC in the environment that is set, zero when none is.
func eurcOfService(ctx context.Context, a *app) toll.Address {
	if a.set.url == "" && a.set.environment == "" {
		return toll.Address{}
	}
	token, err := tokenOfService(ctx, a, toll.CurrencyEURC, toll.Environment.EURC)
	if err != nil {
		a.say("note", "%s does not tell its EURC: give --eurc-address to be sure", a.client().URL())
	}
	return token
}

// priceUSDC makes a price of whole units: the token is that of the service, and the receiver its
// caller.
func priceUSDC(ctx context.Context, a *app, r *request) (any, error) {
	amount, err := wholeAmount(r.args[0], toll.CurrencyUSDC)
	if err != nil {
		return nil, err
	}
	if err := a.loadProfile(); err != nil {
		return nil, err
	}
	token, err := tokenOfService(ctx, a, toll.CurrencyUSDC, toll.Environment.USDC)
	if err != nil {
		return nil, err
	}
	to, err := receiver(ctx, a, r.in, toll.CurrencyUSDC)
	if err != nil {
		return nil, err
	}
	made, err := toll.PriceERC20(amount, token, to)
	made.Currency = toll.CurrencyUSDC
	return made, err
}

// priceByCard makes prices of whole units of a currency that cards pay.
func priceByCard(a *app, currency string) call {
	name := strings.ToLower(currency)
	return call{
		use: name + " AMOUNT", short: "A price in " + currency + ", in whole units, that is paid by card", example: "toll price " + name + " 5.00",
		long:  "A price in " + currency + ", in whole units such as 5.00, that is paid by card. Without --receiver it is owed to your account.",
		flags: []flag{{"receiver", "receiver", token, "address that the money is owed to; default your account"}},
		local: func(ctx context.Context, r *request) (any, error) {
			amount, err := wholeAmount(r.args[0], currency)
			if err != nil {
				return nil, err
			}
			if r.in["receiver"] == nil {
				if err := a.loadProfile(); err != nil {
					return nil, err
				}
			}
			to, err := receiver(ctx, a, r.in, currency)
			if err != nil {
				return nil, err
			}
			return toll.PriceFiat(amount, to, currency)
		},
	}
}

// wholeAmount reads a price in whole units.
func wholeAmount(text, currency string) (toll.Units, error) {
	amount, err := toll.ParseAmount(text, usdcDecimals)
	if err != nil {
		return amount, usagef("AMOUNT must be whole %s with at most %d decimals, such as 1.00; got %q", currency, usdcDecimals, text)
	}
	if amount.IsZero() {
		return amount, usagef("a plan that costs nothing has the price of: toll price free")
	}
	return amount, nil
}

// receiver is the address that was given, else that of the caller.
func receiver(ctx context.Context, a *app, in body, currency string) (toll.Address, error) {
	if to, given := in["receiver"].(toll.Address); given {
		return to, nil
	}
	if a.set.key == "" {
		return toll.Address{}, usagef("toll price %s needs --receiver, or an API key whose account is paid", strings.ToLower(currency))
	}
	return callerAddress(ctx, a.client())
}

// tokenOfService returns the address of a currency where the service is, else in the environment
// that is set.
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
		a.say("note", "%s does not say which %s it takes; this is that of %s", a.client().URL(), currency, a.set.environment)
	}
	return in(toll.Environment(a.set.environment)), nil
}

func creditsBuilders() []call {
	granted := flag{"credits-granted", "granted", credits, "credits that an order gives"}
	config := flag{"credits-config", "config", object, "credits, as JSON"}
	type of = func(in body) (any, error)
	builder := func(use, short, alias string, make of, require []string, flags ...flag) call {
		return call{
			use: use, short: short, aliases: []string{alias}, flags: flags, require: require,
			local: func(_ context.Context, r *request) (any, error) { return make(r.in) },
		}
	}
	number := func(in body, member string) toll.Credits { return last[toll.Credits](in, member, 1) }
	expirable := builder("expirable", "A period in which requests burn nothing", "get-expirable-duration-config",
		func(in body) (any, error) { return toll.CreditsExpirable(last(in, "secs", toll.Units{})), nil },
		[]string{"duration-of-plan"},
		flag{"duration-of-plan", "secs", units, "length of the period in seconds"})
	expirable.long = expirable.short + ". A day has 86400 seconds, a week 604800, a month 2629746, a year 31557600."
	return []call{
		builder("fixed", "Credits of which every request burns the same", "get-fixed-credits-config",
			func(in body) (any, error) { return toll.CreditsFixed(number(in, "granted"), number(in, "each")), nil },
			[]string{granted.name},
			granted, flag{"credits-per-request", "each", credits, "credits that a request burns, default 1"}),
		builder("dynamic", "Credits of which a request burns what it costs", "get-dynamic-credits-config",
			func(in body) (any, error) {
				least, most := number(in, "least"), number(in, "most")
				if least > most {
					return nil, usagef("--min-credits-per-request is above --max-credits-per-request")
				}
				return toll.CreditsDynamic(number(in, "granted"), least, most), nil
			}, []string{granted.name},
			granted, flag{"min-credits-per-request", "least", credits, "least that a request burns, default 1"},
			flag{"max-credits-per-request", "most", credits, "most that a request burns, default 1"}),
		builder("payg", "Credits that are bought request by request", "get-pay-as-you-go-credits-config",
			func(body) (any, error) { return toll.CreditsPayAsYouGo(), nil }, nil),
		expirable,
		builder("non-expirable", "A credit that never ends", "get-non-expirable-duration-config",
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
				"0, 1, 2, 4, fixed or dynamic"}),
		builder("mirror", "Let burns enter the mirror on the chain, or not", "set-onchain-mirror",
			func(in body) (any, error) {
				return edited(in, jsonMember{"onchainMirror", fmt.Appendf(nil, "%t", in["on"] != false)})
			}, []string{config.name},
			config, flag{"onchain-mirror", "on", toggle, "whether they do, default true"}),
	}
}

// edited returns a credits configuration with some members changed. Everything else of it stays as
// it was written, so that a file of any dialect can be changed.
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

// withMember puts a value in place of the one of its name, or at the end.
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
