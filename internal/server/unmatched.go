package server

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/crypto"
	"github.com/tollhq/toll/internal/store"
)

// maxUnmatched bounds the payments of each rail in [UnmatchedPayments].
const maxUnmatched = 1_000

// Unmatched is money that a rail reports and no order explains: what was paid after the moment of a
// restored backup, for instance.
type Unmatched struct {
	Rail     string     `json:"rail"`               // "card" or "crypto"
	ID       string     `json:"id"`                 // object at the card processor, or hash of the transaction
	OrderID  string     `json:"orderId,omitempty"`  // that the payment claims; there may be no such order
	Cents    toll.Cents `json:"cents,omitempty"`    // cards only
	Currency string     `json:"currency,omitempty"` // cards only
	Block    uint64     `json:"block,omitempty"`    // crypto only
	SeenAt   *toll.Time `json:"seenAt,omitempty"`   // cards only
	Reason   string     `json:"reason"`
}

// UnmatchedPayments returns payments that no order explains and nobody has dealt with, at most 1,000 of
// each rail, the oldest first; beside a running service or not. The rails find them as they read.
func UnmatchedPayments(ctx context.Context, cfg Config) (out []Unmatched, err error) {
	out = []Unmatched{}
	err = administer(ctx, cfg, reading, func(_ Config, f *foundation) error {
		cards, err := store.CardOrphans(ctx, f.store, maxUnmatched)
		if err != nil {
			return err
		}
		for _, o := range cards {
			seen := toll.At(o.SeenAt)
			out = append(out, Unmatched{
				Rail: "card", ID: o.Object, OrderID: o.OrderID, Cents: toll.Cents(o.Cents),
				Currency: o.Currency, SeenAt: &seen, Reason: o.Reason,
			})
		}
		events, err := crypto.Unmatched(ctx, f.store, maxUnmatched)
		if err != nil {
			return err
		}
		for _, o := range events {
			out = append(out, Unmatched{Rail: "crypto", ID: o.Tx.Hex(), Block: o.Number, Reason: o.Reason})
		}
		return nil
	})
	return out, err
}

// inspectUnmatched reports operations of the chain that no order explains. Those of cards are reported
// by their room.
func inspectUnmatched(ctx context.Context, st *store.Store, add func(name, status, format string, args ...any)) {
	events, err := crypto.Unmatched(ctx, st, maxUnmatched)
	switch {
	case err != nil:
		add("unmatched payments", CheckFailed, "%s", err)
	case len(events) > 0:
		add("unmatched payments", CheckWarning,
			"%d operations on the chain belong to no order, such as that of transaction %s; toll orders unmatched lists them",
			len(events), events[0].Tx.Hex())
	}
}
