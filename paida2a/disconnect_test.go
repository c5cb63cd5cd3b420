package paida2a_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/a2asrv"
	"github.com/a2aproject/a2a-go/a2asrv/eventqueue"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/paida2a"
	"github.com/tollhq/toll/tolltest"
)

// TestCallerGone: a caller who hangs up, or cancels the task, while the agent works pays for what
// it finishes, unless the builder releases.
// T133
func TestCallerGone(t *testing.T) {
	svc := tolltest.New(t)
	ann := svc.Subscriber(100)
	for _, c := range []struct {
		name              string
		gone              paid.Disconnect
		leave             string // "hang up", "cancel"
		stream, unblocked bool   // how the payment is sent
		heeds             bool   // the agent ends with its context
		state             string
		burns             toll.Credits
	}{
		{name: "hung up", leave: "hang up", state: "completed", burns: 5},
		{name: "hung up a stream", leave: "hang up", stream: true, state: "completed", burns: 5},
		{name: "hung up, settled", gone: paid.Settle, leave: "hang up", state: "completed", burns: 5},
		{name: "hung up, released", gone: paid.Release, leave: "hang up", state: "canceled"},
		{name: "hung up a stream, released", gone: paid.Release, leave: "hang up", stream: true, state: "canceled"},
		{name: "did not wait, released", gone: paid.Release, unblocked: true, state: "completed", burns: 5},
		{name: "canceled", leave: "cancel", state: "completed", burns: 5},
		{name: "canceled, and the agent stops", leave: "cancel", heeds: true, state: "canceled"},
		{name: "canceled, released", gone: paid.Release, leave: "cancel", state: "canceled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, svc, func(cfg *paida2a.Config) { cfg.OnDisconnect = c.gone })
			started, finish := make(chan struct{}), make(chan struct{})
			s.agent.work = func(ctx context.Context, r *a2asrv.RequestContext, q eventqueue.Queue) error {
				close(started)
				if c.heeds {
					<-ctx.Done()
					return ctx.Err()
				}
				<-finish
				return answer(ctx, r, q)
			}
			before := ann.Balance()
			task := s.ask()
			params := submitted(task.ID, s.payload(task, ann))
			if c.unblocked {
				params["configuration"] = map[string]any{"blocking": false}
			}
			method := "message/send"
			if c.stream {
				method = "message/stream"
			}
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				req, err := http.NewRequestWithContext(ctx, "POST", s.url+"/", strings.NewReader(request(method, params)))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("X-A2A-Extensions", paida2a.ExtensionURI)
				if res, err := http.DefaultClient.Do(req); err == nil {
					<-ctx.Done()
					res.Body.Close()
				}
			}()
			<-started
			canceled := make(chan *reply, 1)
			switch c.leave {
			case "hang up":
				hangUp()
				<-sent
				time.Sleep(100 * time.Millisecond) // nothing shows that the server has seen it
			case "cancel":
				go func() { canceled <- s.call("tasks/cancel", map[string]any{"id": task.ID}) }()
				for s.f.called("cancel") == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			close(finish)
			end := "settle"
			if c.burns == 0 {
				end = "release"
			}
			for deadline := time.Now().Add(2 * time.Minute); s.f.called(end) == 0; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("no %s: %v", end, s.f.calls)
				}
			}
			if c.leave == "cancel" {
				if r := <-canceled; (r.Error == nil) != (c.state == "canceled") || r.Error != nil && r.Error.Code != -32002 {
					t.Errorf("%s", r.raw)
				}
			}
			var got *reply
			for range 1000 {
				if got = s.call("tasks/get", map[string]any{"id": task.ID}); got.Result.Status.State != "working" {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			if got.Result.Status.State != c.state || ann.Balance() != before-c.burns || s.f.called("settle")+s.f.called("release") != 1 {
				t.Errorf("%s, balance %s of %s, %v", got.raw, ann.Balance(), before, s.f.calls)
			}
		})
	}
	defer func() {
		if recover() == nil {
			t.Error("another value is taken")
		}
	}()
	paida2a.Handler(svc.Facilitator(), nil, paida2a.Config{OnDisconnect: 7})
}

// TestLongTask: the hold of a task that takes longer is renewed, also when the caller has hung up, since the task can be fetched later. It
// is not renewed when the task was canceled. A stream gets comments meanwhile.
func TestLongTask(t *testing.T) {
	t.Parallel()
	const hold = 6 * time.Second
	for leave, c := range map[string]struct {
		work    time.Duration
		state   string
		burns   toll.Credits
		renewed int // at least; 0: never
	}{
		"":        {16 * time.Second, "completed", 5, 3},
		"hang up": {13 * time.Second, "completed", 5, 3},
		"cancel":  {13 * time.Second, "canceled", 0, 0},
	} {
		t.Run(leave, func(t *testing.T) {
			t.Parallel()
			svc := tolltest.New(t)
			s := open(t, svc, func(cfg *paida2a.Config) { cfg.HoldSecs = int(hold / time.Second) })
			started := make(chan struct{})
			s.agent.work = func(ctx context.Context, r *a2asrv.RequestContext, q eventqueue.Queue) error {
				close(started)
				time.Sleep(c.work) // it does not heed its context
				return answer(ctx, r, q)
			}
			ann := svc.Subscriber(100)
			task := s.ask()
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			req, err := http.NewRequestWithContext(ctx, "POST", s.url+"/", strings.NewReader(request("message/stream", submitted(task.ID, s.payload(task, ann)))))
			must.Do(t, err)
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("X-A2A-Extensions", paida2a.ExtensionURI)
			res := must.Get(http.DefaultClient.Do(req))(t)
			defer res.Body.Close()
			<-started
			switch leave {
			case "":
				body, err := io.ReadAll(res.Body)
				if err != nil || !strings.Contains(string(body), "\n\n: \n\n") {
					t.Errorf("no comment in the stream: %s, %v", body, err)
				}
			case "hang up":
				hangUp()
			case "cancel":
				if r := s.call("tasks/cancel", map[string]any{"id": task.ID}); r.Error != nil {
					t.Errorf("%s", r.raw)
				}
			}
			got := s.call("tasks/get", map[string]any{"id": task.ID})
			for deadline := time.Now().Add(2 * time.Minute); got.Result.Status.State == "working" && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
				got = s.call("tasks/get", map[string]any{"id": task.ID})
			}
			renewed := s.f.called("renew")
			if got.Result.Status.State != c.state || ann.Balance() != 100-c.burns || renewed < c.renewed || c.renewed == 0 && renewed > 0 {
				t.Errorf("%d renewals, balance %s, %s", renewed, ann.Balance(), got.raw)
			}
		})
	}
}
