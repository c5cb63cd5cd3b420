package gateway_test

import (
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/gateway"
)

const otherToken = "0x00000000000000000000000000000000000000bb"

// TestAmounts is the table of design 6.
func TestAmounts(t *testing.T) {
	eurc := toll.Sandbox.EURC().String()
	kinds := []struct{ name, pricing, token string }{
		{"native", "crypto", ""}, {"usdc", "erc20", ""}, {"eurc", "", eurc}, {"other", "", otherToken}, {"card", "fiat", ""},
	}
	const no = "refused"
	for text, want := range map[string][5]string{
		"1500000":                     {"1500000", "1500000", "1500000", "1500000", "1500000"},
		"0":                           {"0", "0", "0", "0", "0"},
		"$1.50":                       {no, "1500000", "1500000", no, "1500000"},
		"$1":                          {no, "1000000", "1000000", no, "1000000"},
		"2.00":                        {no, "2000000", "2000000", no, "2000000"},
		"1.5":                         {no, "1500000", "1500000", no, "1500000"},
		"0.0000001":                   {no, no, no, no, no},
		"$0.000001":                   {no, "1", "1", no, "1"},
		"$0.0000001":                  {no, no, no, no, no},
		"0.001 ETH":                   {"1000000000000000", no, no, no, no},
		"1 ETH":                       {"1000000000000000000", no, no, no, no},
		"0.000000000000000001 ETH":    {"1", no, no, no, no},
		"0.0000000000000000001 ETH":   {no, no, no, no, no},
		strings.Repeat("9", 78):       {no, no, no, no, no}, // above 2^256
		"$" + strings.Repeat("9", 78): {no, no, no, no, no},
		"115792089237316195423570985008687907853269984665640564039457584007913129639935": {
			"115792089237316195423570985008687907853269984665640564039457584007913129639935",
			"115792089237316195423570985008687907853269984665640564039457584007913129639935",
			"115792089237316195423570985008687907853269984665640564039457584007913129639935",
			"115792089237316195423570985008687907853269984665640564039457584007913129639935",
			"115792089237316195423570985008687907853269984665640564039457584007913129639935",
		},
	} {
		for i, k := range kinds {
			got, _, err := gateway.ReadAmount(k.pricing, k.token, toll.Sandbox, text)
			if err != nil {
				got = no
			}
			if got != want[i] {
				t.Errorf("%s as %s: %s (%v), want %s", text, k.name, got, err, want[i])
			}
		}
	}
	for _, text := range []string{
		"", "1.", ".5", "01.5", "-1.5", "1.5e2", "1.5.0", "1,000.00", "1.5$", "-1", "+1", "1e6", "1,000", "$1,000", "$-1", "-$1", "$1e2", "$1.", "$.5", "$01", "01", "$ 1", "$", "1.5 USDC",
		"0.001ETH", "0.001 eth", "0.001  ETH", " ETH", "-0.1 ETH", "1e-3 ETH", "1,0 ETH", "$1 ETH", "$$1", "0x10", "１", "1 ", " 1",
		"1_000", "NaN", "inf", "$1.5$", "1/2", "\u00a01", "1\n",
	} {
		for _, k := range kinds {
			if got, _, err := gateway.ReadAmount(k.pricing, k.token, toll.Sandbox, text); err == nil {
				t.Errorf("%q as %s is %s", text, k.name, got)
			}
		}
	}
}

// TestAmounts_Hint: a refusal says what to write.
func TestAmounts_Hint(t *testing.T) {
	for _, k := range []struct{ pricing, token, text, want string }{
		{"crypto", "", "$1.50", `"0.001 ETH"`},
		{"crypto", "", "$1.50", "pricingType to erc20"},
		{"crypto", "", "1.5", `"0.001 ETH"`},
		{"erc20", "", "1,5", `"1.50"`},
		{"fiat", "", "0.001 ETH", `"$1.50"`},
		{"erc20", otherToken, "$1", "base units"},
	} {
		if _, _, err := gateway.ReadAmount(k.pricing, k.token, toll.Sandbox, k.text); err == nil || !strings.Contains(err.Error(), k.want) {
			t.Errorf("%s %s: %v, want %s", k.pricing, k.text, err, k.want)
		}
	}
}

func TestPricing(t *testing.T) {
	zero := toll.Address{}.String()
	for _, k := range []struct {
		pricing, token string
		receivers      int
		amounts        string // with blanks between
		want           string // "" is refused
	}{
		{"", "", 0, "1000000000000000", "0.001 ETH"},
		{"", zero, 0, "1000000000000000", "0.001 ETH"},
		{"crypto", "", 1, "1000000000000000", "0.001 ETH"},
		{"", toll.Sandbox.USDC().String(), 0, "$1.50", "1.50 USDC"},
		{"", toll.Live.USDC().String(), 0, "$1.50", "1.50 USDC"},
		{"erc20", "", 2, "$1.50 $0.50", "2.00 USDC"},
		{"erc20", otherToken, 1, "12", "12 base units of " + toll.MustAddress(otherToken).String()},
		{"fiat", "", 1, "$5.00", "5.00 USD"},
		{"fiat", "", 1, "5000000", "5.00 USD"},
		{"erc20", "", 1, "0", "free"},
		{"fiat", "", 1, "2.00", "2.00 USD"},
		{"erc20", "", 2, "$1.50 0.50", "2.00 USDC"},

		{"fiat", "", 1, "$0.99", ""},
		{"fiat", "", 1, "$1.001", ""},
		{"fiat", "", 1, "$1000000", ""},
		{"fiat", "", 1, "0", ""},
		{"fiat", otherToken, 1, "$5", ""},
		{"crypto", otherToken, 1, "5", ""},
		{"erc20", zero, 1, "5", ""},
		{"erc20", "0x12", 1, "5", ""},
		{"erc20", "", 0, "$1 $2", ""},
		{"erc20", "", 1, "$1 $2", ""},
		{"erc20", "", 2, "$1", ""},
		{"erc20", "", 2, "1.5 500", ""},
		{"erc20", "", 2, "$1 500", ""}, // "$1,500" as a list with commas
		{"erc20", "", 2, "$1 $0", ""},
		{"erc20", "", 11, strings.TrimSpace(strings.Repeat("$1 ", 11)), ""},
	} {
		got, err := gateway.ReadPrice(k.pricing, k.token, k.receivers, strings.Fields(k.amounts)...)
		if got != k.want || (err == nil) != (k.want != "") {
			t.Errorf("%s %s %s for %d: %q, %v; want %q", k.pricing, k.token, k.amounts, k.receivers, got, err, k.want)
		}
	}
}

// FuzzAmounts: what is read is written so that it reads the same again, in every currency.
func FuzzAmounts(f *testing.F) {
	for _, text := range []string{"1500000", "$1.50", "0.001 ETH", "1.5", "$0.000001", "-1", "1e9", "1,000", "$1.1234567"} {
		for kind := range byte(5) {
			f.Add(text, kind)
		}
	}
	f.Fuzz(func(t *testing.T, text string, kind byte) {
		k := []struct{ pricing, token string }{
			{"crypto", ""}, {"erc20", ""}, {"fiat", ""}, {"", otherToken}, {"", toll.Sandbox.EURC().String()},
		}[kind%5]
		units, spelled, err := gateway.ReadAmount(k.pricing, k.token, toll.Sandbox, text)
		if err != nil {
			return
		}
		again, same, err := gateway.ReadAmount(k.pricing, k.token, toll.Sandbox, spelled)
		if err != nil || again != units || same != spelled {
			t.Errorf("%q is %s, written %q, which is %s (%v)", text, units, spelled, again, err)
		}
		if strings.ContainsAny(text, "+-eE,") && !strings.HasSuffix(text, "ETH") {
			t.Errorf("%q is %s", text, units)
		}
	})
}
