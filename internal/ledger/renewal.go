package ledger

import (
	"context"
	"time"

	"github.com/tollhq/toll/internal/store"
)

// sqlPermissionFreeze leaves a permission with what it has burned and holds.
const sqlPermissionFreeze = `UPDATE permissions SET redemption_limit = redeemed + held
	WHERE account_id = $1 AND permission_hash = $2 AND redemption_limit IS NOT NULL`

// RenewPermissionWith ends a permission and stores the one that next makes of it in the same transaction, under the lock of
// the account. Open holds of the ended one still settle, for at most what they hold: what it has not used is the next one's
// to give. Refusals: PermissionUnknown, PermissionRevoked. An error of next undoes all.
func (l *Ledger) RenewPermissionWith(
	ctx context.Context, old Permission, at time.Time, next func(old Permission) (Permission, error), also func(tx *store.Tx, p Permission) error,
) error {
	op := revoke{old.Plan, old.Subscriber, old.Hash, at.Truncate(time.Microsecond)}
	account := old.Account()
	_, err := alone(ctx, l, op, func(tx *store.Tx, _ revoked) error {
		var now Permission
		if err := scanPermission(tx.QueryRow(ctx, sqlPermission, account[:], old.Hash[:]).Scan, &now); err != nil {
			return err
		}
		p, err := next(now)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlPermissionFreeze, account[:], old.Hash[:]); err != nil {
			return err
		}
		if err := l.InsertPermission(ctx, tx, p); err != nil {
			return err
		}
		return also(tx, p)
	}, nil)
	return err
}
