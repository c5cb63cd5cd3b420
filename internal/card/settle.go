package card

import (
	"context"
	"errors"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// Origins of a refund.
const (
	originSeller    = "seller"
	originProcessor = "processor"
	originRejected  = "rejected"  // the money bought nothing
	originUnmatched = "unmatched" // no order explains it
)

// errNotCaptured says that an intent is not captured, so that there is nothing to settle.
var errNotCaptured = errors.New("card: the payment intent is not captured")

// evidence is what Stripe says of a payment. One of intent and failure is set.
type evidence struct {
	// intent is captured. Its latest charge has its balance transaction, as far as there is one.
	intent *stripe.PaymentIntent
	// session is the page on which it was paid; nil for a charge off session.
	session *stripe.CheckoutSession
	// failure is why nothing was captured for the order, and nothing will be.
	failure *failure
	// tried is the id of the intent that failed, "" for none.
	tried string
	// call is the call whose answer this is, stored in the same transaction; nil for none.
	call *store.CardCall
}

// settle writes what became of a payment, in one transaction with its order, and is the only place
// that does. A captured payment counts whatever became of the row meanwhile: p is read again when it
// has changed, and is as it is stored afterwards. A failure is of the attempt that p has; when the row
// has changed it says nothing, and the error is errChanged. A repeat changes nothing.
//
// A payment with other terms, a late one without a place, and a second one are refunded. If the
// order cannot take the outcome now, the row keeps it, with a job that tries again, and an alarm.
func (r *Rail) settle(ctx context.Context, p *store.CardPayment, e evidence) error {
	for {
		err := r.settleOnce(ctx, p, e)
		if !errors.Is(err, errChanged) || e.failure != nil {
			return err
		}
		now, err := store.CardPaymentByOrder(ctx, r.cfg.Store, p.OrderID)
		if err != nil {
			return err
		}
		*p = *now
	}
}

func (r *Rail) settleOnce(ctx context.Context, p *store.CardPayment, e evidence) error {
	state := State(p.State)
	if e.failure != nil {
		if !state.open() {
			return nil
		}
		return r.fail(ctx, p, e)
	}
	pi := e.intent
	if pi.Status != stripe.PaymentIntentStatusSucceeded {
		return errNotCaptured
	}
	if state == Paid || state == Rejected {
		if p.Intent == pi.ID {
			return r.keepMove(ctx, p, pi)
		}
		return r.reject(ctx, p, pi, "a second payment of the order", e.call)
	}
	if member := wrong(r.termsOf(p), pi, e.session); member != "" {
		return r.reject(ctx, p, pi, "other terms: "+member, e.call)
	}
	if pi.LatestCharge != nil && pi.LatestCharge.Refunded {
		return r.reject(ctx, p, pi, "refunded before it was seen", e.call)
	}
	if d, err := detailsOf(p); err != nil {
		return err
	} else if state == Failed && d.Failure != nil && d.Failure.Unsure {
		return r.reject(ctx, p, pi, "the order was given up before it was seen", e.call)
	}
	err := r.pay(ctx, p, e)
	if errors.Is(err, rail.ErrNoPlace) {
		return r.reject(ctx, p, pi, "paid late, and the plan has no place", e.call)
	}
	return err
}

// pay confirms an order, with what became of its money before it was seen. Errors: [rail.ErrNoPlace].
func (r *Rail) pay(ctx context.Context, p *store.CardPayment, e evidence) error {
	d, err := detailsOf(p)
	if err != nil {
		return err
	}
	next, pi := *p, e.intent
	if State(p.State) == Failed {
		alarm.Log(ctx, r.log, alarm.LatePayment, "a payment of an order that had failed is captured", "order", p.OrderID, "intent", pi.ID)
	}
	next.State, next.Intent, next.Charge, next.PaidAt = string(Paid), pi.ID, chargeOf(pi), capturedAt(pi)
	if e.session != nil {
		next.Session = e.session.ID
	}
	d.Then, d.Failure = "", nil
	before, err := r.changesBefore(ctx, &next, d, pi)
	if err != nil {
		return err
	}
	return r.decide(ctx, p, &next, d, func(tx *store.Tx) error {
		if err := putMove(ctx, tx, p.OrderID, moveCharge, balanceOf(pi)); err != nil {
			return err
		}
		if err := putChanges(ctx, tx, p.OrderID, before); err != nil {
			return err
		}
		return answerCall(ctx, tx, e.call)
	})
}

// changesBefore fetches the refunds and disputes that a payment had before it was settled. Their events may have been read already.
func (r *Rail) changesBefore(ctx context.Context, p *store.CardPayment, d *details, pi *stripe.PaymentIntent) ([]change, error) {
	if c := pi.LatestCharge; !d.Lost && (c == nil || c.AmountRefunded == 0 && !c.Disputed) {
		return nil, nil
	}
	return r.changesOf(ctx, p)
}

// fail fails an order for which nothing was captured.
func (r *Rail) fail(ctx context.Context, p *store.CardPayment, e evidence) error {
	d, err := detailsOf(p)
	if err != nil {
		return err
	}
	next := *p
	if next.State = string(Failed); e.tried != "" {
		next.Intent = e.tried
	}
	d.Then, d.Failure = "", e.failure
	return r.decide(ctx, p, &next, d, func(tx *store.Tx) error {
		if err := answerCall(ctx, tx, e.call); err != nil || !e.failure.Unsure || p.Delegation == "" {
			return err
		}
		return store.PutJob(ctx, tx, store.Job{Kind: store.JobCardRelease, Key: []byte(p.OrderID), Due: r.now().Add(missingTime)})
	})
}

// Release runs a job of kind [store.JobCardRelease]: the delegation of an order that was given up reserves nothing for it any more.
func (r *Rail) Release(ctx context.Context, orderID []byte) error {
	p, d, err := r.read(ctx, string(orderID))
	if err != nil || State(p.State) != Failed {
		return store.NotFoundAs(err, nil)
	}
	out := outcomeOf(p, d)
	out.Unsure = false
	return r.orders.Change(ctx, p.Account, func(t *rail.Tx) error { return t.Decide(p.OrderID, out) })
}

// reject refunds a captured payment that buys nothing, and fails the order unless another payment
// paid it. The refund is stored before it is sent. c is the call whose answer it is, nil for none.
func (r *Rail) reject(ctx context.Context, p *store.CardPayment, pi *stripe.PaymentIntent, why string, c *store.CardCall) error {
	d, err := detailsOf(p)
	if err != nil {
		return err
	}
	alarm.Log(ctx, r.log, alarm.CardRejected, "a captured payment buys nothing and is refunded", "order", p.OrderID, "intent", pi.ID, "why", why)
	now := r.now()
	refund := &store.CardRefund{
		ID: toll.NewUUID(), OrderID: p.OrderID, Account: p.Account, Origin: originRejected, State: refundCreated,
		Cents: pi.AmountReceived, Intent: pi.ID, Reason: why, CreatedAt: now, UpdatedAt: now,
	}
	if pi.LatestCharge != nil {
		refund.Cents -= pi.LatestCharge.AmountRefunded
	}
	state, kind := State(p.State), moveCharge
	second := state == Paid || state == Rejected // another payment decided the order
	if second {
		kind = moveRejected
	}
	keep := func(tx *store.Tx) error {
		if err := putMove(ctx, tx, p.OrderID, kind, balanceOf(pi)); err != nil {
			return err
		}
		if err := answerCall(ctx, tx, c); err != nil {
			return err
		}
		return putRejected(ctx, tx, refund)
	}
	if second {
		err := r.orders.Change(ctx, p.Account, func(t *rail.Tx) error {
			if err := keep(t.Tx); err != nil {
				return err
			}
			r.failpoint(atDeciding)
			return nil
		})
		r.failpoint(atDecided)
		return err
	}
	next := *p
	next.State, next.Intent, next.Charge = string(Rejected), pi.ID, chargeOf(pi)
	d.Then, d.Failure = "", &failure{
		Code:   toll.CodeCheckoutFailed,
		Reason: "The payment does not fit the order and buys nothing. The money goes back to the card.",
	}
	before, err := r.changesBefore(ctx, &next, d, pi)
	if err != nil {
		return err
	}
	return r.decide(ctx, p, &next, d, func(tx *store.Tx) error {
		if err := keep(tx); err != nil {
			return err
		}
		return putChanges(ctx, tx, p.OrderID, before)
	})
}

// putRejected stores the refund of a payment that buys nothing, with the job that sends it, unless
// it is there. It needs the lock of the account.
func putRejected(ctx context.Context, tx *store.Tx, refund *store.CardRefund) error {
	all, err := store.CardRefundsOf(ctx, tx, refund.OrderID)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.Origin == originRejected && other.Intent == refund.Intent {
			return nil
		}
	}
	if refund.Cents <= 0 {
		return nil
	}
	return putRefund(ctx, tx, refund)
}

// decide stores the outcome next of a payment, and what f writes, in one transaction with its
// order. p becomes next. Errors: [rail.ErrNoPlace], errChanged.
func (r *Rail) decide(ctx context.Context, p, next *store.CardPayment, d *details, f func(tx *store.Tx) error) error {
	d.Delay, next.Undecided = nil, false
	var refusal error
	err := r.orders.Change(ctx, p.Account, func(t *rail.Tx) error {
		if refusal = t.Decide(p.OrderID, outcomeOf(next, d)); refusal != nil {
			return refusal
		}
		if err := r.update(ctx, t.Tx, next, d); err != nil {
			return err
		}
		if err := f(t.Tx); err != nil {
			return err
		}
		if State(next.State) == Paid {
			m, err := moneyOf(ctx, t, p.OrderID)
			if err != nil {
				return err
			}
			if refusal = m.apply(t); refusal != nil {
				return refusal
			}
		}
		r.failpoint(atDeciding)
		return nil
	})
	r.failpoint(atDecided)
	if err != nil && refusal != nil && !errors.Is(refusal, rail.ErrNoPlace) && !unusable(ctx, err) {
		err = r.decideLater(ctx, next, d, refusal, f)
	}
	if err == nil {
		next.Version++
		*p = *next
	}
	return err
}

// decideLater stores the outcome of a payment whose order cannot take it now, and a job that tries
// again.
func (r *Rail) decideLater(ctx context.Context, next *store.CardPayment, d *details, why error, f func(tx *store.Tx) error) error {
	alarm.Log(ctx, r.log, alarm.OrderUndecided, "an order cannot take what became of its payment, which is kept", "order", next.OrderID, "state", next.State,
		"err", why)
	next.Undecided = true
	return r.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := r.update(ctx, tx, next, d); err != nil {
			return err
		}
		if err := f(tx); err != nil {
			return err
		}
		if err := store.PutJob(ctx, tx, store.Job{Kind: store.JobCardDecide, Key: []byte(next.OrderID), Due: next.UpdatedAt}); err != nil {
			return err
		}
		r.failpoint(atKeeping)
		return nil
	})
}

// unusable reports whether a transaction failed for the database, which concerns all orders.
func unusable(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, toll.NewError(toll.CodeDatabaseUnavailable)) || errors.Is(err, store.ErrFlush)
}

// DecideAgain runs a job of kind [store.JobCardDecide]: the order takes what became of its payment, and
// of its money afterwards. An error says that it still cannot.
func (r *Rail) DecideAgain(ctx context.Context, orderID []byte) error {
	p, found, err := store.IfThere(store.CardPaymentByOrder(ctx, r.cfg.Store, string(orderID)))
	if !found || !p.Undecided {
		return err
	}
	d, err := detailsOf(p)
	if err != nil {
		return err
	}
	next := *p
	next.Undecided = false
	err = r.orders.Change(ctx, p.Account, func(t *rail.Tx) error {
		if err := t.Decide(p.OrderID, outcomeOf(&next, d)); err != nil {
			return err
		}
		m, err := moneyOf(ctx, t, p.OrderID)
		if err != nil {
			return err
		}
		if err := m.apply(t); err != nil {
			return err
		}
		if err := r.update(ctx, t.Tx, &next, d); err != nil {
			return err
		}
		r.failpoint(atDeciding)
		return nil
	})
	switch {
	case errors.Is(err, errChanged):
		return nil // who changed it has decided it, or put the job again
	case errors.Is(err, rail.ErrNoPlace):
		return r.rejectUndecided(ctx, p)
	}
	return err
}

// rejectUndecided rejects a late payment whose order was busy when it came, and has no place now.
func (r *Rail) rejectUndecided(ctx context.Context, p *store.CardPayment) error {
	pi, err := r.intent(ctx, p.Intent)
	if err != nil {
		return err
	}
	p.State = string(Failed) // its order is: without this the payment would count as one that paid it
	return r.reject(ctx, p, pi, "paid late, and the plan has no place", nil)
}

// outcomeOf is the state of a payment as its order takes it.
func outcomeOf(p *store.CardPayment, d *details) rail.Outcome {
	out := rail.Outcome{Status: State(p.State).status(), ProviderID: p.Intent}
	if out.Status == toll.OrderConfirmed {
		out.WithinLimits = true // counts for an order that had failed
		return out
	}
	if f := d.Failure; f != nil && out.Status == toll.OrderFailed {
		out.FailureCode, out.FailureReason, out.Declined, out.Unsure = f.Code, f.Reason, f.Declined, f.Unsure
		if f.Class != "" {
			out.Params = map[string]any{"class": string(f.Class)}
		}
	}
	return out
}

func chargeOf(pi *stripe.PaymentIntent) string {
	if pi.LatestCharge == nil {
		return ""
	}
	return pi.LatestCharge.ID
}

// capturedAt is when an intent was captured, by Stripe's clock.
func capturedAt(pi *stripe.PaymentIntent) time.Time {
	if pi.LatestCharge != nil && pi.LatestCharge.Created > 0 {
		return time.Unix(pi.LatestCharge.Created, 0).UTC()
	}
	return time.Unix(pi.Created, 0).UTC()
}
