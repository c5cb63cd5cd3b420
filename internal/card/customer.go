package card

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

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
