package card

import (
	"context"
	"time"

	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
)

// An object that no captured payment explains is looked at again after these pauses, and is an
// orphan after explainedWithin.
const (
	explainFirst, explainMost = time.Minute, time.Hour
	explainedWithin           = 24 * time.Hour
)

// orphan keeps money at Stripe that no order explains, with an alarm when it is new (I13). An order
// is stored before anything is sent for it, so a payment of ours without one is an orphan at once:
// the database was restored.
func (r *Rail) orphan(ctx context.Context, o *store.CardOrphan) error {
	o.SeenAt = r.now()
	first := false
	err := r.cfg.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		first, err = store.InsertCardOrphan(ctx, tx, o)
		return err
	})
	if first && err == nil {
		r.log.Error("alarm: no order explains money at the card processor", "object", o.Object, "order", o.OrderID, "cents", o.Cents,
			"currency", o.Currency, "reason", o.Reason)
	}
	return err
}

// unexplained keeps a refund or a dispute whose payment is not captured here. created is by Stripe's
// clock, in Unix seconds.
func (r *Rail) unexplained(ctx context.Context, p *store.CardPayment, object string, cents int64, currency string, created int64) error {
	age := r.cfg.Machine().Sub(time.Unix(created, 0))
	if age < explainedWithin {
		return &jobs.Again{After: min(max(age, explainFirst), explainMost)}
	}
	return r.orphan(ctx, &store.CardOrphan{
		Object: object, OrderID: p.OrderID, Cents: cents, Currency: currency, Reason: "its payment is not captured here",
	})
}
