package rails

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/store"
)

// Payout is money that the operator paid to a builder by other means. A negative one corrects others of its month.
type Payout struct {
	ID       string       `json:"payoutId"` // UUID
	Builder  toll.Address `json:"builder"`
	Month    string       `json:"month"` // what it is for, YYYY-MM in UTC
	Currency string       `json:"currency"`
	Cents    toll.Cents   `json:"amountCents"`
	Note     string       `json:"note"`
	PaidAt   toll.Time    `json:"paidAt"`
}

// ErrNotOwed says that a payout is more than its builder is owed.
var ErrNotOwed = errors.New("the payout exceeds what the builder is owed")

// maxNote bounds the note of a payout, in bytes.
const maxNote = 1000

var (
	months     = regexp.MustCompile(`^[0-9]{4}-(0[1-9]|1[0-2])$`)
	currencies = regexp.MustCompile(`^[a-z]{3}$`) // that in which the account is paid, which may be any
)

// MarkPayout records a payout. A repeat with its id changes nothing. A correction, of -[toll.MaxCents] to -1 cents, needs a note, and
// takes back at most what is recorded for the builder, month and currency. Errors: faults of the members, [ErrNotOwed] unless beyond.
func MarkPayout(ctx context.Context, st *store.Store, p Payout, beyond bool) error {
	switch {
	case !months.MatchString(p.Month):
		return fmt.Errorf("the month must have the form YYYY-MM; got %q", p.Month)
	case !currencies.MatchString(p.Currency):
		return fmt.Errorf("the currency must be three lowercase letters; got %q", p.Currency)
	case p.Cents == 0 || p.Cents < -toll.MaxCents || p.Cents > toll.MaxCents:
		return fmt.Errorf("the amount must be 1 to %s cents, or the same range below 0 for a correction; got %s", toll.MaxCents, p.Cents)
	case p.Cents < 0 && strings.TrimSpace(p.Note) == "":
		return errors.New("a correction needs a note with its reason")
	case len(p.Note) > maxNote:
		return fmt.Errorf("the note must have at most %d bytes", maxNote)
	}
	row := store.CardPayout{
		ID: p.ID, Seller: p.Builder, Month: p.Month, Currency: p.Currency, Cents: int64(p.Cents), Note: p.Note, PaidAt: p.PaidAt.Time,
	}
	return st.Tx(ctx, func(tx *store.Tx) error {
		// Two payouts at a time must not both find the same money unpaid.
		if _, err := store.PutSettingIfAbsent(ctx, tx, settingPayouts, nil); err != nil {
			return err
		}
		if _, err := store.LockSetting(ctx, tx, settingPayouts); err != nil {
			return err
		}
		known, err := store.CardPayouts(ctx, tx, p.Month)
		if err != nil {
			return err
		}
		for _, k := range known {
			if k.ID != p.ID {
				continue
			}
			if k.Seller != p.Builder || k.Currency != p.Currency || k.Cents != row.Cents {
				return fmt.Errorf("another payout with the id %s is already recorded", p.ID)
			}
			return nil
		}
		switch {
		case p.Cents < 0:
			err = corrects(known, &p)
		case !beyond:
			err = owes(ctx, tx, &p)
		}
		if err != nil {
			return err
		}
		if err := store.InsertCardPayout(ctx, tx, &row); err != nil {
			return err
		}
		act := store.Act{Act: "payout.marked", Object: p.ID, Detail: store.Changed{After: p}}
		of := act
		of.Workspace = p.Builder.Lower()
		return store.AuditAll(ctx, tx, row.PaidAt, act, of)
	})
}

// settingPayouts is locked while a payout is recorded.
const settingPayouts = "card_payouts"

// corrects refuses a correction of more than was paid out.
func corrects(known []*store.CardPayout, p *Payout) error {
	paid := toll.Cents(0)
	for _, k := range known {
		if k.Seller == p.Builder && k.Currency == p.Currency {
			paid += toll.Cents(k.Cents)
		}
	}
	if paid+p.Cents < 0 {
		return fmt.Errorf("only payouts of %s cents in %s for %s are recorded, but this correction is %s", paid, strings.ToUpper(p.Currency), p.Month, p.Cents)
	}
	return nil
}

// owes refuses a payout of more than is owed.
func owes(ctx context.Context, tx *store.Tx, p *Payout) error {
	all, err := card.OwedOf(ctx, tx, p.Month)
	due := toll.Cents(0)
	for _, o := range all {
		if o.Builder == p.Builder && o.Currency == p.Currency {
			due = o.Due
		}
	}
	if err == nil && p.Cents > due {
		err = fmt.Errorf("%w: %s cents in %s for %s are owed, but this payout is %s", ErrNotOwed, due, strings.ToUpper(p.Currency), p.Month, p.Cents)
	}
	return err
}

// CardEvidence is the story of a payment by card, for the answer to a dispute.
type CardEvidence struct {
	Builder   toll.Address      `json:"builder"`
	Payer     toll.Address      `json:"payer"`
	State     string            `json:"state"`
	Cents     toll.Cents        `json:"amountCents"`
	Currency  string            `json:"currency"`
	Attempts  int64             `json:"attempts"`
	ByPage    bool              `json:"byPage"` // a person paid on a page; else a card was charged within a delegation
	Session   string            `json:"checkoutSession,omitempty"`
	Intent    string            `json:"paymentIntent,omitempty"`
	Charge    string            `json:"charge,omitempty"`
	CreatedAt toll.Time         `json:"createdAt"`
	PaidAt    *toll.Time        `json:"paidAt"` // by the clock of the processor; null: not paid
	Refunds   []RefundEvidence  `json:"refunds"`
	Disputes  []DisputeEvidence `json:"disputes"`
	Moves     []MoveEvidence    `json:"moves"`
}

// RefundEvidence is money that went back, or is to go back.
type RefundEvidence struct {
	ID        string     `json:"refundId"`
	Origin    string     `json:"origin"` // seller, processor, or rejected
	State     string     `json:"state"`
	Cents     toll.Cents `json:"amountCents"`
	Cards     string     `json:"processorId,omitempty"`
	CreatedAt toll.Time  `json:"createdAt"`
}

// DisputeEvidence is a payment that the holder of the card contests.
type DisputeEvidence struct {
	ID        string     `json:"disputeId"`
	State     string     `json:"state"` // the word of the processor
	Cents     toll.Cents `json:"amountCents"`
	Reason    string     `json:"reason"`
	Withdrawn bool       `json:"withdrawn"`
	DueAt     *toll.Time `json:"dueAt"` // of an answer; null: none is possible
	CreatedAt toll.Time  `json:"createdAt"`
}

// MoveEvidence is a change of the operator's balance at the processor; negative when money left.
type MoveEvidence struct {
	ID    string     `json:"moveId"`
	Kind  string     `json:"kind"`
	Cents toll.Cents `json:"amountCents"`
	Fee   toll.Cents `json:"feeCents"`
	At    toll.Time  `json:"at"`
}

// CardEvidenceOf returns the payment of an order as the records tell it. It asks nobody. Errors: [store.ErrNotFound].
func CardEvidenceOf(ctx context.Context, q store.Querier, orderID string) (*CardEvidence, error) {
	s, err := card.StoryOf(ctx, q, orderID)
	if err != nil {
		return nil, err
	}
	p := s.Payment
	e := &CardEvidence{
		Builder: p.Seller, Payer: p.Payer, State: p.State, Cents: toll.Cents(p.Cents), Currency: p.Currency, Attempts: p.Attempt,
		ByPage: p.Delegation == "", Session: p.Session, Intent: p.Intent, Charge: p.Charge, CreatedAt: toll.At(p.CreatedAt),
		PaidAt: moment(p.PaidAt), Refunds: []RefundEvidence{}, Disputes: []DisputeEvidence{}, Moves: []MoveEvidence{},
	}
	for _, r := range s.Refunds {
		e.Refunds = append(e.Refunds, RefundEvidence{r.ID, r.Origin, r.State, toll.Cents(r.Cents), r.StripeID, toll.At(r.CreatedAt)})
	}
	for _, d := range s.Disputes {
		e.Disputes = append(e.Disputes, DisputeEvidence{d.ID, d.State, toll.Cents(d.Cents), d.Reason, d.Withdrawn, moment(d.DueAt), toll.At(d.CreatedAt)})
	}
	for _, m := range s.Moves {
		e.Moves = append(e.Moves, MoveEvidence{m.ID, m.Kind, toll.Cents(m.Cents), toll.Cents(m.Fee), toll.At(m.At)})
	}
	return e, nil
}

// moment is a time that may be missing.
func moment(t time.Time) *toll.Time {
	if t.IsZero() {
		return nil
	}
	at := toll.At(t)
	return &at
}
