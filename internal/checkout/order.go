package checkout

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// OrderRequest asks for a plan.
type OrderRequest struct {
	Caller       toll.Address
	APIKeyID     toll.Hash // the key of the caller, which a delegation may ask for
	UserID       toll.UUID // the person, whose spending limit counts; zero: none
	Plan         *toll.Plan
	DelegationID string        // limit on money to pay with, or its signed reference; "": the wallet of the caller pays a crypto plan
	Wait         time.Duration // how long the answer may wait for the credits
	rail.Means                 // Rail "" is the one of the plan
}

// OrderRef is what is kept of an order under an Idempotency-Key: the order itself says how it stands.
type OrderRef struct {
	OrderID string `json:"orderId"`
}

// Order buys a plan for the caller. The answer of a paid plan has status 202 in it while the payment is not decided after
// Wait. once, which may be nil, keeps an [OrderRef]. While an order of the caller for this plan is open, a second one is answered with it.
//
// Errors: [toll.CodeFiatPlanOnCryptoRoute] for a fiat plan without a delegation, [toll.CodePlanUnlisted], [toll.CodePlanSoldOut], [toll.CodeTrialUsed],
// [toll.CodeCreditsOverflow], [toll.CodeChainUnreachable], [toll.CodeSpendLimit], those of [Delegations.MayUse] and
// [Delegations.Usable], and the code with which the rail refused.
func (c *Checkout) Order(ctx context.Context, r OrderRequest, once *store.Once) (*toll.Order, error) {
	plan := r.Plan
	switch {
	case onSale(plan) != nil:
		return nil, onSale(plan)
	case !plan.Price.IsCrypto && r.DelegationID == "" && r.Rail == "":
		return nil, toll.NewError(toll.CodeFiatPlanOnCryptoRoute).WithDetails("planId %s", plan.ID)
	case !plan.Kind().Prepaid():
		return c.orderFree(ctx, plan, r.Caller, 0, false, once)
	case plan.Price.IsFree():
		return c.orderFree(ctx, plan, r.Caller, plan.Credits.Amount, false, once)
	}
	in := intent{
		plan: plan, subscriber: r.Caller, credits: plan.Credits.Amount, amount: plan.Price.Total(), delegation: r.DelegationID,
		key: &r.APIKeyID, user: r.UserID, once: once, Means: r.Means,
	}
	if in.delegation != "" {
		if err := c.Delegations.MayUse(ctx, r.Caller, r.UserID, in.delegation); err != nil {
			return nil, err
		}
	}
	if in.delegation != "" && plan.Price.IsCrypto && plan.Price.TokenAddress.IsZero() {
		return nil, toll.NewError(toll.CodeChainNativeDelegation).WithDetails("planId %s", plan.ID)
	}
	o, err := c.place(ctx, &in)
	if err != nil {
		return nil, err
	}
	return c.answer(ctx, plan, o, r.Wait)
}

// answer waits for an order and renders it.
func (c *Checkout) answer(ctx context.Context, plan *toll.Plan, o *store.Order, wait time.Duration) (*toll.Order, error) {
	o, _, err := c.waits.await(ctx, o, wait)
	if err != nil {
		e := toll.AsError(err)
		return nil, e.WithParam("orderId", o.ID).WithHint("The order is being processed: poll it with GET /api/v1/protocol/orders/{orderId}. To retry, send the same " +
			"Idempotency-Key. Without a key, a retry returns this order while it is open, and places another order afterwards.")
	}
	if o.Status == toll.OrderFailed {
		return nil, c.failure(ctx, o)
	}
	out := c.render(ctx, plan, o)
	if o.Open {
		out.HTTPStatus = 202
	}
	return out, nil
}

func failure(o *store.Order) *toll.Error {
	e := &toll.Error{Code: cmp.Or(o.FailureCode, toll.CodeOrderLacksMoney)}
	if o.FailureParams != "" {
		_ = json.Unmarshal([]byte(o.FailureParams), &e.Params) // params only decorate: unreadable ones are left out
	}
	if o.FailureReason != "" {
		e = e.WithDetails("%s", o.FailureReason)
	}
	if e.Code == toll.CodeChainFailed && o.TxHash == "" {
		e.Status = 500 // nothing was sent, so the fault is ours
	}
	return e.WithParam("orderId", o.ID)
}

// failure is [failure] with the page on which the owner of the card can pay what the bank wanted confirmed, while possible.
func (c *Checkout) failure(ctx context.Context, o *store.Order) *toll.Error {
	e := failure(o)
	pages, ok := c.rails[rail.Card].(rail.Pages)
	if !ok || !replaceable(o, c.now()) {
		return e
	}
	page, err := pages.ReplaceURL(o.Subscriber, o.ID, o.UpdatedAt.Add(replaceTime))
	if err != nil {
		c.log.ErrorContext(ctx, "cannot sign the URL of the new payment page for a failed order", "order", o.ID, "err", err)
		return e
	}
	return e.WithParam("checkoutUrl", page)
}

// EnsureFree makes the first order of a free plan for a holder who has none. Any number of callers, in any number of processes, make one
// order; later orders come only from [Checkout.Order]. Errors: [toll.CodePlanUnlisted], [toll.CodePlanSoldOut], [toll.CodeCreditsOverflow].
func (c *Checkout) EnsureFree(ctx context.Context, plan *toll.Plan, holder toll.Address) error {
	if !plan.Price.IsFree() || !plan.Kind().Prepaid() {
		return toll.Errorf(toll.CodeInternal, "The plan is not free.")
	}
	_, err := c.orderFree(ctx, plan, holder, plan.Credits.Amount, true, nil)
	if errors.Is(err, toll.NewError(toll.CodeTrialUsed)) {
		return nil
	}
	return err
}

// orderFree records an order that costs nothing, with its credits: those of a free plan, or none, which opens a pay-as-you-go account.
func (c *Checkout) orderFree(
	ctx context.Context, plan *toll.Plan, holder toll.Address, credits toll.Credits, firstOnly bool, once *store.Once,
) (*toll.Order, error) {
	now := c.now()
	o := &store.Order{
		ID: toll.NewTimeUUID(now).String(), Account: ledger.NewAccountID(plan.ID, holder), Plan: plan.ID, Subscriber: holder, Seller: plan.Owner,
		Status: toll.OrderConfirmed, Credits: credits, Currency: plan.Price.CurrencyName(), CreatedAt: now, UpdatedAt: now,
	}
	op := ledger.MintOp{
		Plan: plan.ID, Subscriber: holder, Amount: credits, EndsAt: plan.LotEnd(now), Ref: o.ID, Order: true, FirstOnly: firstOnly,
	}
	err := c.ledger.DoNew(ctx, plan.ID, holder, func(t *ledger.Tx) error {
		refused := admit(t, plan, now)
		m, err := t.Mint(op)
		switch {
		case err != nil:
			return err
		case m.Replayed:
			o.TxHash = m.Transaction.String()
			return ledger.ErrRecorded
		case refused != nil:
			return toll.AsError(refused).WithDetails("planId %s", plan.ID)
		}
		if err := takeSlot(ctx, t.Tx, plan.ID); err != nil {
			return err
		}
		o.TxHash = m.Transaction.String()
		if err := store.InsertOrder(ctx, t.Tx, o); err != nil {
			return err
		}
		t.Event(orderEvents(o, plan.Owner, toll.EventOrderCreated, toll.EventOrderPaid)...)
		return store.PutAnswer(ctx, t.Tx, once, OrderRef{o.ID})
	})
	if err != nil {
		return nil, Fault(err)
	}
	return c.render(ctx, plan, o), nil
}

// admit returns an error when the account of t may not order the plan now, or cannot be read.
func admit(t *ledger.Tx, plan *toll.Plan, now time.Time) error {
	if !plan.LimitsOrders() {
		return nil
	}
	a, err := t.Account()
	if err != nil {
		return err
	}
	return plan.MayOrder(a.Orders, a.Subscribed(now))
}

// takeSlot counts an order of a plan. It reads listing and limit again in the transaction.
func takeSlot(ctx context.Context, tx *store.Tx, id toll.PlanID) error {
	current, err := store.PlanByID(ctx, tx, id)
	if err != nil {
		return err
	}
	if err := onSale(current); err != nil {
		return err
	}
	_, ok, err := store.CountOrder(ctx, tx, id, current.MaxOrders)
	if err != nil {
		return err
	}
	if !ok {
		return toll.NewError(toll.CodePlanSoldOut).WithDetails("planId %s", id)
	}
	return nil
}

// onSale returns nil for a plan that takes orders, an error with [toll.CodeSuspended] or [toll.CodePlanUnlisted] otherwise.
func onSale(plan *toll.Plan) error {
	switch {
	case plan.Suspended:
		return toll.NewError(toll.CodeSuspended).WithDetails("planId %s", plan.ID)
	case !plan.IsListed:
		return toll.NewError(toll.CodePlanUnlisted).WithDetails("planId %s", plan.ID)
	}
	return nil
}

// OrderByID returns an order to its subscriber and the owner of its plan. Errors: [toll.CodeOrderNotFound], also for other callers.
func (c *Checkout) OrderByID(ctx context.Context, caller toll.Address, id string) (*toll.Order, error) {
	o, plan, err := c.orderFor(ctx, caller, id)
	if err != nil {
		return nil, err
	}
	if o, _, err = c.waits.current(ctx, o); err != nil {
		return nil, Fault(err)
	}
	return c.render(ctx, plan, o), nil
}

// orderFor returns an order and its plan to its subscriber and to the owner of the plan.
func (c *Checkout) orderFor(ctx context.Context, caller toll.Address, id string) (*store.Order, *toll.Plan, error) {
	id, err := toll.ParseUUID(id)
	if err != nil {
		return nil, nil, err
	}
	none := toll.NewError(toll.CodeOrderNotFound).WithDetails("orderId %s", id)
	o, err := store.OrderByID(ctx, c.store, id)
	if err != nil {
		return nil, nil, Fault(store.NotFoundAs(err, none))
	}
	plan, err := store.PlanByID(ctx, c.store, o.Plan)
	if err != nil {
		return nil, nil, Fault(err)
	}
	if caller != o.Subscriber && caller != plan.Owner {
		return nil, nil, none
	}
	return o, plan, nil
}

// render returns an order with the balance of its subscriber, when it brought credits.
func (c *Checkout) render(ctx context.Context, plan *toll.Plan, o *store.Order) *toll.Order {
	out := Rendered(o)
	if o.Status == toll.OrderConfirmed || o.Status == toll.OrderFinal {
		// The order stands whatever this read brings: a failure here must not invite a second order.
		if b, err := c.Balance(ctx, plan, o.Subscriber, false); err == nil {
			out.Balance = b
		}
	}
	return out
}

// Rendered returns an order as the API does. Its payment counts as disputed while a dispute is open, and after it is lost.
func Rendered(o *store.Order) *toll.Order {
	return &toll.Order{
		Success: o.Status != toll.OrderFailed, OrderID: o.ID, Status: o.Status, PlanID: o.Plan, TxHash: o.TxHash,
		CreditsGranted: o.Credits, Amount: o.Amount, Currency: o.Currency, FailureCode: cause(o), FailureReason: o.FailureReason,
		Message: "The order is " + string(o.Status) + "." + refundOf(o), HTTPStatus: 200, When: toll.At(o.UpdatedAt),
		SubscriberAddress: o.Subscriber, CreatedAt: toll.At(o.CreatedAt), Data: map[string]any{"orderId": o.ID, "planId": o.Plan},
		RefundedCents: toll.Cents(o.RefundedCents), RefundedCredits: o.RefundedCredits,
		TakenByHand: o.Withdrawn, Replaces: store.NonZero(o.Replaces),
		Disputed: o.Dispute == store.DisputeOpen || o.Dispute == store.DisputeLost,
	}
}

// refundOf is a sentence about the refunds of an order, with a leading space.
func refundOf(o *store.Order) string {
	if o.RefundedCents == 0 {
		return ""
	}
	return map[bool]string{true: " A part of the payment was refunded.", false: " The payment was refunded."}[toll.UnitsOfCents(o.RefundedCents).Cmp(o.Amount) < 0]
}

// cause returns the documented cause of a failed order, "" for any other order.
func cause(o *store.Order) toll.OrderFailure {
	if o.Status != toll.OrderFailed {
		return ""
	}
	e := failure(o)
	class, _ := e.Params["class"].(string)
	reason, _ := e.Params["reason"].(string)
	switch e.Code {
	case toll.CodeOrderLacksMoney, toll.CodeChainBalance, toll.CodeDelegationInsufficient:
		return toll.FailureFunds
	case toll.CodeCardAuthentication:
		return toll.FailureAuthentication
	case toll.CodeCardDeclined, toll.CodePaymentMethodUnusable:
		if class == rail.ClassFunds {
			return toll.FailureFunds
		}
		return toll.FailureDeclined
	}
	if class == rail.ClassPageExpired || strings.HasSuffix(reason, "_valid_before") {
		return toll.FailureExpired
	}
	return toll.FailureOther
}
