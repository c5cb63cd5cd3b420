package paidmcp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paidmcp"
	"github.com/tollhq/toll/tolltest"
	"github.com/tollhq/toll/x402"
)

// content is a canary: what an item that ran gives, and must not be on the wire without a settlement.
const content = "canary-content-4f1d"

// long is more than anything takes that comes at all, on a busy machine as well.
const long = 2 * time.Minute

// eras are the two ways in which a client speaks; every call works in both.
var eras = []string{"2025-06-18", "2026-07-28"}

// line is a connection to a server that the test speaks JSON-RPC on by hand. It keeps every byte that the server sends.
type line struct {
	t   *testing.T
	era string
	in  *io.PipeWriter

	mu      sync.Mutex
	out     bytes.Buffer
	n       int
	waiting map[string]chan answer
	ended   chan struct{} // closed when the session has ended
}

type answer struct {
	ID     any             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`

	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// dial connects to a server; of the older era it initializes a session.
func dial(t *testing.T, s *mcp.Server, era string) *line {
	t.Helper()
	serverIn, in := io.Pipe()
	out, serverOut := io.Pipe()
	l := &line{t: t, era: era, in: in, waiting: map[string]chan answer{}, ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	ss := must.Get(s.Connect(ctx, &mcp.IOTransport{Reader: serverIn, Writer: serverOut}, nil))(t)
	go func() {
		defer close(l.ended)
		_ = ss.Wait()
	}()
	read := make(chan struct{})
	go func() {
		defer close(read)
		l.read(out)
	}()
	t.Cleanup(func() {
		_ = in.Close()
		<-l.ended
		cancel()
		_ = serverOut.Close()
		<-read
	})
	if era < "2026" {
		l.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"` + era + `","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		l.wait("init")
		l.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return l
}

func (l *line) read(r io.Reader) {
	in := bufio.NewReader(r)
	for {
		text, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var one answer
		var many []answer
		if json.Unmarshal(text, &one) != nil {
			_ = json.Unmarshal(text, &many)
		} else {
			many = []answer{one}
		}
		l.mu.Lock()
		l.out.Write(text)
		for _, a := range many {
			if a.Method == "" {
				l.expect(fmt.Sprint(a.ID)) <- a
			}
		}
		l.mu.Unlock()
	}
}

// expect returns where the answer with an id arrives. The caller holds the lock.
func (l *line) expect(id string) chan answer {
	if l.waiting[id] == nil {
		l.waiting[id] = make(chan answer, 64)
	}
	return l.waiting[id]
}

func (l *line) send(text string) {
	l.t.Helper()
	must.Get(io.WriteString(l.in, text+"\n"))(l.t)
}

func (l *line) wait(id string) answer {
	l.t.Helper()
	l.mu.Lock()
	arrives := l.expect(id)
	l.mu.Unlock()
	select {
	case a := <-arrives:
		return a
	case <-time.After(long):
		l.t.Fatalf("no answer to %s", id)
		return answer{}
	}
}

// sent returns every byte that the server has sent.
func (l *line) sent() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

// request makes one of a call: item is "tools/<name>", "resources/<uri>" or "prompts/<name>", meta the members of _meta.
func (l *line) request(id, item string, meta map[string]any) string {
	all := map[string]any{}
	for k, v := range meta {
		all[k] = v
	}
	if l.era >= "2026" {
		all[mcp.MetaKeyProtocolVersion] = l.era
		all[mcp.MetaKeyClientCapabilities] = map[string]any{}
	}
	kind, name, _ := strings.Cut(item, "/")
	method, params := "tools/call", map[string]any{"name": name, "arguments": map[string]any{"prompt": "hi"}}
	switch kind {
	case "resources":
		method, params = "resources/read", map[string]any{"uri": name}
	case "prompts":
		method, params = "prompts/get", map[string]any{"name": name}
	}
	if len(all) > 0 {
		params["_meta"] = all
	}
	b := must.Get(json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params}))(l.t)
	return string(b)
}

// call makes a call with a payment, nil for none.
func (l *line) call(item string, payment any) answer {
	l.t.Helper()
	var meta map[string]any
	if payment != nil {
		meta = map[string]any{"x402/payment": payment}
	}
	return l.callMeta(item, meta)
}

func (l *line) callMeta(item string, meta map[string]any) answer {
	l.t.Helper()
	l.mu.Lock()
	l.n++
	id := fmt.Sprint("c", l.n)
	l.mu.Unlock()
	l.send(l.request(id, item, meta))
	return l.wait(id)
}

// result is what an answer holds.
type result struct {
	IsError    bool                       `json:"isError"`
	Structured json.RawMessage            `json:"structuredContent"`
	Content    []struct{ Text string }    `json:"content"`
	Meta       map[string]json.RawMessage `json:"_meta"`
	ResultType string                     `json:"resultType"`
	CacheScope string                     `json:"cacheScope"`
}

func (a answer) result(t *testing.T) result {
	t.Helper()
	var r result
	if a.Result == nil {
		t.Fatalf("no result: %+v", a.Error)
	}
	must.Do(t, json.Unmarshal(a.Result, &r))
	return r
}

// demand returns what an unpaid call was asked for, in the form that the kind of its item has.
func (a answer) demand(t *testing.T, item string) x402.PaymentRequired {
	t.Helper()
	var raw json.RawMessage
	if strings.HasPrefix(item, "tools/") {
		r := a.result(t)
		if !r.IsError || len(r.Content) != 1 || r.Meta["x402/payment-response"] != nil {
			t.Fatalf("not a demand for payment: %s", a.Result)
		}
		var compact bytes.Buffer
		must.Do(t, json.Compact(&compact, []byte(r.Content[0].Text)))
		if compact.String() != string(r.Structured) {
			t.Errorf("text and structured content differ:\n%s\n%s", compact.String(), r.Structured)
		}
		raw = r.Structured
	} else {
		if a.Error == nil || a.Error.Code != paidmcp.CodePaymentRequired {
			t.Fatalf("not a demand for payment: %s %+v", a.Result, a.Error)
		}
		raw = a.Error.Data
	}
	var p x402.PaymentRequired
	if err := x402.Decode(raw, &p); err != nil || p.X402Version != 2 || len(p.Accepts) == 0 {
		t.Fatalf("demand %s: %v", raw, err)
	}
	return p
}

// paid returns the receipt of a call that was settled, and its credits.
func (a answer) paid(t *testing.T) (x402.SettleResponse, map[string]any) {
	t.Helper()
	r := a.result(t)
	var s x402.SettleResponse
	if r.IsError || x402.Decode(r.Meta["x402/payment-response"], &s) != nil || !s.Success {
		t.Fatalf("not paid: %s", a.Result)
	}
	return s, a.credits(t)
}

func (a answer) credits(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(a.result(t).Meta["service/credits"], &m); err != nil {
		t.Fatalf("no credits: %s", a.Result)
	}
	return m
}

// payload returns a payment in the form of the standard, for one request when nonce is not "".
func payload(t *testing.T, token, nonce string) map[string]any {
	t.Helper()
	if nonce != "" {
		var err error
		if token, err = x402.WithNonce(token, nonce); err != nil {
			t.Fatal(err)
		}
	}
	d := must.Get(x402.DecodeToken(token))(t)
	p := map[string]any{"signature": d.JWS}
	if d.Nonce != "" {
		p["nonce"] = d.Nonce
	}
	return map[string]any{"x402Version": 2, "payload": p}
}

// quiet is a log that the test can look into.
func quiet() (*slog.Logger, *bytes.Buffer) {
	b := new(bytes.Buffer)
	return slog.New(slog.NewTextHandler(&lockedWriter{w: b}, nil)), b
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// shop is a server with the same paid item three times, "ask": a tool, a resource "doc://ask" and a prompt.
type shop struct {
	svc    *tolltest.Service
	p      *paidmcp.Payments
	server *mcp.Server

	mu   sync.Mutex
	runs int
	// work runs in every item, in place of the answer; before the answer when it returns false.
	work func(ctx context.Context, req mcp.Request) error
}

var items = []string{"tools/ask", "resources/doc://ask", "prompts/ask"}

func (s *shop) run(ctx context.Context, req mcp.Request) error {
	s.mu.Lock()
	s.runs++
	work := s.work
	s.mu.Unlock()
	if work != nil {
		return work(ctx, req)
	}
	return nil
}

func (s *shop) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs
}

func newShop(svc *tolltest.Service, f x402.Facilitator, opts ...paidmcp.Option) *shop {
	log, _ := quiet()
	return shopOf(svc, f, paidmcp.Config{PlanID: svc.Plan(), AgentID: svc.Agent(), ServerName: "demo", Log: log, Clock: svc.Now}, opts...)
}

func shopOf(svc *tolltest.Service, f x402.Facilitator, cfg paidmcp.Config, opts ...paidmcp.Option) *shop {
	s := &shop{svc: svc, server: mcp.NewServer(&mcp.Implementation{Name: "demo", Version: "1"}, nil)}
	s.p = paidmcp.New(f, cfg)
	s.p.AddTool(s.server, &mcp.Tool{Name: "ask", Description: "Ask the agent", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if err := s.run(ctx, req); err != nil {
				return nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: content}}}, nil
		}, opts...)
	s.p.AddResource(s.server, &mcp.Resource{Name: "ask", URI: "doc://ask", MIMEType: "text/plain"},
		func(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			if err := s.run(ctx, req); err != nil {
				return nil, err
			}
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "doc://ask", Text: content}}}, nil
		}, opts...)
	s.p.AddPrompt(s.server, &mcp.Prompt{Name: "ask"},
		func(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			if err := s.run(ctx, req); err != nil {
				return nil, err
			}
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: content}}}}, nil
		}, opts...)
	return s
}

// teller stands before a facilitator and may answer in its place.
type teller struct {
	x402.Facilitator
	mu      sync.Mutex
	calls   map[string]int
	verify  func(*x402.VerifyRequest) (*x402.VerifyResponse, error)
	settle  func(*x402.SettleRequest) (*x402.SettleResponse, error)
	terms   func(toll.PlanID) (*x402.Terms, error)
	settled []toll.Credits
}

func (f *teller) count(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[what]++
}

func (f *teller) called(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[what]
}

func (f *teller) Terms(ctx context.Context, id toll.PlanID) (*x402.Terms, error) {
	if f.terms != nil {
		return f.terms(id)
	}
	return f.Facilitator.Terms(ctx, id)
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
	f.settled = append(f.settled, *r.MaxAmount)
	f.mu.Unlock()
	if f.settle != nil {
		return f.settle(r)
	}
	return f.Facilitator.Settle(ctx, r)
}

func (f *teller) Release(ctx context.Context, r *x402.ReleaseRequest) (*x402.ReleaseResponse, error) {
	f.count("release")
	return f.Facilitator.Release(ctx, r)
}

func (f *teller) AgentPlanIDs(ctx context.Context, id toll.AgentID) ([]toll.PlanID, error) {
	return f.Facilitator.(interface {
		AgentPlanIDs(context.Context, toll.AgentID) ([]toll.PlanID, error)
	}).AgentPlanIDs(ctx, id)
}
