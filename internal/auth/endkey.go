package auth

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// maxFallen bounds the API keys in an [EndedKey].
const maxFallen = 10_000

// EndedKey is a signing key that was ended because others may have it.
type EndedKey struct {
	Ended string `json:"ended"`           // counts for nothing any more
	Next  string `json:"next"`            // signs from now on
	Added string `json:"added,omitempty"` // published now, to sign later
	// APIKeys were in force, and signed by the key as far as their times say: at most 10,000, the oldest
	// first. Access tokens are not stored by who signed them: all that the key signed are refused.
	APIKeys []FallenKey `json:"apiKeys"`
}

// FallenKey is an API key that has to be made again.
type FallenKey struct {
	ID        toll.Hash    `json:"id"`
	Address   toll.Address `json:"address"`
	Name      string       `json:"name"`
	CreatedAt toll.Time    `json:"createdAt"`
}

// EndSigningKey ends a signing key at once: all that it ever signed is refused, by other processes
// within half a minute. The next key signs, and is made if there is none. kid is "" for the key that
// signs now. The purpose is that of [Auth.RotateKey]. Calling it again for the same kid changes nothing.
func (a *Auth) EndSigningKey(ctx context.Context, purpose, kid string) (EndedKey, error) {
	var out EndedKey
	err := a.store.Tx(ctx, func(tx *store.Tx) error {
		rows, err := keysFor(ctx, tx, purpose)
		if err != nil {
			return err
		}
		now := a.clock()
		at := slices.IndexFunc(rows, func(k store.SigningKey) bool { return k.KID == kid || kid == "" && signs(k, now) })
		switch {
		case at < 0 && kid != "":
			return fmt.Errorf("auth: no signing key for this purpose has the id %q: "+
				"the JWKS, or the DID document for offers and receipts, lists the key ids", kid)
		case at < 0:
			return errAllRetired
		}
		ended := rows[at]
		out = EndedKey{Ended: ended.KID}
		if out.APIKeys, err = a.fallen(ctx, tx, rows, at); err != nil {
			return err
		}
		left := slices.DeleteFunc(slices.Delete(slices.Clone(rows), at, at+1), func(k store.SigningKey) bool { return !signs(k, now) })
		lasting := slices.ContainsFunc(left, func(k store.SigningKey) bool { return k.RetiredAt.IsZero() })
		if len(left) < 2 || !lasting { // one that signs now, and one for the next rotation
			if out.Added, _, err = a.addSigningKey(ctx, tx, rows); err != nil {
				return err
			}
		}
		if out.Next = out.Added; len(left) > 0 {
			out.Next = left[0].KID
		}
		if err := store.RetireSigningKey(ctx, tx, ended.KID, endedKey); err != nil || ended.RetiredAt.Equal(endedKey) {
			return err
		}
		return auditKey(ctx, tx, "signing_key.ended", ended.KID, out.Next, now)
	})
	if err != nil {
		return EndedKey{}, err
	}
	return out, a.readKeysNow(ctx)
}

// fallen returns the API keys in force that a signing key of rows has signed, by its time: it signs from the retirement of the one before
// it to its own. Processes learn of both within half a minute, so that a minute on both sides counts, too.
func (a *Auth) fallen(ctx context.Context, tx *store.Tx, rows []store.SigningKey, at int) ([]FallenKey, error) {
	out := []FallenKey{}
	if rows[at].Purpose != "" {
		return out, nil
	}
	from, until := rows[at].CreatedAt, a.clock()
	if at > 0 && rows[at-1].RetiredAt.After(from) {
		from = rows[at-1].RetiredAt
	}
	if r := rows[at].RetiredAt; !r.IsZero() && !r.Equal(endedKey) && r.Before(until) {
		until = r
	}
	keys, err := store.APIKeysMade(ctx, tx, from.Add(-time.Minute), until.Add(time.Minute), a.clock(), maxFallen)
	for _, k := range keys {
		out = append(out, FallenKey{ID: k.ID, Address: k.Address, Name: k.Name, CreatedAt: toll.At(k.CreatedAt)})
	}
	return out, err
}
