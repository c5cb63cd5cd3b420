package card

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
)

// StoryOf returns the payment of an order as the records tell it, for the answer to a dispute. It asks nobody. Errors:
// [store.ErrNotFound] for an order without a payment by card.
func StoryOf(ctx context.Context, q store.Querier, orderID string) (*Story, error) {
	m, err := moneyOf(ctx, q, orderID)
	if err != nil {
		return nil, err
	}
	moves, err := store.CardMovesOf(ctx, q, orderID)
	return &Story{Payment: m.payment, Refunds: m.refunds, Disputes: m.disputes, Moves: moves}, err
}

// Story is the payment of an order as the rail knows it; checkout adds requests and receipts.
type Story struct {
	Payment  *store.CardPayment
	Refunds  []*store.CardRefund
	Disputes []*store.CardDispute
	Moves    []*store.CardMove
}

// Owed is what one builder is owed of a month in a currency. Refunded and Disputed are what went back,
// less what came back from failed refunds and won disputes. PaidOut is what the operator has paid to
// the builder for the month, and Due what is left, negative when too much was paid.
type Owed struct {
	Builder  toll.Address `json:"builder"`
	Month    string       `json:"month"` // YYYY-MM in UTC
	Currency string       `json:"currency"`
	Orders   int64        `json:"orders"`
	Charged  toll.Cents   `json:"charged"`
	Refunded toll.Cents   `json:"refunded"`
	Disputed toll.Cents   `json:"disputed"`
	Fees     toll.Cents   `json:"fees"` // of the processor
	PaidOut  toll.Cents   `json:"paidOut"`
	Due      toll.Cents   `json:"due"`
}

// OwedOf adds up a month, YYYY-MM in UTC, by builder and currency. Each move counts in the month in which it happened, by Stripe's
// clock; money that bought nothing does not count. It asks nobody. Errors: a month of another form.
func OwedOf(ctx context.Context, q store.Querier, month string) ([]Owed, error) {
	from, err := time.Parse("2006-01", month)
	if err != nil {
		return nil, toll.Errorf(toll.CodeBadRequest, "The month must have the form YYYY-MM; got %q.", month)
	}
	sums, err := store.CardMoveSums(ctx, q, from, from.AddDate(0, 1, 0))
	if err != nil {
		return nil, err
	}
	payouts, err := store.CardPayouts(ctx, q, month)
	if err != nil {
		return nil, err
	}
	type key struct {
		builder  toll.Address
		currency string
	}
	rows := map[key]*Owed{}
	row := func(builder toll.Address, currency string) *Owed {
		k := key{builder, currency}
		if rows[k] == nil {
			rows[k] = &Owed{Builder: builder, Month: month, Currency: currency}
		}
		return rows[k]
	}
	for _, s := range sums {
		o := row(s.Seller, s.Currency)
		o.Fees += toll.Cents(s.Fee)
		switch s.Kind {
		case moveCharge:
			o.Orders, o.Charged = o.Orders+s.Moves, o.Charged+toll.Cents(s.Cents)
		case moveRefund, moveRefundFailure:
			o.Refunded -= toll.Cents(s.Cents)
		default:
			o.Disputed -= toll.Cents(s.Cents)
		}
	}
	for _, p := range payouts {
		row(p.Seller, p.Currency).PaidOut += toll.Cents(p.Cents)
	}
	all := make([]Owed, 0, len(rows))
	for _, o := range rows {
		o.Due = o.Charged - o.Refunded - o.Disputed - o.Fees - o.PaidOut
		all = append(all, *o)
	}
	slices.SortFunc(all, func(a, b Owed) int {
		return cmp.Or(cmp.Compare(a.Builder.Lower(), b.Builder.Lower()), cmp.Compare(a.Currency, b.Currency))
	})
	return all, nil
}

// payoutsEvery is how often the lines of payouts are looked at.
const payoutsEvery = time.Hour

// payoutWatch raises an alarm when a builder owes the operator, in one process.
type payoutWatch struct {
	cfg      *Config
	lease    *jobs.Lease
	month    string
	negative map[string]bool // lines of the month that had their alarm
}

func (w *payoutWatch) run(ctx context.Context) (next time.Duration, err error) {
	if err := w.lease.Take(ctx); err != nil {
		return 0, err
	}
	month := w.cfg.Machine().UTC().Format("2006-01")
	all, err := OwedOf(ctx, w.cfg.Store, month)
	if month != w.month {
		w.month, w.negative = month, map[string]bool{}
	}
	for _, o := range all {
		line := o.Builder.Lower() + o.Currency
		if o.Due < 0 && !w.negative[line] {
			w.negative[line] = true
			alarm.Log(ctx, w.cfg.Log, alarm.PayoutNegative, "refunds, disputes, and fees of a builder exceed the payments of the month",
				"builder", o.Builder, "month", month, "currency", o.Currency, "due", o.Due)
		}
	}
	return 0, err
}
