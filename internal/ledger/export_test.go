package ledger

import (
	"time"

	"github.com/tollhq/toll"
)

// SetFailpoint makes the writer call f at its steps: begin, locked, decided, written (not on PostgreSQL,
// which gets what is written and the commit in one trip), committed; and a handle at locked and written.
func SetFailpoint(l *Ledger, f func(at string)) { l.onFailpoint.Store(&f) }

// Failpoint returns what [SetFailpoint] set.
func Failpoint(l *Ledger) func(at string) { return *l.onFailpoint.Load() }

// SetBatchTimeout bounds an attempt of the writer; set it before the first operation.
func SetBatchTimeout(l *Ledger, d time.Duration) { l.batchTimeout = d }

// PermissionsOfKeySQL reads the permissions that an API key made.
const PermissionsOfKeySQL = sqlPermissionsOfKey

// Trips returns how many round trips a handle has made.
func Trips(t *Tx) int { return t.trips }

// Commit returns the commitment of an entry after another one.
func Commit(e Entry, previous toll.Hash) toll.Hash { return e.commit(previous) }
