package paid_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// TestAgentDies cuts the agent down at every step. A killed process closes its connections: on the wire that is a
// panic of the handler, or a listener that closes everything. A client gets nothing, or a settled answer.
// F07
func TestAgentDies(t *testing.T) {
	for _, when := range []string{"after verify", "in the handler", "after the handler", "after settle sent", "after settle answer"} {
		t.Run(when, func(t *testing.T) {
			d := newDesk(100)
			var kill func()
			hook := func(now string) {
				if when == now {
					kill()
				}
			}
			s := paidServer(t, d, &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, content)
				hook("in the handler")
			}}, paid.AfterVerify(func(*http.Request, *x402.VerifyResponse) { hook("after verify") }),
				paid.AfterSettle(func(*http.Request, *x402.SettleResponse) { hook("after settle answer") }))
			kill = func() {
				s.CloseClientConnections()
				panic(http.ErrAbortHandler)
			}
			d.before = func(op string, _ int) error {
				if op == "settle" {
					hook("after the handler")
				}
				return nil
			}
			d.after = func(op string, _ int) error {
				if op == "settle" {
					hook("after settle sent")
				}
				return nil
			}
			out := raw(t, s.Listener.Addr().String(), "GET / HTTP/1.1\r\nHost: a\r\nPayment-Signature: "+token+"\r\n\r\n")
			if strings.Contains(out, content) {
				t.Errorf("content without its answer: %q", out)
			}
			// The lookup by id shows what happened; a hold that nobody could give back lapses.
			want := map[string]string{
				"after verify": "held", "in the handler": "released", "after the handler": "held",
				"after settle sent": "settled", "after settle answer": "settled",
			}[when]
			eventually(t, want, func() bool {
				d.mu.Lock()
				defer d.mu.Unlock()
				q := d.requests["req_0001"]
				return q != nil && q.state == want
			})
		})
	}
}

// F08
func TestFacilitatorDown(t *testing.T) {
	down := toll.NewError(toll.CodeUnavailable)
	for _, c := range []struct {
		name          string
		before, after func(op string, n int) error
		status        int
		burned        toll.Credits
		settles       int
	}{
		{"before verify", func(op string, _ int) error {
			if op == "verify" {
				return down
			}
			return nil
		}, nil, 503, 0, 0},
		{"between", func(op string, _ int) error {
			if op == "settle" || op == "release" {
				return down
			}
			return nil
		}, nil, 503, 0, 3},
		{"answer of settle lost", nil, func(op string, _ int) error {
			if op == "settle" {
				return down
			}
			return nil
		}, 503, 2, 3},
		{"answer of settle lost once", nil, func(op string, n int) error {
			if op == "settle" && n == 1 {
				return down
			}
			return nil
		}, 200, 2, 2},
		{"back for the third try", func(op string, n int) error {
			if op == "settle" && n < 3 {
				return down
			}
			return nil
		}, nil, 200, 2, 3},
		{"key revoked", func(op string, _ int) error {
			if op == "settle" {
				return toll.NewError(toll.CodeNotAuthenticated)
			}
			return nil
		}, nil, 503, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(100)
			d.before, d.after = c.before, c.after
			h := &work{t: t}
			r := send(t, "GET", paidServer(t, d, h).URL, sig, token)
			if r.status != c.status || d.burnedNow() != c.burned || d.count("settle") != c.settles {
				t.Errorf("%+v, burned %d, %d settles", r, d.burnedNow(), d.count("settle"))
			}
			if (r.status == 200) != strings.Contains(r.body, content) {
				t.Errorf("body %q", r.body)
			}
			if r.status == 200 {
				if !r.receipt(t).Success {
					t.Error("receipt without success")
				}
				return
			}
			if r.header.Get("Retry-After") == "" || r.header.Get("payment-required") != "" {
				t.Errorf("header %v", r.header)
			}
			if c.settles == 0 {
				if h.count() != 0 {
					t.Error("the handler ran")
				}
				return
			}
			rec := r.receipt(t)
			if rec.Success || rec.ErrorReason != x402.ReasonPending || rec.Extra.AgentRequestID != "req_0001" || !strings.Contains(r.body, "BCK.X402.0914") {
				t.Errorf("receipt %+v, body %s", rec, r.body)
			}
		})
	}
}

// TestPendingAnswer: settlement_pending is an unknown outcome too.
// F08
func TestPendingAnswer(t *testing.T) {
	d := newDesk(100)
	d.refuseS = &x402.SettleResponse{ErrorReason: x402.ReasonPending, Code: toll.CodeSettlementPending, Transaction: "0xabc", Network: "eip155:84532"}
	r := send(t, "GET", paidServer(t, d, &work{t: t}).URL, sig, token)
	if r.status != 503 || r.receipt(t).Transaction != "0xabc" || d.count("settle") != 3 || d.count("release") != 0 {
		t.Errorf("%+v, %d settles", r, d.count("settle"))
	}
}

// TestUnsettledStream loses the service at the end of a stream, and gets it back.
// F09
func TestUnsettledStream(t *testing.T) {
	var down atomic.Bool
	down.Store(true)
	d := newDesk(100)
	d.before = func(op string, _ int) error {
		if op == "settle" && down.Load() {
			return toll.NewError(toll.CodeUnavailable)
		}
		return nil
	}
	q := paid.NewQueue()
	var mu sync.Mutex
	var alarms []paid.Unsettled
	var settled []bool
	log, lines := logs(t)
	s := serve(t, paid.Handler(d, &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, content)
		if r.URL.Path == "/cut" {
			panic(http.ErrAbortHandler)
		}
	}}, paid.Plan(plan), atEnd, log, paid.WithQueue(q),
		paid.OnUnsettled(func(u paid.Unsettled) { mu.Lock(); defer mu.Unlock(); alarms = append(alarms, u) }),
		paid.AfterSettle(func(_ *http.Request, v *x402.SettleResponse) {
			mu.Lock()
			defer mu.Unlock()
			settled = append(settled, v.Success)
		})))
	if r := send(t, "GET", s.URL, sig, token); r.status != 200 || r.body != content || r.header.Get("Service-Request-Id") != "req_0001" {
		t.Fatalf("%+v", r)
	}
	if r := send(t, "GET", s.URL+"/cut", sig, token); r.err == nil {
		t.Fatalf("%+v: want a cut stream", r)
	}
	if q.Len() != 2 || !strings.Contains(lines.String(), "a delivered stream is not settled") {
		t.Errorf("%d streams wait; log %s", q.Len(), lines)
	}
	mu.Lock()
	if len(alarms) != 2 || alarms[0].AgentRequestID != "req_0001" || alarms[0].Credits != 2 || alarms[0].Bytes != int64(len(content)) ||
		alarms[0].Final || alarms[0].Payer != payer {
		t.Errorf("alarms %+v", alarms)
	}
	mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := q.Drain(ctx); err == nil || d.burnedNow() != 0 {
		t.Errorf("drained %v, burned %d while the service was down", err, d.burnedNow())
	}
	down.Store(false)
	ctx, cancel = context.WithTimeout(context.Background(), long)
	defer cancel()
	if err := q.Drain(ctx); err != nil || q.Len() != 0 {
		t.Errorf("drain: %v, %d wait", err, q.Len())
	}
	d.want(t, 4, 2, 0)
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(settled) != "[false false true true]" {
		t.Errorf("settlements %v", settled)
	}
}

// TestRefusedStream: a stream whose settlement is refused for good is listed at once.
// F09
func TestRefusedStream(t *testing.T) {
	d := newDesk(100)
	d.refuseS = &x402.SettleResponse{ErrorReason: x402.ReasonHoldExpired, Code: toll.CodeHoldExpired}
	q := paid.NewQueue()
	var got []paid.Unsettled
	s := paidServer(t, d, &work{t: t, f: func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, content)
		w.(http.Flusher).Flush()
	}}, atEnd, paid.WithQueue(q), paid.OnUnsettled(func(u paid.Unsettled) { got = append(got, u) }))
	send(t, "GET", s.URL, sig, token)
	if len(got) != 1 || !got[0].Final || got[0].Reason != x402.ReasonHoldExpired || q.Len() != 0 {
		t.Errorf("%+v, %d wait", got, q.Len())
	}
}
