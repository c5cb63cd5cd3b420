package card

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// Origins of a refund.
const (
	originSeller    = "seller"
	originProcessor = "processor"
	originRejected  = "rejected"  // the money bought nothing
	originUnmatched = "unmatched" // no order explains it
)

// errChanged reports that another process wrote the row of a payment since it was read.
var errChanged = errors.New("card: the payment was changed by another process")

func (r *payments) read(ctx context.Context, q store.Querier, orderID string) (*payment, error) {
	p, err := store.CardPaymentByOrder(ctx, q, orderID)
	if err != nil {
		return nil, err
	}
	return r.withDetails(p)
}

func (r *payments) withDetails(p *store.CardPayment) (*payment, error) {
	d, err := detailsOf(p)
	return &payment{CardPayment: *p, d: *d, installation: r.cfg.Installation, live: r.cfg.Environment == toll.Live}, err
}

// update stores a payment whose version is still the stored one; else the error is errChanged. It leaves the version in p as it is.
func update(ctx context.Context, cfg *Config, tx *store.Tx, p *store.CardPayment, d *details) (err error) {
	p.UpdatedAt = cfg.now()
	if p.Data, err = json.Marshal(d); err != nil {
		return err
	}
	if err = store.UpdateCardPayment(ctx, tx, p); errors.Is(err, store.ErrNotFound) {
		return errChanged
	}
	return err
}

func detailsOf(p *store.CardPayment) (*details, error) {
	d := &details{}
	return d, json.Unmarshal(p.Data, d)
}

// store logs the alarm of a transition of p, and writes its rows in one transaction. Every change of a payment is written here. Then p is
// the stored row. If the order cannot take the outcome now, store keeps the outcome in the row, with a job that retries, and an alarm.
// Errors: [rail.ErrNoPlace], errChanged, and errors of the database.
func (r *payments) store(ctx context.Context, p *payment, t *transition) (err error) {
	if n := t.alarm; n != nil {
		alarm.Log(ctx, r.cfg.Log, n.id, n.text, n.args...)
	}
	if re := t.refund; re != nil {
		re.ID, re.CreatedAt = toll.NewUUID(), r.cfg.now()
		re.UpdatedAt = re.CreatedAt
	}
	if c := t.call; c != nil {
		if c.CreatedAt = r.cfg.now(); State(t.State) == Calling {
			params, err := r.paramsOf(&t.payment, t.method)
			if err != nil {
				return err
			}
			c.Params = encode(params)
		}
	}
	switch t.write {
	case writeRow:
		err = r.cfg.Store.Tx(ctx, func(tx *store.Tx) error { return r.putRow(ctx, tx, t) })
	case writeOutcome:
		err = r.decide(ctx, t)
	case writeRefund:
		err = r.cfg.orders.Change(ctx, t.Account, func(tx *rail.Tx) error {
			if err := putRelated(ctx, tx.Tx, t); err != nil {
				return err
			}
			r.cfg.failpoint(atDeciding)
			return nil
		})
		r.cfg.failpoint(atDecided)
	case writeMove:
		if b := balanceOf(t.captured); b != nil {
			err = r.cfg.Store.Tx(ctx, func(tx *store.Tx) error { return putRelated(ctx, tx, t) })
		}
	}
	if err == nil && (t.write == writeRow || t.write == writeOutcome) {
		*p = t.payment
		p.Version++
	}
	return err
}

func (r *payments) putRow(ctx context.Context, tx *store.Tx, t *transition) error {
	if err := update(ctx, r.cfg, tx, &t.CardPayment, &t.d); err != nil {
		return err
	}
	return putRelated(ctx, tx, t)
}

// putRelated stores the move, the calls, the refund, the changes, and the job of a transition.
func putRelated(ctx context.Context, tx *store.Tx, t *transition) (err error) {
	if t.captured != nil {
		err = putMove(ctx, tx, t.OrderID, t.move, balanceOf(t.captured))
	}
	if c := t.answered; err == nil && c != nil && c.Status != 0 {
		err = store.AnswerCardCall(ctx, tx, c)
	}
	if c := t.call; err == nil && c != nil {
		_, err = store.EnsureCardCall(ctx, tx, c)
	}
	if err == nil && t.refund != nil {
		err = putRejected(ctx, tx, t.refund)
	}
	if err == nil {
		err = putChanges(ctx, tx, t.OrderID, t.changes)
	}
	if err == nil && t.release {
		due := t.UpdatedAt.Add(missingTime)
		err = store.PutJob(ctx, tx, store.Job{Kind: store.JobCardRelease, Key: []byte(t.OrderID), Due: due})
	}
	return err
}

// Release runs a job of kind [store.JobCardRelease]: the delegation no longer reserves an amount for an order that was given up.
func (r *payments) Release(ctx context.Context, orderID []byte) error {
	p, err := r.read(ctx, r.cfg.Store, string(orderID))
	if err != nil || State(p.State) != Failed {
		return store.NotFoundAs(err, nil)
	}
	out := p.outcome()
	out.Unsure = false
	return r.cfg.orders.Change(ctx, p.Account, func(t *rail.Tx) error { return t.Decide(p.OrderID, out) })
}

// putRejected stores the refund of a payment that buys nothing, with the job that sends it, unless the refund is stored already. It needs
// the lock of the account.
func putRejected(ctx context.Context, tx *store.Tx, refund *store.CardRefund) error {
	all, err := store.CardRefundsOf(ctx, tx, refund.OrderID)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.Origin == originRejected && other.Intent == refund.Intent {
			return nil
		}
	}
	if refund.Cents <= 0 {
		return nil
	}
	return putRefund(ctx, tx, refund)
}

// decide stores an outcome in one transaction with its order, which then takes refunds and disputes. Errors: [rail.ErrNoPlace], errChanged.
func (r *payments) decide(ctx context.Context, t *transition) error {
	var refusal error
	err := r.cfg.orders.Change(ctx, t.Account, func(tx *rail.Tx) error {
		if refusal = tx.Decide(t.OrderID, t.outcome()); refusal != nil {
			return refusal
		}
		if err := r.putRow(ctx, tx.Tx, t); err != nil {
			return err
		}
		if State(t.State) == Paid {
			m, err := moneyOf(ctx, tx, t.OrderID)
			if err != nil {
				return err
			}
			if refusal = m.apply(tx); refusal != nil {
				return refusal
			}
		}
		r.cfg.failpoint(atDeciding)
		return nil
	})
	r.cfg.failpoint(atDecided)
	if err == nil || refusal == nil || errors.Is(refusal, rail.ErrNoPlace) || unusable(ctx, err) {
		return err
	}
	alarm.Log(ctx, r.cfg.Log, alarm.OrderUndecided, "the outcome of a payment could not be applied to its order; it is stored and retried", "order", t.OrderID, "state", t.State,
		"err", refusal)
	t.Undecided = true
	return r.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		err := r.putRow(ctx, tx, t)
		if err == nil {
			err = store.PutJob(ctx, tx, store.Job{Kind: store.JobCardDecide, Key: []byte(t.OrderID), Due: t.UpdatedAt})
		}
		if err == nil {
			r.cfg.failpoint(atKeeping)
		}
		return err
	})
}

// unusable reports whether a transaction failed for the database, which concerns all orders.
func unusable(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, toll.NewError(toll.CodeDatabaseUnavailable)) || errors.Is(err, store.ErrFlush)
}

// RetryDecision runs a job of kind [store.JobCardDecide]: the order takes the stored outcome of its payment, then refunds and disputes. It
// returns an error while the order cannot.
func (r *Rail) RetryDecision(ctx context.Context, orderID []byte) error {
	p, err := r.payments.read(ctx, r.cfg.Store, string(orderID))
	if err != nil || !p.Undecided {
		return store.NotFoundAs(err, nil)
	}
	t := transition{payment: *p}
	t.Undecided = false
	err = r.cfg.orders.Change(ctx, p.Account, func(tx *rail.Tx) error {
		if err := tx.Decide(p.OrderID, t.outcome()); err != nil {
			return err
		}
		m, err := moneyOf(ctx, tx, p.OrderID)
		if err == nil {
			err = m.apply(tx)
		}
		if err == nil {
			err = r.payments.putRow(ctx, tx.Tx, &t)
		}
		if err == nil {
			r.cfg.failpoint(atDeciding)
		}
		return err
	})
	switch {
	case errors.Is(err, errChanged):
		return nil // another process has decided it, or put the job again
	case errors.Is(err, rail.ErrNoPlace):
		// A late payment whose order was busy when it came.
		pi, err := r.stripe.intent(ctx, p.Intent)
		if err != nil {
			return err
		}
		p.State = string(Failed) // as its order: a paid row would count as the payment of the order
		_, _, err = r.payments.round(ctx, p, &facts{intent: pi, noPlace: true})
		return err
	}
	return err
}

// outcome returns the state of a payment in the words of its order.
func (p *payment) outcome() rail.Outcome {
	out := rail.Outcome{Status: State(p.State).status(), ProviderID: p.Intent}
	if out.Status == toll.OrderConfirmed {
		out.WithinLimits = true // counts for an order that had failed
		return out
	}
	if f := p.d.Failure; f != nil && out.Status == toll.OrderFailed {
		out.FailureCode, out.FailureReason, out.Declined, out.Unsure = f.Code, f.Reason, f.Declined, f.Unsure
		if f.Class != "" {
			out.Params = map[string]any{"class": string(f.Class)}
		}
	}
	return out
}

// capturedAt returns the time of the capture of an intent, by Stripe's clock.
func capturedAt(pi *stripe.PaymentIntent) time.Time {
	if pi.LatestCharge != nil && pi.LatestCharge.Created > 0 {
		return time.Unix(pi.LatestCharge.Created, 0).UTC()
	}
	return time.Unix(pi.Created, 0).UTC()
}
