package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/tollhq/toll/internal/store"
)

func isNotFound(err error) bool { return errors.Is(err, store.ErrNotFound) }

// user is what a program may know of the person who let it in.
type user struct {
	Subject string `json:"sub"`
	Name    string `json:"name,omitempty"`
}

func inScope(scope, word string) bool { return slices.Contains(strings.Fields(scope), word) }

// user returns what the scope of a grant lets its program know.
func (o *OAuth) user(ctx context.Context, g store.OAuthGrant) (user, error) {
	u := user{Subject: g.Owner.String()}
	if !inScope(g.Scope, "profile") {
		return u, nil
	}
	p, err := store.PrincipalByAddress(ctx, o.Store, g.Owner)
	u.Name = p.Name
	return u, store.NotFoundAs(err, nil)
}

// withIdentity adds an identity token to an answer when the person agreed to it (OpenID Connect Core 1.0, section 3.1.3.3).
func (o *OAuth) withIdentity(ctx context.Context, out *granted, g store.OAuthGrant) (*granted, error) {
	if !inScope(out.Scope, "openid") {
		return out, nil
	}
	u, err := o.user(ctx, g)
	if err == nil {
		now := o.Clock()
		out.IDToken, err = o.Auth.SignIdentity(map[string]any{
			"iss": o.Issuer, "sub": u.Subject, "aud": g.ClientID, "iat": now.Unix(), "exp": now.Add(accessLife).Unix(),
		}, map[string]string{"nonce": g.Nonce, "name": u.Name})
	}
	return out, err
}

// UserInfo is GET and POST /oauth/userinfo (OpenID Connect Core 1.0, section 5.3).
func (o *OAuth) UserInfo() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-store")
		answer, status, challenge := o.userInfo(r)
		if challenge != "" {
			h.Set("WWW-Authenticate", challenge)
		}
		if status == http.StatusServiceUnavailable {
			h.Set("Retry-After", "1")
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer) // the caller has gone; there is nobody to tell
	})
}

func (o *OAuth) userInfo(r *http.Request) (answer any, status int, challenge string) {
	base := `Bearer resource_metadata="` + o.Issuer + protectedPath + `"`
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if len(r.Header["Authorization"]) != 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return refused("invalid_request", "Send the access token in the Authorization header."), http.StatusUnauthorized, base
	}
	ctx := r.Context()
	g, err := o.bearer(ctx, token)
	switch {
	case isNotFound(err):
		return refused("invalid_token", "The access token is unknown, revoked, or expired."), http.StatusUnauthorized, base + `, error="invalid_token"`
	case err == nil && !inScope(g.Scope, "openid"):
		return refused("insufficient_scope", "The access token does not have the scope openid."), http.StatusForbidden, base + `, error="insufficient_scope", scope="openid"`
	}
	var u user
	if err == nil {
		u, err = o.user(ctx, g)
	}
	if err != nil {
		no := o.refusalOf(ctx, err)
		return no, no.status, ""
	}
	return u, http.StatusOK, ""
}

// bearer returns the grant of a bearer token that is good now, or [store.ErrNotFound].
func (o *OAuth) bearer(ctx context.Context, token string) (store.OAuthGrant, error) {
	id, err := o.accessOf(ctx, token)
	if err != nil {
		return store.OAuthGrant{}, err
	}
	g, err := store.OAuthGrantOfAccess(ctx, o.Store, id)
	if err != nil {
		return g, err
	}
	if g.Kind == KindAPIKey {
		return g, nil
	}
	active, err := o.active(ctx, g.Owner, id)
	if err == nil && !active {
		err = store.ErrNotFound
	}
	return g, err
}
