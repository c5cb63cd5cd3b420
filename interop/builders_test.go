package interop

import (
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// builderCase is a call of a builder with random arguments: decimal numbers, addresses or words.
// Want is what this module builds, null where it refuses the arguments.
type builderCase struct {
	Make string   `json:"make"`
	Args []string `json:"args"`
	Want any      `json:"want"`
}

// builderCases writes calls of all builders to a file, which it returns. The suites of the other
// languages read it (TOLL_BUILDERS) and must build the same.
func builderCases(t *testing.T) string {
	t.Helper()
	var cases []builderCase
	price := func(name string) func(p toll.Price, err error, args ...string) {
		return func(p toll.Price, err error, args ...string) {
			c := builderCase{Make: name, Args: args}
			if err == nil {
				c.Want = p
			}
			cases = append(cases, c)
		}
	}
	credits := func(name string, want toll.CreditsConfig, args ...string) {
		cases = append(cases, builderCase{name, args, want})
	}
	for range 30 {
		n, to, token := randomUnits(t), randomAddress(), randomAddress()
		word := []string{"USD", "eur", "Usd", "CHF", "USDC"}[rand.IntN(5)]
		p, err := toll.PriceFiat(n, to, word)
		price("fiat")(p, err, n.String(), to.String(), word)
		p, err = toll.PriceCrypto(n, to, token)
		price("crypto")(p, err, n.String(), to.String(), token.String())
		p, err = toll.PriceNative(n, to)
		price("native")(p, err, n.String(), to.String())
		p, err = toll.PriceERC20(n, token, to)
		price("erc20")(p, err, n.String(), token.String(), to.String())
		p, err = toll.PriceEURC(n, to, token)
		price("eurc")(p, err, n.String(), to.String(), token.String())
		p, err = toll.PricePayAsYouGo(n, to, token)
		price("payg")(p, err, n.String(), to.String(), token.String())

		granted, least, most := randomCredits(), randomCredits(), randomCredits()
		credits("fixed", toll.CreditsFixed(granted, least), granted.String(), least.String())
		dynamic := toll.CreditsDynamic(granted, least, most)
		args := []string{granted.String(), least.String(), most.String()}
		credits("dynamic", dynamic, args...)
		credits("expirable", toll.CreditsExpirable(n), n.String())
		on := rand.IntN(2) == 1
		credits("mirror", dynamic.WithOnchainMirror(on), append(args, strconv.FormatBool(on))...)
		kind := []string{"0", "1", "2", "4", "fixed", "dynamic"}[rand.IntN(6)]
		r := must.Get(toll.ParseRedemption(kind))(t)
		credits("redemption", dynamic.WithRedemptionType(r), append(args, kind)...)
	}
	price("free")(toll.PriceFree(), nil)
	credits("credits payg", toll.CreditsPayAsYouGo())
	credits("non-expirable", toll.CreditsNonExpirable())
	text := must.Get(json.Marshal(cases))(t)
	file := filepath.Join(t.TempDir(), "builders.json")
	must.Do(t, os.WriteFile(file, text, 0o600))
	return file
}

// randomAddress returns the zero address now and then.
func randomAddress() (a toll.Address) {
	if rand.IntN(5) == 0 {
		return a
	}
	for i := range a {
		a[i] = byte(rand.Uint32())
	}
	return a
}

// randomUnits returns a number of any length up to the largest.
func randomUnits(t *testing.T) toll.Units {
	t.Helper()
	n := new(big.Int)
	for range rand.IntN(5) {
		n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(rand.Uint64()))
	}
	return must.Get(toll.ParseUnits(n.String()))(t)
}

func randomCredits() toll.Credits { return 1 + toll.Credits(rand.Int64()>>rand.IntN(63)) }
