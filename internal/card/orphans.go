package card

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
)

// An object that no captured payment explains is looked at again after these pauses, and is an orphan after explainedWithin.
const (
	explainFirst, explainMost = time.Minute, time.Hour
	explainedWithin           = 24 * time.Hour
)

// orphans keeps money at Stripe without an order.
type orphans struct {
	cfg    *Config
	stripe *processor
}

// orphan keeps money at Stripe that no order explains, with an alarm when it is new (I13). An order is stored before anything is sent for
// it, so a payment of ours without one is an orphan at once: the database was restored.
//
// For a known payment it updates the refunded and disputed cents. A payment that was refunded in full is resolved; it is open again
// when the refund fails later. The same holds for a granted payment that was rejected because it was refunded before it was settled.
func (r *orphans) orphan(ctx context.Context, o *store.CardOrphan) error {
	o.SeenAt = r.cfg.now()
	opened := false
	err := r.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		return r.cfg.orders.Unmatched(ctx, tx, o.Delegation, func() (*store.CardOrphan, error) {
			first, err := store.InsertCardOrphan(ctx, tx, o)
			if err != nil {
				return nil, err
			}
			now, err := store.CardOrphanForUpdate(ctx, tx, o.Object)
			if err != nil || now.ReadAt.After(o.ReadAt) {
				return now, err
			}
			now.Refunded, now.Disputed, now.ReadAt = o.Refunded, o.Disputed, o.ReadAt
			refunded := now.Refunded >= now.Cents
			again := !refunded && (now.Resolution == store.OrphanRefunded || now.Resolution == store.OrphanGranted)
			switch opened = again || first && !refunded; {
			case again:
				now.Resolution, now.ResolvedAt = "", time.Time{}
			case refunded && now.ResolvedAt.IsZero():
				now.Resolution, now.ResolvedAt = store.OrphanRefunded, o.SeenAt
			}
			return now, nil
		})
	})
	if opened && err == nil {
		alarm.Log(ctx, r.cfg.Log, alarm.PaymentUnmatched, "a payment, refund, or dispute at the card processor does not belong to an order",
			"object", o.Object, "order", o.OrderID, "cents", o.Cents,
			"currency", o.Currency, "reason", o.Reason)
	}
	return err
}

// unexplained keeps a refund or a dispute whose payment is not captured here. created is by Stripe's clock, in Unix seconds.
func (r *orphans) unexplained(ctx context.Context, p *store.CardPayment, object string, cents int64, currency string, created int64) error {
	age := r.cfg.Machine().Sub(time.Unix(created, 0))
	if age < explainedWithin {
		return &jobs.Retry{After: min(max(age, explainFirst), explainMost)}
	}
	return r.orphan(ctx, &store.CardOrphan{
		Object: object, OrderID: p.OrderID, Cents: cents, Currency: currency,
		Reason: "the service has no captured payment for this refund or dispute",
	})
}

// RestorePayment records the payment of an order that was lost, and has the job of the order ask
// Stripe what became of it. The order is in the same transaction; its rail decides it as any other.
func RestorePayment(ctx context.Context, tx *store.Tx, order *store.Order, o *store.CardOrphan) error {
	data, err := json.Marshal(details{Plan: order.Plan, Lost: true})
	if err != nil {
		return err
	}
	err = store.InsertCardPayment(ctx, tx, &store.CardPayment{
		OrderID: order.ID, Account: order.Account, Seller: order.Seller, Payer: order.Subscriber, State: string(Pending),
		Attempt: 1, Cents: o.Cents, Currency: o.Currency, Intent: o.Object, Delegation: order.DelegationID,
		CreatedAt: order.CreatedAt, UpdatedAt: order.CreatedAt, Data: data,
	})
	if err != nil {
		return err
	}
	return store.PutJob(ctx, tx, store.Job{Kind: store.JobPay + store.RailCard, Key: []byte(order.ID), Due: order.CreatedAt})
}

// RefundOrphan stores the refund of what is left of a payment without an order, with the job that sends it.
func RefundOrphan(ctx context.Context, tx *store.Tx, o *store.CardOrphan, now time.Time) error {
	return putRefund(ctx, tx, &store.CardRefund{
		ID: toll.NewUUID(), OrderID: o.OrderID, Origin: originUnmatched, State: refundCreated, Cents: o.Left(), Intent: o.Object,
		Reason: "the payment does not belong to an order", CreatedAt: now, UpdatedAt: now,
	})
}

// IsPayment reports whether an object is a payment, which can be granted or refunded.
func IsPayment(object string) bool { return strings.HasPrefix(object, "pi_") }

// unmatchedRefunded stores what became of a refund of [RefundOrphan]. Stripe has made it under id,
// or refused it with a. A refused one leaves the payment to the operator.
func (r *orphans) unmatchedRefunded(ctx context.Context, re *store.CardRefund, id string, a *answer) error {
	made := a == nil || a.code == string(stripe.ErrorCodeChargeAlreadyRefunded)
	re.State, re.StripeID, re.UpdatedAt = refundSucceeded, id, r.cfg.now()
	if !made {
		re.State, re.Reason = refundFailed, "The card processor rejected the refund."
		alarm.Log(ctx, r.cfg.Log, alarm.CardRefundRefused, "the card processor rejects a refund", "order", re.OrderID, "refund", re.ID, "origin", re.Origin, "answer", a)
	}
	return r.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		o, err := store.CardOrphanByID(ctx, tx, re.Intent)
		if err != nil {
			return err
		}
		return r.cfg.orders.Unmatched(ctx, tx, o.Delegation, func() (*store.CardOrphan, error) {
			o, err := store.CardOrphanForUpdate(ctx, tx, re.Intent)
			if err != nil {
				return nil, err
			}
			if o.Resolution = ""; made {
				o.Resolution, o.ResolvedAt, o.Refunded, o.ReadAt = store.OrphanRefunded, re.UpdatedAt, o.Cents, re.UpdatedAt
			}
			return o, store.UpdateCardRefund(ctx, tx, re)
		})
	})
}
