package store

import (
	"context"
	"time"
)

// StatementKey is the purpose of a key that signs offers and receipts; that of one for API keys and access tokens is "".
const StatementKey = "statement"

// SigningKey is a key that signs what its purpose says. Sealed opens with the master key alone.
type SigningKey struct {
	KID       string
	Purpose   string // "" or StatementKey
	Public    []byte
	Sealed    []byte
	CreatedAt time.Time
	RetiredAt time.Time // zero: signs
}

// InsertSigningKey adds a key.
func InsertSigningKey(ctx context.Context, tx *Tx, k SigningKey) error {
	_, err := tx.Exec(ctx, "INSERT INTO signing_keys (kid, purpose, public, sealed, created_at, retired_at) VALUES ($1, $2, $3, $4, $5, $6)",
		k.KID, optional(k.Purpose), blob(k.Public), blob(k.Sealed), Micros(k.CreatedAt), Micros(k.RetiredAt))
	return err
}

// SigningKeys returns the keys of all purposes, retired ones too, oldest first.
func SigningKeys(ctx context.Context, q Querier) ([]SigningKey, error) {
	rows, err := q.Query(ctx, "SELECT kid, COALESCE(purpose, ''), public, sealed, created_at, retired_at FROM signing_keys ORDER BY created_at, kid")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var keys []SigningKey
	for rows.Next() {
		var k SigningKey
		var created, retired int64
		if err := rows.Scan(&k.KID, &k.Purpose, &k.Public, &k.Sealed, &created, &retired); err != nil {
			return nil, err
		}
		k.CreatedAt, k.RetiredAt = FromMicros(created), FromMicros(retired)
		keys = append(keys, k)
	}
	return keys, rows.Err()
}

// RetireSigningKey notes since when a key signs no more; a key that is retired keeps its time. [ErrNotFound] when there
// is no such key.
func RetireSigningKey(ctx context.Context, tx *Tx, kid string, at time.Time) error {
	n, err := tx.Exec(ctx, "UPDATE signing_keys SET retired_at = CASE WHEN retired_at = 0 OR retired_at > $2 THEN $2 ELSE retired_at END WHERE kid = $1", kid, Micros(at))
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}
