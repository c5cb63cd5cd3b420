package facilitator

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

// ErrSpent is a permission of which nothing is left to renew.
var ErrSpent = errors.New("the limits of the permission are used up")

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
	ctx context.Context, caller auth.Caller, earlier toll.Hash, req *PermissionRequest, also func(*store.Tx, *toll.AccessToken) error,
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
	at := f.clock().UTC().Truncate(time.Microsecond)
	var out *toll.AccessToken
	err = f.ledger.DoNew(ctx, old.Plan, old.Subscriber, func(t *ledger.Tx) error {
		ended, err := t.RevokePermission(earlier, at)
		if err != nil {
			return err
		}
		next := *p
		if err := left(&next, &ended); err != nil {
			return err
		}
		if err := ledger.FreezePermission(ctx, t.Tx, old.Account(), earlier); err != nil {
			return err
		}
		if err := f.ledger.InsertPermission(ctx, t.Tx, next); err != nil {
			return err
		}
		jws, err := f.signPermission(&next, plan, req)
		if err != nil {
			return err
		}
		out = f.accessToken(&next, req, jws)
		revoked, err := f.permissionEvent(toll.EventPermissionRevoked, &ended, at)
		if err != nil {
			return err
		}
		created, err := f.permissionEvent(toll.EventPermissionCreated, &next, next.CreatedAt)
		if err != nil {
			return err
		}
		t.Event(revoked, created)
		return also(t.Tx, out)
	})
	switch {
	case ledger.IsRefused(err, ledger.PermissionRevoked):
		return nil, toll.NewError(toll.CodePermissionAlreadyRevoked)
	case ledger.IsRefused(err, ledger.PermissionUnknown):
		return nil, toll.NewError(toll.CodePermissionNotFound)
	case err != nil:
		return nil, f.refusedBy(err)
	}
	f.changed(old.Account(), earlier)
	return out, nil
}

// left gives a permission the delegation of an earlier one, and the limits that it did not use. What that holds counts as
// used.
func left(next, old *ledger.Permission) error {
	next.DelegationID, next.RedemptionLimit, next.OrderLimit = old.DelegationID, nil, nil
	if old.RedemptionLimit != nil {
		n := *old.RedemptionLimit - old.Redeemed - old.Held
		if n < 1 {
			return ErrSpent
		}
		next.RedemptionLimit = &n
	}
	if old.OrderLimit != nil {
		n := max(*old.OrderLimit-old.Orders, 0)
		next.OrderLimit = &n
	}
	return nil
}
