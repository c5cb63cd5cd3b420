package store

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
)

// OAuthGrant is what a person agreed to. What is issued because of it is one family.
type OAuthGrant struct {
	ID              toll.Hash     `db:"grant_id"`
	ClientID        string        `db:"client_id"`
	ClientName      string        `db:"client_name"`
	Digest          []byte        `db:"digest"` // of what the person was shown of the client; empty when that cannot change
	Owner           toll.Address  `db:"owner"`
	Kind            string        `db:"kind"`
	Scope           string        `db:"scope"`
	Resource        string        `db:"resource"` // "" for none
	Nonce           string        `db:"nonce"`    // of an identity token; "" for none
	PlanID          toll.PlanID   `db:"plan_id"`
	AgentID         toll.AgentID  `db:"agent_id"`
	DelegationID    string        `db:"delegation_id"`
	RedemptionLimit *toll.Credits `db:"redemption_limit"`
	OrderLimit      *int64        `db:"order_limit"`
	Refreshes       bool          `db:"refreshes"` // the client may ask for more access tokens
	Life            time.Duration `db:"life"`      // from the first token on, in whole seconds
	CreatedAt       time.Time     `db:"created_at"`
	EndsAt          time.Time     `db:"ends_at"`     // of the code or the device until the first token
	RevokedAt       time.Time     `db:"revoked_at"`  // zero: not revoked
	Parent          toll.Hash     `db:"parent,null"` // API key of the session in which the person agreed; zero: none
	Rights          toll.Rights   `db:"rights"`
	UserID          toll.UUID     `db:"user_id,null"` // the person who agreed; zero: an API key did
	Revoking        bool          `db:"revoking"`     // what was issued because of it may still have to be ended
}

var (
	oauthGrants      = newRecord[OAuthGrant]("oauth_grants")
	InsertOAuthGrant = oauthGrants.insert
	OAuthGrantByID   = by[toll.Hash](oauthGrants, "grant_id = $1")
	// OAuthGrantOfAccess returns the grant that a permission or an API key was made of, or [ErrNotFound].
	OAuthGrantOfAccess = by[toll.Hash](oauthGrants,
		"grant_id = (SELECT grant_id FROM oauth_access WHERE id = $1)")
	// OAuthGrantsOfParent returns the grants that were agreed to with an API key, that are not revoked and not over.
	OAuthGrantsOfParent = listBy2[toll.Hash, time.Time](oauthGrants,
		"parent = $1 AND revoked_at = 0 AND ends_at > $2 ORDER BY grant_id")
	// BeginOAuthGrant gives a grant that is not revoked its end, and keeps it from being revoked until the transaction ends;
	// [ErrNotFound] when it is revoked or unknown.
	BeginOAuthGrant = runs2[toll.Hash, time.Time](found,
		"UPDATE oauth_grants SET ends_at = $2 WHERE grant_id = $1 AND revoked_at = 0")
	// InsertOAuthAccess notes that a permission or an API key was made of a grant. It is the newest then, also when the clock of another
	// process was ahead.
	InsertOAuthAccess = runs3[toll.Hash, toll.Hash, time.Time](done,
		`INSERT INTO oauth_access (id, grant_id, created_at) VALUES ($1, $2,
		(SELECT CASE WHEN MAX(created_at) >= $3 THEN MAX(created_at) + 1 ELSE $3 END FROM oauth_access WHERE grant_id = $2))`)
)

// RevokeOAuthGrant ends a grant. The caller ends what was issued because of it after that ([OAuthAccess]), up to [EndOAuthGrant]; the
// job [JobEndGrant] does so in its place when it does not get there.
func RevokeOAuthGrant(ctx context.Context, tx *Tx, id toll.Hash, at time.Time) error {
	n, err := tx.Exec(ctx, "UPDATE oauth_grants SET revoked_at = $2, revoking = $3 WHERE grant_id = $1 AND revoked_at = 0", id[:], Micros(at), true)
	if err != nil || n == 0 {
		return err
	}
	return putOwnJob(ctx, tx, JobEndGrant, id[:], at)
}

// EndOAuthGrant notes that everything that was issued because of a revoked grant is ended.
func EndOAuthGrant(ctx context.Context, tx *Tx, id toll.Hash) error {
	if _, err := tx.Exec(ctx, "UPDATE oauth_grants SET revoking = $2 WHERE grant_id = $1", id[:], false); err != nil {
		return err
	}
	return DropJob(ctx, tx, JobEndGrant, id[:])
}

// SetParentOfOAuthGrant gives a grant another parent; the zero hash is none.
func SetParentOfOAuthGrant(ctx context.Context, tx *Tx, id, parent toll.Hash) error {
	return done(tx.Exec(ctx, "UPDATE oauth_grants SET parent = $2 WHERE grant_id = $1", id[:], idOrNull(parent)))
}

// OAuthGrantsOf returns the grants of an owner that are not over, newest first, at most n.
func OAuthGrantsOf(ctx context.Context, q Querier, owner toll.Address, now time.Time, n int) ([]OAuthGrant, error) {
	return oauthGrants.all(ctx, q, "WHERE owner = $1 AND revoked_at = 0 AND ends_at > $2 ORDER BY created_at DESC, grant_id LIMIT $3",
		owner.Lower(), Micros(now), int64(n))
}

// OAuthAccess returns the last n permissions or API keys that were made of a grant, the newest first.
func OAuthAccess(ctx context.Context, q Querier, grant toll.Hash, n int) ([]toll.Hash, error) {
	return All(ctx, q, func(scan func(dest ...any) error) (access toll.Hash, err error) {
		var id []byte
		err = scan(&id)
		copy(access[:], id)
		return access, err
	}, "SELECT id FROM oauth_access WHERE grant_id = $1 ORDER BY created_at DESC, id LIMIT $2", grant[:], int64(n))
}

// OAuthIssue is what is recorded with a permission or an API key that is made of a grant.
type OAuthIssue struct {
	Grant    toll.Hash
	Ends     time.Time // of the grant
	ClientID string
	At       time.Time
	// Of what is used up by it: the code, the device or the refresh token, by their hashes. nil: none.
	Code, Device, Used []byte
	Refresh            []byte // hash of the next refresh token; nil: there is none
	Successor          []byte // the next refresh token, sealed for another call with Used
}

// Errors of an issue.
var (
	// ErrUsed says that what was to be used up was used before.
	ErrUsed = errors.New("store: the code, device, or refresh token was already used")
	// ErrGrantRevoked says that nothing more is made of a grant.
	ErrGrantRevoked = errors.New("store: the grant is revoked")
)

// Use notes that the code, the device or the refresh token of an issue is used. Errors: [ErrUsed].
func (i *OAuthIssue) Use(ctx context.Context, tx *Tx) error {
	for _, u := range []struct {
		hash []byte
		use  func(context.Context, *Tx, []byte, time.Time) (bool, error)
	}{{i.Code, UseOAuthCode}, {i.Device, UseOAuthDevice}, {i.Used, func(ctx context.Context, tx *Tx, hash []byte, at time.Time) (bool, error) {
		return UseOAuthRefresh(ctx, tx, hash, at, i.Successor)
	}}} {
		if u.hash == nil {
			continue
		}
		if first, err := u.use(ctx, tx, u.hash, i.At); err != nil || !first {
			return cmp.Or(err, ErrUsed)
		}
	}
	return nil
}

// PutOAuthIssue records that access, a permission or an API key, was made of a grant. A nil issue records nothing. Errors:
// [ErrUsed], [ErrGrantRevoked].
func PutOAuthIssue(ctx context.Context, tx *Tx, i *OAuthIssue, access toll.Hash) error {
	if i == nil {
		return nil
	}
	if err := i.Use(ctx, tx); err != nil {
		return err
	}
	if err := BeginOAuthGrant(ctx, tx, i.Grant, i.Ends); errors.Is(err, ErrNotFound) {
		return ErrGrantRevoked
	} else if err != nil {
		return err
	}
	if err := InsertOAuthAccess(ctx, tx, access, i.Grant, i.At); err != nil {
		return err
	}
	if i.Refresh != nil {
		if err := InsertOAuthRefresh(ctx, tx, OAuthRefresh{Hash: i.Refresh, GrantID: i.Grant, CreatedAt: i.At}); err != nil {
			return err
		}
	}
	return TouchOAuthClient(ctx, tx, i.ClientID, "", i.At)
}

// DropOAuthGrants removes grants that ended before a moment with all that hangs on them, and devices; at most n of each. It
// returns how many grants.
func DropOAuthGrants(ctx context.Context, s *Store, before time.Time, n int) (int, error) {
	dropped := 0
	err := s.Tx(ctx, func(tx *Tx) error {
		ids, err := values[[]byte](ctx, tx, "SELECT grant_id FROM oauth_grants WHERE ends_at < $1 AND NOT revoking LIMIT $2"+tx.ForUpdate(),
			Micros(before), int64(n))
		if err != nil {
			return err
		}
		for _, id := range ids {
			_, err1 := tx.Exec(ctx, "DELETE FROM oauth_codes WHERE grant_id = $1", id)
			_, err2 := tx.Exec(ctx, "DELETE FROM oauth_refresh_tokens WHERE grant_id = $1", id)
			_, err3 := tx.Exec(ctx, "DELETE FROM oauth_access WHERE grant_id = $1", id)
			_, err4 := tx.Exec(ctx, "DELETE FROM oauth_grants WHERE grant_id = $1", id)
			if err := errors.Join(err1, err2, err3, err4); err != nil {
				return err
			}
		}
		dropped = len(ids)
		if _, err := tx.Exec(ctx, "DELETE FROM oauth_devices WHERE expires_at < $1", Micros(before)); err != nil {
			return err
		}
		return done(tx.Exec(ctx, "DELETE FROM oauth_guesses WHERE since < $1", Micros(before)))
	})
	return dropped, err
}
