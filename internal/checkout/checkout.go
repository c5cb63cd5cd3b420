// Package checkout sells plans: orders, mints by the owner, balances. Money comes in over a [Rail]; free plans need none.
package checkout

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

// Deps is what a checkout is built on.
type Deps struct {
	Store  *store.Store
	Ledger *ledger.Ledger
	Clock  func() time.Time // nil: the clock of the system
}

// Checkout makes orders. An order and its credits are committed together or not at all.
type Checkout struct {
	store  *store.Store
	ledger *ledger.Ledger
	clock  func() time.Time
}

// New returns a checkout.
func New(d Deps) *Checkout {
	c := &Checkout{store: d.Store, ledger: d.Ledger, clock: d.Clock}
	if c.clock == nil {
		c.clock = time.Now
	}
	return c
}

// Order buys a plan for the caller. Errors: [toll.CodeFiatPlanOnCryptoRoute], [toll.CodeChainUnreachable] for a plan with
// a price, [toll.CodePlanUnlisted], [toll.CodePlanSoldOut], [toll.CodeTrialUsed], [toll.CodeCreditsOverflow].
func (c *Checkout) Order(ctx context.Context, caller toll.Address, plan *toll.Plan) (*toll.Order, error) {
	switch {
	case !plan.IsListed:
		return nil, unlisted(plan)
	case !plan.Price.IsCrypto:
		return nil, toll.NewError(toll.CodeFiatPlanOnCryptoRoute).WithHint("Use the checkout of the plan.")
	case !plan.Price.IsFree() || plan.IsPayAsYouGo():
		return nil, toll.NewError(toll.CodeChainUnreachable)
	}
	o, err := c.orderFree(ctx, plan, caller, plan.IsTrial)
	if ledger.IsRefused(err, ledger.NotFirst) {
		return nil, toll.NewError(toll.CodeTrialUsed).WithDetails("planId %s", plan.ID)
	}
	if err != nil {
		return nil, fault(err)
	}
	return c.render(ctx, plan, o)
}

// Fiat opens a checkout page for a fiat plan. Errors: [toll.CodeCheckoutWrongPlan] for other plans, and
// [toll.CodeCardOff], as no card processor is configured.
func (c *Checkout) Fiat(_ context.Context, _ toll.Address, plan *toll.Plan) error {
	switch {
	case plan.Price.IsCrypto:
		return toll.NewError(toll.CodeCheckoutWrongPlan)
	case !plan.IsListed:
		return unlisted(plan)
	}
	return toll.NewError(toll.CodeCardOff)
}

// EnsureFree makes the first order of a free plan for a holder who has none. Any number of callers, in any number of
// processes, make one order; later orders come only from [Checkout.Order]. Errors: [toll.CodePlanUnlisted],
// [toll.CodePlanSoldOut], [toll.CodeCreditsOverflow].
func (c *Checkout) EnsureFree(ctx context.Context, plan *toll.Plan, holder toll.Address) error {
	if !plan.Price.IsFree() || plan.IsPayAsYouGo() {
		return toll.Errorf(toll.CodeInternal, "The plan is not free.")
	}
	_, err := c.orderFree(ctx, plan, holder, true)
	if ledger.IsRefused(err, ledger.NotFirst) {
		return nil
	}
	return fault(err)
}

func (c *Checkout) orderFree(ctx context.Context, plan *toll.Plan, holder toll.Address, firstOnly bool) (*store.Order, error) {
	now := c.clock().UTC()
	o := &store.Order{
		ID: toll.NewUUID(), Account: ledger.NewAccountID(plan.ID, holder), Plan: plan.ID, Subscriber: holder,
		Status: toll.OrderConfirmed, Credits: plan.Credits.Amount, Amount: plan.Price.Total(),
		Currency: plan.Price.CurrencyName(), CreatedAt: now, UpdatedAt: now,
	}
	op := ledger.MintOp{
		Plan: plan.ID, Subscriber: holder, Amount: plan.Credits.Amount, EndsAt: plan.LotEnd(now), Ref: o.ID, Order: true,
		FirstOnly: firstOnly,
	}
	_, err := c.ledger.MintWith(ctx, op, func(tx *store.Tx, m ledger.Minted) error {
		// Listing and limit count as they are now, not as the caller read them.
		current, err := store.PlanByID(ctx, tx, plan.ID)
		if err != nil {
			return err
		}
		if !current.IsListed {
			return unlisted(plan)
		}
		_, ok, err := store.CountOrder(ctx, tx, plan.ID, current.MaxOrders)
		if err != nil {
			return err
		}
		if !ok {
			return toll.NewError(toll.CodePlanSoldOut).WithDetails("planId %s", plan.ID)
		}
		o.TxHash = m.Transaction.String()
		return store.InsertOrder(ctx, tx, o)
	})
	return o, err
}

func unlisted(plan *toll.Plan) *toll.Error {
	return toll.NewError(toll.CodePlanUnlisted).WithDetails("planId %s", plan.ID)
}

// OrderByID returns an order to its subscriber and to the owner of its plan; for everybody else it does not exist:
// [toll.CodeOrderNotFound].
func (c *Checkout) OrderByID(ctx context.Context, caller toll.Address, id string) (*toll.Order, error) {
	id, err := toll.ParseUUID(id)
	if err != nil {
		return nil, err
	}
	none := toll.NewError(toll.CodeOrderNotFound).WithDetails("orderId %s", id)
	o, err := store.OrderByID(ctx, c.store, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, none
	}
	if err != nil {
		return nil, fault(err)
	}
	plan, err := store.PlanByID(ctx, c.store, o.Plan)
	if err != nil {
		return nil, fault(err)
	}
	if caller != o.Subscriber && caller != plan.Owner {
		return nil, none
	}
	return c.render(ctx, plan, o)
}

func (c *Checkout) render(ctx context.Context, plan *toll.Plan, o *store.Order) (*toll.Order, error) {
	out := &toll.Order{
		Success: o.Status != toll.OrderFailed, OrderID: o.ID, Status: o.Status, PlanID: o.Plan, TxHash: o.TxHash,
		CreditsGranted: o.Credits, Amount: o.Amount, Currency: o.Currency, FailureReason: o.FailureReason,
		Message: "The order is " + string(o.Status) + ".", HTTPStatus: 200, When: toll.At(o.UpdatedAt),
		Data: map[string]any{"orderId": o.ID, "planId": o.Plan},
	}
	if o.Status == toll.OrderConfirmed || o.Status == toll.OrderFinal {
		// The order stands whatever this read brings: a failure here must not invite a second order.
		if b, err := c.Balance(ctx, plan, o.Subscriber, false); err == nil {
			out.Balance = b
		}
	}
	return out, nil
}

// fault gives errors of the ledger and the store a code; nil stays nil.
func fault(err error) error {
	switch {
	case err == nil:
		return nil
	case ledger.IsRefused(err, ledger.Overflow):
		return toll.NewError(toll.CodeCreditsOverflow)
	case errors.Is(err, ledger.ErrBusy), errors.Is(err, ledger.ErrClosed):
		e := toll.NewError(toll.CodeUnavailable).WithCause(err)
		e.RetryAfterSecs = 1
		return e
	case errors.Is(err, ledger.ErrUnknownOutcome):
		return toll.NewError(toll.CodeDatabaseUnavailable).WithCause(err).
			WithHint("The outcome is not known: read the balance before you repeat the call.")
	}
	return toll.AsError(err)
}
