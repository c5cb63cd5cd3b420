package traces

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tollhq/toll/internal/backoff"
	"github.com/tollhq/toll/internal/plain"
)

const (
	closeTime = 2 * time.Second // bounds the end of an exporter, so that an unreachable collector does not delay a shutdown
	retryTime = time.Minute     // from the first request of a batch to its last one; the SDK cancels them after 30 seconds by default
	maxAnswer = 64 << 10        // bytes of the header and of the body of a response
	never     = time.Duration(-1)
)

// Exporter sends spans in the background. It queues at most 2048 spans and drops the rest.
type Exporter struct {
	provider *sdk.TracerProvider
	client   *client
	log      *slog.Logger
}

// NewExporter returns an exporter to a collector, such as http://127.0.0.1:4318. The OTEL_ variables set headers, timeouts,
// certificates, compression, service name, and sampler. It sends nothing yet.
func NewExporter(ctx context.Context, collector, release string, log *slog.Logger) (*Exporter, error) {
	u, err := url.Parse(collector)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("traces: the collector must be an http or https address: fix TOLL_TRACES (--traces)")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	to, err := newClient(&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path})
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "toll"), attribute.String("service.version", release)), resource.WithFromEnv(), resource.WithHost())
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	otel.SetErrorHandler(errorsTo(log))
	return &Exporter{sdk.NewTracerProvider(sdk.WithBatcher(to), sdk.WithResource(about)), to, log}, nil
}

// Tracer returns the tracer.
func (e *Exporter) Tracer() trace.Tracer { return e.provider.Tracer(Scope) }

// Close sends the queue. It logs spans that are lost.
func (e *Exporter) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	err := e.provider.Shutdown(ctx)
	if err != nil {
		e.log.WarnContext(ctx, "traces were not sent", "error", err.Error())
	}
	return e.client.Shutdown(ctx) // cancels the requests of the provider, which ignore ctx
}

// errorsTo logs lost spans at most once a minute.
func errorsTo(log *slog.Logger) otel.ErrorHandlerFunc {
	var last atomic.Int64
	return func(err error) {
		now := time.Now().Unix()
		if was := last.Load(); now-was >= 60 && last.CompareAndSwap(was, now) {
			log.Warn("traces were not sent", "error", err.Error())
		}
	}
}

// client sends spans to a collector as OTLP JSON. It replaces otlptracehttp, which links gRPC and protobuf.
type client struct {
	url     string
	header  http.Header
	secrets []string // words of the headers that the operator set
	http    *http.Client
	open    context.Context // ends with Shutdown
	close   context.CancelFunc
}

// newClient reads the OTEL_ variables. It does not follow redirects, because headers may contain credentials.
func newClient(collector *url.URL) (*client, error) {
	secure, err := certificates()
	if err != nil || secure != nil && collector.Scheme == "http" {
		return nil, cmp.Or(err, errors.New("the certificates of OTEL_EXPORTER_OTLP_ variables need a collector with an https address"))
	}
	timeout, err := strconv.ParseUint(cmp.Or(variable("TIMEOUT"), "10000"), 10, 31)
	if err != nil {
		return nil, errors.New("OTEL_EXPORTER_OTLP_TIMEOUT must be a number of milliseconds")
	}
	c := &client{url: collector.String(), header: http.Header{"User-Agent": {"toll"}}, http: &http.Client{
		Timeout:       time.Duration(timeout) * time.Millisecond,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure, ForceAttemptHTTP2: true,
			IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: maxAnswer},
	}}
	for pair := range strings.SplitSeq(variable("HEADERS"), ",") {
		name, value, found := strings.Cut(pair, "=")
		value, err := url.PathUnescape(value)
		name = strings.ToLower(strings.TrimSpace(name))
		switch {
		case name == "" && !found:
			continue
		case err != nil, name == "", strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~") != "", strings.ContainsFunc(value, unicode.IsControl):
			return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS must be a list such as name=value,other=value with percent-encoded values")
		}
		c.header.Set(name, strings.TrimSpace(value))
		c.secrets = append(c.secrets, strings.Fields(value)...)
	}
	c.header.Set("Content-Type", "application/json")
	if variable("COMPRESSION") == "gzip" {
		c.header.Set("Content-Encoding", "gzip")
	}
	c.open, c.close = context.WithCancel(context.Background())
	return c, nil
}

// variable returns an OTEL_ variable for traces, or else the one for all signals.
func variable(name string) string {
	return cmp.Or(strings.TrimSpace(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name)), strings.TrimSpace(os.Getenv("OTEL_EXPORTER_OTLP_"+name)))
}

// certificates loads the certificates of the OTEL_ variables. It returns nil if no variable is set.
func certificates() (c *tls.Config, err error) {
	if file := variable("CERTIFICATE"); file != "" {
		c = &tls.Config{RootCAs: x509.NewCertPool()}
		if text, err := os.ReadFile(file); err != nil || !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE must be a PEM file with certificates: %w", cmp.Or(err, errors.New("found none")))
		}
	}
	if file, key := variable("CLIENT_CERTIFICATE"), variable("CLIENT_KEY"); file+key != "" {
		c = cmp.Or(c, &tls.Config{})
		c.Certificates = make([]tls.Certificate, 1)
		if c.Certificates[0], err = tls.LoadX509KeyPair(file, key); err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY must be PEM files: %w", err)
		}
	}
	return c, nil
}

// ExportSpans implements [sdk.SpanExporter]. It retries failures that may be temporary.
func (c *client) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	body, err := json.Marshal(message(spans))
	if err != nil {
		return err
	}
	if c.header.Get("Content-Encoding") == "gzip" {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := w.Write(body)
		if err = errors.Join(err, w.Close()); err != nil {
			return err
		}
		body = b.Bytes()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.open, cancel)()
	for start, failures := time.Now(), 1; ; failures++ {
		after, err := c.post(ctx, body)
		pause := max(after, backoff.Delay(5*time.Second, 30*time.Second, failures))
		if after == never || time.Since(start)+pause > retryTime || !backoff.Sleep(ctx, pause) {
			return err
		}
	}
}

// post sends one request. After a failure that may be temporary, it returns the pause for which the collector asks, otherwise never.
// Errors contain neither the path of the collector, which may be secret, nor values of headers.
func (c *client) post(ctx context.Context, body []byte) (time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return never, err
	}
	r.Header = c.header.Clone()
	res, err := c.http.Do(r)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = fmt.Errorf("no response from the collector: %w", failed.Err)
		if failed.Temporary() {
			return 0, err
		}
		return never, err
	}
	defer res.Body.Close()
	var answer struct {
		Message        string // of an error
		PartialSuccess struct {
			RejectedSpans json.Number
			ErrorMessage  string
		}
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	_ = json.Unmarshal(text, &answer) // only a JSON response explains the status
	switch rejected, _ := answer.PartialSuccess.RejectedSpans.Int64(); {
	case res.StatusCode/100 != 2:
		err = fmt.Errorf("the collector returned status %d%s", res.StatusCode, c.clean(answer.Message))
	case rejected != 0 || answer.PartialSuccess.ErrorMessage != "":
		err = fmt.Errorf("the collector rejected %d spans%s", rejected, c.clean(answer.PartialSuccess.ErrorMessage))
	}
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		after := res.Header.Get("Retry-After")
		if seconds, notNumber := strconv.ParseUint(after, 10, 32); notNumber == nil {
			return time.Duration(seconds) * time.Second, err
		}
		at, _ := http.ParseTime(after)
		return max(time.Until(at), 0), err
	}
	return never, err
}

// clean returns a message of the collector for an error, without values of headers, which the collector may repeat.
func (c *client) clean(message string) string {
	for _, secret := range c.secrets {
		message = strings.ReplaceAll(message, secret, "(set)")
	}
	if message = plain.Text(message, 200); message != "" {
		message = ": " + message
	}
	return message
}

// Shutdown implements [sdk.SpanExporter]. It cancels requests.
func (c *client) Shutdown(context.Context) error {
	c.close()
	c.http.CloseIdleConnections()
	return nil
}
