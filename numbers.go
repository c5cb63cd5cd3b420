package toll

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Credits is a count of units of use, 0 to 2^63-1. On the wire it is a decimal string; a JSON integer is accepted and read exactly.
type Credits int64

// MaxCredits is the largest balance, price or limit in credits.
const MaxCredits Credits = math.MaxInt64

func badNumber(what, s string) *Error {
	return Errorf(CodeBadNumber, "%s must be a whole number within range, without a sign, fraction, exponent, or leading zero.", what).
		WithDetails("value %s", clip(s))
}

// decimal reports whether s is a decimal number without leading zeros: ^(0|[1-9][0-9]*)$. All numbers in requests use this grammar.
func decimal(s string) bool {
	if s == "" || (s[0] == '0' && len(s) > 1) {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// jsonDigits returns the text of a JSON integer or string, without quotes.
func jsonDigits(b []byte) string {
	if len(b) >= 2 && b[0] == '"' && b[len(b)-1] == '"' {
		return string(b[1 : len(b)-1])
	}
	return string(b)
}

// read sets *into to the parsed text. On an error it leaves *into unchanged.
func read[T any](text string, parse func(string) (T, error), into *T) error {
	v, err := parse(text)
	if err == nil {
		*into = v
	}
	return err
}

// readNumber is [read] for a JSON integer or a decimal string; null leaves *into unchanged.
func readNumber[T any](b []byte, parse func(string) (T, error), into *T) error {
	if string(b) == "null" {
		return nil
	}
	return read(jsonDigits(b), parse, into)
}

func parseInt(what, s string) (int64, error) {
	if decimal(s) {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n, nil
		}
	}
	return 0, badNumber(what, s)
}

// ParseCredits returns the credits in s, or an error with [CodeBadNumber].
func ParseCredits(s string) (Credits, error) {
	n, err := parseInt("An amount of credits", s)
	return Credits(n), err
}

// String returns the decimal text.
func (c Credits) String() string { return strconv.FormatInt(int64(c), 10) }

// Text returns the number and its unit for display: "1 credit", "5 credits".
func (c Credits) Text() string {
	if c == 1 {
		return "1 credit"
	}
	return c.String() + " credits"
}

// Ptr returns a pointer to a copy.
func (c Credits) Ptr() *Credits { return &c }

// MarshalJSON writes a decimal string.
func (c Credits) MarshalJSON() ([]byte, error) { return []byte(`"` + c.String() + `"`), nil }

// UnmarshalJSON takes a decimal string or a JSON integer.
func (c *Credits) UnmarshalJSON(b []byte) error { return readNumber(b, ParseCredits, c) }

// Units is an amount of a token in its base units, 0 to 2^256-1 (6 decimals for USDC, EURC and fiat, 18 for the native
// token). The zero value is 0. On the wire it is a decimal string; a JSON integer is accepted and read exactly.
type Units struct{ n *big.Int }

// ParseUnits returns the units in s, or an error with [CodeBadNumber].
func ParseUnits(s string) (Units, error) {
	if !isUint256(s) {
		return Units{}, badNumber("An amount of token units", s)
	}
	n, _ := new(big.Int).SetString(s, 10)
	return Units{n}, nil
}

// UnitsOf returns n units; a negative n is 0.
func UnitsOf(n int64) Units { return Units{big.NewInt(max(n, 0))} }

// Int returns a copy as a big integer.
func (u Units) Int() *big.Int {
	if u.n == nil {
		return new(big.Int)
	}
	return new(big.Int).Set(u.n)
}

// IsZero reports whether u is 0.
func (u Units) IsZero() bool { return u.n == nil || u.n.Sign() == 0 }

// Cmp compares u and v: -1, 0 or 1.
func (u Units) Cmp(v Units) int { return u.Int().Cmp(v.Int()) }

// Add returns u + v, and false when the sum is 2^256 or more.
func (u Units) Add(v Units) (Units, bool) {
	s := new(big.Int).Add(u.Int(), v.Int())
	return Units{s}, s.Cmp(maxUint256) <= 0
}

// String returns the decimal text.
func (u Units) String() string {
	if u.n == nil {
		return "0"
	}
	return u.n.String()
}

// MarshalJSON writes a decimal string.
func (u Units) MarshalJSON() ([]byte, error) { return []byte(`"` + u.String() + `"`), nil }

// UnmarshalJSON takes a decimal string or a JSON integer.
func (u *Units) UnmarshalJSON(b []byte) error { return readNumber(b, ParseUnits, u) }

// Int is a whole number 0 to 2^63-1. It is a JSON number in responses; requests may send a number or a decimal string.
type Int int64

// UnmarshalJSON takes a JSON integer or a decimal string.
func (i *Int) UnmarshalJSON(b []byte) error {
	return readNumber(b, func(s string) (Int, error) {
		n, err := parseInt("The value", s)
		return Int(n), err
	}, i)
}

// ExactInt holds the digits of a whole number of any size, written as a JSON integer in responses whose format is frozen.
// Readers must not parse it as a float.
type ExactInt string

// MarshalJSON writes the digits.
func (i ExactInt) MarshalJSON() ([]byte, error) {
	if !decimal(string(i)) {
		return nil, badNumber("The value", string(i))
	}
	return []byte(i), nil
}

// UnmarshalJSON takes a JSON integer or a decimal string.
func (i *ExactInt) UnmarshalJSON(b []byte) error {
	return readNumber(b, func(s string) (ExactInt, error) {
		if !decimal(s) {
			return "", badNumber("The value", s)
		}
		return ExactInt(s), nil
	}, i)
}

// Bool is a boolean that also accepts the strings "true" and "false".
type Bool bool

// UnmarshalJSON takes true, false, "true" and "false".
func (v *Bool) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "null":
	case "true", `"true"`:
		*v = true
	case "false", `"false"`:
		*v = false
	default:
		return Errorf(CodeBadRequest, "The value must be true or false.")
	}
	return nil
}

// fixed inserts a decimal point before the last decimals digits of s: "12345" with 2 decimals is "123.45".
func fixed(s string, decimals int) string {
	s = strings.Repeat("0", max(decimals+1-len(s), 0)) + s
	return s[:len(s)-decimals] + "." + s[len(s)-decimals:]
}
