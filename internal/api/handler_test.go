package api

import (
	"context"
	"encoding/json"
	"errors"
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
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/traces"
	"github.com/tollhq/toll/x402"
)

// tiny is a handler with routes of the test and one API key, "good", pinned to 1.1.
func tiny(t *testing.T, log io.Writer, routes ...route) *httptest.Server {
	t.Helper()
	h := newHandler(Deps{Service: Service{PublicURL: "https://pay.example.com/"}, Telemetry: Telemetry{Log: slog.New(traces.Log(slog.NewTextHandler(log, nil)))}}, routes)
	h.authenticate = func(_ context.Context, lines []string) (auth.Caller, error) {
		switch {
		case len(lines) > 1:
			return auth.Caller{}, toll.NewError(toll.CodeBadRequest)
		case lines[0] == "Bearer panic":
			panic("in authentication")
		case lines[0] != "Bearer good":
			return auth.Caller{}, errNoKey
		}
		return auth.Caller{Version: "1.1"}, nil
	}
	s := httptest.NewUnstartedServer(nil)
	s.Config = NewServer(h)
	s.Listener = Listen(s.Listener)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func ask(t *testing.T, s *httptest.Server, method, path, key string) (*http.Response, toll.ErrorBody) {
	t.Helper()
	req := must.Get(http.NewRequest(method, s.URL+path, nil))(t)
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res := must.Get(s.Client().Do(req))(t)
	defer func() { _ = res.Body.Close() }()
	var body toll.ErrorBody
	b := must.Get(io.ReadAll(res.Body))(t)
	_ = json.Unmarshal(b, &body)
	return res, body
}

func failing(op, path string, u union, f func(c *call) (*struct{}, error)) route {
	return route{op: op, method: "GET", path: path, auth: open, right: public, tag: "Test", union: u, action: reads(f)}
}

// A panic and an error without a code are a 500 that tells nothing, in the one shape and with the headers of every answer.
func TestUnexpectedFailures(t *testing.T) {
	const secret = "inside-detail-7391"
	var log strings.Builder
	s := tiny(t, &log,
		failing("panics", "/panics", unionNone, func(*call) (*struct{}, error) { panic(secret) }),
		failing("fails", "/fails", unionSettle, func(*call) (*struct{}, error) { return nil, errors.New(secret) }),
		failing("wraps", "/wraps", unionVerify, func(*call) (*struct{}, error) {
			return nil, toll.NewError(toll.CodeDatabaseUnavailable).WithCause(errors.New(secret))
		}),
	)
	for _, tt := range []struct {
		path, key, version string
		status             int
		code               toll.Code
	}{
		{"/panics", "good", "1.1", 500, toll.CodeInternal},
		{"/panics", "panic", "1.0", 500, toll.CodeInternal},
		{"/fails", "", "1.0", 500, toll.CodeInternal},
		{"/wraps", "", "1.0", 503, toll.CodeDatabaseUnavailable},
	} {
		res, body := ask(t, s, "GET", tt.path, tt.key)
		if res.StatusCode != tt.status || body.Code != tt.code || body.CorrelationID == "" || body.CorrelationID != res.Header.Get("X-Correlation-Id") {
			t.Errorf("%s: %d %+v", tt.path, res.StatusCode, body)
		}
		if res.Header.Get("Service-Version") != tt.version || res.Header.Get("Cache-Control") != "no-store" || res.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: headers %v", tt.path, res.Header)
		}
		if (tt.status == 503) != (res.Header.Get("Retry-After") != "") {
			t.Errorf("%s: Retry-After %q", tt.path, res.Header.Get("Retry-After"))
		}
		if raw, _ := json.Marshal(body); strings.Contains(string(raw), secret) {
			t.Errorf("%s tells inside detail: %s", tt.path, raw)
		}
		if !strings.Contains(log.String(), body.CorrelationID) {
			t.Errorf("%s is not in the log", tt.path)
		}
	}
	if !strings.Contains(log.String(), secret) {
		t.Error("the log has no cause")
	}
}

// Stock x402 servers hand what they cannot read on to subscribers, so every answer but a 200 of the two routes is a verdict too.
func TestUnionRule(t *testing.T) {
	fail := func(err error) func(c *call) (*struct{}, error) {
		return func(*call) (*struct{}, error) { return nil, err }
	}
	tests := []struct {
		err    error
		reason [2]string
	}{
		{toll.NewError(toll.CodeBadRequest), [2]string{"invalid_payload", "invalid_payload"}},
		{toll.NewError(toll.CodeBodyTooLarge), [2]string{"invalid_payload", "invalid_payload"}},
		{toll.NewError(toll.CodeMediaType), [2]string{"invalid_payload", "invalid_payload"}},
		{toll.NewError(toll.CodeBadX402Version), [2]string{"invalid_x402_version", "invalid_x402_version"}},
		{toll.NewError(toll.CodeNotAuthenticated), [2]string{"unauthorized_server", "unauthorized_server"}},
		{toll.NewError(toll.CodeKeyForeign), [2]string{"unauthorized_server", "unauthorized_server"}},
		{toll.NewError(toll.CodeNotPlanOwner), [2]string{"unauthorized_server", "unauthorized_server"}},
		{toll.NewError(toll.CodeRateLimited), [2]string{"rate_limited", "rate_limited"}},
		{toll.NewError(toll.CodeTooManyHolds), [2]string{"too_many_holds", "too_many_holds"}},
		{toll.NewError(toll.CodeUnavailable), [2]string{"unexpected_verify_error", "unexpected_settle_error"}},
		{toll.NewError(toll.CodeSettlementPending), [2]string{"settlement_pending", "settlement_pending"}},
		{errors.New("x"), [2]string{"unexpected_verify_error", "unexpected_settle_error"}},
	}
	for _, tt := range tests {
		s := tiny(t, io.Discard, failing("verify", "/verify", unionVerify, fail(tt.err)), failing("settle", "/settle", unionSettle, fail(tt.err)), failing("other", "/other", unionNone, fail(tt.err)))
		for i, path := range []string{"/verify", "/settle", "/other"} {
			res := must.Get(s.Client().Get(s.URL + path))(t)
			var m map[string]any
			err := json.NewDecoder(res.Body).Decode(&m)
			_ = res.Body.Close()
			must.Do(t, err)
			switch {
			case i == 0 && (m["isValid"] != false || m["invalidReason"] != tt.reason[0]),
				i == 1 && (m["success"] != false || m["errorReason"] != tt.reason[1] || m["transaction"] != "" || m["network"] != "eip155:84532"),
				i == 2 && (m["isValid"] != nil || m["success"] != nil):
				t.Errorf("%v at %s: %v", tt.err, path, m)
			}
			if m["code"] == nil || m["httpStatus"] == nil {
				t.Errorf("%v at %s: no error body: %v", tt.err, path, m)
			}
		}
	}
}

// A refused settle that may still come true keeps its transaction, and tells when to ask again.
func TestPendingSettle(t *testing.T) {
	s := tiny(t, io.Discard, route{op: "settle", method: "GET", path: "/settle", auth: open, right: public, tag: "Test", union: unionSettle, action: reads(func(c *call) (*struct{}, error) {
		c.refused = &x402.SettleResponse{Transaction: "0xabc", Network: "stripe:sandbox", Payer: "0xdef"}
		return nil, toll.NewError(toll.CodeSettlementPending)
	})})
	res := must.Get(s.Client().Get(s.URL + "/settle"))(t)
	defer func() { _ = res.Body.Close() }()
	var m map[string]any
	must.Do(t, json.NewDecoder(res.Body).Decode(&m))
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || m["transaction"] != "0xabc" || m["network"] != "stripe:sandbox" || m["payer"] != "0xdef" || m["retryable"] != true {
		t.Errorf("%d %v %v", res.StatusCode, res.Header, m)
	}
}

// Whoever may not enter learns nothing but that: the body is not even read.
func TestOrderOfChecks(t *testing.T) {
	entered := false
	s := tiny(t, io.Discard, route{op: "x", method: "POST", path: "/x/{id}", auth: keyed, right: public, tag: "Test", action: takes(func(*call, *struct{}) (*struct{}, error) {
		entered = true
		return &struct{}{}, nil
	})})
	for _, tt := range []struct {
		method, path, key string
		status            int
	}{
		{"POST", "/nothing", "", 404}, {"POST", "/x", "good", 404}, {"POST", "/x/1/2", "good", 404}, {"GET", "/x/1", "", 405}, {"POST", "/x/1", "", 401}, {"POST", "/x/1", "bad", 401},
	} {
		if res, body := ask(t, s, tt.method, tt.path, tt.key); res.StatusCode != tt.status || body.HTTPStatus != tt.status {
			t.Errorf("%+v: %d %+v", tt, res.StatusCode, body)
		}
	}
	if entered {
		t.Error("the route was run")
	}
	if res, _ := ask(t, s, "POST", "/x/1", "good"); res.StatusCode != 200 || !entered {
		t.Errorf("%d", res.StatusCode)
	}
}

// The time for a body is no time for the work: what takes longer goes on, and so does its connection.
func TestSlowWork(t *testing.T) {
	h := newHandler(Deps{Policy: Policy{BodyTimeout: 40 * time.Millisecond}}, []route{{op: "x", method: "POST", path: "/x", auth: open, right: public, tag: "Test", action: takes(func(c *call, _ *struct{}) (*struct{}, error) {
		select {
		case <-c.context.Done():
			return nil, c.context.Err()
		case <-time.After(150 * time.Millisecond):
			return &struct{}{}, nil
		}
	})}})
	s := httptest.NewUnstartedServer(nil)
	s.Config, s.Listener = NewServer(h), Listen(s.Listener)
	s.Start()
	defer s.Close()
	for range 2 {
		status := http.StatusRequestTimeout
		for try := 0; try < 5 && status == http.StatusRequestTimeout; try++ { // a body may be late when the machine stands still
			res := must.Get(s.Client().Post(s.URL+"/x", "application/json", strings.NewReader("{}")))(t)
			_ = res.Body.Close()
			status = res.StatusCode
		}
		if status != 200 {
			t.Errorf("%d", status)
		}
	}
}

// Another brand changes its own words and nothing else.
func TestNamespace(t *testing.T) {
	h := newHandler(Deps{Service: Service{Namespace: x402.Namespace{Scheme: "acme", Header: "Acme", Word: "acme"}}}, []route{failing("x", "/x", unionNone, func(*call) (*struct{}, error) { return &struct{}{}, nil })})
	r := httptest.NewRequest("GET", "/x", nil)
	r.Header.Set("Acme-Version", "1.1")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 200 || w.Header().Get("Acme-Version") != "1.1" || w.Header().Get("Acme-Version-Resolved-From") != "header" || w.Header().Get("Service-Version") != "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// A large answer frees its place, however it ends.
// T178
func TestPlacesGivenBack(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context) error{
		"success": func(context.Context) error { return nil },
		"error":   func(context.Context) error { return toll.NewError(toll.CodePlanNotFound) },
		"panic":   func(context.Context) error { panic("a fault") },
		"cancel":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			arrived, release := make(chan struct{}, 3*maxLarge), make(chan struct{})
			h := newHandler(Deps{Policy: Policy{BodyTimeout: time.Minute}}, []route{{
				op: "x", method: "GET", path: "/x", auth: open, right: public, tag: "Test",
				action: readsLarge(func(c *call) (*struct{}, error) {
					arrived <- struct{}{}
					<-release
					return &struct{}{}, end(c.context)
				}),
			}})
			for round := range 2 {
				ctx, cancel := context.WithCancel(t.Context())
				var callers sync.WaitGroup
				for range maxLarge {
					callers.Go(func() {
						defer func() { _ = recover() }()
						h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/x", nil).WithContext(ctx))
					})
				}
				for n := range maxLarge {
					select {
					case <-arrived:
					case <-time.After(20 * time.Second):
						t.Fatalf("round %d: %d of %d places are free", round, n, maxLarge)
					}
				}
				waits, leave := context.WithTimeout(t.Context(), 10*time.Millisecond)
				w := httptest.NewRecorder() // it ends while it waits for a place
				h.ServeHTTP(w, httptest.NewRequest("GET", "/x", nil).WithContext(waits))
				if leave(); w.Code == http.StatusOK || len(arrived) > 0 {
					t.Errorf("round %d: one too many is served: %d", round, w.Code)
				}
				for range maxLarge {
					release <- struct{}{}
				}
				cancel()
				callers.Wait()
			}
		})
	}
}

// Few large answers are made at a time. Others wait, but not for ever.
// T178
func TestLargeAnswers(t *testing.T) {
	release := make(chan struct{})
	var running, most atomic.Int32
	h := newHandler(Deps{Policy: Policy{BodyTimeout: 200 * time.Millisecond}}, []route{{
		op: "x", method: "GET", path: "/x", auth: open, right: public, tag: "Test",
		action: readsLarge(func(*call) (*struct{}, error) {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer running.Add(-1)
			<-release
			return &struct{}{}, nil
		}),
	}})
	var refused, served atomic.Int32
	var callers sync.WaitGroup
	for range 3 * maxLarge {
		callers.Go(func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/x", nil))
			switch {
			case w.Code == 200 && w.Body.String() == "{}":
				served.Add(1)
			case w.Code == 503:
				if refused.Add(1) == 2*maxLarge {
					close(release)
				}
			default:
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	callers.Wait()
	if served.Load() != maxLarge || most.Load() > maxLarge {
		t.Errorf("%d are served, %d at a time", served.Load(), most.Load())
	}
}
