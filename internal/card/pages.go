package card

import (
	"cmp"
	"context"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
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
func (r *payments) pageParams(p *payment) (*stripe.CheckoutSessionCreateParams, error) {
	d := &p.d
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
		ExpiresAt:          stripe.Int64(d.PageEnd.Unix()), ClientReferenceID: &p.OrderID, Metadata: p.metadata(),
		PaymentIntentData: &stripe.CheckoutSessionCreatePaymentIntentDataParams{
			CaptureMethod: stripe.String(captureNow), Metadata: p.metadata(), StatementDescriptorSuffix: store.NonZero(r.cfg.Descriptor),
		},
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

// session fetches a session with its payment.
func (p *processor) session(ctx context.Context, id string) (*stripe.CheckoutSession, error) {
	s := &stripe.CheckoutSession{}
	return s, p.get(ctx, "checkout/sessions/"+id, &stripe.CheckoutSessionRetrieveParams{
		Expand: []*string{stripe.String("payment_intent.latest_charge.balance_transaction")},
	}, s)
}

func (r *Rail) Page(ctx context.Context, orderID string, hosted bool) (rail.Shown, error) {
	for range maxSteps {
		p, err := r.payments.read(ctx, r.cfg.Store, orderID)
		switch {
		case err != nil:
			none := toll.NewError(toll.CodeOrderNotFound).WithDetails("orderId %s", orderID)
			return rail.Shown{}, store.NotFoundAs(err, none)
		case !State(p.State).open() || State(p.State) == Pending || p.d.Session == nil:
			return rail.Shown{}, nil
		}
		if State(p.State) != Page {
			_, err = r.payments.step(ctx, p)
		} else if hosted && !p.d.Hosted {
			_, err = r.payments.advance(ctx, p, facts{replace: true})
		} else {
			a := facts{}
			if err = r.payments.ask(ctx, p, askState, &a); err == nil && a.session.Status == stripe.CheckoutSessionStatusOpen {
				return r.shown(&p.d, a.session), nil
			}
			if err == nil {
				_, err = r.payments.advance(ctx, p, a)
			}
		}
		if u := unavailable(err); u != nil {
			return rail.Shown{}, u
		}
		if err != nil && !errors.Is(err, errChanged) {
			return rail.Shown{}, err
		}
	}
	return rail.Shown{}, unavailable(&answer{kind: busy})
}

// EndUnpaid implements [rail.Pages]. Stripe expires the page first.
func (r *Rail) EndUnpaid(ctx context.Context, orderID string) (ended bool, err error) {
	for range maxSteps {
		p, err := r.payments.read(ctx, r.cfg.Store, orderID)
		switch {
		case err != nil:
			return false, store.NotFoundAs(err, nil)
		case State(p.State) == Failed:
			return true, nil
		case p.d.Session == nil || State(p.State) != Page && State(p.State) != Ending:
			return false, nil
		}
		if State(p.State) == Ending {
			_, err = r.payments.step(ctx, p)
		} else {
			a := facts{}
			err = r.payments.ask(ctx, p, askState, &a)
			switch {
			case err != nil:
			case a.session.Status != stripe.CheckoutSessionStatusOpen:
				_, err = r.payments.advance(ctx, p, a)
			case paying(a.intent):
				return false, nil
			default:
				_, err = r.payments.advance(ctx, p, facts{unpaid: true})
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

func (r *Rail) ReplaceURL(owner toll.Address, orderID string, ends time.Time) (string, error) {
	return r.cfg.Link(rail.UseAgain, owner, orderID, ends)
}
