package pay

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/refusal"
	"github.com/tollhq/toll/x402"
)

// Release gives a hold back without a burn and ends its request; a repeat gets the same answer. Only the owner of the plan
// may. Errors: [toll.CodeSettlementNotFound] also for requests of other builders, [toll.CodeReleaseOfSettled], and for a stock
// body those of its payment.
func (f *Facilitator) Release(ctx context.Context, caller toll.Address, req *x402.ReleaseRequest) (*x402.ReleaseResponse, error) {
	var r *request
	var err error
	if req.Stock != nil {
		r, err = f.paidBy(ctx, caller, req.Stock)
	} else {
		r, err = f.Requests.owned(ctx, caller, req.AgentRequestID)
	}
	if err != nil {
		return nil, err
	}
	out, err := f.Ledger.Release(ctx, r.Request.Account, r.ID)
	switch {
	case ledger.IsRefused(err, ledger.SettledAlready):
		return nil, toll.NewError(toll.CodeReleaseOfSettled).WithDetails("agentRequestId %s", r.ID)
	case ledger.IsRefused(err, ledger.UnknownRequest):
		return nil, noSettlement()
	case err != nil:
		return nil, refusal.By(f.brand.Names, err)
	}
	return &x402.ReleaseResponse{Success: true, AgentRequestID: out.RequestID, Status: out.Status.String(), Released: out.Amount}, nil
}

// Renew moves the end of an open hold to its life from now, at most to [ledger.MaxHoldLife] after its creation. It takes no credits, and a
// repeat is harmless. Only the owner of the plan may. Errors: [toll.CodeSettlementNotFound] also for requests of other builders,
// [toll.CodeHoldOver], [toll.CodeSettleConflict] for an id that names open holds of several accounts.
func (f *Facilitator) Renew(ctx context.Context, caller toll.Address, req *x402.RenewRequest) (*x402.RenewResponse, error) {
	if req.HoldSecs < 0 || req.HoldSecs > x402.MaxHoldSecs {
		return nil, refusal.Malformed("holdSecs", "must be 1 to 900")
	}
	r, err := f.Requests.owned(ctx, caller, req.AgentRequestID)
	if err != nil {
		return nil, err
	}
	held, err := f.Ledger.Renew(ctx, r.Request.Account, r.ID, holdLife(req.HoldSecs))
	if ledger.IsRefused(err, ledger.UnknownRequest) {
		return nil, noSettlement()
	}
	if err != nil {
		return nil, refusal.By(f.brand.Names, err)
	}
	return &x402.RenewResponse{Success: true, AgentRequestID: held.RequestID, HeldAmount: held.Amount, HoldExpiresAt: toll.At(held.Until)}, nil
}

// paidBy returns the request that the payment of a stock body names.
func (f *Facilitator) paidBy(ctx context.Context, caller toll.Address, stock *x402.StockPayment) (*request, error) {
	p, e := f.read(ctx, caller, newAsked(stock, nil, "", ""))
	if e != nil {
		if e.Code == toll.CodeNotPlanOwner {
			return nil, noSettlement()
		}
		return nil, e
	}
	found, ok, err := f.known(ctx, p, "")
	if err != nil {
		return nil, toll.AsError(err)
	}
	if !ok {
		return nil, noSettlement()
	}
	return f.Requests.allowed(ctx, found, ownerOnly(caller))
}
