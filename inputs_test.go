package toll_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	json "github.com/go-json-experiment/json"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

var now = time.Date(2026, 11, 21, 1, 52, 17, 872_123_000, time.UTC)

func registerPlan(body string) (toll.Plan, error) {
	var in toll.PlanInput
	if err := json.Unmarshal([]byte(body), &in); err != nil {
		return toll.Plan{}, err
	}
	return in.Plan(toll.MustAddress(alice), now)
}

func registerAgent(body string) (toll.Agent, *toll.Credentials, error) {
	var in toll.AgentInput
	if err := json.Unmarshal([]byte(body), &in); err != nil {
		return toll.Agent{}, nil, err
	}
	return in.Agent(toll.MustAddress(alice), now)
}

func registerBoth(body string) (toll.Registration, error) {
	var in toll.AgentPlanInput
	if err := json.Unmarshal([]byte(body), &in); err != nil {
		return toll.Registration{}, err
	}
	return in.Registration(toll.MustAddress(alice), now)
}

func TestPlanInput_Dialects(t *testing.T) {
	want := `{"main":{"name":"Basic","description":"100 calls","tags":["ai"],"dateCreated":"2026-11-21T01:52:17.872Z","customData":{"a":[1]},"price":"1.00","isTrialPlan":true},` +
		`"plan":{"accessLimit":"credits","isTrialPlan":true,"currency":"USDC"},"curation":{"isListed":true}}`
	price := `"priceConfig":{"tokenAddress":"` + usdc + `","amounts":[1000000]},"creditsConfig":{"amount":100,"minAmount":5}`
	for name, body := range map[string]string{
		"A and custom data": `{"name":"Basic","description":"100 calls","tags":["ai"],"metadataAttributes":{"customData": {"a": [1]}},"isTrialPlan":true,"maxOrders":9,` + price + `}`,
		"B":                 `{"metadataAttributes":{"name":"Basic","description":"100 calls","tags":["ai"],"customData":{"a":[1]},"isTrialPlan":true},"accessLimit":"9",` + price + `}`,
		"B beats A":         `{"name":"x","description":"y","metadataAttributes":{"name":"Basic","description":"100 calls","tags":["ai"],"customData":{"a":[1]},"isTrialPlan":"true","accessLimit":9},"accessLimit":"CREDITS","isTrialPlan":false,"currency":"USDC",` + price + `}`,
	} {
		p, err := registerPlan(body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if b, _ := json.Marshal(p.Record().Metadata); string(b) != want {
			t.Errorf("%s:\n got %s\nwant %s", name, b, want)
		}
		if p.MaxOrders != 9 || !p.IsTrial || !p.IsListed || p.Owner != toll.MustAddress(alice) || !p.CreatedAt.Equal(now) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestPlanInput_Limits(t *testing.T) {
	base := `{"name":"p","priceConfig":{},"creditsConfig":{%s}%s}`
	for name, c := range map[string]struct {
		credits, rest string
		limit         toll.AccessLimit
		orders        int64
	}{
		"derived":         {``, ``, toll.LimitCredits, 0},
		"derived time":    {`"durationSecs":60`, ``, toll.LimitTime, 0},
		"expiring":        {`"durationSecs":60`, `,"accessLimit":"credits"`, toll.LimitCredits, 0},
		"number":          {`"durationSecs":60`, `,"accessLimit":3`, toll.LimitTime, 3},
		"beats file":      {`"subscriptionType":"time","duration":60`, `,"accessLimit":"credits"`, toll.LimitCredits, 0},
		"word and number": {`"durationSecs":60`, `,"accessLimit":"time","maxOrders":"3"`, toll.LimitTime, 3},
		"number twice":    {``, `,"accessLimit":"3","maxOrders":3`, toll.LimitCredits, 3},
	} {
		p, err := registerPlan(fmt.Sprintf(base, c.credits, c.rest))
		if err != nil || p.AccessLimit != c.limit || p.MaxOrders != c.orders {
			t.Errorf("%s: %s %d, %v", name, p.AccessLimit, p.MaxOrders, err)
		}
	}
	for name, c := range map[string]struct {
		credits, rest string
		code          toll.Code
		path          string
	}{
		"time without end": {``, `,"accessLimit":"time"`, toll.CodeBadCreditsConfig, "creditsConfig.durationSecs"},
		"time, FIXED":      {`"creditsType":"FIXED"`, `,"accessLimit":"time"`, toll.CodeBadCreditsConfig, "creditsConfig.durationSecs"},
		"time, fixed":      {`"durationSecs":60,"isRedemptionAmountFixed":true`, `,"accessLimit":"time"`, toll.CodeBadCreditsConfig, "creditsConfig.isRedemptionAmountFixed"},
		"no orders":        {``, `,"maxOrders":0`, toll.CodeBadNumber, "maxOrders"},
		"two numbers":      {``, `,"maxOrders":1,"accessLimit":2`, toll.CodeBadCreditsConfig, "accessLimit"},
	} {
		_, err := registerPlan(fmt.Sprintf(base, c.credits, c.rest))
		if e := wantCode(t, err, c.code); e.Params["path"] != c.path {
			t.Errorf("%s: path %v, want %s", name, e.Params["path"], c.path)
		}
	}
	for _, in := range []string{`"forever"`, `""`, `true`, `{}`} {
		var l toll.LimitInput
		wantCode(t, json.Unmarshal([]byte(in), &l), toll.CodeBadRequest)
	}
	for _, in := range []string{`1.5`, `"1e3"`, `"9223372036854775808"`} {
		var l toll.LimitInput
		wantCode(t, json.Unmarshal([]byte(in), &l), toll.CodeBadNumber)
	}
}

// Every missing and malformed member is named at once, and before a contradiction.
func TestPlanInput_Faults(t *testing.T) {
	long := strings.Repeat("n", toll.MaxNameRunes+1)
	tags := `"` + strings.Repeat(`t","`, toll.MaxTags) + strings.Repeat("t", toll.MaxTagRunes+1) + `"`
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"nothing": {`{}`, []string{"priceConfig", "creditsConfig", "name"}},
		"A": {`{"name":"` + long + `","tags":[` + tags + `],"priceConfig":{"priceType":"x"},"creditsConfig":{"creditsType":"y","minAmount":5,"maxAmount":1}}`,
			[]string{"name", "tags", "tags[64]", "priceConfig.priceType", "creditsConfig.creditsType"}},
		"B": {`{"metadataAttributes":{"description":"` + strings.Repeat("d", toll.MaxDescriptionBytes+1) + `","customData":[1]},"priceConfig":{}}`,
			[]string{"metadataAttributes.description", "metadataAttributes.customData", "creditsConfig", "metadataAttributes.name"}},
		"long custom data": {`{"name":"p","metadataAttributes":{"name":"p","customData":{"a":"` + strings.Repeat("x", toll.MaxCustomDataBytes) + `"}},"priceConfig":{},"creditsConfig":{}}`,
			[]string{"metadataAttributes.customData"}},
	} {
		_, err := registerPlan(c.body)
		var got []string
		for _, f := range faultsOf(t, err) {
			got = append(got, f.Path)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if _, err := registerPlan(`{"name":"` + strings.Repeat("é", toll.MaxNameRunes) + `","priceConfig":{},"creditsConfig":{}}`); err != nil {
		t.Errorf("a name of 256 characters: %v", err)
	}
}

func TestAgentInput_Dialects(t *testing.T) {
	want := `{"endpoints":[{"POST":"https://a.example/ask"},{"GET":"/docs/:id"}],"openEndpoints":["/health"],"agentDefinitionUrl":"https://a.example/openapi.json",` +
		`"authType":"bearer","strictEndpoints":true,"hasCredentials":%v}`
	for name, body := range map[string]string{
		"A": `{"name":"Ask","endpoints":[{"POST":"https://a.example/ask"},{"verb":"get","url":"/docs/:id"}],"openEndpoints":["/health"],` +
			`"agentDefinitionUrl":"https://a.example/openapi.json","authType":"Bearer","strictEndpoints":true,"plans":"7, 8,7"}`,
		"B": `{"metadataAttributes":{"name":"Ask"},"agentApiAttributes":{"endpoints":[{"post":"https://a.example/ask","GET":"/docs/:id"}],"openEndpoints":["/health"],` +
			`"agentDefinitionUrl":"https://a.example/openapi.json","authType":"bearer","strictEndpoints":"true","token":"secret-canary","headers":{"X-Key":"secret-canary"}},"plans":["7","8"]}`,
	} {
		a, secrets, err := registerAgent(body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if b, _ := json.Marshal(a.Record().Metadata.Agent); string(b) != fmt.Sprintf(want, name == "B") {
			t.Errorf("%s: %s", name, b)
		}
		if len(a.Plans) != 2 || !a.HasPlan("7") || !a.HasPlan("8") {
			t.Errorf("%s: plans %v", name, a.Plans)
		}
		if (secrets != nil) != (name == "B") || secrets != nil && (secrets.Token != "secret-canary" || secrets.Headers["X-Key"] != "secret-canary") {
			t.Errorf("%s: secrets are wrong", name)
		}
		record, _ := json.Marshal(a)
		if prints := fmt.Sprintf("%v %+v %#v %s", secrets, secrets, secrets, record); strings.Contains(prints, "canary") {
			t.Errorf("%s: a secret is shown: %s", name, prints)
		}
	}
}

func TestAgentInput_Faults(t *testing.T) {
	for name, c := range map[string]struct{ body, path string }{
		"no name":         {`{}`, "name"},
		"no name in B":    {`{"metadataAttributes":{}}`, "metadataAttributes.name"},
		"relative":        {`{"name":"a","endpoints":[{"GET":"ask"}]}`, "endpoints[0]"},
		"script":          {`{"name":"a","endpoints":[{"GET":"javascript:alert(1)"}]}`, "endpoints[0]"},
		"no host":         {`{"name":"a","endpoints":[{"GET":"https:///ask"}]}`, "endpoints[0]"},
		"other host":      {`{"name":"a","endpoints":[{"GET":"//evil.example/ask"}]}`, "endpoints[0]"},
		"blank":           {`{"name":"a","openEndpoints":["/a b"]}`, "openEndpoints[0]"},
		"definition":      {`{"name":"a","agentApiAttributes":{"agentDefinitionUrl":"javascript:alert(1)"}}`, "agentApiAttributes.agentDefinitionUrl"},
		"long url":        {`{"name":"a","endpoints":[{"GET":"/` + strings.Repeat("x", toll.MaxURLRunes) + `"}]}`, "endpoints[0]"},
		"many":            {`{"name":"a","endpoints":[` + strings.Repeat(`{"GET":"/a"},`, toll.MaxEndpoints) + `{"GET":"/a"}]}`, "endpoints"},
		"auth type":       {`{"name":"a","authType":"magic"}`, "authType"},
		"plans, too many": {`{"name":"a","plans":"1` + manyIDs(65) + `"}`, "plans"},
	} {
		_, _, err := registerAgent(c.body)
		if f := faultsOf(t, err); len(f) != 1 || f[0].Path != c.path {
			t.Errorf("%s: %v, want %s", name, f, c.path)
		}
	}
	for _, plans := range []string{`["07"]`, `[7]`, `7`, `"1;2"`, `{}`, `[["1"]]`} {
		_, _, err := registerAgent(`{"name":"a","plans":` + plans + `}`)
		wantCode(t, err, toll.CodeBadID)
	}
	for _, item := range []string{`{"FETCH":"/a"}`, `{}`, `"/a"`, `{"GET":7}`, `{"verb":"GET"}`, `{"url":"/a"}`, `{"verb":"FETCH","url":"/a"}`, `{"GET":null}`, `null`, `[]`} {
		_, _, err := registerAgent(`{"name":"a","endpoints":[` + item + `]}`)
		wantCode(t, err, toll.CodeBadRequest)
	}
}

func manyIDs(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ",%d", i+2)
	}
	return b.String()
}

func TestAgentPlanInput(t *testing.T) {
	r, err := registerBoth(`{"agentMetadata":{},"agentApi":{},"planMetadata":{},"priceConfig":{},"creditsConfig":{}}`)
	must.Do(t, err)
	if r.Plan.Metadata.Name != "" || !r.Plan.Price.IsFree() || r.Plan.Credits.Amount != 1 || len(r.Agent.Plans) != 1 || !r.Agent.HasPlan(r.Plan.ID) {
		t.Errorf("five empty objects made %+v", r)
	}
	r, err = registerBoth(`{"agentMetadata":{"name":"Ask"},"agentApi":{"endpoints":[{"POST":"https://a.example/ask"}]},"planMetadata":{"name":"Basic","isTrialPlan":true},` +
		`"priceConfig":{"priceType":"FIXED_PRICE","tokenAddress":"` + usdc + `","amounts":[1000000],"receivers":["` + bob + `"]},"creditsConfig":{"creditsType":"EXPIRABLE","amount":5,"durationOfThePlan":60},"accessLimit":"time"}`)
	must.Do(t, err)
	if r.Plan.Kind().Charges() || !r.Plan.IsTrial || r.Plan.PayTo() != toll.MustAddress(bob) || r.Agent.Plans[0].Name != "Basic" || len(r.Agent.API.Endpoints) != 1 {
		t.Errorf("dialect A made %+v", r)
	}
	r, err = registerBoth(`{"plan":{"metadataAttributes":{"name":"Basic"},"priceConfig":{"isCrypto":false,"amounts":["2000000"]},"creditsConfig":{"amount":"9"},"currency":"EUR","nonce":"12"},` +
		`"agent":{"metadataAttributes":{"name":"Ask"},"agentApiAttributes":{"endpoints":[{"POST":"/ask"}],"apiKey":"secret-canary"}}}`)
	must.Do(t, err)
	if r.Plan.Price.Currency != "EUR" || r.Plan.Credits.Amount != 9 || r.Agent.Metadata.Name != "Ask" || r.Credentials == nil || r.Nonce.String() != "12" {
		t.Errorf("dialect B made %+v", r)
	}
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"nothing":        {`{}`, []string{"agentMetadata", "agentApi", "planMetadata", "priceConfig", "creditsConfig"}},
		"nulls":          {`{"agentMetadata":null,"agentApi":{},"planMetadata":{},"priceConfig":{},"creditsConfig":{}}`, []string{"agentMetadata"}},
		"B without":      {`{"plan":{}}`, []string{"agent", "plan.priceConfig", "plan.creditsConfig"}},
		"B agent alone":  {`{"agent":{}}`, []string{"plan", "plan.priceConfig", "plan.creditsConfig"}},
		"paths within A": {`{"agentMetadata":{},"agentApi":{"authType":"x"},"planMetadata":{"customData":1},"priceConfig":{},"creditsConfig":{}}`, []string{"planMetadata.customData", "agentApi.authType"}},
	} {
		_, err := registerBoth(c.body)
		var got []string
		for _, f := range faultsOf(t, err) {
			got = append(got, f.Path)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	_, err = registerBoth(`{"plan":{"priceConfig":{"isCrypto":false,"amounts":["1"]},"creditsConfig":{}},"agent":{}}`)
	if e := wantCode(t, err, toll.CodeFiatPriceTooLow); e.Params["path"] != "plan.priceConfig.amounts" {
		t.Errorf("path %v", e.Params["path"])
	}
}

// Deployed clients send planMetadata for metadataAttributes and trial for isTrialPlan, at each place where a plan is registered.
func TestPlanInput_OtherNames(t *testing.T) {
	const free = `,"priceConfig":{},"creditsConfig":{}`
	both := func(body string) (toll.Plan, error) {
		r, err := registerBoth(body)
		return r.Plan, err
	}
	for body, c := range map[string]struct {
		register func(string) (toll.Plan, error)
		name     string
		trial    bool
	}{
		`{"planMetadata":{"name":"a"}` + free + `}`:                                                       {registerPlan, "a", false},
		`{"metadataAttributes":{"name":"a"},"planMetadata":{"name":"b"}` + free + `}`:                     {registerPlan, "a", false},
		`{"name":"a","trial":true` + free + `}`:                                                           {registerPlan, "a", true},
		`{"name":"a","isTrialPlan":true` + free + `}`:                                                     {registerPlan, "a", true},
		`{"name":"a","isTrialPlan":false,"trial":true` + free + `}`:                                       {registerPlan, "a", true},
		`{"name":"a","isTrialPlan":false,"trial":false` + free + `}`:                                      {registerPlan, "a", false},
		`{"planMetadata":{"name":"a","trial":true}` + free + `}`:                                          {registerPlan, "a", true},
		`{"planMetadata":{"name":"a","isTrialPlan":true}` + free + `}`:                                    {registerPlan, "a", true},
		`{"agentMetadata":{},"agentApi":{},"planMetadata":{"name":"a"},"trial":true` + free + `}`:         {both, "a", true},
		`{"agentMetadata":{},"agentApi":{},"planMetadata":{"name":"a","trial":true}` + free + `}`:         {both, "a", true},
		`{"agent":{},"plan":{"planMetadata":{"name":"a"},"trial":true` + free + `}}`:                      {both, "a", true},
		`{"agent":{},"plan":{"planMetadata":{"name":"a"}` + free + `},"planMetadata":{"name":"b"}}`:       {both, "a", false},
		`{"agent":{},"plan":{"priceConfig":{},"creditsConfig":{}},"planMetadata":{"name":"b"}}`:           {both, "b", false},
		`{"agent":{},"plan":{"name":"a","trial":true` + free + `},"trial":false}`:                         {both, "a", true},
		`{"agent":{},"plan":{"name":"a","trial":false` + free + `},"trial":true}`:                         {both, "a", true},
		`{"agent":{},"plan":{"name":"a","isTrialPlan":true` + free + `},"isTrialPlan":false}`:             {both, "a", true},
		`{"agent":{},"plan":{"name":"a","isTrialPlan":false` + free + `},"isTrialPlan":true}`:             {both, "a", true},
		`{"agent":{},"plan":{"name":"a"` + free + `},"isTrialPlan":false,"trial":false}`:                  {both, "a", false},
		`{"agent":{},"plan":{"metadataAttributes":{"name":"a"},"planMetadata":{"name":"b"}` + free + `}}`: {both, "a", false},
	} {
		if p, err := c.register(body); err != nil || p.Metadata.Name != c.name || p.IsTrial != c.trial {
			t.Errorf("%s: name %q, trial %v, %v", body, p.Metadata.Name, p.IsTrial, err)
		}
	}
	for body, c := range map[string]struct {
		register func(string) (toll.Plan, error)
		path     string
	}{
		`{"planMetadata":{}` + free + `}`:                                                           {registerPlan, "planMetadata.name"},
		`{"metadataAttributes":{},"planMetadata":{"name":"b"}` + free + `}`:                         {registerPlan, "metadataAttributes.name"},
		`{"agent":{},"plan":{"planMetadata":{"customData":1}` + free + `}}`:                         {both, "plan.planMetadata.customData"},
		`{"agent":{},"plan":{"metadataAttributes":{"customData":1},"planMetadata":{}` + free + `}}`: {both, "plan.metadataAttributes.customData"},
	} {
		_, err := c.register(body)
		if f := faultsOf(t, err); len(f) != 1 || f[0].Path != c.path {
			t.Errorf("%s: %v, want %s", body, f, c.path)
		}
	}
	const fixed = `,"priceConfig":{},"creditsConfig":{"isRedemptionAmountFixed":true,"minAmount":2,"maxAmount":9}}`
	for _, body := range []string{`{"agentMetadata":{},"agentApi":{},"planMetadata":{}` + fixed, `{"agent":{},"plan":{"name":"a"` + fixed + `}`} {
		r, err := registerBoth(body)
		if err != nil || r.Plan.Credits.MaxAmount != 2 || len(r.Warnings) != 1 || r.Warnings[0].Code != toll.CodeBadCreditsConfig {
			t.Errorf("%s: %+v, %v", body, r, err)
		}
	}
}

// A Go client sends the same structs, so they read back as they were.
func TestInputs_RoundTrip(t *testing.T) {
	body := `{"name":"p","priceConfig":{"tokenAddress":"` + usdc + `","amounts":["1"],"receivers":["` + bob + `"]},"creditsConfig":{"amount":"5","redemptionType":"dynamic"},"accessLimit":7,"nonce":"1"}`
	var in toll.PlanInput
	must.Do(t, json.Unmarshal([]byte(body), &in))
	if b, err := json.Marshal(in); err != nil || string(b) != body {
		t.Errorf("got %s, %v, want %s", b, err, body)
	}
}
