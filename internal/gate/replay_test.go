package gate_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/gate"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
)

const repeated = `
upstreams: { m: { url: UPSTREAM, headers: { x-seller: key } } }
meters: { pages: { pages: { request_header: x-pages } } }
routes:
  - { match: POST /ask, credits: 3 }
  - { match: PUT /ask, credits: 3 }
  - { match: GET /ask, credits: 3 }
  - { match: POST /pages, meter: pages, price: [ { pages: 10, max: 1000 } ] }
  - match: POST /v1/chat/completions
    preset: openai
    price: [ { per: 1000, input: 150, cache_read: 75, output: 600, max_input: 2000, max_output: 1000 } ]
`

// counter is an upstream whose responses have a number each. If it holds requests, each waits for its end.
type counter struct {
	respond func(w http.ResponseWriter, r *http.Request, n int) // nil: 201 with the number
	holds   atomic.Bool
	begun   chan int // numbers of requests that wait

	mu   sync.Mutex
	keys []string // Idempotency-Key of each request
	ends []chan struct{}
}

func newCounter() *counter { return &counter{begun: make(chan int, 1000)} }

func (u *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	end := make(chan struct{})
	u.mu.Lock()
	u.keys, u.ends = append(u.keys, r.Header.Get("Idempotency-Key")), append(u.ends, end)
	n := len(u.ends)
	u.mu.Unlock()
	_, _ = io.Copy(io.Discard, r.Body)
	if u.holds.Load() {
		u.begun <- n
		select {
		case <-end:
		case <-r.Context().Done():
			return
		}
	}
	if u.respond != nil {
		u.respond(w, r, n)
		return
	}
	w.Header().Set("X-Number", fmt.Sprint(n))
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, "response ", n)
}

// next returns the number of the next request that waits.
func (u *counter) next(t *testing.T) int {
	t.Helper()
	select {
	case n := <-u.begun:
		return n
	case <-time.After(20 * time.Second):
		t.Fatal("no request reached the upstream")
		return 0
	}
}

// end ends request n, counted from 1.
func (u *counter) end(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	close(u.ends[n-1])
}

func (u *counter) calls() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.ends)
}

func same(a, b reply) bool {
	a.header, b.header = a.header.Clone(), b.header.Clone()
	for _, h := range []http.Header{a.header, b.header} {
		h.Del("Content-Length") // a small complete body has it also where the first response was a stream
		h.Del("Date")
		h.Del("Idempotency-Replayed")
	}
	return a.status == b.status && a.body == b.body && maps.EqualFunc(a.header, b.header, slices.Equal)
}

// TestIdempotencyKey: a repeated request gets the same response and burns nothing. Another request with its key is rejected.
func TestIdempotencyKey(t *testing.T) {
	up := newCounter()
	s := begin(t, repeated, up)
	const credits = 1000
	ann, bob := s.svc.Subscriber(credits), s.svc.Subscriber(credits)
	const key = "Idempotency-Key"
	first := s.send("POST", "/ask?a=1", ann.AccessToken, `{"q":1}`, key, "k1")
	if first.status != 201 || first.body != "response 1" || first.header.Get("Payment-Response") == "" || first.header.Get("Idempotency-Replayed") != "" {
		t.Fatalf("%d %v %s", first.status, first.header, first.body)
	}
	for range 3 {
		if r := s.send("POST", "/ask?a=1", ann.AccessToken, `{"q":1}`, key, "k1"); !same(r, first) || r.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("repeated: %d %v %s, want %v", r.status, r.header, r.body, first.header)
		}
	}
	for name, send := range map[string]func() reply{
		"another body":   func() reply { return s.send("POST", "/ask?a=1", ann.AccessToken, `{"q":2}`, key, "k1") },
		"another query":  func() reply { return s.send("POST", "/ask?a=2", ann.AccessToken, `{"q":1}`, key, "k1") },
		"another path":   func() reply { return s.send("POST", "/pages", ann.AccessToken, `{"q":1}`, key, "k1", "X-Pages", "1") },
		"another method": func() reply { return s.send("PUT", "/ask?a=1", ann.AccessToken, `{"q":1}`, key, "k1") },
		"another type": func() reply {
			return s.send("POST", "/ask?a=1", ann.AccessToken, `{"q":1}`, key, "k1", "Content-Type", "text/plain")
		},
	} {
		if r := send(); r.status != 422 || !strings.Contains(r.body, string(toll.CodeIdempotencyMismatch)) {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
	if r := s.send("POST", "/v1/chat/completions", ann.AccessToken, chat("small-1", usage100, ""), key, "k1"); r.status != 422 || !strings.Contains(r.body, `"error":{`) {
		t.Errorf("another route: %d %s", r.status, r.body)
	}
	if n := spent(ann, credits); n != 3 || up.calls() != 1 {
		t.Errorf("%d credits, %d calls", n, up.calls())
	}
	for name, header := range map[string][]string{
		"an empty key": {""}, "a long key": {strings.Repeat("k", 256)}, "a space": {"a b"}, "a letter that is not ASCII": {"ä"}, "two keys": {"a", "b"},
	} {
		req := must.Get(http.NewRequestWithContext(t.Context(), "POST", s.url+"/ask", http.NoBody))(t)
		req.Header = http.Header{"Authorization": {"Bearer " + ann.AccessToken}, key: header}
		res := must.Get(http.DefaultClient.Do(req))(t)
		_ = res.Body.Close()
		if res.StatusCode != 400 {
			t.Errorf("%s: %d", name, res.StatusCode)
		}
	}
	if r := s.send("POST", "/ask", ann.AccessToken, "", key, strings.Repeat("k", 255)); r.status != 201 || spent(ann, credits) != 6 {
		t.Errorf("the longest key: %d, %d credits", r.status, spent(ann, credits))
	}
	if r := s.send("POST", "/ask?a=1", bob.AccessToken, `{"q":1}`, key, "k1"); r.status != 201 || r.body != "response 3" || spent(bob, credits) != 3 {
		t.Errorf("another token: %d, %d credits: %s", r.status, spent(bob, credits), r.body)
	}
	if k := up.keys; k[0] == "" || k[0] == "k1" || k[0] == k[2] {
		t.Errorf("the upstream got the keys %q", k)
	}
	pages := s.send("POST", "/pages", ann.AccessToken, "", key, "p", "X-Pages", "1")
	if r := s.send("POST", "/pages", ann.AccessToken, "", key, "p", "X-Pages", "9"); pages.status != 201 || r.status != 422 {
		t.Errorf("another price: %d %d", pages.status, r.status)
	}
	if r := s.send("POST", "/ask?a=1", "", `{"q":1}`, key, "k1"); r.status != 402 {
		t.Errorf("without a token: %d %s", r.status, r.body)
	}
	must.Do(t, ann.Client.RevokePermission(t.Context(), ann.Permission))
	if r := s.send("POST", "/ask?a=1", ann.AccessToken, `{"q":1}`, key, "k1"); r.status != 402 || strings.Contains(r.body, "response 1") {
		t.Errorf("with a revoked token: %d %s", r.status, r.body)
	}
	if r := s.send("POST", "/ask?a=1", forged(ann.AccessToken), `{"q":1}`, key, "k1"); r.status != 402 {
		t.Errorf("with a forged token: %d %s", r.status, r.body)
	}
	if n := up.calls(); n != 4 {
		t.Errorf("%d calls, want 4", n)
	}
}

// forged changes the signature of a token.
func forged(token string) string {
	i := strings.LastIndexByte(token, '.') + 5
	if token[i] == 'A' {
		return token[:i] + "B" + token[i+1:]
	}
	return token[:i] + "A" + token[i+1:]
}

// TestKeyWithoutCredits: a subscriber that has spent its last credits on a call still gets the response again.
func TestKeyWithoutCredits(t *testing.T) {
	s := begin(t, repeated, newCounter())
	ann := s.svc.Subscriber(3)
	first := s.send("POST", "/ask", ann.AccessToken, "", "Idempotency-Key", "k")
	if r := s.send("POST", "/ask", ann.AccessToken, "", "Idempotency-Key", "k"); first.status != 201 || !same(r, first) {
		t.Errorf("%d %d %s", first.status, r.status, r.body)
	}
	if r := s.send("POST", "/ask", ann.AccessToken, "", "Idempotency-Key", "k2"); r.status != 402 {
		t.Errorf("another key: %d %s", r.status, r.body)
	}
}

// TestKeyOfFreeCall: a call that failed was free, and the request runs again under its key.
func TestKeyOfFreeCall(t *testing.T) {
	up := newCounter()
	up.respond = func(w http.ResponseWriter, _ *http.Request, n int) {
		if n < 3 {
			w.WriteHeader(500 + n)
		}
		fmt.Fprint(w, "response ", n)
	}
	s := begin(t, repeated, up)
	ann := s.svc.Subscriber(10)
	for i, status := range []int{501, 502, 200, 200} {
		r := s.send("POST", "/ask", ann.AccessToken, "", "Idempotency-Key", "k")
		if r.status != status {
			t.Errorf("call %d: %d %s", i+1, r.status, r.body)
		}
	}
	if spent(ann, 10) != 3 || up.calls() != 3 {
		t.Errorf("%d credits, %d calls", spent(ann, 10), up.calls())
	}
}

// TestKeyAtOnce: equal requests at the same time run once. If the first call fails, a waiting request runs.
func TestKeyAtOnce(t *testing.T) {
	up := newCounter()
	up.holds.Store(true)
	up.respond = func(w http.ResponseWriter, _ *http.Request, n int) {
		if n == 1 {
			w.WriteHeader(500)
		}
		fmt.Fprint(w, "response ", n)
	}
	s := begin(t, repeated, up)
	ann := s.svc.Subscriber(100)
	const many, waiting = 30, 16
	replies := make(chan reply, many)
	ask := func() { replies <- s.send("POST", "/ask", ann.AccessToken, "", "Idempotency-Key", "k") }
	go ask()
	up.next(t)
	for range many - 1 {
		go ask()
	}
	for range many - 1 - waiting {
		if r := <-replies; r.status != 409 || r.header.Get("Retry-After") != "1" || !strings.Contains(r.body, string(toll.CodeIdempotencyRunning)) {
			t.Errorf("one too many: %d %v %s", r.status, r.header, r.body)
		}
	}
	up.end(1)
	if r := <-replies; r.status != 500 {
		t.Errorf("the first: %d %s", r.status, r.body)
	}
	up.next(t)
	up.end(2)
	for range waiting {
		if r := <-replies; r.status != 200 || r.body != "response 2" {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	if spent(ann, 100) != 3 || up.calls() != 2 {
		t.Errorf("%d credits, %d calls", spent(ann, 100), up.calls())
	}
}

// leaving sends a request, runs during, and then disconnects.
func (s *scene) leaving(method, path, token, body string, during func(), header ...string) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	req := must.Get(http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body)))(s)
	req.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		res, err := http.DefaultTransport.RoundTrip(req)
		if err == nil {
			_, _ = io.ReadAll(res.Body)
			_ = res.Body.Close()
		}
	}()
	during()
	cancel()
	<-gone
	select {
	case <-s.left:
	case <-time.After(10 * time.Second):
		s.Error("the gate did not notice that the caller disconnected")
	}
	time.Sleep(20 * time.Millisecond) // its other goroutines notice too
}

const retryCount = "X-Stainless-Retry-Count"

// in sends a request in the background.
func (s *scene) in(replies chan<- reply, method, path, token, body string, header ...string) {
	go func() { replies <- s.send(method, path, token, body, header...) }()
}

// settles waits until a subscriber has spent this many credits.
func (s *scene) settles(what string, sub *tolltest.Subscriber, of, want toll.Credits) {
	s.Helper()
	for end := time.Now().Add(10 * time.Second); spent(sub, of) != want && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	if n := spent(sub, of); n != want {
		s.Errorf("%s: %d credits, want %d", what, n, want)
	}
}

// TestRetryJoins: a retry of an SDK gets the response of the call whose caller disconnected, which is charged once.
func TestRetryJoins(t *testing.T) {
	up := newCounter()
	up.holds.Store(true)
	s := begin(t, repeated, up)
	ann, bob := s.svc.Subscriber(1000), s.svc.Subscriber(1000)
	replies, joined := make(chan reply, 10), make(chan reply, 10)
	s.leaving("POST", "/ask", ann.AccessToken, `{"q":1}`, func() { up.next(t) }, retryCount, "0")
	s.in(joined, "POST", "/ask", ann.AccessToken, `{"q":1}`, retryCount, "1")
	time.Sleep(200 * time.Millisecond) // it waits
	// Different requests, a request without a count of retries, and a second retry run on their own.
	for i, c := range []struct{ token, method, path, body, count string }{
		{ann.AccessToken, "POST", "/ask", `{"q":1}`, "0"},
		{ann.AccessToken, "POST", "/ask", `{"q":1}`, "-1"},
		{ann.AccessToken, "POST", "/ask", `{"q":1}`, "1"},
		{ann.AccessToken, "POST", "/ask", `{"q":2}`, "1"},
		{ann.AccessToken, "PUT", "/ask", `{"q":1}`, "1"},
		{ann.AccessToken, "POST", "/ask?a", `{"q":1}`, "1"},
		{bob.AccessToken, "POST", "/ask", `{"q":1}`, "1"},
	} {
		s.in(replies, c.method, c.path, c.token, c.body, retryCount, c.count)
		n := up.next(t)
		up.end(n)
		if r := <-replies; r.status != 201 || r.body != fmt.Sprint("response ", n) || r.header.Get("Idempotency-Replayed") != "" {
			t.Errorf("request %d: %d %s", i, r.status, r.body)
		}
	}
	up.end(1)
	if r := <-joined; r.status != 201 || r.body != "response 1" || r.header.Get("Idempotency-Replayed") != "true" || r.header.Get("X-Credits-Used") != "3" {
		t.Errorf("the retry: %d %v %s", r.status, r.header, r.body)
	}
	s.settles("ann", ann, 1000, 7*3)
	s.settles("bob", bob, 1000, 3)

	// The call ends before the retry arrives. One retry gets its response.
	var n int
	s.leaving("POST", "/ask", ann.AccessToken, "x", func() { n = up.next(t) })
	up.end(n)
	s.settles("a call without a caller", ann, 1000, 8*3)
	up.holds.Store(false)
	if r := s.send("POST", "/ask", ann.AccessToken, "x", retryCount, "2"); r.body != fmt.Sprint("response ", n) {
		t.Errorf("the first retry: %d %s, want number %d", r.status, r.body, n)
	}
	s.settles("the first retry", ann, 1000, 8*3)
	if r := s.send("POST", "/ask", ann.AccessToken, "x", retryCount, "2"); r.body != fmt.Sprint("response ", n+1) {
		t.Errorf("the second retry: %d %s, want number %d", r.status, r.body, n+1)
	}
	s.settles("the second retry", ann, 1000, 9*3)
}

// TestRetryAboveLimit: a retry may wait for a call that takes the last place of its access token, but may not run beside it.
func TestRetryAboveLimit(t *testing.T) {
	up := newCounter()
	up.holds.Store(true)
	s := begin(t, "limits: { concurrent: 1 }\n"+repeated, up)
	ann := s.svc.Subscriber(1000)
	s.leaving("POST", "/ask", ann.AccessToken, "", func() { up.next(t) })
	joined := make(chan reply, 1)
	for name, header := range map[string][]string{"not a retry": {retryCount, "0"}, "another request": {retryCount, "1", "Accept", "text/plain"}, "a new key": {"Idempotency-Key", "k"}} {
		if r := s.send("POST", "/ask", ann.AccessToken, "", header...); r.status != 429 {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
	s.in(joined, "POST", "/ask", ann.AccessToken, "", retryCount, "1")
	time.Sleep(200 * time.Millisecond)
	if r := s.send("POST", "/ask", ann.AccessToken, "", retryCount, "1"); r.status != 429 {
		t.Errorf("a second retry: %d %s", r.status, r.body)
	}
	up.end(1)
	if r := <-joined; r.status != 201 || r.body != "response 1" {
		t.Errorf("%d %s", r.status, r.body)
	}
	up.holds.Store(false)
	for range 2 {
		if r := s.send("POST", "/ask", ann.AccessToken, "", retryCount, "1"); r.status != 201 {
			t.Errorf("after the call: %d %s", r.status, r.body)
		}
	}
	s.settles("three calls", ann, 1000, 9)
}

// TestJoinersOfTwoCalls: two calls have two joiners, the newest call first, and a joiner that disconnects leaves its place to the next.
func TestJoinersOfTwoCalls(t *testing.T) {
	for path, cost := range map[string]toll.Credits{"/ask": 3, "/pages": 10} {
		up := newCounter()
		up.holds.Store(true)
		s := begin(t, repeated, up)
		ann := s.svc.Subscriber(100)
		wait := func() { up.next(t) }
		header := func(retries string) []string { return []string{"X-Pages", "1", retryCount, retries} }
		s.leaving("POST", path, ann.AccessToken, "1", wait, header("0")...)
		s.leaving("POST", path, ann.AccessToken, "1", wait, header("0")...)
		one, two := make(chan reply, 1), make(chan reply, 1)
		came := s.came.Load()
		s.leaving("POST", path, ann.AccessToken, "1", func() {
			for s.came.Load() == came {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(200 * time.Millisecond)
		}, header("1")...)
		s.in(one, "POST", path, ann.AccessToken, "1", header("2")...)
		time.Sleep(200 * time.Millisecond)
		s.in(two, "POST", path, ann.AccessToken, "1", header("1")...)
		time.Sleep(200 * time.Millisecond)
		up.end(1)
		if r := <-two; r.body != "response 1" {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
		up.end(2)
		if r := <-one; r.body != "response 2" {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
		s.settles("two calls", ann, 100, 2*cost)
		if n := up.calls(); n != 2 {
			t.Errorf("%s: %d calls", path, n)
		}
	}
}

// TestJoinedCallFails: the joiner of a free call runs on its own and pays once.
func TestJoinedCallFails(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		first  func(up *counter, s *scene, ann *tolltest.Subscriber)
	}{
		"the upstream fails":     {"POST", func(up *counter, _ *scene, _ *tolltest.Subscriber) { up.end(1) }},
		"free after disconnects": {"GET", func(*counter, *scene, *tolltest.Subscriber) {}},
	} {
		up := newCounter()
		up.holds.Store(true)
		up.respond = func(w http.ResponseWriter, _ *http.Request, n int) {
			if n == 1 {
				w.WriteHeader(500)
			}
			fmt.Fprint(w, "response ", n)
		}
		s := begin(t, repeated, up)
		ann := s.svc.Subscriber(100)
		s.leaving(c.method, "/ask", ann.AccessToken, "", func() { up.next(t) })
		up.holds.Store(false)
		joined := make(chan reply, 1)
		s.in(joined, c.method, "/ask", ann.AccessToken, "", retryCount, "1")
		time.Sleep(100 * time.Millisecond)
		c.first(up, s, ann)
		if r := <-joined; r.status != 200 || r.body != "response 2" || r.header.Get("Idempotency-Replayed") != "" {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
		s.settles(name, ann, 100, 3)
	}
}

// TestAlwaysRetry: a caller that disconnects at random and always claims to retry never gets more responses than it paid for.
func TestAlwaysRetry(t *testing.T) {
	up := newCounter()
	up.respond = func(w http.ResponseWriter, _ *http.Request, n int) {
		time.Sleep(time.Duration(n%5) * 5 * time.Millisecond)
		fmt.Fprint(w, "response ", n)
	}
	s := begin(t, repeated, up)
	ann := s.svc.Subscriber(10_000)
	var group sync.WaitGroup
	var mu sync.Mutex
	got := map[string]int{}
	for i := range 8 {
		group.Go(func() {
			for j := range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+(i*7+j*13)%60)*time.Millisecond)
				req := must.Get(http.NewRequestWithContext(ctx, "POST", s.url+"/ask", http.NoBody))(t)
				req.Header = http.Header{"Authorization": {"Bearer " + ann.AccessToken}, retryCount: {"1"}}
				if res, err := http.DefaultTransport.RoundTrip(req); err == nil {
					if text, err := io.ReadAll(res.Body); err == nil && res.StatusCode == 200 {
						mu.Lock()
						got[string(text)]++
						mu.Unlock()
					}
					_ = res.Body.Close()
				}
				cancel()
			}
		})
	}
	group.Wait()
	s.front.Close() // waits for the calls
	charges := spent(ann, 10_000) / 3
	responses := 0
	for text, n := range got {
		if responses += n; n > 1 {
			t.Errorf("%q arrived %d times", text, n)
		}
	}
	if int(charges) < responses || int(charges) > up.calls() || responses == 0 {
		t.Errorf("%d responses for %d charges and %d calls", responses, charges, up.calls())
	}
	t.Logf("%d responses, %d charges, %d calls", responses, charges, up.calls())
}

// TestJoinAfterMinute: a call has no joiners a minute after its caller disconnected, and a key is forgotten after a day.
func TestJoinAfterMinute(t *testing.T) {
	now := time.Now()
	var mu sync.Mutex
	replays := gate.NewReplays(func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	})
	later := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
	up := newCounter()
	s := beginWith(t, repeated, up, replays)
	ann := s.svc.Subscriber(1000)
	paid := toll.Credits(0)
	for _, c := range []struct {
		after time.Duration
		joins bool
	}{{time.Minute - time.Nanosecond, true}, {time.Minute, false}} {
		up.holds.Store(true)
		var n int
		s.leaving("POST", "/ask", ann.AccessToken, "", func() { n = up.next(t) })
		up.holds.Store(false)
		up.end(n)
		paid += 3
		s.settles("a call", ann, 1000, paid)
		later(c.after)
		r := s.send("POST", "/ask", ann.AccessToken, "", retryCount, "1")
		if joined := r.body == fmt.Sprint("response ", n); r.status != 201 || joined != c.joins {
			t.Errorf("after %v: %d %s", c.after, r.status, r.body)
		}
		if !c.joins {
			paid += 3
		}
	}
	first := s.send("POST", "/ask", ann.AccessToken, "", "Idempotency-Key", "k")
	later(24*time.Hour - time.Nanosecond)
	if r := s.send("POST", "/ask", ann.AccessToken, "", "Idempotency-Key", "k"); !same(r, first) {
		t.Errorf("within a day: %s, want %s", r.body, first.body)
	}
	later(time.Nanosecond)
	if r := s.send("POST", "/ask", ann.AccessToken, "", "Idempotency-Key", "k"); r.status != 201 || r.body == first.body {
		t.Errorf("after a day: %d %s", r.status, r.body)
	}
	s.settles("the keys", ann, 1000, paid+6)
}

// TestKeyOfStream: a complete stream is sent again, also if its caller disconnected in its middle or before its first byte.
func TestKeyOfStream(t *testing.T) {
	up := &openAI{begun: make(chan struct{}), goOn: make(chan struct{}, 10)}
	s := begin(t, models, up)
	ann := s.svc.Subscriber(1000)
	body := chat("small-1", usage100, `,"stream":true`)
	up.goOn <- struct{}{}
	go func() { <-up.begun }()
	first := s.send("POST", "/v1/chat/completions", ann.AccessToken, body, "Idempotency-Key", "a")
	s.settles("the stream", ann, 1000, 18)
	if r := s.send("POST", "/v1/chat/completions", ann.AccessToken, body, "Idempotency-Key", "a"); !same(r, first) || !strings.HasSuffix(r.body, "data: [DONE]\n\n") ||
		r.header.Get("Service-Request-Id") == "" || r.header.Get("X-Credits-Held") == "" || !strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream") {
		t.Errorf("%d %v %s, want %v %s", r.status, r.header, r.body, first.header, first.body)
	}

	s.leaving("POST", "/v1/chat/completions", ann.AccessToken, body, func() { <-up.begun; time.Sleep(100 * time.Millisecond) }, "Idempotency-Key", "b")
	replies := make(chan reply, 1)
	s.in(replies, "POST", "/v1/chat/completions", ann.AccessToken, body, "Idempotency-Key", "b")
	time.Sleep(100 * time.Millisecond)
	up.goOn <- struct{}{}
	if r := <-replies; r.status != 200 || r.body != first.body || r.header.Get("Service-Request-Id") == "" {
		t.Errorf("disconnected in the middle: %d %v %s", r.status, r.header, r.body)
	}
	s.settles("the second stream", ann, 1000, 36)
	if len(up.seen) != 2 {
		t.Errorf("%d calls", len(up.seen))
	}

	// Without a key, a retry does not join a stream.
	s.leaving("POST", "/v1/chat/completions", ann.AccessToken, body, func() { <-up.begun }, retryCount, "0")
	go func() { <-up.begun; up.goOn <- struct{}{}; up.goOn <- struct{}{} }()
	if r := s.send("POST", "/v1/chat/completions", ann.AccessToken, body, retryCount, "1"); r.status != 200 || r.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("%d %v", r.status, r.header)
	}
	s.settles("two streams", ann, 1000, 72)
}

// TestKeyOfEvents: streams of routes without a preset, up to the bound of a kept response. If a larger or interrupted stream was charged,
// its key gets 409.
func TestKeyOfEvents(t *testing.T) {
	const most = 8 << 20
	up := newCounter()
	up.respond = func(w http.ResponseWriter, r *http.Request, n int) {
		w.Header().Set("Content-Type", "text/event-stream")
		size := map[string]int{"full": most, "large": most + 1}[r.URL.RawQuery]
		if size == 0 {
			size = 100
		}
		if r.URL.RawQuery == "late" {
			up.begun <- n
			up.mu.Lock()
			end := up.ends[n-1]
			up.mu.Unlock()
			<-end
		}
		fmt.Fprintf(w, "data: %s\n\n", strings.Repeat("x", size-8))
		if r.URL.RawQuery == "cut" {
			_ = http.NewResponseController(w).Flush()
			time.Sleep(50 * time.Millisecond)
			panic(http.ErrAbortHandler)
		}
	}
	s := begin(t, repeated, up)
	ann := s.svc.Subscriber(1000)
	cost := toll.Credits(0)
	for _, c := range []struct {
		path   string
		cost   toll.Credits
		status int
		size   int
	}{
		{"/ask?full", 3, 200, most}, {"/ask?large", 3, 409, 0}, {"/ask?cut", 3, 409, 0}, {"/ask?late", 3, 409, 0},
		{"/pages?full", 10, 200, most}, {"/pages?large", 10, 409, 0}, {"/pages?cut", 10, 409, 0}, {"/pages?late", 10, 200, 100},
	} {
		header := []string{"Idempotency-Key", c.path, "X-Pages", "1"}
		send := func() (int, int) {
			req := must.Get(http.NewRequestWithContext(t.Context(), "POST", s.url+c.path, http.NoBody))(t)
			req.Header = http.Header{"Authorization": {"Bearer " + ann.AccessToken}, header[0]: {header[1]}, header[2]: {header[3]}}
			res := must.Get(http.DefaultTransport.RoundTrip(req))(t)
			defer res.Body.Close()
			text, _ := io.ReadAll(res.Body) // the first "cut" ends early
			return res.StatusCode, len(text)
		}
		if strings.HasSuffix(c.path, "late") {
			s.leaving("POST", c.path, ann.AccessToken, "", func() { up.next(t) }, header...)
			up.end(up.calls())
		} else if status, _ := send(); status != 200 {
			t.Errorf("%s: %d", c.path, status)
		}
		cost += c.cost
		s.settles(c.path, ann, 1000, cost)
		if status, size := send(); status != c.status || status == 200 && size != c.size {
			t.Errorf("%s, repeated: %d, %d bytes", c.path, status, size)
		}
		s.settles(c.path+", repeated", ann, 1000, cost)
	}
	if n := up.calls(); n != 8 {
		t.Errorf("%d calls", n)
	}
}
