package card

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/store"
)

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
func (r *Rail) syncDispute(ctx context.Context, id string) error {
	asked := r.cfg.now()
	var d stripe.Dispute
	if err := r.stripe.get(ctx, "disputes/"+url.PathEscape(id), nil, &d); err != nil || d.PaymentIntent == nil {
		return ignoreMissing(err)
	}
	payment, err := r.paymentOf(ctx, d.PaymentIntent.ID)
	if err != nil || payment == nil {
		return err
	}
	if s := State(payment.State); s != Paid && s != Rejected {
		return r.unexplained(ctx, payment, d.ID, d.Amount, string(d.Currency), d.Created)
	}
	return r.adjust(ctx, payment, r.changeOfDispute(ctx, payment, &d, asked))
}

// changeOfDispute returns what a dispute, as it was when it was asked for, says of the money of its payment.
func (r *Rail) changeOfDispute(ctx context.Context, payment *store.CardPayment, d *stripe.Dispute, asked time.Time) change {
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
		alarm.Log(ctx, r.cfg.Log, alarm.CardRejectedDisputed, "a payment that bought nothing is disputed", "order", payment.OrderID, "dispute", d.ID)
		c.dispute = nil
	}
	return c
}

// withdrawn returns the cents that a dispute took and did not return.
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
