package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
)

func (s *stack) put(who actor, path, body string) answer {
	s.t.Helper()
	return s.do(who, "PUT", base+path, body)
}

func (s *stack) want(a answer, status int, code string) {
	s.t.Helper()
	if a.status != status || a.code() != code {
		s.t.Errorf("%d %s; want %d %s", a.status, a.body, status, code)
	}
}

// Whoever changes one member undoes no change of another, however close they come.
func TestConcurrentUpdatesMerge(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		plan := s.plan(s.b1, freePlan)
		agent := s.agent(s.b1, plan)
		bodies := []string{
			`{"description":"d"}`, `{"tags":["t"]}`, `{"metadataAttributes":{"author":"a"}}`, `{"metadataAttributes":{"license":"l"}}`,
			`{"metadataAttributes":{"integration":"i"}}`, `{"metadataAttributes":{"customData":{"c":1}}}`,
		}
		var all sync.WaitGroup
		for _, body := range bodies {
			for _, path := range []string{"/protocol/agents/" + agent, "/protocol/plans/" + plan} {
				all.Go(func() { s.want(s.put(s.b1, path, body), 200, "") })
			}
		}
		all.Wait()
		for _, path := range []string{"/protocol/agents/" + agent, "/protocol/plans/" + plan} {
			a := s.do(actor{}, "GET", base+path, "")
			for _, part := range []string{`"description":"d"`, `"tags":["t"]`, `"author":"a"`, `"license":"l"`, `"integration":"i"`, `"customData":{"c":1}`} {
				if !strings.Contains(string(a.body), part) {
					t.Errorf("%s was lost: %s", part, a.body)
				}
			}
		}
	})
}

// What changes nothing writes nothing, and its transaction is that of the last change.
func TestUpdateOfNothing(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, pricedPlan)
	agent := s.agent(s.b1, plan)
	s.clock.advance(1e9)
	first := s.put(s.b1, "/protocol/agents/"+agent, `{"description":"x"}`)
	before := dump(t, s.store)
	s.clock.advance(1e9)
	record := string(s.do(actor{}, "GET", base+"/protocol/plans/"+plan, "").body)
	for path, bodies := range map[string][]string{
		"/protocol/agents/" + agent: {"", `{}`, `{"description":"x"}`, `{"name":"Ask","tags":null,"plans":["1"],"owner":"0x1"}`, `{"metadataAttributes":{},"agentApiAttributes":{}}`},
		"/protocol/plans/" + plan:   {"", `{}`, `{"name":"Basic"}`, `{"priceConfig":{},"creditsConfig":{}}`, record},
	} {
		for _, body := range bodies {
			a := s.put(s.b1, path, body)
			s.want(a, 200, "")
			if strings.Contains(path, "agents") && a.text(t, "txHash") != first.text(t, "txHash") {
				t.Errorf("%s is told as another change: %s", body, a.body)
			}
		}
	}
	if dump(t, s.store) != before {
		t.Error("an update of nothing was written")
	}
	s.want(s.put(s.b1, "/protocol/agents/"+agent, `{"description":null}`), 200, "")
	if a := s.do(actor{}, "GET", base+"/protocol/agents/"+agent, ""); a.text(t, "description") != "" || a.member(t, "registry.lastUpdated") != json.Number(fmt.Sprint(s.clock.now().UnixMilli())) {
		t.Errorf("%s", a.body)
	}
}

func TestTermsOfAPlanStay(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, pricedPlan)
	before := dump(t, s.store)
	for body, path := range map[string]string{
		`{"name":"New","priceConfig":{"amounts":[1]}}`:              "priceConfig.amounts",
		`{"description":"New","creditsConfig":{"minAmount":1}}`:     "creditsConfig.minAmount",
		`{"accessLimit":"time"}`:                                    "accessLimit",
		`{"metadataAttributes":{"name":"New","isTrialPlan":true}}`:  "metadataAttributes.isTrialPlan",
		`{"creditsConfig":{"durationSecs":"1"},"maxOrders":"1000"}`: "creditsConfig.durationSecs",
	} {
		a := s.put(s.b1, "/protocol/plans/"+plan, body)
		s.want(a, 409, "BCK.PROTOCOL.0909")
		if !strings.Contains(a.text(t, "params"), `"path":"`+path+`"`) {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	s.want(s.put(s.b1, "/protocol/plans/"+plan, `{"priceConfig":{"amounts":["+1"]},"creditsConfig":{"amount":1.5}}`), 400, "BCK.PROTOCOL.0057")
	s.want(s.put(s.b1, "/protocol/plans/"+plan, `{"maxOrders":0}`), 400, "BCK.PROTOCOL.0057")
	s.want(s.put(s.b1, "/protocol/plans/"+plan, `{"name":""}`), 400, "BCK.HTTP.400")
	if dump(t, s.store) != before {
		t.Error("a refused update was stored")
	}
}

// An order limit that is lowered or lifted counts from the next order on.
func TestMaxOrdersCanChange(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	order := func() answer { return s.do(s.s1, "POST", base+"/protocol/plans/"+plan+"/order", "") }
	s.want(order(), 200, "")
	s.want(s.put(s.b1, "/protocol/plans/"+plan, `{"maxOrders":1}`), 200, "")
	s.want(order(), 409, "BCK.PROTOCOL.0901")
	s.want(s.put(s.b1, "/protocol/plans/"+plan, `{"maxOrders":2}`), 200, "")
	s.want(order(), 200, "")
	s.want(order(), 409, "BCK.PROTOCOL.0901")
	s.want(s.put(s.b1, "/protocol/plans/"+plan, `{"maxOrders":null}`), 200, "")
	s.want(order(), 200, "")
}

// An unlisted agent fails verify at once, and what is held for it still settles.
func TestUnlistedAgent(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		plan := s.plan(s.b1, freePlan)
		agent := s.agent(s.b1, plan)
		token, _ := s.token(s.s1, plan)
		verify := func(more string) answer {
			return s.do(s.b1, "POST", base+"/x402/verify", agentBody(plan, agent, token, more))
		}
		held := verify(`,"hold":true`)
		if held.member(t, "isValid") != true {
			t.Fatalf("%s", held.body)
		}
		path := "/protocol/agents/" + agent + "/list/"
		off := s.put(s.b1, path+"false", "")
		s.want(off, 200, "")
		again := s.put(s.b1, path+"false", "")
		s.want(again, 200, "BCK.PROTOCOL.0018")
		if again.member(t, "success") != true || again.text(t, "txHash") != off.text(t, "txHash") || again.member(t, "httpStatus") != json.Number("200") {
			t.Errorf("%s", again.body)
		}
		if a := verify(""); a.status != 200 || a.member(t, "isValid") != false || a.text(t, "invalidReason") != "agent_inactive" || a.code() != "BCK.X402.0912" {
			t.Errorf("verify of an unlisted agent: %d %s", a.status, a.body)
		}
		if a := s.do(s.b1, "POST", base+"/x402/settle", agentBody(plan, agent, token, "")); a.status != 403 || a.code() != "BCK.X402.0912" {
			t.Errorf("settle without a hold: %d %s", a.status, a.body)
		}
		s.want(s.do(s.b1, "POST", base+"/x402/settle", agentBody(plan, agent, token, `,"agentRequestId":"`+held.text(t, "agentRequestId")+`"`)), 200, "")
		if a := s.do(actor{}, "GET", base+"/protocol/agents/"+agent, ""); a.member(t, "isListed") != false || a.member(t, "metadata.curation.isListed") != false {
			t.Errorf("%s", a.body)
		}
		s.want(s.put(s.b1, path+"true", ""), 200, "")
		if a := verify(""); a.member(t, "isValid") != true {
			t.Errorf("verify of a listed agent: %s", a.body)
		}
		for _, word := range []string{"TRUE", "yes", "1", "tru"} {
			s.want(s.put(s.b1, path+word, ""), 400, "BCK.HTTP.400")
		}
	})
}

// An unlisted plan takes no orders; credits that exist keep working.
func TestUnlistedPlan(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		plan := s.plan(s.b1, freePlan)
		token, _ := s.token(s.s1, plan)
		s.want(s.do(s.s1, "POST", base+"/protocol/plans/"+plan+"/order", ""), 200, "")
		path := "/protocol/plans/" + plan + "/list/"
		s.want(s.put(s.b1, path+"false", ""), 200, "")
		s.want(s.put(s.b1, path+"false", ""), 200, "BCK.PROTOCOL.0019")
		s.want(s.do(s.s1, "POST", base+"/protocol/plans/"+plan+"/order", ""), 409, "BCK.PROTOCOL.0902")
		s.want(s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, "")), 200, "")
		other, _ := s.token(s.b2, plan)
		if a := s.do(s.b1, "POST", base+"/x402/verify", paymentBody(plan, other, "")); a.member(t, "isValid") != false || a.text(t, "invalidReason") != "plan_unlisted" {
			t.Errorf("first order on demand: %s", a.body)
		}
		s.want(s.put(s.b1, path+"true", ""), 200, "")
		s.want(s.put(s.b1, path+"true", ""), 200, "BCK.PROTOCOL.0019")
		s.want(s.do(s.s1, "POST", base+"/protocol/plans/"+plan+"/order", ""), 200, "")
	})
}

func TestAttachAndDetach(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		first, plan, theirs := s.plan(s.b1, freePlan), s.plan(s.b1, strings.Replace(freePlan, "Free", "Second", 1)), s.plan(s.b2, freePlan)
		agent, foreign := s.agent(s.b1, first), s.agent(s.b2, theirs)
		token, _ := s.token(s.s1, plan)
		at := base + "/protocol/agents/" + agent + "/plan/"
		verify := func() answer { return s.do(s.b1, "POST", base+"/x402/verify", agentBody(plan, agent, token, "")) }
		if a := verify(); a.member(t, "isValid") != false || a.code() != "BCK.X402.0003" {
			t.Errorf("not attached: %s", a.body)
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { s.want(s.do(s.b1, "POST", at+plan, ""), 200, "") })
		}
		all.Wait()
		if a := verify(); a.member(t, "isValid") != true {
			t.Errorf("attached: %s", a.body)
		}
		a := s.do(actor{}, "GET", base+"/protocol/agents/"+agent, "")
		if want := `"plans":[{"planId":"` + first + `","name":"Free"},{"planId":"` + plan + `","name":"Second"}]`; !strings.Contains(string(a.body), want) {
			t.Errorf("%s", a.body)
		}
		for path, code := range map[string]string{
			at + theirs: "BCK.PROTOCOL.0017", base + "/protocol/agents/" + foreign + "/plan/" + plan: "BCK.PROTOCOL.0016",
		} {
			s.want(s.do(s.b1, "POST", path, ""), 403, code)
		}
		s.want(s.do(s.b1, "POST", at+"11111", ""), 404, "BCK.PROTOCOL.0003")
		s.want(s.do(s.b1, "POST", base+"/protocol/agents/11111/plan/"+plan, ""), 404, "BCK.PROTOCOL.0004")
		s.want(s.do(s.b1, "POST", at+"007", ""), 400, "BCK.COMMON.0026")
		s.want(s.do(s.b1, "DELETE", at+theirs, ""), 403, "BCK.PROTOCOL.0026")
		s.want(s.do(s.b1, "DELETE", at+"11111", ""), 404, "BCK.PROTOCOL.0003")
		s.want(s.do(s.b2, "DELETE", at+plan, ""), 403, "BCK.PROTOCOL.0016")
		s.want(s.do(s.b1, "DELETE", at+plan, ""), 200, "")
		s.want(s.do(s.b1, "DELETE", at+plan, ""), 403, "BCK.PROTOCOL.0026")
		if a := verify(); a.member(t, "isValid") != false || a.code() != "BCK.X402.0003" {
			t.Errorf("detached: %s", a.body)
		}
	})
}

// 64 plans, and not one more from those who come at once.
func TestPlansPerAgent(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		ids := make([]string, 70)
		ctx := context.Background()
		must.Do(t, s.store.Tx(ctx, func(tx *store.Tx) error {
			for i := range ids {
				id := toll.NewPlanID()
				ids[i] = string(id)
				p := &toll.Plan{ID: id, Owner: s.b1.address, Metadata: toll.Metadata{Name: "P"}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(1, 1), AccessLimit: toll.LimitCredits, IsListed: true, CreatedAt: s.clock.now(), UpdatedAt: s.clock.now()}
				if err := store.InsertPlan(ctx, tx, p, "", nil); err != nil {
					return err
				}
			}
			return nil
		}))
		list := func(n int) string { return `["` + strings.Join(ids[:n], `","`) + `"]` }
		s.want(s.do(s.b1, "POST", base+"/protocol/agents", `{"name":"x","plans":`+list(65)+`}`), 400, "BCK.HTTP.400")
		agent := s.do(s.b1, "POST", base+"/protocol/agents", `{"name":"x","plans":`+list(62)+`}`).text(t, "agentId")
		var all sync.WaitGroup
		for _, id := range ids[62:] {
			all.Go(func() {
				if a := s.do(s.b1, "POST", base+"/protocol/agents/"+agent+"/plan/"+id, ""); a.status != 200 && (a.status != 400 || !strings.Contains(string(a.body), "64 plans")) {
					t.Errorf("%d %s", a.status, a.body)
				}
			})
		}
		all.Wait()
		if a := s.do(actor{}, "GET", base+"/protocol/agents/"+agent+"/plans?limit=100", ""); a.member(t, "total") != json.Number("64") {
			t.Errorf("%v plans", a.member(t, "total"))
		}
	})
}

// Upstream secrets merge like everything else, and stay sealed.
func TestUpstreamSecretsMerge(t *testing.T) {
	s := newStack(t)
	const canary = "upstream-canary-7113"
	agent := s.do(s.b1, "POST", base+"/protocol/agents", `{"metadataAttributes":{"name":"x"},"agentApiAttributes":{"username":"`+canary+`","headers":{"X-A":"`+canary+`"}}}`).text(t, "agentId")
	stored := func() (c toll.Credentials) {
		sealed := must.Get(store.AgentCredentials(context.Background(), s.store, toll.AgentID(agent)))(t)
		if sealed == nil {
			return c
		}
		plain := must.Get(seal.New([32]byte{1, 2, 3}).Open(sealed, []byte("agent-credentials/"+agent)))(t)
		must.Do(t, json.Unmarshal(plain, &c))
		return c
	}
	for _, tt := range []struct {
		body, want string
		has        bool
	}{
		{`{"agentApiAttributes":{"password":"` + canary + `p"}}`, canary + " " + canary + "p map[X-A:" + canary + "]", true},
		{`{"description":"y","agentApiAttributes":{"authType":"basic"}}`, canary + " " + canary + "p map[X-A:" + canary + "]", true},
		{`{"agentApiAttributes":{"username":null,"headers":{"X-B":"b"}}}`, " " + canary + "p map[X-B:b]", true},
		{`{"agentApiAttributes":{"password":null,"headers":{}}}`, "  map[]", false},
		{`{"agentApiAttributes":{"token":"` + canary + `"}}`, "  map[]", true},
		{`{"agentApiAttributes":null}`, "  map[]", false},
	} {
		a := s.put(s.b1, "/protocol/agents/"+agent, tt.body)
		s.want(a, 200, "")
		c := stored()
		if got := fmt.Sprint(c.Username, " ", c.Password, " ", c.Headers); got != tt.want {
			t.Errorf("%s: %s", tt.body, got)
		}
		read := s.do(s.b1, "GET", base+"/protocol/agents/"+agent, "")
		if read.member(t, "metadata.agent.hasCredentials") != tt.has || strings.Contains(string(read.body)+string(a.body), canary) {
			t.Errorf("%s: %s", tt.body, read.body)
		}
	}
	if strings.Contains(dump(t, s.store)+s.log.String(), canary) {
		t.Error("a secret is in the clear")
	}
}
