package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
)

// APIKey is what is kept of an API key: not the key, but the SHA-256 of its JWT, or a keyed hash of a short key.
type APIKey struct {
	ID         toll.Hash     `db:"id"`
	Address    toll.Address  `db:"address"`
	Hash       []byte        `db:"hash"`
	Name       string        `db:"name,null"` // "" for none
	Prefix     string        `db:"prefix"`
	Tail       string        `db:"tail"`
	Version    string        `db:"version"`
	CreatedAt  time.Time     `db:"created_at"`
	ExpiresAt  time.Time     `db:"expires_at"`   // zero: never
	RevokedAt  time.Time     `db:"revoked_at"`   // zero: not revoked
	LastUsedAt time.Time     `db:"last_used_at"` // zero: never used
	MadeBy     toll.KeyMaker `db:"made_by"`
	Parent     toll.Hash     `db:"parent,null"` // the API key or the consent that made it; zero: none
	Rights     toll.Rights   `db:"rights"`
	UserID     toll.UUID     `db:"user_id,null"` // under whose membership it stands; zero: none
	// SuspendedAt is since when the operator has the key refused; zero: it works.
	SuspendedAt time.Time `db:"suspended_at,null"`
}

var (
	apiKeys      = newRecord[APIKey]("api_keys")
	InsertAPIKey = apiKeys.insert
	// SuspendAPIKey suspends a key since a moment; zero resumes it.
	SuspendAPIKey = runs2[toll.Hash, time.Time](found, "UPDATE api_keys SET suspended_at = $2 WHERE id = $1")
	APIKeyByID    = by[toll.Hash](apiKeys, "id = $1") // revoked and expired ones too
	// KeysOfParent returns the keys that a key or a consent made and that are neither revoked nor over.
	KeysOfParent = listBy2[toll.Hash, time.Time](apiKeys,
		"parent = $1 AND revoked_at = 0 AND (expires_at = 0 OR expires_at > $2) ORDER BY id")
	// EndAPIKeyAt gives a key an end that is no later than the one it has. [ErrNotFound] when the key is revoked, over or unknown.
	EndAPIKeyAt = runs3[toll.Hash, time.Time, time.Time](found,
		"UPDATE api_keys SET expires_at = $2 WHERE id = $1 AND revoked_at = 0 AND (expires_at = 0 OR expires_at > $3)")
	// TouchAPIKey notes the last use of a key; an earlier time than the noted one changes nothing.
	TouchAPIKey = runs2[toll.Hash, time.Time](done,
		"UPDATE api_keys SET last_used_at = $2 WHERE id = $1 AND last_used_at < $2")
)

// APIKeysMade returns the keys that were made from a time on and before another one, and are in force
// now, the oldest first, at most limit. It reads the whole table: it is for an operator's command.
func APIKeysMade(ctx context.Context, q Querier, from, until, now time.Time, limit int64) ([]APIKey, error) {
	return apiKeys.all(ctx, q, `WHERE created_at >= $1 AND created_at < $2 AND revoked_at = 0
		AND (expires_at = 0 OR expires_at > $3) ORDER BY created_at, id LIMIT $4`,
		Micros(from), Micros(until), Micros(now), limit)
}

func APIKeys(ctx context.Context, q Querier, owner toll.Address, p Page) (List[APIKey], error) {
	return apiKeys.list(ctx, q, Listing{
		Where: "address = $1", Args: []any{owner.Lower()}, ID: "id",
		// Uses and revocations are no updates; sorted by them the list would move under its reader.
		Sorts: map[Sort]string{SortCreated: "created_at", SortUpdated: "created_at", SortName: "COALESCE(name, '')"},
	}, p)
}

// UpdateAPIKey changes the name ("" for none) and the pinned version of a key; [ErrNotFound] when there is no such key.
func UpdateAPIKey(ctx context.Context, tx *Tx, id toll.Hash, name, version string) error {
	return found(tx.Exec(ctx, "UPDATE api_keys SET name = $2, version = $3 WHERE id = $1", id[:], optional(name), version))
}

// RevokeAPIKey revokes a key and reports whether this call did it: false when it is revoked already or unknown. The caller ends what
// the key made after that, up to [EndAPIKey]; the job [JobEndKey] does so in its place when it does not get there.
func RevokeAPIKey(ctx context.Context, tx *Tx, id toll.Hash, at time.Time) (first bool, err error) {
	first, err = changed(tx.Exec(ctx, "UPDATE api_keys SET revoked_at = $2 WHERE id = $1 AND revoked_at = 0", id[:], Micros(at)))
	if err == nil && first {
		err = putOwnJob(ctx, tx, JobEndKey, id[:], at)
	}
	return first, err
}

// EndAPIKey notes that everything that a revoked key made is ended.
func EndAPIKey(ctx context.Context, tx *Tx, id toll.Hash) error {
	return DropJob(ctx, tx, JobEndKey, id[:])
}

// SetParentOfKey gives a key another parent; the zero hash is none.
func SetParentOfKey(ctx context.Context, tx *Tx, id, parent toll.Hash) error {
	return done(tx.Exec(ctx, "UPDATE api_keys SET parent = $2 WHERE id = $1", id[:], idOrNull(parent)))
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

// rightsOf parses stored rights. It drops words that this release does not know.
func rightsOf(text string) toll.Rights {
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil
	}
	return slices.DeleteFunc(toll.AllRights(), func(r toll.Right) bool { return !slices.Contains(words, string(r)) })
}
