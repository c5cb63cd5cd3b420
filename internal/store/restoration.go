package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tollhq/toll"
)

// Settings of a database that was restored.
const (
	settingRestoration = "restoration"       // JSON of a [Restoration]; empty: none
	settingChainRead   = "restoration_chain" // when the chain had been read, in microseconds
)

// Restoration is the mark of a database that was made of a backup. It stays until an operator has
// dealt with what was paid after the backup.
type Restoration struct {
	BackupID   string    `json:"backupId,omitempty"`
	BackupAt   time.Time `json:"backupAt"`
	RestoredAt time.Time `json:"restoredAt"` // by the clock of the machine
}

// ReadRestoration returns the mark of a restored database, nil when there is none.
func ReadRestoration(ctx context.Context, q Querier) (*Restoration, error) {
	text, err := Setting(ctx, q, settingRestoration)
	if errors.Is(err, ErrNotFound) || err == nil && len(text) == 0 {
		return nil, nil
	}
	r := &Restoration{}
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	return r, err
}

// PutRestoration marks a database as restored; nil removes the mark.
func PutRestoration(ctx context.Context, tx *Tx, r *Restoration) (err error) {
	var text []byte
	if r != nil {
		if text, err = json.Marshal(r); err != nil {
			return err
		}
	}
	if err := PutSetting(ctx, tx, settingRestoration, text); err != nil {
		return err
	}
	return PutSetting(ctx, tx, settingChainRead, nil)
}

// MarkSnapshot marks the database in a file of [Store.Snapshot] as restored. Nobody else has the
// file open. A process that is killed leaves the file marked, not marked, or damaged.
func MarkSnapshot(ctx context.Context, path string, r Restoration) (err error) {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	// Without a file for the journal: the whole file counts for nothing if the process is killed.
	dsn := sqliteDSN(path, adminBusyTimeout, "journal_mode(MEMORY)", "synchronous(FULL)")
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return fmt.Errorf("store: snapshot: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.ExecContext(ctx, `INSERT INTO settings (name, value) VALUES (?, ?), (?, ?)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
		settingRestoration, text, settingChainRead, []byte{})
	if err != nil {
		return fmt.Errorf("store: snapshot: %w", err)
	}
	return nil
}

// NoteChainRead notes that the chain was read up to its head at a moment after the restore.
func NoteChainRead(ctx context.Context, tx *Tx, at time.Time) error {
	return PutSetting(ctx, tx, settingChainRead, []byte(fmt.Sprint(Micros(at))))
}

// ChainRead reports whether the chain was read up to its head since the restore, or was never used.
func ChainRead(ctx context.Context, q Querier, reader string) (bool, error) {
	if _, err := ReadChainCursor(ctx, q, reader); errors.Is(err, ErrNotFound) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	text, err := Setting(ctx, q, settingChainRead)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return len(text) > 0, err
}

// Wallets returns the addresses of the principals whose keys the service has.
func Wallets(ctx context.Context, q Querier) ([]toll.Address, error) {
	return All(ctx, q, func(scan func(dest ...any) error) (toll.Address, error) {
		var text string
		if err := scan(&text); err != nil {
			return toll.Address{}, err
		}
		return toll.ParseAddress(text)
	}, "SELECT address FROM principals WHERE LENGTH(sealed_key) > 0 ORDER BY address")
}
