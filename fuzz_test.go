package toll_test

import (
	"bytes"
	"math/big"
	"strings"
	"testing"

	json "github.com/go-json-experiment/json"

	"github.com/tollhq/toll"
)

// FuzzNumber holds both types of numbers against math/big: what is taken is exact, in range and canonical.
func FuzzNumber(f *testing.F) {
	for _, s := range []string{"0", "5", `"5"`, "9223372036854775807", "9223372036854775808", `"` + maxUint256 + `"`, `"` + twoTo256 + `"`, "1e3", "-0", `"٥"`, "null", `"\u0035"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var u toll.Units
		errU := json.Unmarshal(in, &u)
		var c toll.Credits
		errC := json.Unmarshal(in, &c)
		text := strings.Trim(string(bytes.TrimSpace(in)), `"`)
		if text == "null" {
			return
		}
		want, ok := new(big.Int).SetString(text, 10)
		exact := ok && want.String() == text && want.Sign() >= 0
		if errU == nil && (!exact || u.String() != text || want.BitLen() > 256) {
			t.Fatalf("%q became %s units", in, u)
		}
		if errC == nil && (!exact || c.String() != text || want.BitLen() > 63) {
			t.Fatalf("%q became %s credits", in, c)
		}
		if errC == nil && errU != nil {
			t.Fatalf("%q is credits but not units: %v", in, errU)
		}
	})
}

// FuzzID takes strings only, and whatever it takes is written back the same.
func FuzzID(f *testing.F) {
	for _, s := range []string{`"1"`, `"007"`, "7", `"` + maxUint256 + `"`, `"` + twoTo256 + `"`, `""`, "null", `"\u0031"`, `"1,2"`, `["1","2"]`, `" 1 ,2"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var id toll.PlanID
		if err := json.Unmarshal(in, &id); err == nil && id != "" {
			n, ok := new(big.Int).SetString(string(id), 10)
			if !ok || n.Sign() <= 0 || n.BitLen() > 256 || n.String() != string(id) {
				t.Fatalf("%q became the id %s", in, id)
			}
			if b, _ := json.Marshal(id); !bytes.Equal(b, bytes.TrimSpace(in)) {
				t.Fatalf("%q is written back as %s", in, b)
			}
		}
		var list toll.PlanIDs
		if json.Unmarshal(in, &list) == nil {
			for _, id := range list {
				if _, err := toll.ParsePlanID(string(id)); err != nil {
					t.Fatalf("%q holds the id %q", in, id)
				}
			}
		}
	})
}

// FuzzAddress checks that the printed form parses to the same address, whatever the case of the input.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{`"` + alice + `"`, `"` + strings.ToLower(alice) + `"`, `"0x"`, "5", "null", `"0X70997970C51812dc3A010C7d01b50e0d17dc79C8"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var a toll.Address
		if json.Unmarshal(in, &a) != nil || string(bytes.TrimSpace(in)) == "null" {
			return
		}
		if !strings.EqualFold(`"`+a.String()+`"`, string(bytes.TrimSpace(in))) {
			t.Fatalf("%q became %s", in, a)
		}
		if again, err := toll.ParseAddress(a.String()); err != nil || again != a {
			t.Fatalf("%s is read as %s, %v", a, again, err)
		}
	})
}

// FuzzEndpoints checks that what is taken is written in one shape and read back the same, and that registration keeps only
// urls that a browser cannot run.
func FuzzEndpoints(f *testing.F) {
	for _, s := range []string{
		`[{"POST":"https://a.example/ask"}]`, `[{"verb":"post","url":"/ask/:id"}]`, `[{"GET":"/a","put":"mcp://s/tools/*","x":1}]`, `[{"GET":"javascript:alert(1)"}]`,
		`[{"verb":"GET"}]`, `[{}]`, `[null]`, `[{"GET":null,"POST":"/"}]`, `null`, `{}`, `[{"GET":"//h"}]`, `[{"GET":"/\ud800"}]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var l toll.EndpointList
		if json.Unmarshal(in, &l) != nil || l == nil {
			return
		}
		b, err := json.Marshal(l)
		if err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		var again toll.EndpointList
		if err := json.Unmarshal(b, &again); err != nil || len(again) != len(l) {
			t.Fatalf("%q is written as %s: %v", in, b, err)
		}
		for i := range l {
			if again[i] != l[i] {
				t.Fatalf("%q: endpoint %d is %v, read back %v", in, i, l[i], again[i])
			}
		}
		name := "a"
		a, _, err := toll.AgentInput{Name: &name, Endpoints: l}.Agent(toll.Address{1}, now)
		if err != nil {
			return
		}
		for _, e := range a.API.Endpoints {
			low := strings.ToLower(e.URL)
			if !strings.HasPrefix(low, "http://") && !strings.HasPrefix(low, "https://") && !strings.HasPrefix(low, "mcp://") && (!strings.HasPrefix(low, "/") || strings.HasPrefix(low, "//")) {
				t.Fatalf("%q registers %q", in, e.URL)
			}
		}
	})
}

// FuzzPlanInput registers whatever decodes: no panic, and what is stored keeps the rules of the stored form.
func FuzzPlanInput(f *testing.F) {
	for _, s := range []string{
		`{"name":"p","priceConfig":{},"creditsConfig":{}}`,
		`{"name":"p","priceConfig":{"isCrypto":false,"amounts":["2000000"]},"creditsConfig":{"durationSecs":60}}`,
		`{"name":"p","priceConfig":{"tokenAddress":"` + usdc + `","price":5,"amountOfCredits":9},"creditsConfig":{"subscriptionType":"time","duration":60},"accessLimit":3}`,
		`{"name":"p","priceConfig":{"amounts":["1"],"templateAddress":"` + payg + `"},"creditsConfig":{"redemptionType":"fixed","minAmount":2,"maxAmount":9}}`,
		`{"metadataAttributes":{"name":"p","customData":{}},"priceConfig":{"priceType":"FREE"},"creditsConfig":{"creditsType":"EXPIRABLE","durationOfThePlan":1}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		p, err := registerPlan(string(in))
		if err != nil {
			return
		}
		c := p.Credits
		if c.Amount < 1 || c.MinAmount < 1 || c.MinAmount > c.MaxAmount || c.IsRedemptionAmountFixed && c.MinAmount != c.MaxAmount {
			t.Fatalf("%q: credits %+v", in, c)
		}
		if !p.Kind().Charges() && (c.DurationSecs.IsZero() || c.IsRedemptionAmountFixed) {
			t.Fatalf("%q: a time plan with %+v", in, c)
		}
		if len(p.Price.Amounts) != len(p.Price.Receivers) || len(p.Price.Receivers) > toll.MaxReceivers {
			t.Fatalf("%q: price %+v", in, p.Price)
		}
		if !p.Price.IsCrypto && (p.Price.Total().Cmp(toll.UnitsOf(toll.MinFiatUnits)) < 0 || p.Price.Total().Cmp(toll.UnitsOf(toll.MaxFiatUnits)) > 0) {
			t.Fatalf("%q: fiat price %s", in, p.Price.Text())
		}
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		var again toll.Plan
		if err := json.Unmarshal(b, &again); err != nil || again.ID != p.ID || again.Price.Total().Cmp(p.Price.Total()) != 0 {
			t.Fatalf("%q is read back from %s as %+v, %v", in, b, again, err)
		}
	})
}
