package paidmcp_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/paidmcp"
)

// TestCallerGone: a caller who cancels or hangs up while the handler works pays for what it
// finishes, unless the builder, or the kind of the item, says otherwise.
// T133
func TestCallerGone(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(200)
	cancels := func(l *line) {
		l.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"slow"}}`)
		l.send(`{"jsonrpc":"2.0","id":"after","method":"ping"}`)
		l.wait("after")
	}
	hangsUp := func(l *line) {
		_ = l.in.Close()
		time.Sleep(100 * time.Millisecond) // nothing shows that the server has seen it
	}
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true}
	for _, c := range []struct {
		name     string
		item     string
		reads    *mcp.ToolAnnotations
		plain    bool // added by other means than Payments.AddTool
		all      paid.Disconnect
		options  []paidmcp.Option
		settles  bool
		leaves   func(*line)
		notLater bool // the tool fails once its caller has gone
	}{
		{name: "a tool", item: "tools/ask", settles: true, leaves: cancels},
		{name: "a tool, hung up", item: "tools/ask", settles: true, leaves: hangsUp},
		{name: "a tool that reads", item: "tools/ask", reads: reads, leaves: cancels},
		{name: "a tool that reads, hung up", item: "tools/ask", reads: reads, leaves: hangsUp},
		{name: "a tool that others added", item: "tools/ask", plain: true, settles: true, leaves: cancels},
		{name: "one that reads, that others added", item: "tools/ask", plain: true, reads: reads, leaves: cancels},
		{name: "a resource", item: "resources/doc://ask", leaves: cancels},
		{name: "a prompt", item: "prompts/ask", leaves: cancels},
		{name: "a resource, settled", item: "resources/doc://ask", all: paid.Settle, settles: true, leaves: cancels},
		{name: "a tool, released", item: "tools/ask", all: paid.Release, leaves: cancels},
		{
			name: "the item before the server", item: "tools/ask", all: paid.Release, settles: true, leaves: cancels,
			options: []paidmcp.Option{paidmcp.OnDisconnect(paid.Settle)},
		},
		{
			name: "a tool that reads, settled", item: "tools/ask", reads: reads, settles: true, leaves: cancels,
			options: []paidmcp.Option{paidmcp.OnDisconnect(paid.Settle)},
		},
		{name: "a tool that fails", item: "tools/ask", notLater: true, leaves: cancels},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &teller{Facilitator: svc.Facilitator()}
			log, _ := quiet()
			s := shopOf(svc, f, paidmcp.Config{
				PlanID: svc.Plan(), AgentID: svc.Agent(), ServerName: "demo", Log: log, OnDisconnect: c.all,
			}, append(c.options, paidmcp.Credits(3))...)
			tool := &mcp.Tool{Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`), Annotations: c.reads}
			h := func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: content}}}, s.run(ctx, req)
			}
			if c.plain {
				s.server.AddTool(tool, h)
			} else {
				s.p.AddTool(s.server, tool, h, append(c.options, paidmcp.Credits(3))...)
			}
			running, finish := make(chan struct{}), make(chan struct{})
			s.work = func(ctx context.Context, _ mcp.Request) error {
				close(running)
				<-finish
				switch {
				case c.notLater:
					return errWork
				case c.settles && ctx.Err() != nil:
					t.Errorf("the context of work that is settled ended: %v", context.Cause(ctx))
				case !c.settles:
					<-ctx.Done()
				}
				return nil // it does not look at its context
			}
			before := ann.Balance()
			l := dial(t, s.server, eras[0])
			l.send(l.request("slow", c.item, map[string]any{"x402/payment": ann.AccessToken}))
			<-running
			c.leaves(l)
			close(finish)
			end, want := "release", before
			if c.settles {
				end, want = "settle", before-3
			}
			within(t, "the "+end, func() bool { return f.called(end) == 1 })
			within(t, "the balance", func() bool { return ann.Balance() == want })
			if f.called("settle")+f.called("release") != 1 {
				t.Errorf("%v", f.calls)
			}
		})
	}
	for name, misuse := range map[string]func(){
		"option": func() { paidmcp.OnDisconnect(7) },
		"config": func() { paidmcp.New(svc.Facilitator(), paidmcp.Config{OnDisconnect: -1}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if why := recover(); why == nil {
					t.Error("it is taken")
				}
			}()
			misuse()
		})
	}
}

// TestHungUpOverHTTP is the same over HTTP, in each era, and bounds how long work for nobody
// may take.
// T133
func TestHungUpOverHTTP(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(50)
	h := host(t, svc, paidmcp.ServerConfig{})
	running, finish := make(chan struct{}, 1), make(chan struct{})
	paidmcp.AddTool(h.pay, h.mcp, &mcp.Tool{Name: "write"},
		func(ctx context.Context, _ *mcp.CallToolRequest, _ ask) (*mcp.CallToolResult, any, error) {
			running <- struct{}{}
			select {
			case <-finish:
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "written"}}}, nil, nil
		}, paidmcp.Credits(5))
	session, left := h.session(), toll.Credits(50)
	for name, send := range map[string]func() *http.Request{
		"a session": func() *http.Request {
			return h.request(call("x", "write", "", paidBy(ann.AccessToken)), "Mcp-Session-Id: "+session)
		},
		"a stranger": func() *http.Request { return h.request(call(7, "write", "", paidBy(ann.AccessToken))) },
		"the newer era": func() *http.Request {
			return h.request(call(7, "write", "", modernMeta(ann.AccessToken)), modern("tools/call", "write")...)
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			if res, err := http.DefaultClient.Do(send().WithContext(ctx)); err == nil {
				res.Body.Close()
				t.Errorf("%s: answered with %d", name, res.StatusCode)
			}
		}()
		<-running
		cancel()
		<-gone
		time.Sleep(100 * time.Millisecond) // nothing shows that the server has seen it
		finish <- struct{}{}
		left -= 5
		within(t, name+": the settlement", func() bool { return ann.Balance() == left })
	}
	b, err := ann.Client.Balance(t.Context(), svc.Plan())
	if err != nil || b.Held != 0 {
		t.Errorf("%+v: %v", b, err)
	}
}

// TestHoldEnds: work for a caller who left ends with its hold, and a stream that has begun ends
// at once and is settled.
// T133
func TestHoldEnds(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(50)
	f := &teller{Facilitator: svc.Facilitator()}
	log, _ := quiet()
	cfg := paidmcp.Config{PlanID: svc.Plan(), AgentID: svc.Agent(), ServerName: "demo", Log: log, HoldSecs: 1}
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"slow"}}`

	s := shopOf(svc, f, cfg, paidmcp.Credits(3))
	running, cause := make(chan struct{}), make(chan error, 1)
	s.work = func(ctx context.Context, _ mcp.Request) error {
		close(running)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil
	}
	l := dial(t, s.server, eras[0])
	l.send(l.request("slow", items[0], map[string]any{"x402/payment": ann.AccessToken}))
	<-running
	l.send(cancel)
	if err := <-cause; err != paid.ErrHoldEnded {
		t.Errorf("the work ended with %v", err)
	}
	within(t, "the release", func() bool { return f.called("release") == 1 })

	s = shopOf(svc, f, paidmcp.Config{PlanID: svc.Plan(), AgentID: svc.Agent(), ServerName: "demo", Log: log}, paidmcp.Credits(3), paidmcp.Stream())
	running = make(chan struct{})
	s.work = func(ctx context.Context, req mcp.Request) error {
		err := req.GetSession().(*mcp.ServerSession).NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: "p", Message: "first part"})
		close(running)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return err
	}
	l = dial(t, s.server, eras[1])
	l.send(l.request("slow", items[0], map[string]any{"x402/payment": ann.AccessToken, "progressToken": "p"}))
	<-running
	l.send(cancel)
	if err := <-cause; err == paid.ErrHoldEnded || err == nil {
		t.Errorf("the stream ended with %v", err)
	}
	within(t, "the settlement", func() bool { return ann.Balance() == 47 })
	if strings.Contains(l.sent(), content) {
		t.Error(l.sent())
	}
}
