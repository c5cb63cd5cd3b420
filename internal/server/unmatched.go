package server

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/crypto"
	"github.com/tollhq/toll/internal/store"
)

// maxUnmatched bounds the payments of each rail in [UnmatchedPayments].
const maxUnmatched = 1_000

// currencyDecimals are those of dollars, euros, USDC and EURC.
const currencyDecimals = 6

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
	Amount     string         `json:"amount"`               // in whole units of Currency; of several transfers all, in the order of Paid
	Currency   string         `json:"currency"`             // of Amount, in the same order
	Cents      toll.Cents     `json:"cents,omitempty"`      // cards only
	Left       *toll.Cents    `json:"leftCents,omitempty"`  // cards only: what is neither refunded nor withdrawn by a dispute
	Token      string         `json:"token,omitempty"`      // crypto only: address of the token of each transfer
	Receiver   string         `json:"receiver,omitempty"`   // crypto only: receiver of each transfer
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
	seen, left := toll.At(o.SeenAt), toll.Cents(o.Left())
	u := Unmatched{
		Rail: unmatchedCard, ID: o.Object, OrderID: o.OrderID, Plan: o.Plan, Cents: toll.Cents(o.Cents), Left: &left,
		Amount: toll.FormatAmount(toll.UnitsOfCents(o.Cents), currencyDecimals), Currency: o.Currency, SeenAt: &seen, Reason: o.Reason, Resolution: o.Resolution,
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
	var amounts, currencies, tokens, receivers []string
	for _, m := range o.Paid {
		amounts = append(amounts, toll.FormatAmount(m.Amount, currencyDecimals))
		currencies = append(currencies, toll.Price{IsCrypto: true, TokenAddress: m.Token}.CurrencyName())
		tokens, receivers = append(tokens, m.Token.String()), append(receivers, m.To.String())
	}
	u.Amount, u.Currency, u.Token, u.Receiver = strings.Join(amounts, ", "), listed(currencies), listed(tokens), listed(receivers)
	return u
}

// listed joins values, and returns one that all have alone.
func listed(values []string) string {
	if same := slices.Compact(slices.Clone(values)); len(same) == 1 {
		return same[0]
	}
	return strings.Join(values, ", ")
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
