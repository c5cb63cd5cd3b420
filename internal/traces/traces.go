// Package traces creates OpenTelemetry spans for work and outgoing requests. Without a tracer in the context, its functions do
// nothing and allocate nothing. It replaces otelhttp, which writes whole URLs, and with them secrets, into spans.
package traces

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the name of the tracer.
const Scope = "github.com/tollhq/toll"

type tracerKey struct{}

// With returns a context in which background work has spans.
func With(ctx context.Context, tracer trace.Tracer) context.Context {
	return context.WithValue(ctx, tracerKey{}, tracer)
}

// tracer returns the tracer of a context, or nil.
func tracer(ctx context.Context) trace.Tracer {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		return span.TracerProvider().Tracer(Scope)
	}
	t, _ := ctx.Value(tracerKey{}).(trace.Tracer)
	return t
}

// Span is a span of work. The zero value does nothing.
type Span struct{ of trace.Span }

// Start begins a span. id identifies its subject, such as an order.
func Start(ctx context.Context, name, id string) (context.Context, Span) {
	t := tracer(ctx)
	if t == nil {
		return ctx, Span{}
	}
	ctx, of := t.Start(ctx, name, trace.WithAttributes(attribute.String("toll.id", id)))
	return ctx, Span{of}
}

// End ends the span, as failed if err is not nil.
func (s Span) End(err error) {
	if s.of == nil {
		return
	}
	if err != nil {
		s.of.SetStatus(codes.Error, err.Error())
	}
	s.of.End()
}

// Request sets the operation and the log id on the span of a request, if there is one.
func Request(ctx context.Context, operation, correlationID string) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetName(operation)
		span.SetAttributes(attribute.String("toll.correlation_id", correlationID))
	}
}

// Transport returns next with a span for each request whose context has a span, and adds the trace to its headers. Requests of
// background loops have no span. A span contains only the host of the URL, because paths and queries of endpoints, webhooks, and the
// card processor contain keys and names.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !trace.SpanFromContext(r.Context()).IsRecording() {
		return t.next.RoundTrip(r)
	}
	ctx, span := tracer(r.Context()).Start(r.Context(), r.Method, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("http.request.method", r.Method), attribute.String("server.address", r.URL.Hostname())))
	defer span.End()
	r = r.Clone(ctx)
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
	res, err := t.next.RoundTrip(r)
	if err != nil {
		span.SetStatus(codes.Error, "no answer") // its text may hold the address
		return res, err
	}
	span.SetAttributes(attribute.Int("http.response.status_code", res.StatusCode))
	if res.StatusCode >= http.StatusBadRequest {
		span.SetStatus(codes.Error, "")
	}
	return res, nil
}

// CloseIdleConnections is for [http.Client].
func (t transport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Handler returns next with a span for each request, in the trace of its headers.
func Handler(next http.Handler, by trace.Tracer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := by.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attribute.String("http.request.method", r.Method)))
		a := answer{ResponseWriter: w, status: http.StatusInternalServerError} // what a panic is answered with
		defer func() {
			span.SetAttributes(attribute.Int("http.response.status_code", a.status))
			if a.status >= http.StatusInternalServerError {
				span.SetStatus(codes.Error, "")
			}
			span.End()
		}()
		next.ServeHTTP(&a, r.WithContext(ctx))
	})
}

// answer records the status of a response.
type answer struct {
	http.ResponseWriter
	status int
	wrote  bool
}

func (a *answer) WriteHeader(status int) {
	if !a.wrote && status >= http.StatusOK {
		a.status, a.wrote = status, true
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	if !a.wrote {
		a.status, a.wrote = http.StatusOK, true
	}
	return a.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
