package checkout

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/backoff"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/traces"
)

const (
	// payTries is how often a run calls a rail whose answer is lost, with pauses in between.
	payTries                   = 3
	payFirstRetry, payMaxRetry = 20 * time.Millisecond, 80 * time.Millisecond
)

// payJob runs the job of an open order that was claimed: its process died, or its rail was unavailable or refused it.
func (c *Checkout) payJob(ctx context.Context, id []byte) error {
	o, found, err := store.IfThere(store.OrderByID(ctx, c.store, string(id)))
	if !found || !o.Open {
		return err
	}
	by := c.rails[o.Rail]
	if by == nil {
		return railMissing(o.Rail)
	}
	p, err := c.readPurchase(ctx, o)
	if err != nil {
		return err
	}
	begun := true
	if _, err = by.Payment(ctx, c.store, o.ID); errors.Is(err, store.ErrNotFound) {
		begun, err = c.begin(ctx, by, o, p)
	}
	if err != nil || !begun {
		return err
	}
	return c.resume(ctx, by, p)
}

// begin begins a payment that the rail refused when its order was placed. A second refusal decides the order, and begun is false.
func (c *Checkout) begin(
	ctx context.Context, by rail.Rail, o *store.Order, p *rail.Purchase,
) (begun bool, err error) {
	err = by.Prepare(ctx, p)
	if refused := refusal(err); refused != nil {
		return false, c.Decisions.Change(ctx, o.Account, func(t *rail.Tx) error { return t.Decide(o.ID, *refused) })
	}
	if err != nil {
		return false, err
	}
	err = c.Decisions.Change(ctx, o.Account, func(t *rail.Tx) error {
		now, err := store.OrderForUpdate(ctx, t.Tx, o.Account, o.ID)
		if begun = err == nil && now.Open; !begun {
			return err // another process, whose rail refused the order, has decided it meanwhile
		}
		return by.Begin(ctx, t.Tx, p)
	})
	return begun && err == nil, err
}

// resume has the rail continue an order. The job stays, held, so that another process can claim it; the decision removes it.
func (c *Checkout) resume(ctx context.Context, by rail.Rail, p *rail.Purchase) error {
	for try := 1; ; try++ {
		c.failpoint("pay")
		in, span := traces.Start(ctx, "order.resume", p.OrderID)
		err := by.Resume(in, p)
		span.End(err)
		c.failpoint("paid")
		delay := rail.NewDelay(err, c.now())
		later, isLater := errors.AsType[*rail.Later](err)
		switch {
		case isLater:
			return &jobs.Retry{After: later.After}
		case err == nil:
			return &jobs.Retry{}
		case delay != nil:
			return &jobs.Retry{Err: err, After: delay.Until.Sub(c.now())}
		case try == payTries || !backoff.Sleep(ctx, backoff.Double(payFirstRetry, payMaxRetry, 2*try-1)):
			return err // an answer that was lost was asked for again at once
		}
	}
}

// refusal returns the outcome of an order that its rail refuses to begin; nil for other errors.
func refusal(err error) *rail.Outcome {
	e, ok := errors.AsType[*toll.Error](err)
	if !ok || e.HTTPStatus() >= 500 {
		return nil
	}
	return &rail.Outcome{Status: toll.OrderFailed, FailureCode: e.Code, FailureReason: e.Details, Params: e.Params}
}

// readPurchase returns a recorded order as its rail pays it.
func (c *Checkout) readPurchase(ctx context.Context, o *store.Order) (*rail.Purchase, error) {
	plan, err := store.PlanByID(ctx, c.store, o.Plan)
	if err != nil {
		return nil, err
	}
	p := c.purchaseOf(plan, o)
	if strings.HasPrefix(o.OpenKey, saleKey) {
		a, err := store.AuthorizationOfOrder(ctx, c.store, o.ID)
		if err != nil {
			return nil, err
		}
		sale := SaleOf(a)
		sale.Account, p.Sale = o.Account, &sale
	}
	if p.Session, err = SessionOf(o); err != nil || o.DelegationID == "" {
		return p, err
	}
	d, err := store.DelegationByID(ctx, c.store, o.DelegationID)
	if err != nil {
		return nil, err
	}
	p.PaymentMethod, p.Delegation = d.PaymentMethod, details(d)
	return p, nil
}

// purchaseOf is the part of a purchase that plan and order alone determine. The price of a
// pay-as-you-go plan is that of one credit, so its amounts are multiplied by the credits.
func (c *Checkout) purchaseOf(plan *toll.Plan, o *store.Order) *rail.Purchase {
	p := &rail.Purchase{
		OrderID: o.ID, Account: o.Account, OrderedAt: o.CreatedAt, Plan: plan, Token: plan.Price.PayToken(c.env), Subscriber: o.Subscriber,
		Credits: o.Credits, Amounts: plan.Price.Amounts, Receivers: plan.Price.Receivers, Total: o.Amount,
		DelegationID: o.DelegationID, TopUp: o.RequestID != "" || o.Permission != nil, Means: rail.Means{Rail: o.Rail},
	}
	if !plan.Kind().Prepaid() {
		p.Amounts = make([]toll.Units, len(plan.Price.Amounts))
		for i, a := range plan.Price.Amounts {
			p.Amounts[i] = times(a, o.Credits)
		}
	}
	return p
}
