package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

// object is a JSON object in the order of its text.
type object []objectMember

type objectMember struct {
	name  string
	value any // object, []any, or json.RawMessage
}

func parseObject(t *testing.T, text string) object {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	v := parseValue(t, dec)
	o, ok := v.(object)
	if !ok {
		t.Fatalf("no object: %s", text)
	}
	return o
}

func parseValue(t *testing.T, dec *json.Decoder) any {
	t.Helper()
	token := must.Get(dec.Token())(t)
	switch token {
	case json.Delim('{'):
		o := object{}
		for dec.More() {
			name := must.Get(dec.Token())(t)
			o = append(o, objectMember{name.(string), parseValue(t, dec)})
		}
		must.Get(dec.Token())(t)
		return o
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			list = append(list, parseValue(t, dec))
		}
		must.Get(dec.Token())(t)
		return list
	}
	return json.RawMessage(mustJSON(token))
}

// variants calls f with each member of the object, at any depth, as null and then without it.
func variants(o object, path string, skip func(path string) bool, whole func(object) object, f func(path string, null, without object)) {
	for i, m := range o {
		at := strings.TrimPrefix(path+"."+m.name, ".")
		if skip(at) {
			continue
		}
		with := func(v any) object {
			c := slices.Clone(o)
			c[i] = objectMember{m.name, v}
			return whole(c)
		}
		f(at, with(json.RawMessage("null")), whole(slices.Delete(slices.Clone(o), i, i+1)))
		switch v := m.value.(type) {
		case object:
			variants(v, at, skip, func(inner object) object { return with(inner) }, f)
		case []any:
			for j, e := range v {
				if inner, ok := e.(object); ok {
					variants(inner, fmt.Sprintf("%s[%d]", at, j), skip, func(changed object) object {
						list := slices.Clone(v)
						list[j] = changed
						return with(list)
					}, f)
				}
			}
		}
	}
}

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s:%s", mustJSON(m.name), value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// fullBodies name every member of every dialect once at least. They are those of the routes that take plain bodies.
func fullBodies() map[string]func() any {
	const address, hash = `"0x036CbD53842c5426634e7929541eC2318f3dCF7e"`, `"0x1111111111111111111111111111111111111111111111111111111111111111"`
	const metadata = `{"name":"n","description":"d","author":"a","license":"l","tags":["t"],"integration":"i","sampleLink":"s","apiDescription":"p","dateCreated":"2026-01-02T03:04:05Z","customData":{"a":1},"isTrialPlan":true,"accessLimit":"credits"}`
	const price = `{"tokenAddress":` + address + `,"amounts":["1"],"receivers":[` + address + `],"priceType":"FIXED_PRICE","isCrypto":true,"currency":"USDC","templateAddress":` + address + `,"contractAddress":` + address + `,"feeController":` + address + `,"externalPriceAddress":` + address + `,"price":"1","amountOfCredits":"2"}`
	const credits = `{"amount":"1","minAmount":"1","creditsType":"FIXED","durationOfThePlan":"1","isRedemptionAmountFixed":true,"redemptionType":4,"onchainMirror":true,"durationSecs":"1","maxAmount":"1","nftAddress":` + address + `,"subscriptionType":"credits","accessType":"credits","minCreditsToCharge":"1","maxCreditsToCharge":"1","duration":"1"}`
	const agentAPI = `{"endpoints":[{"POST":"/a","GET":"/b"},{"verb":"PUT","url":"/c","PATCH":"/d"}],"openEndpoints":["/e"],"agentDefinitionUrl":"/f","authType":"basic","username":"u","password":"p","token":"t","apiKey":"k","headers":{"a":"b"},"strictEndpoints":true}`
	const plan = `"name":"n","description":"d","tags":["t"],"metadataAttributes":` + metadata + `,"priceConfig":` + price + `,"creditsConfig":` + credits + `,"accessLimit":"time","maxOrders":1,"isTrialPlan":true,"nonce":"1","currency":"USDC"`
	const agent = `"name":"n","description":"d","tags":["t"],"endpoints":[{"POST":"/a"}],"openEndpoints":["/b"],"agentDefinitionUrl":"/c","authType":"none","strictEndpoints":true,"metadataAttributes":` + metadata + `,"agentApiAttributes":` + agentAPI + `,"plans":["1"]`
	return map[string]func() any{
		`{` + plan + `}`:  func() any { return new(toll.PlanInput) },
		`{` + agent + `}`: func() any { return new(toll.AgentInput) },
		`{"agentMetadata":` + metadata + `,"agentApi":` + agentAPI + `,"planMetadata":` + metadata + `,"priceConfig":` + price + `,"creditsConfig":` + credits + `,"accessLimit":3,"maxOrders":1,"isTrialPlan":false,"nonce":"1","currency":"USD","plan":{` + plan + `},"agent":{` + agent + `}}`: func() any { return new(toll.AgentPlanInput) },
		`{"planId":"1","amount":"1","creditsReceiver":` + address + `,"holderAddress":` + address + `}`:                                           func() any { return new(api.MintInput) },
		`{"planId":"1","creditsAmount":"1","amount":"1","creditsReceiver":` + address + `,"holderAddress":` + address + `,"creditsDuration":"1"}`: func() any { return new(api.MintExpirableInput) },
		`{"name":"n","expiresAt":"2026-01-02T03:04:05Z","expiresInSecs":60,"version":"1.0","prefix":"p"}`:                                         func() any { return new(api.KeyInput) },
		`{"delegationId":"d"}`: func() any { return new(api.OrderInput) },
		`{"planId":"1","agentId":"2","allowedAgents":["2"],"redemptionLimit":"1","maxCredits":"1","orderLimit":1,"expiration":60,"expiresInSecs":60,"metadata":{"a":1},"scheme":"s","network":"n","tokenFormat":"jwt","resource":"https://a.example","accepted":{"scheme":"s","network":"n","planId":"1","extra":{"agentId":"2"}}}`:       func() any { return new(tokens.PermissionRequest) },
		`{"provider":"erc4337","spendingLimitCents":"1","durationSecs":1,"currency":"usdc","providerPaymentMethodId":"p","planId":"1","maxTransactions":1,"apiKeyId":` + hash + `,"allowedRecipients":[` + address + `],"ownerAccount":` + address + `,"merchantAccountId":"m","spending_limit_cents":1,"duration_secs":1,"plan_id":"1"}`: func() any { return new(toll.DelegationInput) },
	}
}

// null is the same as absent, at every depth; only inside of what is the caller's own it is data.
func TestNullIsAbsent(t *testing.T) {
	decoded := func(body []byte, v any) string {
		if err := x402.Decode(body, v); err != nil {
			return err.Error() + fmt.Sprint(toll.AsError(err).Params)
		}
		return string(mustJSON(v))
	}
	members := 0
	for body, fresh := range fullBodies() {
		o := parseObject(t, body)
		if got := decoded([]byte(body), fresh()); strings.HasPrefix(got, "BCK.") {
			t.Errorf("%T: %s", fresh(), got)
		}
		opaque := func(path string) bool {
			return strings.Contains(path, "customData.") || strings.HasPrefix(path, "metadata.") || strings.Contains(path, "headers.")
		}
		variants(o, "", opaque, func(o object) object { return o }, func(path string, null, without object) {
			members++
			a, b := decoded(mustJSON(null), fresh()), decoded(mustJSON(without), fresh())
			if a != b {
				t.Errorf("%T %s:\n null   %s\n absent %s", fresh(), path, a, b)
			}
		})
	}
	if members < 200 {
		t.Errorf("only %d members were tried", members)
	}
}

// Whatever stands beside the documented members of a body is ignored: the answer and the record are those without it, but that
// a creating call names the first 16.
// T156
func TestExtraFields(t *testing.T) {
	run := func(extra string) map[string]string {
		s := newStack(t)
		n := &names{map[string]string{}, map[string]int{}}
		answers := map[string]string{}
		do := func(who actor, method, path, body string) answer {
			full := strings.TrimSuffix(body, "}") + extra + "}"
			a := s.do(who, method, base+path, strings.Replace(full, "{,", "{", 1), "x-correlation-id", "c")
			answers[fmt.Sprintf("%02d %s", len(answers), method+" "+n.name(path))] = fmt.Sprint(a.status) + " " + tails.ReplaceAllString(n.name(string(a.body)), `"-"`)
			return a
		}
		read := func(who actor, path string) {
			a := s.do(who, "GET", base+path, "", "x-correlation-id", "c")
			answers[fmt.Sprintf("%02d GET %s", len(answers), n.name(path))] = tails.ReplaceAllString(n.name(string(a.body)), `"-"`)
		}
		plan := do(s.b1, "POST", "/protocol/plans", freePlan).text(t, "planId")
		agent := do(s.b1, "POST", "/protocol/agents", `{"name":"x","plans":["`+plan+`"]}`).text(t, "agentId")
		both := do(s.b1, "POST", "/protocol/agents/plans", `{"agentMetadata":{},"agentApi":{},"planMetadata":{},"priceConfig":{},"creditsConfig":{}}`)
		do(s.b1, "PUT", "/protocol/agents/"+agent, `{"description":"x"}`)
		do(s.b1, "PUT", "/protocol/plans/"+plan, `{"description":"x"}`)
		do(s.b1, "POST", "/protocol/plans/mint", `{"planId":"`+plan+`","amount":"1","creditsReceiver":"`+s.s1.address.String()+`"}`)
		do(s.s1, "POST", "/protocol/plans/"+plan+"/order", `{}`)
		do(s.s1, "POST", "/x402/permissions", `{"planId":"`+plan+`"}`)
		key := do(s.s1, "POST", "/api-keys", `{"name":"k"}`).text(t, "id")
		do(s.s1, "PATCH", "/api-keys/"+key, `{"name":"l"}`)
		for _, path := range []string{"/protocol/plans/" + plan, "/protocol/agents/" + agent, "/protocol/agents/" + both.text(t, "agentId"), "/protocol/plans/" + both.text(t, "planId"), "/protocol/plans/" + plan + "/balance/" + s.s1.address.String()} {
			read(actor{}, path)
		}
		read(s.s1, "/api-keys/"+key)
		read(s.s1, "/x402/permissions")
		return answers
	}
	plain := run("")
	other := `"0x70997970C51812dc3A010C7d01b50e0d17dc79C8"`
	loaded := run(`,"owner":` + other + `,"ownerAddress":` + other + `,"address":` + other + `,"subscriber":` + other + `,"subscriberAddress":` + other +
		`,"balance":"999","environment":"live","role":"admin","roles":["admin"],"isOperator":true,"is_operator":true,"verified":true,"isListed":false,"id":"7","createdAt":"2001-01-01T00:00:00Z","status":"Active","key":"k","credits":"999","registry":{"owner":` + other + `},"__proto__":{"isAdmin":true},"constructor":{}`)
	const named = `,"warnings":["owner","ownerAddress","address","subscriber","subscriberAddress","balance","environment","role","roles","isOperator",` +
		`"is_operator","verified","isListed","id","createdAt","status"]}`
	for _, what := range slices.Sorted(maps.Keys(plain)) {
		want := plain[what]
		if strings.Contains(what, " POST ") {
			want = strings.TrimSuffix(want, "}") + named
		}
		if loaded[what] != want {
			t.Errorf("%s:\n with    %s\n want    %s", what, loaded[what], want)
		}
	}
	if len(loaded) != len(plain) {
		t.Error("other calls were made")
	}
}

// An account has so many records of a kind and no more, also when many are added at once by several processes.
// T177
func TestInputs_Quotas(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		s := newStackOn(t, st)
		limited := api.New(s.deps(func(d *api.Deps) { d.Policy.Quotas = api.Quotas{Agents: 3, Plans: 4, APIKeys: 2, Delegations: 2} }))
		second := api.New(s.deps(func(d *api.Deps) { d.Policy.Quotas = api.Quotas{Agents: 3, Plans: 4, APIKeys: 2, Delegations: 2} }))
		call := func(i int, who actor, path, body string, headers ...string) answer {
			return s.through([]http.Handler{limited, second}[i%2], who, "POST", base+path, body, headers...)
		}
		flood := func(what, path, body string, most int) {
			t.Helper()
			var all sync.WaitGroup
			var mu sync.Mutex
			made := 0
			for i := range 12 {
				all.Go(func() {
					a := call(i, s.b1, path, body)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case a.status < 300:
						made++
					case a.status != 429 || a.code() != "BCK.HTTP.429" || a.header.Get("Retry-After") == "" ||
						!strings.Contains(a.text(t, "message"), fmt.Sprintf("at most %d %s", quotaOf(what), what)) || !strings.Contains(a.text(t, "params"), `"limit":`):
						t.Errorf("%s: %d %s", what, a.status, a.body)
					}
				})
			}
			all.Wait()
			if made != most {
				t.Errorf("%d %s were made, want %d", made, what, most)
			}
		}
		flood("plans", "/protocol/plans", freePlan, 4)
		flood("agents", "/protocol/agents", `{"name":"x"}`, 3)
		flood("API keys", "/api-keys", `{}`, 1) // b1 has one already
		flood("delegations", "/delegation/create", `{"provider":"erc4337","spendingLimitCents":1000,"durationSecs":3600,"currency":"usdc"}`, 2)
		before := s.totals(s.b1)
		a := call(0, s.b1, "/protocol/agents/plans", `{"agentMetadata":{},"agentApi":{},"planMetadata":{},"priceConfig":{},"creditsConfig":{}}`)
		if a.status != 429 || s.totals(s.b1) != before {
			t.Errorf("half of a registration: %d %s", a.status, a.body)
		}
		// Others have their own room, and what was revoked counts no more.
		if a := call(0, s.b2, "/protocol/plans", freePlan); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
		keys := must.Get(s.auth.Keys(context.Background(), s.b1.address, store.Page{}))(t)
		for _, k := range keys.Items {
			if k.ID != s.b1.keyID {
				must.Get(s.auth.EndKey(context.Background(), s.b1.address, k.ID))(t)
			}
		}
		if a := call(1, s.b1, "/api-keys", `{"expiresInSecs":60}`); a.status != 201 {
			t.Errorf("after a revocation: %d %s", a.status, a.body)
		}
		if a := call(1, s.b1, "/api-keys", `{}`); a.status != 429 {
			t.Errorf("%d %s", a.status, a.body)
		}
		s.clock.advance(61 * time.Second)
		if a := call(1, s.b1, "/api-keys", `{}`); a.status != 201 {
			t.Errorf("after an expiry: %d %s", a.status, a.body)
		}
	})
}

// deps is what the handler of the stack was made of, as f changes it.
func (s *stack) deps(f func(d *api.Deps)) api.Deps {
	d := s.built
	if f != nil {
		f(&d)
	}
	return d
}

// through sends a request to another handler on the same rooms, without a network.
func (s *stack) through(h http.Handler, who actor, method, path, body string, headers ...string) answer {
	s.t.Helper()
	return s.throughContext(context.Background(), h, who, method, path, body, headers...)
}

func (s *stack) throughContext(ctx context.Context, h http.Handler, who actor, method, path, body string, headers ...string) answer {
	s.t.Helper()
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	if who.key != "" {
		r.Header.Set("Authorization", "Bearer "+who.key)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	a := answer{w.Code, w.Header(), w.Body.Bytes()}
	checkHeaders(s.t, a)
	return a
}

// totals counts what an account has registered.
func (s *stack) totals(who actor) string {
	s.t.Helper()
	return fmt.Sprint(s.do(who, "GET", base+"/protocol/plans", "").member(s.t, "total"), s.do(who, "GET", base+"/protocol/agents", "").member(s.t, "total"))
}

func quotaOf(what string) int {
	return map[string]int{"plans": 4, "agents": 3, "API keys": 2, "delegations": 2}[what]
}

// A registration that exists already needs no room.
func TestQuotaAndNonce(t *testing.T) {
	s := newStack(t)
	limited := api.New(s.deps(func(d *api.Deps) { d.Policy.Quotas.Plans = 1 }))
	body := strings.Replace(freePlan, `{"name"`, `{"nonce":"5","name"`, 1)
	first := s.through(limited, s.b1, "POST", base+"/protocol/plans", body)
	again := s.through(limited, s.b1, "POST", base+"/protocol/plans", body)
	if first.status != 200 || again.status != 200 || string(first.body) != string(again.body) {
		t.Errorf("%d %s, %d %s", first.status, first.body, again.status, again.body)
	}
	if a := s.through(limited, s.b1, "POST", base+"/protocol/plans", freePlan); a.status != 429 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.through(api.New(s.deps(func(d *api.Deps) { d.Policy.Quotas.Plans = -1 })), s.b1, "POST", base+"/protocol/plans", freePlan); a.status != 200 {
		t.Errorf("no limit: %d %s", a.status, a.body)
	}
}

// Every list refuses sizes and pages that would be dear, and reads at most so long.
// T178
func TestDearReads(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	agent := s.agent(s.b1, plan)
	delegation := s.do(s.b1, "POST", base+"/delegation/create", `{"provider":"erc4337","spendingLimitCents":1000,"durationSecs":3600,"currency":"usdc"}`).text(t, "delegationId")
	hook := s.do(s.b1, "POST", base+"/webhooks", `{"url":"https://hooks.example.com/toll"}`).text(t, "id")
	token, _ := s.token(s.s1, plan)
	request := s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, "")).text(t, "extra.agentRequestId")
	owner := s.human("owner")
	lists := 0
	for _, r := range api.Routes() {
		if !r.Paged {
			continue
		}
		lists++
		who, headers := s.b1, []string(nil)
		if r.Auth == "person" {
			who, headers = actor{key: owner.token}, []string{"X-Current-Org-Id", owner.workspace}
		}
		path := strings.NewReplacer("{planId}", plan, "{agentId}", agent, "{delegationId}", delegation, "{webhookId}", hook, "{userId}", "me").Replace(r.Path) + "?agentRequestId=" + request
		for _, q := range []string{"pageSize=1000000000", "limit=1000000000", "offset=1000000000", "pageSize=101", "page=1000000000000", "page=99999999999999999999", "sortBy=price", "cursor=" + strings.Repeat("A", 4000)} {
			if a := s.do(who, "GET", path+"&"+q, "", headers...); a.status != 400 || a.code() != "BCK.COMMON.0904" {
				t.Errorf("%s?%.40s: %d %s", r.Operation, q, a.status, a.body)
			}
		}
		if a := s.do(who, "GET", path+"&cursor="+strings.Repeat("A", 5000), "", headers...); a.status != 400 || a.code() != "BCK.COMMON.0034" {
			t.Errorf("%s: %d %s", r.Operation, a.status, a.body)
		}
	}
	if lists < 12 {
		t.Errorf("only %d lists", lists)
	}
	// A page far behind the end is cheap and empty.
	if a := s.do(s.b1, "GET", base+"/protocol/plans?page=2147483647&pageSize=100", ""); a.status != 200 || !strings.Contains(string(a.body), `"plans":[]`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A read that takes too long ends with an answer that invites a repeat.
func TestListDeadline(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	s := newStackOn(t, st)
	h := api.New(s.deps(nil))
	if a := s.through(h, s.b1, "GET", base+"/protocol/plans", ""); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	if a := s.throughContext(ctx, h, s.b1, "GET", base+"/protocol/plans", ""); a.status != 503 || a.code() != "BCK.COMMON.0029" || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Limits of section 1 of the wire contract, at them and one beyond.
func TestLimitsOfBodies(t *testing.T) {
	s := newStack(t)
	x := func(n int) string { return strings.Repeat("é", n) }
	list := func(item string, n int) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	plan := func(metadata string) (string, string) {
		return "/protocol/plans", `{"metadataAttributes":{"name":"n",` + metadata + `},"priceConfig":{},"creditsConfig":{}}`
	}
	agent := func(members string) (string, string) { return "/protocol/agents", `{"name":"n",` + members + `}` }
	for _, tt := range []struct {
		name   string
		body   func(string) (string, string)
		member func(n int) string
		most   int
		path   string
	}{
		{"tags", plan, func(n int) string { return `"tags":[` + list(`"t"`, n) + `]` }, 64, "metadataAttributes.tags"},
		{"tag", plan, func(n int) string { return `"tags":["` + x(n) + `"]` }, 64, "metadataAttributes.tags[0]"},
		{"description", plan, func(n int) string { return `"description":"` + strings.Repeat("x", n) + `"` }, 16 << 10, "metadataAttributes.description"},
		{"apiDescription", plan, func(n int) string { return `"apiDescription":"` + strings.Repeat("x", n) + `"` }, 16 << 10, "metadataAttributes.apiDescription"},
		{"author", plan, func(n int) string { return `"author":"` + x(n) + `"` }, 256, "metadataAttributes.author"},
		{"customData", plan, func(n int) string { return `"customData": { "a" : "` + strings.Repeat("x", n-8) + `" }` }, 16 << 10, "metadataAttributes.customData"},
		{"endpoints", agent, func(n int) string { return `"endpoints":[` + list(`{"GET":"/x"}`, n) + `]` }, 256, "endpoints"},
		{"open endpoints", agent, func(n int) string { return `"openEndpoints":[` + list(`"/x"`, n) + `]` }, 256, "openEndpoints"},
		{"endpoint", agent, func(n int) string { return `"endpoints":[{"GET":"/` + x(n-1) + `"}]` }, 2048, "endpoints[0]"},
		{"definition", agent, func(n int) string { return `"agentDefinitionUrl":"/` + x(n-1) + `"` }, 2048, "agentDefinitionUrl"},
	} {
		for n, status := range map[int]int{tt.most: 200, tt.most + 1: 400} {
			path, body := tt.body(tt.member(n))
			a := s.do(s.b1, "POST", base+path, body)
			if a.status != status || status == 400 && (a.code() != "BCK.HTTP.400" || !strings.Contains(a.text(t, "params"), `"path":"`+tt.path+`"`)) {
				t.Errorf("%s of %d: %d %.300s", tt.name, n, a.status, a.body)
			}
		}
	}
	for n, status := range map[int]int{256: 200, 257: 400} {
		if a := s.do(s.b1, "POST", base+"/protocol/agents", `{"name":"`+x(n)+`"}`); a.status != status {
			t.Errorf("a name of %d: %d %.300s", n, a.status, a.body)
		}
	}
	for n, status := range map[int]int{100: 201, 101: 400} {
		if a := s.do(s.b1, "POST", base+"/api-keys", `{"name":"`+x(n)+`"}`); a.status != status {
			t.Errorf("a key name of %d: %d %.300s", n, a.status, a.body)
		}
	}
}

// What an account adds in an hour is bounded, in calls and in bytes, and the refusal names the bound. What ends something is not.
// T177
func TestInputs_Flows(t *testing.T) {
	s := newStack(t)
	of := func(q api.Quotas) func(who actor, method, path, body string) answer {
		h := api.New(s.deps(func(d *api.Deps) { d.Policy.Quotas = q }))
		return func(who actor, method, path, body string) answer { return s.through(h, who, method, base+path, body) }
	}
	refused := func(a answer, quota string, limit int) {
		t.Helper()
		if a.status != 429 || a.code() != "BCK.HTTP.429" || a.header.Get("Retry-After") == "" || a.text(t, "params") != fmt.Sprintf(`{"limit":%d,"quota":"%s"}`, limit, quota) {
			t.Errorf("%d %v %s", a.status, a.header, a.body)
		}
	}
	ok := func(a answer) answer {
		t.Helper()
		if a.status >= 300 {
			t.Errorf("%d %s", a.status, a.body)
		}
		return a
	}
	plan := s.plan(s.b1, freePlan)
	call := of(api.Quotas{Orders: 2, SubTasks: 2, Changes: 3})
	for range 2 {
		ok(call(s.s1, "POST", "/protocol/plans/"+plan+"/order", ""))
	}
	refused(call(s.s1, "POST", "/protocol/plans/"+plan+"/order", ""), "orders", 2)

	token, _ := s.token(s.s1, plan)
	id := ok(call(s.b1, "POST", "/x402/verify", paymentBody(plan, token, ""))).text(t, "agentRequestId")
	for range 2 {
		ok(call(s.b1, "POST", "/protocol/agent-sub-tasks", `{"agentRequestId":"`+id+`","creditsUsed":1}`))
	}
	refused(call(s.b1, "POST", "/protocol/agent-sub-tasks", `{"agentRequestId":"`+id+`","creditsUsed":1}`), "sub-tasks", 2)

	hook := ok(call(s.b1, "POST", "/webhooks", `{"url":"https://hooks.example.com/"}`)).text(t, "id")
	ok(call(s.b1, "PATCH", "/webhooks/"+hook, `{"description":"x"}`))
	ok(call(s.b1, "PUT", "/protocol/plans/"+plan, `{"name":"y"}`))
	refused(call(s.b1, "PUT", "/protocol/plans/"+plan, `{"name":"z"}`), "changes", 3)
	ok(call(s.b1, "GET", "/protocol/plans", ""))
	ok(call(s.b1, "POST", "/x402/verify", paymentBody(plan, token, "")))
	ok(call(s.b1, "DELETE", "/webhooks/"+hook, ""))
	ok(call(s.b2, "POST", "/protocol/plans", freePlan))

	call = of(api.Quotas{Changes: 10})
	ok(call(s.b1, "PUT", "/protocol/plans/"+plan, `{"description":"`+strings.Repeat("x", 15<<10)+`"}`)) // four
	ok(call(s.b1, "PUT", "/protocol/plans/"+plan, `{"description":"`+strings.Repeat("x", 15<<10)+`"}`))
	refused(call(s.b1, "PUT", "/protocol/plans/"+plan, `{"description":"`+strings.Repeat("x", 15<<10)+`"}`), "changes", 10)

	call = of(api.Quotas{Changes: -1})
	for range 5 {
		ok(call(s.b1, "PUT", "/protocol/plans/"+plan, `{"name":"y"}`))
	}
}
