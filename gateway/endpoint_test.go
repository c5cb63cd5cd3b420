package gateway_test

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
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
	"github.com/tollhq/toll/x402"
)

func TestPaidEndpoint_Demo(t *testing.T) {
	s := newSeller(t, tolltest.New(t), nil)
	ann := s.svc.Subscriber(10)
	a := s.ask("", hi)
	var p x402.PaymentRequired
	if err := x402.DecodeHeader(a.header.Get(x402.HeaderRequired), &p); err != nil || a.status != 402 {
		t.Fatal(a, err)
	}
	e := p.Accepts[0]
	if p.Resource.URL != "https://agent.example.com"+paidPath || e.PlanID != string(s.svc.Plan()) ||
		e.Extra.AgentID != string(s.svc.Agent()) || e.Extra.HTTPVerb != "POST" || e.Amount != "2" {
		t.Errorf("%+v", p)
	}
	var both struct {
		X402Version int
		Code        string
	}
	if err := json.Unmarshal([]byte(a.body), &both); err != nil || both.X402Version != 2 || both.Code == "" {
		t.Errorf("%s: %v", a.body, err)
	}
	if got := a.header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("cache-control of the 402: %q", got)
	}

	a = s.ask(ann.AccessToken, hi)
	if a.status != 200 || a.body != `{"demo":true,"answer":"You said: hi"}` || a.header.Get("Cache-Control") != "private, no-store" {
		t.Fatal(a)
	}
	if r := a.receipt(t); !r.Success || r.CreditsRedeemed != "2" || r.RemainingBalance != "8" || ann.Balance() != 8 {
		t.Errorf("%+v, balance %d", r, ann.Balance())
	}
}

// A malformed request costs nothing: it never reaches the service.
// T146
func TestBadRequests(t *testing.T) {
	s := newSeller(t, tolltest.New(t), nil)
	ann := s.svc.Subscriber(10)
	header := func(name string, values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
	}
	prompt := func(n int) string { return `{"prompt":"` + strings.Repeat("ö", n) + `"}` }
	unsized := func(r *http.Request) { r.ContentLength = -1 }
	for name, test := range map[string]struct {
		body string
		edit func(*http.Request)
		want int
	}{
		"GET":              {"", func(r *http.Request) { r.Method, r.Body = "GET", nil }, 405},
		"PUT":              {hi, func(r *http.Request) { r.Method = "PUT" }, 405},
		"DELETE":           {hi, func(r *http.Request) { r.Method = "DELETE" }, 405},
		"text":             {"hi", header("Content-Type", "text/plain"), 415},
		"form":             {"prompt=hi", header("Content-Type", "application/x-www-form-urlencoded"), 415},
		"no type":          {hi, header("Content-Type"), 415},
		"raw text":         {"hi", nil, 400},
		"bad JSON":         {`{"prompt":"hi"`, nil, 400},
		"two values":       {hi + hi, nil, 400},
		"two prompts":      {`{"prompt":"a","prompt":"b"}`, nil, 400},
		"array":            {`["hi"]`, nil, 400},
		"no prompt":        {`{}`, nil, 400},
		"null":             {`{"prompt":null}`, nil, 400},
		"number":           {`{"prompt":1}`, nil, 400},
		"empty":            {`{"prompt":""}`, nil, 400},
		"long prompt":      {prompt(100_001), nil, 400},
		"10 MB":            {prompt(5 << 20), nil, 413},
		"10 MB unsized":    {prompt(5 << 20), unsized, 413},
		"1 MiB and a byte": {hi + strings.Repeat(" ", 1<<20-len(hi)+1), unsized, 413},
		"two tokens":       {hi, header(x402.HeaderSignature, ann.AccessToken, ann.AccessToken+"x"), 400},
		"long token":       {hi, header(x402.HeaderSignature, strings.Repeat("x", 8<<10+1)), 431},
	} {
		s.wire.count("")
		var edits []func(*http.Request)
		if test.edit != nil {
			edits = append(edits, test.edit)
		}
		a := s.ask(ann.AccessToken, test.body, edits...)
		if a.status != test.want || s.wire.count("verify") != 0 {
			t.Errorf("%s: %d %.200s, want %d", name, a.status, a.body, test.want)
		}
		if test.want == 405 && a.header.Get("Allow") != "POST" {
			t.Errorf("%s: allow %q", name, a.header.Get("Allow"))
		}
	}
	for name, body := range map[string]string{"1 MiB": hi + strings.Repeat(" ", 1<<20-len(hi)), "100,000 characters": prompt(100_000)} {
		if a := s.ask(ann.AccessToken, body, unsized); a.status != 200 {
			t.Errorf("%s: %d %.200s", name, a.status, a.body)
		}
	}
	if ann.Balance() != 6 {
		t.Errorf("balance %d", ann.Balance())
	}
}

// failing is a handler that does what the prompt says.
func failing(_ context.Context, r gateway.PaidRequest) (any, error) {
	switch r.Prompt {
	case "error":
		return nil, errors.New("a secret of the inside")
	case "panic":
		panic("a secret of the inside")
	case "large":
		return strings.Repeat("x", 4<<20), nil
	case "no JSON":
		return make(chan int), nil
	}
	return r, nil
}

// A handler that fails costs nothing, and its error is not in the answer.
// T146
func TestHandlerFails(t *testing.T) {
	var lines strings.Builder
	s := newSeller(t, tolltest.New(t), func(o *gateway.Options) {
		o.Handler, o.Log = failing, slog.New(slog.NewTextHandler(&lines, nil))
	})
	ann := s.svc.Subscriber(10)
	for _, prompt := range []string{"error", "panic", "large", "no JSON"} {
		a := s.ask(ann.AccessToken, `{"prompt":"`+prompt+`"}`)
		if a.status != 502 || a.body != `{"error":"agent failed"}` || a.header.Get(x402.HeaderResponse) != "" {
			t.Errorf("%s: %+v", prompt, a)
		}
		if n := s.wire.count("release"); n != 1 {
			t.Errorf("%s: %d releases", prompt, n)
		}
	}
	b, err := ann.Client.Balance(t.Context(), s.svc.Plan())
	if err != nil || b.Available != 10 || b.Held != 0 {
		t.Errorf("%+v %v", b, err)
	}
	if !strings.Contains(lines.String(), "a secret of the inside") {
		t.Error("the log does not say why")
	}
	a := s.ask(ann.AccessToken, hi)
	var got gateway.PaidRequest
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || got.Prompt != "hi" || got.Subscriber != ann.Address ||
		got.PlanID != s.svc.Plan() || got.AgentRequestID == "" {
		t.Errorf("%+v: %v", a, err)
	}
}

// A handler that ignores the end of its time costs nothing and keeps no place.
// T146
func TestHandlerHangs(t *testing.T) {
	finish := make(chan struct{})
	s := newSeller(t, tolltest.New(t), func(o *gateway.Options) {
		o.Config.CreditsPerRequest = 1
		o.Handler = func(_ context.Context, r gateway.PaidRequest) (any, error) {
			if r.Prompt == "hang" {
				<-finish
			}
			return "done", nil
		}
	})
	end := sync.OnceFunc(func() { close(finish) })
	defer end()
	defer time.AfterFunc(time.Minute, end).Stop() // a core that waits for the handler answers 200
	s.core.SetHandlerTime(time.Second)
	ann := s.svc.Subscriber(40)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			a := s.ask(ann.AccessToken, `{"prompt":"hang"}`)
			if a.status != 502 || a.body != `{"error":"agent failed"}` {
				t.Errorf("%+v", a)
			}
		})
	}
	wg.Wait()
	if n := s.wire.count("release"); n != 32 {
		t.Errorf("%d releases", n)
	}
	if a := s.ask(ann.AccessToken, hi); a.status != 200 {
		t.Errorf("afterwards: %+v", a)
	}
	b, err := ann.Client.Balance(t.Context(), s.svc.Plan())
	if err != nil || b.Available != 39 || b.Held != 0 {
		t.Errorf("%+v %v", b, err)
	}
}

// Without settlement there is no content, and an unclear one is never a new demand for payment.
// T146
func TestEndpoint_Settlement(t *testing.T) {
	s := newSeller(t, tolltest.New(t), nil)
	ann := s.svc.Subscriber(10)
	s.wire.set("/x402/settle", 200, `{"success":false,"errorReason":"insufficient_funds","errorMessage":"no","transaction":"","network":"eip155:84532"}`)
	a := s.ask(ann.AccessToken, hi)
	if a.status != 402 || strings.Contains(a.body, "You said") || a.receipt(t).Success {
		t.Errorf("refused: %+v", a)
	}
	s.wire.set("/x402/settle", 503, `{"code":"BCK.HTTP.503"}`)
	s.wire.count("")
	a = s.ask(ann.AccessToken, hi)
	if r := a.receipt(t); a.status != 503 || strings.Contains(a.body, "You said") || r.ErrorReason != x402.ReasonPending ||
		a.header.Get("Retry-After") == "" || a.header.Get(x402.HeaderRequired) != "" {
		t.Errorf("unclear: %+v", a)
	}
	ids := map[string]int{}
	s.wire.mu.Lock()
	for i, c := range s.wire.calls {
		if strings.HasSuffix(c, "/settle") {
			var in struct{ AgentRequestID string }
			must.Check(t, json.Unmarshal([]byte(s.wire.bodies[i]), &in))
			ids[in.AgentRequestID]++
		}
	}
	s.wire.mu.Unlock()
	if len(ids) != 1 || ids[""] != 0 {
		t.Errorf("settlements by request: %v", ids)
	}
	s.wire.set("/x402/verify", 503, `{"code":"BCK.HTTP.503"}`)
	if a = s.ask(ann.AccessToken, hi); a.status != 503 || a.header.Get(x402.HeaderRequired) != "" {
		t.Errorf("service away: %+v", a)
	}
	if ann.Balance() != 10 {
		t.Errorf("balance %d", ann.Balance())
	}
}

// One token and credits for five: five answers, five burns.
func TestPaidEndpoint_Concurrent(t *testing.T) {
	s := newSeller(t, tolltest.New(t), func(o *gateway.Options) { o.Config.CreditsPerRequest = 1 })
	ann := s.svc.Subscriber(5)
	var served, refused atomic.Int64
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			switch a := s.ask(ann.AccessToken, hi); a.status {
			case 200:
				served.Add(1)
			case 402:
				refused.Add(1)
			default:
				t.Errorf("%+v", a)
			}
		})
	}
	wg.Wait()
	if served.Load() != 5 || refused.Load() != 15 || ann.Balance() != 0 {
		t.Errorf("%d served, %d refused, balance %d", served.Load(), refused.Load(), ann.Balance())
	}
}

// The same payment pays once; the same access token pays again.
func TestPaidEndpoint_Repeats(t *testing.T) {
	s := newSeller(t, tolltest.New(t), nil)
	ann := s.svc.Subscriber(10)
	asked := must.Get(x402.ReadChallenge(s.ask("", hi).header, nil))(t)
	payload := must.Get(x402.NewCreditsPayload(ann.AccessToken))(t)
	payment := must.Get(asked.Answer(&asked.Entries[0], payload, ""))(t)
	for i, want := range []int{200, 402} {
		if a := s.ask(payment, hi); a.status != want {
			t.Errorf("payment %d: %+v", i, a)
		}
	}
	for range 2 {
		if a := s.ask(ann.AccessToken, hi); a.status != 200 {
			t.Errorf("%+v", a)
		}
	}
	if ann.Balance() != 4 {
		t.Errorf("balance %d", ann.Balance())
	}
}

// More than 32 requests are refused before the service is asked about them, and a caller who leaves
// pays for what was done.
func TestPaidEndpoint_BusyAndGone(t *testing.T) {
	begun, finish := make(chan struct{}, 64), make(chan struct{})
	s := newSeller(t, tolltest.New(t), func(o *gateway.Options) {
		o.Config.CreditsPerRequest = 1
		o.Handler = func(context.Context, gateway.PaidRequest) (any, error) {
			begun <- struct{}{}
			<-finish
			return "done", nil
		}
	})
	ann := s.svc.Subscriber(40)
	var wg sync.WaitGroup
	for range 31 {
		wg.Go(func() {
			if a := s.ask(ann.AccessToken, hi); a.status != 200 {
				t.Errorf("%+v", a)
			}
		})
	}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		req, err := http.NewRequestWithContext(ctx, "POST", s.url+paidPath, strings.NewReader(hi))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set(x402.HeaderSignature, ann.AccessToken)
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
			t.Error("an answer for a caller who left")
		}
	}()
	for range 32 {
		<-begun
	}
	s.wire.count("")
	if a := s.ask(ann.AccessToken, hi); a.status != 429 || a.header.Get("Retry-After") != "1" || s.wire.count("verify") != 0 {
		t.Errorf("%+v", a)
	}
	leave()
	<-left
	close(finish)
	wg.Wait()
	if a := s.ask(ann.AccessToken, hi); a.status != 200 {
		t.Errorf("afterwards: %+v", a)
	}
	s.core.Idle()
	if ann.Balance() != 40-33 {
		t.Errorf("balance %d", ann.Balance())
	}
}

// An endpoint that is not configured answers 503, and a plan that does not allow the price is a start-up error.
func TestPaidEndpoint_NotConfigured(t *testing.T) {
	svc := tolltest.New(t)
	ann := svc.Subscriber(10)
	live := func(o *gateway.Options) {
		o.Config.Environment, o.Config.APIKey = toll.Live, "live:"+strings.TrimPrefix(o.Config.APIKey, "sandbox:")
	}
	spender := must.Get(svc.Client().CreateKey(t.Context(), client.KeyParams{
		Rights: toll.Rights{toll.RightRead, toll.RightSpend, toll.RightManage},
	}))(t)
	revoked, err := svc.Client().CreateKey(t.Context(), client.KeyParams{})
	if err == nil {
		_, err = svc.Client().RevokeKey(t.Context(), revoked.ID)
	}
	must.Do(t, err)
	stranger := must.Get(svc.NewKey("stranger"))(t)
	for name, test := range map[string]struct {
		edit func(*gateway.Options)
		want string // in the start-up error
	}{
		"no sell":    {func(o *gateway.Options) { o.Config.APIKey = spender.Key }, "lacks the right sell"},
		"revoked":    {func(o *gateway.Options) { o.Config.APIKey = revoked.Key }, "revoked"},
		"not there":  {func(o *gateway.Options) { o.Config.PlanID = "7" }, "No plan has this id"},
		"no key":     {func(o *gateway.Options) { o.Config.APIKey = "" }, "Not authenticated"},
		"no plan":    {func(o *gateway.Options) { o.Config.PlanID = "" }, "planId"},
		"no handler": {live, "agentHandler"},
		"price":      {func(o *gateway.Options) { o.Config.CreditsPerRequest = 11 }, "must be 1 to 10"},
	} {
		var lines strings.Builder
		s := newSeller(t, svc, func(o *gateway.Options) {
			test.edit(o)
			o.Log = slog.New(slog.NewTextHandler(&lines, nil))
		})
		for range 2 {
			a := s.ask(ann.AccessToken, hi)
			if a.status != 503 || a.body != `{"error":"not configured"}` || a.header.Get("Retry-After") != "60" {
				t.Errorf("%s: %+v", name, a)
			}
		}
		if err := s.core.CheckPaidEndpoint(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
		if n := strings.Count(lines.String(), "must be 1 to 10"); name == "price" && n != 1 {
			t.Errorf("%d lines: %s", n, lines.String())
		}
	}
	// What only the first request finds out is in the log.
	for name, edit := range map[string]func(*gateway.Config){
		"agent":   func(cfg *gateway.Config) { cfg.AgentID = "7" },
		"account": func(cfg *gateway.Config) { cfg.APIKey = stranger.Key },
	} {
		var lines strings.Builder
		s := newSeller(t, svc, func(o *gateway.Options) {
			edit(&o.Config)
			o.Log = slog.New(slog.NewTextHandler(&lines, nil))
		})
		a := s.ask(ann.AccessToken, hi)
		if a.status != 503 || a.body != `{"error":"not configured"}` || !strings.Contains(lines.String(), "cannot accept payments") {
			t.Errorf("%s of somebody else: %+v, log %s", name, a, lines.String())
		}
	}
	off := newSeller(t, svc, func(o *gateway.Options) { o.Config.EnablePaidEndpoint = nil })
	if a := off.ask(ann.AccessToken, hi); a.status != 401 {
		t.Errorf("off: %+v", a)
	}
	must.Check(t, newSeller(t, svc, nil).core.CheckPaidEndpoint(t.Context()))
}

// A program of the operator answers, and may lower the price.
func TestPaidEndpoint_Program(t *testing.T) {
	names := x402.Default
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in gateway.PaidRequest
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.Header.Get("X-Key") != "k" || r.Method != "POST" {
			t.Errorf("%+v %v", in, err)
		}
		switch in.Prompt {
		case "redirect":
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
			return
		case "error":
			http.Error(w, "inside", 500)
			return
		case "array":
			_, _ = io.WriteString(w, `[1]`)
			return
		case "null":
			_, _ = io.WriteString(w, `null`)
			return
		case "large":
			_, _ = io.WriteString(w, `{"a":"`+strings.Repeat("x", 5<<20)+`"}`)
			return
		}
		if in.Prompt != "" {
			w.Header().Set(names.HeaderCreditsUsed(), in.Prompt)
		}
		w.Header().Set("X-Inside", "y")
		_, _ = io.WriteString(w, `{"answer":1.50}`)
	}))
	defer program.Close()
	s := newSeller(t, tolltest.New(t), func(o *gateway.Options) {
		o.Config.CreditsPerRequest = 5
		o.Config.AgentHandler = &gateway.HandlerConfig{Kind: "http", URL: program.URL, Headers: map[string]string{"X-Key": "k"}}
	})
	ann := s.svc.Subscriber(50)
	for used, want := range map[string]toll.Credits{"3": 3, "5": 5, "9": 5, "0": 0, "99999999999999999999": 0, "-1": 0, "two": 0} {
		before := ann.Balance()
		a := s.ask(ann.AccessToken, `{"prompt":"`+used+`"}`)
		bad := want == 0 && used != "0"
		if bad && a.status != 502 || !bad && (a.status != 200 || a.body != `{"answer":1.50}`) {
			t.Errorf("%s: %+v", used, a)
		}
		if a.header.Get(names.HeaderCreditsUsed()) != "" || a.header.Get("X-Inside") != "" {
			t.Errorf("%s: headers of the program leave: %v", used, a.header)
		}
		if got := before - ann.Balance(); got != want {
			t.Errorf("%s: %d burned, want %d", used, got, want)
		}
	}
	for _, prompt := range []string{"redirect", "error", "array", "null", "large"} {
		if a := s.ask(ann.AccessToken, `{"prompt":"`+prompt+`"}`); a.status != 502 || strings.Contains(a.body, "inside") {
			t.Errorf("%s: %+v", prompt, a)
		}
	}
}

// An agent of the chat host answers through its chat completions.
func TestPaidEndpoint_Host(t *testing.T) {
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/base/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer t" ||
			string(b) != `{"model":"openclaw/sell","messages":[{"role":"user","content":"hi"}]}` {
			t.Errorf("%s %s", r.URL, b)
		}
		_, _ = io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":"hello"}}]}`)
	}))
	defer host.Close()
	s := newSeller(t, tolltest.New(t), func(o *gateway.Options) {
		o.Config.AgentHandler = &gateway.HandlerConfig{Kind: "host", URL: host.URL + "/base/", Agent: "sell", Token: "t"}
	})
	if a := s.ask(s.svc.Subscriber(10).AccessToken, hi); a.status != 200 || a.body != `{"answer":"hello"}` {
		t.Errorf("%+v", a)
	}
}
