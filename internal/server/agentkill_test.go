package server_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// The agent of F07 is this test binary, run again as a process of its own that kills itself at a point of a paid call.
const (
	envAgentPoint = "KILLED_AGENT_POINT"
	envAgentURL   = "KILLED_AGENT_URL"
	envAgentKey   = "KILLED_AGENT_KEY"
	envAgentPlan  = "KILLED_AGENT_PLAN"
)

const bigAnswer = 1 << 20

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// dying is a facilitator whose process ends at a point.
type dying struct {
	x402.Facilitator
	point string
}

func (d dying) Verify(ctx context.Context, req *x402.VerifyRequest) (*x402.VerifyResponse, error) {
	v, err := d.Facilitator.Verify(ctx, req)
	if err == nil {
		fmt.Println("request", v.AgentRequestID)
	}
	if d.point == "verified" {
		die()
	}
	return v, err
}

func (d dying) Settle(ctx context.Context, req *x402.SettleRequest) (*x402.SettleResponse, error) {
	switch d.point {
	case "handled":
		die()
	case "settle sent":
		go func() { _, _ = d.Facilitator.Settle(ctx, req) }()
		time.Sleep(500 * time.Microsecond)
		die()
	}
	r, err := d.Facilitator.Settle(ctx, req)
	if d.point == "settled" {
		die()
	}
	return r, err
}

// dyingWriter ends the process in the middle of an answer.
type dyingWriter struct {
	http.ResponseWriter
	armed bool
}

func (w *dyingWriter) Write(p []byte) (int, error) {
	if !w.armed {
		return w.ResponseWriter.Write(p)
	}
	_, _ = w.ResponseWriter.Write(p[:min(len(p), 1000)])
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	die()
	return 0, nil
}

func killedAgent(point string) {
	f := dying{client.New(os.Getenv(envAgentKey), client.WithURL(os.Getenv(envAgentURL))), point}
	h := paid.Handler(f, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if point == "handler" {
			die()
		}
		_, _ = w.Write(bytes.Repeat([]byte("paid"), bigAnswer/4))
	}), paid.Plan(toll.PlanID(os.Getenv(envAgentPlan))), paid.HoldSecs(1))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("listening", ln.Addr())
	_ = http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&dyingWriter{w, point == "answering"}, r)
	}))
}

// TestAgentProcessKilled kills the agent at every step of a paid call. Whoever called has no answer or a settled one,
// the lookup tells what became of the request, and a hold that nobody ends gives its credits back.
// F07
func TestAgentProcessKilled(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newScene(t, servertest.Options{Data: storetest.Dir(t)}, 1, 5)
	s.mint(100)
	token := s.token()
	left := toll.Credits(100)
	for _, point := range []string{"", "verified", "handler", "handled", "settle sent", "settled", "answering"} {
		t.Run("at "+point, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), envAgentPoint+"=at "+point, envAgentURL+"="+s.services[0].URL, envAgentKey+"="+s.builder.Key, envAgentPlan+"="+string(s.plan))
			out := must.Get(cmd.StdoutPipe())(t)
			must.Do(t, cmd.Start())
			lines := bufio.NewScanner(out)
			next := func(word string) string {
				t.Helper()
				for lines.Scan() {
					if rest, ok := strings.CutPrefix(lines.Text(), word+" "); ok {
						return rest
					}
				}
				t.Fatalf("the agent did not say %q", word)
				return ""
			}
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			req := must.Get(http.NewRequest(http.MethodPost, "http://"+next("listening")+"/ask", nil))(t)
			req.Header.Set(x402.HeaderSignature, token)
			resp, err := http.DefaultTransport.RoundTrip(req)
			var body []byte
			if err == nil {
				body, _ = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			id := next("request")
			settled := point == "" || point == "settled" || point == "answering"
			if answered := len(body) > 0; answered != (point == "" || point == "answering") || (point == "" && len(body) != bigAnswer) || (point == "answering" && len(body) >= bigAnswer) {
				t.Errorf("%d bytes were answered", len(body))
			}
			if len(body) > 0 && resp.Header.Get(x402.HeaderResponse) == "" {
				t.Error("bytes of an answer without its receipt")
			}
			find := func() *toll.Settlement {
				t.Helper()
				return must.Get(s.services[0].Client(s.builder.Key, servertest.Patient).Settlement(context.Background(), id))(t)
			}
			ends := func(words ...string) string {
				t.Helper()
				for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
					status := find().Status
					if slices.Contains(words, status) {
						return status
					}
					if time.Now().After(deadline) {
						t.Fatalf("the request is %s, want %v", status, words)
					}
				}
			}
			switch {
			case point == "settle sent": // the one step whose outcome is open
				settled = ends("settled", "lapsed") == "settled"
			case settled:
				ends("settled")
			default:
				ends("lapsed")
			}
			if settled {
				left -= 5
			}
			if b := s.balance(); b.Balance != left || b.Held != 0 {
				t.Errorf("balance %d, held %d, want %d and 0", b.Balance, b.Held, left)
			}
		})
	}
}
