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

// open returns what keeps the mark, nil for nothing.
func (r *Recovery) open() error {
	switch {
	case !r.CardsRead:
		return errors.New("the events of the card processor have not been read since the restore: start toll serve and wait")
	case !r.ChainRead:
		return errors.New("the chain has not been read since the restore: start toll serve and wait")
	case r.Unmatched > 0:
		return fmt.Errorf("%d payments belong to no order: toll orders unmatched lists them, and toll orders resolve deals with each", r.Unmatched)
	}
	return nil
}

func readRecovery(ctx context.Context, q store.Querier) (out Recovery, err error) {
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
	cards, chain, err := store.CountOrphans(ctx, q)
	out.Unmatched = cards + chain
	return out, err
}

// ShowRecovery reads how far a restored database is, beside a running service or not.
func ShowRecovery(ctx context.Context, cfg Config) (out Recovery, err error) {
	err = administer(ctx, cfg, reading, func(_ Config, f *foundation) error {
		out, err = readRecovery(ctx, f.store)
		return err
	})
	return out, err
}

// BeginRecovery marks a database that was restored with tools of others, PostgreSQL's for instance.
// backupAt is the moment of the backup. It is called before the service starts. A database that is
// marked already keeps its mark.
func BeginRecovery(ctx context.Context, cfg Config, backupAt time.Time) (out Recovery, err error) {
	err = administer(ctx, cfg, writing, func(_ Config, f *foundation) error {
		now := f.clock.machine()
		if backupAt.After(now) {
			return fmt.Errorf("the backup cannot be from %s, which is in the future", backupAt.UTC().Format(time.RFC3339))
		}
		err := f.store.Tx(ctx, func(tx *store.Tx) error {
			if mark, err := store.ReadRestoration(ctx, tx); err != nil || mark != nil {
				return err
			}
			err := store.PutRestoration(ctx, tx, &store.Restoration{BackupAt: backupAt.UTC(), RestoredAt: now.UTC()})
			if err != nil {
				return err
			}
			return auditRecovery(ctx, tx, "recovery.began", f.clock.now(), backupAt)
		})
		if err != nil {
			return err
		}
		out, err = readRecovery(ctx, f.store)
		return err
	})
	return out, err
}

// EndRecovery removes the mark of a restored database. The error says what is still to be done.
// A repeat changes nothing.
func EndRecovery(ctx context.Context, cfg Config) error {
	return administer(ctx, cfg, writing, func(_ Config, f *foundation) error {
		return f.store.Tx(ctx, func(tx *store.Tx) error {
			r, err := readRecovery(ctx, tx)
			if err != nil || !r.Restored {
				return err
			}
			if err := r.open(); err != nil {
				return err
			}
			if err := store.PutRestoration(ctx, tx, nil); err != nil {
				return err
			}
			return auditRecovery(ctx, tx, "recovery.ended", f.clock.now(), r.BackupAt.Time)
		})
	})
}

func auditRecovery(ctx context.Context, tx *store.Tx, act string, now, backupAt time.Time) error {
	return store.Audit(ctx, tx, store.Act{
		Act: act, Object: "database", At: now, Detail: store.Changed{After: map[string]any{"backupAt": backupAt}},
	})
}

// watchRecovery reads whether the database is marked as restored, for /ready and the metrics.
func (s *Server) watchRecovery(ctx context.Context) error {
	mark, err := store.ReadRestoration(ctx, s.base.store)
	if err != nil {
		return err
	}
	if was := s.restored.Swap(mark != nil); mark != nil && !was {
		alarm.Log(ctx, s.cfg.Log, alarm.DatabaseRestored, "the database was restored; see toll recovery show", "backup_at", mark.BackupAt)
	}
	return nil
}

// inspectRecovery reports a restored database.
func inspectRecovery(ctx context.Context, st *store.Store, add check.Report) {
	r, err := readRecovery(ctx, st)
	switch {
	case err != nil:
		add("recovery", check.Failed, "%s", err)
	case !r.Restored:
	case r.open() != nil:
		add("recovery", check.Warning, "the database was restored from a backup of %s: %s", r.BackupAt, r.open())
	default:
		add("recovery", check.Warning, "the database was restored from a backup of %s, and nothing is left to do: toll recovery end", r.BackupAt)
	}
}
