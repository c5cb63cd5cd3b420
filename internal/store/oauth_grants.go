package store

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
)

// OAuthGrant is what a person agreed to. What is issued because of it is one family.
type OAuthGrant struct {
	ID              toll.Hash
	ClientID        string
	ClientName      string
	Digest          []byte // of what the person was shown of the client; empty when that cannot change
	Owner           toll.Address
	Kind            string
	Scope           string
	Resource        string // "" for none
	Nonce           string // of an identity token; "" for none
	PlanID          toll.PlanID
	AgentID         toll.AgentID
	DelegationID    string
	RedemptionLimit *toll.Credits
	OrderLimit      *int64
	Refreshes       bool          // the client may ask for more access tokens
	Life            time.Duration // from the first token on, in whole seconds
	CreatedAt       time.Time
	EndsAt          time.Time // of the code or the device until the first token
	RevokedAt       time.Time // zero: not revoked
	Parent          toll.Hash // API key of the session in which the person agreed; zero: none
	Rights          toll.Rights
}

const oauthGrantColumns = `grant_id, client_id, client_name, digest, owner, kind, scope, resource, nonce, plan_id, agent_id, delegation_id,
	redemption_limit, order_limit, refreshes, life, created_at, ends_at, revoked_at, parent, rights`

// InsertOAuthGrant adds a grant.
func InsertOAuthGrant(ctx context.Context, tx *Tx, g OAuthGrant) error {
	var limit *int64
	if g.RedemptionLimit != nil {
		n := int64(*g.RedemptionLimit)
		limit = &n
	}
	_, err := tx.Exec(ctx, "INSERT INTO oauth_grants ("+oauthGrantColumns+`, revoking)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)`,
		g.ID[:], g.ClientID, g.ClientName, blob(g.Digest), g.Owner.Lower(), g.Kind, g.Scope, g.Resource, g.Nonce, string(g.PlanID), string(g.AgentID),
		g.DelegationID, limit, g.OrderLimit, g.Refreshes, int64(g.Life/time.Second), Micros(g.CreatedAt), Micros(g.EndsAt), Micros(g.RevokedAt),
		idOrNull(g.Parent), g.Rights.String(), false)
	return err
}

// OAuthGrantByID returns a grant, or [ErrNotFound].
func OAuthGrantByID(ctx context.Context, q Querier, id toll.Hash) (OAuthGrant, error) {
	return scanOAuthGrant(q.QueryRow(ctx, "SELECT "+oauthGrantColumns+" FROM oauth_grants WHERE grant_id = $1", id[:]).Scan)
}

// OAuthGrantOfAccess returns the grant that a permission or an API key was made of, or [ErrNotFound].
func OAuthGrantOfAccess(ctx context.Context, q Querier, access toll.Hash) (OAuthGrant, error) {
	return scanOAuthGrant(q.QueryRow(ctx, "SELECT "+oauthGrantColumns+` FROM oauth_grants
		WHERE grant_id = (SELECT grant_id FROM oauth_access WHERE id = $1)`, access[:]).Scan)
}

// BeginOAuthGrant gives a grant that is not revoked its end, and keeps it from being revoked until the transaction ends;
// [ErrNotFound] when it is revoked or unknown.
func BeginOAuthGrant(ctx context.Context, tx *Tx, id toll.Hash, ends time.Time) error {
	n, err := tx.Exec(ctx, "UPDATE oauth_grants SET ends_at = $2 WHERE grant_id = $1 AND revoked_at = 0", id[:], Micros(ends))
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// RevokeOAuthGrant ends a grant. What was issued because of it is to be ended after that; see [OAuthAccess] and
// [EndOAuthGrant].
func RevokeOAuthGrant(ctx context.Context, tx *Tx, id toll.Hash, at time.Time) error {
	_, err := tx.Exec(ctx, "UPDATE oauth_grants SET revoked_at = $2, revoking = $3 WHERE grant_id = $1 AND revoked_at = 0", id[:], Micros(at), true)
	return err
}

// EndOAuthGrant notes that everything that was issued because of a revoked grant is ended.
func EndOAuthGrant(ctx context.Context, tx *Tx, id toll.Hash) error {
	_, err := tx.Exec(ctx, "UPDATE oauth_grants SET revoking = $2 WHERE grant_id = $1", id[:], false)
	return err
}

// RevokingOAuthGrants returns at most n grants of which something may still have to be ended.
func RevokingOAuthGrants(ctx context.Context, q Querier, n int) ([]OAuthGrant, error) {
	return oauthGrants(ctx, q, "SELECT "+oauthGrantColumns+" FROM oauth_grants WHERE revoking LIMIT $1", int64(n))
}

// OAuthGrantsOfParent returns the grants that were agreed to with an API key, that are not revoked and not over.
func OAuthGrantsOfParent(ctx context.Context, q Querier, parent toll.Hash, now time.Time) ([]OAuthGrant, error) {
	return oauthGrants(ctx, q, "SELECT "+oauthGrantColumns+` FROM oauth_grants
		WHERE parent = $1 AND revoked_at = 0 AND ends_at > $2 ORDER BY grant_id`, parent[:], Micros(now))
}

// SetParentOfOAuthGrant gives a grant another parent; the zero hash is none.
func SetParentOfOAuthGrant(ctx context.Context, tx *Tx, id, parent toll.Hash) error {
	_, err := tx.Exec(ctx, "UPDATE oauth_grants SET parent = $2 WHERE grant_id = $1", id[:], idOrNull(parent))
	return err
}

func oauthGrants(ctx context.Context, q Querier, query string, args ...any) ([]OAuthGrant, error) {
	rows, err := q.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []OAuthGrant
	for rows.Next() {
		g, err := scanOAuthGrant(rows.Scan)
		if err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, rows.Err()
}

// InsertOAuthAccess notes that a permission or an API key was made of a grant. It is the newest then, also when the clock of another
// process was ahead.
func InsertOAuthAccess(ctx context.Context, tx *Tx, access, grant toll.Hash, now time.Time) error {
	_, err := tx.Exec(ctx, `INSERT INTO oauth_access (id, grant_id, created_at) VALUES ($1, $2,
		(SELECT CASE WHEN MAX(created_at) >= $3 THEN MAX(created_at) + 1 ELSE $3 END FROM oauth_access WHERE grant_id = $2))`, access[:], grant[:], Micros(now))
	return err
}

// OAuthAccess returns the last n permissions or API keys that were made of a grant, the newest first.
func OAuthAccess(ctx context.Context, q Querier, grant toll.Hash, n int) ([]toll.Hash, error) {
	rows, err := q.Query(ctx, "SELECT id FROM oauth_access WHERE grant_id = $1 ORDER BY created_at DESC, id LIMIT $2", grant[:], int64(n))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []toll.Hash
	for rows.Next() {
		var id []byte
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		out = append(out, toll.Hash(id))
	}
	return out, rows.Err()
}

// DropOAuthGrants removes grants that ended before a moment with all that hangs on them, and devices; at most n of each. It
// returns how many grants.
func DropOAuthGrants(ctx context.Context, s *Store, before time.Time, n int) (int, error) {
	dropped := 0
	err := s.Tx(ctx, func(tx *Tx) error {
		rows, err := tx.Query(ctx, "SELECT grant_id FROM oauth_grants WHERE ends_at < $1 AND NOT revoking LIMIT $2"+tx.ForUpdate(), Micros(before), int64(n))
		if err != nil {
			return err
		}
		var ids [][]byte
		for rows.Next() {
			var id []byte
			if err := rows.Scan(&id); err != nil {
				rows.Close()
				return err
			}
			ids = append(ids, id)
		}
		rows.Close()
		if err := rows.Err(); err != nil {
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
		_, err = tx.Exec(ctx, "DELETE FROM oauth_guesses WHERE since < $1", Micros(before))
		return err
	})
	return dropped, err
}

func scanOAuthGrant(scan func(dest ...any) error) (g OAuthGrant, err error) {
	var id, parent []byte
	var owner, plan, agent string
	var rights *string
	var limit *int64
	var life, created, ends, revoked int64
	err = scan(&id, &g.ClientID, &g.ClientName, &g.Digest, &owner, &g.Kind, &g.Scope, &g.Resource, &g.Nonce, &plan, &agent, &g.DelegationID,
		&limit, &g.OrderLimit, &g.Refreshes, &life, &created, &ends, &revoked, &parent, &rights)
	if err != nil {
		return OAuthGrant{}, err
	}
	copy(g.ID[:], id)
	copy(g.Parent[:], parent)
	if rights != nil {
		g.Rights = rightsOf(*rights)
	}
	if limit != nil {
		g.RedemptionLimit = toll.Credits(*limit).Ptr()
	}
	g.PlanID, g.AgentID, g.Life = toll.PlanID(plan), toll.AgentID(agent), time.Duration(life)*time.Second
	g.CreatedAt, g.EndsAt, g.RevokedAt = FromMicros(created), FromMicros(ends), FromMicros(revoked)
	g.Owner, err = toll.ParseAddress(owner)
	return g, err
}
