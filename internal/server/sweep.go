package server

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/store"
)

const (
	sweepEvery = time.Second
	// sweepShare bounds the work of one turn, so that a long backlog after a restart leaves the writer to the callers.
	sweepShare = 300 * time.Millisecond
)

// sweep lapses holds and ends lots that are over, in slices, until ctx ends. Any number of processes may do this on one
// database: what one has done, the others do not find.
func (s *Server) sweep(ctx context.Context) {
	for {
		// The jitter keeps processes that were started together apart.
		pause := sweepEvery/2 + rand.N(sweepEvery)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		for began := time.Now(); time.Since(began) < sweepShare; {
			n, err := s.ledger.Sweep(ctx)
			if s.metrics != nil {
				s.metrics.swept.Add(float64(n))
			}
			if err != nil && ctx.Err() == nil {
				s.cfg.Log.Warn("sweep", "error", err.Error())
			}
			if err != nil || n == 0 || n < sweepSlice {
				break
			}
		}
	}
}

// sweepSlice is how many accounts a full slice of the ledger holds; fewer mean that nothing more is due.
const sweepSlice = 256

// reconcileEvery is how often open orders are looked at that nobody waits for. Those of a process that died are found at the
// next start, and by every other process.
const reconcileEvery = 2 * time.Second

// reconcile goes on with orders whose payment is not decided, until ctx ends.
func (s *Server) reconcile(ctx context.Context) {
	for {
		if _, err := s.checkout.Reconcile(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("reconcile orders", "error", err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(reconcileEvery/2 + rand.N(reconcileEvery)):
		}
	}
}

const (
	forgetEvery = time.Minute
	// forgetSlice is how many answers one transaction removes.
	forgetSlice = 500
)

// forget removes answers and payments that are kept for repeated calls, once their time is over, until ctx ends.
func (s *Server) forget(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(forgetEvery/2 + rand.N(forgetEvery)):
		}
		for {
			n, err := store.DropAnswers(ctx, s.base.store, s.cfg.Clock().Add(-api.AnswerLife), forgetSlice)
			if err != nil && ctx.Err() == nil {
				s.cfg.Log.Warn("forget answers", "error", err.Error())
			}
			if err != nil || n < forgetSlice {
				break
			}
		}
		for more := true; more; {
			var err error
			if more, err = s.facilitator.Sweep(ctx); err != nil && ctx.Err() == nil {
				s.cfg.Log.Warn("forget payments", "error", err.Error())
			}
			more = more && err == nil
		}
	}
}
