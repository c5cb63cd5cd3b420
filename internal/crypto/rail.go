package crypto

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/rail"
)

// Rail returns the chain as checkout sees it, nil when it is off.
func (n *Network) Rail() rail.Rail {
	if n.source == sourceNone {
		return nil
	}
	return lazyRail{n}
}

// lazyRail is the rail of a network. Each call starts the chain when it does not run yet.
type lazyRail struct{ network *Network }

var (
	_ rail.Delegator = lazyRail{}
	_ rail.Seller    = lazyRail{}
)

// call runs a method of the rail, which it starts when it does not run.
func call[A, B any](ctx context.Context, r lazyRail, method func(*chain.Rail, context.Context, A) (B, error), a A) (out B, err error) {
	n, err := r.network.need(ctx)
	if err != nil {
		return out, err
	}
	return method(n.rail, ctx, a)
}

func (r lazyRail) Pay(ctx context.Context, p rail.Purchase) (rail.Payment, error) {
	return call(ctx, r, (*chain.Rail).Pay, p)
}

func (r lazyRail) Outcome(ctx context.Context, orderID string) (rail.Payment, error) {
	return call(ctx, r, (*chain.Rail).Outcome, orderID)
}

func (r lazyRail) SignatureRequest(ctx context.Context, d *rail.Delegation) (*rail.SignatureRequest, error) {
	return call(ctx, r, (*chain.Rail).SignatureRequest, d)
}

func (r lazyRail) CheckSignature(ctx context.Context, d *rail.Delegation) error {
	n, err := r.network.need(ctx)
	if err != nil {
		return err
	}
	return n.rail.CheckSignature(ctx, d)
}

func (r lazyRail) Revoke(ctx context.Context, d *rail.Delegation) (done bool, err error) {
	return call(ctx, r, (*chain.Rail).Revoke, d)
}

func (r lazyRail) Revocation(ctx context.Context, d *rail.Delegation) (*rail.Call, error) {
	return call(ctx, r, (*chain.Rail).Revocation, d)
}

// Domain does not start the chain: what is sold is told while nobody buys.
func (r lazyRail) Domain(token toll.Address) (evm.Domain, bool) {
	return chain.TokenDomain(r.network.chainID(), token)
}

func (r lazyRail) Accepts(ctx context.Context, account toll.Address, digest [32]byte, signature []byte) (bool, error) {
	n, err := r.network.need(ctx)
	if err != nil {
		return false, err
	}
	return n.rail.Accepts(ctx, account, digest, signature)
}

func (r lazyRail) CheckSale(ctx context.Context, s rail.Sale) (used bool, err error) {
	return call(ctx, r, (*chain.Rail).CheckSale, s)
}

func (r lazyRail) Sell(ctx context.Context, s rail.Sale) (rail.Payment, error) {
	return call(ctx, r, (*chain.Rail).Sell, s)
}

func (r lazyRail) Dead(ctx context.Context, s rail.Sale) (bool, error) {
	return call(ctx, r, (*chain.Rail).Dead, s)
}
