package paidmcp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paidmcp"
	"github.com/tollhq/toll/x402"
)

// told is an event of a stream, as a client reads it.
type told struct{ id, data, retry string }

// stream is an answer that a client reads event by event.
type stream struct {
	t      *testing.T
	cancel context.CancelFunc
	res    *http.Response
	in     *bufio.Reader
}

// stream sends a request and reads nothing of its answer yet.
func (h *hosted) stream(t *testing.T, method, body string, headers ...string) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	t.Cleanup(cancel)
	req := h.request(body, append(headers, "Accept: application/json, text/event-stream")...).WithContext(ctx)
	req.Method = method
	res := must.Get(http.DefaultClient.Do(req))(t)
	t.Cleanup(func() { res.Body.Close() })
	if got := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || got != "text/event-stream" || res.Header.Get("X-Accel-Buffering") != "no" {
		t.Fatalf("%d %s", res.StatusCode, got)
	}
	return &stream{t, cancel, res, bufio.NewReader(res.Body)}
}

// next returns the next event, false at the end of the stream.
func (s *stream) next() (e told, ok bool) {
	s.t.Helper()
	for {
		line, err := s.in.ReadString('\n')
		switch name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); {
		case err == io.EOF && line == "":
			return e, false
		case err != nil:
			s.t.Fatal(err)
		case line == "\n":
			return e, true
		case name == "id":
			e.id = value
		case name == "data":
			e.data = value
		case name == "retry":
			e.retry = value
		}
	}
}

func (s *stream) rest() (all []told) {
	s.t.Helper()
	for e, ok := s.next(); ok; e, ok = s.next() {
		all = append(all, e)
	}
	return all
}

// cut breaks the connection.
func (s *stream) cut() {
	s.cancel()
	s.res.Body.Close()
}

// again is the request of a client that comes back.
func again(event string, headers ...string) []string {
	return append(append([]string(nil), headers...), "Last-Event-ID: "+event)
}

// story is a paid tool that streams three parts, each when it is told to.
type story struct {
	step  chan struct{}
	ended chan error // with the error of its handler
	ran   atomic.Int64
}

func (h *hosted) addStory() *story {
	s := &story{step: make(chan struct{}, 3), ended: make(chan error, 8)}
	paidmcp.AddTool(h.pay, h.mcp, &mcp.Tool{Name: "story"}, func(ctx context.Context, req *mcp.CallToolRequest, in ask) (_ *mcp.CallToolResult, _ any, err error) {
		s.ran.Add(1)
		defer func() { s.ended <- err }()
		for i := range 3 {
			select {
			case <-s.step:
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			}
			if err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: req.Params.GetProgressToken(), Progress: float64(i + 1), Message: fmt.Sprintf("part %d of %s", i+1, in.Q),
			}); err != nil {
				return nil, nil, err
			}
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "the end of " + in.Q}}}, nil, nil
	}, paidmcp.Stream(), paidmcp.Credits(5))
	return s
}

// begin calls the story and reads its first part.
func (h *hosted) begin(t *testing.T, s *story, token, q string, headers ...string) (*stream, told) {
	t.Helper()
	s.step <- struct{}{}
	c := h.stream(t, http.MethodPost, call(7, "story", q, fmt.Sprintf(`{"x402/payment":%q,"progressToken":"p"}`, token)), headers...)
	prime, _ := c.next()
	first, _ := c.next()
	if prime.id == "" || prime.data != "" || first.id == "" || first.id == prime.id || !strings.Contains(first.data, "part 1 of "+q) {
		t.Fatalf("%+v %+v", prime, first)
	}
	return c, first
}

func (s *story) goOn() {
	s.step <- struct{}{}
	s.step <- struct{}{}
}

func (s *story) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(long):
		t.Fatal("the call goes on")
		return nil
	}
}

// isStory reports whether these are the events of the story from the part on, to its paid end.
func isStory(all []told, part int, q string) bool {
	if len(all) != 5-part {
		return false
	}
	for i, e := range all[:len(all)-1] {
		if !strings.Contains(e.data, fmt.Sprintf("part %d of %s", part+i, q)) || i > 0 && e.id == all[i-1].id {
			return false
		}
	}
	last := all[len(all)-1]
	return strings.Contains(last.data, "the end of "+q) && strings.Contains(last.data, "x402/payment-response") && !strings.Contains(last.data, "part ")
}

// refused wants the answer that an event is not kept.
func (h *hosted) refused(what string, headers ...string) {
	h.t.Helper()
	a := h.do(http.MethodGet, "/mcp", "", append(headers, "Accept: text/event-stream")...)
	if a.status != http.StatusBadRequest || !strings.Contains(a.body, `"unknown_event"`) {
		h.t.Errorf("%s: %d %s", what, a.status, a.body)
	}
}

// TestResume_PaidOnce: whoever lost the connection to a call comes back for what is missing, before or after its end, as often
// as they like, and pays once.
func TestResume_PaidOnce(t *testing.T) {
	svc := service(t)
	for name, signedIn := range map[string]bool{"signed in": true, "without a credential": false} {
		for order, early := range map[string]bool{"back at once": true, "back after the end": false} {
			t.Run(name+", "+order, func(t *testing.T) {
				h, ann := host(t, svc, paidmcp.ServerConfig{}), svc.Subscriber(20)
				s := h.addStory()
				var in []string
				if signedIn {
					in = append(in, bearer(ann.AccessToken))
				}
				in = append(in, "Mcp-Session-Id: "+h.session(in...))
				c, first := h.begin(t, s, ann.AccessToken, name, in...)
				c.cut()
				var back *stream
				if early {
					back = h.stream(t, http.MethodGet, "", again(first.id, in...)...)
				}
				s.goOn()
				must.Do(t, s.end(t), "the call was cancelled")
				if !early {
					back = h.stream(t, http.MethodGet, "", again(first.id, in...)...)
				}
				missed := back.rest()
				if !isStory(missed, 2, name) {
					t.Errorf("%+v", missed)
				}
				prime := strings.TrimSuffix(first.id, "_1") + "_0"
				if all := h.stream(t, http.MethodGet, "", again(prime, in...)...).rest(); !isStory(all, 1, name) || fmt.Sprint(all[1:]) != fmt.Sprint(missed) {
					t.Errorf("%+v", all)
				}
				if all := h.stream(t, http.MethodGet, "", again(missed[2].id, in...)...).rest(); len(all) != 0 {
					t.Errorf("%+v", all)
				}
				if s.ran.Load() != 1 || ann.Balance() != 15 {
					t.Errorf("%d runs, balance %v", s.ran.Load(), ann.Balance())
				}
			})
		}
	}
}

// TestResumeOfAnother: the number of an event is worth nothing to another principal, nor in another session.
// T135
func TestResumeOfAnother(t *testing.T) {
	svc := service(t)
	h, ann, eve := host(t, svc, paidmcp.ServerConfig{}), svc.Subscriber(20), svc.Subscriber(20)
	s := h.addStory()
	annIn, eveIn := bearer(ann.AccessToken), bearer(eve.AccessToken)
	session := "Mcp-Session-Id: " + h.session(annIn)
	c, first := h.begin(t, s, ann.AccessToken, "ann", annIn, session)
	c.cut()
	foreign := func() {
		t.Helper()
		for _, headers := range [][]string{{eveIn, session}, {session}, {eveIn, "Mcp-Session-Id: " + strings.Repeat("0", 32)}} {
			a := h.do(http.MethodGet, "/mcp", "", append(again(first.id, headers...), "Accept: text/event-stream")...)
			if a.status != http.StatusNotFound || strings.Contains(a.body, "of ann") {
				t.Errorf("%v: %d %s", headers, a.status, a.body)
			}
		}
		h.refused("another session of hers", again(first.id, annIn, "Mcp-Session-Id: "+h.session(annIn))...)
		h.refused("a session of another", again(first.id, eveIn, "Mcp-Session-Id: "+h.session(eveIn))...)
		h.refused("a session of nobody", again(first.id, "Mcp-Session-Id: "+h.session())...)
	}
	foreign()
	s.goOn()
	must.Check(t, s.end(t))
	foreign()
	id, _, _ := strings.Cut(first.id, "_")
	for _, event := range []string{"", id, id + "_", id + "_-1", id + "_5", id + "_99999999999999999999", id + "_1_1", id + "_x", "_1", strings.ToLower(id) + "_1"} {
		h.refused(fmt.Sprintf("%q", event), again(event, annIn, session)...)
	}
	h.refused("two at once", append(again(first.id, annIn, session), "Last-Event-ID: "+first.id)...)
	if all := h.stream(t, http.MethodGet, "", again(first.id, annIn, session)...).rest(); !isStory(all, 2, "ann") {
		t.Errorf("%+v", all)
	}
	if ann.Balance() != 15 || eve.Balance() != 20 {
		t.Errorf("balances %v, %v", ann.Balance(), eve.Balance())
	}
	// With the session goes what it keeps.
	if a := h.do(http.MethodDelete, "/mcp", "", annIn, session); a.status != http.StatusNoContent || h.server.Kept() != 0 {
		t.Errorf("%d, %d bytes are kept", a.status, h.server.Kept())
	}
	if a := h.do(http.MethodGet, "/mcp", "", append(again(first.id, annIn, session), "Accept: text/event-stream")...); a.status != http.StatusNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestResume_NewestConnection: a connection that still looks alive makes room for the one by which its client comes back.
func TestResume_NewestConnection(t *testing.T) {
	svc := service(t)
	h, ann := host(t, svc, paidmcp.ServerConfig{}), svc.Subscriber(5)
	s := h.addStory()
	in := "Mcp-Session-Id: " + h.session()
	c, first := h.begin(t, s, ann.AccessToken, "both", in)
	back := h.stream(t, http.MethodGet, "", again(first.id, in)...)
	if all := c.rest(); len(all) != 0 {
		t.Errorf("the first connection still gets %+v", all)
	}
	s.goOn()
	if all := back.rest(); !isStory(all, 2, "both") || ann.Balance() != 0 {
		t.Errorf("%+v, balance %v", all, ann.Balance())
	}
}

// TestResume_Bounds: the memory of what is kept has a bound, for all and for one address; what made room is an error of its own.
func TestResume_Bounds(t *testing.T) {
	const most = 64 << 10
	h := host(t, service(t), paidmcp.ServerConfig{ResumeBytes: most})
	talk := func(size int, in string) []told {
		t.Helper()
		all := h.stream(t, http.MethodPost, call(1, "talk", strings.Repeat("x", size), `{"progressToken":"p"}`), in).rest()
		if len(all) != 3 || strings.Count(all[1].data+all[2].data, "x") < 2*size {
			t.Fatalf("%d events", len(all))
		}
		return all
	}
	one := "Mcp-Session-Id: " + h.session()
	first := talk(2000, one)
	for range 8 {
		talk(2000, one)
		if n := h.server.Kept(); n > most/4 {
			t.Fatalf("one session keeps %d bytes", n)
		}
	}
	h.refused("the first of a session", again(first[0].id, one)...)
	last := talk(2000, one)
	if all := h.stream(t, http.MethodGet, "", again(last[0].id, one)...).rest(); fmt.Sprint(all) != fmt.Sprint(last[1:]) {
		t.Errorf("%+v", all)
	}

	// Others need the room, and the stream that ended first makes it.
	for range 20 {
		in := "Mcp-Session-Id: " + h.session()
		all := talk(2000, in)
		if got := h.stream(t, http.MethodGet, "", again(all[1].id, in)...).rest(); len(got) != 1 || got[0] != all[2] {
			t.Errorf("%+v", got)
		}
		if n := h.server.Kept(); n > most {
			t.Fatalf("%d bytes are kept", n)
		}
	}
	h.refused("what ended first", again(last[0].id, one)...)

	// Who is connected gets what is too large to be kept.
	large := h.stream(t, http.MethodPost, call(1, "talk", strings.Repeat("x", most), `{"progressToken":"p"}`), one).rest()
	if len(large) != 2 || strings.Count(large[0].data+large[1].data, "x") < 2*most || large[1].id != "" {
		t.Errorf("%d events", len(large))
	}
	h.refused("a stream that is too large", again(large[0].id, one)...)
}

// TestResume_Cancelled: a call that goes on without its client is cancelled when nobody can come back for it, and when its
// client says so.
func TestResume_Cancelled(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(50)
	for name, test := range map[string]struct {
		cfg paidmcp.ServerConfig
		end func(h *hosted, in string)
	}{
		"its time is over": {paidmcp.ServerConfig{ResumeTime: time.Millisecond}, func(*hosted, string) {}},
		"its session ends": {end: func(h *hosted, in string) { h.do(http.MethodDelete, "/mcp", "", in) }},
		"the server ends": {end: func(h *hosted, _ string) {
			must.Check(t, h.server.Close(context.Background()))
		}},
		"its client says so": {end: func(h *hosted, in string) {
			h.post(message(nil, "notifications/cancelled", map[string]any{"requestId": 7}), in)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := host(t, svc, test.cfg)
			s := h.addStory()
			in := "Mcp-Session-Id: " + h.session()
			c, _ := h.begin(t, s, ann.AccessToken, "nobody", in)
			c.cut()
			test.end(h, in)
			if err := s.end(t); err == nil {
				t.Error("the call came to its end")
			}
		})
	}
	t.Run("nothing is kept", func(t *testing.T) {
		h := host(t, svc, paidmcp.ServerConfig{ResumeBytes: -1})
		s := h.addStory()
		in := "Mcp-Session-Id: " + h.session()
		s.step <- struct{}{}
		c := h.stream(t, http.MethodPost, call(7, "story", "nobody", fmt.Sprintf(`{"x402/payment":%q,"progressToken":"p"}`, ann.AccessToken)), in)
		if e, _ := c.next(); e.id != "" || !strings.Contains(e.data, "part 1") {
			t.Errorf("%+v", e)
		}
		c.cut()
		if err := s.end(t); err == nil {
			t.Error("the call came to its end")
		}
		h.refused("any event", again("A_1", in)...)
	})
}

// TestResumeUnpaid: of a call that was not settled nothing can be fetched later, neither its result nor what waited for it.
// T132
func TestResumeUnpaid(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(20)
	f := &teller{Facilitator: svc.Client(), settle: func(*x402.SettleRequest) (*x402.SettleResponse, error) {
		return &x402.SettleResponse{ErrorReason: "insufficient_credits"}, nil
	}}
	h := hostOn(t, svc, f, paidmcp.ServerConfig{})
	end := make(chan struct{})
	paidmcp.AddTool(h.pay, h.mcp, &mcp.Tool{Name: "slow"}, func(ctx context.Context, req *mcp.CallToolRequest, _ ask) (*mcp.CallToolResult, any, error) {
		p := &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 1}
		if err := req.Session.NotifyProgress(ctx, p); err != nil {
			return nil, nil, err
		}
		select {
		case <-end:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		p.Message = content
		err := req.Session.NotifyProgress(ctx, p)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: content}}}, nil, err
	}, paidmcp.Credits(2))
	in := "Mcp-Session-Id: " + h.session()
	c := h.stream(t, http.MethodPost, call(7, "slow", "", fmt.Sprintf(`{"x402/payment":%q,"progressToken":"p"}`, ann.AccessToken)), in)
	prime, _ := c.next()
	c.cut()
	close(end)
	all := h.stream(t, http.MethodGet, "", again(prime.id, in)...).rest()
	if len(all) != 2 || !strings.Contains(all[1].data, "settlement failed") || strings.Contains(fmt.Sprint(all), content) || f.called("settle") == 0 {
		t.Errorf("%+v", all)
	}
	if ann.Balance() != 20 {
		t.Errorf("balance %v", ann.Balance())
	}
}

// TestResume_Polling: a handler closes the stream of its call, and a client that knows of it comes back; the stream of one that
// does not stays open.
func TestResume_Polling(t *testing.T) {
	svc := service(t)
	h, ann := host(t, svc, paidmcp.ServerConfig{}), svc.Subscriber(4)
	back := make(chan struct{}, 1)
	paidmcp.AddTool(h.pay, h.mcp, &mcp.Tool{Name: "poll"}, func(ctx context.Context, req *mcp.CallToolRequest, in ask) (*mcp.CallToolResult, any, error) {
		h.ran.Add(1)
		if len(req.Extra.Header[":stream"]) > 0 {
			t.Error("a handler sees the secret of its stream")
		}
		req.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: time.Millisecond})
		if in.Q == "wait" {
			select {
			case <-back:
			case <-ctx.Done():
			}
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "polled"}}}, nil, nil
	}, paidmcp.Credits(2))
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: h.url + "/mcp", DisableStandaloneSSE: true, HTTPClient: &http.Client{Transport: carrier(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && r.Header.Get("Last-Event-ID") != "" {
				back <- struct{}{}
			}
			return http.DefaultTransport.RoundTrip(r)
		})},
	}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	must.Do(t, err)
	defer session.Close()
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{
		Name: "poll", Arguments: ask{Q: "wait"}, Meta: mcp.Meta{"x402/payment": ann.AccessToken},
	})
	if err != nil || res.IsError || res.Content[0].(*mcp.TextContent).Text != "polled" || res.Meta["x402/payment-response"] == nil {
		t.Fatalf("%v: %+v", err, res)
	}

	old := h.post(strings.Replace(initialize, "2025-11-25", "2025-06-18", 1)).header.Get("Mcp-Session-Id")
	if got := h.post(call(1, "poll", "", paidBy(ann.AccessToken)), "Mcp-Session-Id: "+old).text(t); got != "polled" {
		t.Error(got)
	}
	if h.ran.Load() != 2 || ann.Balance() != 0 {
		t.Errorf("%d runs, balance %v", h.ran.Load(), ann.Balance())
	}
}
