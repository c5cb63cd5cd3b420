package store

import (
	"context"
	"slices"
	"strings"
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
	MadeBy     toll.KeyMaker
	Parent     toll.Hash // the API key or the consent that made it; zero: none
	Rights     toll.Rights
}

const apiKeyColumns = "id, address, hash, name, prefix, tail, version, created_at, expires_at, revoked_at, last_used_at, made_by, parent, rights"

// InsertAPIKey adds a key.
func InsertAPIKey(ctx context.Context, tx *Tx, k APIKey) error {
	_, err := tx.Exec(ctx, "INSERT INTO api_keys ("+apiKeyColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
		k.ID[:], k.Address.Lower(), blob(k.Hash), optional(k.Name), k.Prefix, k.Tail, k.Version,
		Micros(k.CreatedAt), Micros(k.ExpiresAt), Micros(k.RevokedAt), Micros(k.LastUsedAt),
		optional(string(k.MadeBy)), idOrNull(k.Parent), k.Rights.String())
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

// RevokeAPIKey revokes a key and reports whether this call did it: false when it is revoked already or unknown. What the key
// made is to be ended after that; see [EndAPIKey].
func RevokeAPIKey(ctx context.Context, tx *Tx, id toll.Hash, at time.Time) (first bool, err error) {
	n, err := tx.Exec(ctx, "UPDATE api_keys SET revoked_at = $2, ending = $3 WHERE id = $1 AND revoked_at = 0", id[:], Micros(at), true)
	return n == 1, err
}

// EndAPIKey notes that everything that a revoked key made is ended.
func EndAPIKey(ctx context.Context, tx *Tx, id toll.Hash) error {
	_, err := tx.Exec(ctx, "UPDATE api_keys SET ending = $2 WHERE id = $1", id[:], false)
	return err
}

// EndingAPIKeys returns at most n keys, revoked before a moment, of which something that they made may still have to be ended.
func EndingAPIKeys(ctx context.Context, q Querier, before time.Time, n int) ([]APIKey, error) {
	return apiKeys(ctx, q, "SELECT "+apiKeyColumns+" FROM api_keys WHERE ending AND revoked_at < $1 LIMIT $2", Micros(before), int64(n))
}

// KeysOfParent returns the keys that a key or a consent made and that are neither revoked nor over.
func KeysOfParent(ctx context.Context, q Querier, parent toll.Hash, now time.Time) ([]APIKey, error) {
	return apiKeys(ctx, q, "SELECT "+apiKeyColumns+` FROM api_keys
		WHERE parent = $1 AND revoked_at = 0 AND (expires_at = 0 OR expires_at > $2) ORDER BY id`, parent[:], Micros(now))
}

func apiKeys(ctx context.Context, q Querier, query string, args ...any) ([]APIKey, error) {
	rows, err := q.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []APIKey
	for rows.Next() {
		k, err := scanAPIKey(rows.Scan)
		if err != nil {
			return nil, err
		}
		out = append(out, k)
	}
	return out, rows.Err()
}

// SetParentOfKey gives a key another parent; the zero hash is none.
func SetParentOfKey(ctx context.Context, tx *Tx, id, parent toll.Hash) error {
	_, err := tx.Exec(ctx, "UPDATE api_keys SET parent = $2 WHERE id = $1", id[:], idOrNull(parent))
	return err
}

// LockAPIKey keeps a key from being revoked until the transaction ends, so that nothing is made by a key that ends meanwhile.
// [ErrNotFound] when the key is revoked, over or unknown.
func LockAPIKey(ctx context.Context, tx *Tx, id toll.Hash, now time.Time) error {
	var one int64
	return tx.QueryRow(ctx, `SELECT 1 FROM api_keys WHERE id = $1 AND revoked_at = 0 AND (expires_at = 0 OR expires_at > $2)`+
		tx.ForShare(), id[:], Micros(now)).Scan(&one)
}

// idOrNull is an id as a parameter, NULL for none.
func idOrNull(id toll.Hash) any {
	if id.IsZero() {
		return nil
	}
	return id[:]
}

// TouchAPIKey notes the last use of a key; an earlier time than the noted one changes nothing.
func TouchAPIKey(ctx context.Context, tx *Tx, id toll.Hash, at time.Time) error {
	_, err := tx.Exec(ctx, "UPDATE api_keys SET last_used_at = $2 WHERE id = $1 AND last_used_at < $2", id[:], Micros(at))
	return err
}

func scanAPIKey(scan func(dest ...any) error) (k APIKey, err error) {
	var id, parent []byte
	var address string
	var name, madeBy, rights *string
	var created, expires, revoked, used int64
	if err := scan(&id, &address, &k.Hash, &name, &k.Prefix, &k.Tail, &k.Version, &created, &expires, &revoked, &used,
		&madeBy, &parent, &rights); err != nil {
		return APIKey{}, err
	}
	if name != nil {
		k.Name = *name
	}
	copy(k.ID[:], id)
	copy(k.Parent[:], parent)
	k.CreatedAt, k.ExpiresAt, k.RevokedAt, k.LastUsedAt = FromMicros(created), FromMicros(expires), FromMicros(revoked), FromMicros(used)
	k.MadeBy, k.Rights = toll.MadeLocally, toll.AllRights() // of a key from before
	if madeBy != nil {
		k.MadeBy = toll.KeyMaker(*madeBy)
	}
	if rights != nil {
		k.Rights = rightsOf(*rights)
	}
	k.Address, err = toll.ParseAddress(address)
	return k, err
}

// rightsOf parses stored rights. It drops words that this release does not know.
func rightsOf(text string) toll.Rights {
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil
	}
	return slices.DeleteFunc(toll.AllRights(), func(r toll.Right) bool { return !slices.Contains(words, string(r)) })
}
