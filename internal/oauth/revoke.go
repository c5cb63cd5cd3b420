package oauth

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const (
	// unusedLife is how long a client stays that nobody uses.
	unusedLife = 30 * 24 * time.Hour
	// sweepSlice is how many records one turn of a sweep removes of each kind.
	sweepSlice = 500
)

// end ends a grant and what was issued because of it. A job finishes it when it does not get there here.
func (o *OAuth) end(ctx context.Context, id toll.Hash) (toll.Ended, error) {
	err := o.Store.Tx(ctx, func(tx *store.Tx) error {
		g, err := store.OAuthGrantByID(ctx, tx, id)
		if err == nil {
			err = store.RevokeOAuthGrant(ctx, tx, id, o.Clock())
		}
		if err != nil || !g.RevokedAt.IsZero() {
			return err
		}
		return store.Audit(ctx, tx, store.GrantAct("grant.revoked", g, o.Clock()))
	})
	if err != nil {
		return toll.Ended{}, err
	}
	g, err := store.OAuthGrantByID(ctx, o.Store, id)
	if err != nil {
		return toll.Ended{}, err
	}
	return o.finish(ctx, g)
}

// finish ends what was issued because of a revoked grant. That is the newest: every renewal has ended the one before.
func (o *OAuth) finish(ctx context.Context, g store.OAuthGrant) (ended toll.Ended, err error) {
	access, err := store.OAuthAccess(ctx, o.Store, g.ID, 1)
	if err != nil {
		return ended, err
	}
	for _, id := range access {
		if ended, err = o.endAccess(ctx, g, id); err != nil {
			return ended, err
		}
	}
	return ended, o.Store.Tx(ctx, func(tx *store.Tx) error { return store.EndOAuthGrant(ctx, tx, g.ID) })
}

// FinishGrant ends what was issued because of a revoked grant whose end was interrupted ([store.JobEndGrant]).
func (o *OAuth) FinishGrant(ctx context.Context, id []byte) error {
	g, err := store.OAuthGrantByID(ctx, o.Store, toll.Hash(id))
	if isNotFound(err) {
		return nil // it was over, and a sweep removed it
	}
	if err == nil {
		_, err = o.finish(ctx, g)
	}
	return err
}

// endAccess ends an access token, or an API key with all that it made.
func (o *OAuth) endAccess(ctx context.Context, g store.OAuthGrant, id toll.Hash) (toll.Ended, error) {
	if g.Kind != KindAPIKey {
		var ended toll.Ended
		active, err := o.active(ctx, g.Owner, id)
		if active {
			ended.AccessTokens = 1
		}
		if err != nil && toll.AsError(err).HTTPStatus() >= http.StatusInternalServerError {
			return ended, err
		}
		if err := o.Tokens.Revoke(ctx, g.Owner, id); err != nil && !isEnded(err) {
			return ended, err
		}
		return ended, nil
	}
	r, err := o.Auth.EndKey(ctx, g.Owner, id)
	if e := toll.AsError(err); err != nil && (e.Code == toll.CodeKeyNotFound || e.Code == toll.CodeKeyAlreadyRevoked) {
		return toll.Ended{}, nil
	}
	r.Ended.APIKeys++
	return r.Ended, err
}

// Sweep removes clients that nobody used for 30 days, those that are too many, and what is over. It reports whether there may be more to do. Any number of processes may do this on one database.
func (o *OAuth) Sweep(ctx context.Context) (more bool, err error) {
	now := o.Clock()
	grants, err := store.DropOAuthGrants(ctx, o.Store, now, sweepSlice)
	if err != nil {
		return false, err
	}
	clients, err := store.DropOAuthClients(ctx, o.Store, now.Add(-unusedLife), sweepSlice)
	if err != nil {
		return false, err
	}
	trimmed, err := store.TrimOAuthClients(ctx, o.Store, now, now.Add(-unusedGrace), cmp.Or(o.MaxLetIn, defaultMaxLetIn), sweepSlice)
	return grants == sweepSlice || clients == sweepSlice || trimmed >= sweepSlice, err
}

// Revoke is POST /oauth/revoke (RFC 7009): who holds a refresh token ends its whole family. Who holds an access token or an
// API key ends that alone: every server that is called with one holds it. What is not known is ended already.
func (o *OAuth) Revoke() http.Handler { return o.endpoint(o.revoke) }

func (o *OAuth) revoke(w http.ResponseWriter, r *http.Request) (any, error) {
	form, err := readForm(w, r)
	if err != nil {
		return nil, err
	}
	token := form.Get("token")
	if token == "" {
		return nil, refused("invalid_request", "token is missing.")
	}
	ctx := r.Context()
	row, err := store.OAuthRefreshByHash(ctx, o.Store, sumOf(token))
	switch {
	case err == nil:
		_, err = o.end(ctx, row.GrantID)
	case isNotFound(err):
		err = o.revokeAccess(ctx, token)
	}
	return struct{}{}, err
}

// revokeAccess ends an access token or an API key. Where the family goes on without it, a permission that nobody has a token
// of takes its place, with what it left of the limits, and the refresh token renews that one.
func (o *OAuth) revokeAccess(ctx context.Context, token string) error {
	id, err := o.accessOf(ctx, token)
	if err != nil || id.IsZero() {
		return err
	}
	g, err := store.OAuthGrantOfAccess(ctx, o.Store, id)
	if err != nil {
		return store.NotFoundAs(err, nil)
	}
	left := g.EndsAt.Sub(o.Clock())
	if !g.Refreshes || left < shortestLife {
		_, err := o.end(ctx, g.ID)
		return err
	}
	_, err = o.renew(ctx, &g, id, left, o.newIssue(&g, g.EndsAt, ""))
	if err == nil || !errors.Is(err, errEnded) && !errors.Is(err, store.ErrGrantRevoked) && toll.AsError(err).HTTPStatus() >= http.StatusInternalServerError {
		return err
	}
	_, err = o.endAccess(ctx, g, id) // nothing of it is left to renew
	return err
}

// accessOf returns the id of the permission or the API key behind a bearer token, the zero hash when it is none that is good now.
func (o *OAuth) accessOf(ctx context.Context, token string) (toll.Hash, error) {
	c, err := o.Auth.VerifyToken(token)
	switch {
	case err == nil:
		return c.Hash, nil
	case toll.AsError(err).HTTPStatus() >= http.StatusInternalServerError:
		return toll.Hash{}, err
	}
	caller, err := o.Auth.Authenticate(ctx, []string{"Bearer " + token})
	if err != nil && toll.AsError(err).HTTPStatus() >= http.StatusInternalServerError {
		return toll.Hash{}, err
	}
	return caller.KeyID, nil
}
