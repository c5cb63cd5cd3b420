package server

import (
	"context"
	"time"

	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

const (
	sweepEvery = time.Second
	// sweepShare bounds the work of one turn, so that a long backlog after a restart leaves the writer to the callers.
	sweepShare = 300 * time.Millisecond
	// sweepSlice is how many accounts a full slice of the ledger holds; fewer mean that nothing more is due.
	sweepSlice  = 256
	forgetEvery = time.Minute
	// retainEvery and retainShare bound how much of the time is spent on what is past its time.
	retainEvery = 10 * time.Second
	retainShare = time.Second
	// retainKeySlices of 256 keys are looked at in a turn: 17 million a day, round and round.
	retainKeySlices = 8
	// forgetSlice is how many answers one transaction removes.
	forgetSlice = 500

	// checkpointAfter is the pause between a write and the look at the log. It lets a busy writer add about 4000 pages, a fourth of
	// those at which it checkpoints itself.
	checkpointAfter = 200 * time.Millisecond
	cutEvery        = 10 * time.Second
	// cutWrites is how many transactions between two turns are few. Probes of an idle service are one a second.
	cutWrites = 30
)

// loops returns what this room and those without loops of their own do in the background. Any number of processes may do it on one
// database.
func (s *Server) loops() []jobs.Loop {
	loops := []jobs.Loop{
		s.base.auth.Loop(),
		{Name: "ledger.sweep", Every: sweepEvery, Run: jobs.Do(s.sweep)},
		{Name: "answers.forget", Every: forgetEvery, Run: jobs.Sweep(func(ctx context.Context) (bool, error) {
			n, err := store.DropAnswers(ctx, s.base.store, s.cfg.Clock().Add(-api.AnswerLife), forgetSlice)
			return n == forgetSlice, err
		})},
		{Name: "ledger.retain", Every: retainEvery, Run: jobs.Do(s.retain)},
		{Name: "payments.forget", Every: forgetEvery, Run: jobs.Sweep(s.facilitator.Purchases.Exact.Sweep)},
		{Name: "oauth.sweep", Every: forgetEvery, Run: jobs.Sweep(s.oauth.Sweep)},
		{Name: "people.sweep", Every: forgetEvery, Run: jobs.Sweep(s.people.Sweep)},
		{Name: "database.probe", Every: probeEvery, Run: jobs.Do(s.probeDatabase())},
		{Name: "recovery.watch", Every: recoveryEvery, Run: jobs.Do(s.watchRecovery)},
		{Name: "database.report", Every: probeEvery, Run: jobs.Do(s.reportDatabase())},
	}
	if s.base.store.Engine() == store.SQLite {
		loops = append(loops,
			jobs.Loop{
				Name: "database.checkpoint", Wake: s.base.store.Written(), Gather: checkpointAfter, Run: jobs.Do(s.base.store.Checkpoint),
			},
			jobs.Loop{Name: "database.cut", Every: cutEvery, Run: jobs.Do(s.cutLog())})
	}
	if s.cfg.Backups.Dir != "" {
		loops = append(loops, s.backupLoop())
	}
	if s.base.clock.moves {
		loops = append(loops, jobs.Loop{Name: "clock.follow", Every: followEvery, Run: jobs.Do(s.follow)})
	}
	return loops
}

// retain removes requests that are past their time, in slices. A turn takes at most its share of the time: settlements go before,
// and a backlog has days.
func (s *Server) retain(ctx context.Context) error {
	horizon := s.cfg.horizon()
	if horizon == 0 {
		return nil
	}
	more := true
	for began := time.Now(); more && time.Since(began) < retainShare; {
		var n ledger.Retained
		var err error
		n, more, err = s.ledger.Retain(ctx, s.cfg.Clock().Add(-horizon))
		s.metrics.Retained("settlement", n.Burns)
		s.metrics.Retained("request", n.Requests)
		s.metrics.Retained("permission", n.Permissions)
		if err != nil {
			return err
		}
	}
	for range retainKeySlices {
		var n int
		var err error
		s.keysFrom, n, err = s.ledger.RetainKeys(ctx, s.keysFrom)
		s.metrics.Retained("key", n)
		if err != nil || s.keysFrom == (ledger.KeyCursor{}) {
			return err
		}
	}
	return nil
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

// cutLog returns the turn that cuts the write-ahead log of the embedded database while little is written.
func (s *Server) cutLog() func(context.Context) error {
	var before uint64
	return func(ctx context.Context) error {
		writes, _ := s.base.store.Writes()
		quiet := writes-before < cutWrites
		before = writes
		if !quiet {
			return nil
		}
		return s.base.store.CutLog(ctx)
	}
}
