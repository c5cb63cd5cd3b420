package card

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
)

// syncMethod fetches the payment method behind a record, and stores its date: whether a card is past it is known from Stripe alone. A card
// that was detached on Stripe's own page gets ExpiredAt, too, before its date, because it cannot be charged any more. Payment methods of
// others are ignored.
func (e *enrolments) syncMethod(ctx context.Context, id string) error {
	m, found, err := store.IfThere(store.CardMethodByStripeID(ctx, e.cfg.Store, id))
	if !found {
		return err
	}
	var method stripe.PaymentMethod
	err = e.stripe.get(ctx, "payment_methods/"+id, nil, &method)
	if hasKind(err, missing) {
		method, err = stripe.PaymentMethod{}, nil
	}
	if err != nil {
		return err
	}
	return e.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		record, err := store.PaymentMethodForUpdate(ctx, tx, m.Owner, m.ID)
		if err != nil {
			return err
		}
		now, err := store.CardMethodByID(ctx, tx, m.Owner, m.ID)
		if err != nil || now.StripeID != id { // a newer one is behind the record by now
			return err
		}
		if now.CheckedAt = e.cfg.now(); method.Card == nil || method.Customer == nil || method.Customer.ID != m.Customer {
			record.ExpiredAt = e.cfg.now()
		} else {
			record = e.recordOf(m, &method)
		}
		if err := store.RefreshPaymentMethod(ctx, tx, record); err != nil {
			return err
		}
		return store.PutCardMethod(ctx, tx, now)
	})
}

// Detach runs a job of kind [store.JobCardDetach]. Its key is the id of a record that was removed, or of a payment method in whose place a
// newer one is. A card that is detached already is no error.
func (e *enrolments) Detach(ctx context.Context, methodID []byte) error {
	id := string(methodID)
	m, known, err := store.IfThere(store.CardMethodOf(ctx, e.cfg.Store, id))
	if err != nil {
		return err
	}
	removed := false
	if known {
		record, err := store.PaymentMethodByID(ctx, e.cfg.Store, m.Owner, m.ID)
		if err != nil {
			return err
		}
		removed = !record.RevokedAt.IsZero()
	}
	if known && m.StripeID == id && !removed {
		return nil // it is in use
	}
	ids := []string{id}
	if removed && m.StripeID != id {
		ids = append(ids, m.StripeID)
	}
	for _, id := range ids {
		if err := e.detach(ctx, id); err != nil {
			return err
		}
	}
	if !removed || m.Fingerprint == "" {
		return nil
	}
	m.Fingerprint = "" // the same card may be enrolled again
	return e.cfg.Store.Tx(ctx, func(tx *store.Tx) error { return store.PutCardMethod(ctx, tx, m) })
}

// detach takes a payment method from its customer. Its key changes every 12 hours, so that Stripe
// never has to remember it for longer: a second detachment is refused, and does nothing.
func (e *enrolments) detach(ctx context.Context, id string) error {
	key := fmt.Sprintf("detach-%s-%d", id, e.cfg.now().Unix()/int64(12*time.Hour/time.Second))
	call := &store.CardCall{Key: key, Subject: id, Path: "payment_methods/" + id + "/detach"}
	var method stripe.PaymentMethod
	err := e.stripe.call(ctx, call, func() any { return &stripe.PaymentMethodDetachParams{} }, &method)
	a, ok := errors.AsType[*answer](err)
	switch {
	case ok && (a.kind == refused || a.kind == missing): // it is of no customer
		return nil
	case ok && a.kind != conflict:
		return &jobs.Retry{After: a.pause(), Err: a}
	}
	return err
}
