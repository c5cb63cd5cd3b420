package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/pace"
	"github.com/tollhq/toll/internal/store"
)

// Serve answers requests on the listener until ctx ends. Then GET /ready answers 503, and requests are still accepted for Config.Drain.
// After that it accepts none, finishes those in flight, settles in the queue included, and returns nil. What is in flight 18 s after the
// end of ctx is cut off, which is an error. Serve also ends, at once and with [store.ErrFlush], when the disk can no longer be trusted.
// Close comes after.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	h := api.NewServer(http.HandlerFunc(s.serveHTTP))
	h.ErrorLog = slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug)
	h.RegisterOnShutdown(s.checkout.StopWaiting)
	h.RegisterOnShutdown(s.events.EndStreams)
	open, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	go func() {
		select {
		case <-s.base.store.Failed():
			stop(store.ErrFlush)
		case <-ctx.Done():
			s.drain(open, ln)
			stop(nil)
		case <-open.Done():
		}
	}()
	most := pace.Descriptors(1)
	listener := pace.Limit(api.Listen(pace.Listen(drained{ln, s}, pace.Patience, pace.MinRate)), most, most/4)
	err := ServeUntil(open, h, listener, drainTime-s.cfg.Drain)
	if errors.Is(context.Cause(open), store.ErrFlush) {
		err = errors.Join(store.ErrFlush, err)
	}
	return err
}

// checkDrain refuses a drain that leaves no time for what it does, or for requests in flight after it.
func (c Config) checkDrain() error {
	if c.Drain == 0 || c.Drain >= time.Second && c.Drain <= MaxDrain {
		return nil
	}
	return fmt.Errorf("the drain time must be 0, or from 1s to %s; got %s: fix TOLL_DRAIN (--drain)", MaxDrain, c.Drain)
}

// serveHTTP serves a request. While the service drains, each connection ends with its next answer, so
// that few are left that a client could use at the moment in which they are closed.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() {
		w.Header().Set("Connection", "close")
	}
	s.handler.ServeHTTP(w, r)
}

// drain makes GET /ready answer 503 and waits for Config.Drain, so that load balancers send requests elsewhere. Then it stops new
// connections, and waits until those that were begun are accepted. It returns early when open ends.
func (s *Server) drain(open context.Context, ln net.Listener) {
	s.draining.Store(true)
	if s.cfg.Drain == 0 {
		return
	}
	s.cfg.Log.InfoContext(open, "draining: GET /ready returns 503, requests are still accepted", "for", s.cfg.Drain.String())
	wait(open, s.cfg.Drain-lastConnections)
	if conn, ok := ln.(syscall.Conn); ok {
		raw, err := conn.SyscallConn()
		if err == nil {
			err = refuseConnections(raw)
		}
		if err != nil {
			s.cfg.Log.WarnContext(open, "cannot refuse new connections before the listener closes; some may be reset", "error", err.Error())
		}
	}
	wait(open, lastConnections)
}

// drained is the listener of a server that may drain.
type drained struct {
	net.Listener
	s *Server
}

func (l drained) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil && l.s.draining.Load() {
		serveConnection(c)
	}
	return c, err
}

// Listen returns a listener for [Server.Serve].
func Listen(ctx context.Context, address string) (net.Listener, error) {
	return listen(ctx, address, nil)
}

// listen listens with plain TCP. The default of Go on Linux is Multipath TCP, whose sockets refuse the option of [refuseConnections].
func listen(ctx context.Context, address string, control func(string, string, syscall.RawConn) error) (net.Listener, error) {
	c := net.ListenConfig{Control: control}
	c.SetMultipathTCP(false)
	ln, err := c.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return ln, nil
}

// CanListen reports why nothing can listen on an address. Nobody is connected meanwhile (on Linux): the
// clients of a process that has just ended try to connect again and again, and would be cut off.
func CanListen(ctx context.Context, address string) error {
	ln, err := listen(ctx, address, func(_, _ string, raw syscall.RawConn) error {
		_ = refuseConnections(raw) // elsewhere than on Linux there is no way
		return nil
	})
	if err != nil {
		return err
	}
	return ln.Close()
}

// wait returns after d, or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// ServeMetrics is [Server.Serve] for the operator's own listener.
func (s *Server) ServeMetrics(ctx context.Context, ln net.Listener) error {
	return ServeUntil(ctx, &http.Server{Handler: s.Metrics(), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second}, ln, drainTime)
}

// ServeUntil serves until ctx ends. What is running then, and what comes last, has the grace to end, and is cut off after it.
func ServeUntil(ctx context.Context, h *http.Server, ln net.Listener, grace time.Duration, last ...func(context.Context) error) error {
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
