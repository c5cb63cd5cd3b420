package toll_test

import (
	"bytes"
	stdjson "encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	json "github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// golden returns a wire file without insignificant blanks.
func golden(t *testing.T, name string) string {
	t.Helper()
	b := must.Get(os.ReadFile("testdata/wire/1.1/" + name))(t)
	var c bytes.Buffer
	must.Do(t, stdjson.Compact(&c, b))
	return c.String()
}

// wantJSON compares the bytes that both encoders give, as the service uses one and some clients the other.
func wantJSON(t *testing.T, v any, want string) {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil || string(b) != want {
		t.Errorf("go-json-experiment: %v\n got %s\nwant %s", err, b, want)
	}
	var std bytes.Buffer
	e := stdjson.NewEncoder(&std)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil || strings.TrimSuffix(std.String(), "\n") != want {
		t.Errorf("encoding/json: %v\n got %s\nwant %s", err, std.String(), want)
	}
}

func examplePlan(t *testing.T) toll.Plan {
	t.Helper()
	var in toll.PlanInput
	body := `{"name":"Basic","description":"100 calls","tags":["ai"],"priceConfig":{"priceType":"FIXED_PRICE","tokenAddress":"` + strings.ToLower(usdc) +
		`","amounts":[1000000],"receivers":["` + alice + `"]},"creditsConfig":{"creditsType":"FIXED","amount":100,"minAmount":5}}`
	must.Do(t, json.Unmarshal([]byte(body), &in))
	p := must.Get(in.Plan(toll.MustAddress(alice), time.Date(2026, 11, 21, 1, 52, 17, 872_999_000, time.UTC)))(t)
	p.ID, p.Version = "44740763894012640513283458935261826389113914372058302935105268716590425481071", 1
	return p
}

func TestPlan_Golden(t *testing.T) {
	p := examplePlan(t)
	wantJSON(t, p, golden(t, "plan.json"))
	wantJSON(t, &p, golden(t, "plan.json"))
}

func TestAgent_Golden(t *testing.T) {
	p := examplePlan(t)
	a, _, err := registerAgent(`{"name":"Ask","description":"Ask the agent","tags":["ai"],"endpoints":[{"verb":"post","url":"https://agent.example.com/ask"}],` +
		`"agentDefinitionUrl":"https://agent.example.com/openapi.json","plans":["` + string(p.ID) + `"]}`)
	must.Do(t, err)
	a.ID, a.Version = "50635819442167098612057283904123576809182736450192837465019283746501928375899", 1
	a.Plans[0].Name = "Basic"
	at := toll.At(time.Date(2026, 11, 21, 1, 52, 18, 100_000_000, time.UTC))
	a.Metadata.DateCreated, a.UpdatedAt = at, at.Time
	wantJSON(t, a, golden(t, "agent.json"))
}

func TestPlan_FiatRecord(t *testing.T) {
	p, err := registerPlan(`{"name":"p","priceConfig":{"isCrypto":false,"amounts":["2000000"]},"creditsConfig":{"durationSecs":60},"maxOrders":3}`)
	must.Do(t, err)
	r := p.Record()
	if r.Metadata.Plan.FiatPaymentProvider != "stripe" || *r.Metadata.Plan.Currency != "USD" || r.CreditsConfig.CreditsType != "EXPIRABLE" || *r.MaxOrders != 3 {
		t.Errorf("%+v", r)
	}
	crypto := examplePlan(t)
	if b, _ := json.Marshal(crypto); bytes.Contains(b, []byte("fiatPaymentProvider")) {
		t.Error("a plan paid in tokens names a card processor")
	}
}

func TestPlan_FreeHasNoCurrency(t *testing.T) {
	for _, price := range []string{`{"priceType":"FREE"}`, `{"amounts":["0"],"tokenAddress":"` + usdc + `"}`} {
		p := must.Get(registerPlan(`{"name":"p","priceConfig":` + price + `,"creditsConfig":{"amount":1}}`))(t)
		if r := p.Record(); r.Metadata.Plan.Currency != nil || r.Registry.Price.Currency != "" {
			t.Errorf("%s: %+v", price, r)
		}
		if b, _ := json.Marshal(p); !bytes.Contains(b, []byte(`"currency":null`)) {
			t.Errorf("%s: %s", price, b)
		}
	}
}

// Urls keep their characters: encoding/json would write & as \u0026.
func TestRecords_NoHTMLEscape(t *testing.T) {
	a, _, err := registerAgent(`{"name":"<a> & b","endpoints":[{"GET":"/q?a=1&b=<c>"}]}`)
	must.Do(t, err)
	b, err := a.MarshalJSON() // what a caller's encoder sees, before it writes strings its own way
	if err != nil || bytes.Count(b, []byte(`/q?a=1&b=<c>`)) != 2 || !bytes.Contains(b, []byte(`"<a> & b"`)) {
		t.Errorf("%s, %v", b, err)
	}
}

// Clients ignore members that they do not know, and records of older services may lack some.
func TestPlan_UnmarshalTolerates(t *testing.T) {
	var p toll.Plan
	if err := json.Unmarshal([]byte(`{"id":"7","future":{"a":1},"registry":{"owner":"`+alice+`","price":{"amounts":["1"]},"credits":{}}}`), &p); err != nil {
		t.Fatal(err)
	}
	if p.ID != "7" || p.Owner != toll.MustAddress(alice) || p.Price.Total().String() != "1" {
		t.Errorf("%+v", p)
	}
	wantCode(t, json.Unmarshal([]byte(`{"id":7}`), &p), toll.CodeBadID)
	wantCode(t, json.Unmarshal([]byte(`{"registry":{"price":{"amounts":["1.5"]}}}`), &p), toll.CodeBadNumber)
}

func drawUnits(t *rapid.T, label string) toll.Units {
	return must.Get(toll.ParseUnits(rapid.StringMatching(`0|[1-9][0-9]{0,76}`).Draw(t, label)))(t)
}

func drawAddress(t *rapid.T, label string) toll.Address {
	return toll.Address(rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, label))
}

func drawTime(t *rapid.T, label string) time.Time {
	return time.UnixMilli(rapid.Int64Range(1, 253_402_300_799_999).Draw(t, label)).UTC()
}

func drawMetadata(t *rapid.T, created time.Time) toll.Metadata {
	at := toll.At(created)
	m := toll.Metadata{
		Name: rapid.String().Draw(t, "name"), Description: rapid.String().Draw(t, "description"), Author: rapid.String().Draw(t, "author"),
		License: rapid.String().Draw(t, "license"), Integration: rapid.String().Draw(t, "integration"), SampleLink: rapid.String().Draw(t, "sampleLink"),
		APIDescription: rapid.String().Draw(t, "apiDescription"), DateCreated: at,
	}
	if tags := rapid.SliceOfN(rapid.String(), 0, 5).Draw(t, "tags"); len(tags) > 0 {
		m.Tags = tags
	}
	if custom := rapid.MapOf(rapid.String(), rapid.Int64()).Draw(t, "customData"); len(custom) > 0 {
		m.CustomData, _ = stdjson.Marshal(custom)
	}
	return m
}

func drawCredits(t *rapid.T, label string) toll.Credits {
	return toll.Credits(rapid.Int64Range(1, int64(toll.MaxCredits)).Draw(t, label))
}

// sameJSON holds two values against each other by their own JSON, as big numbers have more than one form in memory.
func sameJSON(t *rapid.T, got, want any) {
	g := must.Get(json.Marshal(got, json.Deterministic(true)))(t)
	w := must.Get(json.Marshal(want, json.Deterministic(true)))(t)
	if !bytes.Equal(g, w) {
		t.Fatalf("got  %s\nwant %s", g, w)
	}
}

func TestPlan_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		created := drawTime(t, "created")
		n := rapid.IntRange(0, 3).Draw(t, "receivers")
		p := toll.Plan{
			ID: toll.NewPlanID(), Owner: drawAddress(t, "owner"), Metadata: drawMetadata(t, created),
			Price: toll.Price{
				TokenAddress: drawAddress(t, "token"), Amounts: []toll.Units{}, Receivers: []toll.Address{}, IsCrypto: rapid.Bool().Draw(t, "crypto"),
				TemplateAddress: rapid.SampledFrom([]toll.Address{{}, toll.PayAsYouGoTemplate}).Draw(t, "template"),
				Currency:        rapid.SampledFrom([]string{"", "USD", "USDC"}).Draw(t, "currency"),
			},
			Credits: toll.CreditsConfig{
				IsRedemptionAmountFixed: rapid.Bool().Draw(t, "fixed"), RedemptionType: rapid.IntRange(0, 4).Draw(t, "type"), OnchainMirror: rapid.Bool().Draw(t, "mirror"),
				DurationSecs: drawUnits(t, "secs"), Amount: drawCredits(t, "amount"), MinAmount: drawCredits(t, "min"), MaxAmount: drawCredits(t, "max"),
			},
			AccessLimit: rapid.SampledFrom([]toll.AccessLimit{toll.LimitCredits, toll.LimitTime}).Draw(t, "limit"),
			MaxOrders:   rapid.Int64Min(0).Draw(t, "orders"), IsTrial: rapid.Bool().Draw(t, "trial"), IsListed: rapid.Bool().Draw(t, "listed"),
			CreatedAt: created, UpdatedAt: drawTime(t, "updated"),
		}
		for range n {
			p.Price.Amounts = append(p.Price.Amounts, drawUnits(t, "units"))
			p.Price.Receivers = append(p.Price.Receivers, drawAddress(t, "receiver"))
		}
		if rapid.Bool().Draw(t, "nft") {
			a := drawAddress(t, "nftAddress")
			p.Credits.NFTAddress = &a
		}
		b := must.Get(json.Marshal(p))(t)
		var got toll.Plan
		must.Do(t, json.Unmarshal(b, &got))
		sameJSON(t, got.Price, p.Price)
		sameJSON(t, got.Credits, p.Credits)
		sameJSON(t, got.Metadata, p.Metadata)
		got.Price, got.Credits, got.Metadata = p.Price, p.Credits, p.Metadata
		if !reflect.DeepEqual(got, p) {
			t.Fatalf("got  %+v\nwant %+v", got, p)
		}
	})
}

func TestAgent_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		created := drawTime(t, "created")
		a := toll.Agent{
			ID: toll.NewAgentID(), Owner: drawAddress(t, "owner"), Metadata: drawMetadata(t, created),
			API: toll.AgentAPI{
				Endpoints: toll.EndpointList{}, OpenEndpoints: rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "open"),
				AgentDefinitionURL: rapid.String().Draw(t, "definition"), AuthType: rapid.SampledFrom([]string{"none", "basic", "oauth", "bearer"}).Draw(t, "auth"),
				StrictEndpoints: rapid.Bool().Draw(t, "strict"), HasCredentials: rapid.Bool().Draw(t, "credentials"),
			},
			Plans: []toll.PlanRef{}, IsListed: rapid.Bool().Draw(t, "listed"), CreatedAt: created, UpdatedAt: drawTime(t, "updated"),
		}
		for range rapid.IntRange(0, 4).Draw(t, "endpoints") {
			a.API.Endpoints = append(a.API.Endpoints, toll.Endpoint{Verb: rapid.SampledFrom(toll.Verbs).Draw(t, "verb"), URL: rapid.String().Draw(t, "url")})
			a.Plans = append(a.Plans, toll.PlanRef{PlanID: toll.NewPlanID(), Name: rapid.String().Draw(t, "plan")})
		}
		b := must.Get(json.Marshal(a))(t)
		var got toll.Agent
		must.Do(t, json.Unmarshal(b, &got))
		sameJSON(t, got.Metadata, a.Metadata)
		got.Metadata = a.Metadata
		if !reflect.DeepEqual(got, a) {
			t.Fatalf("got  %+v\nwant %+v", got, a)
		}
	})
}

// Whatever a registration stores, its flat copies and its nested form register the same plan again.
func TestPlan_RecordRegistersAgain(t *testing.T) {
	for _, body := range []string{
		`{"name":"p","priceConfig":{},"creditsConfig":{}}`,
		`{"name":"p","priceConfig":{"amounts":[1000000000000000001]},"creditsConfig":{"minAmount":1,"maxAmount":9,"isRedemptionAmountFixed":false}}`,
		`{"name":"p","priceConfig":{"tokenAddress":"` + usdc + `","price":5},"creditsConfig":{"subscriptionType":"time","duration":60}}`,
		`{"name":"p","priceConfig":{"tokenAddress":"` + eurc + `","amounts":["1","2"],"receivers":["` + alice + `","` + bob + `"]},"creditsConfig":{"creditsType":"EXPIRABLE","durationOfThePlan":60}}`,
	} {
		p := must.Get(registerPlan(body))(t)
		r := p.Record()
		for name, parts := range map[string][2]any{"flat": {r.PriceConfig, r.CreditsConfig}, "nested": {r.Registry.Price, r.Registry.Credits}} {
			again := must.Get(json.Marshal(map[string]any{"name": "p", "priceConfig": parts[0], "creditsConfig": parts[1]}))(t)
			q, err := registerPlan(string(again))
			if err != nil {
				t.Errorf("%s: %v", again, err)
				continue
			}
			wantPrice, _ := json.Marshal(p.Price)
			if b, _ := json.Marshal(q.Price); !bytes.Equal(b, wantPrice) {
				t.Errorf("%s price: got %s, want %s", name, b, wantPrice)
			}
			wantCredits, _ := json.Marshal(p.Credits)
			if b, _ := json.Marshal(q.Credits); !bytes.Equal(b, wantCredits) {
				t.Errorf("%s credits: got %s, want %s", name, b, wantCredits)
			}
			if q.AccessLimit != p.AccessLimit {
				t.Errorf("%s: access limit %s, want %s", name, q.AccessLimit, p.AccessLimit)
			}
		}
	}
}
