package ledger

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// OrderOp counts an order before it is paid, or takes the count back when the order failed. The credits come later, by a
// mint with the id of the order as its ref.
type OrderOp struct {
	Plan       toll.PlanID
	Subscriber toll.Address
	Permission toll.Hash // the order limit of this permission counts; zero: the order has none
	FirstOnly  bool      // refuse when the account has an order already
	// Recorded reports whether the other writes of the act are there. It is asked first, under the lock of the account: when
	// they are, nothing is counted again, so that whoever repeats the act, after a lost answer or beside another process,
	// does it once. It must not be nil.
	Recorded func(tx *store.Tx) (bool, error)
}

// OrderWith counts an order on its permission and runs also in the same transaction, under the lock of the account, which
// is made when it does not exist. Refusals: PermissionUnknown, PermissionRevoked, PermissionExpired, OrderLimit, NotFirst.
func (l *Ledger) OrderWith(ctx context.Context, op OrderOp, also func(tx *store.Tx, a Account) error) error {
	_, err := alone(ctx, l, countOrder{op, 1}, func(tx *store.Tx, a Account) error { return also(tx, a) }, op.Recorded)
	return err
}

// UndoOrderWith takes the count of [Ledger.OrderWith] back, with also in the same transaction. A permission that is gone,
// revoked or expired is no refusal.
func (l *Ledger) UndoOrderWith(ctx context.Context, op OrderOp, also func(tx *store.Tx) error) error {
	_, err := alone(ctx, l, countOrder{op, -1}, func(tx *store.Tx, _ Account) error { return also(tx) }, op.Recorded)
	return err
}

type countOrder struct {
	OrderOp
	by int64
}

func (o countOrder) accountID() AccountID { return NewAccountID(o.Plan, o.Subscriber) }

func (o countOrder) needs(n *needs) {
	n.plan, n.subscriber = o.Plan, o.Subscriber
	n.permission(o.Permission)
}

func (o countOrder) apply(s *state, _ bool) (any, error) {
	if o.FirstOnly && o.by > 0 && s.account.Orders > 0 {
		return nil, refuse(NotFirst)
	}
	if o.Permission.IsZero() {
		return s.account, nil
	}
	if o.by < 0 {
		s.countOrder(o.Permission, o.by)
		return s.account, nil
	}
	p, err := s.usable(o.Permission)
	if err != nil {
		return nil, err
	}
	if p.OrderLimit != nil && p.Orders >= *p.OrderLimit {
		return nil, refuse(OrderLimit)
	}
	p.Orders += o.by
	p.changed = true
	return s.account, nil
}

// countOrder changes how many orders count on a permission, whatever its state and its limit: money has moved, or came back.
func (s *state) countOrder(permission toll.Hash, by int64) {
	if p := s.perms[permission]; p != nil && p.Orders+by >= 0 {
		p.Orders += by
		p.changed = true
	}
}

// ReverseOp takes the credits of an order back, or returns them. The account has one order less meanwhile, so that a trial can be
// bought again.
type ReverseOp struct {
	Account    AccountID
	Ref        string    // id of the order
	Permission toll.Hash // on which the order counts; zero: none
}

// ReverseWith is [Ledger.Reverse] with more writes in the same transaction, under the lock of the account. A repeat moves no
// credits and runs also again, with what has become of those that holds kept.
func (l *Ledger) ReverseWith(ctx context.Context, op ReverseOp, also func(tx *store.Tx, t TakenBack) error) (TakenBack, error) {
	return alone(ctx, l, reverse{op.Account, op.Ref, op.Permission, true}, also, nil)
}

// RestoreWith is [Ledger.Restore] with more writes in the same transaction, under the lock of the account. A repeat moves no
// credits and runs also again.
func (l *Ledger) RestoreWith(ctx context.Context, op ReverseOp, also func(tx *store.Tx, t TakenBack) error) (TakenBack, error) {
	return alone(ctx, l, restore{op.Account, op.Ref, op.Permission, true}, also, nil)
}
