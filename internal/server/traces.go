package server

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/tollhq/toll/internal/traces"
)

// trace starts to send spans, if the operator wants them, and returns what makes them.
func (s *Server) trace(ctx context.Context) (trace.Tracer, error) {
	if s.cfg.Traces == "" {
		return nil, nil
	}
	to, err := traces.NewExporter(ctx, s.cfg.Traces, s.cfg.Release, s.cfg.Log)
	if err != nil {
		return nil, err
	}
	s.jobs.OnStop("traces", to.Close)
	s.jobs.Under(traces.With(context.Background(), to.Tracer()))
	return to.Tracer(), nil
}
