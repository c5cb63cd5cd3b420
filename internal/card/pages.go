package card

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

const (
	// pageTime is how long a person may pay on a page.
	pageTime = time.Hour
	// doneTime is how much longer the address works to which the page leads back.
	doneTime = 24 * time.Hour
	// maxProductName bounds the name of a plan on the page, in bytes.
	maxProductName = 250
)

// script is where Stripe's own pages get the script that shows an embedded page.
const script = "https://js.stripe.com/dahlia/stripe.js"

// pageParams are those of a session on which a person pays, and which nobody can pay for less.
func (r *Rail) pageParams(p *store.CardPayment, d *details) (*stripe.CheckoutSessionCreateParams, error) {
	d.PageEnd = d.TriedAt.Add(pageTime)
	own, err := r.cfg.Link(rail.UsePage, p.Payer, p.OrderID, d.PageEnd)
	if err != nil {
		return nil, err
	}
	done, err := r.cfg.Link(rail.UseDone, p.Payer, p.OrderID, d.PageEnd.Add(doneTime))
	if err != nil {
		return nil, err
	}
	item := &stripe.CheckoutSessionCreateLineItemParams{
		Quantity: stripe.Int64(1),
		PriceData: &stripe.CheckoutSessionCreateLineItemPriceDataParams{
			Currency: &p.Currency, UnitAmount: &p.Cents, TaxBehavior: stripe.String("inclusive"),
			ProductData: &stripe.CheckoutSessionCreateLineItemPriceDataProductDataParams{Name: stripe.String(productName(d.Name))},
		},
	}
	in := &stripe.CheckoutSessionCreateParams{
		Mode: stripe.String("payment"), LineItems: []*stripe.CheckoutSessionCreateLineItemParams{item},
		PaymentMethodTypes: []*string{stripe.String("card")},
		AdaptivePricing:    &stripe.CheckoutSessionCreateAdaptivePricingParams{Enabled: stripe.Bool(false)},
		ExpiresAt:          stripe.Int64(d.PageEnd.Unix()), ClientReferenceID: &p.OrderID, Metadata: r.metadata(p, d),
		PaymentIntentData: &stripe.CheckoutSessionCreatePaymentIntentDataParams{
			CaptureMethod: stripe.String(captureNow), Metadata: r.metadata(p, d),
		},
	}
	if r.cfg.Descriptor != "" {
		in.PaymentIntentData.StatementDescriptorSuffix = &r.cfg.Descriptor
	}
	if r.cfg.Tax {
		in.AutomaticTax = &stripe.CheckoutSessionCreateAutomaticTaxParams{Enabled: stripe.Bool(true)}
	}
	if r.cfg.Invoices {
		in.InvoiceCreation = &stripe.CheckoutSessionCreateInvoiceCreationParams{Enabled: stripe.Bool(true)}
	}
	if !d.Hosted {
		in.UIMode, in.ReturnURL = stripe.String("embedded_page"), &done
		return in, nil
	}
	in.UIMode, in.SuccessURL, in.CancelURL = stripe.String("hosted_page"), &done, &own
	if d.Session.CancelURL != "" {
		in.CancelURL = &d.Session.CancelURL
	}
	return in, nil
}

// productName is what a plan is called on a page of Stripe: the text that our page shows.
func productName(name string) string {
	name = cmp.Or(plain.Name(name), "Plan")
	for len(name) > maxProductName {
		_, n := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-n]
	}
	return name
}

// openPage stores the session that an attempt has made. c is the call whose answer it is.
func (r *Rail) openPage(ctx context.Context, p *store.CardPayment, d *details, c *store.CardCall, s *stripe.CheckoutSession) error {
	p.State, p.Session = string(Page), s.ID
	if s.ExpiresAt > 0 {
		d.PageEnd = time.Unix(s.ExpiresAt, 0).UTC()
	}
	return r.write(ctx, p, d, func(tx *store.Tx) error { return answerCall(ctx, tx, c) })
}

// session fetches a session with its payment.
func (r *Rail) session(ctx context.Context, id string) (*stripe.CheckoutSession, error) {
	s := &stripe.CheckoutSession{}
	return s, r.get(ctx, "checkout/sessions/"+id, &stripe.CheckoutSessionRetrieveParams{
		Expand: []*string{stripe.String("payment_intent.latest_charge.balance_transaction")},
	}, s)
}

// checkPage acts on the state of the session of a payment.
func (r *Rail) checkPage(ctx context.Context, p *store.CardPayment, d *details) (again time.Duration, err error) {
	s, err := r.session(ctx, p.Session)
	if err != nil {
		return 0, err
	}
	return pauseOf(d, r.cfg.Machine()), r.judgePage(ctx, p, d, s)
}

// judgePage acts on the state of a session. An open one stays as it is.
func (r *Rail) judgePage(ctx context.Context, p *store.CardPayment, d *details, s *stripe.CheckoutSession) error {
	pi := s.PaymentIntent
	if pi != nil && pi.Status == stripe.PaymentIntentStatusSucceeded {
		return r.settle(ctx, p, evidence{intent: pi, session: s})
	}
	fail := func(f *failure) error {
		e := evidence{failure: f}
		if pi != nil {
			e.tried = pi.ID
		}
		return r.settle(ctx, p, e)
	}
	switch {
	case s.Status == stripe.CheckoutSessionStatusExpired && d.Failure != nil:
		return fail(d.Failure)
	case s.Status == stripe.CheckoutSessionStatusExpired:
		return fail(&failure{Code: toll.CodeCheckoutFailed, Reason: "The page has expired without a payment."})
	case s.Status != stripe.CheckoutSessionStatusComplete:
		return nil
	case pi == nil:
		alarm.Log(ctx, r.log, alarm.CardOddPage, "a page was completed without a payment", "order", p.OrderID, "session", s.ID, "payment", s.PaymentStatus)
		return fail(&failure{Code: toll.CodeCheckoutFailed, Reason: "The page was completed without a payment."})
	case pi.Status != stripe.PaymentIntentStatusProcessing:
		return fail(failureOf(answerOfError(pi.LastPaymentError)))
	case State(p.State) == Pending:
		return nil
	}
	p.State, p.Intent, d.Then = string(Pending), pi.ID, ""
	return r.write(ctx, p, d, nil)
}

// expirePage ends the session of an attempt. If it is complete, its payment counts.
func (r *Rail) expirePage(ctx context.Context, p *store.CardPayment, d *details) error {
	err := r.call(ctx, &store.CardCall{Key: attemptKey(p) + keyExpire}, nil, &stripe.CheckoutSession{})
	a, ok := errors.AsType[*answer](err)
	if err != nil && !errors.Is(err, errForgotten) && (!ok || r.unavailable(a) != nil && !a.failed()) {
		return err
	}
	s, err := r.session(ctx, p.Session) // with the payment, which the answer does not have
	switch {
	case err != nil:
		return err
	case s.Status == stripe.CheckoutSessionStatusOpen:
		return &answer{kind: unclear, status: http.StatusOK, code: "still_open"}
	case s.Status == stripe.CheckoutSessionStatusExpired && d.Then == Created && !succeeded(s.PaymentIntent):
		p.State, p.Attempt, p.Session, d.Then = string(Created), p.Attempt+1, "", ""
		return r.write(ctx, p, d, nil)
	}
	return r.judgePage(ctx, p, d, s)
}

func succeeded(pi *stripe.PaymentIntent) bool {
	return pi != nil && pi.Status == stripe.PaymentIntentStatusSucceeded
}

// Page implements [rail.Pages].
func (r *Rail) Page(ctx context.Context, orderID string, hosted bool) (rail.Shown, error) {
	for range maxSteps {
		p, d, err := r.read(ctx, orderID)
		switch {
		case err != nil:
			none := toll.NewError(toll.CodeOrderNotFound).WithDetails("orderId %s", orderID)
			return rail.Shown{}, store.NotFoundAs(err, none)
		case !State(p.State).open() || State(p.State) == Pending || d.Session == nil:
			return rail.Shown{}, nil
		}
		if State(p.State) != Page {
			_, err = r.step(ctx, p, d)
		} else if hosted && !d.Hosted {
			d.Hosted = true
			err = r.end(ctx, p, d, nil, Created, nil)
		} else {
			var s *stripe.CheckoutSession
			if s, err = r.session(ctx, p.Session); err == nil && s.Status == stripe.CheckoutSessionStatusOpen {
				return r.shown(d, s), nil
			}
			if err == nil {
				err = r.judgePage(ctx, p, d, s)
			}
		}
		if u := r.unavailable(err); u != nil {
			return rail.Shown{}, u
		}
		if err != nil && !errors.Is(err, errChanged) {
			return rail.Shown{}, err
		}
	}
	return rail.Shown{}, r.unavailable(&answer{kind: busy})
}

// EndUnpaid implements [rail.Pages]. Stripe expires the page first.
func (r *Rail) EndUnpaid(ctx context.Context, orderID string) (ended bool, err error) {
	for range maxSteps {
		p, d, err := r.read(ctx, orderID)
		switch {
		case err != nil:
			return false, store.NotFoundAs(err, nil)
		case State(p.State) == Failed:
			return true, nil
		case d.Session == nil || State(p.State) != Page && State(p.State) != Ending:
			return false, nil
		}
		if State(p.State) == Ending {
			_, err = r.step(ctx, p, d)
		} else {
			var s *stripe.CheckoutSession
			s, err = r.session(ctx, p.Session)
			switch {
			case err != nil:
			case s.Status != stripe.CheckoutSessionStatusOpen:
				err = r.judgePage(ctx, p, d, s)
			case paying(s.PaymentIntent):
				return false, nil
			default:
				err = r.end(ctx, p, d, nil, Failed, &failure{
					Code: toll.CodeCheckoutFailed, Reason: "The page ended unpaid, because another buyer waited for its place in the plan.",
				})
			}
		}
		if err != nil && !errors.Is(err, errChanged) {
			return false, err
		}
	}
	return false, nil
}

// paying reports whether a person is paying: a card was taken, and the bank or the person has to confirm.
func paying(pi *stripe.PaymentIntent) bool {
	return pi != nil && pi.Status != stripe.PaymentIntentStatusRequiresPaymentMethod && pi.Status != stripe.PaymentIntentStatusCanceled
}

// shown is how an open session is shown.
func (r *Rail) shown(d *details, s *stripe.CheckoutSession) rail.Shown {
	if d.Hosted {
		return rail.Shown{URL: s.URL}
	}
	out := rail.Shown{ClientSecret: s.ClientSecret, PublishableKey: r.cfg.PublishableKey, Script: script}
	if r.cfg.URL != "" {
		out.Script = r.cfg.URL + "/dahlia/stripe.js"
	}
	return out
}

// ReplaceURL implements [rail.Pages].
func (r *Rail) ReplaceURL(owner toll.Address, orderID string, ends time.Time) (string, error) {
	return r.cfg.Link(rail.UseAgain, owner, orderID, ends)
}
