package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/check"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/store"
)

// recoveryEvery is how often a process reads whether its database is marked as restored.
const recoveryEvery = 10 * time.Second

// Recovery is how far a restored database is.
type Recovery struct {
	Restored   bool       `json:"restored"` // the database is marked
	BackupID   string     `json:"backupId,omitempty"`
	BackupAt   *toll.Time `json:"backupAt,omitempty"`
	RestoredAt *toll.Time `json:"restoredAt,omitempty"`
	CardsRead  bool       `json:"cardsRead"` // up to the moment of the restore, or there are none
	ChainRead  bool       `json:"chainRead"`
	Unmatched  int64      `json:"unmatchedPayments"`
}

// Open returns what keeps the mark, nil for nothing.
func (r *Recovery) Open() error {
	switch {
	case !r.CardsRead:
		return errors.New("the service has not read the events of the card processor since the restore: start toll serve and wait")
	case !r.ChainRead:
		return errors.New("the service has not read the chain since the restore: start toll serve and wait")
	case r.Unmatched > 0:
		return fmt.Errorf("payments that match no order: %d; list them with toll orders unmatched and resolve each with toll orders resolve", r.Unmatched)
	}
	return nil
}

func ReadRecovery(ctx context.Context, q store.Querier) (out Recovery, err error) {
	mark, err := store.ReadRestoration(ctx, q)
	if err != nil || mark == nil {
		return out, err
	}
	backup, restored := toll.At(mark.BackupAt), toll.At(mark.RestoredAt)
	out = Recovery{Restored: true, BackupID: mark.BackupID, BackupAt: &backup, RestoredAt: &restored}
	if out.CardsRead, err = rails.EventsRead(ctx, q, mark.RestoredAt); err != nil {
		return out, err
	}
	if out.ChainRead, err = rails.ChainRead(ctx, q); err != nil {
		return out, err
	}
	counts, err := store.CountOrphans(ctx, q)
	for _, n := range counts {
		out.Unmatched += n
	}
	return out, err
}

// watchRecovery reads whether the database is marked as restored, for /ready and the metrics.
func (s *Server) watchRecovery(ctx context.Context) error {
	mark, err := store.ReadRestoration(ctx, s.base.store)
	if err != nil {
		return err
	}
	if was := s.restored.Swap(mark != nil); mark != nil && !was {
		alarm.Log(ctx, s.cfg.Log, alarm.DatabaseRestored, "the database was restored; run toll recovery show", "backup_at", mark.BackupAt)
	}
	return nil
}

// inspectRecovery reports a restored database.
func inspectRecovery(ctx context.Context, st *store.Store, add check.Report) {
	r, err := ReadRecovery(ctx, st)
	switch {
	case err != nil:
		add("recovery", check.Failed, "%s", err)
	case !r.Restored:
	case r.Open() != nil:
		add("recovery", check.Warning, "the database was restored from a backup of %s: %s", r.BackupAt, r.Open())
	default:
		add("recovery", check.Warning, "the database was restored from a backup of %s, and every recovery step is done: run toll recovery end to resume work", r.BackupAt)
	}
}
