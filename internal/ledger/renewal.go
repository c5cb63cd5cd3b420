package ledger

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// sqlPermissionFreeze leaves a permission with what it has burned and holds.
const sqlPermissionFreeze = `UPDATE permissions SET redemption_limit = redeemed + held
	WHERE account_id = $1 AND permission_hash = $2 AND redemption_limit IS NOT NULL`

// FreezePermission leaves a revoked permission with what it has burned and holds, in a transaction that locks its account:
// open holds still settle, for at most what they hold, and what it has not used may be given to another one.
func FreezePermission(ctx context.Context, tx *store.Tx, account AccountID, hash toll.Hash) error {
	_, err := tx.Exec(ctx, sqlPermissionFreeze, account[:], hash[:])
	return err
}
