package x402

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
)

// Margin is a percentage of 0 to 10 in units of 0.0001: 25,000 is 2.5 percent.
type Margin int64

const (
	marginDecimals = 4
	marginOne      = 10_000 // one percent
	maxMargin      = 10 * marginOne
)

// ParseMargin parses 0 to 10 with at most 4 decimals, without sign, exponent or leading zero. Errors: [toll.CodeBadNumber].
func ParseMargin(s string) (Margin, error) {
	bad := toll.Errorf(toll.CodeBadNumber, "A margin must be 0 to 10 percent with at most 4 decimals.").WithDetails("value %s", clip(s))
	whole, fraction, point := strings.Cut(s, ".")
	n, err := toll.ParseCredits(whole)
	if err != nil || len(whole) > 2 || point && fraction == "" || len(fraction) > marginDecimals {
		return 0, bad
	}
	steps := int64(n) * marginOne
	if point {
		for i := range len(fraction) {
			if fraction[i] < '0' || fraction[i] > '9' {
				return 0, bad
			}
		}
		part, err := strconv.ParseInt(fraction+strings.Repeat("0", marginDecimals-len(fraction)), 10, 64)
		if err != nil {
			return 0, bad
		}
		steps += part
	}
	if steps > maxMargin {
		return 0, bad
	}
	return Margin(steps), nil
}

// String returns the shortest decimal text, for example "2.5".
func (m Margin) String() string {
	s := strconv.FormatInt(int64(m)/marginOne, 10)
	part := int64(m) % marginOne
	if part == 0 {
		return s
	}
	digits := strconv.FormatInt(marginOne+part, 10)[1:]
	return s + "." + strings.TrimRight(digits, "0")
}

// MarshalJSON writes a JSON number.
func (m Margin) MarshalJSON() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalJSON accepts a JSON number or its decimal text.
func (m *Margin) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	v, err := ParseMargin(strings.Trim(string(b), `"`))
	if err == nil {
		*m = v
	}
	return err
}

// On returns n credits and their margin, rounded up, at most [toll.MaxCredits].
func (m Margin) On(n toll.Credits) toll.Credits {
	const whole = 100 * marginOne
	sum := new(big.Int).Mul(big.NewInt(int64(n)), big.NewInt(whole+int64(m)))
	sum.Add(sum, big.NewInt(whole-1)).Quo(sum, big.NewInt(whole))
	if !sum.IsInt64() {
		return toll.MaxCredits
	}
	return toll.Credits(sum.Int64())
}
