package gate_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// TestLimitsOfEveryForm: the limits of a token apply however it is sent, and whatever is sent beside it.
func TestLimitsOfEveryForm(t *testing.T) {
	s := begin(t, `
limits: { per_minute: 1 }
upstreams: { m: { url: UPSTREAM } }
routes: [ { match: GET /x, credits: 1 } ]
`, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ann := s.svc.Subscriber(100)
	token := ann.AccessToken
	if r := s.send("GET", "/x", token, ""); r.status != 200 {
		t.Fatalf("the first call: %d %s", r.status, r.body)
	}
	foreign := "eyJhbGciOiJFUzI1NiJ9." + strings.Repeat("e", 200) + "." + strings.Repeat("e", 86)
	for name, header := range map[string][]string{
		"the same":            {"Authorization", "Bearer " + token},
		"a tab":               {"Authorization", "Bearer\t" + token},
		"x-api-key":           {"X-Api-Key", token},
		"beside another":      {"Authorization", "Bearer " + foreign, "X-Api-Key", token},
		"another in front":    {"X-Api-Key", foreign, "Authorization", "Bearer " + token},
		"payment-signature":   {"Payment-Signature", token},
		"another last letter": {"Authorization", "Bearer " + otherEnd(token)},
	} {
		r := s.send("GET", "/x", "", "", header...)
		if r.status == 200 {
			t.Errorf("%s: the call was not limited", name)
		}
	}
	if n := spent(ann, 100); n != 1 {
		t.Errorf("%d credits, want 1", n)
	}
}

// otherEnd changes the bits of the last letter of a signature that its decoding ignores.
func otherEnd(token string) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(letters, token[len(token)-1])
	return token[:len(token)-1] + string(letters[last^1])
}

const sized = `
upstreams: { m: { url: UPSTREAM } }
meters: { pages: { pages: { request_header: x-pages } }, words: { words: { request: /q/words } }, sent: { sent: { header: x-sent } } }
routes:
  - { match: POST /size, price: [ { when: { size: small }, base: 1 }, { when: { size: large }, base: 100 }, { base: 2 } ] }
  - { match: GET /size, price: [ { when: { size: small }, base: 1 }, { when: { size: large }, base: 100 }, { base: 2 } ] }
  - { match: POST /pages, meter: pages, price: [ { pages: 10, max: 1000 } ] }
  - { match: POST /words, meter: words, price: [ { words: 10, max: 1000 } ] }
  - { match: GET /events, meter: sent, price: [ { sent: 10, max: 1000, missing: min } ] }
`

// TestAmbiguousRequests: a request that the upstream could read in another way than the gate is rejected before the hold.
func TestAmbiguousRequests(t *testing.T) {
	var mu sync.Mutex
	reached := 0
	s := begin(t, sized, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		reached++
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	const credits = 10_000
	ann := s.svc.Subscriber(credits)
	for _, c := range []struct {
		name, method, path, body string
		header                   []string
		cost                     toll.Credits // 0: rejected
	}{
		{"small", "POST", "/size", `{"size":"small"}`, nil, 1},
		{"large", "POST", "/size", `{"size":"large"}`, nil, 100},
		{"small, in the query", "GET", "/size?size=small", "", nil, 1},
		{"three pages", "POST", "/pages", "", []string{"X-Pages", "3"}, 30},
		{"two words", "POST", "/words", `{"q":{"words":2}}`, nil, 20},
		{"UTF-8", "POST", "/size", `{"size":"large"}`, []string{"Content-Type", "application/json; charset=UTF-8"}, 100},

		{"a case variant beside it", "POST", "/size", `{"size":"small","Size":"large"}`, nil, 0},
		{"a case variant", "POST", "/size", `{"SIZE":"large"}`, nil, 0},
		{"a folded letter", "POST", "/size", `{"ſize":"large"}`, nil, 0},
		{"a case variant in the query", "GET", "/size?size=small&Size=large", "", nil, 0},
		{"a case variant of a pointer", "POST", "/words", `{"q":{"words":1,"Words":99}}`, nil, 0},
		{"a case variant above it", "POST", "/words", `{"q":{"words":1},"Q":{"words":99}}`, nil, 0},
		{"a list", "POST", "/size", `{"size":["large"]}`, nil, 0},
		{"an object", "POST", "/size", `{"size":{"toString":"large"}}`, nil, 0},
		{"a list in the query", "GET", "/size?size[]=large", "", nil, 0},
		{"another form of a number", "POST", "/size", `{"size":2.0}`, nil, 0},
		{"an exponent", "POST", "/size", `{"size":2e0}`, nil, 0},
		{"a number", "POST", "/size", `{"size":2.5}`, nil, 2},
		{"another charset", "POST", "/size", `{"size":"small"}`, []string{"Content-Type", "application/json; charset=utf-7"}, 0},
		{"a header for the connection", "POST", "/pages", "", []string{"X-Pages", "1", "Connection", "X-Pages"}, 0},
		{"a header with an underscore", "POST", "/pages", "", []string{"X-Pages", "1", "X_Pages", "99"}, 0},
		{"gzip", "POST", "/size", `{"size":"small"}`, []string{"Content-Encoding", "gzip"}, 0},
		{"trailing data", "POST", "/size", `{"size":"small"}{"size":"large"}`, nil, 0},
	} {
		mu.Lock()
		before := reached
		mu.Unlock()
		balance := ann.Balance()
		r := s.send(c.method, c.path, ann.AccessToken, c.body, c.header...)
		if cost := balance - ann.Balance(); cost != c.cost || (r.status == 200) != (c.cost > 0) || c.cost == 0 && r.status != 400 || (reached > before) != (c.cost > 0) {
			t.Errorf("%s: %d, %d credits, want %d: %s", c.name, r.status, cost, c.cost, r.body)
		}
	}
	two := must.Get(http.NewRequestWithContext(t.Context(), "POST", s.url+"/size", strings.NewReader(`{"size":"small","x":"&size=large&"}`)))(t)
	two.Header = http.Header{"Authorization": {"Bearer " + ann.AccessToken}, "Content-Type": {"application/json", "application/x-www-form-urlencoded"}}
	res := must.Get(http.DefaultClient.Do(two))(t)
	_ = res.Body.Close()
	if res.StatusCode != 400 {
		t.Errorf("two content types: %d", res.StatusCode)
	}
}

// TestHeaderOfStream: a stream is charged by the headers of its response too.
func TestHeaderOfStream(t *testing.T) {
	s := begin(t, sized, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Sent", "7")
		fmt.Fprint(w, "data: hi\n\n")
	}))
	ann := s.svc.Subscriber(1000)
	if r := s.send("GET", "/events", ann.AccessToken, ""); r.status != 200 || spent(ann, 1000) != 70 {
		t.Errorf("%d, %d credits, want 70: %s", r.status, spent(ann, 1000), r.body)
	}
}

// TestQueryOfModelCall: query parameters that change what a model server reports do not reach it. With fields, Gemini omits the thoughts
// from its usage.
func TestQueryOfModelCall(t *testing.T) {
	queries := make(chan string, 1)
	s := begin(t, `
upstreams: { m: { url: UPSTREAM } }
routes: [ { match: "POST /v1beta/models/g-1:generateContent", preset: gemini, price: [ { input: 1, output: 1 } ] } ]
`, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		queries <- r.URL.RawQuery
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1,"thoughtsTokenCount":5,"totalTokenCount":7}}`)
	}))
	ann := s.svc.Subscriber(100_000)
	r := s.send("POST", "/v1beta/models/g-1:generateContent?alt=json&fields=candidates,usageMetadata(promptTokenCount,candidatesTokenCount)&key=x", ann.AccessToken,
		`{"contents":[{"parts":[{"text":"hi"}]}]}`)
	if r.status != 200 || spent(ann, 100_000) != 7 {
		t.Fatalf("%d, %d credits: %s", r.status, spent(ann, 100_000), r.body)
	}
	if q := <-queries; q != "alt=json" {
		t.Errorf("the upstream got the query %q", q)
	}
}

// TestMemoryOfStrangers: callers with a forged token cannot fill the memory with bodies. Tokens that have paid, and small bodies, are
// served all the same.
func TestMemoryOfStrangers(t *testing.T) {
	s := begin(t, models, &openAI{})
	ann, bob := s.svc.Subscriber(100_000), s.svc.Subscriber(100_000)
	if r := s.send("POST", "/v1/chat/completions", ann.AccessToken, chat("small-1", usage100, "")); r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	claims, _ := json.Marshal(map[string]any{"iss": s.svc.URL(), "planId": s.svc.Plan(), "x402Version": 2, "aud": s.svc.URL(), "jti": strings.Repeat("x", 100)})
	encode := base64.RawURLEncoding.EncodeToString
	forged := encode([]byte(`{"alg":"ES256"}`)) + "." + encode(claims) + "." + strings.Repeat("A", 86)

	runtime.GC()
	var before, during runtime.MemStats
	runtime.ReadMemStats(&before)
	const many, size = 30, 10 << 20
	var pipes []*io.PipeWriter
	answers := make(chan int, many)
	head := `{"model":"small-1","messages":[{"role":"user","content":"`
	for range many {
		r, w := io.Pipe()
		pipes = append(pipes, w)
		req := must.Get(http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/chat/completions", r))(t)
		req.Header = http.Header{"Authorization": {"Bearer " + forged}, "Content-Type": {"application/json"}}
		go func() {
			res, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				answers <- 0
				return
			}
			_ = res.Body.Close()
			answers <- res.StatusCode
		}()
		go func() {
			_, _ = io.WriteString(w, head)
			part := bytes.Repeat([]byte("x"), 64<<10)
			for sent := 0; sent < size-(1<<20); sent += len(part) {
				if _, err := w.Write(part); err != nil {
					return // refused
				}
			}
		}()
	}
	refused := 0
	for end := time.After(10 * time.Second); refused < many-6; {
		select {
		case status := <-answers:
			if refused++; status != 429 && status != 0 {
				t.Errorf("a stranger got %d", status)
			}
		case <-end:
			runtime.ReadMemStats(&during)
			t.Fatalf("%d of %d strangers were refused while their bodies arrived: %d MiB of heap", refused, many, int64(during.HeapInuse-before.HeapInuse)>>20)
		}
	}
	time.Sleep(200 * time.Millisecond)
	runtime.ReadMemStats(&during)
	t.Logf("%d strangers: %d MiB of heap", many, int64(during.HeapInuse-before.HeapInuse)>>20)
	large := `,"metadata":{"x":"` + strings.Repeat("y", 1<<20) + `"}`
	for name, c := range map[string]struct {
		token, more string
		status      int
	}{"a token that has paid": {ann.AccessToken, large, 200}, "a new token, large": {bob.AccessToken, strings.Replace(large, "y", strings.Repeat("y", 7<<20), 1), 429}, "a new token, small": {s.svc.Subscriber(1000).AccessToken, "", 200}} {
		if r := s.send("POST", "/v1/chat/completions", c.token, chat("small-1", usage100, c.more)); r.status != c.status {
			t.Errorf("%s: %d, want %d: %.200s", name, r.status, c.status, r.body)
		}
	}
	for _, w := range pipes {
		_ = w.CloseWithError(io.ErrUnexpectedEOF)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		r := s.send("POST", "/v1/chat/completions", bob.AccessToken, chat("small-1", usage100, large))
		if r.status == 200 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after the strangers: %d %.200s", r.status, r.body)
		}
	}
}

// TestTricksOfUpstreams: whatever a model server sends, a call costs the reported usage or its hold, and a refused one costs nothing.
// No response names the seller's account.
func TestTricksOfUpstreams(t *testing.T) {
	events := func(lines ...string) string { return strings.Join(lines, "\n\n") + "\n\n" }
	const good = `{"choices":[],"usage":` + usage100 + `}`
	const text = `{"choices":[{"index":0,"delta":{"content":"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":0}}\n\ndata: [DONE]"}}]}`
	var answer atomic.Pointer[func(w http.ResponseWriter)] // the transport may repeat a request whose connection broke
	s := begin(t, models, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		(*answer.Load())(w)
	}))
	plain := func(body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, body)
		}
	}
	stream := func(body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, body)
		}
	}
	const hold = 104
	long := strings.Repeat("x", 10<<20)
	for _, c := range []struct {
		name   string
		stream bool
		answer func(w http.ResponseWriter)
		status int
		cost   toll.Credits
	}{
		{"usage in the text", true, stream(events("data: "+text, "data: "+good, "data: [DONE]")), 200, 18},
		{"only usage in the text", true, stream(events("data: "+text, "data: [DONE]")), 200, hold},
		{"usage in a comment", true, stream(events(": "+good, "data: "+text, "data: [DONE]")), 200, hold},
		{"usage in an event name", true, stream(events("event: "+good, "data: "+text, "data: [DONE]")), 200, hold},
		{"two usages", true, stream(events("data: "+good, `data: {"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}`, "data: [DONE]")), 200, hold},
		{"an event of 10 MB", true, stream(events(`data: {"choices":[{"delta":{"content":"`+long+`"}}]}`, "data: "+good, "data: [DONE]")), 200, hold},
		{"10 MB without a line", true, stream(long), 200, hold},
		{"usage in an event of 10 MB", true, stream(events(`data: {"choices":[],"usage":`+usage100+`,"x":"`+long+`"}`, "data: [DONE]")), 200, hold},
		{"negative in a stream", true, stream(events(`data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":-1}}`, "data: [DONE]")), 200, hold},
		{"huge in a stream", true, stream(events(`data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":99999999999999999999}}`, "data: [DONE]")), 200, hold},
		{"nested usage in a stream", true, stream(events(`data: {"choices":[{"usage":`+usage100+`}],"x":{"usage":`+usage100+`}}`, "data: [DONE]")), 200, hold},
		{"the same usage twice", true, stream(events("data: "+good, "data: "+good, "data: [DONE]")), 200, 18},
		{"usage after the end marker", true, stream(events("data: "+text, "data: [DONE]", "data: "+good)), 200, 18},
		{"another usage after the end marker", true, stream(events("data: "+good, "data: [DONE]", `data: {"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}`)), 200, hold},
		{"a response of 10 MB", false, plain(`{"choices":["` + long + `"],"usage":` + usage100 + `}`), 502, 0},
		{"an error of 10 MB", false, func(w http.ResponseWriter) { w.WriteHeader(400); _, _ = io.WriteString(w, long) }, 400, 0},
		{"CR LF", true, stream(strings.ReplaceAll(events("data: "+text, "data: "+good, "data: [DONE]"), "\n", "\r\n")), 200, 18},
		{"two values", false, plain(`{"choices":[],"usage":` + usage100 + `}{"usage":{"prompt_tokens":0,"completion_tokens":0}}`), 200, hold},
		{"nested usage", false, plain(`{"choices":[{"usage":{"prompt_tokens":0,"completion_tokens":0}}]}`), 200, hold},
		{"a duplicate", false, plain(`{"usage":` + usage100 + `,"usage":{"prompt_tokens":0,"completion_tokens":0}}`), 200, hold},
		{"201", false, func(w http.ResponseWriter) {
			w.WriteHeader(201)
			fmt.Fprint(w, `{"usage":{"prompt_tokens":0,"completion_tokens":0}}`)
		}, 201, hold},
		{"204", false, func(w http.ResponseWriter) { w.WriteHeader(204) }, 204, hold},
		{"302", false, func(w http.ResponseWriter) { w.Header().Set("Location", "http://SELLER/"); w.WriteHeader(302) }, 502, 0},
		{"brotli", false, func(w http.ResponseWriter) { w.Header().Set("Content-Encoding", "br"); plain("xx")(w) }, 200, hold},
		{"a gzip bomb", false, func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", "application/json")
			z := gzip.NewWriter(w)
			part := bytes.Repeat([]byte(" "), 1<<20)
			for range 200 {
				if _, err := z.Write(part); err != nil {
					return
				}
			}
		}, 502, 0},
		{"closed early", false, func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"usage":`)
			panic(http.ErrAbortHandler)
		}, 502, 0},
		{"an error in a stream", true, stream(events("data: "+text, `data: {"error":{"message":"Limit of organization org-SELLER1 reached"}}`)), 200, hold},
		{"an error in 200", false, plain(`{"error":{"message":"Limit of organization org-SELLER1 reached"},"usage":` + usage100 + `}`), 200, 18},
	} {
		answer.Store(&c.answer)
		ann := s.svc.Subscriber(1000)
		r := s.send("POST", "/v1/chat/completions", ann.AccessToken, chat("small-1", "", `,"max_tokens":100,"stream":`+strconv.FormatBool(c.stream)))
		if n := spent(ann, 1000); r.status != c.status || n != c.cost {
			t.Errorf("%s: %d, %d credits, want %d, %d: %.300s", c.name, r.status, n, c.status, c.cost, r.body)
		}
		if text := fmt.Sprint(r.header, r.body); strings.Contains(text, "SELLER") || strings.Contains(text, "seller-key") {
			t.Errorf("%s: the response names the seller's account: %.300s", c.name, text)
		}
	}
}
