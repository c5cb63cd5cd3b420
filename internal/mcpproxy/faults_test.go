package mcpproxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/internal/mcpproxy"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paidmcp"
)

// rough is a server whose tools can harm it: late answers after 300 ms, huge answers with 17 MiB, litter writes lines that are not
// messages, crash ends the process, and crash-later ends it after a call of end; taken answers when crash-later runs.
func rough() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "rough", Version: "1"}, nil)
	taken, end := make(chan struct{}), make(chan struct{})
	text := func(text string) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	}
	for name, run := range map[string]func() (*mcp.CallToolResult, error){
		"ping": func() (*mcp.CallToolResult, error) { return text("pong") },
		"late": func() (*mcp.CallToolResult, error) {
			time.Sleep(300 * time.Millisecond)
			return text("pong")
		},
		"huge": func() (*mcp.CallToolResult, error) { return text(strings.Repeat(`"id":1,`, 17<<20/7)) },
		"litter": func() (*mcp.CallToolResult, error) {
			fmt.Print("listening\n\n{\"jsonrpc\":\"2.0\"}\n[]\n{\"id\":\n")
			return text("done")
		},
		"crash": func() (*mcp.CallToolResult, error) {
			os.Exit(3)
			return nil, nil
		},
		"crash-later": func() (*mcp.CallToolResult, error) {
			close(taken)
			<-end
			time.Sleep(500 * time.Millisecond) // until the caller is seen to have left, and end is answered
			os.Exit(3)
			return nil, nil
		},
		"taken": func() (*mcp.CallToolResult, error) {
			<-taken
			return text("taken")
		},
		"end": func() (*mcp.CallToolResult, error) {
			close(end)
			return text("soon")
		},
		"pid": func() (*mcp.CallToolResult, error) { return text(fmt.Sprint(os.Getpid())) },
	} {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return run() })
	}
	return s
}

// roughHost puts the process of rough behind a price of 0.
func roughHost(t *testing.T) *hosted {
	return free(priced(t, service(t), mcpproxy.Command(nil, processOf("rough"))))
}

func free(h *hosted) *hosted {
	h.pay.Price(paidmcp.Tools, "*", paidmcp.Credits(0))
	return h
}

// count calls a tool until stop is closed, and counts the calls that are answered and the calls that fail.
func (h *hosted) count(tool string, stop chan struct{}, answered, failed *atomic.Int64, headers ...string) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		if r := h.post(call(1, tool, "", ""), headers...).rpc(h.t); r.Error.Code == 0 && len(r.Result.Content) == 1 && r.Result.Content[0].Text == "pong" {
			answered.Add(1)
		} else {
			failed.Add(1)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestOversizedAnswer: an answer above the bound fails its own call and no other, over both transports.
// T137
func TestOversizedAnswer(t *testing.T) {
	for name, h := range map[string]*hosted{
		"process": roughHost(t),
		"events":  free(priced(t, service(t), mcpproxy.Remote(nil, recorded(t, rough(), false).url, nil))),
		"json":    free(priced(t, service(t), mcpproxy.Remote(nil, recorded(t, rough(), true).url, nil))),
	} {
		t.Run(name, func(t *testing.T) {
			// One such answer was enough to end the connection. Each takes seconds under the race detector.
			calls := map[string]int64{"process": 12, "events": 3, "json": 3}[name]
			stop := make(chan struct{})
			var answered, failed, told atomic.Int64
			var honest, hostile sync.WaitGroup
			for range 3 {
				honest.Go(func() { h.count("ping", stop, &answered, &failed) })
			}
			for range 3 {
				hostile.Go(func() {
					for range calls / 3 {
						if r := h.post(call(2, "huge", "", "")).rpc(t); strings.Contains(r.Error.Message, "larger than 16777216 bytes") {
							told.Add(1)
						}
					}
				})
			}
			hostile.Wait()
			close(stop)
			honest.Wait()
			t.Logf("%d huge calls: %d honest calls answered, %d failed", calls, answered.Load(), failed.Load())
			if failed.Load() > 0 || answered.Load() == 0 || told.Load() != calls {
				t.Errorf("%d of %d huge calls were told why", told.Load(), calls)
			}
		})
	}
}

// TestLinesThatAreNoMessages: what a process writes beside its messages ends nothing.
// T137
func TestLinesThatAreNoMessages(t *testing.T) {
	h := roughHost(t)
	for range 3 {
		if got := h.post(call(1, "litter", "", "")).text(t); got != "done" {
			t.Errorf("%q", got)
		}
	}
}

// TestCrashingCalls: a caller whose calls end the upstream server is delayed. The server restarts at once, and each other caller loses
// at most one call for each crash, also with calls that are slow. Callers behind a proxy on this machine are told apart.
// T137
func TestCrashingCalls(t *testing.T) {
	for _, tool := range []string{"ping", "late"} {
		t.Run(tool, func(t *testing.T) {
			h := roughHost(t)
			stop := make(chan struct{})
			var answered, failed atomic.Int64
			var honest sync.WaitGroup
			for i := range 3 {
				honest.Go(func() {
					h.count(tool, stop, &answered, &failed, fmt.Sprintf("X-Forwarded-For: 203.0.113.9, 198.51.100.%d", i+1))
				})
			}
			delayed := 0
			for range 54 {
				r := h.post(call(2, "crash", "", ""), "X-Forwarded-For: 198.51.100.1, 203.0.113.9").rpc(t)
				if strings.Contains(r.Error.Message, "crashed the upstream server") {
					delayed++
				}
				time.Sleep(20 * time.Millisecond)
			}
			close(stop)
			honest.Wait()
			t.Logf("54 calls that end the server: %d delayed, %d honest calls answered, %d failed", delayed, answered.Load(), failed.Load())
			if crashes := int64(54 - delayed); crashes != 3 || failed.Load() > 3*crashes || answered.Load() < 10 {
				t.Errorf("%d crashes, %d honest calls answered, %d failed", crashes, answered.Load(), failed.Load())
			}
		})
	}
}

// TestCallerLeavesBeforeCrash: hanging up does not hide who ended the server.
// T137
func TestCallerLeavesBeforeCrash(t *testing.T) {
	h := roughHost(t)
	const header = "X-Forwarded-For: 203.0.113.9"
	for range 3 {
		before := h.post(call(1, "pid", "", "")).text(t)
		ctx, hangUp := context.WithCancel(t.Context())
		req := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, h.url+"/mcp", strings.NewReader(call(1, "crash-later", "", ""))))(t)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Forwarded-For", "203.0.113.9")
		left := make(chan error)
		go func() {
			res, err := http.DefaultClient.Do(req)
			if err == nil {
				res.Body.Close()
			}
			left <- err
		}()
		if got := h.post(call(1, "taken", "", "")).text(t); got != "taken" {
			t.Fatalf("%q", got)
		}
		hangUp()
		if <-left == nil {
			t.Fatal("the call was answered")
		}
		if got := h.post(call(1, "end", "", "")).text(t); got != "soon" {
			t.Fatalf("%q", got)
		}
		for end := time.Now().Add(long); ; time.Sleep(10 * time.Millisecond) {
			r := h.post(call(1, "pid", "", "")).rpc(t)
			if r.Error.Code == 0 && len(r.Result.Content) == 1 && r.Result.Content[0].Text != before {
				break
			}
			if time.Now().After(end) {
				t.Fatal("the server does not end")
			}
		}
	}
	if r := h.post(call(1, "ping", "", ""), header).rpc(t); !strings.Contains(r.Error.Message, "crashed the upstream server") {
		t.Errorf("%+v", r.Error)
	}
	if got := h.post(call(1, "ping", "", "")).text(t); got != "pong" {
		t.Errorf("%q", got)
	}
}

// TestProxyFaults_Completions: completions have no price, and so a rate for each caller.
// T137
func TestProxyFaults_Completions(t *testing.T) {
	// The clock is fixed: a slow machine takes so long for 125 calls that the rate allows one more.
	var now atomic.Int64
	now.Store(time.Now().UnixNano())
	h := pricedAt(t, service(t), mcpproxy.Command(nil, process), func() time.Time { return time.Unix(0, now.Load()) })
	body := message(1, "completion/complete", map[string]any{
		"ref": map[string]any{"type": "ref/prompt", "name": "greet"}, "argument": map[string]any{"name": "who", "value": "A"},
	})
	calls := func(n int, headers ...string) (answered int) {
		for range n {
			switch r := h.post(body, headers...).rpc(t); {
			case r.Error.Code == 0:
				answered++
			case r.Error.Code != -32005:
				t.Fatalf("%+v", r.Error)
			}
		}
		return answered
	}
	if n := calls(125); n != 120 {
		t.Errorf("%d answered", n)
	}
	if n := calls(5, "X-Forwarded-For: 203.0.113.9"); n != 5 {
		t.Errorf("%d of another caller answered", n)
	}
	now.Add(int64(time.Minute))
	if n := calls(1); n != 1 {
		t.Error("not answered a minute later")
	}
}
