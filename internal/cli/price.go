package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// builderNames are the deployed names of the builders, which lie under plans.
var builderNames = map[string]string{
	"price free": "get-free-price-config", "price fiat": "get-fiat-price-config", "price crypto": "get-crypto-price-config",
	"price native": "get-native-token-price-config", "price erc20": "get-erc20-price-config", "price eurc": "get-eurc-price-config",
	"price payg":    "get-pay-as-you-go-price-config",
	"credits fixed": "get-fixed-credits-config", "credits dynamic": "get-dynamic-credits-config",
	"credits payg": "get-pay-as-you-go-credits-config", "credits expirable": "get-expirable-duration-config",
	"credits non-expirable": "get-non-expirable-duration-config", "credits redemption-type": "set-redemption-type", "credits mirror": "set-onchain-mirror",
}

const buildersExample = `toll plans create --plan-metadata '{"name":"Basic"}' \
  --price-config "$(toll price free)" --credits-config "$(toll credits fixed --credits-granted 100)"
toll price free | toll plans create --price-config - --plan-metadata meta.json --credits-config credits.json`

func (a *app) priceCommand() *cobra.Command {
	c := group("price", "Make price configurations", `Make price configurations, for --price-config of plans create. Nothing is sent.

usdc takes whole units. Amounts of the others are base units of the token: 1000000 is 1.00 of USDC, EURC, USD and EUR; the native token has
18 decimals.
In a pipe they print JSON.`,
		append(a.priceBuilders(), a.priceUSDC())...)
	c.Annotations = withoutProfile
	c.Example = "toll price usdc 1.00\n" + buildersExample
	return c
}

func (a *app) creditsCommand() *cobra.Command {
	c := group("credits", "Make credits configurations", "Make credits configurations, for --credits-config of plans create. Nothing is sent. In a pipe they print JSON.",
		a.creditsBuilders()...)
	c.Annotations = withoutProfile
	c.Example = buildersExample
	return c
}

// deployedBuilders are the builders under their deployed names.
func (a *app) deployedBuilders() []*cobra.Command {
	var all []*cobra.Command
	for topic, builders := range map[string][]*cobra.Command{"price ": a.priceBuilders(), "credits ": a.creditsBuilders()} {
		for _, c := range builders {
			c = hidden(builderNames[topic+c.Name()], c)
			c.Annotations = withoutProfile
			all = append(all, c)
		}
	}
	return all
}

// built prints what a builder made.
func (a *app) built(v any) error {
	b, err := x402.Encode(v)
	if err != nil {
		return err
	}
	return a.configuration(b)
}

// configuration prints one that was made. In a pipe it is JSON, for the flags that take it, unless another form is asked for.
func (a *app) configuration(b []byte) error {
	if !a.set.terminal && a.set.output != formatQuiet && cmp.Or(a.flags.output, a.getenv("TOLL_OUTPUT")) == "" {
		return a.writeCompact(b)
	}
	return a.record(b)
}

// priceFlags are those of the builders of prices.
type priceFlags struct {
	amounts, receivers         []string
	token, tokenFlag, currency string
}

// price returns what a builder makes of the first amount and receiver and the token, which may be left out, with the other
// amounts and receivers beside them.
func (p *priceFlags) price(build func(toll.Units, toll.Address, toll.Address) (toll.Price, error)) (toll.Price, error) {
	if len(p.amounts) != len(p.receivers) {
		return toll.Price{}, usagef("--amount and --receiver belong together: give as many of the one as of the other")
	}
	if len(p.amounts) > toll.MaxReceivers {
		return toll.Price{}, usagef("a price has at most %d receivers", toll.MaxReceivers)
	}
	made, err := p.share(0, build)
	for i := 1; i < len(p.amounts) && err == nil; i++ {
		var more toll.Price
		if more, err = p.share(i, build); err == nil {
			made.Amounts, made.Receivers = append(made.Amounts, more.Amounts...), append(made.Receivers, more.Receivers...)
		}
	}
	return made, err
}

// share is the price as if one of the receivers were the only one.
func (p *priceFlags) share(i int, build func(toll.Units, toll.Address, toll.Address) (toll.Price, error)) (toll.Price, error) {
	amount, err := toll.ParseUnits(p.amounts[i])
	if err != nil {
		return toll.Price{}, flagError("amount", err)
	}
	receiver, err := toll.ParseAddress(p.receivers[i])
	if err != nil {
		return toll.Price{}, flagError("receiver", err)
	}
	var token toll.Address
	if p.token != "" {
		if token, err = toll.ParseAddress(p.token); err != nil {
			return toll.Price{}, flagError(p.tokenFlag, err)
		}
	}
	return build(amount, receiver, token)
}

func (a *app) priceBuilders() []*cobra.Command {
	free := command("free", "A plan that costs nothing", nil)
	var amount, receiver string
	free.Flags().StringVar(&amount, "amount", "0", "nothing else than 0")
	free.Flags().StringVar(&receiver, "receiver", "", "not used")
	for _, name := range []string{"amount", "receiver"} {
		free.Flags().Lookup(name).Hidden = true // callers pass them to every builder
	}
	free.RunE = func(*cobra.Command, []string) error {
		if amount != "0" {
			return usagef("a free plan has no amount")
		}
		return a.built(toll.PriceFree())
	}
	paidBy := func(use, short, tokenFlag, tokenUsage string, build func(*priceFlags) func(toll.Units, toll.Address, toll.Address) (toll.Price, error)) *cobra.Command {
		p := priceFlags{tokenFlag: tokenFlag}
		c := command(use, short, func(*cobra.Command, []string) error {
			made, err := p.price(build(&p))
			if err != nil {
				return err
			}
			a.warnOfDust(made)
			return a.built(made)
		})
		c.Flags().StringArrayVar(&p.amounts, "amount", nil, "price in base units; with several receivers, once for each")
		c.Flags().StringArrayVar(&p.receivers, "receiver", nil, "address that is paid, once for each amount and in the same order")
		require(c, "amount", "receiver")
		if tokenFlag != "" {
			c.Flags().StringVar(&p.token, tokenFlag, "", tokenUsage)
		}
		if use == "fiat" {
			c.Flags().StringVar(&p.currency, "currency", toll.CurrencyUSD, "USD or EUR")
		}
		return c
	}
	type made = func(toll.Units, toll.Address, toll.Address) (toll.Price, error)
	plain := func(build made) func(*priceFlags) made { return func(*priceFlags) made { return build } }

	fiat := paidBy("fiat", "A price that is paid by card", "", "", func(p *priceFlags) made {
		return func(n toll.Units, to, _ toll.Address) (toll.Price, error) { return toll.PriceFiat(n, to, p.currency) }
	})
	crypto := paidBy("crypto", "A price in a token", "token-address", "token; default the native one", plain(toll.PriceCrypto))
	native := paidBy("native", "A price in the native token", "", "", plain(func(n toll.Units, to, _ toll.Address) (toll.Price, error) {
		return toll.PriceNative(n, to)
	}))
	erc20 := paidBy("erc20", "A price in an ERC-20 token", "token-address", "token", plain(func(n toll.Units, to, token toll.Address) (toll.Price, error) {
		return toll.PriceERC20(n, token, to)
	}))
	require(erc20, "token-address")
	eurc := paidBy("eurc", "A price in EURC", "eurc-address", "address of EURC; default that of the service whose url is set, else that of Base", plain(toll.PriceEURC))
	a.askEURC(eurc)
	payg := paidBy("payg", "A price for each credit, bought request by request", "token-address", "token; default the native one", plain(toll.PricePayAsYouGo))
	return []*cobra.Command{free, fiat, crypto, native, erc20, eurc, payg}
}

// dust is the price in the native token, in base units, below which somebody has counted with the
// six decimals of other tokens.
var dust = new(big.Int).Exp(big.NewInt(10), big.NewInt(12), nil)

// warnOfDust says what a price is that was probably meant in a token with six decimals.
func (a *app) warnOfDust(p toll.Price) {
	total := p.Total()
	if !p.IsCrypto || !p.TokenAddress.IsZero() || total.IsZero() || total.Int().Cmp(dust) >= 0 {
		return
	}
	a.say(
		"warning",
		"%s base units of the native token are %s of it, as it has 18 decimals; a price in USDC is made with: toll price usdc 1.00",
		total,
		toll.FormatAmount(total, 18),
	)
}

func (a *app) creditsBuilders() []*cobra.Command {
	type number struct {
		flag, text string
		into       *toll.Credits
	}
	numbers := func(all ...number) (err error) {
		for _, n := range all {
			if *n.into, err = toll.ParseCredits(n.text); err != nil {
				return flagError(n.flag, err)
			}
		}
		return nil
	}
	var granted, each string
	fixed := command("fixed", "Credits of which every request burns the same", func(*cobra.Command, []string) error {
		var n, per toll.Credits
		if err := numbers(number{"credits-granted", granted, &n}, number{"credits-per-request", each, &per}); err != nil {
			return err
		}
		return a.built(toll.CreditsFixed(n, per))
	})
	fixed.Flags().StringVar(&granted, "credits-granted", "", "credits that an order gives")
	fixed.Flags().StringVar(&each, "credits-per-request", "1", "credits that a request burns")
	require(fixed, "credits-granted")

	var least, most string
	dynamic := command("dynamic", "Credits of which a request burns what it costs", func(*cobra.Command, []string) error {
		var n, low, high toll.Credits
		if err := numbers(number{"credits-granted", granted, &n}, number{"min-credits-per-request", least, &low}, number{"max-credits-per-request", most, &high}); err != nil {
			return err
		}
		if low > high {
			return usagef("--min-credits-per-request is above --max-credits-per-request")
		}
		return a.built(toll.CreditsDynamic(n, low, high))
	})
	dynamic.Flags().StringVar(&granted, "credits-granted", "", "credits that an order gives")
	dynamic.Flags().StringVar(&least, "min-credits-per-request", "1", "least that a request burns")
	dynamic.Flags().StringVar(&most, "max-credits-per-request", "1", "most that a request burns")
	require(dynamic, "credits-granted")

	payg := command("payg", "Credits that are bought request by request", func(*cobra.Command, []string) error { return a.built(toll.CreditsPayAsYouGo()) })

	var duration string
	expirable := command("expirable", "A period in which requests burn nothing", func(*cobra.Command, []string) error {
		secs, err := toll.ParseUnits(duration)
		if err != nil {
			return flagError("duration-of-plan", err)
		}
		return a.built(toll.CreditsExpirable(secs))
	})
	expirable.Long = "A period in which requests burn nothing. A day has 86400 seconds, a week 604800, a month 2629746, a year 31557600."
	expirable.Flags().StringVar(&duration, "duration-of-plan", "", "length of the period in seconds")
	require(expirable, "duration-of-plan")

	forever := command("non-expirable", "A credit that never ends", func(*cobra.Command, []string) error { return a.built(toll.CreditsNonExpirable()) })
	return []*cobra.Command{fixed, dynamic, payg, expirable, forever, a.creditsRedemption(), a.creditsMirror()}
}

func (a *app) creditsRedemption() *cobra.Command {
	var config, kind string
	c := command("redemption-type", "Set the redemption type of a credits configuration", nil)
	c.Flags().StringVar(&config, "credits-config", "", "credits, as JSON")
	c.Flags().StringVar(&kind, "redemption-type", "", "0, 1, 2, 4, fixed or dynamic")
	require(c, "credits-config", "redemption-type")
	c.RunE = func(*cobra.Command, []string) error {
		t, err := toll.ParseRedemption(kind)
		if err != nil {
			return flagError("redemption-type", err)
		}
		change := []jsonMember{{"redemptionType", json.RawMessage(strconv.Itoa(t.Type))}}
		if t.Word != "" {
			change = append(change, jsonMember{"isRedemptionAmountFixed", json.RawMessage(strconv.FormatBool(t.Word == "fixed"))})
		}
		return a.edited(config, change)
	}
	return c
}

func (a *app) creditsMirror() *cobra.Command {
	var config string
	var on bool
	c := command("mirror", "Let burns enter the mirror on the chain, or not", nil)
	c.Flags().StringVar(&config, "credits-config", "", "credits, as JSON")
	c.Flags().BoolVar(&on, "onchain-mirror", true, "whether they do")
	require(c, "credits-config")
	c.RunE = func(*cobra.Command, []string) error {
		return a.edited(config, []jsonMember{{"onchainMirror", json.RawMessage(strconv.FormatBool(on))}})
	}
	return c
}

// edited prints a credits configuration with some members changed. Everything else of it stays as it was written, so that
// a file of any dialect can be changed.
func (a *app) edited(config string, change []jsonMember) error {
	raw, err := a.objectArgument("credits-config", config)
	if err != nil {
		return err
	}
	members, err := membersOf(raw)
	if err != nil {
		return fmt.Errorf("--credits-config: %w", err)
	}
	for _, m := range change {
		members = withMember(members, m)
	}
	return a.configuration(objectOf(members))
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

func objectOf(members []jsonMember) []byte {
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
