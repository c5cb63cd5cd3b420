package card

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// captureNow lets Stripe capture a payment before it reports success. With Stripe's default the balance transaction may come an hour
// later, in an event that this service does not read.
const captureNow = string(stripe.PaymentIntentCaptureMethodAutomatic)

// withMoves are the members of a payment intent that are expanded.
var withMoves = []*string{stripe.String("latest_charge.balance_transaction")}

// payments decides and stores payments. [next] makes the decisions.
type payments struct {
	cfg     *Config
	stripe  *processor
	orphans *orphans
}

// step does the next step of an open payment. again is the pause before the step after it; 0 means at once. The order fails when Stripe no
// longer has the payment, as after a restart of the double. Errors: errChanged, [*answer], and errors of the database.
func (r *payments) step(ctx context.Context, p *payment) (again time.Duration, err error) {
	again, err = r.advance(ctx, p, facts{})
	if hasKind(err, missing) {
		return r.advance(ctx, p, facts{gone: true})
	}
	return again, err
}

// advance stores the transition for these facts, asks its question, and repeats until no question is left. When the row has changed, a
// captured payment reads p again, because it counts in every state; otherwise the error is errChanged. Afterwards p is the stored row.
func (r *payments) advance(ctx context.Context, p *payment, a facts) (again time.Duration, err error) {
	for {
		again, captured, err := r.round(ctx, p, &a)
		if !captured || !errors.Is(err, errChanged) {
			return again, err
		}
		now, err := r.read(ctx, r.cfg.Store, p.OrderID)
		if err != nil {
			return 0, err
		}
		*p, a = *now, facts{intent: a.intent, session: a.session, call: a.call}
	}
}

// round is advance for one version of the row. captured reports that the failed transition settles a captured payment.
func (r *payments) round(ctx context.Context, p *payment, a *facts) (again time.Duration, captured bool, err error) {
	for {
		t := next(*p, *a, r.cfg.Machine())
		err := r.store(ctx, p, &t)
		switch {
		case errors.Is(err, rail.ErrNoPlace) && State(t.State) == Paid:
			a.noPlace, a.read = true, false
			continue
		case err != nil:
			return 0, t.captured != nil, err
		case t.ask == askNothing:
			return t.again, false, t.err
		}
		if err := r.ask(ctx, p, t.ask, a); err != nil {
			return 0, false, err
		}
	}
}

// ask adds the answer to a question, also when Stripe refuses a call. Errors: errChanged, [*answer], and errors of the database.
func (r *payments) ask(ctx context.Context, p *payment, q question, a *facts) (err error) {
	asked := a.to
	a.to = q
	switch q {
	case askStart:
		return r.readAttempt(ctx, p, a)
	case askSend:
		r.cfg.failpoint(atCalling)
		s, pi := &stripe.CheckoutSession{}, &stripe.PaymentIntent{}
		if p.d.Session != nil {
			err = r.stripe.send(ctx, a.call, s)
		} else {
			err = r.stripe.send(ctx, a.call, pi)
		}
		r.cfg.failpoint(atAnswered)
		if err != nil {
			err = a.refuse(err)
			a.unsent = a.unsent && a.refusal != nil && a.refusal.unsent
		} else if p.d.Session != nil {
			a.session = s
		} else {
			a.intent = pi
		}
		return err
	case askList:
		if asked == askStart {
			a.refusal = &answer{kind: unclear, code: notSent}
		}
		if a.found, err = findAttempt(ctx, r.stripe, p); err == nil {
			a.call.Params, a.call.AnsweredAt, a.call.Status, a.call.Object = "", r.cfg.now(), http.StatusOK, a.found
		}
		return err
	case askState:
		if p.d.Session == nil {
			a.intent, err = r.stripe.intent(ctx, cmp.Or(a.found, p.Intent))
			return err
		}
		if a.session, err = r.stripe.session(ctx, cmp.Or(a.found, p.Session)); err == nil {
			a.intent = a.session.PaymentIntent
		}
		return err
	case askEnd:
		r.cfg.failpoint(atEnding)
		if p.d.Session != nil {
			a.session = &stripe.CheckoutSession{}
			return a.refuse(r.stripe.call(ctx, &store.CardCall{Key: attemptKey(&p.CardPayment) + keyExpire}, nil, a.session))
		}
		a.intent = &stripe.PaymentIntent{}
		return a.refuse(r.stripe.call(ctx, &store.CardCall{Key: attemptKey(&p.CardPayment) + keyCancel}, nil, a.intent))
	}
	row := p.CardPayment
	row.Intent, a.read = a.intent.ID, true
	a.changes, err = changesOf(ctx, r.stripe, &row)
	return err
}

// refuse keeps the error of a call that Stripe did not carry out, and returns any other error.
func (a *facts) refuse(err error) error {
	if a.forgotten = errors.Is(err, errForgotten); a.forgotten {
		return nil
	}
	var ok bool
	if a.refusal, ok = errors.AsType[*answer](err); ok {
		return nil
	}
	return err
}

// readAttempt reads the call, the delegation, and the card of an attempt.
func (r *payments) readAttempt(ctx context.Context, p *payment, a *facts) (err error) {
	if State(p.State) == Calling {
		if a.call, err = store.CardCallByKey(ctx, r.cfg.Store, attemptKey(&p.CardPayment)); err != nil {
			return err
		}
		if a.call.Status != 0 {
			return errChanged // another process stored the answer with the row
		}
	}
	a.unsent = p.d.Unsent
	a.barred, err = barred(ctx, r.cfg.Store, &p.CardPayment)
	if err != nil || a.barred != nil || State(p.State) == Calling || p.d.Session != nil {
		return err
	}
	m, found, err := store.IfThere(store.CardMethodByID(ctx, r.cfg.Store, p.Payer, p.Method))
	if found && m.Fingerprint != "" {
		a.method = m
	}
	return err
}

// paramsOf returns the parameters of the call that begins an attempt. m is the card of a charge.
func (r *payments) paramsOf(p *payment, m *store.CardMethod) (any, error) {
	if p.d.Session != nil {
		return r.pageParams(p)
	}
	return &stripe.PaymentIntentCreateParams{
		Amount: &p.Cents, Currency: &p.Currency, Customer: &m.Customer, PaymentMethod: &m.StripeID,
		PaymentMethodTypes: []*string{stripe.String("card")}, CaptureMethod: stripe.String(captureNow), Confirm: stripe.Bool(true), OffSession: stripe.Bool(true),
		Metadata: p.metadata(), Expand: withMoves, StatementDescriptorSuffix: store.NonZero(r.cfg.Descriptor),
	}, nil
}

// barred returns why no further request of an attempt may be sent, or nil: the owner has revoked the delegation since the order, or
// payments with lost records have used its limit. An earlier request still counts. In a restored database a charge by a delegation waits
// until the lost payments were read.
func barred(ctx context.Context, db *store.Store, p *store.CardPayment) (*failure, error) {
	if p.Delegation == "" {
		return nil, nil
	}
	mark, err := store.ReadRestoration(ctx, db)
	if err != nil {
		return nil, err
	}
	if mark != nil {
		if at, err := readUntil(ctx, db); err != nil {
			return nil, err
		} else if at.Before(mark.RestoredAt) {
			return nil, &answer{kind: busy, code: notSent}
		}
	}
	d, err := store.DelegationByID(ctx, db, p.Delegation)
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

// revokedFailure fails an order when its delegation ended before Stripe executed a request of the attempt.
var revokedFailure = &failure{Code: toll.CodeDelegationRevoked, Reason: "The delegation was revoked before the card was charged."}

// limitFailure fails an order that no longer fits into the limit of its delegation.
var limitFailure = &failure{
	Code: toll.CodeDelegationInsufficient, Reason: "An earlier payment that was missing from the records has used up the delegation's limit.",
}

// intent fetches a payment intent with its charge and its balance transaction.
func (p *processor) intent(ctx context.Context, id string) (*stripe.PaymentIntent, error) {
	pi := &stripe.PaymentIntent{}
	return pi, p.get(ctx, "payment_intents/"+id, &stripe.PaymentIntentRetrieveParams{Expand: withMoves}, pi)
}
