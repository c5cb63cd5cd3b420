package card

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// StoryOf returns the payment of an order as the records tell it, for the answer to a dispute. It asks nobody.
func StoryOf(ctx context.Context, q store.Querier, orderID string) (*Story, error) {
	return nil, errUnbuilt
}

// Story is the payment of an order as the rail knows it; checkout adds requests and receipts.
type Story struct {
	Payment  *store.CardPayment
	Refunds  []*store.CardRefund
	Disputes []*store.CardDispute
	Moves    []*store.CardMove
}

// Owed is what one seller is owed of a month in a currency, in cents: sums of moves by kind, and what was paid out.
type Owed struct {
	Seller                                     toll.Address
	Month, Currency                            string
	Orders                                     int64
	Charged, Refunded, Disputed, Fees, PaidOut int64
}

// OwedOf adds up a month, YYYY-MM in UTC. Each move counts in the month in which it happened. It asks nobody.
func OwedOf(ctx context.Context, q store.Querier, month string) ([]Owed, error) {
	return nil, errUnbuilt
}
