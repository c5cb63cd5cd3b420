package paidmcp_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/paidmcp"
	"github.com/tollhq/toll/x402"
)

// TestStream sends what a streaming item says at once, and settles at its end, or where it was cut.
func TestStream(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(100)
	f := &teller{Facilitator: svc.Facilitator()}
	var down atomic.Bool
	f.settle = func(r *x402.SettleRequest) (*x402.SettleResponse, error) {
		if down.Load() {
			return nil, toll.NewError(toll.CodeUnavailable)
		}
		return f.Facilitator.Settle(context.Background(), r)
	}
	log, _ := quiet()
	q := paid.NewQueue()
	alarms := make(chan paid.Unsettled, 10)
	s := shopOf(svc, f, paidmcp.Config{
		PlanID: svc.Plan(), AgentID: svc.Agent(), ServerName: "demo", Log: log, Queue: q, OnUnsettled: func(u paid.Unsettled) { alarms <- u },
	}, paidmcp.Stream(), paidmcp.Credits(3))
	var end error
	sentOne := make(chan struct{}, 1)
	s.work = func(ctx context.Context, req mcp.Request) error {
		err := req.GetSession().(*mcp.ServerSession).NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: "p", Progress: 1, Message: "first part"})
		sentOne <- struct{}{}
		if end == context.Canceled {
			<-ctx.Done()
		} else if end != nil {
			return end
		}
		return err
	}
	meta := map[string]any{"x402/payment": ann.AccessToken, "progressToken": "p"}
	l := dial(t, s.server, eras[1])
	a := l.callMeta(items[0], meta)
	if a.paid(t); !strings.Contains(l.sent(), "first part") || ann.Balance() != 97 {
		t.Errorf("%s, balance %s", l.sent(), ann.Balance())
	}
	<-sentOne

	end = errWork
	if r := l.callMeta(items[0], meta).result(t); !r.IsError || ann.Balance() != 94 {
		t.Errorf("a stream that failed after something was sent: %+v, balance %s", r, ann.Balance())
	}
	<-sentOne

	end = context.Canceled
	l.send(l.request("cut", items[0], meta))
	<-sentOne
	l.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"cut"}}`)
	within(t, "the settlement", func() bool { return ann.Balance() == 91 })

	end = nil
	down.Store(true)
	if pr := l.callMeta(items[0], meta).demand(t, items[0]); !strings.HasPrefix(pr.Error, "settlement pending") {
		t.Errorf("%+v", pr)
	}
	if u := <-alarms; u.Final || u.Credits != 3 || u.Payer != ann.Address.String() || u.Bytes == 0 || q.Len() != 1 {
		t.Errorf("%+v", u)
	}
	down.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	if err := q.Drain(ctx); err != nil || ann.Balance() != 88 {
		t.Errorf("%v, balance %s", err, ann.Balance())
	}
	if f.called("release") != 0 {
		t.Errorf("%v", f.calls)
	}
}

// TestNotices: what an item says waits for the settlement and comes before the result, in order; numbers alone pass at once.
func TestNotices(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(10)
	f := &teller{Facilitator: svc.Facilitator()}
	s := newShop(svc, f)
	var l *line
	var early string
	s.work = func(ctx context.Context, req mcp.Request) error {
		session := req.GetSession().(*mcp.ServerSession)
		p := &mcp.ProgressNotificationParams{ProgressToken: "p", Progress: 1}
		for _, message := range []string{"", "word one", "word two"} {
			p.Message = message
			if err := session.NotifyProgress(ctx, p); err != nil {
				return err
			}
			p.Progress++
		}
		within(t, "bare progress", func() bool { return strings.Contains(l.sent(), `"progress":1`) })
		early = l.sent()
		return nil
	}
	for _, era := range eras {
		l = dial(t, s.server, era)
		a := l.callMeta(items[0], map[string]any{"x402/payment": ann.AccessToken, "progressToken": "p"})
		a.paid(t)
		all := l.sent()
		if strings.Contains(early, "word") {
			t.Errorf("before the settlement: %s", early)
		}
		one, two, result := strings.Index(all, "word one"), strings.Index(all, "word two"), strings.Index(all, content)
		if one < 0 || two < one || result < two || !strings.Contains(all, `"progress":2`) || !strings.Contains(all, `"progress":3`) {
			t.Errorf("%s", all)
		}
	}
}
