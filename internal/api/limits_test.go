package api_test

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// limited returns the stack under limits, called from any address. They count by the clock of the stack, which stands still.
func (s *stack) limited(l api.Limits) func(from string, who actor, method, path, body string, headers ...string) answer {
	deps := s.built
	deps.Policy.Limits = l
	deps.Policy.Limits.Clock = s.clock.now
	handler := api.New(deps)
	return func(from string, who actor, method, path, body string, headers ...string) answer {
		s.t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.RemoteAddr = from
		if who.key != "" {
			r.Header.Set("Authorization", "Bearer "+who.key)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Add(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		b := must.Get(io.ReadAll(w.Result().Body))(s.t)
		a := answer{w.Code, w.Result().Header, b}
		checkHeaders(s.t, a)
		return a
	}
}

// Whatever a caller changes about its calls, they come out of one bucket.
// T183
func TestLimitsEvaded(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	forged := actor{key: "sandbox:" + strings.Repeat("a", 20) + ".b.c"}
	for name, evade := range map[string]func(i int) (from string, who actor, path string, headers []string){
		"ports": func(i int) (string, actor, string, []string) {
			return fmt.Sprintf("198.51.100.7:%d", 1000+i), actor{}, base + "/protocol/plans/" + plan, nil
		},
		"forwarding headers": func(i int) (string, actor, string, []string) {
			return "198.51.100.7:1", actor{}, base + "/protocol/plans/" + plan, []string{
				"X-Forwarded-For", fmt.Sprintf("203.0.113.%d", i), "Forwarded", fmt.Sprintf("for=203.0.113.%d", i), "X-Real-IP", fmt.Sprintf("203.0.113.%d", i),
			}
		},
		"addresses of one /64": func(i int) (string, actor, string, []string) {
			return fmt.Sprintf("[2001:db8:1:2:%x::%x]:1", i, i), actor{}, base + "/protocol/plans/" + plan, nil
		},
		"case of the path": func(i int) (string, actor, string, []string) {
			return "198.51.100.7:1", actor{}, []string{"/API/v1", "/api/V1", "/api/v1", "//api/v1/"}[i%4] + "/protocol/plans/" + plan, nil
		},
		"API keys that are not of this service": func(i int) (string, actor, string, []string) {
			return "198.51.100.7:1", actor{key: forged.key + strconv.Itoa(i)}, base + "/protocol/plans/" + plan, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			call := s.limited(api.Limits{PerIP: 1, IPBurst: 3})
			for i := range 12 {
				from, who, path, headers := evade(i)
				a := call(from, who, "GET", path, "", headers...)
				if i < 3 && (a.status == 429 || a.header.Get("RateLimit-Remaining") != strconv.Itoa(2-i) || a.header.Get("RateLimit-Limit") != "3") {
					t.Errorf("call %d: %d %v", i, a.status, a.header)
				}
				if i >= 3 && (a.status != 429 || a.code() != "BCK.HTTP.429" || a.header.Get("Retry-After") != "1" || a.header.Get("RateLimit-Reset") == "") {
					t.Errorf("call %d: %d %s %v", i, a.status, a.body, a.header)
				}
			}
			for _, from := range []string{"198.51.100.8:1", "[2001:db8:1:3::1]:1"} {
				if a := call(from, actor{}, "GET", base+"/protocol/plans/"+plan, ""); a.status != 200 {
					t.Errorf("from %s: %d", from, a.status)
				}
			}
			from, _, _, _ := evade(0)
			if a := call(from, s.b1, "GET", base+"/protocol/plans", ""); a.status != 200 || a.header.Get("RateLimit-Limit") != "" {
				t.Errorf("with a good API key: %d %v", a.status, a.header)
			}
			for _, path := range []string{"/health", "/ready"} {
				if a := call(from, actor{}, "GET", path, ""); a.status != 200 {
					t.Errorf("%s: %d", path, a.status)
				}
			}
		})
	}
}

// The bucket of an API key is one, wherever it is used and for whatever; that of another key is another.
// T183
func TestLimitOfAKey(t *testing.T) {
	s := newStack(t)
	one, two := s.plan(s.b1, freePlan), s.plan(s.b1, freePlan)
	second := s.do(s.b1, "POST", base+"/api-keys", `{"name":"second"}`).text(t, "key")
	call := s.limited(api.Limits{PerKey: 1, KeyBurst: 4})
	paths := []string{"/protocol/plans/" + one, "/protocol/plans/" + two, "/api-keys", "/protocol/agents"}
	for i := range 8 {
		from := fmt.Sprintf("198.51.100.%d:1", i)
		a := call(from, s.b1, "GET", base+paths[i%4], "")
		if want := map[bool]int{true: 200, false: 429}[i < 4]; a.status != want {
			t.Errorf("call %d: %d, not %d", i, a.status, want)
		}
		if a.status == 429 && a.header.Get("Retry-After") != "1" {
			t.Errorf("call %d: Retry-After %q", i, a.header.Get("Retry-After"))
		}
	}
	if a := call("198.51.100.1:1", actor{key: second}, "GET", base+"/protocol/plans", ""); a.status != 200 {
		t.Errorf("another key of the same account: %d", a.status)
	}
	if a := call("198.51.100.1:1", s.b2, "GET", base+"/protocol/plans", ""); a.status != 200 {
		t.Errorf("another key: %d", a.status)
	}
	if a := call("198.51.100.1:1", actor{}, "GET", base+"/protocol/plans/"+one, ""); a.status != 200 || a.header.Get("RateLimit-Limit") != "" {
		t.Errorf("without a key, where only keys are limited: %d %v", a.status, a.header)
	}
}

// A limited verify and settle have the words that x402 clients read.
func TestRateLimitedPayment(t *testing.T) {
	s := newStack(t)
	call := s.limited(api.Limits{PerKey: 1, KeyBurst: 1})
	call("198.51.100.1:1", s.b1, "GET", base+"/protocol/plans", "")
	for path, member := range map[string]string{"/x402/verify": "invalidReason", "/x402/settle": "errorReason"} {
		a := call("198.51.100.1:1", s.b1, "POST", base+path, "{}")
		if a.status != 429 || a.text(t, member) != "rate_limited" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// rows counts the rows of every table.
func (s *stack) rows() string {
	s.t.Helper()
	list := "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name"
	if s.store.Engine() == store.Postgres {
		list = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition AND relnamespace = current_schema()::regnamespace ORDER BY 1"
	}
	rows := must.Get(s.store.Query(s.t.Context(), list))(s.t)
	var names []string
	for rows.Next() {
		var name string
		must.Do(s.t, rows.Scan(&name))
		names = append(names, name)
	}
	must.Do(s.t, rows.Err())
	rows.Close()
	var out strings.Builder
	for _, name := range names {
		var n int64
		must.Do(s.t, s.store.QueryRow(s.t.Context(), "SELECT COUNT(*) FROM "+name).Scan(&n))
		fmt.Fprintf(&out, "%s %d\n", name, n)
	}
	return out.String()
}

// Access tokens and API keys that this service did not sign cost no query, and their source is limited while others are served.
// T174
func TestBadAccessTokens(t *testing.T) {
	st, _ := storetest.Open(t, store.Postgres)
	s, foreign := newStackOn(t, st), newStack(t)
	plan, elsewhere := s.plan(s.b1, freePlan), foreign.plan(foreign.b1, freePlan)
	token, _ := foreign.token(foreign.s1, elsewhere)
	call := s.limited(api.Limits{PerKey: 100, KeyBurst: 100, PerIP: 100, IPBurst: 100})
	call("198.51.100.1:1", s.b1, "POST", base+"/x402/verify", paymentBody(plan, token, "")) // warms what is kept in memory

	before, queries := s.rows(), st.Pool().Stat().AcquireCount()
	limited := 0
	for i := range 1000 {
		bad := token[:len(token)-8] + fmt.Sprintf("%08d", i)
		if i%2 == 0 {
			bad = token
		}
		if call("198.51.100.1:1", s.b1, "POST", base+"/x402/verify", paymentBody(plan, bad, "")).status == 429 {
			limited++
		}
		if a := call("198.51.100.2:1", foreign.b1, "POST", base+"/x402/verify", paymentBody(plan, bad, "")); a.status != 401 && a.status != 429 {
			t.Fatalf("an API key of another service: %d %s", a.status, a.body)
		}
	}
	if n := st.Pool().Stat().AcquireCount() - queries; n > 10 {
		t.Errorf("%d queries for 2000 bad calls", n)
	}
	if limited != 1001-100 {
		t.Errorf("%d of 1000 calls were limited", limited)
	}
	if after := s.rows(); after != before {
		t.Errorf("rows before\n%s\nafter\n%s", before, after)
	}
	if a := call("198.51.100.1:1", s.b2, "GET", base+"/protocol/plans", ""); a.status != 200 {
		t.Errorf("a good caller of the same address: %d %s", a.status, a.body)
	}
}

// Calls without an API key or with a poor one write nothing, whatever they ask for.
// T175
func TestUnpaidFlood(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	call := s.limited(api.Limits{})
	before := s.rows()
	for i := range 40 {
		for _, c := range []struct{ method, path, body string }{
			{"POST", "/protocol/plans/" + plan + "/order", ""}, {"POST", "/protocol/plans", freePlan}, {"POST", "/x402/permissions", `{"planId":"` + plan + `"}`},
			{"POST", "/x402/verify", paymentBody(plan, "aaaa.bbbb.cccc", "")}, {"POST", "/x402/settle", paymentBody(plan, "aaaa.bbbb.cccc", "")},
			{"POST", "/api-keys", "{}"}, {"POST", "/delegation/create", "{}"}, {"GET", "/protocol/plans/" + plan, ""}, {"GET", "/protocol/plans/" + plan + "/balance/" + s.s1.address.String(), ""},
		} {
			who := actor{}
			if i%2 == 0 {
				who.key = "sandbox:e30.e30." + strconv.Itoa(i)
			}
			a := call("198.51.100.1:1", who, c.method, base+c.path, c.body, "Idempotency-Key", strconv.Itoa(i))
			if c.method == "POST" && a.status != 401 {
				t.Fatalf("%s: %d %s", c.path, a.status, a.body)
			}
		}
	}
	if after := s.rows(); after != before {
		t.Errorf("rows before\n%s\nafter\n%s", before, after)
	}
}

// One source gets a free plan only as fast as its key allows, so what it makes grow is bounded by the operator.
// T176
func TestFreeAccounts(t *testing.T) {
	s := newStack(t)
	call := s.limited(api.Limits{PerKey: 1, KeyBurst: 5})
	made := 0
	for range 50 {
		s.clock.advance(time.Second / 20)
		plan := s.plan(s.b1, freePlan)
		if a := call("198.51.100.1:1", s.s1, "POST", base+"/protocol/plans/"+plan+"/order", ""); a.status == 200 {
			made++
		} else if a.status != 429 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if made != 5+2 {
		t.Errorf("%d accounts", made)
	}
}
