package paida2a_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2asrv"
	"github.com/a2aproject/a2a-go/a2asrv/eventqueue"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paida2a"
	"github.com/tollhq/toll/tolltest"
	"github.com/tollhq/toll/x402"
)

const (
	endpoint = "https://agent.example.com/ask"
	scheme   = "svc:erc4337"
	content  = "the-answer-is-42"
)

// teller is a facilitator whose calls are counted, and may be answered by the test.
type teller struct {
	x402.Facilitator
	verify func(*x402.VerifyRequest) (*x402.VerifyResponse, error)
	settle func(*x402.SettleRequest) (*x402.SettleResponse, error)

	mu    sync.Mutex
	calls map[string]int
	ids   map[string]bool // that were settled
}

func (f *teller) count(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls, f.ids = map[string]int{}, map[string]bool{}
	}
	f.calls[call]++
}

func (f *teller) called(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

func (f *teller) Verify(ctx context.Context, r *x402.VerifyRequest) (*x402.VerifyResponse, error) {
	f.count("verify")
	if f.verify != nil {
		return f.verify(r)
	}
	return f.Facilitator.Verify(ctx, r)
}

func (f *teller) Settle(ctx context.Context, r *x402.SettleRequest) (*x402.SettleResponse, error) {
	f.count("settle")
	f.mu.Lock()
	f.ids[r.AgentRequestID] = true
	f.mu.Unlock()
	if f.settle != nil {
		return f.settle(r)
	}
	return f.Facilitator.Settle(ctx, r)
}

func (f *teller) Release(ctx context.Context, r *x402.ReleaseRequest) (*x402.ReleaseResponse, error) {
	defer f.count("release") // when it is over: tests wait for it, and pay with the same credits
	return f.Facilitator.Release(ctx, r)
}

func (f *teller) Renew(ctx context.Context, r *x402.RenewRequest) (*x402.RenewResponse, error) {
	f.count("renew")
	return f.Facilitator.(x402.Renewer).Renew(ctx, r)
}

// worker is an agent that counts its runs.
type worker struct {
	f *teller
	// work may be nil: an artifact, and the answer.
	work func(ctx context.Context, req *a2asrv.RequestContext, q eventqueue.Queue) error
}

func (w *worker) Execute(ctx context.Context, req *a2asrv.RequestContext, q eventqueue.Queue) error {
	w.f.count("run")
	if w.work != nil {
		return w.work(ctx, req, q)
	}
	return answer(ctx, req, q)
}

func (w *worker) Cancel(context.Context, *a2asrv.RequestContext, eventqueue.Queue) error {
	w.f.count("cancel")
	return nil
}

func answer(ctx context.Context, req *a2asrv.RequestContext, q eventqueue.Queue) error {
	if err := q.Write(ctx, a2a.NewArtifactEvent(req, a2a.TextPart{Text: content})); err != nil {
		return err
	}
	return end(ctx, req, q, a2a.TaskStateCompleted, "42 "+content)
}

func end(ctx context.Context, req *a2asrv.RequestContext, q eventqueue.Queue, s a2a.TaskState, text string) error {
	e := a2a.NewStatusUpdateEvent(req, s, a2a.NewMessageForTask(a2a.MessageRoleAgent, req, a2a.TextPart{Text: text}))
	e.Final = true
	return q.Write(ctx, e)
}

// shop is an agent that can be asked over HTTP, for 5 credits.
type shop struct {
	*testing.T
	svc   *tolltest.Service
	f     *teller
	agent *worker
	url   string
	log   lines
	from  string // address that a proxy tells, "" for none

	mu   sync.Mutex
	wire bytes.Buffer // all answers
}

func open(t *testing.T, svc *tolltest.Service, change ...func(*paida2a.Config)) *shop {
	t.Helper()
	s := &shop{T: t, svc: svc, f: &teller{Facilitator: svc.Facilitator()}}
	s.agent = &worker{f: s.f}
	cfg := paida2a.Config{
		PlanID: svc.Plan(), AgentID: svc.Agent(), Credits: 5, Clock: svc.Now,
		Card: a2a.AgentCard{Name: "demo", Description: "Ask the agent", URL: endpoint, DefaultOutputModes: []string{"application/json"}},
		Log:  slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	server := httptest.NewServer(paida2a.Handler(s.f, s.agent, cfg))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// reply is an answer of JSON-RPC.
type reply struct {
	Result *told `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    struct {
			Error string `json:"error"`
		} `json:"data"`
	} `json:"error"`
	raw []byte
}

// told is a task, or an event of one.
type told struct {
	Kind      string `json:"kind"`
	ID        string `json:"id"`
	TaskID    string `json:"taskId"`
	ContextID string `json:"contextId"`
	Status    struct {
		State   string `json:"state"`
		Message struct {
			Parts    []struct{ Text string } `json:"parts"`
			Metadata struct {
				Status   string                `json:"x402.payment.status"`
				Error    string                `json:"x402.payment.error"`
				Required *x402.PaymentRequired `json:"x402.payment.required"`
				Receipts []x402.SettleResponse `json:"x402.payment.receipts"`
			} `json:"metadata"`
		} `json:"message"`
	} `json:"status"`
	Artifacts []any `json:"artifacts"`
	History   []any `json:"history"`
	Final     bool  `json:"final"`
}

func (r *told) is(t testing.TB, state, status string) *told {
	t.Helper()
	if r == nil || r.Status.State != state || r.Status.Message.Metadata.Status != status {
		t.Fatalf("%+v, want %s, %s", r, state, status)
	}
	return r
}

func (s *shop) post(body string, header ...string) (*http.Response, []byte) {
	req, err := http.NewRequestWithContext(s.Context(), "POST", s.url+"/", strings.NewReader(body))
	if err != nil {
		s.Error(err)
		return nil, nil
	}
	req.Header.Set("Content-Type", "application/json")
	if s.from != "" {
		req.Header.Set("X-Forwarded-For", s.from)
	}
	for _, h := range header {
		req.Header.Add("X-A2A-Extensions", h)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Error(err)
		return nil, nil
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	must.Check(s, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wire.Write(b)
	return res, b
}

func (s *shop) sent() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wire.String()
}

func request(method string, params any) string {
	b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": "r1", "method": method, "params": params})
	return string(b)
}

func (s *shop) call(method string, params any) *reply {
	_, b := s.post(request(method, params), paida2a.ExtensionURI)
	r := &reply{raw: b}
	must.Check(s, json.Unmarshal(b, r), b)
	return r
}

// message is one of a client. Without a task it opens one.
func message(task, text string, meta map[string]any) map[string]any {
	m := map[string]any{"kind": "message", "role": "user", "messageId": "m1", "parts": []any{map[string]any{"kind": "text", "text": text}}}
	if task != "" {
		m["taskId"] = task
	}
	if meta != nil {
		m["metadata"] = meta
	}
	return map[string]any{"message": m}
}

// ask opens a task.
func (s *shop) ask() *told {
	s.Helper()
	return s.call("message/send", message("", "What is the answer?", nil)).Result.is(s, "input-required", "payment-required")
}

// payload pays what is asked for, as a plug-in does: with a nonce of its own.
func (s *shop) payload(task *told, sub *tolltest.Subscriber) map[string]any {
	s.Helper()
	b := must.Get(json.Marshal(task.Status.Message.Metadata.Required))(s)
	var asked struct {
		Resource json.RawMessage             `json:"resource"`
		Accepts  []x402.StandardRequirements `json:"accepts"`
	}
	must.Do(s, json.Unmarshal(b, &asked))
	p := must.Get(x402.NewClientScheme(scheme, x402.StaticToken(sub.AccessToken)).CreatePaymentPayload(s.Context(), asked.Accepts[0]))(s)
	b = must.Get(json.Marshal(map[string]any{"x402Version": 2, "resource": asked.Resource, "accepted": asked.Accepts[0], "payload": p}))(s)
	var out map[string]any
	must.Do(s, json.Unmarshal(b, &out))
	return out
}

func submitted(task string, payload any) map[string]any {
	return message(task, "Payment attached.", map[string]any{"x402.payment.status": "payment-submitted", "x402.payment.payload": payload})
}

func (s *shop) pay(task string, payload any) *reply {
	return s.call("message/send", submitted(task, payload))
}

// stream returns what a stream says.
func (s *shop) stream(params any) (events []*told) {
	s.Helper()
	_, b := s.post(request("message/stream", params), paida2a.ExtensionURI)
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok {
			continue
		}
		var r reply
		if err := json.Unmarshal([]byte(data), &r); err != nil || r.Result == nil {
			s.Fatalf("%s: %v", data, err)
		}
		events = append(events, r.Result)
	}
	return events
}
