package traces

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Exporter sends spans in the background. It queues at most 2048 and drops others.
type Exporter struct {
	provider *sdk.TracerProvider
	log      *slog.Logger
}

// NewExporter returns an exporter to a collector, such as http://127.0.0.1:4318. The OTEL_ variables set headers, timeouts,
// certificates, service name and sampler. It sends nothing yet.
func NewExporter(ctx context.Context, collector, release string, log *slog.Logger) (*Exporter, error) {
	u, err := url.Parse(collector)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("traces: the collector must be an http or https address: fix TOLL_TRACES (--traces)")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	to, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()))
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "toll"), attribute.String("service.version", release)), resource.WithFromEnv(), resource.WithHost())
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	otel.SetErrorHandler(errorsTo(log))
	return &Exporter{sdk.NewTracerProvider(sdk.WithBatcher(to), sdk.WithResource(about)), log}, nil
}

// Tracer returns the tracer.
func (e *Exporter) Tracer() trace.Tracer { return e.provider.Tracer(Scope) }

// closeTime bounds the end of an exporter, so that an unreachable collector does not delay a shutdown.
const closeTime = 2 * time.Second

// Close sends the queue. It logs spans that are lost.
func (e *Exporter) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	if err := e.provider.Shutdown(ctx); err != nil {
		e.log.WarnContext(ctx, "traces were not sent", "error", err.Error())
	}
	return nil
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
