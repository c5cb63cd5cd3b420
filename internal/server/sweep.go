package server

import (
	"context"
	"time"

	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
)

const (
	sweepEvery = time.Second
	// sweepShare bounds the work of one turn, so that a long backlog after a restart leaves the writer to the callers.
	sweepShare = 300 * time.Millisecond
	// sweepSlice is how many accounts a full slice of the ledger holds; fewer mean that nothing more is due.
	sweepSlice = 256
	// reconcileEvery is how often open orders are resumed that nobody waits for.
	reconcileEvery = 2 * time.Second
	forgetEvery    = time.Minute
	// forgetSlice is how many answers one transaction removes.
	forgetSlice = 500
)

// loops returns what this room and those without loops of their own do in the background. Any number of processes may do it on one
// database.
func (s *Server) loops() []jobs.Loop {
	loops := []jobs.Loop{
		s.base.auth.Loop(),
		{Name: "ledger.sweep", Every: sweepEvery, Turn: jobs.Do(s.sweep)},
		{Name: "checkout.reconcile", Every: reconcileEvery, Turn: jobs.Do(func(ctx context.Context) error {
			_, err := s.checkout.Reconcile(ctx)
			return err
		})},
		{Name: "answers.forget", Every: forgetEvery, Turn: jobs.Sweep(func(ctx context.Context) (bool, error) {
			n, err := store.DropAnswers(ctx, s.base.store, s.cfg.Clock().Add(-api.AnswerLife), forgetSlice)
			return n == forgetSlice, err
		})},
		{Name: "payments.forget", Every: forgetEvery, Turn: jobs.Sweep(s.facilitator.Sweep)},
		{Name: "oauth.sweep", Every: forgetEvery, Turn: jobs.Sweep(s.oauth.Sweep)},
		{Name: "database.probe", Every: probeEvery, Turn: jobs.Do(s.probeDatabase())},
		{Name: "database.report", Every: probeEvery / 4, Turn: jobs.Do(s.reportDatabase())},
	}
	if s.base.clock.moves {
		loops = append(loops, jobs.Loop{Name: "clock.follow", Every: followEvery, Turn: jobs.Do(s.follow)})
	}
	return loops
}

// newQueue returns the queue of rare work with its handlers.
func (s *Server) newQueue(ctx context.Context) (*jobs.Queue, error) {
	q := jobs.NewQueue(s.base.store, s.base.clock.now, s.cfg.Log)
	q.Handle(store.JobEndKey, s.base.auth.FinishKey)
	q.Handle(store.JobEndGrant, s.oauth.FinishGrant)
	q.Handle(store.JobEndDelegation, s.checkout.FinishRevocation)
	if s.base.store.Engine() == store.SQLite { // there is one service on a directory
		return q, s.base.store.Tx(ctx, func(tx *store.Tx) error { return store.FreeHeld(ctx, tx) })
	}
	return q, nil
}

// sweep lapses holds and ends lots that are over, in slices.
func (s *Server) sweep(ctx context.Context) error {
	for began := time.Now(); time.Since(began) < sweepShare; {
		n, err := s.ledger.Sweep(ctx)
		s.metrics.Swept(n)
		if err != nil || n < sweepSlice {
			return err
		}
	}
	return nil
}
