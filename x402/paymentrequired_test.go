package x402_test

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

var exampleTerms = &x402.Terms{
	PlanID: planID, Scheme: "svc:erc4337", Network: "eip155:84532", PayTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", MaxAmount: 5,
}

func encode(t testing.TB, v any) string {
	t.Helper()
	b := must.Get(x402.Encode(v))(t)
	return string(b)
}

// Example E1 of the protocol page: header and content, byte for byte.
func TestPaymentRequired_WorkedExample(t *testing.T) {
	p := x402.NewPaymentRequired([]*x402.Terms{exampleTerms}, x402.Options{
		Endpoint: "https://agent.example.com/ask", AgentID: agentID, HTTPVerb: "POST",
		Description: "Ask the agent", MimeType: "application/json", Error: "Payment required",
		Extensions: map[string]json.RawMessage{"payment-identifier": json.RawMessage(
			`{"info":{"required":false},"schema":{"type":"object","properties":{"required":{"type":"boolean"},"id":{"type":"string","minLength":16,"maxLength":128,"pattern":"^[a-zA-Z0-9_-]+$"}},"required":["required"]}}`)},
	})
	if got, want := encode(t, p), golden(t, "payment-required.json"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got, err := x402.EncodeHeader(p)
	if want := golden(t, "payment-required.header"); err != nil || got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var back x402.PaymentRequired
	if err := x402.DecodeHeader(got, &back); err != nil || encode(t, &back) != encode(t, p) {
		t.Errorf("%v %+v", err, back)
	}
}

func TestNewPaymentRequired(t *testing.T) {
	for name, c := range map[string]struct {
		terms []*x402.Terms
		o     x402.Options
		want  string
	}{
		"minimal": {[]*x402.Terms{exampleTerms}, x402.Options{Minimal: true, Endpoint: "https://a.example/ask"},
			`{"x402Version":2,"resource":{"url":"https://a.example/ask"},"accepts":[{"scheme":"svc:erc4337","network":"eip155:84532","planId":"` + planID + `","extra":{"version":"1"}}],"extensions":{}}`},
		"no plan": {nil, x402.Options{Minimal: true},
			`{"x402Version":2,"resource":{"url":""},"accepts":[{"scheme":"svc:erc4337","network":"eip155:84532","planId":"","extra":{"version":"1"}}],"extensions":{}}`},
		"no plan, live": {nil, x402.Options{Environment: toll.Live},
			`{"x402Version":2,"resource":{"url":""},"accepts":[{"scheme":"svc:erc4337","network":"eip155:8453","asset":"svc:credits","payTo":"merchant","maxTimeoutSeconds":60,"planId":"","extra":{"version":"1"}}],"extensions":{}}`},
		"plan that could not be read, card": {[]*x402.Terms{{PlanID: "7"}}, x402.Options{Scheme: "svc:card-delegation", Amount: toll.Credits(3).Ptr(), MaxTimeoutSecs: 900},
			`{"x402Version":2,"resource":{"url":""},"accepts":[{"scheme":"svc:card-delegation","network":"stripe:sandbox","amount":"3","asset":"svc:credits","payTo":"merchant","maxTimeoutSeconds":900,"planId":"7","extra":{"version":"1","planId":"7"}}],"extensions":{}}`},
		"two plans": {[]*x402.Terms{{PlanID: "7", MaxAmount: 1}, {PlanID: "8", MaxAmount: 2, Network: "eip155:1"}}, x402.Options{AgentID: "9", HTTPVerb: "GET", Network: "eip155:5"},
			`{"x402Version":2,"resource":{"url":""},"accepts":[` +
				`{"scheme":"svc:erc4337","network":"eip155:5","amount":"1","asset":"svc:credits","payTo":"merchant","maxTimeoutSeconds":60,"planId":"7","extra":{"version":"1","planId":"7","agentId":"9","httpVerb":"GET"}},` +
				`{"scheme":"svc:erc4337","network":"eip155:5","amount":"2","asset":"svc:credits","payTo":"merchant","maxTimeoutSeconds":60,"planId":"8","extra":{"version":"1","planId":"8","agentId":"9","httpVerb":"GET"}}],"extensions":{}}`},
	} {
		if got := encode(t, x402.NewPaymentRequired(c.terms, c.o)); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, c.want)
		}
	}
}

func TestDecodePaymentRequired(t *testing.T) {
	object := golden(t, "payment-required.json")
	for name, raw := range map[string]string{
		"object": object, "object with blanks": " " + object + "\n", "text": strconv.Quote(object),
		"base64": `"` + base64.StdEncoding.EncodeToString([]byte(object)) + `"`, "base64url, raw": `"` + base64.RawURLEncoding.EncodeToString([]byte(object)) + `"`,
		"escaped text": strings.ReplaceAll(strconv.Quote(object), "/", `\u002f`),
	} {
		p, err := x402.DecodePaymentRequired([]byte(raw))
		if err != nil || encode(t, p) != object {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		raw   string
		code  toll.Code
		paths string
	}{
		"null":      {`null`, toll.CodeBadRequest, ""},
		"number":    {`5`, toll.CodeBadRequest, ""},
		"array":     {`[]`, toll.CodeBadRequest, ""},
		"text":      {`"hello"`, toll.CodeBadRequest, ""},
		"empty":     {`""`, toll.CodeBadRequest, ""},
		"trailing":  {`{"x402Version":2}x`, toll.CodeBadRequest, ""},
		"duplicate": {`"{\"accepts\":[],\"accepts\":[]}"`, toll.CodeBadRequest, "accepts"},
		"version":   {`{"x402Version":1}`, toll.CodeBadX402Version, ""},
		"none":      {`{"accepts":[]}`, toll.CodeBadX402Version, ""},
		"members":   {`{"x402Version":2,"resource":{"url":1},"accepts":[{"scheme":1,"extra":{"version":1}},5]}`, toll.CodeBadRequest, "resource.url accepts[0].scheme accepts[0].extra.version accepts[1]"},
		"in text":   {`"{\"x402Version\":2,\"accepts\":[{\"planId\":1}]}"`, toll.CodeBadID, "accepts[0].planId"},
		"deeper":    {`{"x402Version":2,"x":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, toll.CodeBadRequest, ""},
		"deep":      {strconv.Quote(`{"x402Version":2,"x":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`), toll.CodeBadRequest, ""},
	} {
		_, err := x402.DecodePaymentRequired([]byte(c.raw))
		if codeOf(t, err) != c.code || pathsOf(t, err) != c.paths {
			t.Errorf("%s: %v at %q", name, err, pathsOf(t, err))
		}
	}
	tolerated := `{"x402Version":"2","error":null,"resource":null,"extensions":null,"more":{},"accepts":[` +
		`{"scheme":"s","network":"n","amount":"","asset":"","payTo":"","maxTimeoutSeconds":0,"planId":"1","extra":{"planId":""}},` +
		`{"amount":5,"maxTimeoutSeconds":"","extra":null},` +
		`{"scheme":"exact","amount":"1000000000000000000000","extra":{"name":"USDC","version":"2"}}]}`
	p, err := x402.DecodePaymentRequired([]byte(tolerated))
	if err != nil || p.Accepts[1].Amount != "5" || p.Accepts[2].Amount != "1000000000000000000000" || p.Accepts[0].PlanID != "1" {
		t.Errorf("%v %+v", err, p)
	}
}
