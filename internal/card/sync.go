package card

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
)

// Sync runs a job of kind [store.JobCardSync]: it fetches the object with this id, and acts on its state. What no row explains
// yet is kept and tried again for a day, and is then an orphan.
func (r *Rail) Sync(ctx context.Context, objectID []byte) error {
	id := string(objectID)
	kind, _, _ := strings.Cut(id, "_")
	sync := map[string]func(context.Context, string) error{
		"pi": r.payments.syncIntent, "cs": r.syncSession, "re": r.refunds.syncRefund, "pyr": r.refunds.syncRefund, "dp": r.refunds.syncDispute,
		"du": r.refunds.syncDispute, "seti": r.enrolments.syncSetup, "pm": r.enrolments.syncMethod,
	}[kind]
	if sync == nil {
		r.cfg.Log.WarnContext(ctx, "an event from the card processor is about an unknown object", "object", id)
		return nil
	}
	return later(sync(ctx, id))
}

// later returns the error of a job that Stripe could not do now, with the pause before the next run.
func later(err error) error {
	if a, ok := errors.AsType[*answer](err); ok {
		return &jobs.Retry{After: a.pause(), Err: err}
	}
	return err
}

// ignoreMissing returns nil for an object that Stripe does not have in this account.
func ignoreMissing(err error) error {
	if hasKind(err, missing) {
		return nil
	}
	return err
}

// syncIntent fetches a payment intent, and settles its order when it is captured. Otherwise the job of the order handles it.
func (r *payments) syncIntent(ctx context.Context, id string) error {
	_, err := r.settleIntent(ctx, id)
	return err
}

// paymentOf returns the payment of a payment intent, nil when it is not here. It settles the payment first, because a refund or a dispute
// may be seen before its payment.
func (r *payments) paymentOf(ctx context.Context, intentID string) (*store.CardPayment, error) {
	p, err := store.CardPaymentByIntent(ctx, r.cfg.Store, intentID)
	if err == nil && (State(p.State) == Paid || State(p.State) == Rejected) {
		return p, nil
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	return r.settleIntent(ctx, intentID)
}

func (r *payments) settleIntent(ctx context.Context, id string) (*store.CardPayment, error) {
	asked := r.cfg.now()
	pi, err := r.stripe.intent(ctx, id)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	p, ours, err := rowOf(ctx, r.cfg, pi.ID, pi.Metadata)
	switch {
	case err != nil || p == nil && !ours:
		return nil, err
	case pi.Status != stripe.PaymentIntentStatusSucceeded && p == nil:
		return nil, nil
	case pi.Status != stripe.PaymentIntentStatusSucceeded:
		return p, r.wakeOrder(ctx, p)
	case p == nil:
		return nil, r.orphans.lost(ctx, pi, asked, "the payment was captured, but its order is not in the database")
	}
	return r.captured(ctx, p, facts{intent: pi})
}

// captured settles a payment that is captured, and returns it as it is stored.
func (r *payments) captured(ctx context.Context, row *store.CardPayment, a facts) (*store.CardPayment, error) {
	p, err := r.withDetails(row)
	if err == nil {
		_, err = r.advance(ctx, p, a)
	}
	return &p.CardPayment, err
}

// lost keeps a captured payment that no paid order explains, with the refunds and disputes that Stripe had at the time asked.
func (r *orphans) lost(ctx context.Context, pi *stripe.PaymentIntent, asked time.Time, why string) error {
	o := &store.CardOrphan{
		Object: pi.ID, OrderID: pi.Metadata[metaOrder], Cents: pi.AmountReceived, Currency: string(pi.Currency),
		Reason: why, Plan: toll.PlanID(pi.Metadata[metaPlan]),
		Delegation: pi.Metadata[metaDelegation], ReadAt: asked,
	}
	o.Subscriber, _ = toll.ParseAddress(pi.Metadata[metaSubscriber]) // zero: it does not say
	if c := pi.LatestCharge; c != nil {
		o.Refunded = c.AmountRefunded
		if c.Disputed {
			err := list(ctx, r.stripe, "disputes", &stripe.DisputeListParams{PaymentIntent: &pi.ID}, func(d *stripe.Dispute) (bool, error) {
				o.Disputed += withdrawn(d)
				return false, nil
			})
			if err != nil {
				return err
			}
		}
	}
	return r.orphan(ctx, o)
}

// syncSession fetches a page. Its state settles an order that is paid; the order's own job looks at all others.
func (r *Rail) syncSession(ctx context.Context, id string) error {
	s, err := r.stripe.session(ctx, id)
	if err != nil {
		return ignoreMissing(err)
	}
	if s.Mode == stripe.CheckoutSessionModeSetup {
		return r.enrolments.syncSetup(ctx, id)
	}
	intent := ""
	if s.PaymentIntent != nil {
		intent = s.PaymentIntent.ID
	}
	p, ours, err := rowOf(ctx, r.cfg, intent, s.Metadata)
	if p == nil || err != nil {
		if ours && err == nil && intent != "" {
			return r.payments.syncIntent(ctx, intent)
		}
		return err
	}
	if s.PaymentStatus == stripe.CheckoutSessionPaymentStatusNoPaymentRequired {
		alarm.Log(ctx, r.cfg.Log, alarm.CardOddPage, "a payment page was completed, but no payment was required", "order", p.OrderID, "session", s.ID)
	}
	if s.PaymentIntent == nil || s.PaymentIntent.Status != stripe.PaymentIntentStatusSucceeded {
		return r.payments.wakeOrder(ctx, p)
	}
	_, err = r.payments.captured(ctx, p, facts{intent: s.PaymentIntent, session: s})
	return err
}

// rowOf returns the payment that an object belongs to: by its payment intent, else by its metadata.
// ours reports that the metadata says that it was made here. Other programs may use the account.
func rowOf(ctx context.Context, cfg *Config, intentID string, metadata map[string]string) (p *store.CardPayment, ours bool, err error) {
	if intentID != "" {
		p, err = store.CardPaymentByIntent(ctx, cfg.Store, intentID)
		if !errors.Is(err, store.ErrNotFound) {
			return p, true, err
		}
	}
	if metadata[metaInstallation] != cfg.Installation {
		return nil, false, nil
	}
	p, err = store.CardPaymentByOrder(ctx, cfg.Store, metadata[metaOrder])
	if errors.Is(err, store.ErrNotFound) {
		return nil, true, nil
	}
	return p, true, err
}

// wakeOrder has the job of an open order run at once.
func (r *payments) wakeOrder(ctx context.Context, p *store.CardPayment) error {
	if !State(p.State).open() {
		return nil
	}
	return r.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		return store.PutJob(ctx, tx, store.Job{Kind: store.JobPay + store.RailCard, Key: []byte(p.OrderID), Due: r.cfg.now()})
	})
}
