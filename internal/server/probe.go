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
	// probeLimit is how long an empty transaction may take before the database counts as failing.
	probeLimit = 2 * time.Second
)

// probe knows whether the database takes transactions, without a caller of /ready being able to cause one.
type probe struct {
	began atomic.Int64 // of the transaction that is under way, in nanoseconds; 0 = none
	bad   atomic.Bool  // the last one failed
}

func (p *probe) failing(now time.Time) bool {
	began := p.began.Load()
	return p.bad.Load() || began != 0 && now.Sub(time.Unix(0, began)) > probeLimit
}

// run makes an empty transaction a second. It waits in line with the writer, so it also sees a queue that stands still.
func (p *probe) run(ctx context.Context, s *Server) {
	for {
		began := time.Now()
		p.began.Store(began.UnixNano())
		err := s.base.store.Tx(ctx, func(*store.Tx) error { return nil })
		slow := time.Since(began) > probeLimit
		p.began.Store(0)
		if bad := (err != nil || slow) && !errors.Is(err, context.Canceled); p.bad.Swap(bad) != bad {
			if bad {
				s.cfg.Log.Error("the database does not take transactions in time", "took", time.Since(began), "error", errorText(err))
			} else {
				s.cfg.Log.Info("the database takes transactions again")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(probeEvery):
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
