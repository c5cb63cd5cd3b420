package railtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// money is what became of the money of an order after it was paid: a row of the rail beside its payment.
type money struct {
	Refunds []refund `json:"refunds,omitempty"`
	Dispute string   `json:"dispute,omitempty"` // a word of store.Order
}

type refund struct {
	ID      string `json:"id"`
	Cents   int64  `json:"cents"`
	State   string `json:"state"` // one of those below
	Failure string `json:"failure,omitempty"`
}

const (
	refundBegun  = "begun" // the processor does not have it
	refundDone   = "done"
	refundFailed = "failed"
)

// Keep has refunds read in the database of the service.
func (r *Rail) Keep(st *store.Store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.db = st
}

func moneyName(orderID string) string   { return "railtest/money/" + orderID }
func refundName(refundID string) string { return "railtest/refund/" + refundID }

func read[T any](ctx context.Context, q store.Querier, name string) (v T, err error) {
	text, err := store.Setting(ctx, q, name)
	if errors.Is(err, store.ErrNotFound) {
		return v, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	return v, err
}

func keep(ctx context.Context, tx *store.Tx, name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return store.PutSetting(ctx, tx, name, text)
}

// left is how many cents of a price may still be refunded.
func (m *money) left(price int64) int64 {
	for _, re := range m.Refunds {
		if re.State != refundFailed {
			price -= re.Cents
		}
	}
	return price
}

func (m *money) adjustment() rail.Adjustment {
	a := rail.Adjustment{Dispute: m.Dispute}
	for _, re := range m.Refunds {
		if re.State == refundDone {
			a.RefundedCents += re.Cents
		}
	}
	return a
}

// price is what an order costs, in cents.
func price(p *rail.Purchase) int64 { return p.Total.Int().Int64() / 10_000 }

// known returns an order that the processor has, and the way back of the service that was connected last.
func (r *Rail) known(orderID string) (*order, rail.Orders, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.orders[orderID]
	if o == nil {
		return nil, nil, fmt.Errorf("railtest: no order %s", orderID)
	}
	return o, r.way, nil
}

func (r *Rail) BeginRefund(ctx context.Context, t *rail.Tx, in rail.Refund) error {
	o, _, err := r.known(in.OrderID)
	if err != nil {
		return err
	}
	m, err := read[money](ctx, t, moneyName(in.OrderID))
	if err != nil {
		return err
	}
	for _, re := range m.Refunds {
		if re.ID == in.ID {
			return nil
		}
	}
	left := m.left(price(&o.purchase))
	if in.Cents == 0 {
		in.Cents = left
	}
	if m.Dispute == store.DisputeOpen || in.Cents > left || left == 0 {
		return toll.Errorf(toll.CodeRefundRefused, "At most %s %s of the payment can be refunded.", toll.FormatAmount(toll.UnitsOfCents(left), 6), strings.ToUpper(o.purchase.Plan.Price.CurrencyName()))
	}
	m.Refunds = append(m.Refunds, refund{ID: in.ID, Cents: in.Cents, State: refundBegun})
	if err := keep(ctx, t.Tx, moneyName(in.OrderID), m); err != nil {
		return err
	}
	if err := keep(ctx, t.Tx, refundName(in.ID), in.OrderID); err != nil {
		return err
	}
	return store.PutJob(ctx, t.Tx, store.Job{Kind: store.JobCardRefund, Key: []byte(in.ID), Due: o.purchase.OrderedAt})
}

func (r *Rail) Refunded(ctx context.Context, refundID string) (decided bool, failure string, err error) {
	r.mu.Lock()
	db := r.db
	r.mu.Unlock()
	orderID, err := read[string](ctx, db, refundName(refundID))
	if err != nil {
		return false, "", err
	}
	m, err := read[money](ctx, db, moneyName(orderID))
	for _, re := range m.Refunds {
		if re.ID == refundID {
			return re.State != refundBegun, re.Failure, err
		}
	}
	return false, "", errors.Join(err, store.ErrNotFound)
}

// SendRefund runs a job of kind store.JobCardRefund.
func (r *Rail) SendRefund(ctx context.Context, refundID []byte) error {
	r.mu.Lock()
	db, now, way := r.db, r.now, r.way
	r.mu.Unlock()
	if now.Unreachable != "" {
		return toll.NewError(now.Unreachable)
	}
	orderID, err := read[string](ctx, db, refundName(string(refundID)))
	if err != nil {
		return err
	}
	return r.moved(ctx, way, orderID, false, func(m *money) {
		for i := range m.Refunds {
			switch re := &m.Refunds[i]; {
			case re.ID != string(refundID) || re.State != refundBegun:
			case now.NoRefund != "":
				re.State, re.Failure = refundFailed, now.NoRefund
			default:
				re.State = refundDone
			}
		}
	})
}

// Refund is one that the operator makes at the processor.
func (r *Rail) Refund(orderID string, cents int64) error {
	return r.reportMoney(orderID, false, func(m *money) {
		m.Refunds = append(m.Refunds, refund{ID: toll.NewUUID(), Cents: cents, State: refundDone})
	})
}

// FailRefunds is what the processor says later of the refunds of an order: none of them arrived.
func (r *Rail) FailRefunds(orderID string) error {
	return r.reportMoney(orderID, false, func(m *money) {
		for i := range m.Refunds {
			m.Refunds[i].State, m.Refunds[i].Failure = refundFailed, "the account is closed"
		}
	})
}

// Dispute is what the bank says of a payment: a word of store.Order, or "" for an inquiry.
func (r *Rail) Dispute(orderID, word string) error {
	return r.reportMoney(orderID, word == "", func(m *money) {
		if word != "" {
			m.Dispute = word
		}
	})
}

func (r *Rail) reportMoney(orderID string, inquiry bool, what func(m *money)) error {
	_, way, err := r.known(orderID)
	if err != nil {
		return err
	}
	return r.moved(context.Background(), way, orderID, inquiry, what)
}

// moved changes what became of the money of an order, and has the order take it.
func (r *Rail) moved(ctx context.Context, way rail.Orders, orderID string, inquiry bool, what func(m *money)) error {
	o, _, err := r.known(orderID)
	if err != nil {
		return err
	}
	return way.Change(ctx, o.purchase.Account, func(t *rail.Tx) error {
		m, err := read[money](ctx, t, moneyName(orderID))
		if err != nil {
			return err
		}
		what(&m)
		a := m.adjustment()
		a.Inquiry = inquiry
		if err := t.Adjust(orderID, a); err != nil {
			return err
		}
		return keep(ctx, t.Tx, moneyName(orderID), m)
	})
}

// ReplaceURL is that of rail.Pages.
func (r *Rail) ReplaceURL(_ toll.Address, orderID string, ends time.Time) (string, error) {
	return "https://toll.example/checkout/" + orderID + "/again?until=" + ends.UTC().Format(time.RFC3339), nil
}

func (r *Rail) Page(_ context.Context, orderID string, _ bool) (rail.Shown, error) {
	return rail.Shown{URL: "https://pay.example/" + orderID}, nil
}

// EndUnpaid implements rail.Pages: no page ends.
func (r *Rail) EndUnpaid(context.Context, string) (bool, error) { return false, nil }

var (
	_ rail.Refunder = (*Rail)(nil)
	_ rail.Pages    = (*Rail)(nil)
)
