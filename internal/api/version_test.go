package api_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/apiversion"
)

func versionOf(a answer) string {
	return a.header.Get("Service-Version") + " " + a.header.Get("Service-Version-Resolved-From")
}

func TestVersionResolution(t *testing.T) {
	s := newStack(t)
	pinned := s.keyOf(s.b1.address, "1.1")
	old := s.keyOf(s.b1.address, "1.0")
	plans := base + "/protocol/plans"
	tests := []struct {
		name    string
		who     actor
		path    string
		headers []string
		status  int
		version string
	}{
		{"no key, no header", actor{}, "/health", nil, 200, "1.0 fallback"},
		{"header", actor{}, "/health", []string{"Service-Version", "1.1"}, 200, "1.1 header"},
		{"header with v", actor{}, "/health", []string{"service-version", "v1.0"}, 200, "1.0 header"},
		{"header with patch", actor{}, "/health", []string{"Service-Version", "1.0.7"}, 200, "1.0 header"},
		{"pin", pinned, plans, nil, 200, "1.1 apiKey"},
		{"old pin", old, plans, nil, 200, "1.0 apiKey"},
		{"header beats pin", pinned, plans, []string{"Service-Version", "1.0"}, 200, "1.0 header"},
		{"401 with a header", actor{}, plans, []string{"Service-Version", "1.1"}, 401, "1.1 header"},
		{"401 without", actor{}, plans, nil, 401, "1.0 fallback"},
		{"401 of a wrong key", actor{key: "nonsense"}, plans, nil, 401, "1.0 fallback"},
		{"404 with a pin", pinned, base + "/nothing", nil, 404, "1.1 apiKey"},
		{"bad header shows the pin", pinned, plans, []string{"Service-Version", "9.9"}, 400, "1.1 apiKey"},
		{"bad header shows the floor", actor{}, plans, []string{"Service-Version", "1"}, 400, "1.0 fallback"},
		{"bad header with a wrong key", actor{key: "nonsense"}, plans, []string{"Service-Version", "1"}, 400, "1.0 fallback"},
		{"empty header", pinned, plans, []string{"Service-Version", ""}, 400, "1.1 apiKey"},
		{"two headers", pinned, plans, []string{"Service-Version", "1.0", "Service-Version", "1.0"}, 400, "1.1 apiKey"},
		{"10 KB", pinned, plans, []string{"Service-Version", strings.Repeat("1", 10<<10)}, 400, "1.1 apiKey"},
		{"431", pinned, plans, []string{"Service-Version", "1.1", "X-Fill", strings.Repeat("x", 17<<10)}, 431, "1.1 header"},
		{"414", pinned, "/" + strings.Repeat("x", 9<<10), nil, 414, "1.0 fallback"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := s.do(tt.who, "GET", tt.path, "", tt.headers...)
			if a.status != tt.status || versionOf(a) != tt.version {
				t.Errorf("%d, %s; want %d, %s: %s", a.status, versionOf(a), tt.status, tt.version, a.body)
			}
			if a.status == 400 && a.code() != "BCK.VERSION.0001" {
				t.Errorf("code %s", a.code())
			}
		})
	}
}

func TestMetaVersions(t *testing.T) {
	s := newStack(t)
	pinned := s.keyOf(s.b1.address, "1.1")
	path := base + "/meta/versions"
	for _, tt := range []struct {
		headers []string
		want    string
	}{
		{nil, `"1.1","yourVersionResolvedFrom":"apiKey"`},
		{[]string{"Service-Version", "1.0.7"}, `"1.0","yourVersionResolvedFrom":"header"`},
		{[]string{"Service-Version", "9.9"}, `"1.1","yourVersionResolvedFrom":"apiKey"`},
		{[]string{"Service-Version", ""}, `"1.1","yourVersionResolvedFrom":"apiKey"`},
		{[]string{"Service-Version", "1.0", "Service-Version", "1.1"}, `"1.1","yourVersionResolvedFrom":"apiKey"`},
	} {
		want := `{"current":"1.1","floor":"1.0","gatedVersions":["1.1"],"yourPinnedVersion":"1.1","yourEffectiveVersion":` + tt.want + `}`
		if a := s.do(pinned, "GET", path, "", tt.headers...); a.status != 200 || string(a.body) != want {
			t.Errorf("%v: %d %s", tt.headers, a.status, a.body)
		}
	}
	if a := s.do(actor{}, "GET", path, "", "Service-Version", "9.9"); a.status != 401 || a.code() != "BCK.AUTH.0002" {
		t.Errorf("without a key: %d %s", a.status, a.body)
	}
}

// The pin of a key is moved by its owner and counts from the next request on.
func TestPin(t *testing.T) {
	s := newStack(t)
	a := s.do(s.b1, "POST", base+"/api-keys", `{"name":"ci"}`)
	if a.status != 201 || a.text(t, "version") != "1.1" {
		t.Fatalf("a new key is pinned to the current version: %d %s", a.status, a.body)
	}
	mine := actor{address: s.b1.address, key: a.text(t, "key")}
	path := base + "/api-keys/" + a.text(t, "id")
	if got := s.do(mine, "GET", path, ""); versionOf(got) != "1.1 apiKey" {
		t.Errorf("%s", versionOf(got))
	}
	if a := s.do(s.b1, "PATCH", path, `{"version":"v1.0.3"}`); a.status != 200 || a.text(t, "version") != "1.0" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if got := s.do(mine, "GET", path, ""); versionOf(got) != "1.0 apiKey" {
		t.Errorf("%s", versionOf(got))
	}
	for _, bad := range []string{"9.9", "1", "", "latest"} {
		for _, method := range []string{"POST " + base + "/api-keys", "PATCH " + path} {
			m, p, _ := strings.Cut(method, " ")
			if a := s.do(s.b1, m, p, `{"version":"`+bad+`"}`); a.status != 400 || a.code() != "BCK.VERSION.0001" {
				t.Errorf("%s with %q: %d %s", m, bad, a.status, a.body)
			}
		}
	}
	if a := s.do(s.b1, "POST", base+"/api-keys", `{"version":"1.0"}`); a.status != 201 || a.text(t, "version") != "1.0" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestGateOfRequests(t *testing.T) {
	s := newStack(t)
	mirror := func(path, body, version string) any {
		t.Helper()
		a := s.do(s.b1, "POST", base+path, body, "Service-Version", version)
		if a.status != 200 {
			t.Fatalf("%s %s: %d %s", version, body, a.status, a.body)
		}
		return s.do(actor{}, "GET", base+"/protocol/plans/"+a.text(t, "planId"), "").member(t, "registry.credits.onchainMirror")
	}
	tests := []struct {
		credits  string
		old, new bool
	}{
		{`{"proofRequired":true}`, true, false},
		{`{"proofRequired":"true","amount":9007199254740993}`, true, false},
		{`{"proofRequired":true,"onchainMirror":false}`, false, false},
		{`{"proofRequired":false,"onchainMirror":true}`, true, true},
		{`{"proofRequired":true,"onchainMirror":null}`, true, false},
		{`{"onchainMirror":true}`, true, true},
		{`{}`, false, false},
	}
	for _, tt := range tests {
		for path, body := range map[string]string{
			"/protocol/plans":         `{"name":"P","priceConfig":{},"creditsConfig":` + tt.credits + `}`,
			"/protocol/agents/plans":  `{"agentMetadata":{},"agentApi":{},"planMetadata":{},"priceConfig":{},"creditsConfig":` + tt.credits + `}`,
			"/protocol/agents/plans/": `{"plan":{"priceConfig":{},"creditsConfig":` + tt.credits + `},"agent":{}}`,
		} {
			if got := mirror(path, body, "1.0"); got != tt.old {
				t.Errorf("1.0 %s %s: onchainMirror %v", path, tt.credits, got)
			}
			if got := mirror(path, body, "1.1"); got != tt.new {
				t.Errorf("1.1 %s %s: onchainMirror %v", path, tt.credits, got)
			}
		}
	}
	for _, version := range []string{"1.0", "1.1"} {
		a := s.do(s.b1, "POST", base+"/protocol/plans", `{"name":"P","priceConfig":{},"creditsConfig":{"proofRequired":true,"proofRequired":false}}`, "Service-Version", version)
		if a.status != 400 {
			t.Errorf("%s takes a member twice: %d %s", version, a.status, a.body)
		}
	}
}

func TestGateOfPermissions(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	_, hash := s.token(s.s1, plan)
	s.token(s.s1, plan)
	const nulls = `"orderLimit":null,"planCost":null,"creditsPerOrder":null`
	for path, n := range map[string]int{"": 2, "/" + hash: 1} {
		old := s.do(s.s1, "GET", base+"/x402/permissions"+path, "", "Service-Version", "1.0")
		current := s.do(s.s1, "GET", base+"/x402/permissions"+path, "", "Service-Version", "1.1")
		if got := strings.Count(string(old.body), nulls); got != n {
			t.Errorf("1.0%s: %d times the three members: %s", path, got, old.body)
		}
		if strings.Contains(string(current.body), "orderLimit") || strings.Contains(string(current.body), "planCost") {
			t.Errorf("1.1%s: %s", path, current.body)
		}
		if strings.ReplaceAll(string(old.body), ","+nulls, "") != string(current.body) {
			t.Errorf("the versions differ in more than the three members:\n%s\n%s", old.body, current.body)
		}
	}
}

// A version changes shapes, never what something costs or who may do it.
// T98
func TestVersionHeader(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	token, _ := s.token(s.s1, plan)
	want := 100
	for i, tt := range []struct {
		headers []string
		ok      bool
	}{
		{nil, true}, {[]string{"1.0"}, true}, {[]string{"v1.0.7"}, true}, {[]string{"1.1"}, true}, {[]string{"9.9"}, false}, {[]string{"1"}, false}, {[]string{""}, false},
		{[]string{"1.0", "1.0"}, false}, {[]string{strings.Repeat("9", 10<<10)}, false},
	} {
		var h []string
		for _, v := range tt.headers {
			h = append(h, "Service-Version", v)
		}
		name := fmt.Sprintf("%.20q", tt.headers)
		a := s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, `,"agentRequestId":"r`+fmt.Sprint(i)+`"`), h...)
		if tt.ok {
			want -= 5
			if a.status != 200 || a.text(t, "creditsRedeemed") != "5" {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
		} else if a.status != 400 || a.code() != "BCK.VERSION.0001" || a.text(t, "errorReason") != "invalid_payload" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		if a := s.do(s.b2, "POST", base+"/x402/settle", paymentBody(plan, token, ""), h...); tt.ok && a.status != 403 || !tt.ok && a.status != 400 {
			t.Errorf("%s by another builder: %d", name, a.status)
		}
		if a := s.do(actor{}, "POST", base+"/x402/settle", paymentBody(plan, token, ""), h...); tt.ok && a.status != 401 || !tt.ok && a.status != 400 {
			t.Errorf("%s without a key: %d", name, a.status)
		}
		if a := s.do(actor{}, "GET", base+"/protocol/plans/"+plan, "", h...); tt.ok && a.status != 200 || !tt.ok && a.status != 400 {
			t.Errorf("%s on an open route: %d", name, a.status)
		}
	}
	if a := s.do(s.s1, "GET", base+"/protocol/plans/"+plan+"/balance", ""); a.text(t, "balance") != fmt.Sprint(want) {
		t.Errorf("balance %s, want %d", a.text(t, "balance"), want)
	}
}

// Every operation that a gate names is a route; a route that is renamed would silently lose its gate.
func TestGatedOperationsExist(t *testing.T) {
	known := map[string]bool{}
	for _, r := range api.Routes() {
		known[r.Operation] = true
	}
	for _, c := range apiversion.Changes() {
		for _, op := range c.Ops {
			if !known[op] {
				t.Errorf("the change %q names %s, which is no operation", c.Summary, op)
			}
		}
	}
}

// The names that the permission gate owns are never used for real values.
func TestGateOwnsNames(t *testing.T) {
	record := reflect.TypeFor[toll.Permission]()
	for i := range record.NumField() {
		name, _, _ := strings.Cut(record.Field(i).Tag.Get("json"), ",")
		if name == "orderLimit" || name == "planCost" || name == "creditsPerOrder" {
			t.Errorf("%s belongs to the gate", name)
		}
	}
}
