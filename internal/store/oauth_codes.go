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

var oauthCodes = newRecord[OAuthCode]("oauth_codes")

// InsertOAuthCode adds a code.
func InsertOAuthCode(ctx context.Context, tx *Tx, c OAuthCode) error {
	return oauthCodes.insert(ctx, tx, c)
}

// OAuthCodeByHash returns a code, used and ended ones too, or [ErrNotFound].
func OAuthCodeByHash(ctx context.Context, q Querier, hash []byte) (OAuthCode, error) {
	return oauthCodes.one(ctx, q, "WHERE hash = $1", blob(hash))
}

// UseOAuthCode notes that a code is used, and reports whether this call is the first: of several callers one is.
func UseOAuthCode(ctx context.Context, tx *Tx, hash []byte, now time.Time) (first bool, err error) {
	return changed(tx.Exec(ctx, "UPDATE oauth_codes SET used_at = $2 WHERE hash = $1 AND used_at = 0", blob(hash), Micros(now)))
}

// OAuthRefresh is what is kept of a refresh token: not the token, but its SHA-256.
type OAuthRefresh struct {
	Hash      []byte    `db:"hash"`
	GrantID   toll.Hash `db:"grant_id"`
	CreatedAt time.Time `db:"created_at"`
	UsedAt    time.Time `db:"used_at"` // zero: not used
}

var oauthRefreshTokens = newRecord[OAuthRefresh]("oauth_refresh_tokens")

// InsertOAuthRefresh adds a refresh token.
func InsertOAuthRefresh(ctx context.Context, tx *Tx, t OAuthRefresh) error {
	return oauthRefreshTokens.insert(ctx, tx, t)
}

// OAuthRefreshByHash returns a refresh token, used ones too, or [ErrNotFound].
func OAuthRefreshByHash(ctx context.Context, q Querier, hash []byte) (OAuthRefresh, error) {
	return oauthRefreshTokens.one(ctx, q, "WHERE hash = $1", blob(hash))
}

// UseOAuthRefresh notes that a refresh token is used, and reports whether this call is the first: of several callers one is.
func UseOAuthRefresh(ctx context.Context, tx *Tx, hash []byte, now time.Time) (first bool, err error) {
	return changed(tx.Exec(ctx, "UPDATE oauth_refresh_tokens SET used_at = $2 WHERE hash = $1 AND used_at = 0", blob(hash), Micros(now)))
}
