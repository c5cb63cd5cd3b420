package pay_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/pay"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

// catalogueAge is longer than a catalogue lives.
const catalogueAge = 6 * time.Second

func mustItems(s *scene) []x402.CatalogueItem {
	s.Helper()
	c := must.Get(s.one().Catalogue.List(s.ctx, x402.CatalogueFilter{}, 100, 0))(s)
	return c.Items
}

const exampleInfo = `{"input":{"type":"http","method":"POST","bodyType":"json","body":{"prompt":"hi"}},"output":{"type":"json"}}`

// declaring is a stock call whose client sends this extension bazaar along.
func (c *stockCall) declaring(bazaar string) *stockCall {
	d := *c
	e := *c.call
	e.token = rewrite(c.s, c.token, func(o *outer) {
		o.Resource.MimeType = "application/json"
		o.Extensions = map[string]any{"bazaar": json.RawMessage(bazaar)}
	})
	d.call = &e
	return &d
}

// What a payment of the owner of an agent says of a resource is taken when the resource is registered, when it fits its schema, and
// when the payment is good; everything else of an item stays what the builder registered.
func TestBazaarOfPayments(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 10))
		a := s.agent(func(a *toll.Agent) {
			a.API.Endpoints = append(a.API.Endpoints, toll.Endpoint{Verb: "POST", URL: "mcp://demo/tools/ask"})
		}, p)
		s.mint(p, b1, 1000)
		tok := s.token(p, b1, nil)
		n := 0
		try := func(c *stockCall) string {
			t.Helper()
			v := must.Get(c.verify(s.at(n)))(s)
			return string(v.ExtensionResponses)
		}
		paying := func(url, bazaar string) *stockCall {
			n++
			return s.call(p, a, tok).nonce(nonceOf(n)).stock("1").at(url).declaring(bazaar)
		}
		const schema = `"schema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"input":{"type":"object","properties":{"method":{"enum":["POST"]}},"required":["type"]}},"required":["input"]}`
		const good = `{"info":` + exampleInfo + `,` + schema + `}`
		const success = `{"bazaar":{"status":"success"}}`

		if v := s.call(p, a, tok).nonce("plain").stock("1").at(askURL).hold(); v.ExtensionResponses != nil {
			t.Errorf("nothing was said: %s", v.ExtensionResponses)
		}
		if got := try(paying(askURL, good)); got != success {
			t.Fatal(got)
		}
		if got := try(paying(askURL, good)); got != success { // the same again
			t.Error(got)
		}
		taken := func(resource, want string) {
			t.Helper()
			s.clock.add(catalogueAge)
			for _, i := range mustItems(s) {
				if i.Resource == resource && string(i.Extensions["bazaar"]) == want && i.MimeType == "application/json" && len(i.Accepts) == 1 && i.Accepts[0].Amount == "10" {
					return
				}
			}
			t.Errorf("%s has not %s", resource, want)
		}
		taken(askURL, `{"info":`+exampleInfo+`}`)
		if got := try(paying("mcp://demo/tools/ask", `{"info":{"input":{"type":"mcp","toolName":"ask","inputSchema":{"type":"object","properties":{"q":{"type":"string"}}}}},"schema":{}}`)); got != success {
			t.Error(got)
		}
		taken("mcp://demo/tools/ask", `{"info":{"input":{"type":"mcp","toolName":"ask","inputSchema":{"type":"object","properties":{"q":{"type":"string"}}}}}}`)

		other := strings.Replace(good, `"hi"`, `"ho"`, 1)
		refuse := func(name string, c *stockCall, why string) {
			t.Helper()
			if got := try(c); !strings.HasPrefix(got, `{"bazaar":{"status":"rejected","rejectedReason":"`) || !strings.Contains(got, why) {
				t.Errorf("%s: %s", name, got)
			}
		}
		refuse("again within a minute", paying(askURL, other), "a minute ago")
		s.clock.add(time.Minute)
		refuse("refused payment", func() *stockCall { c := paying(askURL, other); c.amount = "99"; return c }(), "the payment was refused")
		refuse("unregistered url", paying("https://a.example/other", other), "the payment was refused")
		// A payment that names no agent is bound to none.
		loose := paying("https://evil.example/x", other)
		loose.required.Accepts[0].Extra.AgentID = ""
		refuse("no agent", loose, "does not name a registered resource")
		refuse("another method", paying(askURL, strings.NewReplacer(`"method":"POST"`, `"method":"PUT"`, `"enum":["POST"]`, `"enum":["PUT"]`).Replace(other)), "the method is not registered")
		refuse("another tool", paying("mcp://demo/tools/ask", `{"info":{"input":{"type":"mcp","toolName":"asc","inputSchema":{}}},"schema":{}}`), "the tool is not registered")
		refuse("a tool at a url", paying(askURL, `{"info":{"input":{"type":"mcp","toolName":"ask","inputSchema":{}}},"schema":{}}`), "the tool is not registered")
		refuse("misfit", paying(askURL, strings.Replace(other, `"enum":["POST"]`, `"enum":["GET"]`, 1)), "does not match its schema")
		for name, bad := range map[string]string{
			"remote reference": `{"$ref":"https://evil.example/schema.json"}`, "file": `{"properties":{"input":{"$ref":"file:///etc/passwd"}}}`, "relative": `{"$ref":"other.json#/x"}`,
			"root": `{"properties":{"input":{"$ref":"#"}}}`, "id": `{"$id":"https://evil.example/"}`, "dynamic": `{"$dynamicRef":"#x"}`,
			"circle":  `{"$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"anyOf":[{"$ref":"#/$defs/a"}]}}}`,
			"missing": `{"$ref":"#/$defs/a"}`, "work": `{"allOf":[` + strings.Repeat(`{"$ref":"#/$defs/a"},`, 99) + `{}],"$defs":{"a":{"allOf":[` + strings.Repeat(`{"$ref":"#/$defs/b"},`, 99) + `{}]},"b":{"allOf":[{},{}]}}}`,
			"older draft": `{"$schema":"http://json-schema.org/draft-04/schema#"}`, "no object": `true`, "wrong keyword": `{"type":7}`, "pattern": `{"properties":{"input":{"patternProperties":{"(":{}}}}}`,
		} {
			refuse(name, paying(askURL, `{"info":`+exampleInfo+`,"schema":`+bad+`}`), "schema")
		}
		if got := try(paying(askURL, `{"info":`+exampleInfo+`,"schema":{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}}`)); got != success {
			t.Errorf("a reference inside: %s", got)
		}
		refuse("malformed", paying(askURL, `{"info":[]}`), "info has no input")
		taken(askURL, `{"info":`+exampleInfo+`}`) // none of these changed anything
		if got := try(paying(askURL, other)); got != success {
			t.Error(got)
		}
		taken(askURL, `{"info":`+strings.Replace(exampleInfo, `"hi"`, `"ho"`, 1)+`}`)
	})
}

// Payers send along what they like. So a payer of standard software describes what nobody has described, and nobody but the owner
// describes anew; in our own body the server speaks for itself.
func TestBazaarOfStrangers(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 10))
		a := s.agent(nil, p)
		for _, who := range []toll.Address{b1, s1} {
			s.mint(p, who, 100)
		}
		mine, theirs := s.token(p, b1, nil), s.token(p, s1, nil)
		n := 0
		stock := func(tok *toll.AccessToken, bazaar string) *stockCall {
			n++
			return s.call(p, a, tok).nonce(nonceOf(n)).stock("1").at(askURL).declaring(bazaar)
		}
		said := func(v *x402.VerifyResponse, err error) string {
			t.Helper()
			s.valid(v, err)
			return string(v.ExtensionResponses)
		}
		shown := func() string {
			s.clock.add(time.Minute)
			return string(mustItems(s)[0].Extensions["bazaar"]) + mustItems(s)[0].MimeType
		}
		bazaar := func(prompt string) string {
			return `{"info":` + strings.Replace(exampleInfo, "hi", prompt, 1) + `,"schema":{"type":"object"}}`
		}
		const success, refused = `{"bazaar":{"status":"success"}}`, `{"bazaar":{"status":"rejected","rejectedReason":"only the owner of the agent can change its description"}}`

		if got := said(stock(theirs, bazaar("hello")).verify(s.one())); got != success {
			t.Errorf("the first payer of a standard server: %s", got)
		}
		first := shown()
		if first != `{"info":`+strings.Replace(exampleInfo, "hi", "hello", 1)+`}application/json` {
			t.Errorf("%s", first)
		}
		if got := said(stock(theirs, bazaar("buy elsewhere")).verify(s.at(1))); got != refused || shown() != first {
			t.Errorf("a stranger describes it anew: %s, %s", got, shown())
		}
		if got := said(stock(theirs, bazaar("buy elsewhere")).call.verify(s.one(), nil)); got != refused || shown() != first {
			t.Errorf("a stranger describes it anew in our body: %s, %s", got, shown())
		}
		if got := said(stock(mine, bazaar("hi")).verify(s.one())); got != success {
			t.Fatal(got)
		}
		described := shown()
		if described != `{"info":`+exampleInfo+`}application/json` {
			t.Errorf("%s", described)
		}
		if got := said(stock(theirs, bazaar("hi")).verify(s.one())); got != success {
			t.Errorf("a stranger sends back what is shown: %s", got)
		}
		if got := said(stock(theirs, bazaar("buy elsewhere")).verify(s.at(1))); got != refused || shown() != described {
			t.Errorf("a stranger describes it anew: %s, %s", got, shown())
		}

		// The server that asks in our own body says it itself, whatever its client says.
		ours := stock(theirs, bazaar("buy elsewhere")).call
		ours.required.Extensions = map[string]json.RawMessage{"bazaar": json.RawMessage(bazaar("please"))}
		ours.required.Resource.MimeType = "text/plain"
		if got := said(ours.verify(s.one(), nil)); got != success || shown() != `{"info":`+strings.Replace(exampleInfo, "hi", "please", 1)+`}text/plain` {
			t.Errorf("the server describes it: %s, %s", got, shown())
		}
		ours.required.Extensions = nil
		if got := said(ours.verify(s.one(), nil)); got != refused {
			t.Errorf("and its client: %s", got)
		}
	})
}

// Receipts are in every successful settlement of a service where they are switched on, and a repeat is the same byte for byte.
func TestSignedReceipts(t *testing.T) {
	s := newScene(t, "sqlite", 1)
	i := s.one()
	f := i.pays(s, func(f *pay.Deps, _ *tokens.Deps, p *purchases.Deps) { f.Service, p.Receipts = b2, true })
	p := s.plan(dynamic(1, 10))
	a := s.agent(nil, p)
	s.mint(p, s1, 100)
	c := s.call(p, a, s.token(p, s1, nil))
	plain := c.burn("plain", nil)
	if _, ok := x402.ReceiptOf(plain.Extensions); ok {
		t.Error("a receipt that nobody switched on")
	}
	with := &instance{i.store, i.auth, i.ledger, i.checkout, f}
	s.clock.add(1500 * time.Millisecond)
	r, err := c.settle(with, "one", amount(3))
	must.Do(s, err)
	signed, ok := x402.ReceiptOf(r.Extensions)
	if !ok {
		t.Fatalf("%s", r.Raw)
	}
	key := must.Get(x402.StatementKey(i.auth.DID(), x402.KeyID(signed.Signature)))(s)
	receipt := must.Get(signed.Verify(key))(s)
	if want := (x402.Receipt{Version: 1, Network: "eip155:84532", ResourceURL: askURL, Payer: s1.String(), IssuedAt: start.Unix() + 1, Transaction: r.Transaction}); *receipt != want {
		t.Errorf("%+v, want %+v", receipt, want)
	}
	again := must.Get(c.settle(with, "one", amount(3)))(s)
	if !again.Replayed || string(again.Raw) != string(r.Raw) {
		t.Errorf("%s\n%s", again.Raw, r.Raw)
	}
	// Deployed clients call the network of cards stripe. Their answer repeats that; a receipt names the environment too.
	card := s.plan(func(p *toll.Plan) { p.Price.IsCrypto = false })
	s.mint(card, s1, 10)
	byCard := s.call(card, nil, s.token(card, s1, nil))
	byCard.required.Accepts[0].Network = "stripe"
	answer := must.Get(byCard.settle(with, "card", nil))(s)
	if signed, ok = x402.ReceiptOf(answer.Extensions); !ok || answer.Network != "stripe" {
		t.Fatalf("%+v", answer)
	}
	if receipt, err = signed.Verify(key); err != nil || receipt.Network != "stripe:sandbox" {
		t.Errorf("%+v, %v", receipt, err)
	}
	// What was answered stays when receipts are switched on or off.
	for _, by := range []*instance{i, with} {
		if again, err := c.settle(by, "plain", nil); err != nil || string(again.Raw) != string(plain.Raw) {
			t.Errorf("%s", again.Raw)
		}
		if again, err := c.settle(by, "one", amount(3)); err != nil || string(again.Raw) != string(r.Raw) {
			t.Errorf("%s", again.Raw)
		}
	}
	if got, _ := x402.Encode(f.Supported()); !strings.HasSuffix(string(got), `"signers":{"eip155:*":["`+b2.String()+`"]}}`) {
		t.Errorf("%s", got)
	}

	// An offer is signed for the plans of the one who asks, and for nothing else.
	required := s.required(p, a)
	offers := must.Get(f.Purchases.Offers(s.ctx, b1, &x402.OffersRequest{PaymentRequired: required}))(s)
	if len(offers.Offers) != 1 || offers.ValidUntil != s.clock.now().Unix()+300 {
		t.Fatalf("%+v", offers)
	}
	offer := must.Get(offers.Offers[0].Verify(key))(s)
	if want := x402.OfferOf(askURL, &required.Accepts[0], offers.ValidUntil); *offer != want || want.Amount != "10" {
		t.Errorf("%+v, want %+v", offer, want)
	}
	for name, f2 := range map[string]struct {
		caller toll.Address
		change func(r *x402.PaymentRequired)
		code   toll.Code
	}{
		"another's plan": {b2, func(*x402.PaymentRequired) {}, toll.CodeNotPlanOwner},
		"no plan":        {b1, func(r *x402.PaymentRequired) { r.Accepts[0].PlanID, r.Accepts[0].Extra.PlanID = "11", "11" }, toll.CodePaymentPlanNotFound},
		"nothing":        {b1, func(r *x402.PaymentRequired) { r.Accepts = nil }, toll.CodeBadRequest},
		"too much":       {b1, func(r *x402.PaymentRequired) { r.Accepts = make([]x402.Requirements, 9) }, toll.CodeBadRequest},
		"another scheme": {b1, func(r *x402.PaymentRequired) { r.Accepts[0].Scheme = "upto" }, toll.CodeBadRequest},
		"of a wallet":    {b1, func(r *x402.PaymentRequired) { r.Accepts[0].Scheme = "exact" }, toll.CodeUnsupportedScheme},
		"another asset":  {b1, func(r *x402.PaymentRequired) { r.Accepts[0].Asset = toll.USDCSandbox.String() }, toll.CodeBadRequest},
		"a long url":     {b1, func(r *x402.PaymentRequired) { r.Resource.URL = strings.Repeat("x", 9000) }, toll.CodeBadRequest},
	} {
		r := s.required(p, a)
		f2.change(&r)
		_, err := f.Purchases.Offers(s.ctx, f2.caller, &x402.OffersRequest{PaymentRequired: r})
		if toll.AsError(err) == nil || toll.AsError(err).Code != f2.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Neither is a credential.
	for _, statement := range []string{signed.Signature, offers.Offers[0].Signature} {
		c.token = statement
		v, err := c.verify(i, nil)
		s.invalid(v, err, "invalid_svc_payload_signature", "invalid_svc_plan_mismatch")
	}
}

// A payer sends a schema and the value that it is about, through any gate. The payment is answered at once, whatever the two say.
// T182
func TestSchemaOfPayer(t *testing.T) {
	s := newScene(t, "sqlite", 1)
	p := s.plan(dynamic(1, 10))
	s.mint(p, s1, 100)
	tok := s.token(p, s1, nil)
	times := func(n int, s string) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }
	described := func(body, leaf string) string {
		return `{"info":{"input":{"type":"http","method":"POST","bodyType":"json","body":` + body + `}},"schema":{"properties":{"input":{"properties":{"body":{"allOf":[` +
			times(3, `{"$ref":"#/$defs/a"}`) + `]}}}},"$defs":{"a":{"allOf":[` + times(3, `{"$ref":"#/$defs/b"}`) + `]},"b":{"allOf":[` + times(2, `{"$ref":"#/$defs/c"}`) + `]},"c":` + leaf + `}}}`
	}
	for name, bazaar := range map[string]string{
		"values":   described("["+times(1000, "0")+"]", `{"items":{"anyOf":[`+times(150, `{"const":1}`)+`,{}]}}`),
		"patterns": described(`"`+strings.Repeat("a", 1500)+`"`, `{"allOf":[`+times(75, `{"pattern":"(a?){1000}$"}`)+`]}`),
	} {
		began := time.Now()
		v, err := s.call(p, s.agent(nil, p), tok).nonce(name).stock("1").at(askURL).declaring(bazaar).verify(s.one())
		s.valid(v, err)
		if want := `{"bazaar":{"status":"rejected","rejectedReason":"the schema is too complex to check"}}`; string(v.ExtensionResponses) != want {
			t.Errorf("%s: %s", name, v.ExtensionResponses)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: the answer took %v", name, took)
		}
	}
}
