package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
)

// ShowRecovery returns how far a restored database is.
func ShowRecovery(ctx context.Context, cfg server.Config) (server.Recovery, error) {
	return server.Administer(ctx, cfg, server.Reading, func(db *server.Database) (server.Recovery, error) {
		return server.ReadRecovery(ctx, db.Store)
	})
}

// BeginRecovery marks a database that was restored with other tools, such as those of PostgreSQL, before the service starts. backupAt is
// the moment of the backup. A database that is marked already keeps its mark.
func BeginRecovery(ctx context.Context, cfg server.Config, backupAt time.Time) (server.Recovery, error) {
	return server.Administer(ctx, cfg, server.Writing, func(db *server.Database) (server.Recovery, error) {
		now := db.Machine()
		if backupAt.After(now) {
			return server.Recovery{}, fmt.Errorf("the backup cannot be from %s, which is in the future", backupAt.UTC().Format(time.RFC3339))
		}
		err := db.Store.Tx(ctx, func(tx *store.Tx) error {
			if mark, err := store.ReadRestoration(ctx, tx); err != nil || mark != nil {
				return err
			}
			err := store.PutRestoration(ctx, tx, &store.Restoration{BackupAt: backupAt.UTC(), RestoredAt: now.UTC()})
			if err != nil {
				return err
			}
			return auditRecovery(ctx, tx, "recovery.began", db.Now(), backupAt)
		})
		if err != nil {
			return server.Recovery{}, err
		}
		return server.ReadRecovery(ctx, db.Store)
	})
}

// EndRecovery removes the mark of a restored database. The error says what is still to be done. A repeat changes nothing.
func EndRecovery(ctx context.Context, cfg server.Config) error {
	return inTx(ctx, cfg, func(db *server.Database, tx *store.Tx) error {
		r, err := server.ReadRecovery(ctx, tx)
		if err != nil || !r.Restored {
			return err
		}
		if err := r.Open(); err != nil {
			return err
		}
		if err := store.PutRestoration(ctx, tx, nil); err != nil {
			return err
		}
		return auditRecovery(ctx, tx, "recovery.ended", db.Now(), r.BackupAt.Time)
	})
}

func auditRecovery(ctx context.Context, tx *store.Tx, act string, now, backupAt time.Time) error {
	return store.Audit(ctx, tx, store.Act{
		Act: act, Object: "database", At: now, Detail: store.Changed{After: map[string]any{"backupAt": backupAt}},
	})
}
