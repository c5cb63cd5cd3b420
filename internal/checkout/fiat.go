package checkout

import (
	"context"
	"encoding/json"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// maxReturnURL bounds an address to which a person is sent back, in characters.
const maxReturnURL = 2048

// FiatRequest asks for a page on which a person pays a fiat plan.
type FiatRequest struct {
	Caller  toll.Address
	Plan    *toll.Plan
	Session rail.SessionInput
	Wait    time.Duration // how long the answer may wait for the page
}

// Fiat opens a page on which a person pays the plan. The credits come when the card processor reports the payment. once, which may be nil,
// keeps an [OrderRef]. Errors: [toll.CodeCheckoutWrongPlan] for a plan that is free or priced in tokens, [toll.CodePlanUnlisted],
// [toll.CodePlanSoldOut], [toll.CodeTrialUsed], [toll.CodeCardOff], [toll.CodeCheckoutFailed], [toll.CodeCardUnreachable].
func (c *Checkout) Fiat(ctx context.Context, r FiatRequest, once *store.Once) (*toll.Checkout, error) {
	plan := r.Plan
	switch {
	case plan.Price.IsCrypto, plan.Price.IsFree():
		return nil, toll.NewError(toll.CodeCheckoutWrongPlan).WithDetails("planId %s", plan.ID)
	case onSale(plan) != nil:
		return nil, onSale(plan)
	}
	if err := checkSession(&r.Session); err != nil {
		return nil, err
	}
	o, err := c.place(ctx, &intent{
		plan: plan, subscriber: r.Caller, credits: plan.Credits.Amount, amount: plan.Price.Total(), once: once,
		Means: rail.Means{Rail: rail.Card, Session: &r.Session},
	})
	if err != nil {
		return nil, err
	}
	return c.page(ctx, o, r.Wait)
}

// page waits for the page of an order.
func (c *Checkout) page(ctx context.Context, o *store.Order, wait time.Duration) (*toll.Checkout, error) {
	o, p, err := c.waits.await(ctx, o, wait)
	if err != nil {
		return nil, toll.AsError(err).WithParam("orderId", o.ID)
	}
	if o.Status == toll.OrderFailed {
		e := failure(o)
		if o.FailureCode == "" {
			e.Code = toll.CodeCheckoutFailed
		}
		return nil, e
	}
	if p.CheckoutURL == "" && o.Open {
		return nil, toll.NewError(toll.CodeCardUnreachable).WithParam("orderId", o.ID).WithCause(ctx.Err()).
			WithHint("The order is recorded: repeat the call with the same Idempotency-Key, or place a new order.")
	}
	if !o.Open {
		if now, err := c.waits.payment(ctx, o); err == nil { // only the page is missing otherwise
			p = &now
		}
	}
	paid := "unpaid"
	if o.Status == toll.OrderConfirmed || o.Status == toll.OrderFinal {
		paid = "paid"
	}
	return &toll.Checkout{OrderID: o.ID, Result: toll.CheckoutSession{
		SessionID: p.SessionID, Link: p.CheckoutURL, URL: p.CheckoutURL, ClientReferenceID: o.ID, PaymentStatus: paid,
		CreatedAt: p.CreatedAt.Unix(), ExpiresAt: p.ExpiresAt.Unix(),
	}}, nil
}

// session is how [store.Order] keeps what was asked of the page on which a person pays.
type session struct {
	Input rail.SessionInput `json:"input"`
}

// SessionOf returns what was asked of the page of an order, nil when nobody is to pay on one.
func SessionOf(o *store.Order) (*rail.SessionInput, error) {
	if o.Session == "" {
		return nil, nil
	}
	var s session
	err := json.Unmarshal([]byte(o.Session), &s)
	return &s.Input, err
}

// checkSession refuses addresses that no person could be sent to.
func checkSession(s *rail.SessionInput) error {
	var faults []toll.Fault
	for _, a := range []struct{ path, url string }{{"successUrl", s.SuccessURL}, {"cancelUrl", s.CancelURL}} {
		if a.url != "" && !validReturnURL(a.url) {
			faults = append(faults, toll.Fault{
				Path:    a.path,
				Message: "must be an absolute http or https URL with an ASCII host name or an IP address, without a user name, and with at most 2048 characters",
			})
		}
	}
	return refusedAs(faults, toll.CodeBadRequest)
}

// validReturnURL reports whether a browser can be sent to an address, and the page can name its host.
func validReturnURL(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || len(address) > maxReturnURL {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	isIP, bracket := err == nil && ip.Zone() == "", strings.HasPrefix(u.Host, "[")
	if bracket != (isIP && ip.Is6()) || !isIP && !outbound.HostName(u.Hostname()) {
		return false
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return u.Port() == "" && !strings.HasSuffix(u.Host, ":") || err == nil && port > 0
}
