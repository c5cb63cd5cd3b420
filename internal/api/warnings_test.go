package api_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestUnknownMembersWarned: the answer to a creating request names the members that were passed over, the same each time.
func TestUnknownMembersWarned(t *testing.T) {
	s := newStack(t)
	plan, priced := s.plan(s.b1, freePlan), s.plan(s.b1, pricedPlan)
	const (
		deprecated = `{"code":"BCK.X402.0920","message":`
		fixed      = `{"code":"BCK.PROTOCOL.0904","message":`
		aboveFixed = `"isRedemptionAmountFixed":true,"minAmount":1,"maxAmount":100`
	)
	for name, c := range map[string]struct {
		path, body string
		want       []string // warnings as JSON; a prefix for objects
	}{
		"plan":       {"/protocol/plans", `{"name":"n","priceConfig":{},"creditsConfig":{"minAmout":2},"trail":true}`, []string{`"creditsConfig.minAmout"`, `"trail"`}},
		"fixed-plan": {"/protocol/plans", `{"name":"n","priceConfig":{},"creditsConfig":{` + aboveFixed + `},"trail":true}`, []string{fixed, `"trail"`}},
		"agent-with-fixed-plan": {
			"/protocol/agents/plans", `{"agentMetadata":{},"agentApi":{},"planMetadata":{},"priceConfig":{},"creditsConfig":{` + aboveFixed + `},"trail":true}`,
			[]string{fixed, `"trail"`},
		},
		"agent":      {"/protocol/agents", `{"name":"n","agentApi":{}}`, []string{`"agentApi"`}},
		"key":        {"/api-keys", `{"name":"n","color":1}`, []string{`"color"`}},
		"permission": {"/x402/permissions", `{"planId":"` + plan + `","redemption_limit":5}`, []string{`"redemption_limit"`}},
		"deprecated": {
			"/x402/permissions", `{"planId":"` + priced + `","delegationConfig":{"spendingLimitCents":100,"limit":1}}`,
			[]string{deprecated, `"delegationConfig.limit"`},
		},
		"none": {"/x402/permissions", `{"planId":"` + plan + `","metadata":{"a":{"b":1}},"accepted":{"planId":"` + plan + `","scheme":"svc:erc4337",` +
			`"network":"eip155:84532","amount":"5","extra":{"version":"1","httpVerb":"POST"}}}`, nil},
	} {
		for _, version := range []string{"1.0", "1.1"} {
			first := s.do(s.s1, "POST", base+c.path, c.body, "Idempotency-Key", name+version, "Service-Version", version)
			var answer struct{ Warnings []json.RawMessage }
			if err := json.Unmarshal(first.body, &answer); err != nil || first.status/100 != 2 {
				t.Errorf("%s: %d %s", name, first.status, first.body)
				continue
			}
			ok := len(answer.Warnings) == len(c.want)
			for i := 0; ok && i < len(c.want); i++ {
				ok = strings.HasPrefix(string(answer.Warnings[i]), c.want[i])
			}
			if !ok {
				t.Errorf("%s: got %s, want %s", name, answer.Warnings, c.want)
			}
			again := s.do(s.s1, "POST", base+c.path, c.body, "Idempotency-Key", name+version, "Service-Version", version)
			if again.status != first.status || string(again.body) != string(first.body) {
				t.Errorf("%s: the repeat answers %s, not %s", name, again.body, first.body)
			}
		}
	}
}

// TestDelegationConfigSpellings: delegationConfig is taken in snake case and in other spellings of its letters.
func TestDelegationConfigSpellings(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, pricedPlan)
	a := s.do(s.s1, "POST", base+"/delegation/create", `{"provider":"erc4337","spending_limit_cents":1000,"duration_secs":3600,"currency":"usdc"}`)
	id := a.text(t, "delegationId")
	for _, name := range []string{"delegationConfig", "delegation_config", "delegationconfig", "DelegationConfig", "delegation-config"} {
		for _, member := range []string{"delegationId", "delegation_id"} {
			a := s.do(s.s1, "POST", base+"/x402/permissions", `{"planId":"`+plan+`","`+name+`":{"`+member+`":"`+id+`"}}`)
			if a.status != 201 || a.text(t, "delegationId") != id || a.member(t, "warnings") != nil {
				t.Errorf("%s, %s: %d %s", name, member, a.status, a.body)
			}
		}
	}
	a = s.do(s.s1, "POST", base+"/x402/permissions", `{"planId":"`+plan+`","delegationConfig":`+string(a.body)+`}`) // as it came
	if a.status != 201 || a.member(t, "warnings") != nil {
		t.Errorf("the answer of delegation/create: %d %s", a.status, a.body)
	}
	a = s.do(s.s1, "POST", base+"/x402/permissions", `{"planId":"`+plan+`","delegationConfig":{"delegationId":"`+id+`"},"delegation_config":{"delegationId":"`+id+`"}}`)
	if a.status != 400 || !strings.Contains(string(a.body), "delegation_config") {
		t.Errorf("two of them: %d %s", a.status, a.body)
	}
	a = s.do(s.s1, "POST", base+"/x402/permissions", `{"planId":"`+plan+`","delegation_config":"`+id+`"}`)
	if a.status != 400 {
		t.Errorf("a text: %d %s", a.status, a.body)
	}
}
