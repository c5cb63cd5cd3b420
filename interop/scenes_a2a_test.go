package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2asrv"
	"github.com/a2aproject/a2a-go/a2asrv/eventqueue"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paida2a"
	"github.com/tollhq/toll/x402"
)

// helper is an agent of the Go SDK for A2A.
type helper struct{ runs atomic.Int64 }

func (h *helper) Execute(ctx context.Context, req *a2asrv.RequestContext, q eventqueue.Queue) error {
	h.runs.Add(1)
	if err := q.Write(ctx, a2a.NewArtifactEvent(req, a2a.TextPart{Text: "42"})); err != nil {
		return err
	}
	e := a2a.NewStatusUpdateEvent(req, a2a.TaskStateCompleted, a2a.NewMessageForTask(a2a.MessageRoleAgent, req, a2a.TextPart{Text: "42"}))
	e.Final = true
	return q.Write(ctx, e)
}

func (h *helper) Cancel(context.Context, *a2asrv.RequestContext, eventqueue.Queue) error { return nil }

// errand is an agent for 5 credits, and what a client of others knows of a task.
type errand struct {
	*scene
	*party
}

func openErrand(t *testing.T, s *service, a *actors, credits toll.Credits) *errand {
	t.Helper()
	c := newScene(t, s, a, func(s *setting) { s.credits = credits })
	agent := new(helper)
	e := &errand{scene: c, party: c.own(func(r *recorder) http.Handler {
		return paida2a.Handler(client.New(c.builder.Key, client.WithURL(r.url)), agent, paida2a.Config{
			PlanID: c.plan, AgentID: c.agent, Credits: 5, Card: a2a.AgentCard{Name: "demo", Description: "Ask the agent", URL: resource},
		})
	})}
	e.party.runs = func() int { return int(agent.runs.Load()) }
	return e
}

// taskSaid is a task as clients see it.
type taskSaid struct {
	ID     string `json:"id"`
	Status struct {
		State   string `json:"state"`
		Message struct {
			Metadata struct {
				Status   string                `json:"x402.payment.status"`
				Required goRequired            `json:"x402.payment.required"`
				Receipts []x402.SettleResponse `json:"x402.payment.receipts"`
				Error    string                `json:"x402.payment.error"`
			} `json:"metadata"`
		} `json:"message"`
	} `json:"status"`
	Artifacts []json.RawMessage `json:"artifacts"`
}

// send sends a message, and makes sure how the task stands then.
func (e *errand) send(task, state, status string, meta map[string]any) (said taskSaid) {
	e.Helper()
	m := map[string]any{"kind": "message", "role": "user", "messageId": "m1", "parts": []any{map[string]any{"kind": "text", "text": "What is the answer?"}}}
	if task != "" {
		m["taskId"], m["metadata"] = task, meta
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": "r1", "method": "message/send", "params": map[string]any{"message": m}})
	must.Do(e, err)
	req := must.Get(http.NewRequestWithContext(e.Context(), "POST", e.base+"/", bytes.NewReader(body)))(e)
	req.Header.Set("X-A2A-Extensions", paida2a.ExtensionURI)
	a := must.Get(read(req))(e)
	must.Do(e, json.Unmarshal(a.body, &struct{ Result *taskSaid }{&said}))
	if said.Status.State != state || said.Status.Message.Metadata.Status != status || (len(said.Artifacts) > 0) != (status == "payment-completed") {
		e.Fatalf("%s, want %s, %s", a.body, state, status)
	}
	if status != "payment-completed" && bytes.Contains(a.body, []byte(`"42"`)) {
		e.Errorf("content without payment: %s", a.body)
	}
	return said
}

func (e *errand) submit(task taskSaid) map[string]any {
	e.Helper()
	asked := task.Status.Message.Metadata.Required
	payload := must.Get(x402.NewClientScheme(e.scheme, x402.StaticToken(e.token)).CreatePaymentPayload(e.Context(), asked.Accepts[0]))(e)
	return map[string]any{
		"x402.payment.status":  "payment-submitted",
		"x402.payment.payload": goPayload{2, payload, asked.Accepts[0], asked.Resource, asked.Extensions},
	}
}

func paidErrand(t *testing.T, s *service, a *actors) {
	t.Run("pay", func(t *testing.T) {
		e := openErrand(t, s, a, 100)
		e.described()
		task := e.send("", "input-required", "payment-required", nil)
		if asked := task.Status.Message.Metadata.Required; asked.X402Version != 2 || asked.Resource.URL != resource || asked.Accepts[0].Amount != "5" {
			t.Errorf("%+v", asked)
		}
		done := e.send(task.ID, "completed", "payment-completed", e.submit(task))
		r := done.Status.Message.Metadata.Receipts
		if len(r) != 1 || !r[0].Success || r[0].Transaction == "" || r[0].CreditsRedeemed == nil || *r[0].CreditsRedeemed != 5 {
			t.Errorf("%+v", r)
		}
		e.ends(1, []int{5}, 95)
	})
	t.Run("decline", func(t *testing.T) {
		e := openErrand(t, s, a, 100)
		task := e.send("", "input-required", "payment-required", nil)
		e.send(task.ID, "failed", "payment-rejected", map[string]any{"x402.payment.status": "payment-rejected"})
		e.ends(0, nil, 100)
	})
	t.Run("short", func(t *testing.T) {
		e := openErrand(t, s, a, 3)
		task := e.send("", "input-required", "payment-required", nil)
		meta := e.send(task.ID, "failed", "payment-failed", e.submit(task)).Status.Message.Metadata
		if meta.Error != "INSUFFICIENT_FUNDS" || len(meta.Receipts) != 1 || meta.Receipts[0].Success {
			t.Errorf("%+v", meta)
		}
		e.ends(0, nil, 3)
	})
}

// described makes sure that the agent says, at both addresses, that its tasks are paid.
func (e *errand) described() {
	e.Helper()
	for _, name := range []string{"agent.json", "agent-card.json"} {
		res := must.Get(http.Get(e.base + "/.well-known/" + name))(e)
		b, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		var card struct {
			Capabilities struct {
				Extensions []struct{ URI string } `json:"extensions"`
			} `json:"capabilities"`
		}
		if err != nil || json.Unmarshal(b, &card) != nil || len(card.Capabilities.Extensions) != 1 || card.Capabilities.Extensions[0].URI != paida2a.ExtensionURI {
			e.Errorf("%s: %s %v", name, b, err)
		}
	}
}
