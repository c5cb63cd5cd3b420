package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/checkout/railtest"
)

// stockBody is the body of a standard server for a plan; payload is JSON of the payment, or a string.
func stockBody(plan, payload, amount string) string {
	return `{"x402Version":2,"paymentPayload":` + payload + `,"paymentRequirements":{"scheme":"svc:erc4337","network":"eip155:84532","amount":"` + amount +
		`","asset":"svc:credits","payTo":"0x70997970C51812dc3A010C7d01b50e0d17dc79C8","maxTimeoutSeconds":60,"extra":{"version":"1","planId":"` + plan + `"}}}`
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Standard servers read verdicts: everything that is wrong with a payment is one, with status 200. What is no verdict has the
// members of one, so that its text does not reach the subscriber.
func TestStockBodies_Statuses(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	token, _ := s.token(s.s1, plan)
	good := stockBody(plan, quoted(token), "5")
	for name, c := range map[string]struct {
		who    actor
		body   string
		status int
		reason string
	}{
		"malformed requirements": {s.b1, strings.Replace(good, `"extra":{"version":"1","planId":"`+plan+`"}`, `"extra":{"planId":7}`, 1), 200, "invalid_payload"},
		"no requirements":        {s.b1, `{"paymentPayload":{}}`, 200, "invalid_payload"},
		"an array as payment":    {s.b1, stockBody(plan, `[]`, "5"), 200, "invalid_payload"},
		"an undecodable payment": {s.b1, stockBody(plan, `"%%"`, "5"), 200, "invalid_payload"},
		"another version":        {s.b1, strings.Replace(good, `"x402Version":2`, `"x402Version":1`, 1), 200, "invalid_x402_version"},
		"a plan as number":       {s.b1, strings.Replace(good, `"extra"`, `"planId":11,"extra"`, 1), 200, "invalid_payload"},
		"another builder":        {s.b2, good, 200, "unauthorized_server"},
		"another asset":          {s.b1, strings.Replace(good, "svc:credits", "0x036CbD53842c5426634e7929541eC2318f3dCF7e", 1), 200, "invalid_payment_requirements"},
		"no key":                 {actor{}, good, 401, "unauthorized_server"},
		"both bodies":            {s.b1, strings.Replace(good, `{"x402Version":2`, `{"x402AccessToken":"a.b.c","x402Version":2`, 1), 400, "invalid_payload"},
		"no JSON":                {s.b1, good[:len(good)-1], 400, "invalid_payload"},
		"too large":              {s.b1, strings.Replace(good, `"asset"`, `"x":"`+strings.Repeat("x", 1<<20)+`","asset"`, 1), 413, "invalid_payload"},
	} {
		v := s.do(c.who, "POST", base+"/x402/verify", c.body)
		if v.status != c.status || v.text(t, "invalidReason") != c.reason || !strings.Contains(string(v.body), `"isValid":false`) {
			t.Errorf("verify, %s: %d %s", name, v.status, v.body)
		}
		r := s.do(c.who, "POST", base+"/x402/settle", c.body)
		if r.status != c.status || r.text(t, "errorReason") != c.reason || !strings.Contains(string(r.body), `"success":false`) ||
			!strings.Contains(string(r.body), `"transaction":""`) || r.text(t, "network") == "" {
			t.Errorf("settle, %s: %d %s", name, r.status, r.body)
		}
		for _, a := range []answer{v, r} {
			if strings.Contains(string(a.body), token[20:60]) {
				t.Errorf("%s: the answer shows the access token", name)
			}
		}
	}
	if v := s.do(s.b1, "POST", base+"/x402/verify", good); v.status != 200 || v.text(t, "extra.heldAmount") != "5" {
		t.Errorf("%d %s", v.status, v.body)
	}
	if r := s.do(s.b1, "POST", base+"/x402/settle", good); r.status != 200 || r.text(t, "amount") != "5" || r.text(t, "transaction") == "" {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// While an order is not decided verify is 503 in either body and says which request to repeat; settle is 503, and for a
// standard server a success that is not one yet.
func TestTopUpPending_OnTheWire(t *testing.T) {
	s, crypto, _ := newPaidStack(t)
	plan := s.plan(s.b1, pricedPlan)
	limit := s.do(s.s1, "POST", base+"/delegation/create", `{"provider":"erc4337","spendingLimitCents":1000,"durationSecs":3600,"currency":"usdc"}`).text(t, "delegationId")
	token := s.do(s.s1, "POST", base+"/x402/permissions", `{"planId":"`+plan+`","delegationConfig":{"delegationId":"`+limit+`"}}`).text(t, "accessToken")
	crypto.Behave(railtest.Behaviour{Hang: true})
	hasty := s.hasty()
	spec := hasty.do(s.b1, "POST", base+"/x402/verify", paymentBody(plan, token, `,"hold":true`))
	id := spec.text(t, "extra.agentRequestId")
	if spec.status != 503 || spec.code() != "BCK.X402.0914" || spec.header.Get("Retry-After") == "" || spec.text(t, "invalidReason") != "settlement_pending" || id == "" {
		t.Fatalf("%d %s", spec.status, spec.body)
	}
	if a := hasty.do(s.b1, "POST", base+"/x402/verify", stockBody(plan, quoted(token), "5")); a.status != 503 || a.text(t, "invalidReason") != "settlement_pending" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := hasty.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, "")); a.status != 503 || a.text(t, "errorReason") != "settlement_pending" || a.text(t, "extra.agentRequestId") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	stock := hasty.do(s.b1, "POST", base+"/x402/settle", stockBody(plan, quoted(token), "5"))
	if stock.status != 200 || stock.text(t, "errorReason") != "settlement_pending" || !strings.HasPrefix(stock.text(t, "transaction"), "0x") {
		t.Errorf("%d %s", stock.status, stock.body)
	}
	crypto.Behave(railtest.Behaviour{})
	repeat := s.do(s.b1, "POST", base+"/x402/verify", paymentBody(plan, token, `,"hold":true,"agentRequestId":"`+id+`"`))
	if repeat.text(t, "agentRequestId") != id {
		t.Fatalf("%d %s", repeat.status, repeat.body)
	}
	settled := s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, `,"agentRequestId":"`+id+`"`))
	if settled.status != 200 || settled.text(t, "orderTx") == "" || settled.text(t, "extra.orderTx") != settled.text(t, "orderTx") {
		t.Errorf("%d %s", settled.status, settled.body)
	}
	if n, _ := crypto.Charges(); n != 1 {
		t.Errorf("%d charges", n)
	}
}

// The old way to make a delegation says that it is one, also when its answer is repeated.
func TestInlineDelegation_OnTheWire(t *testing.T) {
	s, _, _ := newPaidStack(t)
	plan := s.plan(s.b1, pricedPlan)
	body := `{"planId":"` + plan + `","delegationConfig":{"spendingLimitCents":500,"duration_secs":3600}}`
	first := s.do(s.s1, "POST", base+"/x402/permissions", body, "Idempotency-Key", "once")
	again := s.do(s.s1, "POST", base+"/x402/permissions", body, "Idempotency-Key", "once")
	for _, a := range []answer{first, again} {
		if a.status != 201 || a.header.Get("Deprecation") != "true" || !strings.Contains(string(a.body), `"warnings":[{"code":"BCK.X402.0920","message":"`) {
			t.Fatalf("%d %v %s", a.status, a.header, a.body)
		}
	}
	if again.header.Get("Idempotency-Replayed") != "true" || string(again.body) != string(first.body) {
		t.Errorf("%s", again.body)
	}
	if a := s.do(s.s1, "GET", base+"/delegation", ""); !strings.Contains(string(a.body), `"total":1,`) {
		t.Errorf("%s", a.body)
	}
	for body, code := range map[string]string{
		`{"planId":"` + plan + `","delegationConfig":{"delegationID":"one"}}`: "BCK.X402.0030",
		`{"planId":"` + plan + `","delegationConfig":{"durationSecs":1}}`:     "BCK.PROTOCOL.0057",
		`{"planId":"` + plan + `","delegationConfig":{"currency":"usd"}}`:     "BCK.X402.0034",
		`{"planId":"` + plan + `","delegationConfig":{"delegationId":"one"}}`: "BCK.COMMON.0025",
	} {
		if a := s.do(s.s1, "POST", base+"/x402/permissions", body); a.code() != code || a.header.Get("Deprecation") != "" {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if a := s.do(s.s1, "GET", base+"/delegation", ""); !strings.Contains(string(a.body), `"total":1,`) {
		t.Errorf("%s", a.body)
	}
}
