package facilitator

import (
	"context"
	"errors"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/refusal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// name keeps the payment identifier of a payment, if it has one. The error is [store.IsUnique] when the wallet used it before: names
// are per wallet, over its plans and calls. A payment that the chain has ended gives its name back.
func (p *exactPayment) name(ctx context.Context, tx *store.Tx, id string) error {
	if p.payment.PaymentIdentifier == "" {
		return nil
	}
	return store.PutSaleIdentifier(ctx, tx, &store.SaleIdentifier{
		Subscriber: p.signed.From, Identifier: p.payment.PaymentIdentifier, Content: p.content, OrderID: id,
	})
}

// named returns what the wallet pays under the payment identifier of a payment, by another authorization; nil when it has not used it.
func (f *Facilitator) named(ctx context.Context, q store.Querier, p *exactPayment) (*store.ExactPayment, *toll.Error) {
	if p.payment.PaymentIdentifier == "" {
		return nil, nil
	}
	is, err := store.SaleByIdentifier(ctx, q, p.signed.From, p.payment.PaymentIdentifier)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, toll.AsError(err)
	}
	known, err := store.ExactPaymentByID(ctx, q, is.OrderID)
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return nil, toll.AsError(err)
	case err != nil, known.Server != p.server, is.Content != p.content:
		return nil, refusal.New(toll.CodeSettleConflict, x402.ReasonIdentifierConflict, "This payment identifier was used before with other content.")
	}
	return known, nil
}
