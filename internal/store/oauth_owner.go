package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// OAuthGrantsOf returns the grants of an owner that are not over, newest first, at most n.
func OAuthGrantsOf(ctx context.Context, q Querier, owner toll.Address, now time.Time, n int) ([]OAuthGrant, error) {
	return oauthGrants(ctx, q, "SELECT "+oauthGrantColumns+` FROM oauth_grants WHERE owner = $1 AND revoked_at = 0 AND ends_at > $2
		ORDER BY created_at DESC, grant_id LIMIT $3`, owner.Lower(), Micros(now), int64(n))
}
