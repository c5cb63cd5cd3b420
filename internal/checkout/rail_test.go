package checkout_test

import (
	"context"
	"sync/atomic"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rail"
)

// flippingRail refuses the first time, and has paid the second time.
type flippingRail struct{ calls atomic.Int64 }

func (r *flippingRail) Pay(context.Context, rail.Purchase) (rail.Payment, error) {
	if r.calls.Add(1) == 1 {
		return rail.Payment{Outcome: rail.Outcome{Status: toll.OrderFailed}}, nil
	}
	return rail.Payment{Outcome: rail.Outcome{Status: toll.OrderConfirmed, TxHash: toll.Hash{1}.String()}}, nil
}

func (r *flippingRail) Outcome(ctx context.Context, _ string) (rail.Payment, error) {
	return r.Pay(ctx, rail.Purchase{})
}
