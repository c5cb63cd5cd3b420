package oauth

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
)

// Grant is what a person let a program in for.
type Grant struct {
	ID              toll.Hash
	Owner           toll.Address
	ClientID        string
	ClientName      string
	Kind            Kind
	Resource        string        // "" for the service alone
	PlanID          toll.PlanID   // "" with an API key
	DelegationID    string        // "": no orders
	RedemptionLimit *toll.Credits // for the whole consent; nil: no limit
	CreatedAt       time.Time
	EndsAt          time.Time
	Rights          toll.Rights // of the API key
	Access          toll.Hash   // of the last access token, or the id of the API key; zero while none was issued
}

// Grants lists what the owner let in and what is not over, newest first, at most n.
func (o *OAuth) Grants(ctx context.Context, owner toll.Address, n int) ([]Grant, error) {
	rows, err := store.OAuthGrantsOf(ctx, o.Store, owner, o.Clock(), n)
	if err != nil {
		return nil, err
	}
	out := make([]Grant, 0, len(rows))
	for _, g := range rows {
		one := Grant{
			ID: g.ID, Owner: g.Owner, ClientID: g.ClientID, ClientName: g.ClientName, Kind: Kind(g.Kind), Resource: g.Resource, PlanID: g.PlanID,
			DelegationID: g.DelegationID, RedemptionLimit: g.RedemptionLimit, CreatedAt: g.CreatedAt, EndsAt: g.EndsAt,
			Rights: g.Rights,
		}
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
		err = mayLetIn(person, Kind(g.Kind))
	}
	if err != nil {
		return toll.Ended{}, err
	}
	return o.end(ctx, id)
}
