package pay

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/refusal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

const (
	// maxIdle bounds how often in a row credits may be there that are gone when the ledger looks.
	maxIdle = 8
)

// shortfall is what one verify or settle does about what its request lacks.
type shortfall struct {
	p       *payment
	name    string  // of the request for its orders: the same in every repeat, "" while nothing names it
	id      string  // agentRequestId, given or issued; "" while the keys name the request
	orderTx *string // as in ledger.HoldOp

	ordered bool // the first order of a free plan
	idle    int
	until   time.Time
	topUp   *checkout.TopUp
}

// newShortfall returns the state of a request that the ledger refused. A payment identifier names it before a nonce, which a repeat may
// change, and both before the id, which a repeat may send along.
func newShortfall(p *payment, id string) *shortfall {
	l := &shortfall{p: p, id: id, name: id}
	if n := len(p.keys); n > 0 {
		l.name = p.keys[n-1]
	}
	return l
}

// cover tries to cover what the ledger refused. It returns nil when the same operation may now pass, with what l says; else the error is
// the answer.
func (f *Facilitator) cover(ctx context.Context, l *shortfall, refused error) *toll.Error {
	r, ok := errors.AsType[*ledger.Refusal](refused)
	if !ok {
		return refusal.By(f.brand.Names, refused)
	}
	switch r.Kind {
	case ledger.OrderUnknown:
		return f.lookUp(ctx, l, r)
	case ledger.Insufficient, ledger.PeriodOver:
	default:
		return refusal.By(f.brand.Names, refused)
	}
	if ordersItself(l.p.plan) {
		if l.ordered {
			return refusal.By(f.brand.Names, refused)
		}
		l.ordered = true
		ordered, e := f.orderFree(ctx, l.p, refused)
		if e == nil && !ordered {
			e = refusal.By(f.brand.Names, refused)
		}
		return e
	}
	if r.DelegationID == "" {
		return refusal.By(f.brand.Names, refused)
	}
	return f.buy(ctx, l, r)
}

// ordersItself reports whether the first order of a plan is made for who uses it.
func ordersItself(p *toll.Plan) bool { return p.Price.IsFree() && p.Kind().Prepaid() }

// lookUp finds the order that an earlier call made for the request, and waits for one that is not decided.
func (f *Facilitator) lookUp(ctx context.Context, l *shortfall, r *ledger.Refusal) *toll.Error {
	tx, open, e := f.orderOf(ctx, l)
	if e != nil {
		return e
	}
	if open {
		// A failed order is no refusal yet: the credits may have come from elsewhere.
		if e := f.buy(ctx, l, r); e != nil && e.Code == toll.CodeSettlementPending {
			return e
		}
		if l.orderTx != nil && *l.orderTx != "" {
			return nil
		}
		if tx, _, e = f.orderOf(ctx, l); e != nil {
			return e
		}
	}
	l.orderTx = &tx
	return nil
}

func (f *Facilitator) orderOf(ctx context.Context, l *shortfall) (tx string, open bool, e *toll.Error) {
	o, found, err := store.IfThere(f.Checkout.OrderOfRequest(ctx, l.p.account, l.name))
	if err != nil || !found {
		return "", false, toll.AsError(err)
	}
	return o.TxHash, o.Open, nil
}

// buy has the missing credits ordered through the delegation of the access token.
func (f *Facilitator) buy(ctx context.Context, l *shortfall, r *ledger.Refusal) *toll.Error {
	if l.topUp == nil {
		if l.name == "" {
			l.id = f.Ledger.NewRequestID(l.p.account)
			l.name = l.id
		}
		l.topUp = f.topUp(l.p, l.name, r)
		l.until = f.Clock().Add(f.TopUpWait)
	}
	l.topUp.Needed = r.Uncovered
	if l.topUp.Wait = l.until.Sub(f.Clock()); l.topUp.Wait <= 0 {
		return l.pending("")
	}
	tx, err := f.Checkout.TopUp(ctx, l.topUp)
	f.snapshots.Forget(l.p.permission())
	if err != nil {
		return f.notBought(l, err)
	}
	if tx == "" {
		if l.idle++; l.idle > maxIdle {
			return refusal.By(f.brand.Names, r)
		}
	} else {
		l.idle = 0
	}
	if l.orderTx == nil || tx != "" {
		l.orderTx = &tx
	}
	return nil
}

func (f *Facilitator) topUp(p *payment, name string, r *ledger.Refusal) *checkout.TopUp {
	return &checkout.TopUp{
		Plan: p.plan, Subscriber: p.claims.Subscriber, Permission: p.claims.Hash, DelegationID: r.DelegationID, APIKeyID: r.APIKeyID,
		Needed: r.Uncovered, RequestID: name, Wait: f.TopUpWait,
	}
}

// couldBuy reports whether the delegation could bring what the request lacks; it spends nothing.
func (f *Facilitator) couldBuy(ctx context.Context, p *payment, id string, refused error) *toll.Error {
	r, ok := errors.AsType[*ledger.Refusal](refused)
	if !ok || ordersItself(p.plan) || r.DelegationID == "" || r.Kind != ledger.Insufficient && r.Kind != ledger.PeriodOver {
		return refusal.By(f.brand.Names, refused)
	}
	l := newShortfall(p, id)
	if err := f.Checkout.CanTopUp(ctx, *f.topUp(p, l.name, r)); err != nil {
		return f.notBought(l, err)
	}
	return nil
}

// notBought says what a top-up that did not come about means for the request. What the table of reasons has no word for is
// still a lack of credits.
func (f *Facilitator) notBought(l *shortfall, err error) *toll.Error {
	e := refusal.By(f.brand.Names, err)
	switch e.Code {
	case toll.CodeSettlementPending:
		tx, _ := e.Params["transaction"].(string)
		return l.pending(tx)
	case toll.CodeDelegationPlanMismatch:
		return e.WithReason(x402.ReasonDelegationNotFound)
	case toll.CodeUnsupportedScheme:
		return e.WithReason(x402.ReasonInsufficientFunds) // the currency of the delegation; the scheme of the payment is right
	case toll.CodeCardOff:
		return e.WithReason(x402.ReasonPaymentUnavailable)
	}
	if e.HTTPStatus() >= 500 {
		return e
	}
	if e = e.WithReason(x402.ReasonOf(f.brand.Names, e, x402.ActVerify)); e.Reason == x402.ReasonInvalidPayload {
		return e.WithReason(x402.ReasonInsufficientFunds)
	}
	return e
}

// pending is the answer while an order is not decided: the same call again waits for the same order.
func (l *shortfall) pending(tx string) *toll.Error {
	e := refusal.New(toll.CodeSettlementPending, x402.ReasonPending, "The order for the missing credits is still pending; repeat the same call.")
	e.RetryAfterSecs = 1
	if l.id != "" {
		e = e.WithParam("agentRequestId", l.id)
	}
	if tx != "" {
		e = e.WithParam("transaction", tx)
	}
	return e
}
