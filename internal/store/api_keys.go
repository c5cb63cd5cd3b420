package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// APIKey is what is kept of an API key: not the key, but the SHA-256 of its JWT.
type APIKey struct {
	ID         toll.Hash
	Address    toll.Address
	Hash       []byte
	Name       string // "" for none
	Prefix     string
	Tail       string
	Version    string
	CreatedAt  time.Time
	ExpiresAt  time.Time // zero: never
	RevokedAt  time.Time // zero: not revoked
	LastUsedAt time.Time // zero: never used
}

const apiKeyColumns = "id, address, hash, name, prefix, tail, version, created_at, expires_at, revoked_at, last_used_at"

// InsertAPIKey adds a key.
func InsertAPIKey(ctx context.Context, tx *Tx, k APIKey) error {
	_, err := tx.Exec(ctx, "INSERT INTO api_keys ("+apiKeyColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
		k.ID[:], k.Address.Lower(), blob(k.Hash), optional(k.Name), k.Prefix, k.Tail, k.Version,
		Micros(k.CreatedAt), Micros(k.ExpiresAt), Micros(k.RevokedAt), Micros(k.LastUsedAt))
	return err
}

// APIKeyByID returns a key, revoked and expired ones too, or [ErrNotFound].
func APIKeyByID(ctx context.Context, q Querier, id toll.Hash) (APIKey, error) {
	return scanAPIKey(q.QueryRow(ctx, "SELECT "+apiKeyColumns+" FROM api_keys WHERE id = $1", id[:]).Scan)
}

// APIKeys lists the keys of an address.
func APIKeys(ctx context.Context, q Querier, owner toll.Address, p Page) (List[APIKey], error) {
	return Select(ctx, q, Listing{
		Table: "api_keys", Columns: apiKeyColumns, Where: "address = $1", Args: []any{owner.Lower()}, ID: "id",
		// Uses and revocations are no updates; sorted by them the list would move under its reader.
		Sorts: map[Sort]string{SortCreated: "created_at", SortUpdated: "created_at", SortName: "COALESCE(name, '')"},
	}, p, scanAPIKey)
}

// UpdateAPIKey changes the name ("" for none) and the pinned version of a key; [ErrNotFound] when there is no such key.
func UpdateAPIKey(ctx context.Context, tx *Tx, id toll.Hash, name, version string) error {
	n, err := tx.Exec(ctx, "UPDATE api_keys SET name = $2, version = $3 WHERE id = $1", id[:], optional(name), version)
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// RevokeAPIKey revokes a key and reports whether this call did it: false when it is revoked already or unknown.
func RevokeAPIKey(ctx context.Context, tx *Tx, id toll.Hash, at time.Time) (first bool, err error) {
	n, err := tx.Exec(ctx, "UPDATE api_keys SET revoked_at = $2 WHERE id = $1 AND revoked_at = 0", id[:], Micros(at))
	return n == 1, err
}

// TouchAPIKey notes the last use of a key; an earlier time than the noted one changes nothing.
func TouchAPIKey(ctx context.Context, tx *Tx, id toll.Hash, at time.Time) error {
	_, err := tx.Exec(ctx, "UPDATE api_keys SET last_used_at = $2 WHERE id = $1 AND last_used_at < $2", id[:], Micros(at))
	return err
}

func scanAPIKey(scan func(dest ...any) error) (k APIKey, err error) {
	var id []byte
	var address string
	var name *string
	var created, expires, revoked, used int64
	if err := scan(&id, &address, &k.Hash, &name, &k.Prefix, &k.Tail, &k.Version, &created, &expires, &revoked, &used); err != nil {
		return APIKey{}, err
	}
	if name != nil {
		k.Name = *name
	}
	copy(k.ID[:], id)
	k.CreatedAt, k.ExpiresAt, k.RevokedAt, k.LastUsedAt = FromMicros(created), FromMicros(expires), FromMicros(revoked), FromMicros(used)
	k.Address, err = toll.ParseAddress(address)
	return k, err
}
