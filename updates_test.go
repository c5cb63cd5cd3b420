package toll_test

import (
	stdjson "encoding/json"
	"errors"
	"strings"
	"testing"

	json "github.com/go-json-experiment/json"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

func storedPlan(t *testing.T) toll.Plan {
	t.Helper()
	p, err := registerPlan(`{"metadataAttributes":{"name":"Basic","description":"100 calls","author":"A","license":"MIT","tags":["ai"],"integration":"rest","sampleLink":"https://x.example","apiDescription":"api","dateCreated":"2020-01-02T03:04:05Z","customData":{"a":1}},"maxOrders":9,
		"priceConfig":{"tokenAddress":"` + usdc + `","amounts":[1000000]},"creditsConfig":{"amount":100,"minAmount":5}}`)
	must.Do(t, err)
	return p
}

func text(t *testing.T, v any) string {
	t.Helper()
	b := must.Get(json.Marshal(v))(t)
	return string(b)
}

// Absent keeps, null clears, a value replaces; what is said in both dialects counts as B says it.
func TestPlanUpdate_Merge(t *testing.T) {
	p := storedPlan(t)
	before := text(t, p)
	for _, tt := range []struct{ body, gone, new string }{
		{`{}`, "", ""},
		{`{"unknown":1,"owner":"0x1","isListed":false,"planId":"7"}`, "", ""},
		{`{"name":"New"}`, `"name":"Basic"`, `"name":"New"`},
		{`{"metadataAttributes":{"name":"New"}}`, `"name":"Basic"`, `"name":"New"`},
		{`{"name":"Flat","metadataAttributes":{"name":"New"}}`, `"name":"Basic"`, `"name":"New"`},
		{`{"description":null}`, `"description":"100 calls"`, `"description":""`},
		{`{"metadataAttributes":{"description":null}}`, `"description":"100 calls"`, `"description":""`},
		{`{"description":"flat","metadataAttributes":{"description":null}}`, `"description":"100 calls"`, `"description":""`},
		{`{"tags":[]}`, `"tags":["ai"]`, `"tags":[]`},
		{`{"tags":null}`, `"tags":["ai"]`, `"tags":[]`},
		{`{"metadataAttributes":{"tags":["b","c"]}}`, `"tags":["ai"]`, `"tags":["b","c"]`},
		{`{"metadataAttributes":{"author":null}}`, `"author":"A",`, ``},
		{`{"metadataAttributes":{"license":null}}`, `"license":"MIT",`, ``},
		{`{"metadataAttributes":{"integration":null}}`, `"integration":"rest",`, ``},
		{`{"metadataAttributes":{"sampleLink":null}}`, `"sampleLink":"https://x.example",`, ``},
		{`{"metadataAttributes":{"apiDescription":null}}`, `"apiDescription":"api",`, ``},
		{`{"metadataAttributes":{"customData":null}}`, `"customData":{"a":1},`, ``},
		{`{"metadataAttributes":{"customData":{"b": [2]}}}`, `"customData":{"a":1}`, `"customData":{"b":[2]}`},
		{`{"metadataAttributes":{"dateCreated":null}}`, `"dateCreated":"2020-01-02T03:04:05.000Z"`, `"dateCreated":"2026-11-21T01:52:17.872Z"`},
		{`{"maxOrders":10}`, `"maxOrders":9`, `"maxOrders":10`},
		{`{"maxOrders":null}`, `"maxOrders":9`, `"maxOrders":null`},
		{`{"accessLimit":11}`, `"maxOrders":9`, `"maxOrders":11`},
		{`{"metadataAttributes":{"accessLimit":"12"}}`, `"maxOrders":9`, `"maxOrders":12`},
	} {
		var in toll.PlanUpdate
		if err := json.Unmarshal([]byte(tt.body), &in); err != nil {
			t.Errorf("%s: %v", tt.body, err)
			continue
		}
		got, err := in.Apply(p)
		want := strings.ReplaceAll(before, tt.gone, tt.new)
		if tt.gone == "" {
			want = before
		} else if !strings.Contains(before, tt.gone) {
			t.Fatalf("%s is not there", tt.gone)
		}
		if err != nil || text(t, got) != want {
			t.Errorf("%s: %v\n got %s\nwant %s", tt.body, err, text(t, got), want)
		}
	}
	if text(t, p) != before {
		t.Error("the plan that was given has changed")
	}
}

// Terms may be sent in any dialect as long as they say what is so; the record of a plan is such a body.
func TestPlanUpdate_Terms(t *testing.T) {
	timed, err := registerPlan(`{"name":"Day","priceConfig":{"priceType":"FREE"},"creditsConfig":{"creditsType":"EXPIRABLE","durationOfThePlan":86400}}`)
	must.Do(t, err)
	card, err := registerPlan(`{"name":"Card","priceConfig":{"isCrypto":false,"amounts":["1000000"]},"creditsConfig":{},"isTrialPlan":true}`)
	must.Do(t, err)
	plans := map[string]toll.Plan{"priced": storedPlan(t), "timed": timed, "card": card}
	for name, p := range plans {
		var in toll.PlanUpdate
		must.Do(t, json.Unmarshal([]byte(text(t, p)), &in))
		if got, err := in.Apply(p); err != nil || text(t, got) != text(t, p) {
			t.Errorf("%s: its own record: %v", name, err)
		}
	}
	for _, tt := range []struct{ plan, body, path string }{
		{"priced", `{"priceConfig":{},"creditsConfig":{}}`, ""},
		{"priced", `{"priceConfig":null,"creditsConfig":null,"accessLimit":null}`, ""},
		{"priced", `{"priceConfig":{"priceType":"fixed_price","amounts":["1000000"],"receivers":["` + alice + `"],"currency":"usdc"},"creditsConfig":{"creditsType":"FIXED","minAmount":"5","maxAmount":5}}`, ""},
		{"priced", `{"priceConfig":{"price":1000000,"tokenAddress":"` + usdc + `","amountOfCredits":100},"creditsConfig":{"subscriptionType":"credits","minCreditsToCharge":5}}`, ""},
		{"priced", `{"accessLimit":"credits","isTrialPlan":false,"currency":"USDC","metadataAttributes":{"isTrialPlan":false}}`, ""},
		{"timed", `{"priceConfig":{"priceType":"FREE","amounts":[0],"receivers":["` + alice + `"]},"creditsConfig":{"duration":86400,"accessType":"time"}}`, ""},
		{"card", `{"priceConfig":{"isCrypto":false,"currency":"USD"},"isTrialPlan":"true"}`, ""},

		{"priced", `{"priceConfig":{"amounts":[1000001]}}`, "priceConfig.amounts"},
		{"priced", `{"priceConfig":{"amounts":[]}}`, "priceConfig.amounts"},
		{"priced", `{"priceConfig":{"amounts":[500000,500000]}}`, "priceConfig.amounts"},
		{"priced", `{"priceConfig":{"priceType":"FREE"}}`, "priceConfig.priceType"},
		{"priced", `{"priceConfig":{"receivers":["` + bob + `"]}}`, "priceConfig.receivers"},
		{"priced", `{"priceConfig":{"isCrypto":false}}`, "priceConfig.isCrypto"},
		{"priced", `{"priceConfig":{"tokenAddress":"` + bob + `"}}`, "priceConfig.tokenAddress"},
		{"priced", `{"priceConfig":{"templateAddress":"` + bob + `"}}`, "priceConfig.templateAddress"},
		{"priced", `{"priceConfig":{"feeController":"` + bob + `"}}`, "priceConfig.feeController"},
		{"priced", `{"priceConfig":{"currency":"EURC"}}`, "priceConfig.currency"},
		{"priced", `{"priceConfig":{"price":1}}`, "priceConfig.price"},
		{"priced", `{"priceConfig":{"amountOfCredits":1}}`, "priceConfig.amountOfCredits"},
		{"priced", `{"creditsConfig":{"amount":101}}`, "creditsConfig.amount"},
		{"priced", `{"creditsConfig":{"minAmount":4}}`, "creditsConfig.minAmount"},
		{"priced", `{"creditsConfig":{"maxAmount":6}}`, "creditsConfig.maxAmount"},
		{"priced", `{"creditsConfig":{"isRedemptionAmountFixed":false}}`, "creditsConfig.isRedemptionAmountFixed"},
		{"priced", `{"creditsConfig":{"redemptionType":"dynamic"}}`, "creditsConfig.redemptionType"},
		{"priced", `{"creditsConfig":{"redemptionType":1}}`, "creditsConfig.redemptionType"},
		{"priced", `{"creditsConfig":{"onchainMirror":true}}`, "creditsConfig.onchainMirror"},
		{"priced", `{"creditsConfig":{"durationSecs":1}}`, "creditsConfig.durationSecs"},
		{"priced", `{"creditsConfig":{"nftAddress":"` + bob + `"}}`, "creditsConfig.nftAddress"},
		{"priced", `{"creditsConfig":{"subscriptionType":"time"}}`, "creditsConfig.subscriptionType"},
		{"priced", `{"accessLimit":"time"}`, "accessLimit"},
		{"priced", `{"metadataAttributes":{"accessLimit":"time"}}`, "metadataAttributes.accessLimit"},
		{"priced", `{"isTrialPlan":true}`, "isTrialPlan"},
		{"priced", `{"currency":"EURC"}`, "currency"},
		{"timed", `{"creditsConfig":{"durationOfThePlan":86401}}`, "creditsConfig.durationOfThePlan"},
		{"card", `{"metadataAttributes":{"isTrialPlan":false}}`, "metadataAttributes.isTrialPlan"},
	} {
		p := plans[tt.plan]
		var in toll.PlanUpdate
		if err := json.Unmarshal([]byte(tt.body), &in); err != nil {
			t.Errorf("%s: %v", tt.body, err)
			continue
		}
		got, err := in.Apply(p)
		switch {
		case tt.path == "":
			if err != nil || text(t, got) != text(t, p) {
				t.Errorf("%s %s: %v", tt.plan, tt.body, err)
			}
		default:
			var e *toll.Error
			if !errors.As(err, &e) || e.Code != toll.CodePlanTermsFixed || e.Params["path"] != tt.path {
				t.Errorf("%s %s: %v, want %s", tt.plan, tt.body, err, tt.path)
			}
		}
	}
}

func TestPlanUpdate_Faults(t *testing.T) {
	p := storedPlan(t)
	for body, want := range map[string][]string{
		`{"name":null}`:                      {"name"},
		`{"name":""}`:                        {"name"},
		`{"metadataAttributes":null}`:        {"metadataAttributes.name"},
		`{"metadataAttributes":{"name":""}}`: {"metadataAttributes.name"},
		`{"name":"` + strings.Repeat("é", 257) + `","description":"` + strings.Repeat("x", 16<<10+1) + `"}`: {"name", "description"},
		`{"metadataAttributes":{"customData":[1]}}`:                                                         {"metadataAttributes.customData"},
		`{"tags":["` + strings.Repeat("x", 65) + `"]}`:                                                      {"tags[0]"},
		`{"tags":[` + strings.TrimSuffix(strings.Repeat(`"a",`, 65), ",") + `]}`:                            {"tags"},
	} {
		var in toll.PlanUpdate
		if err := json.Unmarshal([]byte(body), &in); err != nil {
			t.Errorf("%.80s: %v", body, err)
			continue
		}
		_, err := in.Apply(p)
		if got := faultPaths(err); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%.80s: %v (%v), want %v", body, got, err, want)
		}
	}
	for _, body := range []string{`{"maxOrders":0}`, `{"accessLimit":0}`} {
		var in toll.PlanUpdate
		must.Do(t, json.Unmarshal([]byte(body), &in))
		if _, err := in.Apply(p); !errors.Is(err, toll.NewError(toll.CodeBadNumber)) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func faultPaths(err error) (paths []string) {
	var e *toll.Error
	if errors.As(err, &e) {
		faults, _ := e.Params["errors"].([]toll.Fault)
		for _, f := range faults {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

func TestAgentUpdate_Merge(t *testing.T) {
	a, secrets, err := registerAgent(`{"name":"Ask","description":"Ask it","tags":["ai"],"endpoints":[{"POST":"https://a.example/ask"}],"openEndpoints":["/free"],"agentDefinitionUrl":"https://a.example/openapi.json","authType":"bearer","strictEndpoints":true,
		"agentApiAttributes":{"username":"u","token":"t","headers":{"X-A":"1"}}}`)
	must.Do(t, err)
	before, hidden := text(t, a), *secrets
	for _, tt := range []struct {
		body, gone, new string
		secrets         toll.Credentials
	}{
		{`{}`, "", "", hidden},
		{`{"plans":["7"],"agentApiAttributes":{}}`, "", "", hidden},
		{`{"endpoints":[{"verb":"get","url":"/x"}]}`, `"endpoints":[{"POST":"https://a.example/ask"}]`, `"endpoints":[{"GET":"/x"}]`, hidden},
		{`{"endpoints":null}`, `"endpoints":[{"POST":"https://a.example/ask"}]`, `"endpoints":[]`, hidden},
		{`{"endpoints":null,"agentApiAttributes":{"endpoints":[{"GET":"/x"}]}}`, `"endpoints":[{"POST":"https://a.example/ask"}]`, `"endpoints":[{"GET":"/x"}]`, hidden},
		{`{"openEndpoints":null}`, `"openEndpoints":["/free"]`, `"openEndpoints":[]`, hidden},
		{`{"agentDefinitionUrl":null}`, `"agentDefinitionUrl":"https://a.example/openapi.json",`, ``, hidden},
		{`{"agentApiAttributes":{"authType":null}}`, `"authType":"bearer"`, `"authType":"none"`, hidden},
		{`{"strictEndpoints":null}`, `"strictEndpoints":true`, `"strictEndpoints":false`, hidden},
		{`{"strictEndpoints":"false"}`, `"strictEndpoints":true`, `"strictEndpoints":false`, hidden},
		{`{"agentApiAttributes":{"token":"new"}}`, "", "", toll.Credentials{Username: "u", Token: "new", Headers: hidden.Headers}},
		{`{"agentApiAttributes":{"token":null}}`, "", "", toll.Credentials{Username: "u", Headers: hidden.Headers}},
		{`{"agentApiAttributes":{"headers":{"X-B":"2"}}}`, "", "", toll.Credentials{Username: "u", Token: "t", Headers: map[string]string{"X-B": "2"}}},
		{`{"agentApiAttributes":{"token":null,"username":null,"headers":null}}`, `"hasCredentials":true`, `"hasCredentials":false`, toll.Credentials{}},
	} {
		var in toll.AgentUpdate
		if err := json.Unmarshal([]byte(tt.body), &in); err != nil {
			t.Errorf("%s: %v", tt.body, err)
			continue
		}
		kept := hidden
		got, after, err := in.Apply(a, &kept)
		want := before
		if tt.gone != "" {
			if want = strings.ReplaceAll(before, tt.gone, tt.new); want == before {
				t.Fatalf("%s is not there", tt.gone)
			}
		}
		if err != nil || text(t, got) != want {
			t.Errorf("%s: %v\n got %s\nwant %s", tt.body, err, text(t, got), want)
		}
		if after == nil {
			after = &toll.Credentials{}
		}
		if text(t, *after) != text(t, tt.secrets) {
			t.Errorf("%s: other upstream secrets", tt.body)
		}
	}
	// Secrets that nobody changes need not be read: they stay as they are stored.
	var in toll.AgentUpdate
	if err := json.Unmarshal([]byte(`{"description":"x"}`), &in); err != nil || in.ChangesCredentials() {
		t.Fatal(err)
	}
	if got, after, err := in.Apply(a, nil); err != nil || after != nil || !got.API.HasCredentials {
		t.Errorf("%+v %v %v", got.API, after, err)
	}
	// null in place of the object clears all of it.
	if err := json.Unmarshal([]byte(`{"agentApiAttributes":null}`), &in); err != nil || !in.ChangesCredentials() {
		t.Fatal(err)
	}
	got, after, err := in.Apply(a, &hidden)
	if err != nil || after != nil || text(t, got.API) != `{"endpoints":[],"openEndpoints":[],"authType":"none","strictEndpoints":false,"hasCredentials":false}` {
		t.Errorf("%s %v %v", text(t, got.API), after, err)
	}
}

func TestAgentUpdate_Faults(t *testing.T) {
	a, _, err := registerAgent(`{"name":"Ask"}`)
	must.Do(t, err)
	many := strings.TrimSuffix(strings.Repeat(`{"GET":"/x"},`, 257), ",")
	for body, want := range map[string]string{
		`{"name":null,"endpoints":[{"GET":"x"}],"authType":"magic"}`:                 "name endpoints[0] authType",
		`{"agentApiAttributes":{"endpoints":[` + many + `]}}`:                        "agentApiAttributes.endpoints",
		`{"endpoints":[{"GET":"/` + strings.Repeat("é", 2048) + `"}]}`:               "endpoints[0]",
		`{"agentApiAttributes":{"headers":{"X-A":"a\r\nX-B: b"}}}`:                   "agentApiAttributes.headers.X-A",
		`{"agentApiAttributes":{"headers":{"X A":"a"},"token":"a\u0000b"}}`:          "agentApiAttributes.token agentApiAttributes.headers",
		`{"agentApiAttributes":{"token":"` + strings.Repeat("x", 16<<10+1) + `"}}`:   "agentApiAttributes",
		`{"agentDefinitionUrl":"ftp://x","agentApiAttributes":{"openEndpoints":1}}`:  "agentApiAttributes.openEndpoints",
		`{"metadataAttributes":{"name":7,"description":{}},"agentApiAttributes":[]}`: "metadataAttributes.description metadataAttributes.name agentApiAttributes",
	} {
		var in toll.AgentUpdate
		err := x402.Decode([]byte(body), &in)
		if err == nil {
			_, _, err = in.Apply(a, nil)
		}
		if got := strings.Join(faultPaths(err), " "); got != want {
			t.Errorf("%.90s: %q (%v), want %q", body, got, err, want)
		}
	}
	if _, _, err := (toll.AgentUpdate{Endpoints: toll.SetTo(toll.EndpointList{{Verb: "GET", URL: "/" + strings.Repeat("é", 2047)}})}).Apply(a, nil); err != nil {
		t.Errorf("2,048 characters: %v", err)
	}
}

func TestUpdates_Encode(t *testing.T) {
	for want, in := range map[string]any{
		`{}`: toll.PlanUpdate{},
		`{"name":"x","tags":null,"metadataAttributes":{"customData":{"a":1}},"maxOrders":null}`: toll.PlanUpdate{
			Name: toll.SetTo("x"), Tags: toll.Clear[[]string](), MaxOrders: toll.Clear[toll.Int](), Metadata: toll.MetadataUpdate{CustomData: toll.SetTo(stdjson.RawMessage(`{"a":1}`))},
		},
		`{"endpoints":[{"GET":"/x?a&b"}],"agentApiAttributes":{"token":null}}`: toll.AgentUpdate{
			Endpoints: toll.SetTo(toll.EndpointList{{Verb: "GET", URL: "/x?a&b"}}), API: toll.AgentAPIUpdate{Token: toll.Clear[string]()},
		},
	} {
		if got := text(t, in); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
