package gate_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/gate"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/tolltest"
)

// wide is a plan whose prices fit every table of these tests.
var wide = tolltest.WithPlan(client.PlanParams{
	Metadata: toll.Metadata{Name: "Models"}, Price: toll.Price{Amounts: []toll.Units{toll.UnitsOf(5_000_000)}, Currency: toll.CurrencyUSD}, Credits: toll.CreditsDynamic(1_000_000, 1, 1_000_000),
})

// scene is a gate before an upstream, with a service.
type scene struct {
	*testing.T
	svc   *tolltest.Service
	url   string
	front *httptest.Server
	left  chan struct{} // receives when the gate notices that a caller has disconnected
	came  *atomic.Int64 // requests that have reached the gate
	queue *paid.Queue
	log   *bytes.Buffer

	metrics *gate.Metrics
}

// begin starts a gate with a configuration, in which UPSTREAM is the address of h.
func begin(t *testing.T, config string, h http.Handler) *scene {
	t.Helper()
	return beginWith(t, config, h, nil)
}

func beginWith(t *testing.T, config string, h http.Handler, replays *gate.Replays) *scene {
	t.Helper()
	svc := tolltest.New(t, wide)
	up := httptest.NewServer(h)
	t.Cleanup(up.Close)
	c := must.Get(gate.Parse([]byte("plan: Models\n" + strings.ReplaceAll(config, "UPSTREAM", up.URL))))(t)
	must.Do(t, c.CheckPlan(must.Get(svc.Client().Terms(t.Context(), svc.Plan()))(t)))
	log, queue, metrics := &locked{}, paid.NewQueue(), gate.NewMetrics()
	g := gate.New(c, gate.Deps{
		Facilitator: svc.Client(), Plan: svc.Plan(), Agent: svc.Agent(), Queue: queue, Replays: replays, Metrics: metrics,
		Log: slog.New(slog.NewTextHandler(log, nil)), BuyAt: svc.URL() + "/buy",
	})
	left, came := make(chan struct{}, 1000), new(atomic.Int64)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer context.AfterFunc(r.Context(), func() { left <- struct{}{} })()
		came.Add(1)
		g.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	return &scene{T: t, svc: svc, url: front.URL, front: front, left: left, came: came, queue: queue, log: &log.Buffer, metrics: metrics}
}

type locked struct {
	sync.Mutex
	bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.Buffer.Write(p)
}

type reply struct {
	status int
	header http.Header
	body   string
}

// send sends a request with a bearer token, as the SDKs of model APIs do.
func (s *scene) send(method, path, token, body string, header ...string) reply {
	s.Helper()
	req := must.Get(http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body)))(s)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res := must.Get(http.DefaultClient.Do(req))(s)
	defer res.Body.Close()
	return reply{res.StatusCode, res.Header, string(must.Get(io.ReadAll(res.Body))(s))}
}

// spent returns the credits that a subscriber has used, once no settlement is open.
func spent(s *tolltest.Subscriber, of toll.Credits) toll.Credits { return of - s.Balance() }

const search = `
credit: 0.0001 USD
upstreams: { find: { url: UPSTREAM } }
meters: { search: { results: { response: /results, count: true }, pages: { header: x-pages } } }
routes:
  - { match: GET /search, meter: search, price: [ { base: 100, results: 50, pages: 7, max: 5000, missing: { pages: min } } ] }
  - { match: GET /strict, meter: search, price: [ { results: 50, max: 5000, missing: refuse } ] }
  - { match: GET /fixed, credits: 3 }
  - { match: GET /health, free: true }
`

func TestSearchPerResult(t *testing.T) {
	var calls sync.Map
	s := begin(t, search, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Store(r.URL.Path, r.Header.Clone())
		w.Header().Set("Content-Type", "application/json")
		if p := r.URL.Query().Get("pages"); p != "" {
			w.Header().Set("X-Pages", p)
		}
		fmt.Fprint(w, r.URL.Query().Get("answer"))
	}))
	const credits = 100_000
	ann := s.svc.Subscriber(credits)
	for _, c := range []struct {
		name, path string
		status     int
		cost       toll.Credits
	}{
		{"three results", `/search?answer={"results":[1,2,3]}`, 200, 250},
		{"three results, two pages", `/search?answer={"results":[1,2,3]}&pages=2`, 200, 264},
		{"no results", `/search?answer={"results":[]}`, 200, 100},
		{"above the hold", `/search?answer={"results":[` + strings.Repeat("1,", 100) + `1]}`, 200, 5000},
		{"a missing member", `/search?answer={}`, 200, 5000},
		{"null", `/search?answer={"results":null}`, 200, 5000},
		{"a number in place of a list", `/search?answer={"results":7}`, 200, 5000},
		{"not JSON", `/search?answer=hello`, 200, 5000},
		{"twice the member", `/search?answer={"results":[],"results":[]}`, 200, 5000},
		{"a negative header", `/search?answer={"results":[]}&pages=-1`, 200, 5000},
		{"refused without usage", `/strict?answer={}`, 502, 0},
		{"not refused", `/strict?answer={"results":[1]}`, 200, 50},
		{"a fixed price", `/fixed?answer=x`, 200, 3},
		{"free", `/health`, 200, 0},
		{"no route", `/other`, 404, 0},
	} {
		before := ann.Balance()
		r := s.send("GET", strings.ReplaceAll(c.path, `"`, "%22"), ann.AccessToken, "")
		if cost := before - ann.Balance(); r.status != c.status || cost != c.cost {
			t.Errorf("%s: %d, %d credits, want %d, %d: %s", c.name, r.status, cost, c.status, c.cost, r.body)
		}
		if used := r.header.Get(gate.HeaderUsed); c.cost > 0 && (used != c.cost.String() || r.header.Get(gate.HeaderRemaining) != ann.Balance().String()) {
			t.Errorf("%s: the response says %q used, %q remaining", c.name, used, r.header.Get(gate.HeaderRemaining))
		}
	}
	if r := s.send("GET", "/search", "", ""); r.status != 402 || ann.Balance() == 0 {
		t.Errorf("without a token: %d %s", r.status, r.body)
	}
	if h, _ := calls.Load("/health"); h.(http.Header).Get("Authorization") != "" {
		t.Error("the access token of a free request reached the upstream")
	}
}

const models = `
upstreams: { openai: { url: UPSTREAM/v1, headers: { authorization: "Bearer seller-key" } } }
routes:
  - match: POST /v1/chat/completions
    preset: openai
    price:
      - { when: { model: "small-*" }, per: 1000, input: 150, cache_read: 75, output: 600, max_input: 2000, max_output: 1000 }
      - { when: { model: "big-*" }, per: 1000, input: 2500, output: 10000, max_input: 2000, max_output: 20000 }
  - { match: GET /v1/models, upstream: openai, preset: openai, free: true }
`

// openAI is a model server that reports the usage in the request member "test", and streams slowly when asked to.
type openAI struct {
	mu    sync.Mutex
	seen  []map[string]any
	auth  []string
	begun chan struct{} // receives when a stream has sent its first event
	goOn  chan struct{} // the stream continues after a receive
}

func (o *openAI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/models" {
		fmt.Fprint(w, `{"object":"list","data":[]}`)
		return
	}
	var body map[string]any
	if json.NewDecoder(r.Body).Decode(&body) != nil || r.URL.Path != "/v1/chat/completions" {
		http.Error(w, "bad "+r.URL.Path, 400)
		return
	}
	o.mu.Lock()
	o.seen = append(o.seen, body)
	o.auth = append(o.auth, r.Header.Get("Authorization"))
	o.mu.Unlock()
	user, _ := body["user"].(string)
	status, usage := 200, user
	if n, err := fmt.Sscanf(user, "status %d", &status); n == 1 && err == nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, `{"error":{"message":"Too long, organization org-SELLER1 in project proj_SELLER2"}}`)
		return
	}
	w.Header().Set("openai-organization", "org-seller")
	if body["stream"] != true {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":%s}`, usage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	fmt.Fprint(w, `data: {"id":"c","choices":[{"index":0,"delta":{"content":"hi"}}]}`+"\n\n")
	_ = flush.Flush()
	if o.begun != nil {
		o.begun <- struct{}{}
		<-o.goOn
	}
	fmt.Fprint(w, `data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n")
	fmt.Fprintf(w, `data: {"id":"c","choices":[],"usage":%s}`+"\n\ndata: [DONE]\n\n", usage)
}

func chat(model, usage, more string) string {
	user, _ := json.Marshal(usage)
	return `{"model":"` + model + `","user":` + string(user) + more + `,"messages":[{"role":"user","content":"hello"}]}`
}

const usage100 = `{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110,"prompt_tokens_details":{"cached_tokens":40}}`

func TestChatPerToken(t *testing.T) {
	up := &openAI{}
	s := begin(t, models, up)
	const credits = 1_000_000
	ann := s.svc.Subscriber(credits)
	const hold = 104 // 100*0.6 for the output limit, and the bound of the input
	for _, c := range []struct {
		name, body string
		status     int
		cost       toll.Credits
		says       string
	}{
		{"small", chat("small-1", usage100, ""), 200, 18, `"content":"hi"`},                 // 60*0.15 + 40*0.075 + 10*0.6 = 18
		{"big", chat("big-1", usage100, ""), 200, 350, `"content":"hi"`},                    // 100*2.5 + 10*10
		{"small, streamed", chat("small-1", usage100, `,"stream":true`), 200, 18, "[DONE]"}, // the same usage
		{"zero", chat("small-1", `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`, ""), 200, 0, "hi"},
		{"no usage", chat("small-1", `null`, `,"max_tokens":100`), 200, hold, "hi"},
		{"negative", chat("small-1", `{"prompt_tokens":-5,"completion_tokens":1}`, `,"max_tokens":100`), 200, hold, "hi"},
		{"huge", chat("small-1", `{"prompt_tokens":9000000000000000000,"completion_tokens":1}`, `,"max_tokens":100`), 200, hold, "hi"},
		{"more than its limit", chat("small-1", `{"prompt_tokens":5,"completion_tokens":100000}`, `,"max_tokens":100`), 200, hold, "hi"},
		{"unknown model", chat("other", usage100, ""), 404, 0, `"code":"model_not_found"`},
		{"duplicate member", chat("small-1", usage100, `,"model":"big-1"`), 400, 0, `"error":{`},
		{"stored data", chat("small-1", usage100, `,"store":true,"previous_response_id":"x"`), 400, 0, `"error":{`},
		{"refused by the upstream", chat("small-1", "status 401", ""), 502, 0, `"error":{`},
		{"limited by the upstream", chat("small-1", "status 429", ""), 429, 0, "The model server is busy"},
		{"a bad request for the upstream", chat("small-1", "status 400", ""), 400, 0, "Too long, organization org-..."},
		{"a failed upstream", chat("small-1", "status 503", ""), 503, 0, "The model server failed"},
		{"a surcharge without a price", chat("small-1", usage100, `,"service_tier":"priority"`), 400, 0, "service_tier: the seller has no price"},
	} {
		before := ann.Balance()
		r := s.send("POST", "/v1/chat/completions", ann.AccessToken, c.body)
		cost := before - ann.Balance()
		if r.status != c.status || cost != c.cost || !strings.Contains(r.body, c.says) {
			t.Errorf("%s: %d, %d credits, want %d, %d: %s", c.name, r.status, cost, c.status, c.cost, r.body)
		}
		if r.header.Get("openai-organization") != "" || strings.Contains(r.body, "SELLER") {
			t.Errorf("%s: the response names the seller's organization", c.name)
		}
		streamed := strings.Contains(c.name, "streamed")
		if streamed && (strings.Contains(r.body, "usage") || r.header.Get(gate.HeaderHeld) == "" || r.header.Get("Service-Request-Id") == "") {
			t.Errorf("%s: %v %s", c.name, r.header, r.body)
		}
	}
	for i, body := range up.seen {
		if up.auth[i] != "Bearer seller-key" || body["model"] == "other" {
			t.Errorf("call %d reached the upstream with %q: %v", i, up.auth[i], body)
		}
		if n := body["max_completion_tokens"]; body["max_tokens"] == nil && n == nil {
			t.Errorf("call %d has no output limit: %v", i, body)
		}
	}
	if r := s.send("GET", "/v1/models", "", ""); r.status != 200 {
		t.Errorf("models: %d %s", r.status, r.body)
	}
	if r := s.send("POST", "/v1/chat/completions", "", chat("small-1", usage100, "")); r.status != 402 || !strings.Contains(r.body, s.svc.URL()+"/buy") ||
		!strings.Contains(r.body, `"error":{`) || r.header.Get("payment-required") == "" {
		t.Errorf("without a token: %d %v %s", r.status, r.header, r.body)
	}
	s.svc.Advance(400 * 24 * time.Hour)
	if r := s.send("POST", "/v1/chat/completions", ann.AccessToken, chat("small-1", usage100, "")); r.status != 401 || !strings.Contains(r.body, `"error":{`) {
		t.Errorf("with an expired token: %d %s", r.status, r.body)
	}
}

// TestUsageLabels: the seller sees usage by upstream, route, and model, and the buyer by route and model. A model name that no label can
// hold is shortened: its settlement is not refused.
func TestUsageLabels(t *testing.T) {
	s := begin(t, strings.ReplaceAll(models, `"big-*"`, `"b*"`), &openAI{})
	ann := s.svc.Subscriber(1_000_000)
	long := "b\\u0000\\u0085é" + strings.Repeat("é", 100)
	for _, model := range []string{"small-1", "small-1", "big-1", long} {
		before := ann.Balance()
		if r := s.send("POST", "/v1/chat/completions", ann.AccessToken, chat(model, usage100, "")); r.status != 200 || ann.Balance() == before {
			t.Fatalf("%s: %d %s, %d credits", model, r.status, r.body, before-ann.Balance())
		}
	}
	sums := func(c *client.Client, opts ...client.ListOption) string {
		var all []string
		for u, err := range c.Usage(t.Context(), append(opts, client.Ascending())...) {
			must.Do(t, err)
			all = append(all, fmt.Sprintf("%s%s%s %d %s", u.Upstream, u.Route, u.Model, u.Settled, u.Credits))
		}
		return strings.Join(all, ", ")
	}
	bounded := "b\ufffd\ufffdé" + strings.Repeat("é", 27)
	byModel := "big-1 1 350, " + bounded + " 1 350, small-1 2 36"
	for end := time.Now().Add(20 * time.Second); sums(s.svc.Client(), client.By("model")) != byModel && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
	}
	for _, tt := range []struct{ got, want string }{
		{sums(s.svc.Client(), client.By("model")), byModel}, {sums(ann.Client, client.By("model"), client.AsBuyer()), byModel},
		{sums(s.svc.Client(), client.By("upstream")), "openai 4 736"},
		{sums(ann.Client, client.By("route"), client.AsBuyer()), "POST /v1/chat/completions 4 736"},
	} {
		if tt.got != tt.want {
			t.Errorf("%q, want %q", tt.got, tt.want)
		}
	}
}

// TestSmallBalance: the output limit is lowered to what the balance pays, and below min_output the request is refused with both figures.
func TestSmallBalance(t *testing.T) {
	up := &openAI{}
	s := begin(t, models, up)
	body := chat("small-1", usage100, `,"max_completion_tokens":1000`)
	ann := s.svc.Subscriber(300) // 1000 output tokens cost 600
	if r := s.send("POST", "/v1/chat/completions", ann.AccessToken, body); r.status != 200 || spent(ann, 300) != 18 {
		t.Fatalf("%d, %d credits: %s", r.status, spent(ann, 300), r.body)
	}
	limit, _ := up.seen[0]["max_completion_tokens"].(float64)
	if limit < 256 || limit > 500 {
		t.Errorf("the upstream got the limit %v", limit)
	}
	bob := s.svc.Subscriber(100) // 256 output tokens cost 154
	r := s.send("POST", "/v1/chat/completions", bob.AccessToken, body)
	if r.status != 402 || !strings.Contains(r.body, "100 are available") || spent(bob, 100) != 0 || len(up.seen) != 1 {
		t.Errorf("%d, %d credits: %s", r.status, spent(bob, 100), r.body)
	}
}

// TestCallerLeavesStream: the gate reads on, and charges the reported usage.
func TestCallerLeavesStream(t *testing.T) {
	up := &openAI{begun: make(chan struct{}), goOn: make(chan struct{})}
	s := begin(t, models, up)
	ann := s.svc.Subscriber(1000)
	req := must.Get(http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/chat/completions", strings.NewReader(chat("small-1", usage100, `,"stream":true`))))(t)
	req.Header.Set("Authorization", "Bearer "+ann.AccessToken)
	req.Header.Set("Content-Type", "application/json")
	res := must.Get(http.DefaultClient.Do(req))(t)
	<-up.begun
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || !strings.Contains(line, "hi") {
		t.Fatal(line, err)
	}
	_ = res.Body.Close()
	time.Sleep(50 * time.Millisecond) // the gate notices
	up.goOn <- struct{}{}
	for end := time.Now().Add(10 * time.Second); spent(ann, 1000) == 0 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	if n := spent(ann, 1000); n != 18 {
		t.Errorf("%d credits, want 18", n)
	}
}

// TestOmit sells a server that rejects unknown members and reports the usage of a stream beside its last choice, as Mistral does.
func TestOmit(t *testing.T) {
	s := begin(t, `
upstreams: { mistral: { url: UPSTREAM } }
routes:
  - match: POST /v1/chat/completions
    preset: openai
    output_limit: max_tokens
    omit: [store, stream_options]
    price: [ { per: 1000, input: 150, output: 600, max_input: 2000, max_output: 1000 } ]
`, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		var q struct {
			Model, User string
			Messages    []any
			Stream      bool
			Limit       int `json:"max_tokens"`
		}
		if err := d.Decode(&q); err != nil || q.Limit != 1000 {
			http.Error(w, fmt.Sprintf(`{"detail":[{"type":"extra_forbidden","msg":"%v, limit %d"}]}`, err, q.Limit), http.StatusUnprocessableEntity)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"id":"c","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}`, "\n\n")
		fmt.Fprint(w, `data: {"id":"c","choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110}}`,
			"\n\ndata: [DONE]\n\n")
	}))
	ann := s.svc.Subscriber(10_000)
	for i, more := range []string{"", `,"store":false`, `,"store":true,"stream_options":{"include_usage":true}`} {
		r := s.send("POST", "/v1/chat/completions", ann.AccessToken, chat("mistral-small", "", `,"stream":true`+more))
		if want := toll.Credits(21 * (i + 1)); r.status != 200 || !strings.Contains(r.body, `"completion_tokens":10`) || !strings.HasSuffix(r.body, "[DONE]\n\n") || spent(ann, 10_000) != want {
			t.Errorf("%s: %d, %d credits: %s", more, r.status, spent(ann, 10_000), r.body)
		}
	}
}

// TestBrowser: pages of a configured origin can ask before they call, and read the credits of a response.
func TestBrowser(t *testing.T) {
	s := begin(t, `
cors: [https://app.example.com]
upstreams: { a: { url: UPSTREAM } }
routes: [ { match: POST /ask, credits: 2 }, { match: GET /free, free: true } ]
`, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions {
			t.Error("a preflight reached the upstream")
		}
		w.Header().Set("Access-Control-Allow-Origin", "https://upstream.example.com")
	}))
	ann := s.svc.Subscriber(10)
	asks := []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type"}
	r := s.send("OPTIONS", "/ask", "", "", append(asks, "Origin", "https://app.example.com")...)
	if r.status != 204 || r.header.Get("Access-Control-Allow-Origin") != "https://app.example.com" || r.header.Get("Access-Control-Allow-Methods") != "POST" ||
		r.header.Get("Access-Control-Allow-Headers") != "authorization,content-type" {
		t.Errorf("preflight: %d %v", r.status, r.header)
	}
	for _, c := range []struct {
		method, path, token string
		status              int
		used                string
	}{{"POST", "/ask", ann.AccessToken, 200, "2"}, {"POST", "/ask", "", 402, ""}, {"GET", "/free", "", 200, ""}} {
		r := s.send(c.method, c.path, c.token, "", "Origin", "https://app.example.com")
		exposed := strings.Join(r.header.Values("Access-Control-Expose-Headers"), ", ")
		if r.status != c.status || r.header.Get(gate.HeaderUsed) != c.used || r.header.Get("Access-Control-Allow-Origin") != "https://app.example.com" {
			t.Errorf("%s: %d %v", c.path, r.status, r.header)
		}
		for _, name := range []string{"x-credits-used", "x-credits-remaining", "x-credits-held", "payment-response"} {
			if !strings.Contains(exposed, name) {
				t.Errorf("%s: a page cannot read %s: %s", c.path, name, exposed)
			}
		}
	}
	r = s.send("OPTIONS", "/ask", "", "", append(asks, "Origin", "https://other.example.com")...)
	if r.status == 204 || r.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another origin: %d %v", r.status, r.header)
	}
}

// TestMetrics: the page for Prometheus counts the calls, credits, and uncovered credits of each route.
func TestMetrics(t *testing.T) {
	s := begin(t, search, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"results":[`+strings.Repeat("1,", 100)+`1]}`)
	}))
	ann := s.svc.Subscriber(100_000)
	s.send("GET", "/search", ann.AccessToken, "")
	s.send("GET", "/search", "", "")
	s.send("GET", "/fixed", ann.AccessToken, "")
	s.send("GET", "/nowhere", "", "")
	w := httptest.NewRecorder()
	s.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	for _, line := range []string{
		`toll_gate_requests_total{route="GET /search",status="200"} 1`,
		`toll_gate_requests_total{route="GET /search",status="402"} 1`,
		`toll_gate_requests_total{route="other",status="404"} 1`,
		`toll_gate_credits_total{route="GET /search"} 5000`,
		`toll_gate_credits_total{route="GET /fixed"} 3`,
		`toll_gate_uncovered_credits_total{route="GET /search"} 150`,
		`toll_gate_upstream_seconds_count{route="GET /search"} 1`,
	} {
		if !strings.Contains(w.Body.String(), "\n"+line+"\n") {
			t.Errorf("the page lacks %s", line)
		}
	}
}

// TestLimits: a token has its own limits in each gate.
func TestLimits(t *testing.T) {
	inside, goOn := make(chan struct{}), make(chan struct{})
	s := begin(t, `
limits: { concurrent: 1, per_minute: 3 }
upstreams: { slow: { url: UPSTREAM } }
routes:
  - { match: GET /slow, credits: 1 }
  - { match: GET /fast, credits: 1 }
  - { match: GET /free, free: true }
`, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			inside <- struct{}{}
			<-goOn
		}
	}))
	ann, bob := s.svc.Subscriber(10), s.svc.Subscriber(10)
	done := make(chan reply)
	go func() { done <- s.send("GET", "/slow", ann.AccessToken, "") }()
	<-inside
	if r := s.send("GET", "/fast", ann.AccessToken, ""); r.status != 429 || r.header.Get("Retry-After") != "1" {
		t.Errorf("a second call at the same time: %d %v", r.status, r.header)
	}
	if r := s.send("GET", "/fast", bob.AccessToken, ""); r.status != 200 {
		t.Errorf("another token: %d %s", r.status, r.body)
	}
	goOn <- struct{}{}
	if r := <-done; r.status != 200 {
		t.Errorf("the first call: %d %s", r.status, r.body)
	}
	for i, want := range []int{200, 200, 429} {
		if r := s.send("GET", "/fast", ann.AccessToken, ""); r.status != want {
			t.Errorf("call %d: %d, want %d", i+2, r.status, want)
		}
	}
	if r := s.send("GET", "/free", ann.AccessToken, ""); r.status != 200 || spent(ann, 10) != 3 {
		t.Errorf("%d, %d credits", r.status, spent(ann, 10))
	}
}
