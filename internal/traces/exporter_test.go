package traces

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tollhq/toll/internal/must"
)

const secret = "Bearer s3cr3t, one"

// clientTo returns a client to a collector with the header of secret.
func clientTo(t *testing.T, collector string) *client {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20s3cr3t%2C%20one , x-two = 2,")
	c := must.Get(newClient(must.Get(url.Parse(collector))(t)))(t)
	t.Cleanup(func() { _ = c.Shutdown(context.Background()) })
	return c
}

// answers replaces the transport of a client. It must not be used with a real collector.
type answers func(r *http.Request) *http.Response

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if res := f(r); res != nil {
		return res, nil
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func response(status int, body string, header ...string) *http.Response {
	w := httptest.NewRecorder()
	for i := 0; i < len(header); i += 2 {
		w.Header().Set(header[i], header[i+1])
	}
	w.WriteHeader(status)
	_, _ = w.WriteString(body)
	return w.Result()
}

func oneSpan() []sdk.ReadOnlySpan {
	at := time.Unix(1_800_000_000, 7)
	state, _ := trace.ParseTraceState("vendor=1")
	id := trace.TraceID{0x4b, 15: 0x36}
	return tracetest.SpanStubs{{
		Name:        "order.place",
		SpanKind:    trace.SpanKindClient,
		SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: trace.SpanID{1}, TraceFlags: 1, TraceState: state}),
		Parent:      trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: trace.SpanID{2}, Remote: true}),
		StartTime:   at,
		EndTime:     at.Add(time.Second),
		Attributes:  []attribute.KeyValue{attribute.String("a", "b\xff"), attribute.Int64("n", 1<<62)},
		Events:      []sdk.Event{{Name: "exception", Time: at}},
		Status:      sdk.Status{Code: codes.Error, Description: "failed"},
		Resource:    resource.NewSchemaless(attribute.String("service.name", "toll")),
	}, {SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: trace.SpanID{3}}), StartTime: at, EndTime: at, Status: sdk.Status{Code: codes.Ok}}}.Snapshots()
}

// The text is the encoding of the specification, which the OpenTelemetry collector reads.
func TestMessage(t *testing.T) {
	const id = "4b000000000000000000000000000036"
	want := `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"toll"}}]},"scopeSpans":[{` +
		`"scope":{"name":"github.com/tollhq/toll"},"spans":[{"traceId":"` + id + `","spanId":"0100000000000000","traceState":"vendor=1",` +
		`"parentSpanId":"0200000000000000","flags":769,"name":"order.place","kind":3,"startTimeUnixNano":"1800000000000000007",` +
		`"endTimeUnixNano":"1800000001000000007","attributes":[{"key":"a","value":{"stringValue":"b\ufffd"}},{"key":"n","value":{"intValue":"4611686018427387904"}}],` +
		`"events":[{"attributes":[],"name":"exception","timeUnixNano":"1800000000000000007"}],"status":{"code":2,"message":"failed"}},` +
		`{"traceId":"` + id + `","spanId":"0300000000000000","flags":256,"name":"","kind":0,"startTimeUnixNano":"1800000000000000007",` +
		`"endTimeUnixNano":"1800000000000000007","status":{"code":1}}]}]}]}`
	if got := string(must.Get(json.Marshal(message(oneSpan())))(t)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The collector gets the headers and the compressed message. Variables for traces override those for all signals.
func TestClient_HeadersAndCompression(t *testing.T) {
	for _, compression := range []string{"none", "gzip"} {
		t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", compression)
		var got http.Header
		var body []byte
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got, body = r.Header, must.Get(io.ReadAll(r.Body))(t)
		}))
		defer s.Close()
		must.Do(t, clientTo(t, s.URL).ExportSpans(t.Context(), oneSpan()))
		if got.Get("Authorization") != secret || got.Get("X-Two") != "2" || got.Get("Content-Type") != "application/json" || got.Get("User-Agent") != "toll" {
			t.Errorf("headers %v", got)
		}
		if compression == "gzip" {
			body = must.Get(io.ReadAll(must.Get(gzip.NewReader(bytes.NewReader(body)))(t)))(t)
		}
		if !json.Valid(body) || (got.Get("Content-Encoding") == "gzip") != (compression == "gzip") {
			t.Errorf("%s: %v %q", compression, got, body)
		}
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-three=3")
		must.Do(t, clientTo(t, s.URL).ExportSpans(t.Context(), oneSpan()))
		if got.Get("X-Three") != "3" || got.Get("X-Two") != "" {
			t.Errorf("headers for traces: %v", got)
		}
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "")
	}
}

// A request is repeated after a failure that may be temporary, not before the time for which the collector asks, and for a minute at most.
func TestClient_Retry(t *testing.T) {
	for name, c := range map[string]struct {
		status           int
		after            string
		shortest         time.Duration // pause before the second request
		fewest, requests int           // that are sent if all fail
	}{
		"no time":      {http.StatusBadGateway, "", 2500 * time.Millisecond, 3, 6},
		"gateway":      {http.StatusGatewayTimeout, "junk", 2500 * time.Millisecond, 3, 6},
		"seconds":      {http.StatusServiceUnavailable, "25", 25 * time.Second, 3, 3},
		"date":         {http.StatusTooManyRequests, "Sat, 01 Jan 2000 00:00:20 GMT", 20 * time.Second, 2, 5},
		"too long":     {http.StatusTooManyRequests, "61", 0, 1, 1},
		"bad request":  {http.StatusBadRequest, "1", 0, 1, 1},
		"unauthorized": {http.StatusUnauthorized, "", 0, 1, 1},
		"error":        {http.StatusInternalServerError, "1", 0, 1, 1},
	} {
		for _, recovers := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) { // the time begins at 2000-01-01 00:00:00 UTC
				to := clientTo(t, "http://127.0.0.1:4318/secret/path")
				began, second, n := time.Now(), time.Duration(0), 0
				to.http.Transport = answers(func(r *http.Request) *http.Response {
					if n++; n == 2 {
						second = time.Since(began)
						if recovers {
							return response(http.StatusOK, "{}")
						}
					}
					if body := must.Get(io.ReadAll(r.Body))(t); !json.Valid(body) {
						t.Errorf("%s: request %d has the body %q", name, n, body)
					}
					return response(c.status, `{"code":3,"message":"no Bearer s3cr3t, one\nhere"}`, "Retry-After", c.after)
				})
				err := to.ExportSpans(t.Context(), oneSpan())
				switch {
				case second < c.shortest || time.Since(began) > time.Minute:
					t.Errorf("%s: the second request after %v, the end after %v", name, second, time.Since(began))
				case recovers && c.requests > 1:
					if err != nil || n != 2 {
						t.Errorf("%s: %d requests: %v", name, n, err)
					}
				case n < c.fewest || n > c.requests:
					t.Errorf("%s: %d requests, want %d to %d", name, n, c.fewest, c.requests)
				case err == nil || err.Error() != "the collector returned status "+strconv.Itoa(c.status)+": no (set) (set) (set) here":
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	}
}

// A request ends after its timeout and is repeated.
func TestClient_Timeout(t *testing.T) {
	for set, want := range map[string]time.Duration{"": 10 * time.Second, "300": 300 * time.Millisecond} {
		t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", set)
		synctest.Test(t, func(t *testing.T) {
			to := clientTo(t, "http://127.0.0.1:4318/secret/path")
			began, second := time.Now(), time.Duration(0)
			n := 0
			to.http.Transport = answers(func(*http.Request) *http.Response {
				if n++; n == 2 {
					second = time.Since(began)
				}
				return nil
			})
			err := to.ExportSpans(t.Context(), oneSpan())
			if err == nil || strings.Contains(err.Error(), "secret") || second < want+2500*time.Millisecond || second > want+5*time.Second {
				t.Errorf("timeout %q: the second request after %v: %v", set, second, err)
			}
		})
	}
}

// A redirect is not followed, and an endless response ends.
func TestClient_Strange(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("a request to another host: %v", r.Header) }))
	defer other.Close()
	s := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer s.Close()
	if err := clientTo(t, s.URL).ExportSpans(t.Context(), oneSpan()); err == nil || err.Error() != "the collector returned status 307" {
		t.Errorf("a redirect: %v", err)
	}
	to, read := clientTo(t, s.URL), new(endless)
	to.http.Transport = answers(func(*http.Request) *http.Response { return &http.Response{StatusCode: http.StatusOK, Body: read} })
	if err := to.ExportSpans(t.Context(), oneSpan()); err != nil || *read != maxAnswer {
		t.Errorf("an endless response: read %d bytes: %v", *read, err)
	}
}

type endless int

func (e *endless) Read(b []byte) (int, error) { *e += endless(len(b)); return len(b), nil }
func (*endless) Close() error                 { return nil }

// exporterTo returns an exporter whose collector is a function, and its log.
func exporterTo(t *testing.T, f answers) (*Exporter, *bytes.Buffer) {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20s3cr3t")
	log := &bytes.Buffer{}
	e := must.Get(NewExporter(t.Context(), "http://127.0.0.1:4318", "1", slog.New(slog.NewTextHandler(log, nil))))(t)
	e.client.http.Transport = f
	return e, log
}

// Spans that the collector rejects are logged once a minute.
func TestExporter_PartialSuccess(t *testing.T) {
	for body, want := range map[string]string{
		`{"partialSuccess":{"rejectedSpans":"3","errorMessage":"not Bearer s3cr3t"}}`: `error="the collector rejected 3 spans: not (set) (set)"`,
		`{"partialSuccess":{"rejectedSpans":4}}`:                                      `error="the collector rejected 4 spans"`,
		`{"partialSuccess":{"errorMessage":"use less"}}`:                              `error="the collector rejected 0 spans: use less"`,
		`{"partialSuccess":{}}`:                                                       "", `{}`: "", ``: "", `<p>`: "",
	} {
		synctest.Test(t, func(t *testing.T) {
			e, log := exporterTo(t, func(*http.Request) *http.Response { return response(http.StatusOK, body) })
			for range 13 { // 78 seconds
				_, s := Start(With(t.Context(), e.Tracer()), "work", "1")
				s.End(nil)
				time.Sleep(6 * time.Second)
			}
			must.Do(t, e.Close(t.Context()))
			if n := strings.Count(log.String(), `msg="traces were not sent" `+want+"\n"); want != "" && n != 2 || want == "" && log.Len() > 0 {
				t.Errorf("%s: %d lines: %s", body, n, log)
			}
		})
	}
}

// A collector that does not respond delays a shutdown for two seconds at most, and no request remains.
func TestExporter_CloseWithoutCollector(t *testing.T) {
	for name, answer := range map[string]answers{
		"silent": func(*http.Request) *http.Response { return nil },
		"busy": func(*http.Request) *http.Response {
			return response(http.StatusServiceUnavailable, "", "Retry-After", "20")
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			e, log := exporterTo(t, answer)
			_, s := Start(With(t.Context(), e.Tracer()), "work", "1")
			s.End(nil)
			began := time.Now()
			err := e.Close(t.Context())
			took := time.Since(began)
			synctest.Wait() // for the goroutine of the provider, which may still log
			if err != nil || took > 2*time.Second || !strings.Contains(log.String(), "traces were not sent") {
				t.Errorf("%s: %v after %v: %s", name, err, took, log)
			}
			closed := time.Now()
			e.client.http.Transport = answers(func(*http.Request) *http.Response {
				t.Errorf("%s: a request after %v", name, time.Since(closed))
				return nil
			})
			time.Sleep(time.Hour)
		})
	}
}

// The collector and the client check each other's certificate.
func TestClient_Certificates(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) != 1 || r.TLS.PeerCertificates[0].SerialNumber.Int64() != 42 {
			t.Errorf("certificates %v", r.TLS.PeerCertificates)
		}
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	defer s.Close()
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{SerialNumber: big.NewInt(42)}
	own := must.Get(x509.CreateCertificate(nil, template, template, private.Public(), private))(t)
	file := func(kind string, content []byte) string {
		name := filepath.Join(t.TempDir(), "file.pem")
		must.Do(t, os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600))
		return name
	}
	send := func() error { return clientTo(t, s.URL).ExportSpans(t.Context(), oneSpan()) }
	t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", file("CERTIFICATE", own))
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", file("PRIVATE KEY", must.Get(x509.MarshalPKCS8PrivateKey(private))(t)))
	if err := send(); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("a certificate of an unknown authority: %v", err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", file("CERTIFICATE", s.Certificate().Raw))
	must.Do(t, send())
	if _, err := newClient(&url.URL{Scheme: "http", Host: "c"}); err == nil || !strings.Contains(err.Error(), "https") {
		t.Errorf("certificates without TLS: %v", err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "")
	if err := send(); err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("without a client certificate: %v", err)
	}
}

// A wrong variable is an error that does not contain its value.
func TestNewExporter_WrongVariables(t *testing.T) {
	junk := filepath.Join(t.TempDir(), "junk.pem")
	must.Do(t, os.WriteFile(junk, []byte("s3cr3t"), 0o600))
	for _, c := range []struct{ name, value, collector string }{
		{"HEADERS", "Authorization: Bearer s3cr3t", "http://c"},
		{"HEADERS", "Authorization: Bearer s3cr3t=", "http://c"},
		{"HEADERS", "=s3cr3t", "http://c"},
		{"HEADERS", "a=s3cr3t%0A", "http://c"},
		{"HEADERS", "a=s3cr3t%", "http://c"},
		{"TIMEOUT", "s3cr3t", "http://c"},
		{"TIMEOUT", "-1", "http://c"},
		{"CERTIFICATE", junk, "https://c"},
		{"CERTIFICATE", junk + "-", "https://c"},
		{"CLIENT_CERTIFICATE", junk, "https://c"},
		{"CLIENT_KEY", junk, "https://c"},
	} {
		t.Run(c.name+c.value, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_"+c.name, c.value)
			if _, err := NewExporter(t.Context(), c.collector, "1", slog.New(slog.DiscardHandler)); err == nil ||
				!strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_"+c.name) || strings.Contains(err.Error(), "s3cr3t") {
				t.Error(err)
			}
		})
	}
}
