package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// recent returns the last calls of a key.
func (s *stack) recent(who actor, key toll.Hash) (got api.RecentCalls) {
	s.t.Helper()
	a := s.do(who, "GET", base+"/api-keys/"+key.String()+"/calls", "")
	if a.status != http.StatusOK {
		s.t.Fatalf("%d %s", a.status, a.body)
	}
	must.Do(s.t, json.Unmarshal(a.body, &got))
	return got
}

// TestRecentCalls: a workspace sees the last calls of its keys with what became of them, and nobody else does.
func TestRecentCalls(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	other := s.keyOf(s.b1.address, "1.1")
	s.do(other, "GET", base+"/protocol/plans/"+plan+"?secret=1", "", "X-Correlation-Id", strings.Repeat("c", 128))
	s.do(other, "DELETE", base+"/protocol/nothing", "")
	s.do(other, "GET", base+"/protocol/plans/11", "")
	s.do(other, "POST", base+"/x402/release", `{"agentRequestId":"nobody"}`)
	s.do(other, "POST", base+"/x402/verify", paymentBody(plan, "nonsense", "")) // is in no list of calls
	s.do(s.b1, "GET", base+"/protocol/plans", "")

	got := s.recent(s.b1, other.keyID)
	want := []toll.RecentCall{
		{Operation: "release", Method: "POST", Path: base + "/x402/release", Status: 404, Code: toll.CodeSettlementNotFound},
		{Operation: "readPlan", Method: "GET", Path: base + "/protocol/plans/{planId}", Status: 404, Code: toll.CodePlanNotFound},
		{Status: 404, Code: toll.CodePathNotFound},
		{Operation: "readPlan", Method: "GET", Path: base + "/protocol/plans/{planId}", Status: 200, CorrelationID: strings.Repeat("c", 128)},
	}
	if len(got.Calls) != len(want) {
		t.Fatalf("%+v", got.Calls)
	}
	for i, c := range got.Calls {
		if c.CorrelationID == "" || c.DurationMicros < 0 || c.At.After(s.clock.now()) {
			t.Errorf("%+v", c)
		}
		if c.At, c.DurationMicros = (toll.Time{}), 0; want[i].CorrelationID == "" {
			c.CorrelationID = ""
		}
		if c != want[i] {
			t.Errorf("%+v, not %+v", c, want[i])
		}
	}
	if a := s.do(s.b2, "GET", base+"/api-keys/"+other.keyID.String()+"/calls", ""); toll.Code(a.code()) != toll.CodeKeyNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
	if text := fmt.Sprint(got); strings.Contains(text, "secret") {
		t.Errorf("a parameter of the query is kept: %s", text)
	}
}

// TestRecentCalls_Bounded: 200 calls of a key are kept, and the keys that called last.
func TestRecentCalls_Bounded(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	s := newStackOn(t, st)
	key := s.keyOf(s.b1.address, "1.1")
	for i := range 450 {
		s.do(key, "GET", base+"/protocol/holdings", "", "X-Correlation-Id", fmt.Sprint("n", i))
	}
	got := s.recent(s.b1, key.keyID).Calls
	if len(got) != 200 || got[0].CorrelationID != "n449" || got[199].CorrelationID != "n250" {
		t.Errorf("%d calls, %+v to %+v", len(got), got[0], got[len(got)-1])
	}
	if most := api.RememberKeys(3000, key.keyID); most > 1024 || most < 512 {
		t.Errorf("the calls of %d keys are kept", most)
	}
}

func BenchmarkRecentCalls(b *testing.B) {
	b.ReportAllocs()
	api.RememberTimes(b.N)
}
