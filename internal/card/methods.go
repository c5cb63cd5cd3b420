package card

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
)

// syncMethod fetches the payment method behind a record, and stores its date: whether a card is past it is known from Stripe alone. A card
// that was detached on Stripe's own page gets ExpiredAt, too, before its date, because it cannot be charged any more. Payment methods of
// others are ignored.
func (r *Rail) syncMethod(ctx context.Context, id string) error {
	m, found, err := store.IfThere(store.CardMethodByStripeID(ctx, r.cfg.Store, id))
	if !found {
		return err
	}
	var method stripe.PaymentMethod
	err = r.get(ctx, "payment_methods/"+id, nil, &method)
	if hasKind(err, missing) {
		method, err = stripe.PaymentMethod{}, nil
	}
	if err != nil {
		return err
	}
	return r.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		record, err := store.PaymentMethodForUpdate(ctx, tx, m.Owner, m.ID)
		if err != nil {
			return err
		}
		now, err := store.CardMethodByID(ctx, tx, m.Owner, m.ID)
		if err != nil || now.StripeID != id { // a newer one is behind the record by now
			return err
		}
		if now.CheckedAt = r.now(); method.Card == nil || method.Customer == nil || method.Customer.ID != m.Customer {
			record.ExpiredAt = r.now()
		} else {
			record = r.recordOf(m, &method)
		}
		if err := store.RefreshPaymentMethod(ctx, tx, record); err != nil {
			return err
		}
		return store.PutCardMethod(ctx, tx, now)
	})
}

// Detach runs a job of kind [store.JobCardDetach]. Its key is the id of a record that was removed, or of a payment method in whose place a
// newer one is. A card that is detached already is no error.
func (r *Rail) Detach(ctx context.Context, methodID []byte) error {
	id := string(methodID)
	m, known, err := store.IfThere(store.CardMethodOf(ctx, r.cfg.Store, id))
	if err != nil {
		return err
	}
	removed := false
	if known {
		record, err := store.PaymentMethodByID(ctx, r.cfg.Store, m.Owner, m.ID)
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
		if err := r.detach(ctx, id); err != nil {
			return err
		}
	}
	if !removed || m.Fingerprint == "" {
		return nil
	}
	m.Fingerprint = "" // the same card may be enrolled again
	return r.cfg.Store.Tx(ctx, func(tx *store.Tx) error { return store.PutCardMethod(ctx, tx, m) })
}

// detach takes a payment method from its customer. Its key changes every 12 hours, so that Stripe
// never has to remember it for longer: a second detachment is refused, and does nothing.
func (r *Rail) detach(ctx context.Context, id string) error {
	key := fmt.Sprintf("detach-%s-%d", id, r.now().Unix()/int64(12*time.Hour/time.Second))
	call := &store.CardCall{Key: key, Subject: id, Path: "payment_methods/" + id + "/detach"}
	var method stripe.PaymentMethod
	err := r.call(ctx, call, func() any { return &stripe.PaymentMethodDetachParams{} }, &method)
	a, ok := errors.AsType[*answer](err)
	switch {
	case ok && (a.kind == refused || a.kind == missing): // it is of no customer
		return nil
	case ok && a.kind != conflict:
		return &jobs.Again{After: a.pause(), Err: a}
	}
	return err
}

// customerTry is how long the idempotency keys of a customer are used.
const customerTry = 10 * time.Minute

// customer returns the customer of a principal at Stripe, which it makes on first use.
//
// A call that Stripe failed, which it repeats under a key for a day, is made once more under another
// key, and under new ones every [customerTry], the same in all processes. Customers that calls
// without an answer may have made stay unused. Errors: [*answer], those of the database.
func (r *Rail) customer(ctx context.Context, owner toll.Address) (id string, err error) {
	c, err := store.CardCustomerOf(ctx, r.cfg.Store, owner)
	if errors.Is(err, store.ErrNotFound) {
		err = r.cfg.Store.Tx(ctx, func(tx *store.Tx) (err error) {
			c, err = store.EnsureCardCustomer(ctx, tx, &store.CardCustomer{
				Owner: owner, RowID: toll.NewUUID(), CreatedAt: r.now(),
			})
			return err
		})
	}
	if err != nil || c.ID != "" {
		return c.ID, err
	}
	key := c.RowID
	if n := int64(r.now().Sub(c.CreatedAt) / customerTry); n > 0 {
		key += "-" + strconv.FormatInt(n, 10)
	}
	var made stripe.Customer
	for _, key := range []string{key, key + keyAgain} {
		call := &store.CardCall{Key: key, Subject: owner.Lower(), Path: "customers"}
		err = r.call(ctx, call, func() any {
			p := &stripe.CustomerCreateParams{}
			p.AddMetadata(metaInstallation, r.cfg.Installation)
			p.AddMetadata("address", owner.Lower())
			return p
		}, &made)
		if a, ok := errors.AsType[*answer](err); !ok || !a.failed() {
			break
		}
	}
	if err != nil {
		return "", err
	}
	c.ID = made.ID
	return c.ID, r.cfg.Store.Tx(ctx, func(tx *store.Tx) error { return store.SetCardCustomer(ctx, tx, c) })
}

// forgetCustomer has the next use make a new customer in the place of one that Stripe does not have any
// more. Its cards cannot be charged: they were detached with it.
func (r *Rail) forgetCustomer(ctx context.Context, owner toll.Address, id string) error {
	r.log.WarnContext(ctx, "the card processor does not have a customer any more; a new one is made", "owner", owner, "customer", id)
	return r.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		return store.ForgetCardCustomer(ctx, tx, owner, id, toll.NewUUID(), r.now())
	})
}
