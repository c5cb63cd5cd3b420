package gate_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/gate"
	"github.com/tollhq/toll/internal/must"
)

// open sends a request and returns its response, whose body arrives later.
func (s *scene) open(method, path, token, body string) *http.Response {
	s.Helper()
	return must.Get(s.try(method, path, token, body))(s)
}

// try is [scene.open] for a request whose response may be cut.
func (s *scene) try(method, path, token, body string) (*http.Response, error) {
	s.Helper()
	req := must.Get(http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body)))(s)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err == nil {
		s.Cleanup(func() { _ = res.Body.Close() })
	}
	return res, err
}

// costs waits for the settlement of a stream.
func (s *scene) costs(b interface{ Balance() toll.Credits }, before, want toll.Credits, what string) {
	s.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		n := before - b.Balance()
		if n == want {
			return
		}
		if n != 0 || time.Now().After(end) {
			s.Errorf("%s: %d credits, want %d", what, n, want)
			return
		}
	}
}

// TestDrip: an upstream that sends a byte now and then does not keep a call open. The call is free, unless its stream was delivered.
func TestDrip(t *testing.T) {
	const config = `
upstreams:
  idle: { url: UPSTREAM, idle: 50ms }
  late: { url: UPSTREAM, timeout: 200ms, idle: 10s }
meters: { m: { n: { response: /n } } }
routes:
  - { match: GET /idle/whole, upstream: idle, meter: m, price: [ { n: 1, max: 100 } ] }
  - { match: GET /idle/fixed, upstream: idle, credits: 3 }
  - { match: GET /idle/failure, upstream: idle, credits: 3 }
  - { match: GET /idle/stream, upstream: idle, price: [ { base: 7 } ] }
  - { match: GET /late/whole, upstream: late, meter: m, price: [ { n: 1, max: 100 } ] }
  - { match: POST /late/v1/chat/completions, upstream: late, preset: openai, price: [ { input: 1, output: 1, max_input: 500, max_output: 10 } ] }
`
	s := begin(t, config, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch {
		case strings.HasSuffix(r.URL.Path, "stream"):
			w.Header().Set("Content-Type", "text/event-stream")
		case strings.HasSuffix(r.URL.Path, "failure"), strings.HasSuffix(r.URL.Path, "completions"):
			w.WriteHeader(http.StatusBadRequest)
		}
		if strings.HasPrefix(r.URL.Path, "/idle") { // one part, and then nothing
			_, _ = io.WriteString(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(5 * time.Millisecond)
		}
	}))
	ann := s.svc.Subscriber(100_000)
	for _, c := range []struct {
		method, path, body string
		status             int // 0: the connection is closed
		cost               toll.Credits
	}{
		{"GET", "/idle/whole", "", 502, 0},
		{"GET", "/idle/fixed", "", 0, 0},
		{"GET", "/idle/failure", "", 0, 0},
		{"GET", "/idle/stream", "", 200, 7},
		{"GET", "/late/whole", "", 502, 0},
		{"POST", "/late/v1/chat/completions", `{"model":"m","messages":[]}`, 400, 0},
	} {
		before := ann.Balance()
		status := 0
		if res, err := s.try(c.method, c.path, ann.AccessToken, c.body); err == nil {
			status = res.StatusCode
			_, _ = io.Copy(io.Discard, res.Body) // the stream is cut
		}
		if status != c.status {
			t.Errorf("%s: %d, want %d", c.path, status, c.status)
		}
		s.costs(ann, before, c.cost, c.path)
	}
}

// TestInterruptedStream: an interrupted stream costs its usage if no part of the price depends on what the rest would have reported, and
// else its hold.
func TestInterruptedStream(t *testing.T) {
	const config = `
upstreams: { m: { url: UPSTREAM } }
meters: { sent: { sent: { header: x-sent } } }
routes:
  - { match: POST /seconds, price: [ { seconds: 10, max: 1000 } ] }
  - { match: POST /bytes, price: [ { bytes: 2, base: 3, max: 1000 } ] }
  - { match: POST /sent, meter: sent, price: [ { sent: 10, max: 1000 } ] }
  - { match: POST /unsent, meter: sent, price: [ { sent: 10, max: 1000, missing: min } ] }
  - { match: POST /v1/chat/completions, preset: openai, price: [ { seconds: 10, max: 1000 } ] }
  - { match: POST /min/v1/chat/completions, preset: openai, price: [ { input: 1, output: 1, max: 500, missing: min } ] }
`
	const event = `data: {"choices":[{"delta":{"content":"hi"}}]}` + "\n\n"
	s := begin(t, config, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if r.URL.Path == "/sent" {
			w.Header().Set("X-Sent", "7")
		}
		_, _ = io.WriteString(w, event)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	ann := s.svc.Subscriber(100_000)
	for path, cost := range map[string]toll.Credits{
		"/seconds": 10, "/bytes": 3 + 2*toll.Credits(len(event)), "/sent": 70, "/unsent": 1000, "/v1/chat/completions": 10, "/min/v1/chat/completions": 500,
	} {
		before := ann.Balance()
		res := s.open("POST", path, ann.AccessToken, `{"model":"m","messages":[],"stream":true}`)
		if body, err := io.ReadAll(res.Body); err == nil || string(body) != event || res.Header.Get(gate.HeaderHeld) == "" {
			t.Errorf("%s: %d %q, %v", path, res.StatusCode, body, err)
		}
		s.costs(ann, before, cost, path)
	}
}

// TestJSONLines: each line of a stream of Ollama is sent as it arrives, and the last line has the usage.
func TestJSONLines(t *testing.T) {
	const config = `
upstreams: { m: { url: UPSTREAM } }
routes:
  - { match: POST /api/chat, preset: ollama, price: [ { input: 2, output: 3, max_input: 500, max_output: 100 } ] }
  - { match: POST /lines, credits: 4 }
`
	const first = `{"model":"m","message":{"role":"assistant","content":"The"},"done":false}` + "\n"
	const last = `{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":26,"eval_count":28}` + "\n"
	goOn := make(chan struct{})
	s := begin(t, config, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, first)
		_ = http.NewResponseController(w).Flush()
		<-goOn
		_, _ = io.WriteString(w, last)
	}))
	ann := s.svc.Subscriber(100_000)
	for path, cost := range map[string]toll.Credits{"/api/chat": 2*26 + 3*28, "/lines": 4} {
		before := ann.Balance()
		res := s.open("POST", path, ann.AccessToken, `{"model":"m","messages":[{"role":"user","content":"why?"}]}`)
		in := bufio.NewReader(res.Body)
		if line, err := in.ReadString('\n'); err != nil || line != first || res.Header.Get("X-Accel-Buffering") != "no" {
			t.Errorf("%s: %q, %v, %v", path, line, err, res.Header)
		}
		goOn <- struct{}{}
		if rest, err := io.ReadAll(in); err != nil || string(rest) != last {
			t.Errorf("%s: %q, %v", path, rest, err)
		}
		s.costs(ann, before, cost, path)
	}
}

// TestHostileLines: whatever lines a server sends, a call costs the usage of its only last line, or its hold.
func TestHostileLines(t *testing.T) {
	const end = `{"done":true,"prompt_eval_count":26,"eval_count":28}`
	long := strings.Repeat("x", 10<<20)
	lines := make(chan string, 1)
	s := begin(t, `
upstreams: { m: { url: UPSTREAM } }
routes: [ { match: POST /api/generate, preset: ollama, price: [ { input: 2, output: 3, max: 700, max_input: 500, max_output: 100 } ] } ]
`, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, <-lines)
	}))
	ann := s.svc.Subscriber(100_000)
	for name, c := range map[string]struct {
		lines string
		cost  toll.Credits
	}{
		"the last line":         {`{"response":"a","done":false}` + "\n" + end + "\n", 2*26 + 3*28},
		"no newline at the end": {end, 2*26 + 3*28},
		"no end":                {`{"response":"a","done":false,"prompt_eval_count":1,"eval_count":1}` + "\n", 700},
		"two ends":              {end + "\n" + end + "\n", 700},
		"nested":                {`{"response":{"done":true,"prompt_eval_count":1,"eval_count":1}}` + "\n", 700},
		"in a text":             {`{"response":"\n{\"done\":true,\"prompt_eval_count\":1,\"eval_count\":1}"}` + "\n", 700},
		"twice in a line":       {`{"done":true,"prompt_eval_count":1,"eval_count":1,"eval_count":0}` + "\n", 700},
		"negative":              {`{"done":true,"prompt_eval_count":1,"eval_count":-1}` + "\n", 700},
		"a line of 10 MB":       {`{"response":"` + long + `","done":false}` + "\n" + end + "\n", 700},
		"an end of 10 MB":       {`{"response":"` + long + `","done":true,"prompt_eval_count":1,"eval_count":1}` + "\n", 700},
	} {
		lines <- c.lines
		before := ann.Balance()
		r := s.send("POST", "/api/generate", ann.AccessToken, `{"model":"m","prompt":"`+strings.Repeat("why? ", 40)+`"}`)
		if n := before - ann.Balance(); r.status != 200 || r.body != c.lines || n != c.cost {
			t.Errorf("%s: %d, %d credits, want %d: %.300s", name, r.status, n, c.cost, r.body)
		}
	}
}

// TestFixedPrice: responses at a fixed price stream as in a gate without a configuration: they are settled before their first byte, and
// can be larger than what the gate buffers. A request body is not read in advance.
func TestFixedPrice(t *testing.T) {
	const size = 9 << 20 // above 8 MiB
	goOn := make(chan struct{})
	s := begin(t, "upstreams: { m: { url: UPSTREAM } }\nroutes: [ { match: POST /fixed, credits: 3 } ]\n", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.RawQuery {
		case "events":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			<-goOn
			_, _ = io.WriteString(w, "data: 2\n\n")
		case "large":
			_, _ = w.Write(make([]byte, size))
		case "failure":
			w.WriteHeader(http.StatusConflict)
		default:
			_, _ = io.Copy(w, r.Body)
		}
	}))
	ann := s.svc.Subscriber(100)
	res := s.open("POST", "/fixed?events", ann.AccessToken, "")
	in := bufio.NewReader(res.Body)
	if line, err := in.ReadString('\n'); err != nil || line != "data: 1\n" || res.Header.Get(gate.HeaderUsed) != "3" || ann.Balance() != 97 {
		t.Errorf("the first event: %q, %v, %v, balance %d", line, err, res.Header, ann.Balance())
	}
	goOn <- struct{}{}
	if rest, err := io.ReadAll(in); err != nil || string(rest) != "\ndata: 2\n\n" {
		t.Errorf("the rest: %q, %v", rest, err)
	}
	for _, c := range []struct {
		query, body string
		status      int
		size        int64
		balance     toll.Credits
	}{
		{"large", "", 200, size, 94}, {"failure", "", 409, 0, 94}, {"", "hello", 200, 5, 91},
	} {
		res := s.open("POST", "/fixed?"+c.query, ann.AccessToken, c.body)
		n, err := io.Copy(io.Discard, res.Body)
		if err != nil || res.StatusCode != c.status || n != c.size || ann.Balance() != c.balance {
			t.Errorf("%s: %d, %d bytes, %v, balance %d", c.query, res.StatusCode, n, err, ann.Balance())
		}
		if want := fmt.Sprint(c.balance); c.status == 200 && res.Header.Get(gate.HeaderRemaining) != want {
			t.Errorf("%s: %s remain, want %s", c.query, res.Header.Get(gate.HeaderRemaining), want)
		}
	}
}
