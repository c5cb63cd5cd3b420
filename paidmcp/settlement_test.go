package paidmcp_test

//lint:file-ignore SA1019 logging and sampling are deprecated in the newest protocol, and the older ones are served as well

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/paidmcp"
	"github.com/tollhq/toll/tolltest"
)

// TestSettlement breaks the answer of the facilitator to a settlement, over HTTP as it would be, for every kind of item
// and both ways to answer: nothing of the item is on the wire.
// T132
func TestSettlement(t *testing.T) {
	svc := service(t)
	service := must.Get(url.Parse(svc.URL()))(t)
	key := must.Get(svc.NewKey("builder"))(t)
	var broken atomic.Value // func(http.ResponseWriter, *http.Request)
	forward := httputil.NewSingleHostReverseProxy(service)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/x402/settle") {
			broken.Load().(func(http.ResponseWriter, *http.Request))(w, r)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	defer front.Close()
	var hang atomic.Bool // settlements get no answer in time
	f := client.New(key.Key, client.WithURL(front.URL), client.WithRetries(0), client.WithHTTPClient(&http.Client{
		Transport: carrier(func(r *http.Request) (*http.Response, error) {
			if !strings.HasSuffix(r.URL.Path, "/x402/settle") {
				res, err := http.DefaultTransport.RoundTrip(r)
				// A service that stood still closes connections whose request it got too late.
				late := func() bool {
					return res.StatusCode == http.StatusRequestTimeout || res.StatusCode == http.StatusBadGateway
				}
				for try := 0; try < 5 && err == nil && late(); try++ {
					_ = res.Body.Close()
					again := r.Clone(r.Context())
					if again.Body, err = r.GetBody(); err == nil {
						res, err = http.DefaultTransport.RoundTrip(again)
					}
				}
				return res, err
			}
			if !hang.Load() {
				return http.DefaultTransport.RoundTrip(r)
			}
			ctx, cancel := context.WithTimeout(r.Context(), 50*time.Millisecond)
			defer cancel()
			return http.DefaultTransport.RoundTrip(r.WithContext(ctx))
		}),
	}))
	says := func(status int, body string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	const tx = `"0x5e2d5d1e58e94d7607e0745cd3e612c4a358fc93f37fc5ab1fed8d04bbf7ce77"`
	q := paid.NewQueue()
	log, _ := quiet()
	var shops []*shop
	for _, mode := range []paidmcp.RedeemError{paidmcp.Ignore, paidmcp.Propagate} {
		for _, stream := range []bool{false, true} {
			opts := []paidmcp.Option{paidmcp.OnRedeemError(mode)}
			if stream {
				opts = append(opts, paidmcp.Stream())
			}
			s := shopOf(svc, f, paidmcp.Config{PlanID: svc.Plan(), AgentID: svc.Agent(), ServerName: "demo", Log: log, Clock: svc.Now, Queue: q}, opts...)
			s.work = func(ctx context.Context, req mcp.Request) error {
				session := req.GetSession().(*mcp.ServerSession)
				message := content
				if stream {
					message = "sent on the hold"
				}
				for i := range 3 {
					if err := session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: "p", Progress: float64(i), Message: message}); err != nil {
						return err
					}
				}
				_ = session.NotifyProgress(context.Background(), &mcp.ProgressNotificationParams{ProgressToken: "p", Progress: 3, Message: message})
				return session.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: map[string]any{"said": message}})
			}
			shops = append(shops, s)
		}
	}
	streams := map[*tolltest.Subscriber]toll.Credits{} // credits of delivered streams without an outcome
	// Refusals come first: what has no outcome is tried again in the background, and must not meet them.
	for _, c := range []struct {
		name    string
		answer  func(http.ResponseWriter, *http.Request)
		pending bool
	}{
		{"refused", says(200, `{"success":false,"errorReason":"hold_expired","errorMessage":"The hold has ended.","transaction":"","network":"eip155:84532"}`), false},
		{"402", says(402, `{"code":"BCK.X402.0905","success":false,"errorReason":"hold_expired","transaction":"","network":"eip155:84532"}`), false},
		{"500", says(500, `{"code":"BCK.HTTP.500"}`), true},
		{"timeout", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // else the server does not notice that the client leaves
			<-r.Context().Done()
		}, true},
		{"garbage", says(200, "\x00\xff<html>"), true},
		{"nothing", says(200, ""), true},
		{"true as text", says(200, `{"success":"true","transaction":`+tx+`,"network":"eip155:84532"}`), true},
		{"without transaction", says(200, `{"success":true,"network":"eip155:84532","creditsRedeemed":"1"}`), true},
		{"of another request", says(200, `{"success":true,"transaction":`+tx+`,"network":"eip155:84532","extra":{"agentRequestId":"req_other"}}`), true},
		{"pending", says(503, `{"code":"BCK.X402.0914","success":false,"errorReason":"settlement_pending","transaction":`+tx+`,"network":"eip155:84532"}`), true},
	} {
		name := c.name
		broken.Store(c.answer)
		hang.Store(name == "timeout")
		ann := svc.Subscriber(100)
		streams[ann] = 0
		if c.pending {
			streams[ann] = 6
		}
		var wg sync.WaitGroup
		for i, s := range shops {
			for j, item := range items {
				propagate, stream := i >= 2, i%2 == 1
				l := dial(t, s.server, eras[(i+j)%2])
				if l.era < "2026" {
					l.send(`{"jsonrpc":"2.0","id":"level","method":"logging/setLevel","params":{"level":"debug"}}`)
					l.wait("level")
				}
				wg.Go(func() {
					meta := map[string]any{"x402/payment": ann.AccessToken, "progressToken": "p", mcp.MetaKeyLogLevel: "debug"}
					a := l.callMeta(item, meta)
					where := fmt.Sprintf("%s, %s, propagate %v, stream %v", name, item, propagate, stream)
					switch {
					case propagate:
						if a.Error == nil || a.Error.Code != -32002 || !strings.HasPrefix(a.Error.Message, "Failed to redeem credits: ") {
							t.Errorf("%s: %s %+v", where, a.Result, a.Error)
						}
					default:
						want := "settlement failed: hold_expired"
						if c.pending {
							want = "settlement pending: settlement_pending"
						}
						if pr := a.demand(t, item); !strings.HasPrefix(pr.Error, want) {
							t.Errorf("%s: %+v", where, pr)
						}
						if item == items[0] {
							if m := a.credits(t); m["success"] != false || m["errorReason"] == "" || m["txHash"] != nil {
								t.Errorf("%s: %v", where, m)
							}
						}
					}
					if strings.Contains(l.sent(), content) {
						t.Errorf("%s: content is on the wire: %s", where, l.sent())
					}
					if got := strings.Count(l.sent(), "sent on the hold"); stream != (got > 0) {
						t.Errorf("%s: %d notifications", where, got)
					}
				})
			}
		}
		wg.Wait()
	}
	// The service is back: what was delivered is settled, once, and nothing else was.
	broken.Store(forward.ServeHTTP)
	hang.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	must.Check(t, q.Drain(ctx))
	for ann, n := range streams {
		if ann.Balance() != 100-n {
			t.Errorf("balance %s, want %s", ann.Balance(), 100-n)
		}
	}
}

// carrier is a transport of HTTP.
type carrier func(*http.Request) (*http.Response, error)

func (c carrier) RoundTrip(r *http.Request) (*http.Response, error) { return c(r) }
