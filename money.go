package toll

import (
	"cmp"
	"math/big"
	"strconv"
	"strings"
)

func index(member string, i int) string { return member + "[" + strconv.Itoa(i) + "]" }

// ParseAmount returns the base units of an amount in whole units of a token with this many decimals: "1.005" with 6
// decimals is 1005000. Too many fraction digits, a sign, a currency symbol, a thousands separator, an exponent, or a
// leading zero is an error with [CodeBadNumber].
func ParseAmount(s string, decimals int) (Units, error) {
	whole, frac, dot := strings.Cut(s, ".")
	if !decimal(whole) || (dot && frac == "") || len(frac) > decimals || len(s) > 128 {
		return Units{}, badNumber("An amount of money", s)
	}
	for i := range len(frac) {
		if frac[i] < '0' || frac[i] > '9' {
			return Units{}, badNumber("An amount of money", s)
		}
	}
	digits := strings.TrimLeft(whole+frac+strings.Repeat("0", decimals-len(frac)), "0")
	digits = cmp.Or(digits, "0")
	return ParseUnits(digits)
}

// FormatAmount returns base units as an exact decimal amount in whole units, with at least two fraction digits. decimals,
// at least 2, is the number of decimals of the token: 1005000 with 6 is "1.005", 2000000 is "2.00".
func FormatAmount(u Units, decimals int) string {
	s := fixed(u.Int().String(), decimals)
	for keep := strings.IndexByte(s, '.') + 3; len(s) > keep && s[len(s)-1] == '0'; {
		s = s[:len(s)-1]
	}
	return s
}

// UnitsOfCents returns cents of a currency as base units of 6 decimals; negative cents are 0.
func UnitsOfCents(cents int64) Units {
	return Units{new(big.Int).Mul(UnitsOf(cents).Int(), big.NewInt(fiatCent))}
}
