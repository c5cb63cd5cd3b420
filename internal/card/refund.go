package card

import (
	"context"
	"errors"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll/internal/store"
)

// Kinds of moves that a refund makes.
const (
	moveRefund       = "refund"
	moveRefundFailed = "refund_failure"
)

// metaRefund is the member of the metadata of a refund that has the id of its row.
const metaRefund = "refund_id"

// withRefundMoves are the members of a refund that are expanded. That of a failure is there only
// after one.
var withRefundMoves = []*string{stripe.String("balance_transaction")}

// SendRefund runs a job of kind [store.JobCardRefund]: it sends a refund, under its id as the key,
// and stores what Stripe made of it.
func (r *Rail) SendRefund(ctx context.Context, refundID []byte) error {
	refund, err := store.CardRefundByID(ctx, r.cfg.Store, string(refundID))
	if errors.Is(err, store.ErrNotFound) || err == nil && refund.State != refundCreated {
		return nil
	}
	if err != nil {
		return err
	}
	r.failpoint(atRefunding)
	made, err := r.sendRefund(ctx, refund)
	if err == nil && (fetched(made.BalanceTransaction) == nil || made.FailureBalanceTransaction != nil) {
		made, err = r.refund(ctx, made.ID)
	}
	r.failpoint(atRefunded)
	if a, ok := errors.AsType[*answer](err); ok && r.unavailable(a) == nil {
		r.log.Error("alarm: the card processor refuses a refund", "refund", refund.ID, "order", refund.OrderID, "answer", a)
		refund.Reason = "The card processor refused the refund."
		made, err = &stripe.Refund{Status: stripe.RefundStatusFailed}, nil
	}
	if err != nil {
		return err
	}
	return r.storeRefund(ctx, refund, made)
}

// sendRefund sends a refund, or finds the one that an earlier call has made.
func (r *Rail) sendRefund(ctx context.Context, refund *store.CardRefund) (*stripe.Refund, error) {
	made := &stripe.Refund{}
	err := r.call(ctx, &store.CardCall{Key: refund.ID, Subject: refund.OrderID, Path: "refunds"}, func() any {
		return &stripe.RefundCreateParams{
			PaymentIntent: &refund.Intent, Amount: &refund.Cents, Expand: withRefundMoves,
			Metadata: map[string]string{
				metaInstallation: r.cfg.Installation, metaOrder: refund.OrderID, metaRefund: refund.ID,
			},
		}
	}, made)
	a, _ := errors.AsType[*answer](err)
	if !errors.Is(err, errForgotten) && (a == nil || a.kind != conflict && a.kind != unclear) {
		return made, err
	}
	// The answer is lost, or the key is too old to be sent.
	in := &stripe.RefundListParams{PaymentIntent: &refund.Intent}
	in.Limit = stripe.Int64(100)
	var all stripe.RefundList
	if lost := r.get(ctx, "refunds", in, &all); lost != nil {
		return nil, lost
	}
	for _, other := range all.Data {
		if other.Metadata[metaInstallation] == r.cfg.Installation && other.Metadata[metaRefund] == refund.ID {
			return r.refund(ctx, other.ID)
		}
	}
	return nil, err
}

// refund fetches a refund with its balance transactions.
func (r *Rail) refund(ctx context.Context, id string) (*stripe.Refund, error) {
	made := &stripe.Refund{}
	err := r.get(ctx, "refunds/"+id, &stripe.RefundRetrieveParams{Expand: withRefundMoves}, made)
	if b := made.FailureBalanceTransaction; err == nil && b != nil && fetched(b) == nil {
		err = r.get(ctx, "balance_transactions/"+b.ID, nil, b)
	}
	return made, err
}

// refundState returns how a refund stands, in our words.
func refundState(made *stripe.Refund) string {
	switch made.Status {
	case stripe.RefundStatusSucceeded:
		return refundSucceeded
	case stripe.RefundStatusFailed, stripe.RefundStatusCanceled:
		return refundFailed
	}
	return refundPending
}

// storeRefund stores what Stripe made of a refund, with the moves of the balance.
func (r *Rail) storeRefund(ctx context.Context, refund *store.CardRefund, made *stripe.Refund) error {
	if refund.Origin != originRejected {
		return errUnbuilt
	}
	refund.State, refund.StripeID, refund.UpdatedAt = refundState(made), made.ID, r.now()
	return r.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := store.UpdateCardRefund(ctx, tx, refund); err != nil {
			return err
		}
		if err := putMove(ctx, tx, refund.OrderID, moveRefund, fetched(made.BalanceTransaction)); err != nil {
			return err
		}
		return putMove(ctx, tx, refund.OrderID, moveRefundFailed, fetched(made.FailureBalanceTransaction))
	})
}

// fetched returns a balance transaction that was expanded; nil for one of which only the id is known.
func fetched(b *stripe.BalanceTransaction) *stripe.BalanceTransaction {
	if b == nil || b.Created == 0 {
		return nil
	}
	return b
}
