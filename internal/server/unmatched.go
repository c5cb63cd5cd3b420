package server

import (
	"context"
	"strconv"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/crypto"
	"github.com/tollhq/toll/internal/store"
)

// maxUnmatched bounds the payments of each rail in [UnmatchedPayments].
const maxUnmatched = 1_000

// Rails of an [Unmatched].
const (
	unmatchedCard   = "card"
	unmatchedCrypto = "crypto"
)

// Unmatched is money that a rail reports and no order explains: what was paid after the moment of a
// restored backup, for instance.
type Unmatched struct {
	Rail       string         `json:"rail"`                 // "card" or "crypto"
	ID         string         `json:"id"`                   // object at the card processor; block and number of a log
	OrderID    string         `json:"orderId,omitempty"`    // that the payment claims; there may be no such order
	Plan       toll.PlanID    `json:"planId,omitempty"`     // that the payment claims
	Subscriber *toll.Address  `json:"subscriber,omitempty"` // that the payment claims; of crypto who paid
	Cents      toll.Cents     `json:"cents,omitempty"`      // cards only
	Currency   string         `json:"currency,omitempty"`   // cards only
	TxHash     string         `json:"txHash,omitempty"`     // crypto only
	Block      uint64         `json:"block,omitempty"`      // crypto only
	Paid       []crypto.Moved `json:"paid,omitempty"`       // crypto only: transfers of USDC and EURC
	SeenAt     *toll.Time     `json:"seenAt,omitempty"`     // cards only
	Reason     string         `json:"reason"`
	Resolution string         `json:"resolution,omitempty"` // what an operator did: granted, refunding, refunded, settled
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
			out = append(out, unmatchedOfCard(o))
		}
		events, err := crypto.Unmatched(ctx, f.store, maxUnmatched)
		if err != nil {
			return err
		}
		for i := range events {
			out = append(out, unmatchedOfChain(&events[i]))
		}
		return nil
	})
	return out, err
}

func unmatchedOfCard(o *store.CardOrphan) Unmatched {
	seen := toll.At(o.SeenAt)
	u := Unmatched{
		Rail: unmatchedCard, ID: o.Object, OrderID: o.OrderID, Plan: o.Plan, Cents: toll.Cents(o.Cents),
		Currency: o.Currency, SeenAt: &seen, Reason: o.Reason, Resolution: o.Resolution,
	}
	if !o.Subscriber.IsZero() {
		u.Subscriber = &o.Subscriber
	}
	return u
}

func unmatchedOfChain(o *crypto.UnmatchedEvent) Unmatched {
	u := Unmatched{
		Rail: unmatchedCrypto, ID: o.BlockHash.String() + ":" + strconv.FormatInt(o.LogIndex, 10), TxHash: o.TxHash,
		Block: uint64(o.Block), Paid: o.Paid, Reason: o.Reason, Resolution: o.Resolution,
	}
	if len(o.Paid) > 0 {
		u.Subscriber = &o.Paid[0].From
	}
	return u
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
			len(events), events[0].TxHash)
	}
}
