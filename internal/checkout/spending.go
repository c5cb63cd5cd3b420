package checkout

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// errLeft is the answer to a person who has left the workspace since the call was authenticated.
var errLeft = toll.NewError(toll.CodeNotAuthenticated)

// spends counts what a member has the workspace pay against the spending limit of the membership, under the lock of it. A caller
// without a person, and a member without a limit, pass. Errors: [toll.CodeSpendLimit], [toll.CodeNotAuthenticated].
func spends(ctx context.Context, tx *store.Tx, workspace toll.Address, user toll.UUID, cents int64, now time.Time) error {
	m, err := limited(ctx, tx, workspace, user)
	if m == nil || err != nil {
		return err
	}
	if *m, err = store.LockMembership(ctx, tx, workspace, user); err != nil {
		return store.NotFoundAs(err, errLeft)
	}
	if m.SpendLimit == nil { // it was taken away meanwhile
		return nil
	}
	spent, err := store.SpentBy(ctx, tx, workspace, user, now)
	if err != nil {
		return err
	}
	if left := max(*m.SpendLimit-spent, 0); toll.Cents(cents) > left {
		return toll.NewError(toll.CodeSpendLimit).WithDetails("%d cents remain", left).WithParam("leftCents", left)
	}
	return nil
}

// limited returns the membership of a person who has a spending limit, nil for a member without one and for no person. Errors:
// [toll.CodeNotAuthenticated] for a person who has left.
func limited(ctx context.Context, q store.Querier, workspace toll.Address, user toll.UUID) (*store.Membership, error) {
	if user.IsZero() {
		return nil, nil
	}
	m, err := store.MembershipOf(ctx, q, workspace, user)
	if err != nil || m.SpendLimit == nil {
		return nil, store.NotFoundAs(err, errLeft)
	}
	return &m, nil
}

// MayUse reports whether a person, zero for none, may have a delegation of the workspace pay: who has a spending limit uses only those
// that count against it. text is the id of the delegation, or its signed reference. Errors: [toll.CodeSpendLimitDelegation],
// [toll.CodeNotAuthenticated] for a person who has left, those of [Delegations.ID], [toll.CodeDelegationNotFound].
func (c *Delegations) MayUse(ctx context.Context, workspace toll.Address, user toll.UUID, text string) error {
	m, err := limited(ctx, c.store, workspace, user)
	if m == nil || err != nil {
		return Fault(err)
	}
	d, err := c.delegationOf(ctx, c.store, workspace, text)
	if err == nil && d.MadeBy != user {
		err = toll.NewError(toll.CodeSpendLimitDelegation).WithDetails("delegationId %s", d.ID)
	}
	return err
}

// countOrder notes who has the wallet of the workspace pay an order, with its cents of a dollar or a euro, and counts them. A member with
// a limit buys nothing for a token whose worth the service does not know.
func (c *Checkout) countOrder(ctx context.Context, tx *store.Tx, in *intent, o *store.Order) error {
	cents, known := int64(0), currencyOf(in.plan, c.env) != ""
	if known {
		cents, known = centsOf(o.Amount)
	}
	if known {
		o.OrderedBy, o.Cents = in.user, cents
		return spends(ctx, tx, in.subscriber, in.user, cents, o.CreatedAt)
	}
	m, err := limited(ctx, tx, in.subscriber, in.user)
	if m != nil && err == nil {
		err = toll.Errorf(toll.CodeSpendLimit, "The price of this plan cannot be converted to cents, "+
			"so members with a spending limit cannot order the plan.").
			WithDetails("planId %s", in.plan.ID)
	}
	return err
}
