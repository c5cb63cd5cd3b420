package checkout

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

// ErrSpent is a permission of which nothing is left to renew.
var ErrSpent = errors.New("the limits of the permission are used up")

func PermissionEvent(t toll.EventType, p *ledger.Permission, at time.Time) store.NewEvent {
	record := p.Record(at, nil)
	record.Closed = false // p may have been read before the act: a hold may have been opened since
	return store.NewEvent{Principal: p.Subscriber, Type: t, Kind: "permission", ID: p.Hash.String(), Data: record, At: at}
}

type Permissions struct{ ledger *ledger.Ledger }

// Revoke ends a permission with its event. Open holds under it still settle. Refusals of the ledger: PermissionUnknown, PermissionRevoked.
func (c *Permissions) Revoke(ctx context.Context, p *ledger.Permission, at time.Time) error {
	return c.ledger.DoNew(ctx, p.Plan, p.Subscriber, func(t *ledger.Tx) error {
		ended, err := t.RevokePermission(p.Hash, at)
		t.Event(PermissionEvent(toll.EventPermissionRevoked, &ended, at))
		return err
	})
}

// Renew ends a permission and stores next in its place, in one transaction: next gets the delegation of the ended
// one, and the limits that it did not use. It returns next as it is stored. Errors: [ErrSpent], those of an issue, and the
// refusals of the ledger PermissionUnknown and PermissionRevoked.
func (c *Permissions) Renew(
	ctx context.Context, old *ledger.Permission, next ledger.Permission, at time.Time, issue *store.OAuthIssue,
) (*ledger.Permission, error) {
	err := c.ledger.DoNew(ctx, old.Plan, old.Subscriber, func(t *ledger.Tx) error {
		ended, err := t.RevokePermission(old.Hash, at)
		if err != nil {
			return err
		}
		if err := inherit(&next, &ended); err != nil {
			return err
		}
		if err := t.FreezePermission(old.Hash); err != nil {
			return err
		}
		if err := c.ledger.InsertPermission(ctx, t.Tx, next); err != nil {
			return err
		}
		t.Event(PermissionEvent(toll.EventPermissionRevoked, &ended, at), PermissionEvent(toll.EventPermissionCreated, &next, next.CreatedAt))
		return store.PutOAuthIssue(ctx, t.Tx, issue, next.Hash)
	})
	return &next, err
}

// inherit gives a permission the delegation of an earlier one and its unused limits. Holds count as used.
func inherit(next, old *ledger.Permission) error {
	next.DelegationID, next.RedemptionLimit, next.OrderLimit = old.DelegationID, nil, nil
	if old.RedemptionLimit != nil {
		n := *old.RedemptionLimit - old.Redeemed - old.Held
		if n < 1 {
			return ErrSpent
		}
		next.RedemptionLimit = &n
	}
	if old.OrderLimit != nil {
		next.OrderLimit = new(max(*old.OrderLimit-old.Orders, 0))
	}
	return nil
}
