package card

import (
	"cmp"
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const (
	// maxTries is how many enrolments, and cards declined in them, an owner and a source may make
	// in triesTime (T84), unless the configuration has another number.
	maxTries = 5
	// failuresPerTry times as many charges by delegations of an owner may fail in triesTime. The owner
	// can unfreeze delegations and make others, so their own bound of declines in a row is not enough.
	failuresPerTry = 4
	triesTime      = 10 * time.Minute
	// maxRefundFees is the default of [Config.RefundFees].
	maxRefundFees = 500
)

// admit stores an enrolment, and refuses it when its owner or its source has made too many.
//
// It counts after the row is committed, so of those that run at the same time in several processes at most [Config.Tries] see a count that
// admits them. Refused enrolments are removed again, and do not count. Stripe is asked only about cards that were declined in enrolments
// that are still open. Errors: [toll.CodeRateLimited], [*answer], those of the database.
func (e *enrolments) admit(ctx context.Context, s *store.CardSetup) error {
	err := e.cfg.Store.Tx(ctx, func(tx *store.Tx) error { return store.InsertCardSetup(ctx, tx, s) })
	if err != nil {
		return err
	}
	since := s.CreatedAt.Add(-triesTime)
	if err = e.checkTries(ctx, s, since); err == nil {
		if err = e.readOpenSetups(ctx, s, since); err == nil {
			err = e.checkTries(ctx, s, since)
		}
	}
	if err == nil {
		return nil
	}
	// The caller may be gone, and the row must not count.
	ctx = context.WithoutCancel(ctx)
	if dropped := e.cfg.Store.Tx(ctx, func(tx *store.Tx) error { return store.DropCardSetup(ctx, tx, s.ID) }); dropped != nil {
		return dropped
	}
	return err
}

func (e *enrolments) checkTries(ctx context.Context, s *store.CardSetup, since time.Time) error {
	own, same, err := store.CardTries(ctx, e.cfg.Store, s.Owner, s.Source, since)
	if err != nil || max(own, same) <= e.cfg.tries() {
		return err
	}
	refusal := toll.Errorf(toll.CodeRateLimited, "Too many cards were tried. The limit is %d cards in any 10 minutes. Try again in up to 10 minutes.", e.cfg.tries())
	refusal.RetryAfterSecs = int(triesTime / time.Second) // all tries have ended by then
	return refusal
}

// readOpenSetups reads how many cards were declined in the other enrolments that count.
func (e *enrolments) readOpenSetups(ctx context.Context, s *store.CardSetup, since time.Time) error {
	open, err := store.CardSetupsOpen(ctx, e.cfg.Store, setupOpen, s.Owner, s.Source, since, 2*e.cfg.tries())
	if err != nil {
		return err
	}
	for _, o := range open {
		if err := e.readSetup(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// admitCharge refuses a charge by a delegation when too many of its owner have failed. Orders that run at the same time are counted once
// they have failed. Errors: [toll.CodeCardDeclined], those of the database.
func (r *Rail) admitCharge(ctx context.Context, payer toll.Address) error {
	most := failuresPerTry * r.cfg.tries()
	failed, err := store.CardChargesFailed(ctx, r.cfg.Store, payer, r.cfg.now().Add(-triesTime), most)
	if err != nil || failed < most {
		return err
	}
	return toll.NewError(toll.CodeCardDeclined).WithDetails(
		"%d charges of your cards failed within 10 minutes, so this charge was not attempted. Wait up to 10 minutes.", most)
}

// admitRefund refuses a refund when the payments of which the seller began a refund today, UTC, have cost more than
// [Config.RefundFees] in fees. The processor keeps the fee of a refunded payment, so a seller who pays and refunds in a loop costs the
// operator money. The first payment of a day passes whatever its fee, and further refunds of a payment count nothing. A fee that the
// processor has not reported yet counts as 30 cents and 5 %. Errors: [toll.CodeRefundRefused], and errors of the store.
func (r *refunds) admitRefund(ctx context.Context, tx *store.Tx, m *money) error {
	for _, re := range m.refunds {
		if re.Origin == originSeller {
			return nil
		}
	}
	moves, err := store.CardMovesOf(ctx, tx, m.payment.OrderID)
	if err != nil {
		return err
	}
	fee := 30 + m.payment.Cents/20
	for _, move := range moves {
		if move.Kind == moveCharge {
			fee = max(move.Fee, 0)
		}
	}
	most := cmp.Or(r.cfg.RefundFees, maxRefundFees)
	sum, err := store.CountCardRefundFee(ctx, tx, m.payment.Seller, r.cfg.now(), fee)
	if err != nil || sum <= most || sum == fee {
		return err
	}
	return refundRefused("This refund would exceed the builder's daily limit of %s for processing fees of refunded payments.", moneyText(most, m.payment.Currency)).
		WithHint("Wait until the next day (UTC), or ask the operator to refund the payment at the card processor.")
}
