package purchases

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/refusal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// exactTerms returns what a server of the caller asks of a wallet, without the names of its entry, when payments of that are settled
// here.
func (x *Exact) terms(ctx context.Context, caller toll.Address, asked *x402.Requirements) (*saleTerms, *toll.Error) {
	if !x.open {
		return nil, refusal.New(toll.CodeUnsupportedScheme, x402.ReasonUnsupportedScheme, "This service settles payments of wallets for its own plans alone.").
			WithHint("Its operator opens it with x402.exact = open.")
	}
	seller := x.checkout.Seller()
	if seller == nil {
		return nil, toll.NewError(toll.CodeChainUnreachable)
	}
	if asked.Network != x.brand.Environment.Network() {
		return nil, refusal.New(toll.CodeUnsupportedScheme, x402.ReasonInvalidNetwork, "The network of this service is "+x.brand.Environment.Network()+".")
	}
	token, err := toll.ParseAddress(asked.Asset)
	domain, ok := seller.Domain(token)
	if err != nil || !ok {
		return nil, refusal.New(toll.CodeBadRequirements, x402.ReasonInvalidRequirements, "The asset is neither USDC nor EURC of the network.")
	}
	payTo, err1 := toll.ParseAddress(asked.PayTo)
	amount, err2 := toll.ParseCredits(asked.Amount) // base units of an answer have the range of credits
	if err1 != nil || err2 != nil || amount == 0 {
		return nil, refusal.New(toll.CodeBadRequirements, x402.ReasonInvalidRequirements, "payTo or amount cannot be used.")
	}
	ours, err := store.IsReceiver(ctx, x.store, caller, payTo)
	if err != nil {
		return nil, toll.AsError(err)
	}
	if !ours {
		return nil, refusal.New(toll.CodeNotPlanOwner, x402.ReasonUnauthorizedServer, "payTo is the receiver of none of your plans.")
	}
	return newSaleTerms(asked.Network, domain, token, payTo, toll.UnitsOf(int64(amount)), asked.MaxTimeoutSeconds), nil
}
