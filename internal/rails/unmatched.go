package rails

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/check"
	"github.com/tollhq/toll/internal/store"
)

// maxUnmatched bounds the payments of each rail in [UnmatchedPayments].
const maxUnmatched = 1_000

// currencyDecimals are those of dollars, euros, USDC and EURC.
const currencyDecimals = 6

// Unmatched is a payment that a rail reports and that belongs to no order, such as one made after the restored backup was taken.
type Unmatched struct {
	Rail       string        `json:"rail"`                 // "card" or "crypto"
	ID         string        `json:"id"`                   // object at the card processor; block and number of a log
	OrderID    string        `json:"orderId,omitempty"`    // that the payment claims; there may be no such order
	Plan       toll.PlanID   `json:"planId,omitempty"`     // that the payment claims
	Subscriber *toll.Address `json:"subscriber,omitempty"` // that the payment claims; of crypto who paid
	Amount     string        `json:"amount"`               // in whole units of Currency; of several transfers all, in the order of Paid
	Currency   string        `json:"currency"`             // of Amount, in the same order
	Cents      toll.Cents    `json:"cents,omitempty"`      // cards only
	Left       *toll.Cents   `json:"leftCents,omitempty"`  // cards only: what is neither refunded nor withdrawn by a dispute
	Token      string        `json:"token,omitempty"`      // crypto only: address of the token of each transfer
	Receiver   string        `json:"receiver,omitempty"`   // crypto only: receiver of each transfer
	TxHash     string        `json:"txHash,omitempty"`     // crypto only
	Block      uint64        `json:"block,omitempty"`      // crypto only
	Paid       []Moved       `json:"paid,omitempty"`       // crypto only: transfers of USDC and EURC
	SeenAt     *toll.Time    `json:"seenAt,omitempty"`     // cards only
	Reason     string        `json:"reason"`
	Resolution string        `json:"resolution,omitempty"` // what an operator did: granted, refunding, refunded, settled
}

// Moved is money that an operation moved, in base units of a token.
type Moved struct {
	Token  toll.Address `json:"token"`
	From   toll.Address `json:"from"`
	To     toll.Address `json:"to"`
	Amount toll.Units   `json:"amount"`
}

// UnmatchedPayments returns the payments that no order explains and that no operator has resolved: at most 1,000 of each rail, the oldest
// first. The rails record them as they read.
func UnmatchedPayments(ctx context.Context, q store.Querier) ([]Unmatched, error) {
	out := []Unmatched{}
	cards, err := store.CardOrphans(ctx, q, maxUnmatched)
	if err != nil {
		return nil, err
	}
	for _, o := range cards {
		out = append(out, UnmatchedOfCard(o))
	}
	events, err := store.ChainOrphans(ctx, q, maxUnmatched)
	if err != nil {
		return nil, err
	}
	for i := range events {
		u, err := UnmatchedOfChain(&events[i])
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, nil
}

// UnmatchedOfCard returns the description of a payment that [card] recorded without an order.
func UnmatchedOfCard(o *store.CardOrphan) Unmatched {
	seen, left := toll.At(o.SeenAt), toll.Cents(o.Left())
	u := Unmatched{
		Rail: store.RailCard, ID: o.Object, OrderID: o.OrderID, Plan: o.Plan, Cents: toll.Cents(o.Cents), Left: &left,
		Amount: toll.FormatAmount(toll.UnitsOfCents(o.Cents), currencyDecimals), Currency: o.Currency, SeenAt: &seen, Reason: o.Reason, Resolution: o.Resolution,
	}
	if !o.Subscriber.IsZero() {
		u.Subscriber = &o.Subscriber
	}
	return u
}

// UnmatchedOfChain returns the description of an operation that [chain] recorded without an order. Error: a record that cannot be read.
func UnmatchedOfChain(row *store.ChainOrphan) (Unmatched, error) {
	var o chain.Orphan
	if err := json.Unmarshal(row.Data, &o); err != nil {
		return Unmatched{}, err
	}
	u := Unmatched{
		Rail: store.RailCrypto, ID: row.BlockHash.String() + ":" + strconv.FormatInt(row.LogIndex, 10), TxHash: o.Tx.Hex(),
		Block: uint64(row.Block), Reason: o.Reason, Resolution: row.Resolution,
	}
	var amounts, currencies, tokens, receivers []string
	for _, p := range o.Paid {
		m := Moved{Token: toll.Address(p.Token), From: toll.Address(p.From), To: toll.Address(p.To), Amount: p.Amount}
		u.Paid = append(u.Paid, m)
		amounts = append(amounts, toll.FormatAmount(m.Amount, currencyDecimals))
		currencies = append(currencies, toll.Price{IsCrypto: true, TokenAddress: m.Token}.CurrencyName())
		tokens, receivers = append(tokens, m.Token.String()), append(receivers, m.To.String())
	}
	if len(u.Paid) > 0 {
		u.Subscriber = &u.Paid[0].From
	}
	u.Amount, u.Currency, u.Token, u.Receiver = strings.Join(amounts, ", "), listed(currencies), listed(tokens), listed(receivers)
	return u, nil
}

// inspectUnmatched reports operations of the chain without an order. [CardConfig.Inspect] reports payments by card.
func inspectUnmatched(ctx context.Context, q store.Querier, add check.Report) {
	events, err := store.ChainOrphans(ctx, q, maxUnmatched)
	var first Unmatched
	if err == nil && len(events) > 0 {
		first, err = UnmatchedOfChain(&events[0])
	}
	switch {
	case err != nil:
		add("unmatched payments", check.Failed, "%s", err)
	case len(events) > 0:
		add("unmatched payments", check.Warning, "%d operations on the chain do not belong to an order, such as transaction %s: list them with toll orders unmatched",
			len(events), first.TxHash)
	}
}

// listed joins values, and returns one that all have alone.
func listed(values []string) string {
	if same := slices.Compact(slices.Clone(values)); len(same) == 1 {
		return same[0]
	}
	return strings.Join(values, ", ")
}

// ChainRead reports whether the chain was read up to its head since the database was restored.
func ChainRead(ctx context.Context, q store.Querier) (bool, error) {
	return store.ChainRead(ctx, q, chain.CursorReader)
}

// EventsRead is [card.EventsRead].
func EventsRead(ctx context.Context, q store.Querier, until time.Time) (bool, error) {
	return card.EventsRead(ctx, q, until)
}
