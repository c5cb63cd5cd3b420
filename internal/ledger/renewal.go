package ledger

import "github.com/tollhq/toll"

// sqlPermissionFreeze runs after the counters were written to the row.
const sqlPermissionFreeze = `UPDATE permissions SET redemption_limit = redeemed + held
	WHERE account_id = $1 AND permission_hash = $2 AND redemption_limit IS NOT NULL`

// FreezePermission leaves a revoked permission with what it has burned and holds: open holds still settle, for at most what
// they hold, and what it has not used may be given to another one.
func (t *Tx) FreezePermission(hash toll.Hash) error {
	if _, err := t.do(cool{t.id, hash}); err != nil {
		return err
	}
	_, t.err = t.Exec(t.ctx, sqlPermissionFreeze, t.id[:], hash[:])
	return t.err
}
