package ledger

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// SetFailpoint makes the writer call f at its steps: begin, recalled or read (as what it decides by comes from memory or from
// the store), locked, decided, written (not on PostgreSQL, which gets what is written and the commit in one trip), committed; and a
// handle at locked and written.
func SetFailpoint(l *Ledger, f func(at string)) { l.onFailpoint.Store(&f) }

// Failpoint returns what [SetFailpoint] set.
func Failpoint(l *Ledger) func(at string) { return *l.onFailpoint.Load() }

// SetBatchTimeout bounds an attempt of the writer; set it before the first operation.
func SetBatchTimeout(l *Ledger, d time.Duration) { l.batchTimeout = d }

// PermissionsOfKeySQL reads the permissions that an API key made.
const PermissionsOfKeySQL = sqlPermissionsOfKey

// Trips returns how many round trips a handle has made.
func Trips(t *Tx) int { return t.trips }

// SetRetried says that an earlier run of the function may have been committed.
func SetRetried(t *Tx) { t.retried = true }

// Canonical returns the bytes that the commitment covers.
func (e Entry) Canonical() []byte { return e.appendCanonical(nil) }

// Commit returns the commitment of an entry after another one.
func Commit(e Entry, previous toll.Hash) toll.Hash { return e.commit(previous) }

// Cool writes the hot counters of an account to the rows of its lots and permissions, where releases before look for them.
func Cool(ctx context.Context, st *store.Store, id AccountID) error {
	return st.Tx(ctx, func(tx *store.Tx) error {
		var a Account
		err := tx.Run(ctx, lockAccount(tx.Engine(), id, "", toll.Address{}, &a)...)
		if err != nil {
			return err
		}
		h, err := parseHot(a.hot)
		for _, l := range h.lots {
			if err == nil {
				_, err = tx.Exec(ctx, sqlLotLeft, id[:], l.id, int64(l.remaining))
			}
		}
		for i := range h.permissions {
			if err == nil {
				_, err = tx.Exec(ctx, sqlPermissionSave, h.permissions[i].row(id[:])...)
			}
		}
		if err == nil {
			_, err = tx.Exec(ctx, "UPDATE accounts SET hot = NULL WHERE account_id = $1", id[:])
		}
		return err
	})
}

// SetMemory bounds what the writer remembers, in bytes; set it before the first operation.
func SetMemory(l *Ledger, bytes int) { l.memory.limit = bytes }
