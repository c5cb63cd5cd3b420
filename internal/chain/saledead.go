package chain

import (
	"context"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll/internal/rail"
)

// Dead reports whether an authorization has moved nothing and never will: a finalized block is past its end, and its nonce is not used.
// It needs no OrderID and no Signature, and asks the chain alone, on live two endpoints.
func (r *Rail) Dead(ctx context.Context, s rail.Sale) (bool, error) {
	if err := r.start(ctx); err != nil {
		return false, err
	}
	called := "finalized"
	if r.cfg.Embedded {
		called = "latest" // as in [tracker.tag]
	}
	final, err := r.cfg.Pool.Head(ctx, called)
	if err != nil || final.Time < s.Authorization.ValidBefore {
		return false, err
	}
	used, err := r.usedForAll(ctx, &Op{
		ID: s.OrderID, Token: common.Address(s.Token), Payer: common.Address(s.Authorization.From), Sale: &SaleTerms{Nonce: s.Authorization.Nonce},
	})
	return err == nil && !used, err
}
