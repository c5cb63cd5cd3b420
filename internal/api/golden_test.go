package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/must"
)

// update rewrites the golden files: go test ./internal/api -run 'Golden|Document' -update
var update = flag.Bool("update", false, "rewrite golden files")

// exchange is one request with its answer, as it stands in a golden file.
type exchange struct {
	Request  message `json:"request"`
	Response message `json:"response"`
}

type message struct {
	Line    string            `json:"line"` // method and path, or status
	Headers map[string]string `json:"headers,omitempty"`
	Body    json.RawMessage   `json:"body,omitempty"`
}

// recorder keeps exchanges by operation. What differs from run to run (ids, keys, hashes) becomes a name, numbered in
// the order of appearance in its file, so that a new exchange changes no other file.
type recorder struct {
	s     *stack
	names map[string]*names
	files map[string][]exchange // by version/operation
}

type names struct {
	of    map[string]string
	count map[string]int
}

var volatile = regexp.MustCompile(`did:web:[\w.%-]+#[\w-]{43}|0x[0-9a-f]{64}|0x[0-9a-fA-F]{40}|req_[0-9a-z]+|\b[1-9][0-9]{60,77}\b|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|sandbox:eyJ[\w.-]+|whsec_[\w+/]{43}=|session:[\w-]{43}|[a-z2-7]{4}-[a-z2-7]{4}-[a-z2-7]{4}-[a-z2-7]{4}|link=[\w-]{43}|eyJ[\w+/=.-]{20,}`)

func (r *names) name(text string) string {
	return volatile.ReplaceAllStringFunc(text, func(v string) string {
		if n, ok := r.of[v]; ok {
			return n
		}
		kind := "id"
		switch {
		case strings.HasPrefix(v, "0x") && len(v) == 66:
			kind = "hash"
		case strings.HasPrefix(v, "0x"):
			if a := strings.TrimLeft(v[2:], "0"); a == "" || wellKnown[v] {
				return v
			}
			kind = "address"
		case strings.HasPrefix(v, "did:"):
			kind = "key"
		case strings.HasPrefix(v, "req_"):
			kind = "reqid"
		case len(v) == 19 && strings.Count(v, "-") == 3:
			kind = "recovery code"
		case strings.HasPrefix(v, "session:"):
			kind = "session"
		case strings.HasPrefix(v, "whsec_"), strings.HasPrefix(v, "link="):
			kind = "secret"
		case strings.HasPrefix(v, "sandbox:"), strings.HasPrefix(v, "tk_sandbox_"):
			kind = "apikey"
		case strings.HasPrefix(v, "eyJ"):
			kind = "token"
		case strings.Contains(v, "-"):
			kind = "uuid"
		}
		r.count[kind]++
		r.of[v] = fmt.Sprintf("<%s %d>", kind, r.count[kind])
		return r.of[v]
	})
}

// wellKnown addresses are part of the contract.
var wellKnown = map[string]bool{
	"0x036CbD53842c5426634e7929541eC2318f3dCF7e": true, "0x808456652fdb597867f38412077A9182bf77359F": true, "0x1FCcaBF8D461cCc8259CB09aE54b4Ff9a90718B3": true,
}

var tails = regexp.MustCompile(`"(tail|last4)":"[^"]*"|"(x|kid|cursor)":"[^"]*"|"nonce":"[0-9a-f]{32}"`)

// call makes and keeps an exchange. Further headers come in pairs.
func (r *recorder) call(version, op string, who actor, method, path, body string, headers ...string) answer {
	r.s.t.Helper()
	a := r.s.do(who, method, path, body, append([]string{"Service-Version", version, "x-correlation-id", op}, headers...)...)
	key := version + "/" + op
	n := r.names[key]
	if n == nil {
		n = &names{map[string]string{}, map[string]int{}}
		r.names[key] = n
	}
	e := exchange{Request: message{Line: method + " " + n.name(path)}, Response: message{Line: fmt.Sprint(a.status), Headers: map[string]string{}}}
	for i := 0; i < len(headers); i += 2 {
		if e.Request.Headers == nil {
			e.Request.Headers = map[string]string{}
		}
		e.Request.Headers[headers[i]] = n.name(headers[i+1])
	}
	if body != "" {
		e.Request.Body = json.RawMessage(n.name(body))
		if !json.Valid([]byte(body)) {
			e.Request.Body = json.RawMessage(fmt.Sprintf("%q", body))
		}
	}
	for _, h := range []string{"Content-Type", "Cache-Control", "Deprecation", "Idempotency-Replayed", "Retry-After", "Service-Version", "Service-Version-Resolved-From", "Location", "Www-Authenticate", "Payment-Required", "Payment-Response"} {
		if v := a.header.Get(h); v != "" {
			e.Response.Headers[h] = n.name(v)
		}
	}
	if a.header.Get("Content-Type") == "application/json" {
		text := tails.ReplaceAllStringFunc(string(a.body), func(m string) string {
			name, _, _ := strings.Cut(m, ":")
			return name + `:"<text>"`
		})
		e.Response.Body = json.RawMessage(n.name(text))
	}
	r.files[key] = append(r.files[key], e)
	return a
}

// answeredIn10 is the text of a golden file of version 1.1 as version 1.0 would answer the same.
func answeredIn10(text []byte) []byte {
	return bytes.ReplaceAll(text, []byte(`"Service-Version": "1.1"`), []byte(`"Service-Version": "1.0"`))
}

// TestGolden compares every answer with its golden file. A member that is renamed, added or lost shows here, and below the current
// version it is a change that internal/apiversion has to make. Version 1.0 has a file only for operations that it answers differently.
func TestGolden(t *testing.T) {
	files := map[string][]exchange{}
	for _, version := range []string{"1.0", "1.1"} {
		s := newStack(t)
		r := &recorder{s: s, names: map[string]*names{}, files: files}
		record(r, version)
		recordMoney(t, version, files)
		recordWork(t, version, files)
		recordEvents(t, version, files)
		recordWallet(t, version, files)
		recordSales(t, version, files)
		recordDiscovery(t, version, files)
		recordPeople(t, version, files)
	}
	dir := filepath.Join("..", "..", "testdata", "wire")
	texts := map[string][]byte{}
	for key, exchanges := range files {
		text := must.Get(encodeGolden(exchanges))(t)
		texts[key] = text
	}
	for key, text := range texts {
		path := filepath.Join(dir, key+".json")
		if op, old := strings.CutPrefix(key, "1.0/"); old && bytes.Equal(text, answeredIn10(texts["1.1/"+op])) {
			if _, err := os.Stat(path); err == nil && *update {
				must.Do(t, os.Remove(path))
			} else if err == nil {
				t.Errorf("%s differs from 1.1 in the version alone: remove it with -update", key)
			}
			continue
		}
		compareGolden(t, path, text)
	}
	for _, r := range api.Routes() {
		if pages := []string{"readDocs", "readErrorDocs", "readOpenAPI"}; slices.Contains(pages, r.Operation) {
			continue
		}
		for _, version := range []string{"1.0", "1.1"} {
			if files[version+"/"+r.Operation] == nil {
				t.Errorf("no golden exchange of %s in %s", r.Operation, version)
			}
		}
	}
	old := must.Get(filepath.Glob(filepath.Join(dir, "*", "*.json")))(t)
	for _, path := range old {
		rel, _ := filepath.Rel(dir, path)
		if rel == filepath.Join("1.1", "plan.json") || rel == filepath.Join("1.1", "agent.json") {
			continue // records, held by the root package
		}
		if files[strings.TrimSuffix(filepath.ToSlash(rel), ".json")] == nil {
			t.Errorf("%s belongs to no operation", rel)
		}
	}
}

func encodeGolden(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.Bytes(), err
}

func compareGolden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, got, 0o644))
		return
	}
	want := must.Get(os.ReadFile(path))(t)
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test ./internal/api -update rewrites it):\n%s", filepath.Base(path), firstDifference(string(want), string(got)))
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d\n- %s\n+ %s", i+1, w[i], g[i])
		}
	}
	return fmt.Sprintf("%d lines, %d before", len(g), len(w))
}

// record makes the exchanges of a version: every operation, its usual errors, both dialects. A topic that needs nothing of
// the others has a function of its own, as recordChanges.
func record(r *recorder, version string) {
	s, t := r.s, r.s.t
	call := func(op string, who actor, method, path, body string) answer {
		if !strings.HasPrefix(path, "/.") && path != "/" && path != "/health" && path != "/ready" {
			path = base + path
		}
		return r.call(version, op, who, method, path, body)
	}
	call("readInfo", actor{}, "GET", "/", "")
	call("readHealth", actor{}, "GET", "/health", "")
	call("readReady", actor{}, "GET", "/ready", "")
	call("readJWKS", actor{}, "GET", "/.well-known/jwks.json", "")
	call("readVersions", s.b1, "GET", "/meta/versions", "")
	call("readVersions", actor{}, "GET", "/meta/versions", "")

	call("registerPlan", s.b1, "POST", "/protocol/plans", pricedPlan)
	free := call("registerPlan", s.b1, "POST", "/protocol/plans", `{"metadataAttributes":{"name":"Free","description":"A free plan","tags":["ai"],"customData":{"a":1}},"priceConfig":{"amounts":[],"receivers":[],"isCrypto":true},"creditsConfig":{"isRedemptionAmountFixed":false,"redemptionType":4,"proofRequired":true,"durationSecs":"0","amount":"100","minAmount":"1","maxAmount":"10"},"nonce":"7","isTrialPlan":false}`).text(t, "planId")
	call("registerPlan", s.b1, "POST", "/protocol/plans", `{"metadataAttributes":{"name":"Free"},"priceConfig":{},"creditsConfig":{},"nonce":"7"}`)
	call("registerPlan", s.b1, "POST", "/protocol/plans", `{"name":7,"priceConfig":{"amounts":["1","+2"]}}`)
	call("registerPlan", s.b1, "POST", "/protocol/plans", `{"name":"Card","priceConfig":{"isCrypto":false,"amounts":["100000"]},"creditsConfig":{}}`)
	call("registerPlan", actor{}, "POST", "/protocol/plans", pricedPlan)
	timed := call("registerPlan", s.b1, "POST", "/protocol/plans", `{"name":"Day","priceConfig":{"priceType":"FREE"},"creditsConfig":{"creditsType":"EXPIRABLE","durationOfThePlan":86400}}`).text(t, "planId")
	s.clock.advance(1e9)
	agent := call("registerAgent", s.b1, "POST", "/protocol/agents", `{"name":"Ask","description":"Ask the agent","tags":["ai"],"endpoints":[{"POST":"https://agent.example.com/ask"},{"verb":"get","url":"https://agent.example.com/items/:id"}],"agentDefinitionUrl":"https://agent.example.com/openapi.json","plans":["`+free+`"]}`).text(t, "agentId")
	call("registerAgent", s.b1, "POST", "/protocol/agents", `{"metadataAttributes":{"name":"Nested"},"agentApiAttributes":{"endpoints":[{"POST":"/ask","GET":"/ask"}],"authType":"bearer","token":"upstream-secret","strictEndpoints":true},"plans":"`+free+`"}`)
	call("registerAgent", s.b2, "POST", "/protocol/agents", `{"name":"Thief","plans":["`+free+`"]}`)
	call("registerAgentWithPlan", s.b1, "POST", "/protocol/agents/plans", `{"agentMetadata":{"name":"Both"},"agentApi":{"endpoints":[{"POST":"https://agent.example.com/both"}]},"planMetadata":{"name":"Both plan"},"priceConfig":{"priceType":"FIXED_PRICE","tokenAddress":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","amounts":[1000000]},"creditsConfig":{"creditsType":"FIXED","amount":100,"minAmount":5}}`)
	call("registerAgentWithPlan", s.b1, "POST", "/protocol/agents/plans", `{"plan":{"metadataAttributes":{"name":"Nested plan"},"priceConfig":{},"creditsConfig":{}},"agent":{"metadataAttributes":{"name":"Nested agent"},"agentApiAttributes":{}}}`)
	call("registerAgentWithPlan", s.b1, "POST", "/protocol/agents/plans", `{"agentMetadata":{}}`)
	call("listPlans", s.b1, "GET", "/protocol/plans?page=1&offset=2&sortBy=name&sortOrder=asc", "")
	call("listPlans", s.b1, "GET", "/protocol/plans?page=0", "")
	call("readPlan", actor{}, "GET", "/protocol/plans/"+free, "")
	call("readPlan", actor{}, "GET", "/protocol/plans/"+timed, "")
	call("readPlan", actor{}, "GET", "/protocol/plans/11111", "")
	call("readPlan", actor{}, "GET", "/protocol/plans/007", "")
	call("listAgentsOfPlan", actor{}, "GET", "/protocol/plans/"+free+"/agents?pageSize=1&sortBy=name", "")
	call("listAgentsOfPlan", actor{}, "GET", "/protocol/plans/11111/agents", "")
	call("listAgents", s.b1, "GET", "/protocol/agents?pageSize=1&sortBy=name&sortOrder=asc", "")
	call("readAgent", actor{}, "GET", "/protocol/agents/"+agent, "")
	call("readAgent", actor{}, "GET", "/protocol/agents/11111", "")
	call("listPlansOfAgent", actor{}, "GET", "/protocol/agents/"+agent+"/plans", "")
	call("listPlansOfAgent", actor{}, "GET", "/protocol/agents/11111/plans", "")

	recordChanges(s, call, free, agent)

	call("readBalanceOf", actor{}, "GET", "/protocol/plans/"+free+"/balance/"+s.s1.address.Lower(), "")
	order := call("orderPlan", s.s1, "POST", "/protocol/plans/"+free+"/order", "").text(t, "orderId")
	call("orderPlan", s.s1, "POST", "/protocol/plans/11111/order", "")
	priced := s.plan(s.b1, pricedPlan)
	call("orderPlan", s.s1, "POST", "/protocol/plans/"+priced+"/order", "")
	card := s.plan(s.b1, `{"name":"Card","priceConfig":{"isCrypto":false,"amounts":["1000000"]},"creditsConfig":{}}`)
	call("orderPlan", s.s1, "POST", "/protocol/plans/"+card+"/order", "")
	call("readPlan", actor{}, "GET", "/protocol/plans/"+card, "")
	call("readOrder", s.s1, "GET", "/protocol/orders/"+order, "")
	call("readOrder", s.b2, "GET", "/protocol/orders/"+order, "")
	call("listOrders", s.s1, "GET", "/protocol/orders?planId="+free, "")
	call("listOrders", s.b1, "GET", "/protocol/orders?role=seller&planId="+free+"&subscriber="+s.s1.address.Lower()+"&since=2026-11-01", "")
	call("listOrders", s.b2, "GET", "/protocol/orders?role=seller&planId="+free, "")
	call("listSubscribers", s.b1, "GET", "/protocol/plans/"+free+"/subscribers?sortBy=subscriber&sortOrder=asc", "")
	call("listSubscribers", s.s1, "GET", "/protocol/plans/"+free+"/subscribers", "")
	call("listHoldings", s.s1, "GET", "/protocol/holdings?sortBy=plan", "")
	call("listHoldings", s.s1, "GET", "/protocol/holdings?sortBy=created", "")
	call("listUsage", s.b1, "GET", "/protocol/usage?by=plan&planId="+free+"&since=2026-11-01", "")
	call("listUsage", s.s1, "GET", "/protocol/usage?role=buyer&by=hour", "")
	call("listRevenue", s.b1, "GET", "/protocol/revenue?by=day&sortOrder=asc&since=2026-11-01", "")
	call("listRevenue", s.s1, "GET", "/protocol/revenue?planId="+free, "")
	call("listRefusals", s.b1, "GET", "/protocol/refusals?since=2026-11-21", "")
	call("listRefusals", s.b1, "GET", "/protocol/refusals?by=subscriber", "")
	call("listRequests", s.s1, "GET", "/protocol/requests?role=buyer&planId="+free+"&since=2026-11-01&until=2026-11-30", "")
	call("listRequests", s.b1, "GET", "/protocol/requests?status=open", "")
	call("search", s.b1, "GET", "/protocol/search?q=fre&type=plan", "")
	call("search", s.b1, "GET", "/protocol/search", "")
	call("mintCredits", s.b1, "POST", "/protocol/plans/mint", `{"planId":"`+free+`","amount":"10","creditsReceiver":"`+s.s1.address.Lower()+`"}`)
	call("mintCredits", s.s1, "POST", "/protocol/plans/mint", `{"planId":"`+free+`","amount":"10","holderAddress":"`+s.s1.address.Lower()+`"}`)
	call("mintCredits", s.b1, "POST", "/protocol/plans/mint", `{}`)
	call("mintExpirableCredits", s.b1, "POST", "/protocol/plans/mintExpirable", `{"planId":"`+free+`","creditsAmount":5,"creditsReceiver":"`+s.s1.address.Lower()+`","creditsDuration":3600}`)
	call("readBalance", s.s1, "GET", "/protocol/plans/"+free+"/balance", "")
	back := func(amount string) string {
		return `{"planId":"` + free + `","amount":"` + amount + `","holderAddress":"` + s.s1.address.Lower() + `"}`
	}
	call("takeBackCredits", s.b1, "POST", "/protocol/plans/takeBack", back("3"))
	call("takeBackCredits", s.b1, "POST", "/protocol/plans/takeBack", back("1000000"))
	call("takeBackCredits", s.s1, "POST", "/protocol/plans/takeBack", back("1"))

	rehearsal := call("startSimulation", s.b1, "POST", "/protocol/agents/simulate/start", `{"agentName":"Ask","planName":"Basic","pricePerCredit":0.05}`)
	call("startSimulation", s.b1, "POST", "/protocol/agents/simulate/start", `{"pricePerCredit":-1}`)
	call("finishSimulation", s.b1, "POST", "/protocol/agents/simulate/finish", `{"agentRequestId":"`+rehearsal.text(t, "agentRequestId")+`","marginPercent":0.2,"batch":false}`)
	call("finishSimulation", s.b1, "POST", "/protocol/agents/simulate/finish", `{"agentRequestId":"req_none"}`)
	permission := call("createPermission", s.s1, "POST", "/x402/permissions", `{"planId":"`+free+`","agentId":"`+agent+`","redemptionLimit":"50","orderLimit":1,"expiration":3600,"metadata":{"for":"tests"}}`)
	s.clock.advance(1e9)
	nested := call("createPermission", s.s1, "POST", "/x402/permissions", `{"accepted":{"scheme":"svc:erc4337","network":"eip155:84532","planId":"`+free+`","extra":{"version":"1","agentId":"`+agent+`"}}}`)
	call("createPermission", s.s1, "POST", "/x402/permissions", `{"planId":"11111"}`)
	call("createPermission", s.s1, "POST", "/x402/permissions", `{}`)
	token, hash := permission.text(t, "accessToken"), permission.text(t, "permissionHash")

	verified := call("verify", s.b1, "POST", "/x402/verify", agentBody(free, agent, token, `,"maxAmount":"3","hold":true,"holdSecs":120`))
	id := verified.text(t, "agentRequestId")
	call("verify", s.b1, "POST", "/x402/verify", agentBody(free, agent, nested.text(t, "accessToken"), ""))
	call("verify", s.b1, "POST", "/x402/verify", agentBody(free, agent, token, `,"agentRequestId":"`+id+`"`))
	call("verify", s.b1, "POST", "/x402/verify", agentBody(free, agent, "nonsense", ""))
	call("verify", s.b2, "POST", "/x402/verify", agentBody(free, agent, token, ""))
	call("verify", actor{}, "POST", "/x402/verify", "{}")
	call("verify", s.b1, "POST", "/x402/verify", "{}")
	call("readSettlement", s.b1, "GET", "/x402/settlements/"+id, "")
	settled := call("settle", s.b1, "POST", "/x402/settle", agentBody(free, agent, token, `,"maxAmount":"2","agentRequestId":"`+id+`"`))
	call("settle", s.b1, "POST", "/x402/settle", agentBody(free, agent, token, `,"maxAmount":"2","agentRequestId":"`+id+`"`))
	call("settle", s.b1, "POST", "/x402/settle", agentBody(free, agent, token, `,"maxAmount":"4","agentRequestId":"`+id+`"`))
	call("settle", s.b1, "POST", "/x402/settle", agentBody(free, agent, token, `,"maxAmount":"99"`))
	call("settle", s.b2, "POST", "/x402/settle", agentBody(free, agent, token, ""))
	call("settle", actor{}, "POST", "/x402/settle", "{}")
	call("settle", s.b1, "POST", "/x402/settle", "[")
	call("settle", s.b1, "GET", "/x402/settle", "")
	call("readSettlement", s.s1, "GET", "/x402/settlements/"+id, "")
	call("readSettlement", s.b2, "GET", "/x402/settlements/"+id, "")
	call("readRequest", s.s1, "GET", "/protocol/requests/"+id, "")
	call("readRequest", s.b2, "GET", "/protocol/requests/"+id, "")
	call("findSettlement", s.s1, "GET", "/x402/settlements?transaction="+settled.text(t, "transaction"), "")
	call("findSettlement", s.s1, "GET", "/x402/settlements", "")
	held := s.do(s.b1, "POST", base+"/x402/verify", agentBody(free, agent, token, `,"hold":true`)).text(t, "agentRequestId")
	call("renew", s.b1, "POST", "/x402/renew", `{"agentRequestId":"`+held+`","holdSecs":90}`)
	call("renew", s.b1, "POST", "/x402/renew", `{"agentRequestId":"`+id+`"}`)
	call("renew", s.b1, "POST", "/x402/renew", `{"holdSecs":901}`)
	call("release", s.b1, "POST", "/x402/release", `{"agentRequestId":"`+held+`"}`)
	call("release", s.b1, "POST", "/x402/release", `{"agentRequestId":"`+id+`"}`)
	call("release", s.b1, "POST", "/x402/release", `{}`)

	call("listPermissions", s.s1, "GET", "/x402/permissions?status=active&planId="+free+"&sortOrder=asc&limit=1", "")
	call("readPermission", s.s1, "GET", "/x402/permissions/"+hash, "")
	call("readPermission", s.b1, "GET", "/x402/permissions/"+hash, "")
	call("revokePermission", s.s1, "DELETE", "/x402/permissions/"+hash, "")
	call("revokePermission", s.s1, "DELETE", "/x402/permissions/"+hash, "")
	call("settle", s.b1, "POST", "/x402/settle", agentBody(free, agent, token, ""))

	key := call("createKey", s.s1, "POST", "/api-keys", `{"name":"ci","expiresInSecs":86400,"version":"1.0","rights":["sell","read"]}`).text(t, "id")
	call("createKey", s.s1, "POST", "/api-keys", `{"expiresAt":"2001-01-01T00:00:00Z"}`)
	call("listKeys", s.s1, "GET", "/api-keys?sortBy=name&sortOrder=desc&limit=1", "")
	call("readKey", s.s1, "GET", "/api-keys/"+key, "")
	call("readKey", s.b1, "GET", "/api-keys/"+key, "")
	call("readKeyCalls", s.b1, "GET", "/api-keys/"+key+"/calls", "")
	call("readKeyCalls", s.s1, "GET", "/api-keys/"+key+"/calls", "")
	call("updateKey", s.s1, "PATCH", "/api-keys/"+key, `{"name":null,"version":"1.1"}`)
	call("updateKey", s.s1, "PATCH", "/api-keys/"+key, `{}`)
	call("rotateKey", s.s1, "POST", "/api-keys/"+key+"/rotate", `{"overlapSecs":3600}`)
	call("rotateKey", s.s1, "POST", "/api-keys/"+s.s1.keyID.String()+"/rotate", `{}`)
	call("revokeKey", s.s1, "DELETE", "/api-keys/"+key, "")
	call("revokeKey", s.s1, "DELETE", "/api-keys/"+key, "")
	call("listMyMemberships", s.s1, "GET", "/organizations/my-memberships", "")
	call("listMyMemberships", actor{}, "GET", "/organizations/my-memberships", "")
	call("listOrganizations", s.s1, "GET", "/organizations", "")
	call("listOrganizations", actor{}, "GET", "/organizations", "")

	call("retiredMPP", actor{}, "POST", "/mpp/challenge", "{}")
	call("retiredMPPOf", actor{}, "POST", "/mpp/permissions/1", "{}")
	call("retiredRedeem", actor{}, "POST", "/protocol/plans/redeem", "")
	call("retiredBurn", actor{}, "POST", "/protocol/plans/burn", "")
	call("retiredInitialize", actor{}, "POST", "/protocol/agents/initialize/1", "")
	call("retiredToken", actor{}, "GET", "/protocol/token/1/2", "")
	call("retiredValidate", actor{}, "GET", "/protocol/token/validate/1", "")
}

// recordChanges are the routes that change agents and plans.
func recordChanges(s *stack, call func(op string, who actor, method, path, body string) answer, plan, agent string) {
	at, loose := "/protocol/agents/"+agent, s.plan(s.b1, freePlan)
	call("updateAgent", s.b1, "PUT", at, `{"metadataAttributes":{"description":"Ask the agent anything","license":"MIT","customData":{"a":[1]}},"agentApiAttributes":{"authType":"bearer","token":"upstream-secret"}}`)
	call("updateAgent", s.b1, "PUT", at, `{"description":"Ask","tags":null,"metadataAttributes":{"license":null,"customData":null},"agentApiAttributes":{"authType":null,"token":null}}`)
	call("readAgent", s.b1, "GET", at, "")
	call("updateAgent", s.b1, "PUT", at, `{"description":"Ask the agent","tags":["ai"]}`)
	call("updateAgent", s.b1, "PUT", at, `{}`)
	call("updateAgent", s.b1, "PUT", at, `{"name":null,"agentApiAttributes":{"endpoints":[{"POST":"ask"}],"authType":"magic"}}`)
	call("updateAgent", s.b2, "PUT", at, `{}`)
	call("updateAgent", s.b1, "PUT", "/protocol/agents/11111", `{}`)
	call("setAgentListed", s.b1, "PUT", at+"/list/false", "")
	call("setAgentListed", s.b1, "PUT", at+"/list/false", "")
	call("readAgent", actor{}, "GET", at, "")
	call("setAgentListed", s.b1, "PUT", at+"/list/true", "")
	call("setAgentListed", s.b1, "PUT", at+"/list/maybe", "")
	call("setAgentListed", s.b2, "PUT", at+"/list/true", "")
	call("attachPlan", s.b1, "POST", at+"/plan/"+loose, "")
	call("attachPlan", s.b1, "POST", at+"/plan/"+loose, "")
	call("attachPlan", s.b2, "POST", at+"/plan/"+loose, "")
	call("attachPlan", s.b1, "POST", at+"/plan/"+s.plan(s.b2, freePlan), "")
	call("attachPlan", s.b1, "POST", at+"/plan/11111", "")
	call("detachPlan", s.b1, "DELETE", at+"/plan/"+loose, "")
	call("detachPlan", s.b1, "DELETE", at+"/plan/"+loose, "")
	call("detachPlan", s.b2, "DELETE", at+"/plan/"+plan, "")
	call("addEndpoints", s.b1, "POST", at+"/endpoints", `{"endpoints":[{"POST":"https://agent.example.com/more"},{"verb":"GET","url":"/files/:name"}]}`)
	call("addEndpoints", s.b1, "POST", at+"/endpoints", `{"endpoints":[{"POST":"https://agent.example.com/more"}]}`)
	call("addEndpoints", s.b1, "POST", at+"/endpoints", `{"endpoints":[{"POST":"more"}]}`)
	call("addEndpoints", s.b1, "POST", at+"/endpoints", `{}`)
	call("addEndpoints", s.b2, "POST", at+"/endpoints", `{"endpoints":[{"POST":"/mine"}]}`)
	call("readAgent", actor{}, "GET", at, "")
	call("updatePlan", s.b1, "PUT", "/protocol/plans/"+loose, `{"name":"Loose","description":"New","tags":["a"],"maxOrders":5}`)
	call("updatePlan", s.b1, "PUT", "/protocol/plans/"+loose, `{"metadataAttributes":{"name":"Looser","description":null},"priceConfig":{"priceType":"FREE"},"creditsConfig":{"amount":"100"},"maxOrders":null}`)
	call("readPlan", actor{}, "GET", "/protocol/plans/"+loose, "")
	call("updatePlan", s.b1, "PUT", "/protocol/plans/"+loose, `{"creditsConfig":{"amount":101}}`)
	call("updatePlan", s.b1, "PUT", "/protocol/plans/"+loose, `{}`)
	call("updatePlan", s.s1, "PUT", "/protocol/plans/"+loose, `{"name":"Mine"}`)
	call("setPlanListed", s.b1, "PUT", "/protocol/plans/"+loose+"/list/false", "")
	call("setPlanListed", s.b1, "PUT", "/protocol/plans/"+loose+"/list/false", "")
	call("orderPlan", s.s1, "POST", "/protocol/plans/"+loose+"/order", "")
	call("setPlanListed", s.b1, "PUT", "/protocol/plans/"+loose+"/list/true", "")
}

// agentBody is paymentBody for a request that names its agent.
func agentBody(planID, agentID, token, more string) string {
	return strings.Replace(paymentBody(planID, token, more), `"version":"1"`, `"version":"1","agentId":"`+agentID+`","httpVerb":"POST"`, 1)
}
