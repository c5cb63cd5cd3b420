package gateway

import (
	"context"
	"net/http"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/x402"
)

// planOrder is the result of orderPlan: a quote, or a completed order.
type planOrder struct {
	quote
	Success bool   `json:"success,omitzero"`
	OrderID string `json:"orderId,omitempty"`
	TxHash  string `json:"txHash,omitempty"`
	Balance string `json:"balance,omitempty"`
	Status  string `json:"status,omitempty"`
	// Repeated means that an earlier call created this order, and this call bought nothing.
	Repeated bool `json:"repeated,omitzero"`
}

// checkoutPage is the result of orderFiatPlan: a quote, or a checkout page.
type checkoutPage struct {
	quote
	CheckoutURL string          `json:"checkoutUrl,omitempty"`
	Result      *checkoutResult `json:"result,omitempty"`
	OrderID     string          `json:"orderId,omitempty"`
	Repeated    bool            `json:"repeated,omitzero"`
}

type checkoutResult struct {
	CheckoutLink string `json:"checkoutLink"`
	CheckoutURL  string `json:"checkoutUrl"`
	ExpiresAt    int64  `json:"expiresAt"` // Unix time in seconds
}

// orderable reads the plan for an order tool. It rejects a plan of the other rail and, with [OverCap], a price above the maximum.
func (c *call) orderable(ctx context.Context, card bool) (*toll.Plan, error) {
	plan, err := c.plan(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case card && plan.Price.IsCrypto:
		return nil, invalid("planId", "must be a plan with a card price; %s is paid with crypto", plan.ID).
			withHint("Order it with " + orderPlanName + ".")
	case !card && !plan.Price.IsCrypto:
		return nil, invalid("planId", "must be a plan with a crypto price; %s is paid by card", plan.ID).
			withHint("Order it with " + orderFiatPlanName + ".")
	}
	return plan, c.capped(plan.Price)
}

func runOrderPlan(ctx context.Context, c *call) (any, error) {
	plan, err := c.orderable(ctx, false)
	if err != nil {
		return nil, err
	}
	p, changed := c.agree("order "+string(plan.ID), termsOf(plan))
	if p == nil {
		q := c.planQuote(plan)
		return planOrder{quote: *q.ask(c, changed, orderMeaning(plan))}, nil
	}
	defer c.core.balanceChanged(c.account)
	return c.order(ctx, plan, p)
}

// orderMeaning describes the effect of ordering a plan, without the plan's untrusted name.
func orderMeaning(p *toll.Plan) string {
	switch {
	case !p.Kind().Prepaid():
		return "The order is free. Each request then buys the credits that it burns, at a price per credit of " +
			readable(p.Price) + "."
	case p.Price.IsFree():
		return "The order is free."
	case !p.Price.IsCrypto:
		return "The order creates a page where the user pays " + readable(p.Price) + "."
	}
	return "The order takes " + readable(p.Price) + " from the wallet of this workspace."
}

// order orders a plan under a permit, or reads the pending order of the permit. It ends the permit.
func (c *call) order(ctx context.Context, plan *toll.Plan, p *permit) (any, error) {
	var o *toll.Order
	var err, refusal error
	if p.orderID != "" {
		o, err = c.account.service.Order(ctx, p.orderID)
	} else {
		o, refusal = c.account.service.OrderPlan(client.WithIdempotencyKey(ctx, p.key), plan.ID)
		if err = refusal; err != nil {
			o, err = c.recorded(ctx, p, err)
		}
	}
	if err != nil {
		// A refusal decides the order. Without an answer the next call uses the same key, and a known order remains pending
		// unless the service reports that it does not exist.
		lost := undecided(err) ||
			p.orderID != "" && (refusal != nil || toll.AsError(err).HTTPStatus() != http.StatusNotFound)
		if !lost {
			p.orderID = ""
		}
		p.end(lost)
		return nil, err
	}
	p.orderID = ""
	switch o.Status {
	case toll.OrderConfirmed, toll.OrderFinal:
		p.end(false)
		return c.bought(ctx, o, p)
	case toll.OrderFailed:
		p.end(false)
		return nil, failed(o, refusal)
	}
	p.orderID = o.OrderID
	p.end(true)
	e := orderError(OrderPending, "The order is still being processed.", o, nil).
		withHint("Repeat the call later: it checks this order and does not buy again.")
	e.Retryable = true
	return nil, e
}

// failed returns [OrderFailed]. It includes the code, hint, and params of the service's refusal, if any.
func failed(o *toll.Order, refusal error) error {
	reason := plain.Text(o.FailureReason, 300)
	if refusal == nil {
		return orderError(OrderFailed, "The order failed: "+reason, o, nil)
	}
	e := toll.AsError(refusal)
	return orderError(OrderFailed, "The order failed: "+e.Text()+" Reason: "+reason, o, e).
		withHint(asError(e).Hint)
}

// recorded returns the order that an error names, or the error. The service answers a failed order with such an error.
func (c *call) recorded(ctx context.Context, p *permit, failure error) (*toll.Order, error) {
	id, _ := toll.AsError(failure).Params["orderId"].(string)
	if id == "" {
		return nil, failure
	}
	p.orderID = id
	o, err := c.account.service.Order(ctx, id)
	if err != nil {
		return nil, failure
	}
	return o, nil
}

// orderError returns an error about an order. refusal is the error of the service, or nil.
func orderError(code Word, message string, o *toll.Order, refusal *toll.Error) *Error {
	e := errorf(code, "%s", strings.TrimSpace(message))
	details := map[string]any{
		"orderId": o.OrderID,
		"planId":  o.PlanID,
		"status":  o.Status,
	}
	if refusal != nil {
		details["code"], details["params"] = refusal.Code, refusal.Params
	}
	e.Details, _ = x402.Encode(details) // values decoded from JSON always encode
	return e
}

// bought returns the result of a completed order with the new balance. It warns if the balance cannot be read.
func (c *call) bought(ctx context.Context, o *toll.Order, p *permit) (any, error) {
	out := planOrder{
		quote:    quote{PlanID: string(o.PlanID)},
		Success:  true,
		OrderID:  o.OrderID,
		TxHash:   o.TxHash,
		Status:   string(o.Status),
		Repeated: p.repeated,
	}
	balance := o.Balance
	if balance == nil {
		var err error
		if balance, err = c.account.service.Balance(ctx, o.PlanID); err != nil {
			c.warn("The order is complete, but the balance could not be read.")
			return out, nil
		}
	}
	out.Balance = balance.Balance.String()
	return out, nil
}

func runOrderFiatPlan(ctx context.Context, c *call) (any, error) {
	plan, err := c.orderable(ctx, true)
	if err != nil {
		return nil, err
	}
	p, changed := c.agree("order "+string(plan.ID), termsOf(plan))
	if p == nil {
		q := c.planQuote(plan)
		return checkoutPage{quote: *q.ask(c, changed, orderMeaning(plan))}, nil
	}
	defer c.core.balanceChanged(c.account)
	page, err := c.account.service.Checkout(
		client.WithIdempotencyKey(ctx, p.key), plan.ID, client.CheckoutParams{SessionType: "hosted"},
	)
	p.end(undecided(err))
	if err != nil {
		return nil, err
	}
	return checkoutPage{
		quote:       quote{PlanID: string(plan.ID)},
		CheckoutURL: page.Result.URL,
		Result:      &checkoutResult{page.Result.Link, page.Result.URL, page.Result.ExpiresAt},
		OrderID:     page.OrderID,
		Repeated:    p.repeated,
	}, nil
}
