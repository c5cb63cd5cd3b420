package interop

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/tolltest"
)

// modelSDKs are the SDKs of model APIs, and the node that they need.
var modelSDKs = &set{from: "models"}

const modelGate = `plan: Models
credit: 0.000001 USD
upstreams: { models: { url: "UPSTREAM/v1", headers: { authorization: "Bearer ${env:MODEL_KEY}" } } }
routes:
  - match: POST /v1/chat/completions
    preset: openai
    price: [ { when: { model: "small-*" }, per: 1000, input: 150, cache_read: 75, output: 600, reasoning: 1200, max_input: 2000, max_output: 1000 } ]
  - match: POST /v1/responses
    preset: openai
    price: [ { when: { model: "small-*" }, per: 1000, input: 150, cache_read: 75, output: 600, reasoning: 1200, max_input: 2000, max_output: 1000 } ]
  - { match: POST /v1/messages, preset: anthropic, price: [ { when: { model: "small-*" }, per: 1000, input: 300, cache_read: 30, cache_write: 375, cache_write_1h: 600, output: 1500, max_input: 2000, max_output: 1000 } ] }
  - { match: GET /v1/models, preset: openai, free: true }
`

// modelRows are the usage that the model server reports for model small-NAME, and the credits that it costs by hand.
var modelRows = []struct {
	api, name, usage string
	cost             toll.Credits
}{
	{"chat", "zero", `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`, 0},
	{"chat", "one", `{"prompt_tokens":1,"completion_tokens":0,"total_tokens":1}`, 1},         // 0.15
	{"chat", "plain", `{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110}`, 21}, // 15 + 6
	// 60*0.15 + 40*0.075 + 10*0.6 = 9 + 3 + 6
	{"chat", "cached", `{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110,"prompt_tokens_details":{"cached_tokens":40,"audio_tokens":0}}`, 18},
	// 10*0.15 + 20*0.6 + 30*1.2 = 1.5 + 12 + 36
	{"chat", "reasoning", `{"prompt_tokens":10,"completion_tokens":50,"total_tokens":60,"completion_tokens_details":{"reasoning_tokens":30}}`, 50},
	{"responses", "text", `{"input_tokens":100,"input_tokens_details":{"cached_tokens":40},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":110}`, 18},
	// 200*0.15 + 5*0.6 + 15*1.2 = 30 + 3 + 18
	{"responses", "thought", `{"input_tokens":200,"input_tokens_details":{"cached_tokens":0},"output_tokens":20,"output_tokens_details":{"reasoning_tokens":15},"total_tokens":220}`, 51},
	{"messages", "brief", `{"input_tokens":100,"output_tokens":10}`, 45}, // 30 + 15
	// 10*0.3 + 500*0.03 + 7*1.5 = 3 + 15 + 10.5
	{"messages", "read", `{"input_tokens":10,"cache_read_input_tokens":500,"cache_creation_input_tokens":0,"output_tokens":7}`, 29},
	// 10*0.3 + 60*0.375 + 40*0.6 + 2*1.5 = 3 + 22.5 + 24 + 3
	{"messages", "written", `{"input_tokens":10,"cache_read_input_tokens":0,"cache_creation_input_tokens":100,"cache_creation":{"ephemeral_5m_input_tokens":60,"ephemeral_1h_input_tokens":40},"output_tokens":2}`, 53},
}

// modelServer is a streaming server with the APIs of OpenAI and Anthropic. A stream of small-slow waits after its first text, a
// response of small-late before.
type modelServer struct {
	mu     sync.Mutex
	limits []int64       // output limits of the requests
	goOn   chan struct{} // continues small-slow and small-late
}

const modelText = "data: hello \\u007b\\\"usage\\\":{\\\"prompt_tokens\\\":0}}" // looks like an event with usage

func (s *modelServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+sellerKey || r.Header.Get("X-Api-Key") != "" {
		http.Error(w, "the key is not the seller's", http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/v1/models" {
		fmt.Fprint(w, `{"object":"list","data":[{"id":"small-plain","object":"model"}]}`)
		return
	}
	var q struct {
		Model     string
		Stream    bool
		Messages  int64 `json:"max_tokens"`
		Chat      int64 `json:"max_completion_tokens"`
		Responses int64 `json:"max_output_tokens"`
	}
	if json.NewDecoder(r.Body).Decode(&q) != nil {
		http.Error(w, "bad body", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.limits = append(s.limits, cmp.Or(q.Messages, q.Chat, q.Responses))
	s.mu.Unlock()
	name, usage := strings.TrimPrefix(q.Model, "small-"), ""
	for _, row := range modelRows {
		if row.name == name || (name == "slow" || name == "late") && strings.Contains(r.URL.Path, row.api) {
			usage = row.usage
		}
	}
	events := modelEvents(r.URL.Path, q.Model, usage)
	if !q.Stream {
		if name == "late" {
			s.wait()
		}
		fmt.Fprint(w, events[len(events)-1])
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events[:len(events)-1] {
		if r.URL.Path != "/v1/chat/completions" {
			var typed struct{ Type string }
			_ = json.Unmarshal([]byte(e), &typed) // the events below are valid
			fmt.Fprintf(w, "event: %s\n", typed.Type)
		}
		fmt.Fprintf(w, "data: %s\n\n", e)
		_ = http.NewResponseController(w).Flush()
		if name == "slow" && strings.Contains(e, "hello") && !strings.Contains(e, `"response":`) {
			s.wait()
		}
	}
}

func (s *modelServer) wait() {
	select {
	case <-s.goOn:
	case <-time.After(30 * time.Second): // the test has failed
	}
}

// modelEvents returns the events of a stream, and then the complete response.
func modelEvents(path, model, usage string) []string {
	switch path {
	case "/v1/chat/completions":
		chunk := `{"id":"c1","object":"chat.completion.chunk","created":1,"model":"` + model + `","choices":`
		return []string{
			chunk + `[{"index":0,"delta":{"role":"assistant","content":"` + modelText + `"},"finish_reason":null}]}`,
			chunk + `[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
			chunk + `[],"usage":` + usage + `}`,
			"[DONE]",
			`{"id":"c1","object":"chat.completion","created":1,"model":"` + model + `","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"` +
				modelText + `"}}],"usage":` + usage + `}`,
		}
	case "/v1/responses":
		response := func(status, more string) string {
			return `{"id":"r1","object":"response","created_at":1,"model":"` + model + `","status":"` + status + `","output":[{"type":"message","id":"m1","role":"assistant",` +
				`"status":"completed","content":[{"type":"output_text","annotations":[],"text":"` + modelText + `"}]}]` + more + `}`
		}
		return []string{
			`{"type":"response.created","sequence_number":0,"response":` + response("in_progress", "") + `}`,
			`{"type":"response.output_text.delta","sequence_number":1,"item_id":"m1","output_index":0,"content_index":0,"delta":"` + modelText + `"}`,
			`{"type":"response.completed","sequence_number":2,"response":` + response("completed", `,"usage":`+usage) + `}`,
			response("completed", `,"usage":`+usage),
		}
	}
	var u map[string]any
	_ = json.Unmarshal([]byte(usage), &u) // the table is valid
	output := u["output_tokens"]
	u["output_tokens"] = 1
	first, _ := json.Marshal(u)
	return []string{
		`{"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","model":"` + model + `","content":[],"stop_reason":null,"usage":` + string(first) + `}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + modelText + `"}}`,
		`{"type":"content_block_stop","index":0}`,
		fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":%v}}`, output),
		`{"type":"message_stop"}`,
		`{"id":"m1","type":"message","role":"assistant","model":"` + model + `","content":[{"type":"text","text":"` + modelText + `"}],"stop_reason":"end_turn","usage":` + usage + `}`,
	}
}

// TestModelSDKs sells a streaming model server with twelve lines of YAML to the SDKs of OpenAI and Anthropic.
func TestModelSDKs(t *testing.T) {
	t.Parallel()
	n := modelSDKs.find(t).recent(t)
	up := &modelServer{goOn: make(chan struct{}, 1)}
	upstream := httptest.NewServer(up)
	t.Cleanup(upstream.Close)
	svc := tolltest.New(t, tolltest.WithPlan(client.PlanParams{
		Metadata: toll.Metadata{Name: "Models"}, Price: toll.Price{Amounts: []toll.Units{toll.UnitsOf(5_000_000)}, Currency: toll.CurrencyUSD},
		Credits: toll.CreditsDynamic(1_000_000, 1, 1_000_000),
	}))
	url := startModelGate(t, svc, strings.ReplaceAll(modelGate, "UPSTREAM", upstream.URL))
	dir := must.Get(os.MkdirTemp(n.packages, "run"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, file := range []string{"models/client.mjs", "js/lines.mjs"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, filepath.Base(file)), must.Get(os.ReadFile(file))(t), 0o600))
	}
	sdk := n.start(t, dir, "client")

	type result struct {
		Text, Class, Message string
		Status               int
	}
	call := func(token, api, model string, more map[string]any) (r result) {
		t.Helper()
		args := map[string]any{"url": url, "token": token, "api": api, "model": model}
		for k, v := range more {
			args[k] = v
		}
		must.Do(t, sdk.do("call", args, &r))
		return r
	}
	const credits = 100_000
	ann := svc.Subscriber(credits)
	left := toll.Credits(credits)
	settles := func(what string, cost toll.Credits) {
		t.Helper()
		left -= cost
		for end := time.Now().Add(10 * time.Second); ann.Balance() != left && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
		}
		if b := ann.Balance(); b != left {
			t.Errorf("%s: %d credits remain, want %d", what, b, left)
			left = b
		}
	}
	var text string
	must.Do(t, json.Unmarshal([]byte(`"`+modelText+`"`), &text))
	for _, row := range modelRows {
		for _, stream := range []bool{false, true} {
			what := fmt.Sprintf("%s %s, streamed %v", row.api, row.name, stream)
			if r := call(ann.AccessToken, row.api, "small-"+row.name, map[string]any{"stream": stream}); r.Text != text {
				t.Errorf("%s: %+v", what, r)
			}
			settles(what, row.cost)
		}
	}
	for _, last := range []int{4, 6, 9} { // small-slow reports the usage of the last row of its API
		api, last := modelRows[last].api, modelRows[last]
		r := call(ann.AccessToken, api, "small-slow", map[string]any{"stream": true, "abort": true})
		if r.Text != text {
			t.Errorf("%s, aborted: %+v", api, r)
		}
		time.Sleep(100 * time.Millisecond) // the gate notices
		if b := ann.Balance(); b != left {
			t.Errorf("%s: settled before the stream ended", api)
		}
		up.goOn <- struct{}{}
		settles(api+", aborted", last.cost)

		up.mu.Lock()
		up.limits = nil
		up.mu.Unlock()
		call(ann.AccessToken, api, "small-"+last.name, map[string]any{"limit": 5000})
		if len(up.limits) != 1 || up.limits[0] != 1000 {
			t.Errorf("%s: the upstream got the output limits %v, want 1000", api, up.limits)
		}
		settles(api+", limited", last.cost)

		if r := call(ann.AccessToken, api, "large-1", nil); r.Status != 404 || r.Class != "NotFoundError" {
			t.Errorf("%s, an unknown model: %+v", api, r)
		}
		poor := svc.Subscriber(0)
		for _, stream := range []bool{false, true} {
			r := call(poor.AccessToken, api, "small-plain", map[string]any{"stream": stream})
			if r.Status != 402 || r.Class != "APIError" || !strings.Contains(r.Message, svc.URL()) {
				t.Errorf("%s without credits, streamed %v: %+v", api, stream, r)
			}
		}
	}
	for _, last := range []int{4, 9} {
		api, last := modelRows[last].api, modelRows[last]
		for _, stream := range []bool{false, true} {
			for _, cost := range []toll.Credits{last.cost, 0} {
				options := map[string]any{"defaultHeaders": map[string]string{"Idempotency-Key": fmt.Sprint(api, stream)}}
				if r := call(ann.AccessToken, api, "small-"+last.name, map[string]any{"stream": stream, "options": options}); r.Text != text {
					t.Errorf("%s with a key, streamed %v: %+v", api, stream, r)
				}
				settles(api+" with a key", cost)
			}
		}
		// The SDK times out while the model works, and repeats the request.
		go func() {
			time.Sleep(4 * time.Second)
			up.goOn <- struct{}{}
		}()
		up.mu.Lock()
		up.limits = nil
		up.mu.Unlock()
		options := map[string]any{"timeout": 2500, "maxRetries": 2}
		if r := call(ann.AccessToken, api, "small-late", map[string]any{"options": options}); r.Text != text {
			t.Errorf("%s, repeated: %+v", api, r)
		}
		settles(api+", repeated", last.cost)
		if len(up.limits) != 1 {
			t.Errorf("%s, repeated: %d requests reached the upstream", api, len(up.limits))
		}
	}
	var list result
	must.Do(t, sdk.do("models", map[string]any{"url": url, "token": ann.AccessToken}, &list))
	if list.Text != "small-plain" {
		t.Errorf("models: %q", list.Text)
	}
	settles("everything else", 0)
	svc.Advance(48 * time.Hour)
	for _, api := range []string{"chat", "responses", "messages"} {
		if r := call(ann.AccessToken, api, "small-plain", nil); r.Status != 401 || r.Class != "AuthenticationError" || !strings.Contains(r.Message, svc.URL()) {
			t.Errorf("%s with an expired token: %+v", api, r)
		}
	}
}

// startModelGate runs toll gate with a configuration until the test ends.
func startModelGate(t *testing.T, svc *tolltest.Service, config string) (url string) {
	t.Helper()
	file, address := filepath.Join(t.TempDir(), "gate.yaml"), servertest.FreeAddress(t)
	must.Do(t, os.WriteFile(file, []byte(config), 0o600))
	builder := must.Get(svc.NewKey("builder"))(t)
	gate := exec.Command(servertest.Program(t), "gate", "--config", file, "--listen", address)
	log := &servertest.Log{}
	gate.Stdout, gate.Stderr = log, log
	gate.Env = append(os.Environ(), "TOLL_API_KEY="+builder.Key, "TOLL_URL="+svc.URL(), "MODEL_KEY="+sellerKey)
	must.Do(t, gate.Start())
	t.Cleanup(func() {
		_ = gate.Process.Kill()
		_ = gate.Wait() // it was killed
		if t.Failed() {
			t.Logf("gate:\n%s", log)
		}
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
			return "http://" + address
		}
		if time.Now().After(end) {
			t.Fatalf("the gate does not listen: %v\n%s", err, log)
		}
	}
}
