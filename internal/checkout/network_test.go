package checkout_test

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// outside is the rail of one process. It fails the test when it is called inside a transaction where what it does may reach the
// network.
type outside struct {
	*railtest.Rail
	s   *shop
	way rail.Orders
}

func (o *outside) check() {
	o.s.Helper()
	if storetest.InTransaction() {
		o.s.Error("a rail is called inside a transaction")
	}
}

// ordered fails the test when a rail is not told when an order was placed: its payment is searched for since then.
func (o *outside) ordered(p *rail.Purchase) {
	o.s.Helper()
	if p.OrderedAt.IsZero() || p.Sale != nil && p.Sale.OrderedAt.IsZero() {
		o.s.Error("a rail is not told when an order was placed")
	}
}

func (o *outside) Connect(way rail.Orders) {
	o.way = way
	o.Rail.Connect(way)
}

func (o *outside) Prepare(ctx context.Context, p *rail.Purchase) error {
	o.check()
	if o.s.prepared != nil {
		o.s.prepared(p)
	}
	return o.Rail.Prepare(ctx, p)
}

func (o *outside) Begin(ctx context.Context, tx *store.Tx, p *rail.Purchase) error {
	o.ordered(p)
	return o.Rail.Begin(ctx, tx, p)
}

func (o *outside) Resume(ctx context.Context, p *rail.Purchase) error {
	o.check()
	o.ordered(p)
	return o.Rail.ResumeBy(ctx, o.way, p)
}

func (o *outside) Again(ctx context.Context, orderID string) (bool, error) {
	o.check()
	return o.Rail.Recheck(ctx, orderID)
}

func (o *outside) SignatureRequest(ctx context.Context, d *rail.Delegation) (*rail.SignatureRequest, error) {
	o.check()
	return o.Rail.SignatureRequest(ctx, d)
}

func (o *outside) CheckSignature(ctx context.Context, d *rail.Delegation) error {
	o.check()
	return o.Rail.CheckSignature(ctx, d)
}

func (o *outside) Revoke(ctx context.Context, d *rail.Delegation) (bool, error) {
	o.check()
	return o.Rail.Revoke(ctx, d)
}

func (o *outside) Revocation(ctx context.Context, d *rail.Delegation) (*rail.Call, error) {
	o.check()
	return o.Rail.Revocation(ctx, d)
}

func (o *outside) Refunded(ctx context.Context, refundID string) (bool, string, error) {
	o.check()
	return o.Rail.Refunded(ctx, refundID)
}

func (o *outside) Accepts(ctx context.Context, account toll.Address, digest [32]byte, signature []byte) (bool, error) {
	o.check()
	return o.Rail.Accepts(ctx, account, digest, signature)
}

func (o *outside) CheckSale(ctx context.Context, s rail.Sale) (bool, error) {
	o.check()
	return o.Rail.CheckSale(ctx, s)
}

func (o *outside) Sell(ctx context.Context, s rail.Sale) (rail.Payment, error) {
	o.check()
	return o.Rail.Sell(ctx, s)
}

func (o *outside) Dead(ctx context.Context, s rail.Sale) (bool, error) {
	o.check()
	return o.Rail.Dead(ctx, s)
}
