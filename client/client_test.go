package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

const (
	key   = "sandbox:canary-key-header.canary-key-claims.canary-key-signature"
	token = "Y2FuYXJ5.Y2FuYXJ5.Y2FuYXJ5"
	plan  = toll.PlanID("4474")
	agent = toll.AgentID("5063")
)

// service answers calls from a script and keeps what was sent.
type service struct {
	*httptest.Server
	mu    sync.Mutex
	sent  []sent
	reply func(n int, s sent) (status int, header map[string]string, body string)
}

type sent struct {
	method, target, body string
	header               http.Header
}

func serve(t *testing.T, reply func(n int, s sent) (int, map[string]string, string)) *service {
	s := &service{reply: reply}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		one := sent{r.Method, r.URL.RequestURI(), string(b), r.Header}
		s.mu.Lock()
		s.sent = append(s.sent, one)
		n := len(s.sent)
		s.mu.Unlock()
		status, header, body := s.reply(n, one)
		for name, v := range header {
			w.Header().Set(name, v)
		}
		if status == 0 {
			panic(http.ErrAbortHandler) // the connection breaks
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(s.Close)
	return s
}

func always(status int, body string) func(int, sent) (int, map[string]string, string) {
	return func(int, sent) (int, map[string]string, string) { return status, nil, body }
}

func (s *service) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sent)
}

func (s *service) client(opts ...client.Option) *client.Client {
	return client.New(key, append([]client.Option{client.WithURL(s.URL), client.WithMaxRetryWait(20 * time.Millisecond)}, opts...)...)
}

const errorBody = `{"code":"BCK.PROTOCOL.0003","message":"No plan has this id.","httpStatus":404,"category":"business","hint":"Check the id.",
 "details":"planId 4474","retryable":false,"correlationId":"corr-1","params":"{\"planId\":\"4474\"}"}`

func TestRequest(t *testing.T) {
	s := serve(t, always(200, `{"status":"ok","service":"toll","version":"1","timestamp":"2026-11-21T01:52:18.322Z"}`))
	ctx := context.Background()
	for _, c := range []struct {
		opts          []client.Option
		version, name string
	}{
		{nil, "1.1", "toll-go"},
		{[]client.Option{client.WithVersion("1.0"), client.WithUserAgent("weather/2")}, "1.0", "weather/2 toll-go"},
		{[]client.Option{client.WithVersion("")}, "", "toll-go"},
		{[]client.Option{client.WithURL(s.URL + "/api/v1/")}, "1.1", "toll-go"},
	} {
		if h, err := s.client(c.opts...).Health(ctx); err != nil || h.Status != "ok" || h.Timestamp.Year() != 2026 {
			t.Fatalf("%+v, %v", h, err)
		}
		last := s.sent[len(s.sent)-1]
		if last.target != "/health" || last.header.Get("Authorization") != "Bearer "+key || last.header.Get("Service-Version") != c.version ||
			last.header.Get("User-Agent") != c.name || last.header.Get("Accept") != "application/json" || last.header.Get("Content-Type") != "" {
			t.Errorf("sent %+v", last)
		}
	}
	t.Setenv("TOLL_URL", s.URL+"/")
	t.Setenv("TOLL_API_KEY", "sandbox:from-env")
	must.Get(client.New("").Health(ctx))(t)
	if got := s.sent[len(s.sent)-1].header.Get("Authorization"); got != "Bearer sandbox:from-env" {
		t.Errorf("Authorization %q", got)
	}
	t.Setenv("TOLL_API_KEY", "")
	if _, err := client.New("").Health(ctx); err != nil || s.sent[len(s.sent)-1].header.Get("Authorization") != "" {
		t.Errorf("without a key: %v, %v", err, s.sent[len(s.sent)-1].header)
	}
	for _, bad := range []string{"", "pay.example.com", "ftp://a", "https://user:canary-password@a", "https://a?x"} {
		_, err := client.New(key, client.WithURL(bad)).Health(ctx)
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestError(t *testing.T) {
	s := serve(t, always(404, errorBody))
	_, err := s.client().Plan(context.Background(), plan)
	var e *toll.Error
	if !errors.As(err, &e) || !errors.Is(err, toll.ErrPlanNotFound) || e.HTTPStatus() != 404 || e.CorrelationID != "corr-1" || e.Hint != "Check the id." ||
		e.Params["planId"] != "4474" || e.Details != "planId 4474" {
		t.Errorf("%+v", err)
	}
	for _, c := range []struct {
		status int
		body   string
		code   toll.Code
	}{
		{502, "<html>bad gateway</html>", toll.CodeUnavailable},
		{401, "", toll.CodeNotAuthenticated},
		{302, "", toll.CodeInternal},
		{200, "<html>", toll.CodeInternal},
		{200, `{"planId":"1","planId":"2"}`, toll.CodeInternal},
		{418, `{"code":"BCK.NEW.0001","message":"New."}`, "BCK.NEW.0001"},
	} {
		s := serve(t, func(int, sent) (int, map[string]string, string) {
			return c.status, map[string]string{"x-correlation-id": "corr-2", "Location": "/elsewhere"}, c.body
		})
		_, err := s.client(client.WithRetries(0)).Plan(context.Background(), plan)
		if !errors.As(err, &e) || e.Code != c.code || e.CorrelationID != "corr-2" || s.calls() != 1 {
			t.Errorf("%d %s: %v, correlation %q, %d calls", c.status, c.body, err, e.CorrelationID, s.calls())
		}
	}
}

// TestRepeats: only what cannot happen twice is repeated, within bounds.
func TestRepeats(t *testing.T) {
	ctx := context.Background()
	hold := &x402.VerifyRequest{AccessToken: token, Hold: true}
	named := &x402.VerifyRequest{AccessToken: token, Hold: true, AgentRequestID: "r-1"}
	open := &x402.VerifyRequest{AccessToken: token}
	type act struct {
		do      func(*client.Client) error
		calls   int
		creates bool // with an Idempotency-Key
	}
	acts := map[string]act{
		"read": {func(c *client.Client) error { _, err := c.Plan(ctx, plan); return err }, 3, false},
		"list": {func(c *client.Client) error { return firstOf(c.Plans(ctx)) }, 3, false},
		"settle with id": {func(c *client.Client) error {
			_, err := c.Settle(ctx, &x402.SettleRequest{AgentRequestID: "r-1"})
			return err
		}, 3, false},
		"settle without id": {func(c *client.Client) error { _, err := c.Settle(ctx, &x402.SettleRequest{}); return err }, 1, false},
		"release": {func(c *client.Client) error {
			_, err := c.Release(ctx, &x402.ReleaseRequest{AgentRequestID: "r-1"})
			return err
		}, 3, false},
		"renew": {func(c *client.Client) error {
			_, err := c.Renew(ctx, &x402.RenewRequest{AgentRequestID: "r-1"})
			return err
		}, 3, false},
		"verify":               {func(c *client.Client) error { _, err := c.Verify(ctx, open); return err }, 3, false},
		"verify with hold":     {func(c *client.Client) error { _, err := c.Verify(ctx, hold); return err }, 1, false},
		"verify with hold, id": {func(c *client.Client) error { _, err := c.Verify(ctx, named); return err }, 3, false},
		"order":                {func(c *client.Client) error { _, err := c.OrderPlan(ctx, plan); return err }, 3, true},
		"registration":         {func(c *client.Client) error { _, err := c.RegisterPlan(ctx, client.PlanParams{}); return err }, 3, true},
		"mint":                 {func(c *client.Client) error { _, err := c.Mint(ctx, plan, toll.Address{1}, 1, 0); return err }, 3, true},
		"take back":            {func(c *client.Client) error { _, err := c.TakeBack(ctx, plan, toll.Address{1}, 1); return err }, 3, true},
		"token":                {func(c *client.Client) error { _, err := c.AccessToken(ctx, plan); return err }, 3, true},
		"revoke":               {func(c *client.Client) error { return c.RevokePermission(ctx, toll.Hash{1}) }, 3, false},
		"key":                  {func(c *client.Client) error { _, err := c.CreateKey(ctx, client.KeyParams{}); return err }, 3, true},
		"checkout":             {func(c *client.Client) error { _, err := c.Checkout(ctx, plan, client.CheckoutParams{}); return err }, 3, true},
		"delegation": {func(c *client.Client) error {
			_, err := c.CreateDelegation(ctx, client.DelegationParams{})
			return err
		}, 3, true},
		"update":                {func(c *client.Client) error { _, err := c.UpdatePlan(ctx, plan, toll.PlanUpdate{}); return err }, 3, false},
		"attach":                {func(c *client.Client) error { _, err := c.AttachPlan(ctx, agent, plan); return err }, 3, false},
		"detach":                {func(c *client.Client) error { _, err := c.DetachPlan(ctx, agent, plan); return err }, 3, false},
		"clock":                 {func(c *client.Client) error { _, err := c.AdvanceClock(ctx, time.Hour); return err }, 1, false},
		"call of another route": {func(c *client.Client) error { return c.Call(ctx, "POST", "/x", nil, nil, nil) }, 1, false},
	}
	for name, act := range acts {
		for _, f := range []struct {
			what    string
			status  int
			header  map[string]string
			body    string
			repeats bool
		}{
			{"broken connection", 0, nil, "", true},
			{"503", 503, map[string]string{"Retry-After": "0"}, "", true},
			{"429", 429, nil, "", true},
			{"408", 408, nil, "", true},
			{"long wait", 503, map[string]string{"Retry-After": "60"}, "", false},
			{"500", 500, nil, "", false},
			{"400", 400, nil, "", false},
			{"conflict", 409, nil, `{"code":"BCK.COMMON.0901","message":"Other body."}`, false},
			{"still running", 409, nil, `{"code":"BCK.COMMON.0902","message":"Running."}`, true},
		} {
			s := serve(t, func(int, sent) (int, map[string]string, string) { return f.status, f.header, f.body })
			want := 1
			if f.repeats {
				want = act.calls
			}
			switch name {
			case "verify with hold, id", "revoke", "detach":
				if f.what == "broken connection" {
					want = 1 // it may be done, and a repeat would be refused for that
				}
			}
			if f.what == "408" {
				want = 3 // whatever was asked for did not arrive
			}
			if f.what == "still running" {
				want = 1
				if act.creates {
					want = 3
				}
			}
			err := act.do(s.client(client.WithHTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}})))
			var e *toll.Error
			if !errors.As(err, &e) || s.calls() != want {
				t.Errorf("%s, %s: %d calls, want %d (%v)", name, f.what, s.calls(), want, err)
			}
			if f.what == "long wait" && e.RetryAfterSecs != 60 {
				t.Errorf("%s: Retry-After %d", name, e.RetryAfterSecs)
			}
		}
	}
}

func firstOf[T any](seq func(func(T, error) bool)) (first error) {
	seq(func(_ T, err error) bool { first = err; return false })
	return first
}

func TestRepeatSucceeds(t *testing.T) {
	var log bytes.Buffer
	s := serve(t, func(n int, _ sent) (int, map[string]string, string) {
		if n < 3 {
			return 503, nil, errorBody
		}
		return 200, nil, `{"current":"1.1","floor":"1.0","gatedVersions":["1.1"],"yourEffectiveVersion":"1.1"}`
	})
	v, err := s.client(client.WithLog(slog.New(slog.NewTextHandler(&log, nil)))).Versions(context.Background())
	if err != nil || v.Current != "1.1" || s.calls() != 3 {
		t.Errorf("%+v, %v, %d calls", v, err, s.calls())
	}
	if n := strings.Count(log.String(), "retrying a call"); n != 2 || strings.Contains(log.String(), "canary") {
		t.Errorf("log %s", log.String())
	}
}

func TestContextEndsTheWait(t *testing.T) {
	s := serve(t, always(503, ""))
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	start := time.Now()
	_, err := s.client(client.WithMaxRetryWait(time.Hour), client.WithRetries(20)).Plan(ctx, plan)
	if err == nil || time.Since(start) > 2*time.Minute {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

func TestTimeout(t *testing.T) {
	hang := make(chan struct{})
	s := serve(t, func(int, sent) (int, map[string]string, string) { <-hang; return 200, nil, "{}" })
	defer close(hang)
	_, err := s.client(client.WithTimeout(30*time.Millisecond), client.WithRetries(0)).Plan(context.Background(), plan)
	if !errors.Is(err, context.DeadlineExceeded) || toll.AsError(err).Code != toll.CodeUnavailable {
		t.Errorf("%v", err)
	}
}

func TestAnswerIsBounded(t *testing.T) {
	s := serve(t, always(200, strings.Repeat(" ", 17<<20)))
	if _, err := s.client(client.WithRetries(0)).Plan(context.Background(), plan); err == nil {
		t.Error("17 MiB were taken")
	}
}

// TestRedirectsAreNotFollowed: the key would go along.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other := serve(t, always(200, "{}"))
	s := serve(t, func(int, sent) (int, map[string]string, string) {
		return 307, map[string]string{"Location": other.URL}, ""
	})
	err := s.client(client.WithHTTPClient(&http.Client{})).Call(context.Background(), "POST", "/api/v1/x", nil, map[string]int{"a": 1}, nil)
	if err == nil || other.calls() != 0 {
		t.Errorf("%v, %d calls elsewhere", err, other.calls())
	}
}

// TestKeyIsNotPrinted.
func TestKeyIsNotPrinted(t *testing.T) {
	var log bytes.Buffer
	s := serve(t, always(0, ""))
	c := s.client(client.WithLog(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	_, err := c.Verify(context.Background(), &x402.VerifyRequest{AccessToken: token})
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "client", c, "error", err)
	fmt.Fprintf(&log, "%v %+v %#v %s %v %+v", c, c, c, c, err, err)
	for e := err; e != nil; e = errors.Unwrap(e) {
		fmt.Fprintf(&log, "%v %+v", e, e)
	}
	if out := log.String(); strings.Contains(out, "canary") || strings.Contains(out, token) || !strings.Contains(out, "retrying") {
		t.Errorf("%s", out)
	}
}

func TestIdempotencyKey(t *testing.T) {
	s := serve(t, always(200, `{"success":true,"planId":"4474","txHash":"0x`+strings.Repeat("0", 64)+`"}`))
	ctx := client.WithIdempotencyKey(context.Background(), "once-1")
	must.Get(s.client().RegisterPlan(ctx, client.PlanParams{}))(t)
	if got := s.sent[0].header.Get("Idempotency-Key"); got != "once-1" {
		t.Errorf("Idempotency-Key %q", got)
	}

	// Without a key of the caller each creation has its own, and its repeats the same.
	s = serve(t, func(n int, _ sent) (int, map[string]string, string) {
		if n%2 == 1 {
			return 0, nil, ""
		}
		return 201, nil, `{"accessToken":"a.b.c"}`
	})
	c := s.client(client.WithHTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}))
	for range 2 {
		must.Get(c.AccessToken(context.Background(), plan))(t)
	}
	keys := make([]string, 0, 4)
	for _, one := range s.sent {
		keys = append(keys, one.header.Get("Idempotency-Key"))
	}
	if len(keys) != 4 || keys[0] == "" || keys[0] != keys[1] || keys[2] != keys[3] || keys[0] == keys[2] {
		t.Errorf("keys %q", keys)
	}
	if _, err := s.client().Plan(context.Background(), plan); err != nil && s.sent[len(s.sent)-1].header.Get("Idempotency-Key") != "" {
		t.Error("a read has a key")
	}
}

func TestCall(t *testing.T) {
	s := serve(t, always(200, ` {"b":1}`))
	var raw rawJSON
	if err := s.client().Call(context.Background(), "GET", "/api/v1/x", map[string][]string{"a": {"1 2"}}, nil, &raw); err != nil || string(raw) != ` {"b":1}` {
		t.Errorf("%s, %v", raw, err)
	}
	if s.sent[0].target != "/api/v1/x?a=1+2" {
		t.Errorf("%+v", s.sent[0])
	}
}
