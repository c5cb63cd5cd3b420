package paida2a_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2asrv"
	"github.com/a2aproject/a2a-go/a2asrv/eventqueue"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paida2a"
	"github.com/tollhq/toll/tolltest"
)

// TestNoNullArrays: clients in other languages read each array of a card and of a task without
// asking whether it is one.
func TestNoNullArrays(t *testing.T) {
	svc := tolltest.New(t)
	ann := svc.Subscriber(20)
	skills := []a2a.AgentSkill{{
		ID: "ask", Name: "Ask", Security: []a2a.SecurityRequirements{{"key": nil}},
	}}
	s := open(t, svc, func(c *paida2a.Config) {
		c.Card = a2a.AgentCard{
			Name:     "demo",
			URL:      endpoint,
			Skills:   skills,
			Security: []a2a.SecurityRequirements{{"key": nil}},
		}
	})
	bare := open(
		t,
		svc,
		func(c *paida2a.Config) { c.Card = a2a.AgentCard{Name: "bare", URL: endpoint} },
	)
	for _, url := range []string{s.url, bare.url} {
		res := must.Get(http.Get(url + "/.well-known/agent-card.json"))(t)
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || bytes.Contains(body, []byte("null")) {
			t.Errorf("%s, %v", body, err)
		}
	}
	if skills[0].Tags != nil {
		t.Error("the card of the builder was changed")
	}

	s.agent.work = func(ctx context.Context, req *a2asrv.RequestContext, q eventqueue.Queue) error {
		if err := q.Write(ctx, a2a.NewArtifactEvent(req)); err != nil { // without parts
			return err
		}
		return end(ctx, req, q, a2a.TaskStateCompleted, "done")
	}
	task := s.ask()
	r := s.pay(task.ID, s.payload(task, ann))
	r.Result.is(t, "completed", "payment-completed")
	if bytes.Contains([]byte(r.raw), []byte(`"parts":null`)) {
		t.Errorf("%s", r.raw)
	}
}
