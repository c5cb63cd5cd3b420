package store

import (
	"context"
	"time"
)

// UseWalletNonce records that a nonce of a sign-in is used, until a moment at which no machine takes it any more, and removes those
// for which that moment has come. It reports whether this is its first use: of several callers one gets true.
func UseWalletNonce(ctx context.Context, tx *Tx, nonce []byte, ends, now time.Time) (first bool, err error) {
	if _, err := tx.Exec(ctx, "DELETE FROM wallet_nonces WHERE ends_at <= $1", Micros(now)); err != nil {
		return false, err
	}
	return changed(tx.Exec(ctx, "INSERT INTO wallet_nonces (nonce, ends_at) VALUES ($1, $2) ON CONFLICT (nonce) DO NOTHING", blob(nonce), Micros(ends)))
}
