package store

import (
	"context"
	"time"
)

// StatementKey is the purpose of a key that signs offers and receipts; that of one for API keys and access tokens is "".
const StatementKey = "statement"

// SigningKey is a key that signs what its purpose says. Sealed opens with the master key alone.
type SigningKey struct {
	KID       string    `db:"kid"`
	Purpose   string    `db:"purpose,null"` // "" or StatementKey
	Public    []byte    `db:"public"`
	Sealed    []byte    `db:"sealed"`
	CreatedAt time.Time `db:"created_at"`
	RetiredAt time.Time `db:"retired_at"` // zero: signs
}

var (
	signingKeys      = newRecord[SigningKey]("signing_keys")
	InsertSigningKey = signingKeys.insert
	// RetireSigningKey notes since when a key signs no more; a key that is retired keeps its time. [ErrNotFound] when there is no such key.
	RetireSigningKey = runs2[string, time.Time](found,
		"UPDATE signing_keys SET retired_at = CASE WHEN retired_at = 0 OR retired_at > $2 THEN $2 ELSE retired_at END WHERE kid = $1")
)

// SigningKeys returns the keys of all purposes, retired ones too, oldest first.
func SigningKeys(ctx context.Context, q Querier) ([]SigningKey, error) {
	return signingKeys.all(ctx, q, "ORDER BY created_at, kid")
}
