package api_test

import (
	"strings"
	"testing"

	"github.com/tollhq/toll"
)

// A rehearsal writes nothing, and its id is good for nothing but its own end.
func TestSimulation(t *testing.T) {
	s := newStack(t)
	before := dump(t, s.store)
	start := func(who actor, body string) answer {
		return s.do(who, "POST", base+"/protocol/agents/simulate/start", body)
	}
	finish := func(who actor, body string) answer {
		return s.do(who, "POST", base+"/protocol/agents/simulate/finish", body)
	}

	a := start(s.b1, `{"agentName":"Mine","planName":"Basic","pricePerCredit":0.05,"batch":true}`)
	if a.status != 200 || a.text(t, "agentName") != "Mine" || a.text(t, "balance.planName") != "Basic" || a.member(t, "balance.isSubscriber") != true ||
		!strings.Contains(string(a.body), `"pricePerCredit":0.05,"batch":true`) || a.text(t, "urlMatching") == "" || a.text(t, "verbMatching") == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if _, err := toll.ParseAgentID(a.text(t, "agentId")); err != nil {
		t.Error(err)
	}
	id := a.text(t, "agentRequestId")
	usual := start(s.b1, "")
	if usual.status != 200 || usual.text(t, "agentRequestId") == id || usual.member(t, "batch") != false {
		t.Errorf("%d %s", usual.status, usual.body)
	}

	for body, want := range map[string]string{
		`{"agentRequestId":"` + id + `"}`: "2", `{"agentRequestId":"` + id + `","marginPercent":0.2,"batch":false}`: "2",
		`{"agentRequestId":"` + id + `","marginPercent":0,"batch":true}`: "1",
	} {
		for range 2 {
			if a := finish(s.b1, body); a.status != 200 || a.member(t, "success") != true || a.text(t, "creditsToRedeem") != want {
				t.Errorf("%s: %d %s", body, a.status, a.body)
			}
		}
	}
	for body, code := range map[string]toll.Code{
		`{}`:                                  toll.CodeBadRequest,
		`{"agentRequestId":"` + id[1:] + `"}`: toll.CodeSubTaskRequestUnknown,
		`{"agentRequestId":"` + id + `","marginPercent":10.1}`: toll.CodeBadNumber,
	} {
		if a := finish(s.b1, body); a.code() != string(code) {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	for _, who := range []actor{s.b2, s.s1} {
		if a := finish(who, `{"agentRequestId":"`+id+`"}`); a.code() != string(toll.CodeSubTaskRequestUnknown) {
			t.Errorf("of somebody else: %d %s", a.status, a.body)
		}
	}
	for _, body := range []string{
		`{"pricePerCredit":-1}`, `{"pricePerCredit":"1x"}`, `{"pricePerCredit":` + strings.Repeat("1", 41) + `}`, `{"pricePerCredit":[1]}`,
		`{"agentName":"` + strings.Repeat("x", 257) + `"}`, `{"planName":7}`,
	} {
		if a := start(s.b1, body); a.code() != string(toll.CodeBadRequest) && a.code() != string(toll.CodeBadNumber) {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	for _, a := range []answer{start(actor{}, "{}"), finish(actor{}, "{}")} {
		if a.status != 401 {
			t.Errorf("without a key: %d %s", a.status, a.body)
		}
	}
	if dump(t, s.store) != before {
		t.Error("a rehearsal changed the database")
	}

	// For real, the id is of no request.
	plan := s.plan(s.b1, freePlan)
	token, _ := s.token(s.s1, plan)
	if a := s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, `,"agentRequestId":"`+id+`"`)); a.status < 400 {
		t.Errorf("settled under the id of a rehearsal: %d %s", a.status, a.body)
	}
	if a := s.do(s.b1, "POST", base+"/protocol/agent-sub-tasks", `{"agentRequestId":"`+id+`","creditsToRedeem":1}`); a.status < 400 {
		t.Errorf("a sub-task of a rehearsal: %d %s", a.status, a.body)
	}
}

// Clients take this code for a service without that protocol, and pay otherwise.
func TestMPP_NotConfigured(t *testing.T) {
	s := newStack(t)
	for _, path := range []string{"/mpp/challenge", "/mpp/permissions/1"} {
		for _, who := range []actor{{}, s.b1} {
			if a := s.do(who, "POST", base+path, `{"planId":"1"}`); a.status != 501 || a.code() != "BCK.MPP.0002" {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
	}
}
