package card

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// change is what Stripe says of the money of a captured payment.
type change struct {
	refund  *store.CardRefund  // ID is "" for one that was not made here
	dispute *store.CardDispute // UpdatedAt is when the object was asked for
	moves   []*store.CardMove
}

// refunds makes refunds, and stores refunds and disputes.
type refunds struct {
	cfg      *Config
	stripe   *processor
	payments *payments
	orphans  *orphans
}

// adjust stores a change, and has the order take the state of its money that follows, in one
// transaction. The lock of the account keeps changes of one order apart. If the order cannot take
// it now, the rows keep it, with a job that tries again, and an alarm. A repeat changes nothing.
func (r *refunds) adjust(ctx context.Context, p *store.CardPayment, c change) error {
	for {
		err := r.adjustOnce(ctx, p, c)
		if !errors.Is(err, errChanged) {
			return err
		}
	}
}

func (r *refunds) adjustOnce(ctx context.Context, p *store.CardPayment, c change) error {
	var refusal error
	err := r.cfg.orders.Change(ctx, p.Account, func(t *rail.Tx) error {
		refusal = nil
		m, err := moneyOf(ctx, t, p.OrderID)
		if err != nil {
			return err
		}
		m.take(c)
		if refusal = m.apply(t); refusal != nil {
			return refusal
		}
		if err := m.write(ctx, t.Tx, c.moves); err != nil {
			return err
		}
		r.cfg.failpoint(atAdjusting)
		return nil
	})
	if err == nil || refusal == nil || unusable(ctx, err) {
		return err
	}
	alarm.Log(ctx, r.cfg.Log, alarm.OrderUndecided, "a refund or dispute could not be applied to its order; it is stored and retried", "order", p.OrderID, "err", refusal)
	return r.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		m, err := moneyOf(ctx, tx, p.OrderID)
		if err != nil {
			return err
		}
		m.take(c)
		d, err := detailsOf(m.payment)
		if err != nil {
			return err
		}
		m.payment.Undecided = true
		if err = update(ctx, r.cfg, tx, m.payment, d); err == nil {
			err = m.write(ctx, tx, c.moves)
		}
		if err == nil {
			err = store.PutJob(ctx, tx, store.Job{Kind: store.JobCardDecide, Key: []byte(p.OrderID), Due: r.cfg.now()})
		}
		if err == nil {
			r.cfg.failpoint(atKeeping)
		}
		return err
	})
}

// money is what the records say of the money of an order, with a change that is not stored yet.
type money struct {
	payment  *store.CardPayment
	refunds  []*store.CardRefund
	disputes []*store.CardDispute

	refund    *store.CardRefund // to be stored
	newRefund bool
	dispute   *store.CardDispute // to be stored
	inquiry   bool               // dispute is an inquiry, and a new one
}

func moneyOf(ctx context.Context, q store.Querier, orderID string) (*money, error) {
	m := &money{}
	var err error
	if m.payment, err = store.CardPaymentByOrder(ctx, q, orderID); err != nil {
		return nil, err
	}
	if m.refunds, err = store.CardRefundsOf(ctx, q, orderID); err != nil {
		return nil, err
	}
	m.disputes, err = store.CardDisputesOf(ctx, q, orderID)
	return m, err
}

func (m *money) take(c change) {
	if c.refund != nil {
		m.takeRefund(*c.refund)
	}
	if c.dispute != nil {
		m.takeDispute(*c.dispute)
	}
}

// changesOf fetches the refunds and disputes of the payment that paid an order.
func changesOf(ctx context.Context, from *processor, p *store.CardPayment) (all []change, err error) {
	add := func(c change, err error) error {
		all = append(all, c)
		return err
	}
	params := &stripe.RefundListParams{PaymentIntent: &p.Intent}
	for _, path := range refundMoves {
		params.AddExpand("data." + path)
	}
	err = list(ctx, from, "refunds", params, func(re *stripe.Refund) (bool, error) { return false, add(changeOfRefund(from.cfg.now(), p, re)) })
	if err != nil {
		return nil, err
	}
	asked := from.cfg.now()
	err = list(ctx, from, "disputes", &stripe.DisputeListParams{PaymentIntent: &p.Intent}, func(d *stripe.Dispute) (bool, error) {
		return false, add(changeOfDispute(ctx, from.cfg, p, d, asked), nil)
	})
	return all, err
}

// putChanges stores changes of an order that decides its payment in the same transaction.
func putChanges(ctx context.Context, tx *store.Tx, orderID string, all []change) error {
	for _, c := range all {
		m, err := moneyOf(ctx, tx, orderID)
		if err != nil {
			return err
		}
		m.take(c)
		if err := m.write(ctx, tx, c.moves); err != nil {
			return err
		}
	}
	return nil
}

// apply has the order take its state. Only the payment that paid it counts.
func (m *money) apply(t *rail.Tx) error {
	if State(m.payment.State) != Paid || len(m.refunds)+len(m.disputes) == 0 {
		return nil
	}
	a := m.adjustment()
	a.Inquiry = m.inquiry
	return t.Adjust(m.payment.OrderID, a)
}

// write stores what take has found to be new.
func (m *money) write(ctx context.Context, tx *store.Tx, moves []*store.CardMove) (err error) {
	switch {
	case m.refund == nil:
	case m.newRefund:
		err = store.InsertCardRefund(ctx, tx, m.refund)
	default:
		err = store.UpdateCardRefund(ctx, tx, m.refund)
	}
	if err == nil && m.dispute != nil {
		err = store.PutCardDispute(ctx, tx, m.dispute)
	}
	for _, move := range moves {
		if err == nil {
			err = store.InsertCardMove(ctx, tx, move)
		}
	}
	return err
}

// adjustment is the state of the money of the order.
func (m *money) adjustment() (a rail.Adjustment) {
	for _, re := range m.refunds {
		if m.counts(re) && re.State != refundCreated {
			a.RefundedCents += re.Cents
		}
	}
	for _, d := range m.disputes {
		word := disputeWord(d)
		if word == store.DisputeOpen || word == store.DisputeLost {
			a.DisputedCents += d.Cents
		}
		if severity[word] > severity[a.Dispute] {
			a.Dispute = word
		}
	}
	return a
}

// counts reports whether a refund is one of the payment that paid the order, and has not failed.
func (m *money) counts(re *store.CardRefund) bool {
	return re.Origin != originRejected && re.Intent == m.payment.Intent && re.State != refundFailed
}

// severity orders what disputes of one order say: an open one counts most.
var severity = map[string]int{store.DisputeWon: 1, store.DisputeLost: 2, store.DisputeOpen: 3}

// beginRefund returns how many cents a new refund gives back: all that is left when cents is 0.
func (m *money) beginRefund(cents int64) (int64, error) {
	if State(m.payment.State) != Paid {
		return 0, refundRefused("Only an order paid by card can be refunded.")
	}
	switch m.adjustment().Dispute {
	case store.DisputeOpen:
		return 0, refundRefused("The payment is disputed, so it cannot be refunded: the bank decides who gets the money.")
	case store.DisputeLost:
		return 0, refundRefused("A dispute about the payment was lost, so the payment cannot be refunded.")
	}
	left := m.payment.Cents
	for _, re := range m.refunds {
		if m.counts(re) {
			left -= re.Cents
		}
	}
	if cents == 0 {
		cents = left
	}
	if cents <= 0 || cents > left {
		if left <= 0 {
			return 0, refundRefused("This payment is already fully refunded.").WithHint("The order shows the refunded amount: refundedCents.")
		}
		return 0, refundRefused("At most %s of the payment can be refunded.", moneyText(left, m.payment.Currency))
	}
	return cents, nil
}

// moneyText returns cents in whole units with their currency, such as "12.34 USD".
func moneyText(cents int64, currency string) string {
	return toll.FormatAmount(toll.UnitsOfCents(cents), 6) + " " + strings.ToUpper(currency)
}

func refundRefused(format string, args ...any) *toll.Error {
	return toll.Errorf(toll.CodeRefundRefused, format, args...)
}

// Kinds of moves of the operator's balance.
const (
	moveCharge        = "charge"
	moveRefund        = "refund"
	moveRefundFailure = "refund_failure"
	moveDispute       = "dispute"
	moveReinstated    = "reinstated"
	moveRejected      = "rejected" // of another payment than that which paid the order
)

// putMove stores a change of the operator's balance; nil for one that is not there yet.
func putMove(ctx context.Context, tx *store.Tx, orderID, kind string, b *stripe.BalanceTransaction) error {
	if b == nil {
		return nil
	}
	return store.InsertCardMove(ctx, tx, moveOf(orderID, kind, b))
}

func moveOf(orderID, kind string, b *stripe.BalanceTransaction) *store.CardMove {
	return &store.CardMove{
		ID: b.ID, OrderID: orderID, Kind: kind, Cents: b.Amount, Fee: b.Fee, Currency: string(b.Currency),
		At: time.Unix(b.Created, 0).UTC(),
	}
}

// balanceOf returns the balance transaction of an intent that was fetched with it, nil for none.
func balanceOf(pi *stripe.PaymentIntent) *stripe.BalanceTransaction {
	if pi.LatestCharge == nil {
		return nil
	}
	return fetched(pi.LatestCharge.BalanceTransaction)
}

// fetched returns a balance transaction that was expanded; nil for one of which only the id is known.
func fetched(b *stripe.BalanceTransaction) *stripe.BalanceTransaction {
	if b == nil || b.Created == 0 {
		return nil
	}
	return b
}

// add adds a move of the operator's balance. Stripe may make it later than the object.
func (c *change) add(p *store.CardPayment, intent, kind string, b *stripe.BalanceTransaction) {
	if fetched(b) == nil {
		return
	}
	if intent != p.Intent {
		kind = moveRejected
	}
	c.moves = append(c.moves, moveOf(p.OrderID, kind, b))
}
