package checkout_test

import (
	"context"
	"sync/atomic"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
)

// flippingRail refuses the first time, and has paid the second time.
type flippingRail struct{ calls atomic.Int64 }

func (r *flippingRail) Pay(context.Context, checkout.Purchase) (checkout.Payment, error) {
	if r.calls.Add(1) == 1 {
		return checkout.Payment{Status: toll.OrderFailed}, nil
	}
	return checkout.Payment{Status: toll.OrderConfirmed, TxHash: toll.Hash{1}.String()}, nil
}

func (r *flippingRail) Outcome(ctx context.Context, _ string) (checkout.Payment, error) {
	return r.Pay(ctx, checkout.Purchase{})
}
