package x402_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// A server asks for payment.
func ExampleNewPaymentRequired() {
	terms := &x402.Terms{PlanID: "7", Scheme: "svc:erc4337", Network: "eip155:84532", PayTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", MaxAmount: 5}
	required := x402.NewPaymentRequired([]*x402.Terms{terms}, x402.Options{Endpoint: "https://agent.example.com/ask", HTTPVerb: "POST", Error: "Payment required"})
	text, _ := x402.Encode(required)
	fmt.Println(string(text))

	header, _ := x402.EncodeHeader(required)
	var back x402.PaymentRequired
	fmt.Println(x402.DecodeHeader(header, &back), back.Accepts[0].Amount)
	// Output:
	// {"x402Version":2,"error":"Payment required","resource":{"url":"https://agent.example.com/ask"},"accepts":[{"scheme":"svc:erc4337","network":"eip155:84532","amount":"5","asset":"svc:credits","payTo":"0x70997970C51812dc3A010C7d01b50e0d17dc79C8","maxTimeoutSeconds":60,"planId":"7","extra":{"version":"1","planId":"7","httpVerb":"POST"}}],"extensions":{}}
	// <nil> 5
}

// An access token has three forms, and only the JWS inside counts.
func ExampleDecodeToken() {
	token := x402.EncodeToken("aa.bb.cc",
		x402.Requirements{Scheme: "svc:erc4337", Network: "eip155:84532", PlanID: "7"},
		x402.Authorization{From: "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", PlanID: "7"}, "order-81")
	for _, form := range []string{"aa.bb.cc", token, `{"x402Version":2,"payload":{"signature":"aa.bb.cc"}}`} {
		t, err := x402.DecodeToken(form)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s %s %q\n", t.Rendering, t.JWS, t.Nonce)
	}
	t, _ := x402.DecodeToken(token)
	fmt.Println(t.Contradicts(x402.Signed{
		From: toll.MustAddress("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"), PlanID: "8", Scheme: "svc:erc4337", Network: "eip155:84532",
	}, toll.Sandbox))
	// Output:
	// jwt aa.bb.cc ""
	// x402 aa.bb.cc "order-81"
	// x402 aa.bb.cc ""
	// payload.authorization.planId
}

// All wrong members of a body are reported at once.
func ExampleDecode() {
	var plan struct {
		PlanID  toll.PlanID  `json:"planId"`
		Name    string       `json:"name"`
		Credits toll.Credits `json:"credits"`
	}
	err := x402.Decode([]byte(`{"planId": 7, "name": 7, "credits": 1e3}`), &plan)
	var e *toll.Error
	errors.As(err, &e)
	fmt.Println(e.Code)
	for _, f := range e.Params["errors"].([]toll.Fault) {
		fmt.Printf("%s: %s\n", f.Path, f.Message)
	}
	// Output:
	// BCK.COMMON.0026
	// planId: The planId must be a decimal uint256 above zero.
	// name: must be a string
	// credits: An amount of credits must be a whole number within range, without a sign, fraction, exponent, or leading zero.
}

func ExampleEndpoints_Match() {
	endpoints := x402.NewEndpoints([]toll.Endpoint{
		{Verb: "POST", URL: "https://agent.example.com/ask"},
		{Verb: "GET", URL: "https://agent.example.com/files/:name"},
	})
	fmt.Println(endpoints.Match("https://AGENT.example.com:443/files/a%20b/?page=2", "get"))
	fmt.Println(endpoints.Match("https://agent.example.com/files/x/../../ask", "POST"))
	// Output:
	// https://agent.example.com/files/:name GET true
	//   false
}

// A plug-in for clients of other software: what they need is the member payload.
func ExampleClientScheme() {
	asked := x402.StandardRequirements{
		Scheme: "svc:erc4337", Network: "eip155:84532", Asset: "svc:credits", Amount: "5", Extra: map[string]any{"planId": "7"},
	}
	scheme := x402.NewClientScheme(asked.Scheme, x402.StaticToken("e30.eyJhdXRob3JpemF0aW9uIjp7InBsYW5JZCI6IjcifX0.c2ln"))
	payload, err := scheme.CreatePaymentPayload(context.Background(), asked)
	fmt.Println(payload["signature"], payload["nonce"] != "", err)
	// Output: e30.eyJhdXRob3JpemF0aW9uIjp7InBsYW5JZCI6IjcifX0.c2ln true <nil>
}

// A plug-in for servers of other software: prices are credits, and the plan stands in extra.
func ExampleServerScheme() {
	scheme := &x402.ServerScheme{Name: x402.Default.SchemeCrypto(), PlanID: "7", AgentID: "9"}
	asset, amount, _ := scheme.ParsePrice("5")
	entry, _ := scheme.EnhanceRequirements(x402.StandardRequirements{
		Scheme: scheme.Scheme(), Network: "eip155:84532", Asset: asset, Amount: amount, MaxTimeoutSeconds: 60,
	})
	text, _ := x402.Encode(entry)
	fmt.Println(string(text))
	// Output: {"scheme":"svc:erc4337","network":"eip155:84532","asset":"svc:credits","amount":"5","payTo":"merchant","maxTimeoutSeconds":60,"extra":{"agentId":"9","planId":"7","version":"1"}}
}
