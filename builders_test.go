package toll_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

const eurcL = "0x60a3E35Cc302bFA44Cb288Bc5a4F316Fdb1adb42"

func encoded(t *testing.T, v any) string {
	t.Helper()
	b := must.Get(json.Marshal(v))(t)
	return string(b)
}

func TestBuilders_Price(t *testing.T) {
	to, me := toll.MustAddress(alice), `["`+alice+`"]`
	token := toll.MustAddress(usdc)
	two := toll.UnitsOf(2_000_000)
	type made struct {
		price toll.Price
		err   error
	}
	of := func(p toll.Price, err error) made { return made{p, err} }
	for name, c := range map[string]struct {
		got  made
		want string
	}{
		"free":             {made{price: toll.PriceFree()}, stored(zero, `[]`, `[]`, zero, "true", "")},
		"fiat":             {of(toll.PriceFiat(two, to, "")), stored(zero, `["2000000"]`, me, zero, "false", "USD")},
		"fiat eur":         {of(toll.PriceFiat(two, to, "eur")), stored(zero, `["2000000"]`, me, zero, "false", "EUR")},
		"crypto":           {of(toll.PriceCrypto(two, to, token)), stored(usdc, `["2000000"]`, me, zero, "true", "")},
		"crypto native":    {of(toll.PriceCrypto(two, to, toll.Address{})), stored(zero, `["2000000"]`, me, zero, "true", "")},
		"native":           {of(toll.PriceNative(two, to)), stored(zero, `["2000000"]`, me, zero, "true", "")},
		"erc20":            {of(toll.PriceERC20(two, token, to)), stored(usdc, `["2000000"]`, me, zero, "true", "")},
		"eurc":             {of(toll.PriceEURC(two, to, toll.Address{})), stored(eurcL, `["2000000"]`, me, zero, "true", "EURC")},
		"eurc sandbox":     {of(toll.PriceEURC(two, to, toll.EURCSandbox)), stored(eurc, `["2000000"]`, me, zero, "true", "EURC")},
		"payg":             {of(toll.PricePayAsYouGo(two, to, token)), stored(usdc, `["2000000"]`, me, payg, "true", "")},
		"payg native":      {of(toll.PricePayAsYouGo(two, to, toll.Address{})), stored(zero, `["2000000"]`, me, payg, "true", "")},
		"largest amount":   {of(toll.PriceNative(units(t, maxUint256), to)), stored(zero, `["`+maxUint256+`"]`, me, zero, "true", "")},
		"amount not given": {of(toll.PriceNative(toll.Units{}, to)), stored(zero, `["0"]`, me, zero, "true", "")},
	} {
		if c.got.err != nil {
			t.Errorf("%s: %v", name, c.got.err)
			continue
		}
		if got := encoded(t, c.got.price); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", name, got, c.want)
		}
	}
	for name, c := range map[string]struct {
		got  made
		path string
	}{
		"fiat, other currency": {of(toll.PriceFiat(two, to, "CHF")), "currency"},
		"fiat, nobody":         {of(toll.PriceFiat(two, toll.Address{}, "USD")), "receivers[0]"},
		"crypto, nobody":       {of(toll.PriceCrypto(two, toll.Address{}, token)), "receivers[0]"},
		"native, nobody":       {of(toll.PriceNative(two, toll.Address{})), "receivers[0]"},
		"erc20, nobody":        {of(toll.PriceERC20(two, token, toll.Address{})), "receivers[0]"},
		"erc20, no token":      {of(toll.PriceERC20(two, toll.Address{}, to)), "tokenAddress"},
		"eurc, nobody":         {of(toll.PriceEURC(two, toll.Address{}, toll.Address{})), "receivers[0]"},
		"payg, nobody":         {of(toll.PricePayAsYouGo(two, toll.Address{}, token)), "receivers[0]"},
	} {
		var e *toll.Error
		if !errors.As(c.got.err, &e) || e.Code != toll.CodeBadPriceConfig || e.Params["path"] != c.path {
			t.Errorf("%s: %v", name, c.got.err)
		}
		if got := encoded(t, c.got.price); got != encoded(t, toll.Price{}) {
			t.Errorf("%s: an error came with %s", name, got)
		}
	}
}

func TestBuilders_Credits(t *testing.T) {
	cfg := func(fixed, kind, mirror, secs, amount, least, most string) string {
		return `{"isRedemptionAmountFixed":` + fixed + `,"redemptionType":` + kind + `,"onchainMirror":` + mirror + `,"durationSecs":"` + secs +
			`","amount":"` + amount + `","minAmount":"` + least + `","maxAmount":"` + most + `"}`
	}
	redemption := func(s string) toll.RedemptionInput {
		return must.Get(toll.ParseRedemption(s))(t)
	}
	fixed, dynamic := toll.CreditsFixed(100, 5), toll.CreditsDynamic(100, 1, 10)
	for name, c := range map[string]struct {
		got  toll.CreditsConfig
		want string
	}{
		"fixed":           {fixed, cfg("true", "4", "false", "0", "100", "5", "5")},
		"dynamic":         {dynamic, cfg("false", "4", "false", "0", "100", "1", "10")},
		"dynamic, equal":  {toll.CreditsDynamic(100, 1, 1), cfg("false", "4", "false", "0", "100", "1", "1")},
		"payg":            {toll.CreditsPayAsYouGo(), cfg("false", "4", "false", "0", "1", "1", "1")},
		"expirable":       {toll.CreditsExpirable(toll.UnitsOf(toll.MonthSecs)), cfg("false", "4", "false", "2629746", "1", "1", "1")},
		"expirable, long": {toll.CreditsExpirable(units(t, maxUint256)), cfg("false", "4", "false", maxUint256, "1", "1", "1")},
		"nonExpirable":    {toll.CreditsNonExpirable(), cfg("false", "4", "false", "0", "1", "1", "1")},
		"type 1":          {fixed.WithRedemptionType(redemption("1")), cfg("true", "1", "false", "0", "100", "5", "5")},
		"type 0":          {dynamic.WithRedemptionType(redemption("0")), cfg("false", "0", "false", "0", "100", "1", "10")},
		"type fixed":      {dynamic.WithRedemptionType(redemption("Fixed")), cfg("true", "4", "false", "0", "100", "1", "10")},
		"type dynamic":    {fixed.WithRedemptionType(redemption("dynamic")), cfg("false", "4", "false", "0", "100", "5", "5")},
		"mirror":          {fixed.WithOnchainMirror(true), cfg("true", "4", "true", "0", "100", "5", "5")},
		"mirror off":      {fixed.WithOnchainMirror(true).WithOnchainMirror(false), cfg("true", "4", "false", "0", "100", "5", "5")},
	} {
		if got := encoded(t, c.got); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", name, got, c.want)
		}
	}
	for _, s := range []string{"", "3", "5", "-1", "04", "null", "other", `"4"`, "4.0"} {
		if r, err := toll.ParseRedemption(s); err == nil {
			t.Errorf("%q is taken as %+v", s, r)
		}
	}
}

// What the builders make goes through the normaliser unchanged, but for the currency of a known token.
func TestBuilders_Normalized(t *testing.T) {
	to := toll.MustAddress(bob)
	crypto, _ := toll.PriceCrypto(toll.UnitsOf(1), to, toll.MustAddress(bob))
	payAsYouGo, _ := toll.PricePayAsYouGo(toll.UnitsOf(5), to, toll.Address{})
	fiat, _ := toll.PriceFiat(toll.UnitsOf(2_000_000), to, toll.CurrencyEUR)
	eur, _ := toll.PriceEURC(toll.UnitsOf(1), to, toll.Address{})
	for _, p := range []toll.Price{toll.PriceFree(), crypto, payAsYouGo, fiat, eur} {
		got, _, err := normalizePrice(t, encoded(t, p))
		if err != nil || encoded(t, got) != encoded(t, p) {
			t.Errorf("%s becomes %s (%v)", encoded(t, p), encoded(t, got), err)
		}
	}
	for _, c := range []toll.CreditsConfig{
		toll.CreditsFixed(100, 5), toll.CreditsDynamic(100, 1, 10), toll.CreditsPayAsYouGo(), toll.CreditsExpirable(toll.UnitsOf(60)),
		toll.CreditsNonExpirable(), toll.CreditsFixed(7, 1).WithOnchainMirror(true),
	} {
		var in toll.CreditsInput
		must.Do(t, json.Unmarshal([]byte(encoded(t, c)), &in))
		got, _, err := toll.NormalizeCredits(in, nil)
		if err != nil || encoded(t, got) != encoded(t, c) {
			t.Errorf("%s becomes %s (%v)", encoded(t, c), encoded(t, got), err)
		}
	}
}

func units(t *testing.T, s string) toll.Units {
	t.Helper()
	return must.Get(toll.ParseUnits(s))(t)
}
