package checkout_test

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store/storetest"
)

// outside is a rail that fails the test when it is called inside a transaction: what it does may reach the network.
type outside struct {
	*railtest.Rail
	s *shop
}

func (o outside) check() {
	o.s.Helper()
	if storetest.InTransaction() {
		o.s.Error("a rail is called inside a transaction")
	}
}

// ordered fails the test when a rail is not told when an order was placed: its payment is searched for since then.
func (o outside) ordered(at time.Time) {
	o.s.Helper()
	if at.IsZero() {
		o.s.Error("a rail is not told when an order was placed")
	}
}

func (o outside) Pay(ctx context.Context, p rail.Purchase) (rail.Payment, error) {
	o.check()
	o.ordered(p.OrderedAt)
	return o.Rail.Pay(ctx, p)
}

func (o outside) Outcome(ctx context.Context, orderID string) (rail.Payment, error) {
	o.check()
	return o.Rail.Outcome(ctx, orderID)
}

func (o outside) SignatureRequest(ctx context.Context, d *rail.Delegation) (*rail.SignatureRequest, error) {
	o.check()
	return o.Rail.SignatureRequest(ctx, d)
}

func (o outside) CheckSignature(ctx context.Context, d *rail.Delegation) error {
	o.check()
	return o.Rail.CheckSignature(ctx, d)
}

func (o outside) Revoke(ctx context.Context, d *rail.Delegation) (bool, error) {
	o.check()
	return o.Rail.Revoke(ctx, d)
}

func (o outside) Revocation(ctx context.Context, d *rail.Delegation) (*rail.Call, error) {
	o.check()
	return o.Rail.Revocation(ctx, d)
}

func (o outside) Accepts(ctx context.Context, account toll.Address, digest [32]byte, signature []byte) (bool, error) {
	o.check()
	return o.Rail.Accepts(ctx, account, digest, signature)
}

func (o outside) CheckSale(ctx context.Context, s rail.Sale) (bool, error) {
	o.check()
	return o.Rail.CheckSale(ctx, s)
}

func (o outside) Sell(ctx context.Context, s rail.Sale) (rail.Payment, error) {
	o.check()
	o.ordered(s.OrderedAt)
	return o.Rail.Sell(ctx, s)
}

func (o outside) Dead(ctx context.Context, s rail.Sale) (bool, error) {
	o.check()
	return o.Rail.Dead(ctx, s)
}
