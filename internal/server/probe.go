package server

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tollhq/toll/internal/store"
)

const (
	probeEvery = time.Second
	// probeLimit is how long a probe may take before the database counts as failing.
	probeLimit = 2 * time.Second
	// probeRepeat is how often a failure that lasts is logged.
	probeRepeat = time.Minute
)

// probe finds out whether the database takes writes while nobody else writes, so that a caller of /ready causes nothing.
type probe struct {
	began atomic.Int64 // of the write that is under way, in nanoseconds; 0 = none
}

// databaseFailure returns why the database does not accept writes, as far as this process knows, or nil
// if it does. It does not block: the ledger and all other writers record their last outcome.
func (s *Server) databaseFailure() error {
	_, failure := s.base.store.Writes()
	began := s.probe.began.Load()
	if failure == nil && began != 0 && time.Since(time.Unix(0, began)) > probeLimit {
		return errStalled
	}
	return failure
}

var errStalled = errors.New("a write has taken more than 2 s")

// probeDatabase returns the turn that writes when nobody else did, and after a failure.
func (s *Server) probeDatabase() func(context.Context) error {
	var before uint64
	return func(ctx context.Context) error {
		writes, failure := s.base.store.Writes()
		if writes == before || failure != nil {
			s.probe.began.Store(time.Now().UnixNano())
			_ = s.base.store.Probe(ctx) // the store notes the outcome, and reportDatabase logs it
			s.probe.began.Store(0)
			writes, _ = s.base.store.Writes()
		}
		before = writes
		return nil
	}
}

// reportDatabase returns the turn that logs when the database stops to take writes, once a minute while that lasts, and when it
// takes them again. It is a loop of its own, since a probe may hang.
func (s *Server) reportDatabase() func(context.Context) error {
	var since, logged time.Time // of the failure that lasts, and of its last line
	return func(context.Context) error {
		failure := s.databaseFailure()
		switch {
		case failure == nil && !since.IsZero():
			s.cfg.Log.Info("the database accepts writes again", "path", s.base.store.Location(), "after", time.Since(since).Round(time.Second).String())
			since, logged = time.Time{}, time.Time{}
		case failure != nil && time.Since(logged) > probeRepeat:
			if logged = time.Now(); since.IsZero() {
				since = logged
			}
			s.cfg.Log.Error("the database does not accept writes", s.failureFields(failure)...)
		}
		return nil
	}
}

// failureFields returns the attributes of the log line about a database that does not accept writes.
func (s *Server) failureFields(failure error) []any {
	fields := []any{
		"path", s.base.store.Location(),
		"code", store.ErrorCode(failure),
		"error", store.ErrorText(failure),
	}
	if free, ok := s.base.store.Disk(); ok {
		fields = append(fields, "freeBytes", free)
	}
	return fields
}
