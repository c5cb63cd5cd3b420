package oauth

import (
	"context"
	"errors"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
)

// Grant is what a person let a program in for.
type Grant struct {
	store.OAuthGrant
	Access toll.Hash // of the last access token, or the id of the API key; zero while none was issued
}

// Grants lists what the owner let in and what is not over, newest first, at most n.
func (o *OAuth) Grants(ctx context.Context, owner toll.Address, n int) ([]Grant, error) {
	rows, err := store.OAuthGrantsOf(ctx, o.Store, owner, o.Clock(), n)
	if err != nil {
		return nil, err
	}
	out := make([]Grant, 0, len(rows))
	for _, g := range rows {
		one := Grant{OAuthGrant: g}
		access, err := store.OAuthAccess(ctx, o.Store, g.ID, 1)
		if err != nil {
			return nil, err
		}
		if len(access) > 0 {
			one.Access = access[0]
		}
		out = append(out, one)
	}
	return out, nil
}

// EndGrant ends a grant of a person, and everything that was issued because of it, which it counts. One that is over is no error;
// one that is unknown, or of somebody else, is [toll.CodePermissionNotFound]. Errors also: [toll.CodeRightMissing].
func (o *OAuth) EndGrant(ctx context.Context, person auth.Caller, id toll.Hash) (toll.Ended, error) {
	g, err := store.OAuthGrantByID(ctx, o.Store, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && g.Owner != person.Address {
		return toll.Ended{}, toll.NewError(toll.CodePermissionNotFound)
	}
	if err == nil {
		err = mayLetIn(person, g.Kind)
	}
	if err != nil {
		return toll.Ended{}, err
	}
	return o.end(ctx, id)
}
