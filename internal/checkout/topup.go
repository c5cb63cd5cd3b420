package checkout

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

// TopUp is what one request does about credits that are missing. Make one value for a request and hand it to [Checkout.TopUp] again while
// the ledger refuses: it remembers what was bought for the request, so that the same request, repeated or raced, buys once.
type TopUp struct {
	Plan         *toll.Plan
	Subscriber   toll.Address
	Permission   toll.Hash // the permission of the access token: its order limit counts
	DelegationID string
	APIKeyID     *toll.Hash // the key that created the permission; nil: not known
	// Needed is what has to be available to the request, in all; beyond its own hold when it has one. A pay-as-you-go plan
	// sells exactly what is missing of it. It does not count for a time plan, which needs a running period.
	Needed    toll.Credits
	RequestID string        // the request, or another name that its repeats have too; "": every call is a new one
	Wait      time.Duration // bounds this call

	had int // orders that this value was answered with
}

func (t *TopUp) insufficient(a *ledger.Account, now time.Time) bool {
	return a.Seq == 0 || !t.Plan.Kind().Covers(a.Available(), a.Subscribed(now), t.Needed)
}

// TopUp buys the plan once through the delegation, waits for an open order of the account, or finds that nothing is missing. orderTx is the
// transaction of the order, "" for none. Then the ledger decides. Errors: [toll.CodeDelegationNotFound], [toll.CodeDelegationRevoked],
// [toll.CodeDelegationExpired], [toll.CodeDelegationFrozen], [toll.CodeDelegationExhausted], [toll.CodeDelegationInsufficient],
// [toll.CodeDelegationPlanMismatch], [toll.CodeUnsupportedScheme], [toll.CodePaymentMethodUnusable], [toll.CodePaymentMethodRevoked],
// [toll.CodePaymentMethodNotAllowed], [toll.CodeOrderLimit], [toll.CodePermissionUnknown], [toll.CodePermissionRevoked],
// [toll.CodePermissionExpired], [toll.CodePlanUnlisted], [toll.CodePlanSoldOut], [toll.CodeTrialUsed], [toll.CodeCreditsOverflow];
// [toll.CodeInsufficientCredits] for a free plan; [toll.CodeTopUpRefused] with the code of the rail in its details; the 503 of a rail that
// cannot be used, [toll.CodeCardOff]; and [toll.CodeSettlementPending], with params.transaction, while the order is not decided.
func (c *Checkout) TopUp(ctx context.Context, t *TopUp) (orderTx string, err error) {
	if t.DelegationID == "" {
		return "", toll.NewError(toll.CodeDelegationNotFound)
	}
	if !t.Plan.Reorders() {
		return "", toll.NewError(toll.CodeInsufficientCredits)
	}
	if !t.Plan.Kind().Prepaid() && (t.Needed == 0 || t.Plan.Price.IsFree()) {
		return c.topUpFree(ctx, t)
	}
	in := intent{
		plan: t.Plan, subscriber: t.Subscriber, credits: t.Plan.Credits.Amount, amount: t.Plan.Price.Total(), delegation: t.DelegationID,
		key: t.APIKeyID, topUp: t,
	}
	o, err := c.openTopUp(ctx, &in)
	if err == nil && o == nil {
		o, err = c.place(ctx, &in)
	}
	if errors.Is(err, toll.NewError(toll.CodeChainOrderConflict)) {
		return "", toll.NewError(toll.CodeTopUpRefused).WithDetails("%s", toll.CodeChainOrderConflict)
	}
	if err != nil || o == nil {
		return "", err
	}
	if o, _, err = c.waits.await(ctx, o, t.Wait); err != nil {
		return "", err
	}
	switch {
	case o.Status == toll.OrderFailed && o.RequestID != t.RequestID && c.paidOtherwise(o, t):
		return "", nil // what another delegation could not pay says nothing about this one
	case o.Status == toll.OrderFailed:
		return "", c.topUpRefused(ctx, o)
	case o.Open:
		return "", toll.NewError(toll.CodeSettlementPending).WithParam("transaction", o.TxHash)
	}
	if o.RequestID == t.RequestID {
		t.had++
	}
	return o.TxHash, nil
}

// paidOtherwise reports whether an order is not paid with the delegation of the request.
func (c *Checkout) paidOtherwise(o *store.Order, t *TopUp) bool {
	id, err := c.Delegations.ID(t.Subscriber, t.DelegationID)
	return err == nil && o.DelegationID != id
}

// topUpFree opens a pay-as-you-go account, with the credits of the request when they cost nothing.
func (c *Checkout) topUpFree(ctx context.Context, t *TopUp) (string, error) {
	o, err := c.orderFree(ctx, t.Plan, t.Subscriber, t.Needed, t.Needed == 0, nil)
	if errors.Is(err, toll.NewError(toll.CodeTrialUsed)) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return o.TxHash, nil
}

// openTopUp returns an open order for which the request can wait, without a transaction. What it misses, place finds under the lock.
func (c *Checkout) openTopUp(ctx context.Context, in *intent) (*store.Order, error) {
	if !in.plan.Kind().Prepaid() {
		return nil, nil
	}
	if err := c.Delegations.Usable(ctx, in.subscriber, in.key, in.delegation, in.plan); err != nil && !isBudget(err) {
		return nil, err
	}
	o, err := store.OpenOrder(ctx, c.store, ledger.NewAccountID(in.plan.ID, in.subscriber), "")
	if errors.Is(err, store.ErrNotFound) || err == nil && o.Session != "" {
		return nil, nil
	}
	return o, Fault(err)
}

// isBudget reports whether a delegation is refused for what orders under way have taken of it.
func isBudget(err error) bool {
	return errors.Is(err, toll.NewError(toll.CodeDelegationExhausted)) || errors.Is(err, toll.NewError(toll.CodeDelegationInsufficient))
}

// topUpRefused is the error of a top-up whose order failed: codes of delegations as they are, all others in the details.
func (c *Checkout) topUpRefused(ctx context.Context, o *store.Order) *toll.Error {
	e := c.failure(ctx, o)
	switch e.Code {
	case toll.CodeDelegationNotFound, toll.CodeDelegationRevoked, toll.CodeDelegationExpired, toll.CodeDelegationFrozen,
		toll.CodeDelegationExhausted, toll.CodeDelegationInsufficient, toll.CodeUnsupportedScheme:
		return e
	}
	refused := toll.NewError(toll.CodeTopUpRefused).WithDetails("%s: %s", e.Code, o.FailureReason)
	refused.Params = e.Params
	if e.Code == toll.CodeCardDeclined || e.Code == toll.CodeCardAuthentication {
		refused.Message = refused.Text() + " " + o.FailureReason // which is a sentence of ours
	}
	return refused
}

// CanTopUp returns nil when orders through the delegation could bring what the request needs, now. Errors: those of [Checkout.TopUp].
func (c *Checkout) CanTopUp(ctx context.Context, t TopUp) error {
	account := ledger.NewAccountID(t.Plan.ID, t.Subscriber)
	a, permission, err := c.ledger.Snapshot(ctx, account, t.Permission)
	if err != nil {
		return Fault(err)
	}
	if !t.insufficient(&a, c.now()) {
		return nil
	}
	if t.DelegationID == "" {
		return toll.NewError(toll.CodeDelegationNotFound)
	}
	if !t.Plan.Reorders() {
		return toll.NewError(toll.CodeInsufficientCredits)
	}
	if name := railOf(t.Plan); c.rails[name] == nil {
		return railMissing(name)
	}
	d, err := c.Delegations.delegationOf(ctx, c.store, t.Subscriber, t.DelegationID)
	if err != nil {
		return err
	}
	if err := c.Delegations.usable(ctx, c.store, d, t.Subscriber, t.APIKeyID, t.Plan, c.now()); err != nil {
		return err
	}
	current, err := store.PlanByID(ctx, c.store, t.Plan.ID)
	if err != nil {
		return Fault(err)
	}
	if err := onSale(current); err != nil {
		return err
	}
	missing, ordered := t.Needed-a.Available(), a.Seq > 0
	if t.Plan.Kind().AddsUp() {
		o, err := store.OpenOrder(ctx, c.store, account, "")
		if err == nil && o.Session == "" {
			missing -= min(o.Credits, missing)
			ordered = true
		} else if err != nil && !errors.Is(err, store.ErrNotFound) {
			return Fault(err)
		}
	}
	orders := int64(1)
	_, amount := orderOf(t.Plan, missing)
	if t.Plan.Kind().AddsUp() {
		orders = int64((missing-1)/t.Plan.Credits.Amount) + 1
		if missing <= 0 && ordered {
			return nil
		}
	}
	if err := t.Plan.MayOrder(a.Orders+orders-1, a.Subscribed(c.now()) || orders > 1); err != nil {
		return err
	}
	if limit := permission.OrderLimit; limit != nil && orders > *limit-permission.Orders {
		return toll.NewError(toll.CodeOrderLimit)
	}
	if current.MaxOrders > 0 {
		n, err := store.SlotsTaken(ctx, c.store, current.ID)
		if err != nil {
			return Fault(err)
		}
		if orders > current.MaxOrders-n {
			pages, err := c.unpaidPages(ctx, current)
			if err != nil {
				return Fault(err)
			}
			n -= int64(len(pages))
		}
		if orders > current.MaxOrders-n {
			return toll.NewError(toll.CodePlanSoldOut)
		}
	}
	return affordsAll(d, amount, orders)
}

// OrderOfRequest returns the last order that was made for a request and did not fail, or [store.ErrNotFound].
func (c *Checkout) OrderOfRequest(ctx context.Context, account ledger.AccountID, requestID string) (*store.Order, error) {
	all, err := store.OrdersOfRequest(ctx, c.store, account, requestID)
	if err != nil {
		return nil, err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Status != toll.OrderFailed {
			return all[i], nil
		}
	}
	return nil, store.ErrNotFound
}
