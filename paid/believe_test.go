package paid_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// TestAnswerToSomethingElse: a success that names no transaction, or whatever is said of another request, leaves the outcome
// unknown, and nothing leaves on its strength.
// F08
func TestAnswerToSomethingElse(t *testing.T) {
	other := &x402.SettleExtra{AgentRequestID: "req_other"}
	for name, answer := range map[string]*x402.SettleResponse{
		"without a transaction":        {Success: true, Network: "eip155:84532", Extra: &x402.SettleExtra{AgentRequestID: "req_0001"}},
		"of another request":           {Success: true, Transaction: "0xabc", Network: "eip155:84532", Extra: other},
		"a refusal of another request": {ErrorReason: x402.ReasonHoldExpired, Code: toll.CodeHoldExpired, Network: "eip155:84532", Extra: other},
	} {
		for _, stream := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(100)
				d.refuseS = answer
				q := paid.NewQueue()
				var told []*x402.SettleResponse
				log, lines := logs(t)
				h := paid.Handler(d, &work{t: t, f: func(w http.ResponseWriter, _ *http.Request) {
					fmt.Fprint(w, content)
					if stream {
						w.(http.Flusher).Flush()
					}
				}}, paid.Plan(plan), atEnd, log, paid.WithQueue(q),
					paid.AfterSettle(func(_ *http.Request, s *x402.SettleResponse) { told = append(told, s) }))
				r := httptest.NewRequest("GET", "/", nil)
				r.Header.Set(sig, token)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				got := reply{w.Code, w.Header(), w.Body.String(), nil}
				if len(told) != 1 || told[0].Success || told[0].ErrorReason != x402.ReasonPending || d.count("release") != 0 {
					t.Errorf("%s, stream %v: told %+v, %d releases", name, stream, told, d.count("release"))
				}
				if !strings.Contains(lines.String(), "paid: the outcome of a settlement is not known yet") {
					t.Errorf("%s, stream %v: log %s", name, stream, lines)
				}
				if !stream {
					if got.status != 503 || strings.Contains(got.body, content) || !strings.Contains(got.body, "BCK.X402.0914") || d.count("settle") != 3 {
						t.Fatalf("%s: %+v after %d settles", name, got, d.count("settle"))
					}
					rec := got.receipt(t)
					if rec.Success || rec.Transaction != "" || rec.ErrorReason != x402.ReasonPending || rec.Extra.AgentRequestID != "req_0001" {
						t.Errorf("%s: receipt %+v", name, rec)
					}
					return
				}
				if got.status != 200 || got.body != content || d.count("settle") != 1 || q.Len() != 1 {
					t.Fatalf("%s: %+v after %d settles, %d wait", name, got, d.count("settle"), q.Len())
				}
				time.Sleep(2 * time.Second) // in the bubble: the queue has tried once more
				if d.count("settle") != 2 || q.Len() != 1 || len(told) != 1 {
					t.Errorf("%s: %d settles, %d wait, told %+v", name, d.count("settle"), q.Len(), told)
				}
				d.mu.Lock()
				d.refuseS = nil
				d.mu.Unlock()
				must.Check(t, q.Drain(context.Background()))
				d.want(t, 2, 1, 0)
				if len(told) != 2 || !told[1].Success {
					t.Errorf("%s: told %+v", name, told)
				}
			})
		}
	}
}

// Where nothing is to be burned there may be no transaction (x402 scheme upto: "empty string if $0 settlement").
func TestSettlementOfNothing(t *testing.T) {
	d := newDesk(100)
	d.refuseS = &x402.SettleResponse{Success: true, Network: "eip155:84532"}
	r := send(t, "GET", paidServer(t, d, &work{t: t}, paid.Credits(0)).URL, sig, token)
	if r.status != 200 || r.body != content || !r.receipt(t).Success || d.count("settle") != 1 {
		t.Errorf("%+v after %d settles", r, d.count("settle"))
	}
}
