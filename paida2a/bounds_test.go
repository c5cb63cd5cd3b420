package paida2a_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2asrv"
	"github.com/a2aproject/a2a-go/a2asrv/eventqueue"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paida2a"
	"github.com/tollhq/toll/tolltest"
)

func TestRequests(t *testing.T) {
	svc := tolltest.New(t)
	s := open(t, svc, func(c *paida2a.Config) { c.MaxBodyBytes = 4 << 10 })
	hello := message("", "Hello", nil)
	for name, c := range map[string]struct {
		body string
		code int
	}{
		"batch":        {"[" + request("message/send", hello) + "]", -32700},
		"twice":        {`{"jsonrpc":"2.0","id":1,"method":"message/send","method":"tasks/get","params":{}}`, -32700},
		"notification": {`{"jsonrpc":"2.0","method":"message/send","params":{}}`, -32600},
		"id":           {`{"jsonrpc":"2.0","id":{},"method":"message/send","params":{}}`, -32600},
		"large":        {request("message/send", message("", strings.Repeat("x", 5<<10), nil)), -32600},
		"no message":   {request("message/send", map[string]any{}), -32602},
		"no task":      {request("message/send", message("none", "Hello", nil)), -32001},
		"method":       {request("tasks/list", map[string]any{}), -32601},
		"push":         {request("tasks/pushNotificationConfig/get", map[string]any{"id": "x"}), -32003},
	} {
		_, b := s.post(c.body, "https://other.example/v1, "+paida2a.ExtensionURI)
		var r reply
		if err := json.Unmarshal(b, &r); err != nil || r.Error == nil || r.Error.Code != c.code {
			t.Errorf("%s: %s", name, b)
		}
	}
	for _, header := range [][]string{nil, {"https://other.example/v1"}} {
		for _, method := range []string{"message/send", "message/stream"} {
			res, b := s.post(request(method, hello), header...)
			var r reply
			if err := json.Unmarshal(b, &r); err != nil || r.Error == nil || r.Error.Code != -32008 || !strings.Contains(r.Error.Message, paida2a.ExtensionURI) || res.Header.Get("X-A2A-Extensions") != "" {
				t.Errorf("%s: %s", method, b)
			}
		}
	}
	res, _ := s.post(request("message/send", hello), paida2a.ExtensionURI)
	if res.Header.Get("X-A2A-Extensions") != paida2a.ExtensionURI || res.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%v", res.Header)
	}
	for _, path := range []string{"/.well-known/agent.json", "/.well-known/agent-card.json"} {
		res := must.Get(http.Get(s.url + path))(t)
		var card a2a.AgentCard
		if err := json.NewDecoder(res.Body).Decode(&card); err != nil || card.URL != endpoint || card.ProtocolVersion == "" ||
			len(card.Capabilities.Extensions) != 1 || card.Capabilities.Extensions[0].URI != paida2a.ExtensionURI || !card.Capabilities.Extensions[0].Required {
			t.Errorf("%s: %+v %v", path, card, err)
		}
		_ = res.Body.Close()
	}
	task := s.ask()
	svc.Advance(2 * time.Hour)
	if r := s.call("tasks/get", map[string]any{"id": task.ID}); r.Error == nil || r.Error.Code != -32001 {
		t.Errorf("%s", r.raw)
	}
}

// TestRoom: tasks are bounded. Those that are not paid make room first, then those that ended; a task that runs stays.
func TestRoom(t *testing.T) {
	svc := tolltest.New(t)
	ann := svc.Subscriber(100)
	s := open(t, svc, func(c *paida2a.Config) { c.MaxTasks = 3 })
	there := func(id string, want bool) {
		t.Helper()
		if r := s.call("tasks/get", map[string]any{"id": id}); (r.Result != nil) != want {
			t.Errorf("%s, want %v", r.raw, want)
		}
	}
	ended := s.ask()
	payload := s.payload(ended, ann)
	s.pay(ended.ID, payload).Result.is(t, "completed", "payment-completed")
	first, second := s.ask(), s.ask()
	third := s.ask()
	there(ended.ID, true)
	there(first.ID, false)

	started, stop := make(chan struct{}), make(chan struct{})
	s.agent.work = func(ctx context.Context, r *a2asrv.RequestContext, q eventqueue.Queue) error {
		started <- struct{}{}
		<-stop
		return answer(ctx, r, q)
	}
	var wg sync.WaitGroup
	busy := []*told{second, third}
	for _, task := range busy {
		wg.Go(func() { s.pay(task.ID, ann.AccessToken).Result.is(t, "completed", "payment-completed") })
		<-started
	}
	last := s.ask()
	there(ended.ID, false)
	wg.Go(func() { s.pay(last.ID, ann.AccessToken).Result.is(t, "completed", "payment-completed") })
	<-started
	if r := s.call("message/send", message("", "And me?", nil)); r.Error == nil || r.Error.Code != -32000 {
		t.Errorf("%s", r.raw)
	}
	svc.Advance(2 * time.Hour)
	for _, task := range append(busy, last) {
		there(task.ID, true)
	}
	close(stop)
	wg.Wait()
	s.agent.work = nil
	// The service knows the payment after we have forgotten it.
	again := s.ask()
	if r := s.pay(again.ID, payload).Result.is(t, "failed", "payment-failed"); r.Status.Message.Metadata.Error != "DUPLICATE_SETTLEMENT" {
		t.Errorf("%+v", r)
	}
}

// TestPaidGoesLast: tasks that are declined, or opened without end by one address, push out neither
// what was paid nor the tasks of others.
// T135
func TestPaidGoesLast(t *testing.T) {
	svc := tolltest.New(t)
	ann := svc.Subscriber(100)
	s := open(t, svc, func(c *paida2a.Config) { c.MaxTasks = 32 })
	there := func(what, id string) {
		t.Helper()
		if r := s.call("tasks/get", map[string]any{"id": id}); r.Result == nil {
			t.Errorf("%s: %s", what, r.raw)
		}
	}
	ended := s.ask()
	s.pay(ended.ID, s.payload(ended, ann)).Result.is(t, "completed", "payment-completed")
	s.from = "192.0.2.1"
	honest := s.ask()
	s.from = "192.0.2.9"
	for range 50 {
		task := s.ask()
		s.call("message/send", message(task.ID, "No.", map[string]any{"x402.payment.status": "payment-rejected"})).Result.is(t, "failed", "payment-rejected")
	}
	there("a paid task, after others were declined", ended.ID)
	there("an open task of another, after others were declined", honest.ID)
	for range 50 {
		s.ask()
	}
	last := s.ask()
	there("a paid task, after others were opened", ended.ID)
	there("an open task of another, after others were opened", honest.ID)
	there("the last task", last.ID)
	s.from = ""
	for i := range 50 { // from everywhere
		s.from = fmt.Sprintf("198.51.100.%d", i)
		s.ask()
	}
	there("a paid task, after others came from everywhere", ended.ID)
}

// TestBytes: what nobody pays for does not fill the memory.
func TestBytes(t *testing.T) {
	svc := tolltest.New(t)
	s := open(t, svc, func(c *paida2a.Config) { c.MaxBytes = 16 << 10 })
	large := strings.Repeat("x", 5<<10)
	var ids []string
	for range 3 {
		ids = append(ids, s.call("message/send", message("", large, nil)).Result.ID)
	}
	if r := s.call("tasks/get", map[string]any{"id": ids[0]}); r.Error == nil {
		t.Error("the first task is still there")
	}
	s.call("message/send", message(ids[2], large, nil)).Result.is(t, "input-required", "payment-required")
	if r := s.call("tasks/get", map[string]any{"id": ids[1]}); r.Error == nil {
		t.Error("the second task is still there")
	}
	if r := s.call("message/send", message(ids[2], large, nil)); r.Error == nil || r.Error.Code != -32000 {
		t.Errorf("%s", r.raw)
	}
}
