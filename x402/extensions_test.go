package x402_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// What a client changes or drops of what was advertised is found; what it adds, leaves out, or what a server makes anew is not.
func TestEchoMismatch(t *testing.T) {
	ours := map[string]json.RawMessage{
		"a": json.RawMessage(`{"info":{"x":1,"deep":{"b":[1,{"c":null}]}},"schema":{}}`), "b": json.RawMessage(`{"info":{"y":"t"}}`),
		"nothing": json.RawMessage(`{"schema":{}}`), x402.ExtensionOfferReceipt: json.RawMessage(`{"info":{"offers":[{"format":"jws"}],"z":1}}`),
		"sign-in-with-x": json.RawMessage(`{"info":{"domain":"a.example","nonce":"1","issuedAt":"t"}}`),
	}
	for theirs, want := range map[string]string{
		`{}`: "", `{"c":{"info":{"x":2}}}`: "", `{"nothing":{"info":{"x":2}}}`: "", `{"nothing":7}`: "",
		`{"a":{"info":{"deep":{"b":[1, {"c": null}]},"x":1.0,"more":true}}}`: "",
		`{"a":{"info":{"deep":{"b":[1,{"c":null}],"d":1},"x":1}}}`:           "a",
		`{"a":{"info":{"deep":{"b":[{"c":null},1]},"x":1}}}`:                 "a",
		`{"a":{"info":{"x":1}}}`:                                             "a", `{"a":{"info":{"x":"1","deep":{"b":[1,{"c":null}]}}}}`: "a",
		`{"b":{"info":{"y":"u"}},"a":{}}`: "a", `{"b":{"info":{"y":"u"}}}`: "b", `{"b":[]}`: "b", `{"b":{"info":[]}}`: "b",
		`{"offer-receipt":{"info":{"offers":[],"z":1}}}`: "", `{"offer-receipt":{"info":{"z":1}}}`: "", `{"offer-receipt":{"info":{"offers":[{"format":"jws"}],"z":2}}}`: "offer-receipt",
		`{"sign-in-with-x":{"info":{"domain":"a.example","nonce":"2"}}}`: "", `{"sign-in-with-x":{"info":{"domain":"b.example","nonce":"1","issuedAt":"t"}}}`: "sign-in-with-x",
	} {
		var m map[string]json.RawMessage
		must.Do(t, json.Unmarshal([]byte(theirs), &m))
		if got := x402.EchoMismatch(ours, m); got != want {
			t.Errorf("%s: %q, want %q", theirs, got, want)
		}
	}
}

// Offer and receipt of the worked example verify with the key of its DID document, and nothing that was changed does.
func TestStatementsVerify(t *testing.T) {
	const (
		document = `{"@context":["https://www.w3.org/ns/did/v1"],"id":"did:web:pay.example.com","verificationMethod":[{"id":"did:web:pay.example.com#kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k","type":"JsonWebKey2020","controller":"did:web:pay.example.com","publicKeyJwk":{"crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kty":"OKP"}}],"assertionMethod":["did:web:pay.example.com#kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"]}`
		offer    = `{"format":"jws","acceptIndex":0,"signature":"eyJhbGciOiJFZERTQSIsImtpZCI6ImRpZDp3ZWI6cGF5LmV4YW1wbGUuY29tI2tQcktfcW14VldhWVZBOXd3QkY2SXVvM3ZWeno3VHhIQ1R3WEJ5Z3JTNGsifQ.eyJ2ZXJzaW9uIjoxLCJyZXNvdXJjZVVybCI6Imh0dHBzOi8vYWdlbnQuZXhhbXBsZS5jb20vYXNrIiwic2NoZW1lIjoic3ZjOmVyYzQzMzciLCJuZXR3b3JrIjoiZWlwMTU1Ojg0NTMyIiwiYXNzZXQiOiJzdmM6Y3JlZGl0cyIsInBheVRvIjoiMHg3MDk5Nzk3MEM1MTgxMmRjM0EwMTBDN2QwMWI1MGUwZDE3ZGM3OUM4IiwiYW1vdW50IjoiNSIsInZhbGlkVW50aWwiOjE3OTUyMjY0NjB9.BWOrNFGg3W-fPyhyJM483ko8xtfaj9J_n9GrK7D_ScEUSx49CDuuzay2K8mmySD7qxbuGTU8HcqVvQ_N_QU5BA"}`
		receipt  = `{"format":"jws","signature":"eyJhbGciOiJFZERTQSIsImtpZCI6ImRpZDp3ZWI6cGF5LmV4YW1wbGUuY29tI2tQcktfcW14VldhWVZBOXd3QkY2SXVvM3ZWeno3VHhIQ1R3WEJ5Z3JTNGsifQ.eyJ2ZXJzaW9uIjoxLCJuZXR3b3JrIjoiZWlwMTU1Ojg0NTMyIiwicmVzb3VyY2VVcmwiOiJodHRwczovL2FnZW50LmV4YW1wbGUuY29tL2FzayIsInBheWVyIjoiMHhmMzlGZDZlNTFhYWQ4OEY2RjRjZTZhQjg4MjcyNzljZmZGYjkyMjY2IiwiaXNzdWVkQXQiOjE3OTUyMjY0MDIsInRyYW5zYWN0aW9uIjoiMHg1ZTJkNWQxZTU4ZTk0ZDc2MDdlMDc0NWNkM2U2MTJjNGEzNThmYzkzZjM3ZmM1YWIxZmVkOGQwNGJiZjdjZTc3In0.IDeInKcSkk8TlpCTP0NhxyNT5AycrIyS02KZW08fQ2_-OxlrXIR5cGhvgFGDVqpehwKiNI7k0wozl2XlYCTXCQ"}`
	)
	extensions := map[string]json.RawMessage{
		x402.ExtensionOfferReceipt: json.RawMessage(`{"info":{"offers":[` + offer + `],"receipt":` + receipt + `}}`),
	}
	offers := x402.Offers(extensions)
	signed, ok := x402.ReceiptOf(extensions)
	if len(offers) != 1 || !ok {
		t.Fatalf("%v %v", offers, ok)
	}
	for want, v := range map[string]any{offer: offers[0], receipt: signed} {
		if b, err := x402.Encode(v); err != nil || string(b) != want {
			t.Errorf("%s, %v", b, err)
		}
	}
	kid := x402.KeyID(offers[0].Signature)
	key, err := x402.StatementKey([]byte(document), kid)
	must.Do(t, err, kid)
	o, err := offers[0].Verify(key)
	entry := x402.Requirements{Scheme: "svc:erc4337", Network: "eip155:84532", Asset: "svc:credits", PayTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", Amount: "5"}
	if want := x402.OfferOf("https://agent.example.com/ask", &entry, 1795226460); err != nil || *o != want {
		t.Errorf("%+v, %v", o, err)
	}
	r, err := signed.Verify(key)
	if err != nil || r.Transaction != "0x5e2d5d1e58e94d7607e0745cd3e612c4a358fc93f37fc5ab1fed8d04bbf7ce77" || r.IssuedAt != 1795226402 || r.Payer != payer {
		t.Errorf("%+v, %v", r, err)
	}
	flipped := offers[0]
	flipped.Signature = flipped.Signature[:len(flipped.Signature)-8] + "AAAAAAAA"
	swapped := offers[0]
	swapped.Signature = strings.Replace(swapped.Signature, "eyJ2ZXJzaW9u", base64.RawURLEncoding.EncodeToString([]byte(`{"versioN`))[:12], 1)
	other := offers[0]
	other.Format = "eip712"
	for name, bad := range map[string]x402.SignedOffer{"signature": flipped, "payload": swapped, "format": other, "nothing": {}} {
		if _, err := bad.Verify(key); codeOf(t, err) != toll.CodeTokenSignature {
			t.Errorf("%s: %v", name, err)
		}
	}
	stranger := ed25519.NewKeyFromSeed(make([]byte, 32)).Public().(ed25519.PublicKey)
	if _, err := offers[0].Verify(stranger); err == nil {
		t.Error("another key verifies")
	}
	if _, err := x402.StatementKey([]byte(document), kid+"x"); err == nil {
		t.Error("a key that is not there")
	}
	if x402.KeyID("e30.e30.e30") != "" || x402.KeyID("") != "" {
		t.Error("a key id out of nothing")
	}
	// A 402 with one offer stays near 2 KB, a quarter of what one header line may have.
	full := x402.NewPaymentRequired([]*x402.Terms{{PlanID: planID, Scheme: "svc:erc4337", Network: "eip155:84532", PayTo: entry.PayTo, MaxAmount: 5}}, x402.Options{
		Endpoint: "https://agent.example.com/ask", Description: "Ask the agent", MimeType: "application/json", AgentID: agentID, HTTPVerb: "POST", Error: "Payment required",
		Extensions: map[string]json.RawMessage{
			x402.ExtensionPaymentIdentifier: x402.PaymentIdentifier(false), x402.ExtensionOfferReceipt: x402.OffersExtension(offers),
		},
	})
	if v, err := x402.EncodeHeader(full); err != nil || len(v) > 2200 {
		t.Errorf("payment-required has %d characters, %v", len(v), err)
	}
}

func TestReadBazaar(t *testing.T) {
	const good = `{"info":{"input":{"type":"http","method":"POST","bodyType":"json","body":{"prompt":"hi"}},"output":{"type":"json"}},"schema":{"type":"object"},"routeTemplate":"/a/:id"}`
	b, err := x402.ReadBazaar(json.RawMessage(good))
	if err != nil || b.Type != x402.ResourceHTTP || b.Method != "POST" || b.RouteTemplate != "/a/:id" {
		t.Fatalf("%+v, %v", b, err)
	}
	tool := `{"info":{"input":{"type":"mcp","toolName":"ask","inputSchema":{"type":"object"}}},"schema":{}}`
	if b, err := x402.ReadBazaar(json.RawMessage(tool)); err != nil || b.Type != x402.ResourceMCP || b.Tool != "ask" {
		t.Fatalf("%+v, %v", b, err)
	}
	for name, bad := range map[string]string{
		"no object": `7`, "no info": `{"schema":{}}`, "no schema": strings.Replace(good, `"schema"`, `"scheme"`, 1),
		"another type": strings.Replace(good, `"http"`, `"ftp"`, 1), "another method": strings.Replace(good, `"POST"`, `"BREW"`, 1),
		"no body": strings.Replace(good, `"body":`, `"bode":`, 1), "another bodyType": strings.Replace(good, `"bodyType":"json"`, `"bodyType":"xml"`, 1),
		"output without type": strings.Replace(good, `"output":{"type":"json"}`, `"output":{}`, 1), "template": strings.Replace(good, `/a/:id`, `/a/../:id`, 1),
		"no tool": strings.Replace(tool, `"ask"`, `""`, 1), "no inputSchema": strings.Replace(tool, `{"type":"object"}`, `true`, 1),
		"twice": strings.Replace(good, `"info"`, `"schema":{},"info"`, 1), "too large": strings.Replace(good, `"hi"`, `"`+strings.Repeat("x", 8<<10)+`"`, 1),
	} {
		if _, err := x402.ReadBazaar(json.RawMessage(bad)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestRoutesOfACatalogue(t *testing.T) {
	for endpoint, want := range map[string][2]string{
		"https://a.example/ask":                {"https://a.example/ask", ""},
		"https://a.example/ask?x=1#y":          {"https://a.example/ask", ""},
		"https://a.example":                    {"https://a.example", ""},
		"https://a.example/items/:id":          {"https://a.example/items/:id", "/items/:id"},
		"https://a.example/items/{id}/x/{n-1}": {"https://a.example/items/:id/x/:n-1", "/items/:id/x/:n-1"},
		"https://a.example/files/*":            {}, "https://a.example/files/(.*)": {}, "/ask": {}, "mcp://demo/tools/ask": {}, "https://a.example/ü/:id": {},
	} {
		resource, template, ok := x402.RouteOf(endpoint)
		if ok != (want[0] != "") || ok && (resource != want[0] || template != want[1]) {
			t.Errorf("%s: %q %q %v", endpoint, resource, template, ok)
		}
	}
	for endpoint, want := range map[string]string{
		"mcp://demo/tools/ask": "ask", "mcp://demo/tools/a%20b": "a b", "mcp://demo/tools/*": "", "mcp://demo/prompts/ask": "", "mcp://demo/resources/a": "", "https://a.example/ask": "",
	} {
		if tool, ok := x402.ToolOf(endpoint); tool != want || ok != (want != "") {
			t.Errorf("%s: %q %v", endpoint, tool, ok)
		}
	}
	for template, want := range map[string]bool{
		"/users/:userId": true, "/a/%2e%2e/b": false, "/a/..": false, "/x://y": false, "/x%3a//y": false, "users": false, "": false, "/": false, "/a b": false, "/a?b": false, "/%": false, "/%zz": false, "/~a.b-c_d": true,
	} {
		if x402.ValidRouteTemplate(template) != want {
			t.Errorf("%q: %v", template, !want)
		}
	}
}
