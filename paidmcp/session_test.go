package paidmcp_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paidmcp"
)

// TestSessions_Bounded: when there are too many, strangers go first, and then who rested longest; who is being served stays.
func TestSessions_Bounded(t *testing.T) {
	svc := service(t)
	h := host(t, svc, paidmcp.ServerConfig{MaxSessions: 3})
	alive := func(id string) bool {
		return h.post(message(1, "ping", nil), "Mcp-Session-Id: "+id).status == http.StatusOK
	}
	first, second := h.session(), h.session()
	stranger := h.post(message(1, "ping", nil)).header.Get("Mcp-Session-Id")
	third := h.session()
	if alive(stranger) || !alive(first) || !alive(second) || !alive(third) {
		t.Error("not the stranger went")
	}
	fourth := h.session()
	if alive(first) || !alive(second) || !alive(fourth) {
		t.Error("not the one that rested longest went")
	}
	// A stranger rests minutes, others hours.
	svc.Advance(10 * time.Minute)
	if !alive(fourth) {
		t.Error("a session ended after ten minutes")
	}
	h.do(http.MethodDelete, "/mcp", "", "Mcp-Session-Id: "+fourth)
	stranger = h.post(message(1, "ping", nil)).header.Get("Mcp-Session-Id")
	svc.Advance(10 * time.Minute)
	if alive(stranger) {
		t.Error("a stranger stayed for ten minutes")
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	one := host(t, svc, paidmcp.ServerConfig{MaxSessions: 1})
	id := one.session()
	listening := make(chan struct{})
	go func(id string) { defer close(listening); one.listen(ctx, "Mcp-Session-Id: "+id) }(id)
	for end := time.Now().Add(long); ; {
		a := one.post(initialize)
		if a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") != "" && a.header.Get("Mcp-Session-Id") == "" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d %s", a.status, a.body)
		}
		// The stream was not open yet, and its session made room.
		if a.status == http.StatusOK {
			id = a.header.Get("Mcp-Session-Id")
			go func(id string) { one.listen(ctx, "Mcp-Session-Id: "+id) }(id)
		}
	}
	cancel()
	<-listening
}

// waiting is a paid tool that says when it runs and ends when it is told to.
type waiting struct {
	running chan struct{}
	end     chan struct{}
}

func (h *hosted) addWaiting() *waiting {
	w := &waiting{make(chan struct{}, 1), make(chan struct{})}
	paidmcp.AddTool(h.pay, h.mcp, &mcp.Tool{Name: "wait", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, func(ctx context.Context, _ *mcp.CallToolRequest, _ ask) (*mcp.CallToolResult, any, error) {
		w.running <- struct{}{}
		select {
		case <-w.end:
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "waited"}}}, nil, nil
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}, paidmcp.Credits(5))
	return w
}

// TestClientGone: an answer of a tool that reads, which nobody can get any more, is not paid, in either era.
// T133
func TestClientGone(t *testing.T) {
	svc := service(t)
	h, ann := host(t, svc, paidmcp.ServerConfig{}), svc.Subscriber(5)
	w := h.addWaiting()
	session := h.session()
	for name, send := range map[string]func() *http.Request{
		"a session": func() *http.Request {
			return h.request(call("x", "wait", "", paidBy(ann.AccessToken)), "Mcp-Session-Id: "+session)
		},
		"a stranger": func() *http.Request { return h.request(call(7, "wait", "", paidBy(ann.AccessToken))) },
		"the newer era": func() *http.Request {
			return h.request(call(7, "wait", "", modernMeta(ann.AccessToken)), modern("tools/call", "wait")...)
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
		<-w.running
		cancel()
		<-gone
		// All five credits can be set aside again, once the hold was given back.
		for end := time.Now().Add(long); ; time.Sleep(5 * time.Millisecond) {
			b := must.Get(ann.Client.Balance(t.Context(), svc.Plan()))(t)
			if b.Balance == 5 && b.Held == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", name, b)
			}
		}
	}
	close(w.end)
	if got := h.post(call(1, "wait", "", paidBy(ann.AccessToken))).text(t); got != "waited" || ann.Balance() != 0 {
		t.Errorf("%q, balance %v", got, ann.Balance())
	}
}

func (h *hosted) request(body string, headers ...string) *http.Request {
	r := must.Get(http.NewRequest(http.MethodPost, h.url+"/mcp", strings.NewReader(body)))(h.t)
	r.Header.Set("Content-Type", "application/json")
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	return r
}

// TestServe_Ends: streams end with the server, and a call that runs still gets its answer.
func TestServe_Ends(t *testing.T) {
	svc := service(t)
	h, ann := host(t, svc, paidmcp.ServerConfig{}), svc.Subscriber(10)
	w := h.addWaiting()
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	h.url = "http://" + ln.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- h.server.Serve(ctx, ln) }()

	changed := make(chan struct{}, 4)
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
			ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
		})
		session, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: h.url + "/mcp", MaxRetries: -1}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(version, err)
		}
		defer session.Close()
	}
	// Both hear of a new tool, whichever era they are of.
	paidmcp.AddTool(h.pay, h.mcp, &mcp.Tool{Name: "new"}, func(context.Context, *mcp.CallToolRequest, ask) (*mcp.CallToolResult, any, error) {
		return nil, nil, nil
	})
	for range 2 {
		select {
		case <-changed:
		case <-time.After(long):
			t.Fatal("a client does not hear of changes")
		}
	}
	answers := make(chan httpAnswer, 2)
	id := h.session()
	go func() { answers <- h.post(call(1, "wait", "", paidBy(ann.AccessToken)), "Mcp-Session-Id: "+id) }()
	<-w.running
	go func() {
		answers <- h.post(call(1, "wait", "", modernMeta(ann.AccessToken)), modern("tools/call", "wait")...)
	}()
	<-w.running
	stop()
	select {
	case err := <-served:
		t.Fatal("it ended during its calls:", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(w.end)
	for range 2 {
		if got := (<-answers).text(t); got != "waited" {
			t.Error(got)
		}
	}
	select {
	case err := <-served:
		must.Check(t, err)
	case <-time.After(long):
		t.Fatal("it does not end")
	}
	if b := ann.Balance(); b != 0 {
		t.Errorf("balance %v", b)
	}
}

// TestSessions_TransportPanics: a fault of the transport ends its request alone.
func TestSessions_TransportPanics(t *testing.T) {
	h := host(t, service(t), paidmcp.ServerConfig{})
	broken, other := h.session(), h.session()
	h.server.BreakTransport(broken)
	if a := h.post(message(1, "ping", nil), "Mcp-Session-Id: "+broken); a.status != http.StatusInternalServerError {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := h.post(message(2, "ping", nil), "Mcp-Session-Id: "+other); a.status != http.StatusOK {
		t.Errorf("another session: %d %s", a.status, a.body)
	}
}
