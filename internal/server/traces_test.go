package server_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/traces"
)

// collector is an OpenTelemetry collector. It decodes OTLP JSON strictly and keeps the spans.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []otlpSpan
	about []string // attributes of the programs that sent them
}

type otlpRequest struct {
	ResourceSpans []struct {
		Resource struct {
			Attributes []otlpAttribute `json:"attributes"`
		} `json:"resource"`
		ScopeSpans []struct {
			Scope struct {
				Name string `json:"name"`
			} `json:"scope"`
			Spans []otlpSpan `json:"spans"`
		} `json:"scopeSpans"`
	} `json:"resourceSpans"`
}

type otlpSpan struct {
	TraceID      string          `json:"traceId"`
	SpanID       string          `json:"spanId"`
	ParentSpanID string          `json:"parentSpanId"`
	Flags        uint32          `json:"flags"`
	Name         string          `json:"name"`
	Kind         int             `json:"kind"`
	Start        int64           `json:"startTimeUnixNano,string"`
	End          int64           `json:"endTimeUnixNano,string"`
	Attributes   []otlpAttribute `json:"attributes"`
	Status       struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"status"`
}

type otlpAttribute struct {
	Key   string `json:"key"`
	Value struct {
		String *string `json:"stringValue"`
		Int    *int64  `json:"intValue,string"`
	} `json:"value"`
}

// check returns an error for an invalid span.
func (s otlpSpan) check() error {
	trace, err := hex.DecodeString(s.TraceID)
	id, idErr := hex.DecodeString(s.SpanID)
	parent, parentErr := hex.DecodeString(s.ParentSpanID)
	switch {
	case err != nil || idErr != nil || parentErr != nil || len(trace) != 16 || len(id) != 8 || len(parent)%8 != 0:
		return fmt.Errorf("ids that are not hexadecimal: %+v", s)
	case s.Start < time.Now().Add(-time.Hour).UnixNano() || s.End < s.Start || s.Name == "" || s.Kind < 1 || s.Kind > 3 || s.Flags&^0x200 != 0x101:
		return fmt.Errorf("a span without a time, name, kind, or flags: %+v", s)
	}
	for _, a := range s.Attributes {
		if a.Key == "" || (a.Value.String == nil) == (a.Value.Int == nil) {
			return fmt.Errorf("an attribute without one value: %+v", a)
		}
	}
	return nil
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var got otlpRequest
		decoder := json.NewDecoder(r.Body)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&got); err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, program := range got.ResourceSpans {
			for _, a := range program.Resource.Attributes {
				if a.Value.String != nil {
					c.about = append(c.about, a.Key+"="+*a.Value.String)
				}
			}
			for _, scope := range program.ScopeSpans {
				if scope.Scope.Name != traces.Scope {
					t.Errorf("scope %q", scope.Scope.Name)
				}
				for _, s := range scope.Spans {
					if err := s.check(); err != nil {
						t.Error(err)
					}
				}
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// named returns the spans of a name.
func (c *collector) named(name string) (found []otlpSpan) {
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
func (c *collector) of(name string) *otlpSpan {
	for _, s := range c.named(name) {
		if s.TraceID == traceID {
			return &s
		}
	}
	return nil
}

// spanAttributes returns the attributes of a span as texts.
func spanAttributes(s otlpSpan) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		switch {
		case a.Value.String != nil:
			all[a.Key] = *a.Value.String
		case a.Value.Int != nil:
			all[a.Key] = strconv.FormatInt(*a.Value.Int, 10)
		}
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
		ids[s.SpanID], parent[name] = name, s.ParentSpanID
		t.Logf("%s: %v", name, spanAttributes(*s))
	}
	if parent["orderPlan"] != "00f067aa0ba902b7" || ids[parent["order.resume"]] != "job checkout.pay.crypto" {
		t.Errorf("%v of %v", parent, ids)
	}
	if s := c.of("orderPlan"); s != nil && spanAttributes(*s)["toll.correlation_id"] != "corr-traced" {
		t.Errorf("%v", spanAttributes(*s))
	}
	if s := c.of("order.resume"); s != nil && spanAttributes(*s)["toll.id"] != order.OrderID {
		t.Errorf("%v, order %s", spanAttributes(*s), order.OrderID)
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
		text := string(must.Get(json.Marshal(s))(t))
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
	if len(calls) != 1 || len(work) != 1 || calls[0].ParentSpanID != work[0].SpanID {
		t.Fatalf("%v", c.names())
	}
	a, text := spanAttributes(calls[0]), string(must.Get(json.Marshal(calls[0]))(t))
	if a["server.address"] != "127.0.0.1" || a["http.response.status_code"] != "418" || strings.Contains(text, "SECRET") || calls[0].Status.Code != 2 || calls[0].Kind != 3 {
		t.Error(text)
	}
	want := "00-" + calls[0].TraceID + "-" + calls[0].SpanID + "-01"
	if !slices.Equal(passed, []string{want, ""}) {
		t.Errorf("%q, want %q", passed, want)
	}
	c.CloseClientConnections()
	c.Close()
	away := must.Get(traces.NewExporter(t.Context(), c.URL, "1", log))(t)
	_, lost := traces.Start(traces.With(t.Context(), away.Tracer()), "lost", "1")
	lost.End(nil)
	if began, err := time.Now(), away.Close(t.Context()); err != nil || time.Since(began) > 3*time.Second || !strings.Contains(out.String(), "traces were not sent") {
		t.Errorf("a collector that is away: %v\n%s", err, out)
	}
	if _, err := traces.NewExporter(t.Context(), "127.0.0.1:4318", "1", log); err == nil || !strings.Contains(err.Error(), "--traces") {
		t.Errorf("an address without a scheme: %v", err)
	}
}
