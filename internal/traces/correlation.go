package traces

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// Context is a context with the id of a request. It is embedded in the request state, so that it costs no allocation.
type Context struct {
	context.Context
	ID string
}

type idKey struct{}

// Value implements [context.Context].
func (c *Context) Value(key any) any {
	if key == (idKey{}) {
		return c.ID
	}
	return c.Context.Value(key)
}

// ID returns the id of the request of a context, else "".
func ID(ctx context.Context) string {
	id, _ := ctx.Value(idKey{}).(string)
	return id
}

// Follow returns work with only the id and the trace of the request that caused it.
func Follow(work, cause context.Context) context.Context {
	if id := ID(cause); id != "" {
		work = &Context{work, id}
	}
	if span := trace.SpanContextFromContext(cause); span.IsValid() {
		work = trace.ContextWithSpanContext(work, span)
	}
	return work
}

// Attr is the attribute of a log line with the id.
const Attr = "correlationId"

// Log returns a handler that adds the id of the request to log lines with its context.
func Log(next slog.Handler) slog.Handler { return handler{next} }

type handler struct{ slog.Handler }

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	id, span := ID(ctx), trace.SpanContextFromContext(ctx)
	if id != "" || span.IsValid() {
		r = r.Clone()
	}
	if id != "" {
		r.AddAttrs(slog.String(Attr, id))
	}
	if span.IsValid() {
		r.AddAttrs(slog.String("traceId", span.TraceID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs)}
}

func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }
