package gate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/gate"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/tolltest"
	"github.com/tollhq/toll/x402"
)

const (
	benchSlice = 300 * time.Millisecond
	benchConns = 16 // of the rows for the throughput
)

// instant is a service that answers at once.
type instant struct {
	terms *x402.Terms
	payer toll.Address
	ids   atomic.Int64
}

func (f *instant) Terms(context.Context, toll.PlanID) (*x402.Terms, error) { return f.terms, nil }

func (f *instant) Verify(_ context.Context, r *x402.VerifyRequest) (*x402.VerifyResponse, error) {
	id := strconv.FormatInt(f.ids.Add(1), 10)
	return &x402.VerifyResponse{IsValid: true, Payer: f.payer.String(), AgentRequestID: id, PlanID: f.terms.PlanID, Extra: &x402.VerifyExtra{HeldAmount: r.MaxAmount}}, nil
}

func (f *instant) Settle(_ context.Context, r *x402.SettleRequest) (*x402.SettleResponse, error) {
	return &x402.SettleResponse{Success: true, Transaction: "0x1", Network: f.terms.Network, CreditsRedeemed: r.MaxAmount, RemainingBalance: r.MaxAmount,
		Raw: []byte(`{"success":true,"transaction":"0x1"}`), Extra: &x402.SettleExtra{AgentRequestID: r.AgentRequestID}}, nil
}

func (f *instant) Release(context.Context, *x402.ReleaseRequest) (*x402.ReleaseResponse, error) {
	return nil, errors.New("released")
}

// BenchmarkGate compares the gate with a plain reverse proxy over the same transport. One iteration runs every row for a slice, in turn, so
// that other work of the machine affects all rows alike: once over one connection for the latency, and once over 16 for the throughput. The
// figures are medians of the iterations. The rows:
//
//   - proxy: httputil.ReverseProxy
//   - calls: verify with hold, and settle, over HTTP
//   - both: the two calls around the reverse proxy
//   - gate: the gate, with the same service
//   - alone: the gate with a service that answers at once
//
// Run it with -benchtime 15x.
func BenchmarkGate(b *testing.B) {
	b.Run("whole", func(b *testing.B) { benchmarkGate(b, false) })
	b.Run("stream", func(b *testing.B) { benchmarkGate(b, true) })
}

func benchmarkGate(b *testing.B, stream bool) {
	const price = `{ when: { model: "small-*" }, per: 1000, input: 150, cache_read: 75, output: 600, max_input: 2000, max_output: 1000 }`
	svc := tolltest.New(b, wide)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if !stream {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":%s}`,
				strings.Repeat("text ", 200), usage100)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for range 20 {
			_, _ = io.WriteString(w, `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"some text"},"finish_reason":null}]}`+"\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		fmt.Fprintf(w, `data: {"id":"c","choices":[],"usage":%s}`+"\n\ndata: [DONE]\n\n", usage100)
	}))
	b.Cleanup(up.Close)
	ann := svc.Subscriber(1_000_000_000)
	terms := must.Get(svc.Client().Terms(b.Context(), svc.Plan()))(b)
	newClient := func() *client.Client {
		key := must.Get(svc.NewKey("builder"))(b)
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 64
		return client.New(key.Key, client.WithURL(svc.URL()), client.WithHTTPClient(&http.Client{Transport: t}))
	}
	front := func(h http.Handler) string {
		s := httptest.NewServer(h)
		b.Cleanup(s.Close)
		return s.URL
	}
	newGate := func(f x402.Facilitator) http.Handler {
		c := must.Get(gate.Parse([]byte("plan: Models\nupstreams: { m: { url: " + up.URL + ` } }
routes: [ { match: POST /v1/chat/completions, preset: openai, price: [ ` + price + ` ] } ]
`)))(b)
		return gate.New(c, gate.Deps{Facilitator: f, Plan: svc.Plan(), Agent: svc.Agent(), Queue: paid.NewQueue(), Metrics: gate.NewMetrics(), Log: slog.New(slog.DiscardHandler)})
	}
	target := must.Get(url.Parse(up.URL))(b)
	plain := &httputil.ReverseProxy{Transport: plainTransport(), Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.SetXForwarded() }}
	proxy := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // a flushed response closes the body of the request, which the transport may still read
		plain.ServeHTTP(w, r)
	})
	calls := serviceCalls(newClient(), terms, ann.AccessToken, svc.Agent())
	rows := []*benchRow{
		{name: "proxy", url: front(proxy)},
		{name: "calls", url: front(calls(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })))},
		{name: "both", url: front(calls(proxy))},
		{name: "gate", url: front(newGate(newClient()))},
		{name: "alone", url: front(newGate(&instant{terms: terms, payer: ann.Address}))},
	}
	body := chat("small-1", strings.Repeat("u", 64), `,"stream":`+strconv.FormatBool(stream)+`,"max_tokens":100,"temperature":0.7`)
	body = strings.Replace(body, "hello", strings.Repeat("Some words of a question. ", 40), 1)
	for b.Loop() {
		for _, r := range rows {
			lat := r.hammer(b, ann.AccessToken, body, 1)
			r.p50 = append(r.p50, float64(lat[len(lat)/2].Nanoseconds())/1e3)
		}
		for _, r := range rows {
			r.rate = append(r.rate, float64(len(r.hammer(b, ann.AccessToken, body, benchConns)))/benchSlice.Seconds())
		}
	}
	proxyRow, both, gated, alone := rows[0], rows[2], rows[3], rows[4]
	b.ReportMetric(0, "ns/op")
	for _, r := range rows {
		b.ReportMetric(median(r.p50), r.name+"-p50-us")
		b.ReportMetric(median(r.rate), r.name+"-req/s")
	}
	b.ReportMetric(median(each(gated.p50, both.p50, func(x, y float64) float64 { return x - y })), "gate-both-us")
	b.ReportMetric(median(each(alone.p50, proxyRow.p50, func(x, y float64) float64 { return x - y })), "alone-proxy-us")
	b.ReportMetric(median(each(gated.rate, both.rate, func(x, y float64) float64 { return x / y })), "gate/both")
	b.ReportMetric(median(each(alone.rate, proxyRow.rate, func(x, y float64) float64 { return x / y })), "alone/proxy")
}

// plainTransport is the transport of the gate to an upstream.
func plainTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	t.MaxIdleConnsPerHost, t.Proxy = 64, nil
	return t
}

// serviceCalls returns a middleware that verifies a payment before the handler, and settles it afterwards.
func serviceCalls(f x402.Facilitator, terms *x402.Terms, token string, agent toll.AgentID) func(http.Handler) http.Handler {
	const held, price = toll.Credits(200), toll.Credits(18)
	required := *x402.NewPaymentRequired([]*x402.Terms{terms}, x402.Options{Endpoint: "/v1/chat/completions", AgentID: agent, HTTPVerb: "POST"})
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			v, err := f.Verify(r.Context(), &x402.VerifyRequest{PaymentRequired: required, AccessToken: token, MaxAmount: held.Ptr(), Hold: true, HoldSecs: 60})
			if err != nil || !v.IsValid {
				http.Error(w, fmt.Sprint(v, err), http.StatusPaymentRequired)
				return
			}
			next.ServeHTTP(w, r)
			_, _ = f.Settle(r.Context(), &x402.SettleRequest{PaymentRequired: required, AccessToken: token, MaxAmount: price.Ptr(), AgentRequestID: v.AgentRequestID})
		})
	}
}

// benchRow is a server under test with its figures of each iteration.
type benchRow struct {
	name, url string
	p50, rate []float64 // microseconds, requests per second
	client    *http.Client
}

// hammer sends requests over a number of connections for a slice, and returns their latencies, sorted.
func (r *benchRow) hammer(b *testing.B, token, body string, conns int) []time.Duration {
	if r.client == nil {
		r.client = &http.Client{Transport: plainTransport()}
	}
	parts := make([][]time.Duration, conns)
	var all sync.WaitGroup
	end := time.Now().Add(benchSlice)
	for i := range conns {
		all.Go(func() {
			for begin := time.Now(); begin.Before(end); {
				req, _ := http.NewRequestWithContext(b.Context(), "POST", r.url+"/v1/chat/completions", bytes.NewReader([]byte(body)))
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Authorization", "Bearer "+token)
				res, err := r.client.Do(req)
				if err != nil {
					b.Error(err)
					return
				}
				_, err = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				if err != nil || res.StatusCode != http.StatusOK {
					b.Errorf("%s: %d, %v", r.name, res.StatusCode, err)
					return
				}
				now := time.Now()
				parts[i] = append(parts[i], now.Sub(begin))
				begin = now
			}
		})
	}
	all.Wait()
	lat := slices.Concat(parts...)
	if len(lat) == 0 {
		b.Fatalf("%s: no response", r.name)
	}
	slices.Sort(lat)
	return lat
}

func median(of []float64) float64 {
	of = slices.Clone(of)
	slices.Sort(of)
	return of[len(of)/2]
}

func each(a, b []float64, f func(x, y float64) float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = f(a[i], b[i])
	}
	return out
}
