package fiat

import (
	"context"
	"time"

	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/store"
)

// RestorePayment is [card.RestorePayment].
func RestorePayment(ctx context.Context, tx *store.Tx, order *store.Order, o *store.CardOrphan) error {
	return card.RestorePayment(ctx, tx, order, o)
}

// RefundOrphan is [card.RefundOrphan].
func RefundOrphan(ctx context.Context, tx *store.Tx, o *store.CardOrphan, now time.Time) error {
	return card.RefundOrphan(ctx, tx, o, now)
}

// IsPayment is [card.IsPayment].
func IsPayment(object string) bool { return card.IsPayment(object) }

// EventsRead is [card.EventsRead].
func EventsRead(ctx context.Context, q store.Querier, until time.Time) (bool, error) {
	return card.EventsRead(ctx, q, until)
}
