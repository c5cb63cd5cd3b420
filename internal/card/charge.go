package card

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/store"
)

const (
	// pollEvery is how often a payment is looked at that somebody else has to carry on, and pollPage
	// how often an old page is.
	pollEvery, pollPage = 30 * time.Second, 5 * time.Minute
	// retryPage is how old a call may be whose page Stripe refuses because it would end too early.
	retryPage = time.Minute
)

// captureNow has Stripe move the money before it says that a payment succeeded. With its default the
// balance transaction may come an hour later, by an event that is not read here.
const captureNow = string(stripe.PaymentIntentCaptureMethodAutomatic)

// withMoves are the members of a payment intent that are expanded.
var withMoves = []*string{stripe.String("latest_charge.balance_transaction")}

// step does the next step of an open payment. again is the time after which another look is of use,
// and 0 when the next step can be done at once. The order of a payment that Stripe does not have any
// more fails: it may be a double whose state was lost. Errors: errChanged, [*answer], those of the
// database.
func (r *Rail) step(ctx context.Context, p *store.CardPayment, d *details) (again time.Duration, err error) {
	again, err = r.stepOf(ctx, p, d)
	if hasKind(err, missing) {
		alarm.Log(ctx, r.log, alarm.CardPaymentLost, "the card processor does not have a payment any more; the order fails", "order", p.OrderID, "state", p.State)
		return 0, r.settle(ctx, p, evidence{failure: &failure{
			Code: toll.CodeCheckoutFailed, Reason: "The card processor does not know the payment any more.",
		}})
	}
	return again, err
}

func (r *Rail) stepOf(ctx context.Context, p *store.CardPayment, d *details) (again time.Duration, err error) {
	switch State(p.State) {
	case Created:
		return 0, r.prepareAttempt(ctx, p, d)
	case Calling:
		return 0, r.attempt(ctx, p, d)
	case Page, Pending:
		if d.Session != nil {
			return r.checkPage(ctx, p, d)
		}
		pi, err := r.intent(ctx, p.Intent)
		if err != nil {
			return 0, err
		}
		return pauseOf(d, r.cfg.Machine()), r.judge(ctx, p, d, nil, pi)
	case Ending:
		return 0, r.endAttempt(ctx, p, d)
	}
	return 0, nil
}

// pauseOf returns the time to the next look at a payment: 5, 10, 20, and then 30 seconds. A page that
// nobody pays is looked at less and less, because anybody can have many of them made: the loop that
// reads events sees the payment anyway.
func pauseOf(d *details, now time.Time) time.Duration {
	age := now.Sub(d.TriedAt)
	for _, s := range []time.Duration{5, 10, 20} {
		if age < s*time.Second {
			return s * time.Second
		}
	}
	if d.Session == nil {
		return pollEvery
	}
	return min(max(pollEvery, age/6), pollPage)
}

// attemptKey is the idempotency key of the attempt of a payment.
func attemptKey(p *store.CardPayment) string {
	return p.OrderID + "-" + strconv.FormatInt(p.Attempt, 10)
}

// prepareAttempt stores the call of the next attempt.
func (r *Rail) prepareAttempt(ctx context.Context, p *store.CardPayment, d *details) error {
	c := &store.CardCall{Key: attemptKey(p), Subject: p.OrderID, CreatedAt: r.now()}
	if barred, err := r.barred(ctx, p); err != nil || barred != nil {
		if err == nil {
			err = r.settle(ctx, p, evidence{failure: barred})
		}
		return err
	}
	d.TriedAt, d.Missing, d.Failing = r.cfg.Machine().UTC().Truncate(time.Second), time.Time{}, time.Time{}
	if d.Session != nil {
		params, err := r.pageParams(p, d)
		if err != nil {
			return err
		}
		c.Path, c.Params = "checkout/sessions", encode(params)
	} else {
		m, err := store.CardMethodByID(ctx, r.cfg.Store, p.Payer, p.Method)
		if errors.Is(err, store.ErrNotFound) || err == nil && m.Fingerprint == "" {
			return r.settle(ctx, p, evidence{failure: &failure{Code: toll.CodePaymentMethodUnusable, Reason: "The card was removed."}})
		}
		if err != nil {
			return err
		}
		p.Customer, d.Unsent = m.Customer, true
		c.Path, c.Params = "payment_intents", encode(r.chargeParams(p, d, m))
	}
	p.State = string(Calling)
	return r.write(ctx, p, d, func(tx *store.Tx) error {
		_, err := store.EnsureCardCall(ctx, tx, c)
		return err
	})
}

// chargeParams are those of a charge off session.
func (r *Rail) chargeParams(p *store.CardPayment, d *details, m *store.CardMethod) *stripe.PaymentIntentCreateParams {
	in := &stripe.PaymentIntentCreateParams{
		Amount: &p.Cents, Currency: &p.Currency, Customer: &m.Customer, PaymentMethod: &m.StripeID,
		PaymentMethodTypes: []*string{stripe.String("card")}, CaptureMethod: stripe.String(captureNow), Confirm: stripe.Bool(true), OffSession: stripe.Bool(true),
		Metadata: r.metadata(p, d), Expand: withMoves,
	}
	if r.cfg.Descriptor != "" {
		in.StatementDescriptorSuffix = &r.cfg.Descriptor
	}
	return in
}

// attempt sends the call of an attempt, and acts on its answer.
func (r *Rail) attempt(ctx context.Context, p *store.CardPayment, d *details) error {
	c, err := store.CardCallByKey(ctx, r.cfg.Store, attemptKey(p))
	if err != nil {
		return err
	}
	if c.Status != 0 {
		return errChanged // by another process, with the row of the payment; the bytes of the call are gone
	}
	barred, err := r.barred(ctx, p)
	if err != nil {
		return err
	}
	now, unsent := r.cfg.Machine(), d.Unsent
	switch {
	case barred != nil && unsent:
		return r.settle(ctx, p, evidence{failure: barred})
	case barred == revokedFailure, !d.Missing.IsZero() && now.Sub(d.Missing) >= missingSends:
		return r.lookUp(ctx, p, d, c, &answer{kind: unclear, code: notSent})
	}
	if p.Delegation != "" {
		// Each request changes the version, so that a refusal of one says nothing once another is sent.
		d.Unsent = false
		if err := r.writeAll(ctx, p, d, nil); err != nil {
			return err
		}
	}
	pi, s := &stripe.PaymentIntent{}, &stripe.CheckoutSession{}
	var into stripe.LastResponseSetter = pi
	if d.Session != nil {
		into = s
	}
	r.failpoint(atCalling)
	err = r.send(ctx, c, into)
	r.failpoint(atAnswered)
	a, refusedIt := errors.AsType[*answer](err)
	switch {
	case err == nil && d.Session != nil:
		return r.openPage(ctx, p, d, c, s)
	case err == nil:
		return r.judge(ctx, p, d, c, pi)
	case errors.Is(err, errForgotten):
		return r.lookUp(ctx, p, d, c, nil)
	case !refusedIt:
		return err
	}
	switch a.kind {
	case busy, denied:
		if d.Unsent = unsent && a.unsent; d.Unsent {
			if err := r.writeAll(ctx, p, d, nil); err != nil {
				return err
			}
		}
		return a
	case unclear, conflict:
		return r.lookUp(ctx, p, d, c, a)
	case card:
		return r.settle(ctx, p, evidence{failure: failureOf(a), tried: a.intent, call: c})
	case owner:
		if a.intent != "" {
			p.Intent = a.intent
			return r.end(ctx, p, d, c, Failed, failureOf(a))
		}
		return r.settle(ctx, p, evidence{failure: failureOf(a), call: c})
	}
	if a.param == "expires_at" && now.Sub(d.TriedAt) >= retryPage {
		// The page was prepared long ago, and was never made: this attempt has ended.
		p.Attempt, p.State = p.Attempt+1, string(Created)
		return r.write(ctx, p, d, func(tx *store.Tx) error { return answerCall(ctx, tx, c) })
	}
	f := &failure{Code: toll.CodeCheckoutFailed, Reason: "The card processor refused the request."}
	if a.kind == missing || a.param == "payment_method" || a.param == "customer" {
		f = &failure{Code: toll.CodePaymentMethodUnusable, Reason: "The card processor does not know the card any more."}
	}
	alarm.Log(ctx, r.log, alarm.CardRequestRefused, "the card processor refuses a payment that this service asked for", "order", p.OrderID, "answer", a)
	return r.settle(ctx, p, evidence{failure: f, call: c})
}

// barred returns why no request of an attempt may be sent any more, nil when it may: the owner has ended the delegation since the
// order, or payments whose records were lost took what it has. What was sent before counts. In a restored database a charge by a
// delegation waits until the lost payments were read.
func (r *Rail) barred(ctx context.Context, p *store.CardPayment) (*failure, error) {
	if p.Delegation == "" {
		return nil, nil
	}
	mark, err := store.ReadRestoration(ctx, r.cfg.Store)
	if err != nil {
		return nil, err
	}
	if mark != nil {
		if at, err := readUntil(ctx, r.cfg.Store); err != nil {
			return nil, err
		} else if at.Before(mark.RestoredAt) {
			return nil, &answer{kind: busy, code: notSent}
		}
	}
	d, err := store.DelegationByID(ctx, r.cfg.Store, p.Delegation)
	switch {
	case err != nil:
		return nil, err
	case !d.RevokedAt.IsZero():
		return revokedFailure, nil
	case d.Paid+d.Reserved > d.Limit:
		return limitFailure, nil
	}
	return nil, nil
}

// revokedFailure is that of an order whose delegation ended before any request of the attempt was executed.
var revokedFailure = &failure{Code: toll.CodeDelegationRevoked, Reason: "The delegation was revoked before the card was charged."}

// limitFailure is that of an order that no longer fits into the limit of its delegation.
var limitFailure = &failure{
	Code: toll.CodeDelegationInsufficient, Reason: "A payment of the delegation was found that had no record, and it took what was left.",
}

// judge acts on the state of the payment intent of an attempt off session. c is the call whose
// answer it is, nil for none.
func (r *Rail) judge(ctx context.Context, p *store.CardPayment, d *details, c *store.CardCall, pi *stripe.PaymentIntent) error {
	switch pi.Status {
	case stripe.PaymentIntentStatusSucceeded:
		return r.settle(ctx, p, evidence{intent: pi, call: c})
	case stripe.PaymentIntentStatusProcessing:
		if State(p.State) == Pending {
			return nil
		}
		p.State, p.Intent, d.Then, d.Failure = string(Pending), pi.ID, "", nil
		return r.write(ctx, p, d, func(tx *store.Tx) error { return answerCall(ctx, tx, c) })
	case stripe.PaymentIntentStatusCanceled:
		f := d.Failure
		if f == nil {
			f = cancelled(pi)
		}
		return r.settle(ctx, p, evidence{failure: f, tried: pi.ID, call: c})
	}
	// It needs another card, or its owner: nobody is there to act, and nothing was captured.
	a := answerOfError(pi.LastPaymentError)
	if pi.Status == stripe.PaymentIntentStatusRequiresAction {
		a = &answer{kind: owner}
	}
	p.Intent = pi.ID
	return r.end(ctx, p, d, c, Failed, failureOf(a))
}

// intent fetches a payment intent with its charge and its balance transaction.
func (r *Rail) intent(ctx context.Context, id string) (*stripe.PaymentIntent, error) {
	pi := &stripe.PaymentIntent{}
	return pi, r.get(ctx, "payment_intents/"+id, &stripe.PaymentIntentRetrieveParams{Expand: withMoves}, pi)
}

// end begins to end an attempt: its intent is cancelled, or its session expired. then is what
// follows: [Failed] for f, or [Created] for another attempt.
func (r *Rail) end(ctx context.Context, p *store.CardPayment, d *details, answered *store.CardCall, then State, f *failure) error {
	p.State, d.Then, d.Failure = string(Ending), then, f
	c := &store.CardCall{Key: attemptKey(p) + keyCancel, Subject: p.OrderID, Path: "payment_intents/" + p.Intent + "/cancel", CreatedAt: r.now()}
	if d.Session != nil {
		c.Key, c.Path = attemptKey(p)+keyExpire, "checkout/sessions/"+p.Session+"/expire"
	}
	return r.write(ctx, p, d, func(tx *store.Tx) error {
		if err := answerCall(ctx, tx, answered); err != nil {
			return err
		}
		_, err := store.EnsureCardCall(ctx, tx, c)
		return err
	})
}

// endAttempt ends an attempt. If it was paid meanwhile, that counts.
func (r *Rail) endAttempt(ctx context.Context, p *store.CardPayment, d *details) error {
	r.failpoint(atEnding)
	if d.Session != nil {
		return r.expirePage(ctx, p, d)
	}
	pi := &stripe.PaymentIntent{}
	c := &store.CardCall{Key: attemptKey(p) + keyCancel}
	err := r.call(ctx, c, nil, pi)
	a, isAnswer := errors.AsType[*answer](err)
	switch {
	case errors.Is(err, errForgotten), isAnswer && (r.unavailable(a) == nil || a.failed()):
		// It cannot be cancelled, or was cancelled before: its state says which.
		if pi, err = r.intent(ctx, p.Intent); err != nil {
			return err
		}
		if pi.Status != stripe.PaymentIntentStatusSucceeded && pi.Status != stripe.PaymentIntentStatusProcessing {
			pi.Status = stripe.PaymentIntentStatusCanceled // nobody can confirm it
		}
	case err != nil:
		return err
	}
	return r.judge(ctx, p, d, nil, pi)
}
