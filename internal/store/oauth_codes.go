package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// OAuthCode is what is kept of a one-time code: not the code, but its SHA-256.
type OAuthCode struct {
	Hash      []byte
	GrantID   toll.Hash
	Redirect  string // where the code was sent
	Challenge string // S256 code challenge of the program
	ExpiresAt time.Time
	UsedAt    time.Time // zero: not used
}

// InsertOAuthCode adds a code.
func InsertOAuthCode(ctx context.Context, tx *Tx, c OAuthCode) error {
	_, err := tx.Exec(ctx, "INSERT INTO oauth_codes (hash, grant_id, redirect_uri, challenge, expires_at, used_at) VALUES ($1, $2, $3, $4, $5, $6)",
		blob(c.Hash), c.GrantID[:], c.Redirect, c.Challenge, Micros(c.ExpiresAt), Micros(c.UsedAt))
	return err
}

// OAuthCodeByHash returns a code, used and ended ones too, or [ErrNotFound].
func OAuthCodeByHash(ctx context.Context, q Querier, hash []byte) (OAuthCode, error) {
	c := OAuthCode{Hash: hash}
	var grant []byte
	var expires, used int64
	err := q.QueryRow(ctx, "SELECT grant_id, redirect_uri, challenge, expires_at, used_at FROM oauth_codes WHERE hash = $1", blob(hash)).
		Scan(&grant, &c.Redirect, &c.Challenge, &expires, &used)
	copy(c.GrantID[:], grant)
	c.ExpiresAt, c.UsedAt = FromMicros(expires), FromMicros(used)
	return c, err
}

// UseOAuthCode notes that a code is used, and reports whether this call is the first: of several callers one is.
func UseOAuthCode(ctx context.Context, tx *Tx, hash []byte, now time.Time) (first bool, err error) {
	n, err := tx.Exec(ctx, "UPDATE oauth_codes SET used_at = $2 WHERE hash = $1 AND used_at = 0", blob(hash), Micros(now))
	return n == 1, err
}

// OAuthRefresh is what is kept of a refresh token: not the token, but its SHA-256.
type OAuthRefresh struct {
	Hash      []byte
	GrantID   toll.Hash
	CreatedAt time.Time
	UsedAt    time.Time // zero: not used
}

// InsertOAuthRefresh adds a refresh token.
func InsertOAuthRefresh(ctx context.Context, tx *Tx, t OAuthRefresh) error {
	_, err := tx.Exec(ctx, "INSERT INTO oauth_refresh_tokens (hash, grant_id, created_at, used_at) VALUES ($1, $2, $3, $4)",
		blob(t.Hash), t.GrantID[:], Micros(t.CreatedAt), Micros(t.UsedAt))
	return err
}

// OAuthRefreshByHash returns a refresh token, used ones too, or [ErrNotFound].
func OAuthRefreshByHash(ctx context.Context, q Querier, hash []byte) (OAuthRefresh, error) {
	t := OAuthRefresh{Hash: hash}
	var grant []byte
	var created, used int64
	err := q.QueryRow(ctx, "SELECT grant_id, created_at, used_at FROM oauth_refresh_tokens WHERE hash = $1", blob(hash)).Scan(&grant, &created, &used)
	copy(t.GrantID[:], grant)
	t.CreatedAt, t.UsedAt = FromMicros(created), FromMicros(used)
	return t, err
}

// UseOAuthRefresh notes that a refresh token is used, and reports whether this call is the first: of several callers one is.
func UseOAuthRefresh(ctx context.Context, tx *Tx, hash []byte, now time.Time) (first bool, err error) {
	n, err := tx.Exec(ctx, "UPDATE oauth_refresh_tokens SET used_at = $2 WHERE hash = $1 AND used_at = 0", blob(hash), Micros(now))
	return n == 1, err
}
