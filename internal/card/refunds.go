package card

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// refundCalls bounds how many idempotency keys a refund uses, one a day.
const refundCalls = 30

// refundStates are the states of refunds by the words of Stripe. One that waits for its payer
// is under way, and one that the operator has canceled gave nothing back.
var refundStates = map[stripe.RefundStatus]string{
	stripe.RefundStatusPending: refundPending, stripe.RefundStatusRequiresAction: refundPending,
	stripe.RefundStatusSucceeded: refundSucceeded,
	stripe.RefundStatusFailed:    refundFailed, stripe.RefundStatusCanceled: refundFailed,
}

// refundRank orders the states of a refund. It never goes back: what was read before may be written after what was read later.
var refundRank = map[string]int{refundCreated: 0, refundPending: 1, refundSucceeded: 2, refundFailed: 3}

func (r *refunds) BeginRefund(ctx context.Context, t *rail.Tx, in rail.Refund) error {
	m, err := moneyOf(ctx, t, in.OrderID)
	if err != nil {
		return store.NotFoundAs(err, refundRefused("Only an order paid by card can be refunded."))
	}
	for _, re := range m.refunds {
		if re.ID == in.ID {
			return nil
		}
	}
	cents, err := m.beginRefund(in.Cents)
	if err != nil {
		return err
	}
	if err := r.admitRefund(ctx, t.Tx, m); err != nil {
		return err
	}
	now := r.cfg.now()
	return putRefund(ctx, t.Tx, &store.CardRefund{
		ID: in.ID, OrderID: in.OrderID, Account: m.payment.Account, Origin: originSeller, State: refundCreated,
		Cents: cents, Intent: m.payment.Intent, Reason: "refunded by " + in.By.String(), CreatedAt: now, UpdatedAt: now,
	})
}

// putRefund stores a refund with the job that sends it.
func putRefund(ctx context.Context, tx *store.Tx, re *store.CardRefund) error {
	if err := store.InsertCardRefund(ctx, tx, re); err != nil {
		return err
	}
	return store.PutJob(ctx, tx, store.Job{Kind: store.JobCardRefund, Key: []byte(re.ID), Due: re.CreatedAt})
}

// Refunded implements [rail.Refunder].
func (r *refunds) Refunded(ctx context.Context, refundID string) (decided bool, failure string, err error) {
	re, err := store.CardRefundByID(ctx, r.cfg.Store, refundID)
	if err != nil {
		return false, "", err
	}
	if re.State == refundFailed {
		failure = re.Reason
	}
	return re.State != refundCreated, failure, nil
}

// SendRefund runs a job of kind [store.JobCardRefund]: it has Stripe make a refund, once, and has the order take it.
func (r *refunds) SendRefund(ctx context.Context, refundID []byte) error {
	re, found, err := store.IfThere(store.CardRefundByID(ctx, r.cfg.Store, string(refundID)))
	if !found || re.State != refundCreated {
		return err
	}
	r.cfg.failpoint(atRefunding)
	id, err := r.makeRefund(ctx, re)
	a, ok := errors.AsType[*answer](err)
	switch {
	case re.Origin == originUnmatched && (err == nil || ok && a.final()):
		r.cfg.failpoint(atRefunded)
		return r.orphans.unmatchedRefunded(ctx, re, id, a)
	case ok && a.final():
		return r.refuseRefund(ctx, re, a)
	case err != nil:
		return later(err)
	}
	r.cfg.failpoint(atRefunded)
	return r.syncRefund(ctx, id)
}

// makeRefund returns the id of a refund at Stripe, which it makes unless it is there.
func (r *refunds) makeRefund(ctx context.Context, re *store.CardRefund) (id string, err error) {
	for n := range refundCalls {
		c := &store.CardCall{Key: re.ID, Subject: re.ID, Path: "refunds"}
		if n > 0 {
			c.Key += fmt.Sprintf("-%d", n+1)
		}
		var made stripe.Refund
		err = r.stripe.call(ctx, c, func() any {
			in := &stripe.RefundCreateParams{
				PaymentIntent: &re.Intent, Amount: &re.Cents, Metadata: map[string]string{
					metaInstallation: r.cfg.Installation, metaOrder: re.OrderID, metaRefund: re.ID,
				},
			}
			if re.Origin == originUnmatched {
				in.Amount = nil // all that is left, whatever was refunded since it was read
			}
			return in
		}, &made)
		if err == nil {
			return made.ID, nil
		}
		a, _ := errors.AsType[*answer](err)
		forgotten := errors.Is(err, errForgotten)
		if !forgotten && (a == nil || a.kind != conflict && a.kind != unclear) {
			return "", err
		}
		// The key has no answer, or one that Stripe repeats for a day. Its list says whether the refund is there.
		found, lookup := r.stripe.find(ctx, "refunds", &stripe.RefundListParams{PaymentIntent: &re.Intent}, func(metadata map[string]string) bool {
			return metadata[metaRefund] == re.ID
		})
		if found != "" || lookup != nil {
			return found, lookup
		}
		if !forgotten {
			return "", err
		}
	}
	return "", fmt.Errorf("card: the card processor has not responded to refund %s for %d days", re.ID, refundCalls)
}

// refuseRefund stores that Stripe will not make a refund. Money that bought nothing and stays here is an orphan.
func (r *refunds) refuseRefund(ctx context.Context, re *store.CardRefund, a *answer) error {
	p, err := store.CardPaymentByOrder(ctx, r.cfg.Store, re.OrderID)
	if err != nil {
		return err
	}
	back := a.code == string(stripe.ErrorCodeChargeAlreadyRefunded)
	disputed := a.code == string(stripe.ErrorCodeChargeDisputed) || a.code == string(stripe.ErrorCodeRefundDisputedPayment)
	about := []any{"order", re.OrderID, "refund", re.ID, "origin", re.Origin, "answer", a}
	if back || disputed && re.Origin == originSeller {
		r.cfg.Log.WarnContext(ctx, "the card processor rejects a refund because the payment is disputed or already refunded", about...)
	} else {
		alarm.Log(ctx, r.cfg.Log, alarm.CardRefundRefused, "the card processor rejects a refund", about...)
	}
	re.State, re.Reason, re.UpdatedAt = refundFailed, "The card processor rejected the refund.", r.cfg.now()
	if back {
		re.Reason = "The payment is already refunded."
	}
	return r.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := store.UpdateCardRefund(ctx, tx, re); err != nil || re.Origin != originRejected || back {
			return err
		}
		_, err := store.InsertCardOrphan(ctx, tx, &store.CardOrphan{
			Object: re.Intent, OrderID: re.OrderID, Cents: re.Cents, Currency: p.Currency, SeenAt: r.cfg.now(),
			Reason: "the payment does not match its order, and its refund was rejected",
		})
		return err
	})
}

// refundMoves are the members of a refund that are expanded.
var refundMoves = []string{"balance_transaction", "failure_balance_transaction"}

// syncRefund fetches a refund and has its order take it. It may have been made on Stripe's page.
func (r *refunds) syncRefund(ctx context.Context, id string) error {
	p := &stripe.RefundParams{}
	for _, path := range refundMoves {
		p.AddExpand(path)
	}
	var re stripe.Refund
	if err := r.stripe.get(ctx, "refunds/"+url.PathEscape(id), p, &re); err != nil || re.PaymentIntent == nil {
		return ignoreMissing(err)
	}
	payment, err := r.payments.paymentOf(ctx, re.PaymentIntent.ID)
	if err != nil || payment == nil {
		return err
	}
	if s := State(payment.State); s != Paid && s != Rejected {
		return r.orphans.unexplained(ctx, payment, re.ID, re.Amount, string(re.Currency), re.Created)
	}
	c, err := changeOfRefund(r.cfg.now(), payment, &re)
	if err != nil {
		return err
	}
	err = r.adjust(ctx, payment, c)
	if err != nil || c.refund.State != refundFailed || State(payment.State) == Paid && payment.Intent == c.refund.Intent {
		return err
	}
	asked := r.cfg.now()
	pi, err := r.stripe.intent(ctx, c.refund.Intent)
	if err != nil {
		return ignoreMissing(err)
	}
	return r.orphans.lost(ctx, pi, asked, "the payment does not match its order, and its refund failed")
}

// changeOfRefund returns what a refund says of the money of its payment.
func changeOfRefund(now time.Time, payment *store.CardPayment, re *stripe.Refund) (change, error) {
	state, known := refundStates[re.Status]
	if !known {
		return change{}, fmt.Errorf("card: refund %s has the unknown status %q", re.ID, re.Status)
	}
	row := &store.CardRefund{
		ID: re.Metadata[metaRefund], OrderID: payment.OrderID, Account: payment.Account, Origin: originProcessor, State: state,
		Cents: re.Amount, Intent: re.PaymentIntent.ID, StripeID: re.ID, Reason: "created at the card processor",
		CreatedAt: time.Unix(re.Created, 0).UTC(), UpdatedAt: now,
	}
	if state == refundFailed {
		row.Reason = "The card processor reports: " + string(re.FailureReason) + "."
		if re.FailureReason == "" {
			row.Reason = "The card processor reports: " + string(re.Status) + "."
		}
	}
	c := change{refund: row}
	c.add(payment, row.Intent, moveRefund, re.BalanceTransaction)
	c.add(payment, row.Intent, moveRefundFailure, re.FailureBalanceTransaction)
	return c, nil
}

// takeRefund merges a refund as Stripe has it. A row that was made here is found by the id in the metadata until it has that of Stripe.
func (m *money) takeRefund(re store.CardRefund) {
	for i, stored := range m.refunds {
		mine := stored.StripeID == "" && stored.ID == re.ID && stored.Intent == re.Intent && stored.Cents == re.Cents
		if stored.StripeID != re.StripeID && !mine {
			continue
		}
		if stored.StripeID != "" && refundRank[re.State] <= refundRank[stored.State] {
			return
		}
		now := *stored
		now.State, now.StripeID, now.UpdatedAt = re.State, re.StripeID, re.UpdatedAt
		if re.State == refundFailed {
			now.Reason = re.Reason
		}
		m.refunds[i], m.refund = &now, &now
		return
	}
	re.ID = toll.NewUUID()
	m.refunds, m.refund, m.newRefund = append(m.refunds, &re), &re, true
}

// disputeWord is what a dispute means for its order: nothing while the bank only asks, and when it
// has asked. Of one that was prevented, its balance transactions say whether the money left.
func disputeWord(d *store.CardDispute) string {
	switch stripe.DisputeStatus(d.State) {
	case stripe.DisputeStatusWon:
		return store.DisputeWon
	case stripe.DisputeStatusLost:
		return store.DisputeLost
	case stripe.DisputeStatusPrevented:
		if d.Withdrawn {
			return store.DisputeLost
		}
		return store.DisputeWon
	case stripe.DisputeStatusWarningClosed:
		return ""
	}
	if d.Withdrawn {
		return store.DisputeOpen
	}
	return ""
}

// syncDispute fetches a dispute or an inquiry, and has its order take it.
func (r *refunds) syncDispute(ctx context.Context, id string) error {
	asked := r.cfg.now()
	var d stripe.Dispute
	if err := r.stripe.get(ctx, "disputes/"+url.PathEscape(id), nil, &d); err != nil || d.PaymentIntent == nil {
		return ignoreMissing(err)
	}
	payment, err := r.payments.paymentOf(ctx, d.PaymentIntent.ID)
	if err != nil || payment == nil {
		return err
	}
	if s := State(payment.State); s != Paid && s != Rejected {
		return r.orphans.unexplained(ctx, payment, d.ID, d.Amount, string(d.Currency), d.Created)
	}
	return r.adjust(ctx, payment, changeOfDispute(ctx, r.cfg, payment, &d, asked))
}

// changeOfDispute returns what a dispute, as it was when it was asked for, says of the money of its payment.
func changeOfDispute(ctx context.Context, cfg *Config, payment *store.CardPayment, d *stripe.Dispute, asked time.Time) change {
	row := &store.CardDispute{
		ID: d.ID, OrderID: payment.OrderID, Account: payment.Account, State: string(d.Status), Cents: d.Amount,
		Reason: string(d.Reason), CreatedAt: time.Unix(d.Created, 0).UTC(), UpdatedAt: asked,
	}
	if d.EvidenceDetails != nil && d.EvidenceDetails.DueBy > 0 {
		row.DueAt = time.Unix(d.EvidenceDetails.DueBy, 0).UTC()
	}
	if !strings.EqualFold(string(d.Currency), payment.Currency) {
		row.Cents = payment.Cents // what share of it is disputed is not known
	}
	c := change{dispute: row}
	for _, b := range d.BalanceTransactions {
		kind := moveDispute
		if b.Amount > 0 {
			kind = moveReinstated
		}
		c.add(payment, d.PaymentIntent.ID, kind, b)
	}
	row.Withdrawn = withdrawn(d) > 0
	if payment.Intent != d.PaymentIntent.ID {
		alarm.Log(ctx, cfg.Log, alarm.CardRejectedDisputed, "a payment that does not match its order is disputed", "order", payment.OrderID, "dispute", d.ID)
		c.dispute = nil
	}
	return c
}

func withdrawn(d *stripe.Dispute) (cents int64) {
	for _, b := range d.BalanceTransactions {
		cents -= b.Amount
	}
	return cents
}

// takeDispute merges a dispute as Stripe had it when it was asked. What was asked for earlier than the stored state changes nothing.
func (m *money) takeDispute(d store.CardDispute) {
	for i, stored := range m.disputes {
		if stored.ID != d.ID {
			continue
		}
		if !stored.UpdatedAt.After(d.UpdatedAt) {
			d.CreatedAt = stored.CreatedAt
			m.disputes[i], m.dispute = &d, &d
		}
		return
	}
	m.disputes, m.dispute = append(m.disputes, &d), &d
	// Nothing was decided and nothing withdrawn: the bank asks.
	m.inquiry = !d.Withdrawn && (strings.HasPrefix(d.State, "warning_needs") || strings.HasPrefix(d.State, "warning_under") ||
		d.State == string(stripe.DisputeStatusNeedsResponse) || d.State == string(stripe.DisputeStatusUnderReview))
}
