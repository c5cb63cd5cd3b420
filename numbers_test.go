package toll_test

import (
	"math"
	"strings"
	"testing"
	"time"

	json "github.com/go-json-experiment/json"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// badNumbers is the table of threat T41: each is refused wherever a number of credits or units stands.
var badNumbers = []string{
	`"+5"`, `"05"`, `"00"`, `" 5"`, `"5 "`, `"5.0"`, `5.0`, `"1e3"`, `1e3`, `1E3`, `5.5`, `"0x5"`, `"-1"`, `-1`, `-0`, `"٥"`, `"５"`, `""`, `" "`,
	`"1,000"`, `"1_000"`, `"5\n"`, `"\u0035"`, `"Infinity"`, `"NaN"`, `true`, `{}`, `[]`, `"` + strings.Repeat("9", 100) + `"`, strings.Repeat("9", 100),
}

func TestCredits_Text(t *testing.T) {
	for n, want := range map[toll.Credits]string{0: "0 credits", 1: "1 credit", 2: "2 credits", 11: "11 credits", math.MaxInt64: "9223372036854775807 credits"} {
		if got := n.Text(); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

// T41
func TestNumberSyntax(t *testing.T) {
	for _, in := range badNumbers {
		body := []byte(`{"credits":` + in + `}`)
		var c struct {
			Credits toll.Credits `json:"credits"`
		}
		wantCode(t, json.Unmarshal(body, &c), toll.CodeBadNumber)
		var u struct {
			Units toll.Units `json:"credits"`
		}
		wantCode(t, json.Unmarshal(body, &u), toll.CodeBadNumber)
		var i struct {
			Int toll.Int `json:"credits"`
		}
		wantCode(t, json.Unmarshal(body, &i), toll.CodeBadNumber)
		if c.Credits != 0 || !u.Units.IsZero() || i.Int != 0 {
			t.Errorf("%s left a value behind", in)
		}
	}
	for _, in := range []string{"0", "5", "9007199254740993", "9223372036854775807"} {
		for _, text := range []string{in, `"` + in + `"`} {
			var c toll.Credits
			if err := json.Unmarshal([]byte(text), &c); err != nil || c.String() != in {
				t.Errorf("credits %s became %s, %v", text, c, err)
			}
			var u toll.Units
			if err := json.Unmarshal([]byte(text), &u); err != nil || u.String() != in {
				t.Errorf("units %s became %s, %v", text, u, err)
			}
		}
	}
	for _, text := range []string{maxUint256, `"` + maxUint256 + `"`} {
		var u toll.Units
		if err := json.Unmarshal([]byte(text), &u); err != nil || u.String() != maxUint256 {
			t.Errorf("units %s became %s, %v", text, u, err)
		}
		if b, _ := json.Marshal(u); string(b) != `"`+maxUint256+`"` {
			t.Errorf("written as %s", b)
		}
	}
}

// A number that a registration needs cannot be null or an empty text.
// T41
func TestNumbersInBodies(t *testing.T) {
	bodies := map[string]string{
		"amount":  `{"name":"p","priceConfig":{},"creditsConfig":{"amount":%}}`,
		"min":     `{"name":"p","priceConfig":{},"creditsConfig":{"minAmount":%}}`,
		"file":    `{"name":"p","priceConfig":{},"creditsConfig":{"maxCreditsToCharge":%}}`,
		"price":   `{"name":"p","priceConfig":{"amounts":[%]},"creditsConfig":{}}`,
		"granted": `{"name":"p","priceConfig":{"amountOfCredits":%},"creditsConfig":{}}`,
	}
	for name, body := range bodies {
		for _, in := range badNumbers {
			_, err := registerPlan(strings.ReplaceAll(body, "%", in))
			wantCode(t, err, toll.CodeBadNumber)
		}
		if name == "price" {
			_, err := registerPlan(strings.ReplaceAll(body, "%", "null"))
			wantCode(t, err, toll.CodeBadRequest)
		}
	}
}

// T42
func TestNumbers_Overflow(t *testing.T) {
	for _, in := range []string{"9223372036854775808", "18446744073709551616"} {
		_, err := toll.ParseCredits(in)
		wantCode(t, err, toll.CodeBadNumber)
	}
	if c, err := toll.ParseCredits("9223372036854775807"); err != nil || c != toll.MaxCredits {
		t.Errorf("2^63-1 became %d, %v", c, err)
	}
	_, err := toll.ParseUnits(twoTo256)
	wantCode(t, err, toll.CodeBadNumber)
	most := must.Get(toll.ParseUnits(maxUint256))(t)
	if _, ok := most.Add(toll.UnitsOf(0)); !ok {
		t.Error("2^256-1 + 0 overflows")
	}
	if _, ok := most.Add(toll.UnitsOf(1)); ok {
		t.Error("2^256-1 + 1 does not overflow")
	}

	if u := toll.UnitsOf(-1); !u.IsZero() || u.String() != "0" {
		t.Errorf("-1 units are %s", u)
	}
	most.Int().SetInt64(1) // a copy
	if most.String() != maxUint256 {
		t.Errorf("2^256-1 became %s", most)
	}
	_, err = registerPlan(`{"name":"p","priceConfig":{"amounts":["` + maxUint256 + `","1"],"receivers":["` + alice + `","` + alice + `"]},"creditsConfig":{}}`)
	wantCode(t, err, toll.CodeBadPriceConfig)
	payg := `{"name":"p","priceConfig":{"amounts":["` + maxUint256 + `"],"templateAddress":"` + toll.PayAsYouGoTemplate.String() + `"},"creditsConfig":{"minAmount":1,"maxAmount":%}}`
	if _, err = registerPlan(strings.ReplaceAll(payg, "%", "1")); err != nil {
		t.Error(err)
	}
	_, err = registerPlan(strings.ReplaceAll(payg, "%", "2"))
	wantCode(t, err, toll.CodeBadNumber)
}

func TestLotEnd(t *testing.T) {
	now := time.Date(2026, 11, 21, 1, 52, 18, 322_000_000, time.UTC)
	last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	most, _ := toll.ParseUnits(maxUint256)
	for _, c := range []struct {
		secs toll.Units
		want time.Time
	}{
		{toll.UnitsOf(0), time.Time{}},
		{toll.UnitsOf(toll.DaySecs), now.Add(24 * time.Hour)},
		{toll.UnitsOf(300 * toll.YearSecs), time.Unix(now.Unix()+300*toll.YearSecs, 322_000_000).UTC()}, // more than a time.Duration holds
		{toll.UnitsOf(math.MaxInt64), last},
		{most, last},
	} {
		if got := toll.LotEnd(now, c.secs); !got.Equal(c.want) {
			t.Errorf("LotEnd of %s s is %v, want %v", c.secs, got, c.want)
		}
	}
}

// T49
func TestMoneyText(t *testing.T) {
	for _, c := range []struct {
		in       string
		decimals int
		want     string // "" for an error
	}{
		{"0.1", 6, "100000"}, {"0.2", 6, "200000"}, {"1.005", 6, "1005000"}, {"100", 6, "100000000"}, {"0", 6, "0"}, {"0.000001", 6, "1"},
		{"1.1234567", 6, ""}, {"0.0000001", 6, ""}, {"1.0000000", 6, ""}, {"$1,000", 6, ""}, {"1,000", 6, ""}, {"1e3", 6, ""}, {"$1.50", 6, ""},
		{"33.33%", 6, ""}, {"1.", 6, ""}, {".5", 6, ""}, {"", 6, ""}, {".", 6, ""}, {"-1", 6, ""}, {"+1", 6, ""}, {" 1", 6, ""}, {"1 ", 6, ""},
		{"01", 6, ""}, {"1.2.3", 6, ""}, {"1.2e3", 6, ""}, {"٥", 6, ""}, {"1.٥", 6, ""}, {"1.5", 0, ""}, {"5", 0, "5"},
		{"1", 18, "1000000000000000000"}, {"0.1", 18, "100000000000000000"}, {"0.000000000000000001", 18, "1"},
		{strings.Repeat("9", 78), 0, ""}, {strings.Repeat("9", 200), 0, ""},
	} {
		u, err := toll.ParseAmount(c.in, c.decimals)
		if c.want == "" {
			wantCode(t, err, toll.CodeBadNumber)
		} else if err != nil || u.String() != c.want {
			t.Errorf("ParseAmount(%q, %d) = %s, %v, want %s", c.in, c.decimals, u, err, c.want)
		}
	}
	a, _ := toll.ParseAmount("0.1", 6)
	b, _ := toll.ParseAmount("0.2", 6)
	if sum, _ := a.Add(b); toll.FormatAmount(sum, 6) != "0.30" {
		t.Errorf("0.1 + 0.2 is %s", toll.FormatAmount(sum, 6))
	}
	for cents, want := range map[int64]string{1: "10000", 100: "1000000", 99_999_999: "999999990000", math.MaxInt64: "92233720368547758070000"} {
		if got := toll.UnitsOfCents(cents); got.String() != want {
			t.Errorf("%d cents are %s units, want %s", cents, got, want)
		}
	}
	for in, want := range map[string]string{"0": "0.00", "1": "0.000001", "1005000": "1.005", "2000000": "2.00", "2500000": "2.50"} {
		u, _ := toll.ParseUnits(in)
		if got := toll.FormatAmount(u, 6); got != want {
			t.Errorf("%s units are %s, want %s", in, got, want)
		}
	}
}

func TestBool(t *testing.T) {
	for in, want := range map[string]bool{"true": true, `"true"`: true, "false": false, `"false"`: false} {
		v := toll.Bool(!want)
		if err := json.Unmarshal([]byte(in), &v); err != nil || bool(v) != want {
			t.Errorf("%s became %v, %v", in, v, err)
		}
	}
	for _, in := range []string{"1", `"yes"`, `"True"`, `""`, "[]"} {
		var v toll.Bool
		wantCode(t, json.Unmarshal([]byte(in), &v), toll.CodeBadRequest)
	}
}
