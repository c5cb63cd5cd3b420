package ledger_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestRevokeLocksAccountThatNeverOrdered: without the lock of the account, what another process did to the permission
// between the read and the write of a revocation would be undone, and its hold could never be settled.
func TestRevokeLocksAccountThatNeverOrdered(t *testing.T) {
	st, cfg := storetest.OpenVariant(t, storetest.Postgres)
	b := open(t, st)
	other := open(t, storetest.OpenConfig(t, cfg))
	perm := b.permission(0)
	held := make(chan error, 1)
	var requestID string
	onFirst(b.Ledger, "decided", func() {
		go func() {
			err := other.order("order", 100)
			if err == nil {
				var h ledger.Held
				h, err = other.Hold(other.ctx, other.holdOp(perm, 5))
				requestID = h.RequestID
			}
			held <- err
		}()
		time.Sleep(300 * time.Millisecond) // long enough for a process that does not have to wait
	})
	must.Do(b, b.RevokePermission(b.ctx, plan, subscriber, perm, b.clock.now()))
	err := <-held
	if err == nil {
		_, err = other.Settle(other.ctx, settleOp(perm, requestID, 5))
		must.Do(other, err)
		return
	}
	other.refused(err, ledger.PermissionRevoked)
}
