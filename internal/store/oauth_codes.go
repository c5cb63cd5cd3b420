package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// OAuthCode is what is kept of a one-time code: not the code, but its SHA-256.
type OAuthCode struct {
	Hash      []byte    `db:"hash"`
	GrantID   toll.Hash `db:"grant_id"`
	Redirect  string    `db:"redirect_uri"` // where the code was sent
	Challenge string    `db:"challenge"`    // S256 code challenge of the program
	ExpiresAt time.Time `db:"expires_at"`
	UsedAt    time.Time `db:"used_at"` // zero: not used
}

var (
	oauthCodes      = newRecord[OAuthCode]("oauth_codes")
	InsertOAuthCode = oauthCodes.insert
	OAuthCodeByHash = by[[]byte](oauthCodes, "hash = $1") // used and ended ones too
	// UseOAuthCode notes that a code is used, and reports whether this call is the first: of several callers one is.
	UseOAuthCode = first2[[]byte, time.Time]("UPDATE oauth_codes SET used_at = $2 WHERE hash = $1 AND used_at = 0")
)

// OAuthRefresh is what is kept of a refresh token: not the token, but its SHA-256.
type OAuthRefresh struct {
	Hash      []byte    `db:"hash"`
	GrantID   toll.Hash `db:"grant_id"`
	CreatedAt time.Time `db:"created_at"`
	UsedAt    time.Time `db:"used_at"`        // zero: not used
	Successor []byte    `db:"successor,null"` // the next refresh token, sealed with a key that only this token gives; nil: not used
}

var (
	oauthRefreshTokens = newRecord[OAuthRefresh]("oauth_refresh_tokens")
	InsertOAuthRefresh = oauthRefreshTokens.insert
	OAuthRefreshByHash = by[[]byte](oauthRefreshTokens, "hash = $1") // used ones too
)

// UseOAuthRefresh notes that a refresh token is used, and keeps its sealed successor. It reports whether this call is the first:
// of several callers one is.
func UseOAuthRefresh(ctx context.Context, tx *Tx, hash []byte, at time.Time, successor []byte) (bool, error) {
	return changed(tx.Exec(ctx, "UPDATE oauth_refresh_tokens SET used_at = $2, successor = $3 WHERE hash = $1 AND used_at = 0",
		blob(hash), Micros(at), blob(successor)))
}
