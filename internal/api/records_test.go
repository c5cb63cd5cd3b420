package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// The same caller, nonce and body is the same registration, however often and however fast it is sent.
func TestRegistrationNonce(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		body := strings.Replace(freePlan, `{"name"`, `{"nonce":"115792089237316195423570985008687907853269984665640564039457584007913129639935","name"`, 1)
		both := `{"plan":{"metadataAttributes":{"name":"P"},"priceConfig":{},"creditsConfig":{},"nonce":7},"agent":{"metadataAttributes":{"name":"A"}}}`
		for path, body := range map[string]string{"/protocol/plans": body, "/protocol/agents/plans": both} {
			const n = 16
			answers := make([]answer, n)
			var all sync.WaitGroup
			for i := range n {
				all.Go(func() { answers[i] = s.do(s.b1, "POST", base+path, body) })
			}
			all.Wait()
			for _, a := range answers {
				if a.status != 200 || string(a.body) != string(answers[0].body) {
					t.Errorf("%s: %d %s, first %s", path, a.status, a.body, answers[0].body)
				}
			}
			other := strings.Replace(body, `"name":"`, `"name":"X`, 1)
			if a := s.do(s.b1, "POST", base+path, other); a.status != 409 || a.code() != "BCK.PROTOCOL.0906" {
				t.Errorf("%s with another body: %d %s", path, a.status, a.body)
			}
			if a := s.do(s.b2, "POST", base+path, body); a.status != 200 || string(a.body) == string(answers[0].body) {
				t.Errorf("%s by another caller: %d %s", path, a.status, a.body)
			}
		}
		same := strings.Replace(body, `"priceConfig":{"priceType":"FREE"},`, "", 1)
		same = strings.TrimSuffix(same, "}") + ` , "unknown": [1], "priceConfig": {"priceType":"FREE"} }`
		if a := s.do(s.b1, "POST", base+"/protocol/plans", same); a.status != 200 {
			t.Errorf("other blanks and order are the same body: %d %s", a.status, a.body)
		}
		if a := s.do(s.b1, "POST", base+"/protocol/agents/plans", strings.Replace(both, `"nonce":7`, `"nonce":"115792089237316195423570985008687907853269984665640564039457584007913129639935"`, 1)); a.status != 409 {
			t.Errorf("a nonce counts over both routes: %d %s", a.status, a.body)
		}
		if a := s.do(s.b1, "GET", base+"/protocol/plans", ""); a.member(t, "total") != json.Number("2") {
			t.Errorf("%s", a.body)
		}
		if a := s.do(s.b1, "GET", base+"/protocol/agents", ""); a.member(t, "total") != json.Number("1") {
			t.Errorf("%s", a.body)
		}
	})
}

// A registration of both that fails leaves neither.
func TestBothOrNothing(t *testing.T) {
	s := newStack(t)
	theirs := s.plan(s.b2, freePlan)
	before := dump(t, s.store)
	for _, plans := range []string{`["` + theirs + `"]`, `"12345"`} {
		a := s.do(s.b1, "POST", base+"/protocol/agents/plans", `{"plan":{"priceConfig":{},"creditsConfig":{}},"agent":{"plans":`+plans+`}}`)
		if a.status != 403 && a.status != 404 {
			t.Errorf("%s: %d %s", plans, a.status, a.body)
		}
	}
	if dump(t, s.store) != before {
		t.Error("half of a registration was stored")
	}
}

// Pages and cursors go over a list once, without a gap, and the counts agree.
func TestLists(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		const n = 23
		for i := range n {
			s.plan(s.b1, strings.Replace(freePlan, "Free", fmt.Sprintf("P%02d", i), 1))
			if i%3 == 0 { // several with one time
				s.clock.advance(1e9)
			}
		}
		names := func(a answer) (out []string) {
			var list struct{ Plans []struct{ Name string } }
			must.Do(t, json.Unmarshal(a.body, &list))
			for _, p := range list.Plans {
				out = append(out, p.Name)
			}
			return out
		}
		for _, order := range []string{"", "&sortBy=created&sortOrder=asc", "&sortBy=name&sortOrder=ASC", "&sortBy=NAME&sortOrder=desc", "&sortBy=updated"} {
			var paged, cursored []string
			for page := 1; ; page++ {
				a := s.do(s.b1, "GET", base+"/protocol/plans?offset=5&page="+fmt.Sprint(page)+order, "")
				if a.status != 200 {
					t.Fatalf("%d %s", a.status, a.body)
				}
				for _, name := range []string{"total", "totalCount", "totalResults"} {
					if a.member(t, name) != json.Number("23") {
						t.Errorf("%s: %v", name, a.member(t, name))
					}
				}
				if a.member(t, "page") != json.Number(fmt.Sprint(page)) || a.member(t, "offset") != json.Number("5") || a.member(t, "pageSize") != json.Number("5") {
					t.Errorf("%.300s", a.body)
				}
				got := names(a)
				if len(got) == 0 {
					break
				}
				paged = append(paged, got...)
			}
			path := base + "/protocol/plans?limit=4" + order
			for path != "" {
				a := s.do(s.b1, "GET", path, "")
				if a.status != 200 {
					t.Fatalf("%d %s", a.status, a.body)
				}
				cursored = append(cursored, names(a)...)
				path = ""
				if next := a.text(t, "nextCursor"); next != "" {
					path = base + "/protocol/plans?limit=4&page=9&cursor=" + next
				}
			}
			if len(paged) != n || strings.Join(paged, " ") != strings.Join(cursored, " ") {
				t.Errorf("%q: pages %v, cursors %v", order, paged, cursored)
			}
		}
		for _, bad := range []string{
			"page=0", "page=-1", "page=x", "page=1.0", "page=", "page=01", "page=99999999999", "offset=0", "offset=101", "pageSize=x", "limit=+5", "sortBy=price", "sortOrder=up", "cursor=", "cursor=abc", "page=1&page=2",
			"cursor=eyJzIjoiY3JlYXRlZCIsImsiOiJ4IiwiaSI6InQxIn0",
		} {
			for _, path := range []string{"/protocol/plans", "/protocol/agents", "/api-keys", "/x402/permissions"} {
				if a := s.do(s.b1, "GET", base+path+"?"+bad, ""); a.status != 400 || a.code() != "BCK.COMMON.0904" {
					t.Errorf("%s?%s: %d %s", path, bad, a.status, a.body)
				}
			}
		}
		if a := s.do(s.b1, "GET", base+"/protocol/plans?cursor="+strings.Repeat("x", 5000), ""); a.status != 400 || a.code() != "BCK.COMMON.0034" {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := s.do(s.b1, "GET", base+"/protocol/plans?pageSize=3&offset=5&orgId=x", ""); len(names(a)) != 3 {
			t.Errorf("pageSize wins: %v", names(a))
		}
	})
}

// Upstream secrets go in and never come out.
func TestUpstreamSecretsAreWriteOnly(t *testing.T) {
	s := newStack(t)
	const secret = "upstream-canary-5521"
	a := s.do(s.b1, "POST", base+"/protocol/agents", `{"metadataAttributes":{"name":"x"},"agentApiAttributes":{"authType":"bearer","token":"`+secret+`","password":"`+secret+`","headers":{"x":"`+secret+`"}}}`)
	if a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	got := s.do(s.b1, "GET", base+"/protocol/agents/"+a.text(t, "agentId"), "")
	if got.member(t, "metadata.agent.hasCredentials") != true || strings.Contains(string(got.body), secret) {
		t.Errorf("%s", got.body)
	}
	if strings.Contains(dump(t, s.store), secret) || strings.Contains(s.log.String(), secret) {
		t.Error("the secret is in the clear")
	}
}

// A member with two names is taken under either, and not with two values.
func TestNamesOfOneMember(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	one, two := `"`+s.s1.address.String()+`"`, `"`+s.b2.address.String()+`"`
	for _, tt := range []struct {
		path, members string
		status        int
	}{
		{"mint", `"amount":1,"creditsReceiver":` + one, 200},
		{"mint", `"amount":1,"holderAddress":` + strings.ToLower(one), 200},
		{"mint", `"amount":1,"creditsReceiver":` + one + `,"holderAddress":` + strings.ToLower(one), 200},
		{"mint", `"amount":1,"creditsReceiver":` + one + `,"holderAddress":` + two, 400},
		{"mint", `"amount":1`, 400},
		{"mintExpirable", `"amount":1,"creditsReceiver":` + one, 200},
		{"mintExpirable", `"creditsAmount":"2","holderAddress":` + one + `,"creditsDuration":"60"`, 200},
		{"mintExpirable", `"creditsAmount":1,"amount":"1","creditsReceiver":` + one, 200},
		{"mintExpirable", `"creditsAmount":1,"amount":2,"creditsReceiver":` + one, 400},
		{"mintExpirable", `"creditsReceiver":` + one, 400},
		{"mintExpirable", `"amount":1,"creditsReceiver":` + one + `,"expirationBlock":5`, 400},
		{"mintExpirable", `"amount":1,"creditsReceiver":` + one + `,"expirationBlock":null`, 200},
		{"mint", `"amount":1,"creditsReceiver":"0x0000000000000000000000000000000000000000"`, 400},
	} {
		if a := s.do(s.b1, "POST", base+"/protocol/plans/"+tt.path, `{"planId":"`+plan+`",`+tt.members+`}`); a.status != tt.status {
			t.Errorf("%s %s: %d %s", tt.path, tt.members, a.status, a.body)
		}
	}
	a := s.do(s.s1, "GET", base+"/protocol/plans/"+plan+"/balance", "")
	if a.text(t, "balance") != "8" || !strings.Contains(string(a.body), `"lots":[{"amount":"2","remaining":"2","expiresAt":"2026-11-21T01:53:17.872Z"}`) {
		t.Errorf("%s", a.body)
	}
}
