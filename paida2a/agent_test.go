package paida2a_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2asrv"
	"github.com/a2aproject/a2a-go/a2asrv/eventqueue"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/paida2a"
	"github.com/tollhq/toll/tolltest"
	"github.com/tollhq/toll/x402"
)

// offerE10 and paidE10 are an offer and a final answer of the A2A transport, with %s for ids, and without members that say nothing
// of payments.
const (
	offerE10 = `{"jsonrpc":"2.0","id":"r1","result":{"kind":"task","id":"%[1]s","status":{"state":"input-required","message":{"kind":"message","role":"agent","parts":[{"kind":"text","text":"Payment is required. POST %[5]s/api/v1/x402/plans/%[3]s/order orders the plan. People sign in at %[5]s/sign-in."}],"metadata":{"x402.payment.status":"payment-required","x402.payment.required":{"x402Version":2,"error":"Payment required","resource":{"url":"https://agent.example.com/ask","description":"Ask the agent","mimeType":"application/json"},"accepts":[{"scheme":"svc:erc4337","network":"eip155:84532","amount":"5","asset":"svc:credits","payTo":"%[2]s","maxTimeoutSeconds":60,"planId":"%[3]s","extra":{"version":"1","planId":"%[3]s","agentId":"%[4]s","httpVerb":"POST","planUrl":"%[5]s/api/v1/protocol/plans/%[3]s","orderUrl":"%[5]s/api/v1/x402/plans/%[3]s/order","signInUrl":"%[5]s/sign-in"}}]}}}}}}`
	paidE10  = `{"jsonrpc":"2.0","id":"r1","result":{"kind":"task","id":"%[1]s","status":{"state":"completed","message":{"kind":"message","role":"agent","parts":[{"kind":"text","text":"42"}],"metadata":{"x402.payment.status":"payment-completed","x402.payment.receipts":[{"success":true,"transaction":"%[2]s","network":"eip155:84532","payer":"%[3]s","amount":"5","creditsRedeemed":"5","remainingBalance":"95","extra":{"agentRequestId":"%[4]s","planId":"%[5]s","agentId":"%[6]s","creditsRedeemed":"5","remainingBalance":"95"},"extensions":{"svc-credits":{"info":{"creditsRedeemed":"5","remainingBalance":"95","agentRequestId":"%[4]s"}}}}]}}}}}`
)

// plain removes what the example leaves out.
func plain(t *testing.T, b []byte) any {
	t.Helper()
	var v any
	must.Do(t, json.Unmarshal(b, &v), b)
	result := v.(map[string]any)["result"].(map[string]any)
	delete(result, "contextId")
	delete(result, "history")
	status := result["status"].(map[string]any)
	delete(status, "timestamp")
	m := status["message"].(map[string]any)
	for _, name := range []string{"messageId", "taskId", "contextId"} {
		delete(m, name)
	}
	if r, ok := m["metadata"].(map[string]any)["x402.payment.required"].(map[string]any); ok {
		delete(r, "extensions") // always there, empty
	}
	return v
}

func TestE10(t *testing.T) {
	svc := tolltest.New(t)
	ann := svc.Subscriber(100)
	s := open(t, svc)
	s.agent.work = func(ctx context.Context, req *a2asrv.RequestContext, q eventqueue.Queue) error {
		if p, ok := paida2a.FromContext(ctx); !ok || p.Payer != ann.Address.String() || p.Amount != 5 || p.AgentRequestID == "" {
			t.Errorf("%+v", p)
		}
		b, err := json.Marshal([]any{req.Message, req.Metadata, req.StoredTask})
		if err != nil || !strings.Contains(string(b), "What is the answer?") || strings.Contains(string(b), "payload") {
			t.Errorf("%s %v", b, err)
		}
		return q.Write(ctx, a2a.NewMessageForTask(a2a.MessageRoleAgent, req, a2a.TextPart{Text: "42"}))
	}
	asked := s.call("message/send", message("", "What is the answer?", nil))
	task := asked.Result.is(t, "input-required", "payment-required")
	want := fmt.Sprintf(offerE10, task.ID, task.Status.Message.Metadata.Required.Accepts[0].PayTo, svc.Plan(), svc.Agent(), svc.URL())
	if d := cmp.Diff(plain(t, []byte(want)), plain(t, asked.raw)); d != "" {
		t.Error(d)
	}
	payload := s.payload(task, ann)
	done := s.pay(task.ID, payload)
	r := done.Result.is(t, "completed", "payment-completed").Status.Message.Metadata.Receipts[0]
	want = fmt.Sprintf(paidE10, task.ID, r.Transaction, ann.Address, r.Extra.AgentRequestID, svc.Plan(), svc.Agent())
	if d := cmp.Diff(plain(t, []byte(want)), plain(t, done.raw)); d != "" {
		t.Error(d)
	}
	got := s.call("tasks/get", map[string]any{"id": task.ID, "historyLength": 1})
	if got.Result.is(t, "completed", "payment-completed"); len(got.Result.History) != 1 {
		t.Errorf("%s", got.raw)
	}
	if again := s.pay(task.ID, payload); again.Result.is(t, "completed", "payment-completed").ID != task.ID {
		t.Errorf("%s", again.raw)
	}
	if other := s.pay(task.ID, s.payload(task, ann)); other.Error == nil || other.Error.Code != -32602 {
		t.Errorf("%s", other.raw)
	}
	if s.f.called("run") != 1 || ann.Balance() != 95 {
		t.Errorf("%v, balance %s", s.f.calls, ann.Balance())
	}
	if jws := payload["payload"].(map[string]any)["signature"].(string); strings.Contains(s.sent()+s.log.String(), jws) {
		t.Error("the access token came back")
	}
}

// TestRefused: what is not paid is not worked on, and says why.
func TestRefused(t *testing.T) {
	svc := tolltest.New(t)
	ann, poor := svc.Subscriber(100), svc.Subscriber(3)
	s := open(t, svc)
	task := s.ask()
	if r := s.call("message/send", message(task.ID, "No.", map[string]any{"x402.payment.status": "payment-rejected"})); r.Result.is(t, "failed", "payment-rejected").Artifacts != nil {
		t.Errorf("%s", r.raw)
	}
	for name, c := range map[string]struct {
		payload func(*told) any
		reason  string
	}{
		"short of credits": {func(k *told) any { return s.payload(k, poor) }, "INSUFFICIENT_FUNDS"},
		"garbage":          {func(*told) any { return "x.y" }, "INVALID_PAYLOAD"},
		"a number":         {func(*told) any { return 5 }, "INVALID_PAYLOAD"},
		"nothing":          {func(*told) any { return nil }, "INVALID_PAYLOAD"},
		"version 1": {func(k *told) any {
			p := s.payload(k, ann)
			p["x402Version"] = 1
			return p
		}, "INVALID_X402_VERSION"},
		"another signature": {func(k *told) any {
			p := s.payload(k, ann)
			inner := p["payload"].(map[string]any)
			jws := inner["signature"].(string)
			inner["signature"] = jws[:len(jws)-8] + "AAAAAAAA"
			return p
		}, "INVALID_SVC_PAYLOAD_SIGNATURE"},
	} {
		task := s.ask()
		r := s.pay(task.ID, c.payload(task)).Result.is(t, "failed", "payment-failed")
		meta := r.Status.Message.Metadata
		if meta.Error != c.reason || len(meta.Receipts) != 1 || meta.Receipts[0].Success || meta.Receipts[0].ErrorReason != strings.ToLower(c.reason) || meta.Receipts[0].Network == "" {
			t.Errorf("%s: %+v", name, meta)
		}
	}
	if s.f.called("run") != 0 || s.f.called("settle") != 0 || ann.Balance() != 100 || poor.Balance() != 3 || strings.Contains(s.sent(), content) {
		t.Errorf("%v", s.f.calls)
	}
}

// TestTokenForAResource: a token that its subscriber gave for one agent is refused by another.
// T119
func TestTokenForAResource(t *testing.T) {
	svc := tolltest.New(t)
	s := open(t, svc)
	for resource, taken := range map[string]bool{
		"": true, endpoint: true, "https://AGENT.example.com:443/ask/": true, "https://agent.example.com/other": false,
		"https://agent.example.com": false, "https://there.example/ask": false,
	} {
		var opts []client.TokenOption
		if resource != "" {
			opts = append(opts, client.WithResource(resource))
		}
		task := s.call("message/send", message("", "What is the answer?", nil)).Result
		ran := s.f.called("run")
		done := s.pay(task.ID, s.payload(task, svc.Subscriber(100, opts...))).Result
		if taken {
			done.is(t, "completed", "payment-completed")
		} else if r := done.is(t, "failed", "payment-failed").Status.Message.Metadata.Receipts; len(r) != 1 || r[0].ErrorReason != "invalid_svc_resource_mismatch" {
			t.Errorf("%q: %+v", resource, r)
		}
		if (s.f.called("run") > ran) != taken {
			t.Errorf("%q: taken %v", resource, !taken)
		}
	}
}

// TestOtherTask: a payment for one task is refused on another, also when the first was refused; a token as issued pays for many.
func TestOtherTask(t *testing.T) {
	svc := tolltest.New(t)
	ann, poor := svc.Subscriber(100), svc.Subscriber(0)
	s := open(t, svc)
	s.f.verify = func(r *x402.VerifyRequest) (*x402.VerifyResponse, error) {
		if _, id, ok := strings.Cut(r.PaymentRequired.Resource.URL, "#"); !ok || id == "" {
			t.Errorf("no task in %s", r.PaymentRequired.Resource.URL)
		}
		return s.f.Facilitator.Verify(context.Background(), r)
	}
	for _, who := range []*tolltest.Subscriber{ann, poor} {
		first, second := s.ask(), s.ask()
		payload := s.payload(first, who)
		s.pay(first.ID, payload)
		if r := s.pay(second.ID, payload).Result.is(t, "failed", "payment-failed"); r.Status.Message.Metadata.Error != "DUPLICATE_SETTLEMENT" {
			t.Errorf("%+v", r)
		}
	}
	for range 2 {
		s.pay(s.ask().ID, ann.AccessToken).Result.is(t, "completed", "payment-completed")
	}
	if s.f.called("run") != 3 || ann.Balance() != 85 {
		t.Errorf("%v, balance %s", s.f.calls, ann.Balance())
	}
}

// TestReplays: whoever sends one payment many times at once is served once.
func TestReplays(t *testing.T) {
	svc := tolltest.New(t)
	ann := svc.Subscriber(100)
	const times = 20
	for _, own := range []bool{true, false} {
		s := open(t, svc)
		before := ann.Balance()
		task := s.ask()
		payload := s.payload(task, ann)
		replies := make([]*reply, times)
		var wg sync.WaitGroup
		for i := range times {
			id := task.ID
			if !own && i > 0 {
				id = s.ask().ID
			}
			wg.Go(func() { replies[i] = s.pay(id, payload) })
		}
		wg.Wait()
		done := 0
		for _, r := range replies {
			if r.Result == nil {
				t.Fatalf("%s", r.raw)
			}
			if r.Result.Status.State == "completed" {
				done++
			}
		}
		want := 1
		if own {
			want = times // all are told of the one run
		}
		if done != want || s.f.called("run") != 1 || s.f.called("settle") != 1 || ann.Balance() != before-5 {
			t.Errorf("%d were served, %v, balance %s", done, s.f.calls, ann.Balance())
		}
	}
}

// TestUnsettled: without a settlement nothing that the agent made leaves.
func TestUnsettled(t *testing.T) {
	svc := tolltest.New(t)
	for name, c := range map[string]struct {
		settle func(*x402.SettleRequest) (*x402.SettleResponse, error)
		reason string
		tries  int
	}{
		"refused": {func(*x402.SettleRequest) (*x402.SettleResponse, error) {
			return &x402.SettleResponse{ErrorReason: x402.ReasonHoldExpired, ErrorMessage: "The hold\nhas ended.\u202e", Network: "eip155:84532"}, nil
		}, "HOLD_EXPIRED", 1},
		"away": {func(*x402.SettleRequest) (*x402.SettleResponse, error) {
			return nil, toll.NewError(toll.CodeUnavailable)
		}, "SETTLEMENT_PENDING", 3},
		"without a transaction": {func(*x402.SettleRequest) (*x402.SettleResponse, error) {
			return &x402.SettleResponse{Success: true}, nil
		}, "SETTLEMENT_PENDING", 3},
	} {
		for _, stream := range []bool{false, true} {
			ann := svc.Subscriber(100)
			s := open(t, svc)
			s.f.settle = c.settle
			task := s.ask()
			payload := s.payload(task, ann)
			if stream {
				s.stream(submitted(task.ID, payload))
			} else {
				s.pay(task.ID, payload)
			}
			r := s.call("tasks/get", map[string]any{"id": task.ID}).Result.is(t, "failed", "payment-failed")
			meta := r.Status.Message.Metadata
			if meta.Error != c.reason || len(meta.Receipts) != 1 || meta.Receipts[0].Success {
				t.Errorf("%s: %+v", name, meta)
			}
			if s.f.called("run") != 1 || s.f.called("settle") != c.tries || len(s.f.ids) != 1 || strings.Contains(s.sent(), content) || strings.Contains(s.sent(), "\u202e") {
				t.Errorf("%s: %v, %s", name, s.f.calls, s.sent())
			}
			if released := s.f.called("release"); (released == 1) != (c.reason == "HOLD_EXPIRED") || ann.Balance() != 100 {
				t.Errorf("%s: %d released, balance %s", name, released, ann.Balance())
			}
		}
	}
}

// TestAgentFails: failures are free, and keep nothing that was made.
func TestAgentFails(t *testing.T) {
	svc := tolltest.New(t)
	ann := svc.Subscriber(5)
	s := open(t, svc)
	for name, work := range map[string]func(context.Context, *a2asrv.RequestContext, eventqueue.Queue) error{
		"error":  func(context.Context, *a2asrv.RequestContext, eventqueue.Queue) error { return io.ErrUnexpectedEOF },
		"panic":  func(context.Context, *a2asrv.RequestContext, eventqueue.Queue) error { panic("canary") },
		"no end": func(context.Context, *a2asrv.RequestContext, eventqueue.Queue) error { return nil },
		"not JSON": func(ctx context.Context, r *a2asrv.RequestContext, q eventqueue.Queue) error {
			return q.Write(ctx, a2a.NewArtifactEvent(r, a2a.DataPart{Data: map[string]any{"f": func() {}}}))
		},
		"elsewhere": func(ctx context.Context, _ *a2asrv.RequestContext, q eventqueue.Queue) error {
			return q.Write(ctx, &a2a.Task{ID: "other", Status: a2a.TaskStatus{State: a2a.TaskStateCompleted}})
		},
		"failed": func(ctx context.Context, r *a2asrv.RequestContext, q eventqueue.Queue) error {
			return end(ctx, r, q, a2a.TaskStateFailed, "no such thing")
		},
	} {
		s.agent.work = func(ctx context.Context, r *a2asrv.RequestContext, q eventqueue.Queue) error {
			if err := q.Write(ctx, a2a.NewArtifactEvent(r, a2a.TextPart{Text: content})); err != nil {
				return err
			}
			return work(ctx, r, q)
		}
		task := s.ask()
		r := s.pay(task.ID, s.payload(task, ann)).Result.is(t, "failed", "payment-verified")
		if text := r.Status.Message.Parts[0].Text; (text == "no such thing") != (name == "failed") || r.Artifacts != nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if s.f.called("settle") != 0 || s.f.called("release") != s.f.called("run") || ann.Balance() != 5 {
		t.Errorf("%v, balance %s", s.f.calls, ann.Balance())
	}
	for _, inside := range []string{content, "canary", "goroutine", "EOF"} {
		if strings.Contains(s.sent(), inside) {
			t.Errorf("%q is on the wire", inside)
		}
	}
	if !strings.Contains(s.log.String(), "canary") {
		t.Error("the panic is not in the log")
	}
}

// TestQuestion: what the agent asks is free, and the run that has the answer is paid.
func TestQuestion(t *testing.T) {
	svc := tolltest.New(t)
	ann := svc.Subscriber(100)
	s := open(t, svc)
	s.agent.work = func(ctx context.Context, r *a2asrv.RequestContext, q eventqueue.Queue) error {
		if r.StoredTask == nil {
			return end(ctx, r, q, a2a.TaskStateInputRequired, "Of what?")
		}
		if text := r.Message.Parts[0].(a2a.TextPart).Text; text != "Of everything." {
			t.Errorf("the agent was told %q", text)
		}
		return answer(ctx, r, q)
	}
	task := s.ask()
	first := s.payload(task, ann)
	r := s.pay(task.ID, first).Result.is(t, "input-required", "payment-required")
	if r.Status.Message.Parts[0].Text != "Of what?" || r.Status.Message.Metadata.Required == nil || ann.Balance() != 100 {
		t.Errorf("%+v, balance %s", r, ann.Balance())
	}
	if again := s.pay(task.ID, first).Result.is(t, "input-required", "payment-required"); again.Status.Message.Parts[0].Text != "Of what?" {
		t.Errorf("%+v", again)
	}
	s.call("message/send", message(task.ID, "Of everything.", nil)).Result.is(t, "input-required", "payment-required")
	r = s.pay(task.ID, s.payload(task, ann)).Result.is(t, "completed", "payment-completed")
	if len(r.Artifacts) != 1 || s.f.called("run") != 2 || ann.Balance() != 95 {
		t.Errorf("%+v, balance %s", r, ann.Balance())
	}
}

// TestStream: what is made comes after payment-completed.
func TestStream(t *testing.T) {
	svc := tolltest.New(t)
	ann := svc.Subscriber(100)
	s := open(t, svc)
	offer := s.stream(message("", "What is the answer?", nil))
	if len(offer) != 1 {
		t.Fatalf("%+v", offer)
	}
	task := offer[0].is(t, "input-required", "payment-required")
	var got []string
	for _, e := range s.stream(submitted(task.ID, s.payload(task, ann))) {
		got = append(got, strings.TrimSpace(fmt.Sprintln(e.Kind, e.Status.State, e.Status.Message.Metadata.Status, e.Final)))
	}
	want := []string{
		"task input-required payment-submitted false", "status-update working payment-verified false", "status-update working payment-completed false",
		"artifact-update   false", "status-update completed payment-completed true",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestCancel: where the builder releases, work that was canceled is free, also when the agent does not
// stop.
func TestCancel(t *testing.T) {
	svc := tolltest.New(t)
	ann := svc.Subscriber(5)
	s := open(t, svc, func(c *paida2a.Config) { c.OnDisconnect = paid.Release })
	started, stop := make(chan struct{}), make(chan struct{})
	defer close(stop)
	s.agent.work = func(ctx context.Context, r *a2asrv.RequestContext, q eventqueue.Queue) error {
		close(started)
		<-stop
		return answer(ctx, r, q)
	}
	task := s.ask()
	params := submitted(task.ID, s.payload(task, ann))
	params["configuration"] = map[string]any{"blocking": false}
	s.call("message/send", params).Result.is(t, "input-required", "payment-submitted")
	<-started
	s.call("tasks/get", map[string]any{"id": task.ID}).Result.is(t, "working", "payment-verified")
	if r := s.call("message/send", message(task.ID, "And?", nil)); r.Error == nil {
		t.Errorf("%s", r.raw)
	}
	s.call("tasks/cancel", map[string]any{"id": task.ID}).Result.is(t, "canceled", "")
	if r := s.call("tasks/cancel", map[string]any{"id": task.ID}); r.Error == nil || r.Error.Code != -32002 {
		t.Errorf("%s", r.raw)
	}
	for deadline := time.Now().Add(2 * time.Minute); s.f.called("release") == 0 || s.f.called("cancel") == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the hold was not released")
		}
	}
	s.agent.work = nil
	again := s.ask()
	s.pay(again.ID, s.payload(again, ann)).Result.is(t, "completed", "payment-completed")
}

// TestAway: a service that cannot be asked costs nobody their task.
func TestAway(t *testing.T) {
	svc := tolltest.New(t)
	ann := svc.Subscriber(100)
	s := open(t, svc)
	task := s.ask()
	payload := s.payload(task, ann)
	for _, code := range []toll.Code{toll.CodeUnavailable, toll.CodeSettlementPending} {
		s.f.verify = func(*x402.VerifyRequest) (*x402.VerifyResponse, error) { return nil, toll.NewError(code) }
		if r := s.pay(task.ID, payload); r.Error == nil || r.Error.Code != -32000 || !strings.Contains(r.Error.Data.Error, "again") {
			t.Errorf("%s", r.raw)
		}
	}
	s.f.verify = nil
	s.pay(task.ID, payload).Result.is(t, "completed", "payment-completed")
}
