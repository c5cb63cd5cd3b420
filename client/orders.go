package client

import (
	"context"
	"iter"
	"time"

	"github.com/tollhq/toll"
)

// OrderOption configures an order.
type OrderOption func(*orderBody)

type orderBody struct {
	DelegationID string `json:"delegationId,omitempty"`
}

// PaidBy pays with a delegation instead of the caller's wallet.
func PaidBy(delegationID string) OrderOption {
	return func(b *orderBody) { b.DelegationID = delegationID }
}

// OrderPlan buys a plan for the caller. The service waits up to 30 s for the credits. If Status is still pending after that, use
// [Client.WaitOrder].
func (c *Client) OrderPlan(ctx context.Context, id toll.PlanID, opts ...OrderOption) (*toll.Order, error) {
	var b orderBody
	for _, o := range opts {
		o(&b)
	}
	var body any
	if b != (orderBody{}) {
		body = b
	}
	return create[toll.Order](ctx, c, api("/protocol/plans/%s/order", string(id)), body)
}

// AsSeller lists orders of the caller's plans instead of the caller's own orders.
func AsSeller() ListOption { return Filter("role", "seller") }

// OfSubscriber filters by subscriber. Orders also need [AsSeller] and [OfPlan].
func OfSubscriber(a toll.Address) ListOption { return Filter("subscriber", a.String()) }

// Orders lists the caller's own orders or, with [AsSeller], the orders of the caller's plans, newest first and without balances.
// [OfPlan], [OfSubscriber], [Since], and [Until] filter the list.
func (c *Client) Orders(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Order, error] {
	return list[toll.Order](ctx, c, api("/protocol/orders"), "orders", opts)
}

// Order returns an order of the caller, or of a plan of the caller.
func (c *Client) Order(ctx context.Context, orderID string) (*toll.Order, error) {
	return get[toll.Order](ctx, c, api("/protocol/orders/%s", orderID))
}

// WaitOrder polls an order until its credits are available, it has failed (see Success), or ctx ends. If ctx ends, WaitOrder
// returns the order as last read and an error that wraps ctx.Err().
func (c *Client) WaitOrder(ctx context.Context, orderID string) (*toll.Order, error) {
	var last *toll.Order
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		o, err := c.Order(ctx, orderID)
		if err != nil {
			return last, err
		}
		switch last = o; o.Status {
		case toll.OrderConfirmed, toll.OrderFinal, toll.OrderFailed:
			return o, nil
		}
		select {
		case <-ctx.Done():
			return o, toll.Errorf(toll.CodeUnavailable, "The order is still being processed.").WithDetails("orderId %s", orderID).WithCause(ctx.Err())
		case <-c.sleep(wait):
		}
	}
}

// RefundOrder refunds a card payment for a plan of the caller: cents in the currency of the order, or the full remainder if cents
// is 0. Unused credits are removed. RefundedCents changes once the card processor has accepted the refund; see [Client.Order].
func (c *Client) RefundOrder(ctx context.Context, orderID string, cents toll.Cents) (*toll.Order, error) {
	body := struct {
		AmountCents toll.Cents `json:"amountCents,omitzero"`
	}{cents}
	return create[toll.Order](ctx, c, api("/protocol/orders/%s/refund", orderID), body)
}

// CheckoutParams configure a payment page.
type CheckoutParams struct {
	SessionType string `json:"sessionType,omitempty"` // "embedded" (also for "") or "hosted"
	SuccessURL  string `json:"successUrl,omitempty"`  // where the browser is sent after the payment
	CancelURL   string `json:"cancelUrl,omitempty"`
}

// Checkout creates an order of a plan with a fiat price, and its payment page. The page opens without an API key.
func (c *Client) Checkout(ctx context.Context, id toll.PlanID, p CheckoutParams) (*toll.Checkout, error) {
	return create[toll.Checkout](ctx, c, api("/protocol/plans/%s/checkout", string(id)), p)
}

// Mint grants credits of the caller's own plan to a holder. They expire after life; 0 means never.
func (c *Client) Mint(ctx context.Context, id toll.PlanID, holder toll.Address, amount toll.Credits, life time.Duration) (*toll.ActResult, error) {
	in := map[string]any{"planId": id, "amount": amount, "creditsReceiver": holder}
	path := api("/protocol/plans/mint")
	if life > 0 {
		in = map[string]any{
			"planId": id, "creditsAmount": amount, "creditsReceiver": holder, "creditsDuration": max(int64(life/time.Second), 1),
		}
		path = api("/protocol/plans/mintExpirable")
	}
	return create[toll.ActResult](ctx, c, path, in)
}

// TakeBack removes n credits (1 or more) of the caller's own plan from a holder. The credits must be neither spent nor held, and
// must come from [Client.Mint] or a free order; for paid orders, use [Client.RefundOrder]. Errors: [toll.CodeCreditsNotFree],
// whose params.available is the number of removable credits.
func (c *Client) TakeBack(
	ctx context.Context, id toll.PlanID, holder toll.Address, n toll.Credits,
) (*toll.ActResult, error) {
	in := map[string]any{"planId": id, "amount": n, "holderAddress": holder}
	return create[toll.ActResult](ctx, c, api("/protocol/plans/takeBack"), in)
}
