package paid_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

func TestPaidAnswer(t *testing.T) {
	d := newDesk(10)
	h := &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		p, ok := paid.FromContext(r.Context())
		if !ok || p.Payer != payer || p.PlanID != plan || p.AgentID != agent || p.AgentRequestID != "req_0001" || p.Held != 2 || !p.Verdict.IsValid {
			t.Errorf("payment %+v", p)
		}
		if d.count("settle") != 0 {
			t.Error("settled before the handler ended")
		}
		w.Header().Set("X-Kind", "answer")
		w.Header().Set("Cache-Control", `public, max-age=60, s-maxage=600, private="x, y"`)
		w.Header().Set("CDN-Cache-Control", "max-age=600")
		w.Header().Set("Vary", "Accept")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, content)
	}}
	s := paidServer(t, d, h, paid.PublicURL("https://agent.example.com/"))
	r := send(t, "POST", s.URL+"/ask?q=1", sig, token)
	if r.status != 201 || r.body != content || r.header.Get("X-Kind") != "answer" || r.header.Get("Content-Length") != fmt.Sprint(len(content)) {
		t.Fatalf("%+v", r)
	}
	rec := r.receipt(t)
	if !rec.Success || *rec.CreditsRedeemed != 2 || *rec.RemainingBalance != 8 || rec.Extra.AgentRequestID != "req_0001" {
		t.Errorf("receipt %+v", rec)
	}
	if got := r.header.Get("Cache-Control"); got != "private, max-age=60" {
		t.Errorf("Cache-Control %q", got)
	}
	if got := r.header.Get("Vary"); got != "Accept, payment-signature, authorization" {
		t.Errorf("Vary %q", got)
	}
	if r.header.Get("CDN-Cache-Control") != "" {
		t.Error("a cache of a content network may keep the answer")
	}
	if got := d.resource[0]; got != "https://agent.example.com/ask?q=1" {
		t.Errorf("resource %q", got)
	}
	d.want(t, 2, 1, 0)
}

// TestSettledBeforeFirstByte watches the wire while the settlement waits.
// I16
func TestSettledBeforeFirstByte(t *testing.T) {
	d := newDesk(10)
	gate, entered := make(chan struct{}), make(chan struct{})
	d.before = func(op string, _ int) error {
		if op == "settle" {
			close(entered)
			<-gate
		}
		return nil
	}
	s := paidServer(t, d, &work{t: t})
	c := must.Get(net.Dial("tcp", s.Listener.Addr().String()))(t)
	defer c.Close()
	fmt.Fprintf(c, "GET /ask HTTP/1.1\r\nHost: a\r\nConnection: close\r\nPayment-Signature: %s\r\n\r\n", token)
	<-entered
	_ = c.SetReadDeadline(time.Now().Add(400 * time.Millisecond))
	if early, _ := io.ReadAll(c); len(early) > 0 {
		t.Errorf("%q left before the settlement", early)
	}
	close(gate)
	_ = c.SetReadDeadline(time.Now().Add(long))
	if late, _ := io.ReadAll(c); d.burnedNow() != 2 || !strings.HasSuffix(string(late), content) {
		t.Errorf("after it: %q, burned %d", late, d.burnedNow())
	}
}

func TestUnpaid(t *testing.T) {
	d := newDesk(1)
	d.orderURL = "https://pay.example.com/plans/1"
	h := &work{t: t}
	s := paidServer(t, d, h, paid.Description("Ask"), paid.MimeType("text/plain"))
	send(t, "POST", s.URL+"/ask").isRefused(t, "", toll.CodePaymentRequired)
	r := send(t, "POST", s.URL+"/ask", sig, token)
	r.isRefused(t, "insufficient_funds: 2 credits needed, 1 available", toll.CodeInsufficientCredits)
	var p x402.PaymentRequired
	if err := x402.DecodeHeader(r.header.Get("payment-required"), &p); err != nil || !strings.Contains(string(p.Extensions["svc-plan"]), d.orderURL) {
		t.Errorf("extensions %s, %v: nothing says where to buy", p.Extensions, err)
	}
	send(t, "POST", s.URL+"/ask", sig, "not a token").isRefused(t, "invalid_payload", toll.CodeTokenUndecodable)
	send(t, "POST", s.URL+"/ask", sig, "b3RoZXI.b3RoZXI.b3RoZXI").isRefused(t, "invalid_svc_payload_signature", toll.CodeTokenSignature)
	send(t, "POST", s.URL+"/ask", "x-payment", "e30=").isRefused(t, "invalid_x402_version", toll.CodeBadX402Version)
	if h.count() != 0 || d.count("settle") != 0 {
		t.Errorf("runs %d, settles %d", h.count(), d.count("settle"))
	}
	d.want(t, 0, 0, 0)
}

// TestGolden402 fixes the bytes of a 402.
func TestGolden402(t *testing.T) {
	d := newDesk(1)
	d.service = "https://pay.example.com/api/v1"
	d.orderURL = "https://pay.example.com/api/v1/x402/plans/" + string(plan) + "/order"
	log, _ := logs(t)
	h := paid.Handler(d, &work{t: t}, paid.Plan(plan), paid.Agent(agent), paid.Credits(5), paid.PublicURL("https://agent.example.com"),
		paid.Description("Ask the agent"), paid.MimeType("application/json"), log)
	for name, tok := range map[string]string{"402-no-token": "", "402-insufficient": token} {
		r := httptest.NewRequest("POST", "/ask", nil)
		r.Header.Set("x-correlation-id", "1019366f-71e4-45ef-a064-9fcaac3372b5")
		if tok != "" {
			r.Header.Set(sig, tok)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var dump strings.Builder
		fmt.Fprintf(&dump, "%d\n", w.Code)
		for _, n := range []string{"Cache-Control", "Content-Type", "X-Correlation-Id", "Payment-Required"} {
			fmt.Fprintf(&dump, "%s: %s\n", strings.ToLower(n), w.Header().Get(n))
		}
		fmt.Fprintf(&dump, "\n%s\n", w.Body)
		path := filepath.Join("testdata", name+".txt")
		want, err := os.ReadFile(path)
		if os.Getenv("UPDATE_GOLDEN") != "" {
			must.Do(t, os.WriteFile(path, []byte(dump.String()), 0o644))
			continue
		}
		if err != nil || string(want) != dump.String() {
			t.Errorf("%s (%v)\ngot  %s\nwant %s", path, err, dump.String(), want)
		}
	}
}

func TestReleased(t *testing.T) {
	for name, f := range map[string]http.HandlerFunc{
		"404":   func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusNotFound) },
		"500":   func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusInternalServerError) },
		"302":   func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) },
		"304":   func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNotModified) },
		"101":   func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusSwitchingProtocols) },
		"panic": func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, content); panic("handler") },
		"short": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "99")
			fmt.Fprint(w, content)
		},
		"flushed 500": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500); w.(http.Flusher).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(10)
			s := paidServer(t, d, &work{t: t, f: f})
			r := send(t, "GET", s.URL+"/ask", sig, token)
			if strings.Contains(r.body, content) || r.header.Get("payment-response") != "" || (r.status > 199 && r.status < 300) {
				t.Errorf("%+v", r)
			}
			if name == "404" && (r.status != 404 || r.body != "no\n") {
				t.Errorf("%+v: the handler's own error is not passed on", r)
			}
			d.want(t, 0, 0, 1)
		})
	}
}

func TestCreditsFunc(t *testing.T) {
	for _, c := range []struct{ says, held, burned toll.Credits }{{3, 5, 3}, {9, 5, 5}, {0, 5, 0}, {-4, 5, 0}} {
		d := newDesk(10)
		s := paidServer(t, d, &work{t: t}, paid.MaxCredits(c.held), paid.CreditsFunc(func(r *http.Request, resp paid.Response) toll.Credits {
			if string(resp.Body) != content || resp.Status != 200 || resp.Size != int64(len(content)) || resp.Streamed {
				t.Errorf("response %+v", resp)
			}
			if d.held != c.held {
				t.Errorf("held %d", d.held)
			}
			return c.says
		}))
		if r := send(t, "GET", s.URL, sig, token); r.status != 200 || *r.receipt(t).CreditsRedeemed != c.burned {
			t.Errorf("%+v: %+v", c, r)
		}
		d.want(t, c.burned, 1, 0)
	}
	d := newDesk(10)
	s := paidServer(t, d, &work{t: t}, paid.CreditsFunc(func(*http.Request, paid.Response) toll.Credits { panic("price") }))
	if r := send(t, "GET", s.URL, sig, token); r.err == nil {
		t.Errorf("%+v: want a broken connection", r)
	}
	d.want(t, 0, 0, 1)
}

func TestSettleRefused(t *testing.T) {
	d := newDesk(10)
	d.refuseS = &x402.SettleResponse{ErrorReason: x402.ReasonHoldExpired, ErrorMessage: "The hold has lapsed.", Code: toll.CodeHoldExpired, Network: "eip155:84532"}
	s := paidServer(t, d, &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Leak", content)
		w.Header().Set("Trailer", "X-Late")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Set-Cookie", content)
		fmt.Fprint(w, content)
		w.Header().Set("X-Late", content)
	}})
	out := raw(t, s.Listener.Addr().String(), "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nPayment-Signature: "+token+"\r\n\r\n")
	if strings.Contains(out, content) || strings.Join(statuses(out), " ") != "402" {
		t.Errorf("%q", out)
	}
	r := send(t, "GET", s.URL, sig, token)
	r.isRefused(t, "hold_expired: The hold has lapsed.", toll.CodeHoldExpired)
	if rec := r.receipt(t); rec.Success || rec.ErrorReason != x402.ReasonHoldExpired {
		t.Errorf("receipt %+v", rec)
	}
	d.want(t, 0, 0, 2)
}

func TestTrailers(t *testing.T) {
	d := newDesk(10)
	s := paidServer(t, d, &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		fmt.Fprint(w, content)
		w.Header().Set("X-Sum", "15")
		w.Header().Set(http.TrailerPrefix+"Payment-Response", "forged")
	}})
	req, _ := http.NewRequest("GET", s.URL, nil)
	req.Header.Set(sig, token)
	res, err := http.DefaultClient.Do(req)
	must.Do(t, err)
	defer res.Body.Close()
	b := make([]byte, 100)
	n, _ := res.Body.Read(b)
	for err == nil {
		_, err = res.Body.Read(b[n:])
	}
	if string(b[:n]) != content || res.Trailer.Get("X-Sum") != "15" || res.Trailer.Get("Payment-Response") != "" {
		t.Errorf("body %q, trailer %v", b[:n], res.Trailer)
	}
}

func TestFacilitatorFailsBeforeHandler(t *testing.T) {
	for _, c := range []struct {
		op     string
		err    error
		status int
		retry  string
	}{
		{"terms", toll.NewError(toll.CodeUnavailable), 503, "5"},
		{"verify", toll.NewError(toll.CodeUnavailable), 503, "5"},
		{"verify", &toll.Error{Code: toll.CodeRateLimited, RetryAfterSecs: 17}, 429, "17"},
		{"verify", &toll.Error{Code: toll.CodeUnavailable, RetryAfterSecs: 9}, 503, "9"},
		{"verify", toll.NewError(toll.CodeNotAuthenticated), 503, "5"},
		{"verify", toll.NewError(toll.CodeNotPlanOwner), 503, "5"},
		{"verify", errors.New("secret inside detail"), 503, "5"},
		{"verify", toll.NewError(toll.CodeSettlementPending), 503, "5"},
	} {
		d := newDesk(10)
		d.before = func(op string, _ int) error {
			if op == c.op {
				return c.err
			}
			return nil
		}
		h := &work{t: t}
		r := send(t, "GET", paidServer(t, d, h).URL, sig, token)
		if r.status != c.status || r.header.Get("Retry-After") != c.retry || h.count() != 0 || strings.Contains(r.body, "secret") ||
			r.header.Get("payment-required") != "" {
			t.Errorf("%v: %+v", c.err, r)
		}
	}
	for reason, status := range map[string]int{
		x402.ReasonTooManyHolds: 429, x402.ReasonIdentifierConflict: 409, x402.ReasonUnauthorizedServer: 503,
		x402.ReasonPending: 503, x402.ReasonVerifyFault: 503, x402.ReasonInFlight: 402, x402.ReasonAgentInactive: 402,
	} {
		d := newDesk(10)
		d.refuse = &x402.VerifyResponse{InvalidReason: reason, Code: toll.CodeRequestUsed, InvalidMessage: "No."}
		if r := send(t, "GET", paidServer(t, d, &work{t: t}).URL, sig, token); r.status != status {
			t.Errorf("%s: status %d, want %d", reason, r.status, status)
		}
	}
}

func TestUnconfirmedHoldRunsNothing(t *testing.T) {
	d := newDesk(10)
	d.refuse = &x402.VerifyResponse{IsValid: true, AgentRequestID: "x", Amount: toll.Credits(2).Ptr()}
	h := &work{t: t}
	if r := send(t, "GET", paidServer(t, d, h).URL, sig, token); r.status != 503 || h.count() != 0 {
		t.Errorf("%+v", r)
	}
}

func TestHooks(t *testing.T) {
	var said []string
	note := func(s string) { said = append(said, s) }
	d := newDesk(2)
	s := paidServer(t, d, &work{t: t},
		paid.BeforeVerify(func(r *http.Request) error {
			note("before")
			if r.Header.Get(sig) != "" {
				t.Error("the hook sees the access token")
			}
			if r.URL.Path == "/busy" {
				return toll.NewError(toll.CodeRateLimited)
			}
			return nil
		}),
		paid.AfterVerify(func(_ *http.Request, v *x402.VerifyResponse) { note(fmt.Sprint("verified ", v.IsValid)) }),
		paid.AfterSettle(func(_ *http.Request, v *x402.SettleResponse) { note(fmt.Sprint("settled ", v.Success)) }),
		paid.OnPaymentError(func(w http.ResponseWriter, r *http.Request, e *toll.Error) bool {
			note("error " + string(e.Code))
			if r.URL.Path != "/teapot" {
				return false
			}
			w.WriteHeader(http.StatusTeapot)
			return true
		}))
	for _, c := range []struct {
		path   string
		status int
		said   string
	}{
		{"/busy", 429, "before"},
		{"/ok", 200, "before|verified true|settled true"},
		{"/short", 402, "before|verified false|error BCK.CREDITS.0003"},
		{"/teapot", 418, "before|verified false|error BCK.CREDITS.0003"},
	} {
		said = nil
		r := send(t, "GET", s.URL+c.path, sig, token)
		if got := strings.Join(said, "|"); r.status != c.status || got != c.said {
			t.Errorf("%s: %d %s", c.path, r.status, got)
		}
	}
}

func TestExpiredStatus(t *testing.T) {
	d := newDesk(2)
	d.refuse = &x402.VerifyResponse{InvalidReason: x402.Default.ReasonExpired(), Code: toll.CodePermissionExpired}
	r := send(t, "GET", paidServer(t, d, &work{t: t}, paid.ExpiredStatus(401)).URL, sig, token)
	if r.status != 401 || r.header.Get("payment-required") == "" || r.header.Get("WWW-Authenticate") == "" {
		t.Errorf("%+v", r)
	}
	if r := send(t, "GET", paidServer(t, d, &work{t: t}, paid.ExpiredStatus(401)).URL); r.status != 402 {
		t.Errorf("no token: %d", r.status)
	}
}

func TestWithoutHold(t *testing.T) {
	d := newDesk(10)
	s := paidServer(t, d, &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, content)
		w.(http.Flusher).Flush()
		if r.URL.Path == "/long" {
			fmt.Fprint(w, strings.Repeat("x", 100))
		}
	}}, paid.Hold(false), paid.MaxBuffer(64))
	if r := send(t, "GET", s.URL, sig, token); r.status != 200 || r.body != content || !r.receipt(t).Success {
		t.Errorf("%+v: a flush without a hold must not let the answer go", r)
	}
	if r := send(t, "GET", s.URL+"/long", sig, token); r.status != 500 || strings.Contains(r.body, content) {
		t.Errorf("%+v", r)
	}
	if d.burned != 2 {
		t.Errorf("burned %d", d.burned)
	}
}

// A 402 that is kept is not one for another resource, verb, payment or state of the plan.
func TestUnpaid_FollowsRequestAndTerms(t *testing.T) {
	d := newDesk(1)
	var now atomic.Int64
	now.Store(1_800_000_000)
	s := paidServer(t, d, http.NotFoundHandler(), paid.Credits(7), paid.Clock(func() time.Time { return time.Unix(now.Load(), 0) }))
	asks := func(r reply) string {
		t.Helper()
		var inHeader, inBody x402.PaymentRequired
		must.Do(t, errors.Join(x402.DecodeHeader(r.header.Get(x402.HeaderRequired), &inHeader), x402.Decode([]byte(r.body), &inBody)))
		say := func(p *x402.PaymentRequired) string {
			return p.Resource.URL + " " + p.Accepts[0].Extra.HTTPVerb + " " + p.Accepts[0].Amount + " " + p.Error
		}
		if say(&inHeader) != say(&inBody) {
			t.Errorf("%q in the header, %q in the body", say(&inHeader), say(&inBody))
		}
		return say(&inBody)
	}
	for range 2 {
		for _, c := range []struct{ method, path, want string }{
			{"POST", "/ask", "/ask POST 7 Payment required"}, {"GET", "/ask", "/ask GET 7 Payment required"}, {"GET", "/b", "/b GET 7 Payment required"},
		} {
			for range 2 {
				if got := asks(send(t, c.method, s.URL+c.path)); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			}
		}
		refused := asks(send(t, "GET", s.URL+"/b", sig, "no token"))
		if !strings.HasPrefix(refused, "/b GET 7 "+x402.ReasonInvalidPayload) {
			t.Errorf("%q", refused)
		}
	}
	first, second := send(t, "GET", s.URL+"/b", "X-Correlation-Id", "one"), send(t, "GET", s.URL+"/b", "X-Correlation-Id", "two")
	if strings.Replace(first.body, `"one"`, `"two"`, 1) != second.body || first.body == second.body {
		t.Errorf("%s\n%s", first.body, second.body)
	}
	d.mu.Lock()
	d.max = 5
	d.mu.Unlock()
	now.Add(3600)
	if got := asks(send(t, "GET", s.URL+"/b")); got != "/b GET 5 Payment required" {
		t.Errorf("%q after the plan took 5 at most", got)
	}
}

func TestTermsAreCached(t *testing.T) {
	d := newDesk(100)
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	var mu sync.Mutex
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	s := paidServer(t, d, &work{t: t}, paid.Clock(clock))
	for range 3 {
		send(t, "GET", s.URL, sig, token)
	}
	if n := d.count("terms"); n != 1 {
		t.Errorf("terms were read %d times", n)
	}
	mu.Lock()
	now = now.Add(5 * time.Minute)
	mu.Unlock()
	d.before = func(op string, _ int) error {
		if op == "terms" {
			return toll.NewError(toll.CodeUnavailable)
		}
		return nil
	}
	if r := send(t, "GET", s.URL, sig, token); r.status != 200 || d.count("terms") != 2 {
		t.Errorf("status %d after %d reads: older terms must serve", r.status, d.count("terms"))
	}
}

// TestConcurrent is 64 calls of a subscriber with credits for 20.
func TestConcurrent(t *testing.T) {
	d := newDesk(20)
	h := &work{t: t}
	s := paidServer(t, d, h, paid.Credits(1))
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[int]int{}
	start := make(chan struct{})
	for range 64 {
		wg.Go(func() {
			<-start
			r := send(t, "POST", s.URL+"/ask", sig, token)
			mu.Lock()
			defer mu.Unlock()
			got[r.status]++
		})
	}
	close(start)
	wg.Wait()
	if got[200] != 20 || got[402] != 44 || h.count() != 20 || d.count("terms") != 1 {
		t.Errorf("statuses %v, runs %d, terms read %d times", got, h.count(), d.count("terms"))
	}
	d.want(t, 20, 20, 0)
}

// TestHint402 names the header in which the access token is looked for, and absolute addresses.
func TestHint402(t *testing.T) {
	d := newDesk(1)
	d.service = "https://pay.example.com/api/v1"
	h := paid.Handler(d, &work{t: t}, paid.Plan(plan), paid.Credits(2), paid.TokenHeaders(sig, "authorization"))
	order := "POST https://pay.example.com/api/v1/protocol/plans/" + string(plan) + "/order orders the plan. People sign in at https://pay.example.com/sign-in."
	for offered, want := range map[string]string{
		"":                        "Buy the plan at https://pay.example.com/p/" + string(plan) + ". Create an access token with POST https://pay.example.com/api/v1/x402/permissions and send it in payment-signature or authorization.",
		"b3RoZXI.b3RoZXI.b3RoZXI": "Create a new access token with POST https://pay.example.com/api/v1/x402/permissions.",
		token:                     toll.CodeInsufficientCredits.Info().Hint + " " + order,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if offered != "" {
			r.Header.Set(sig, offered)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var body toll.ErrorBody
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != http.StatusPaymentRequired || body.Hint != want {
			t.Errorf("%d %q, %v", w.Code, body.Hint, err)
		}
	}
}

// What a 402 asks for is what will be burned, and a builder whose price the plan does not allow hears of it.
func TestPriceOutsideOfThePlan(t *testing.T) {
	for price, want := range map[toll.Credits]string{0: "0", 1: "3", 2: "3", 5: "5", 9: "7"} {
		d := newDesk(100)
		d.min, d.max = 3, 7
		var log bytes.Buffer
		h := paid.Handler(d, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), paid.Plan(plan), paid.Credits(price),
			paid.Log(slog.New(slog.NewTextHandler(&log, nil))))
		for range 2 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/ask", nil))
			var required x402.PaymentRequired
			must.Do(t, x402.DecodeHeader(w.Header().Get(x402.HeaderRequired), &required))
			if got := required.Accepts[0].Amount; got != want {
				t.Errorf("a price of %d: the 402 asks for %s, want %s", price, got, want)
			}
		}
		outside := want != price.String()
		if got := strings.Count(log.String(), "the plan does not allow the price of a route"); got != map[bool]int{true: 1, false: 0}[outside] {
			t.Errorf("a price of %d was told of %d times:\n%s", price, got, &log)
		}
	}
}

// A route that keeps its price is closed while the plan does not allow it, and open again afterwards.
func TestOnClosed_Price(t *testing.T) {
	for price, open := range map[toll.Credits]bool{0: true, 2: false, 3: true, 7: true, 8: false} {
		d := newDesk(100)
		d.min, d.max = 3, 7
		h := paid.Handler(d, &work{t: t}, paid.Plan(plan), paid.Credits(price),
			paid.OnClosed(func(w http.ResponseWriter, _ *http.Request, why *toll.Error) {
				if !strings.Contains(why.Text(), "must be 3 to 7 credits") {
					t.Error(why)
				}
				w.WriteHeader(http.StatusTeapot)
			}))
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/ask", nil)
		r.Header.Set(x402.HeaderSignature, token)
		h.ServeHTTP(w, r)
		if got := w.Code != http.StatusTeapot; got != open {
			t.Errorf("a price of %d: %d", price, w.Code)
		}
	}
}

// A route is closed while the service refuses its builder, and not while the service is away.
func TestOnClosed_Refused(t *testing.T) {
	for _, op := range []string{"terms", "verify"} {
		for code, want := range map[toll.Code]int{
			toll.CodeNotAuthenticated: http.StatusTeapot,
			toll.CodeForbidden:        http.StatusTeapot,
			toll.CodePlanNotFound:     http.StatusTeapot,
			toll.CodeRateLimited:      http.StatusTooManyRequests,
			toll.CodeInternal:         http.StatusServiceUnavailable,
			toll.CodeUnavailable:      http.StatusServiceUnavailable,
		} {
			d := newDesk(100)
			d.before = func(at string, _ int) error {
				if at == op {
					return toll.NewError(code)
				}
				return nil
			}
			h := paid.Handler(d, &work{t: t}, paid.Plan(plan), paid.Log(slog.New(slog.DiscardHandler)),
				paid.OnClosed(func(w http.ResponseWriter, _ *http.Request, why *toll.Error) {
					if why.Code != code {
						t.Errorf("%s: %v, want %s", op, why, code)
					}
					w.WriteHeader(http.StatusTeapot)
				}))
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, "/ask", nil)
			r.Header.Set(x402.HeaderSignature, token)
			h.ServeHTTP(w, r)
			if w.Code != want || d.burned != 0 || d.held != 0 {
				t.Errorf("%s refused with %s: %d, want %d", op, code, w.Code, want)
			}
		}
	}
}
