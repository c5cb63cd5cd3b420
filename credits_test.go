package toll_test

import (
	"strings"
	"testing"

	json "github.com/go-json-experiment/json"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

func normalizeCredits(t *testing.T, body string, fileAmount *toll.Credits) (toll.CreditsConfig, toll.AccessLimit, error) {
	t.Helper()
	var in toll.CreditsInput
	must.Do(t, json.Unmarshal([]byte(body), &in))
	return toll.NormalizeCredits(in, fileAmount)
}

// credits is the stored form in one line.
func credits(fixed, redemption, mirror, secs, amount, lo, hi string) string {
	return `{"isRedemptionAmountFixed":` + fixed + `,"redemptionType":` + redemption + `,"onchainMirror":` + mirror + `,"durationSecs":"` + secs +
		`","amount":"` + amount + `","minAmount":"` + lo + `","maxAmount":"` + hi + `"}`
}

func TestNormalizeCredits(t *testing.T) {
	hundred := toll.Credits(100)
	for name, c := range map[string]struct {
		in    string
		file  *toll.Credits
		want  string
		limit toll.AccessLimit
	}{
		"nothing":            {`{}`, nil, credits("true", "4", "false", "0", "1", "1", "1"), "credits"},
		"A fixed":            {`{"creditsType":"FIXED","amount":100,"minAmount":5}`, nil, credits("true", "4", "false", "0", "100", "5", "5"), "credits"},
		"A fixed, duration":  {`{"creditsType":"fixed","durationOfThePlan":60}`, nil, credits("true", "4", "false", "0", "1", "1", "1"), "credits"},
		"A expirable":        {`{"creditsType":"EXPIRABLE","amount":100,"durationOfThePlan":86400}`, nil, credits("false", "4", "false", "86400", "100", "1", "1"), "time"},
		"A by duration":      {`{"durationOfThePlan":"86400"}`, nil, credits("false", "4", "false", "86400", "1", "1", "1"), "time"},
		"A read back":        {`{"creditsType":"FIXED","amount":100,"minAmount":1,"maxAmount":10,"durationOfThePlan":0}`, nil, credits("false", "4", "false", "0", "100", "1", "10"), "credits"},
		"B dynamic":          {`{"isRedemptionAmountFixed":false,"redemptionType":4,"onchainMirror":true,"durationSecs":"0","amount":"100","minAmount":"1","maxAmount":"10"}`, nil, credits("false", "4", "true", "0", "100", "1", "10"), "credits"},
		"B derived flag":     {`{"minAmount":"1","maxAmount":"10"}`, nil, credits("false", "4", "false", "0", "1", "1", "10"), "credits"},
		"B duration alone":   {`{"durationSecs":"60"}`, nil, credits("false", "4", "false", "60", "1", "1", "1"), "time"},
		"B fixed, bounds":    {`{"isRedemptionAmountFixed":true,"minAmount":"2","maxAmount":"2"}`, nil, credits("true", "4", "false", "0", "1", "2", "2"), "credits"},
		"A, most of a file":  {`{"creditsType":"FIXED","minCreditsToCharge":1,"maxCreditsToCharge":5}`, nil, credits("false", "4", "false", "0", "1", "1", "5"), "credits"},
		"B beats A":          {`{"creditsType":"EXPIRABLE","durationOfThePlan":5,"durationSecs":7}`, nil, credits("false", "4", "false", "7", "1", "1", "1"), "time"},
		"B owner role":       {`{"redemptionType":"1"}`, nil, credits("true", "1", "false", "0", "1", "1", "1"), "credits"},
		"B word fixed":       {`{"redemptionType":"fixed","isRedemptionAmountFixed":false,"minAmount":3}`, nil, credits("true", "4", "false", "0", "1", "3", "3"), "credits"},
		"B word dynamic":     {`{"redemptionType":"DYNAMIC"}`, nil, credits("false", "4", "false", "0", "1", "1", "1"), "credits"},
		"file credits":       {`{"subscriptionType":"credits","accessType":"credits","minCreditsToCharge":1,"maxCreditsToCharge":5}`, &hundred, credits("false", "4", "false", "0", "100", "1", "5"), "credits"},
		"file equal bounds":  {`{"accessType":"credits","minCreditsToCharge":2,"maxCreditsToCharge":2}`, &hundred, credits("true", "4", "false", "0", "100", "2", "2"), "credits"},
		"file default max":   {`{"subscriptionType":"credits","minCreditsToCharge":3}`, nil, credits("true", "4", "false", "0", "1", "3", "3"), "credits"},
		"file own amount":    {`{"subscriptionType":"credits","amount":7}`, &hundred, credits("true", "4", "false", "0", "7", "1", "1"), "credits"},
		"file time":          {`{"subscriptionType":"time","accessType":"time","duration":2629746}`, &hundred, credits("false", "4", "false", "2629746", "1", "1", "1"), "time"},
		"file time, no word": {`{"duration":60}`, nil, credits("false", "4", "false", "60", "1", "1", "1"), "time"},
		"A beats file":       {`{"minAmount":4,"minCreditsToCharge":9}`, nil, credits("true", "4", "false", "0", "1", "4", "4"), "credits"},
		"nulls":              {`{"amount":null,"minAmount":null,"creditsType":null,"durationSecs":null,"redemptionType":null}`, nil, credits("true", "4", "false", "0", "1", "1", "1"), "credits"},
		"huge":               {`{"amount":9223372036854775807,"durationSecs":"` + maxUint256 + `"}`, nil, credits("false", "4", "false", maxUint256, "9223372036854775807", "1", "1"), "time"},
	} {
		got, limit, err := normalizeCredits(t, c.in, c.file)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if b, _ := json.Marshal(got); string(b) != c.want || limit != c.limit {
			t.Errorf("%s:\n got %s %s\nwant %s %s", name, b, limit, c.want, c.limit)
		}
	}
	got, _, err := normalizeCredits(t, `{"nftAddress":"`+bob+`"}`, nil)
	if err != nil || got.NFTAddress == nil || *got.NFTAddress != toll.MustAddress(bob) {
		t.Errorf("nftAddress became %v, %v", got.NFTAddress, err)
	}
}

// T44
func TestZeroAndContradictions(t *testing.T) {
	none := toll.Credits(0)
	for name, c := range map[string]struct {
		in   string
		file *toll.Credits
		code toll.Code
		path string
	}{
		"min above max":       {`{"minAmount":"10","maxAmount":"1"}`, nil, toll.CodeBadCreditsConfig, "creditsConfig.maxAmount"},
		"file min above max":  {`{"minCreditsToCharge":10,"maxCreditsToCharge":1}`, nil, toll.CodeBadCreditsConfig, "creditsConfig.maxAmount"},
		"fixed min above max": {`{"isRedemptionAmountFixed":true,"minAmount":"10","maxAmount":"1"}`, nil, toll.CodeBadCreditsConfig, "creditsConfig.maxAmount"},
		"0 per request":       {`{"minAmount":0}`, nil, toll.CodeBadNumber, "creditsConfig.minAmount"},
		"0 at most":           {`{"maxAmount":"0"}`, nil, toll.CodeBadNumber, "creditsConfig.maxAmount"},
		"0 granted":           {`{"amount":"0"}`, nil, toll.CodeBadNumber, "creditsConfig.amount"},
		"0 granted, file":     {`{}`, &none, toll.CodeBadNumber, "creditsConfig.amount"},
		"expirable, no end":   {`{"creditsType":"EXPIRABLE"}`, nil, toll.CodeBadCreditsConfig, "creditsConfig.durationOfThePlan"},
		"expirable, 0":        {`{"creditsType":"EXPIRABLE","durationOfThePlan":0}`, nil, toll.CodeBadCreditsConfig, "creditsConfig.durationOfThePlan"},
		"time without end":    {`{"subscriptionType":"time"}`, nil, toll.CodeBadCreditsConfig, "creditsConfig.duration"},
		"two words":           {`{"subscriptionType":"time","accessType":"credits","duration":60}`, nil, toll.CodeBadCreditsConfig, "creditsConfig.accessType"},
		"time, fixed":         {`{"durationSecs":"60","isRedemptionAmountFixed":true}`, nil, toll.CodeBadCreditsConfig, "creditsConfig.isRedemptionAmountFixed"},
	} {
		_, _, err := normalizeCredits(t, c.in, c.file)
		if e := wantCode(t, err, c.code); e.Params["path"] != c.path || e.HTTPStatus() != 400 {
			t.Errorf("%s: path %v, status %d, want %s", name, e.Params["path"], e.HTTPStatus(), c.path)
		}
	}
	for _, in := range []string{`{"creditsType":"RENTED"}`, `{"subscriptionType":"forever"}`, `{"accessType":""}`} {
		if _, _, err := normalizeCredits(t, in, nil); len(faultsOf(t, err)) != 1 {
			t.Errorf("%s: %v", in, err)
		}
	}
	for _, in := range []string{"3", "5", `"owner"`, `""`, "-1", "true", "{}", "4.0"} {
		var r toll.RedemptionInput
		wantCode(t, json.Unmarshal([]byte(in), &r), toll.CodeBadRequest)
	}
}

func TestPlan_Effective(t *testing.T) {
	dynamic := toll.Plan{AccessLimit: toll.LimitCredits, Credits: toll.CreditsConfig{MinAmount: 2, MaxAmount: 10}}
	for in, want := range map[toll.Credits]toll.Credits{0: 0, 1: 2, 2: 2, 7: 7, 10: 10, 11: 10, toll.MaxCredits: 10} {
		if got := dynamic.Effective(in); got != want {
			t.Errorf("a request for %d burns %d, want %d", in, got, want)
		}
	}
	period := toll.Plan{AccessLimit: toll.LimitTime, Credits: toll.CreditsConfig{MinAmount: 1, MaxAmount: 1}}
	if got := period.Effective(5); got != 0 {
		t.Errorf("a request in a period burns %d", got)
	}
}

// TestNormalizeCredits_FixedMaximum: deployed clients send a maximum above the minimum with fixed plans. The plan keeps the
// minimum, with a warning.
func TestNormalizeCredits_FixedMaximum(t *testing.T) {
	for in, warned := range map[string]bool{
		`{"isRedemptionAmountFixed":true,"minAmount":"2","maxAmount":"10"}`:                  true,
		`{"redemptionType":"fixed","minAmount":2,"maxAmount":10}`:                            true,
		`{"isRedemptionAmountFixed":true,"minCreditsToCharge":2,"maxCreditsToCharge":10}`:    true,
		`{"creditsType":"FIXED","isRedemptionAmountFixed":true,"minAmount":2,"maxAmount":3}`: true,
		`{"isRedemptionAmountFixed":true,"minAmount":2,"maxAmount":2}`:                       false,
		`{"isRedemptionAmountFixed":true,"minAmount":2}`:                                     false,
	} {
		var sent toll.CreditsInput
		must.Do(t, json.Unmarshal([]byte(in), &sent))
		c, _, err := toll.NormalizeCredits(sent, nil)
		if err != nil || !c.IsRedemptionAmountFixed || c.MinAmount != 2 || c.MaxAmount != 2 {
			t.Errorf("%s: %+v, %v", in, c, err)
		}
		if w := sent.Warnings(c); (len(w) == 1) != warned || warned && (w[0].Code != toll.CodeBadCreditsConfig || !strings.Contains(w[0].Message, "stored as 2")) {
			t.Errorf("%s: %+v", in, w)
		}
	}
	ranged := `{"isRedemptionAmountFixed":false,"minAmount":"2","maxAmount":"10"}`
	var sent toll.CreditsInput
	must.Do(t, json.Unmarshal([]byte(ranged), &sent))
	if c, _, err := toll.NormalizeCredits(sent, nil); err != nil || c.MaxAmount != 10 || sent.Warnings(c) != nil {
		t.Errorf("%+v, %v", c, err)
	}
}
