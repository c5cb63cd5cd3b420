package facilitator

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/checkout"
)

// ErrSpent is a permission of which nothing is left to renew.
var ErrSpent = checkout.ErrSpent

// CheckPermission proves that [Facilitator.CreatePermission] would make the permission now, with its errors. A delegation
// that is made on the fly is not looked at.
func (f *Facilitator) CheckPermission(ctx context.Context, caller auth.Caller, req *PermissionRequest) error {
	_, _, _, err := f.planned(ctx, caller, req)
	return err
}

// RenewPermission is [Facilitator.CreatePermission] for a permission that takes the place of an earlier one of the caller,
// which ends in the same transaction. The limits of the new one are what the earlier one left of its own, whatever the request
// says, and its delegation stays, usable or not. Errors:
// [toll.CodePermissionNotFound], [toll.CodePermissionAlreadyRevoked] and [ErrSpent] too.
func (f *Facilitator) RenewPermission(
	ctx context.Context, caller auth.Caller, earlier toll.Hash, req *PermissionRequest,
) (*toll.AccessToken, error) {
	old, err := f.permissionOf(ctx, caller.Address, earlier)
	if err != nil {
		return nil, err
	}
	p, plan, _, err := f.planned(ctx, caller, req)
	if err != nil {
		return nil, err
	}
	if p.Account() != old.Account() {
		return nil, toll.Errorf(toll.CodeBadRequest, "A permission is renewed for the same plan.")
	}
	if err := f.countPermission(p); err != nil {
		return nil, err
	}
	at := f.Clock().UTC().Truncate(time.Microsecond)
	// Limits are known under the lock only, so the token is signed after it; this one shows that there is a key to sign with.
	if _, err := f.signPermission(p, plan, req); err != nil {
		return nil, err
	}
	next, err := f.Checkout.RenewPermission(ctx, old, *p, at, req.Issue)
	if err != nil {
		return nil, f.notRevoked(err)
	}
	f.changed(old.Account(), earlier)
	jws, err := f.signPermission(next, plan, req)
	if err != nil {
		return nil, err
	}
	return f.accessToken(next, req, jws), nil
}

// AccessTokenOf returns the access token of a stored permission of a subscriber again. Errors: [toll.CodePermissionNotFound],
// [toll.CodePlanNotFound].
func (f *Facilitator) AccessTokenOf(ctx context.Context, subscriber toll.Address, hash toll.Hash, req *PermissionRequest) (*toll.AccessToken, error) {
	p, err := f.permissionOf(ctx, subscriber, hash)
	if err != nil {
		return nil, err
	}
	plan, e := f.Catalogue.Plan(ctx, p.Plan, toll.CodePlanNotFound)
	if e != nil {
		return nil, e
	}
	jws, err := f.signPermission(p, plan, req)
	if err != nil {
		return nil, err
	}
	return f.accessToken(p, req, jws), nil
}
