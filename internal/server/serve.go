package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/pace"
	"github.com/tollhq/toll/internal/store"
)

// Serve answers requests on the listener until ctx ends. Then it takes no more, lets those in flight finish, settles in
// the queue included, and returns nil; what takes longer than 18 s is cut off, and is an error. It also ends, with
// [store.ErrFlush], when the disk can no longer be trusted. Close comes after.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	h := api.NewServer(s.handler)
	h.ErrorLog = slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug)
	h.RegisterOnShutdown(s.checkout.StopWaiting)
	h.RegisterOnShutdown(s.events.EndStreams)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-s.base.store.Failed():
			stop(store.ErrFlush)
		case <-ctx.Done():
		}
	}()
	err := ServeUntil(ctx, h, api.Listen(pace.Listen(ln, pace.Patience, pace.MinRate)), drainTime)
	if errors.Is(context.Cause(ctx), store.ErrFlush) {
		err = errors.Join(store.ErrFlush, err)
	}
	return err
}

// ServeMetrics is [Server.Serve] for the operator's own listener.
func (s *Server) ServeMetrics(ctx context.Context, ln net.Listener) error {
	return ServeUntil(ctx, &http.Server{Handler: s.Metrics(), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second}, ln, drainTime)
}

// ServeUntil serves until ctx ends. What is running then, and what comes last, has the grace to end, and is cut off after it.
func ServeUntil(
	ctx context.Context, h *http.Server, ln net.Listener, grace time.Duration, last ...func(context.Context) error,
) error {
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(ln) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := h.Shutdown(end)
	for _, f := range last {
		err = errors.Join(err, f(end))
	}
	if err != nil {
		err = errors.Join(err, h.Close())
	}
	if e := <-failed; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}
