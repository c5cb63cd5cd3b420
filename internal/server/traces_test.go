package server_test

import (
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlptrace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/traces"
)

// collector is a collector of OpenTelemetry that keeps what it gets.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*otlptrace.Span
	about []string // attributes of the programs that sent them
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var got collect.ExportTraceServiceRequest
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = proto.Unmarshal(body, &got)
		}
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s: %v", r.URL, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, program := range got.ResourceSpans {
			for _, a := range program.Resource.Attributes {
				c.about = append(c.about, a.Key+"="+a.Value.GetStringValue())
			}
			for _, scope := range program.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// named returns the spans of a name.
func (c *collector) named(name string) (found []*otlptrace.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// of returns the first span of a name in the trace of the test, nil for none.
func (c *collector) of(name string) *otlptrace.Span {
	for _, s := range c.named(name) {
		if hex.EncodeToString(s.TraceId) == traceID {
			return s
		}
	}
	return nil
}

func spanAttributes(s *otlptrace.Span) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.GetStringValue()
	}
	return all
}

const (
	traceID     = "4bf92f3577b34da6a3ce929d0e0e4736"
	traceParent = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// traced sends a trace with each request.
type traced struct{ next http.RoundTripper }

func (t traced) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Traceparent", traceParent)
	r.Header.Set("X-Correlation-Id", "corr-traced")
	return t.next.RoundTrip(r)
}

// A paid order is one trace, that of the caller: the request, what places the order, the job that pays it, and what the rail
// does. A span says what it is about, and has no path, no query and no credential.
func TestTraces_Order(t *testing.T) {
	c := startCollector(t)
	out := &lines{}
	m := embeddedBazaar(t, func(cfg *server.Config) {
		cfg.Traces, cfg.Release, cfg.Log = c.URL, "9.9.9", slog.New(slog.NewTextHandler(out, nil))
	})
	k := keyOf(t, m.server, server.KeyRequest{Account: "traced"})
	m.give(k.Address, usdc, 10_000_000)
	plan := m.dollar(m.owner)
	by := client.New(k.Key, client.WithURL(m.url), servertest.Patient, client.WithHTTPClient(&http.Client{Transport: traced{http.DefaultTransport}}))
	order := must.Get(by.OrderPlan(t.Context(), plan))(t)
	must.Do(t, m.server.Close(t.Context()))
	parent := map[string]string{}
	ids := map[string]string{}
	for _, name := range []string{"orderPlan", "order.place", "job checkout.pay.crypto", "order.resume"} {
		s := c.of(name)
		if s == nil {
			t.Errorf("no span %q of the trace; there are %v", name, c.names())
			continue
		}
		ids[hex.EncodeToString(s.SpanId)], parent[name] = name, hex.EncodeToString(s.ParentSpanId)
		t.Logf("%s: %v", name, spanAttributes(s))
	}
	if parent["orderPlan"] != "00f067aa0ba902b7" || ids[parent["order.resume"]] != "job checkout.pay.crypto" {
		t.Errorf("%v of %v", parent, ids)
	}
	if s := c.of("orderPlan"); s != nil && spanAttributes(s)["toll.correlation_id"] != "corr-traced" {
		t.Errorf("%v", spanAttributes(s))
	}
	if s := c.of("order.resume"); s != nil && spanAttributes(s)["toll.id"] != order.OrderID {
		t.Errorf("%v, order %s", spanAttributes(s), order.OrderID)
	}
	if decided := c.named("order.decide"); len(decided) == 0 {
		t.Errorf("no span of the decision; there are %v", c.names())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.about, "service.name=toll") || !slices.Contains(c.about, "service.version=9.9.9") {
		t.Errorf("%v", c.about)
	}
	for _, s := range c.spans {
		text := s.String()
		for _, secret := range []string{k.Key, "/api/v1/", "Bearer"} {
			if strings.Contains(text, secret) {
				t.Errorf("a span has %q: %s", secret, text)
			}
		}
	}
}

func (c *collector) names() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		all = append(all, s.Name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// A call to others within a trace has a span with the host alone, and passes the trace on. A collector that is away costs a
// line of the log and nothing else.
func TestTraces_CallsToOthers(t *testing.T) {
	c := startCollector(t)
	out := &lines{}
	log := slog.New(slog.NewTextHandler(out, nil))
	to := must.Get(traces.NewExporter(t.Context(), c.URL, "1", log))(t)
	var passed []string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		passed = append(passed, r.Header.Get("Traceparent"))
		w.WriteHeader(http.StatusTeapot)
	}))
	defer other.Close()
	h := &http.Client{Transport: traces.Transport(http.DefaultTransport)}
	get := func(ctx context.Context) {
		r := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, other.URL+"/v3/SECRET?key=SECRET", nil))(t)
		res := must.Get(h.Do(r))(t)
		_ = res.Body.Close()
	}
	ctx, span := traces.Start(traces.With(t.Context(), to.Tracer()), "work", "1")
	get(ctx)
	span.End(nil)
	get(t.Context())
	must.Do(t, to.Close(t.Context()))
	calls, work := c.named("GET"), c.named("work")
	if len(calls) != 1 || len(work) != 1 || string(calls[0].ParentSpanId) != string(work[0].SpanId) {
		t.Fatalf("%v", c.names())
	}
	a := spanAttributes(calls[0])
	if a["server.address"] != "127.0.0.1" || strings.Contains(calls[0].String(), "SECRET") || calls[0].Status.GetCode() != otlptrace.Status_STATUS_CODE_ERROR {
		t.Errorf("%v", calls[0])
	}
	want := "00-" + hex.EncodeToString(calls[0].TraceId) + "-" + hex.EncodeToString(calls[0].SpanId) + "-01"
	if !slices.Equal(passed, []string{want, ""}) {
		t.Errorf("%q, want %q", passed, want)
	}
	c.CloseClientConnections()
	c.Close()
	away := must.Get(traces.NewExporter(t.Context(), c.URL, "1", log))(t)
	_, lost := traces.Start(traces.With(t.Context(), away.Tracer()), "lost", "1")
	lost.End(nil)
	if began, err := time.Now(), away.Close(t.Context()); err != nil || time.Since(began) > 5*time.Second || !strings.Contains(out.String(), "traces were not sent") {
		t.Errorf("a collector that is away: %v\n%s", err, out)
	}
	if _, err := traces.NewExporter(t.Context(), "127.0.0.1:4318", "1", log); err == nil || !strings.Contains(err.Error(), "--traces") {
		t.Errorf("an address without a scheme: %v", err)
	}
}
