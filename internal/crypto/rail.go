package crypto

import (
	"context"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/checkout"
)

// Rail returns the chain as checkout sees it, nil when it is off.
func (n *Network) Rail() checkout.Rail {
	if n.source == sourceNone {
		return nil
	}
	return rail{n}
}

// rail is the chain as checkout sees it. Each call starts the chain when it does not run yet.
type rail struct{ network *Network }

var (
	_ checkout.Rail      = rail{}
	_ checkout.Delegator = rail{}
	_ checkout.Seller    = rail{}
)

func (r rail) Pay(ctx context.Context, p checkout.Purchase) (checkout.Payment, error) {
	n, err := r.network.need(ctx)
	if err != nil {
		return checkout.Payment{}, err
	}
	purchase := chain.Purchase{
		OrderID: p.OrderID, Account: p.Account, Subscriber: p.Subscriber, Token: p.Plan.Price.PayToken(r.network.env()), Receivers: p.Receivers, Amounts: p.Amounts,
		Total: p.Total, TopUp: p.TopUp,
	}
	if p.Delegation != nil {
		d := delegationOf(p.Delegation)
		purchase.Delegation = &d
	}
	o, err := n.rail.Pay(ctx, purchase)
	return paymentOf(o), err
}

func (r rail) Outcome(ctx context.Context, orderID string) (checkout.Payment, error) {
	n, err := r.network.need(ctx)
	if err != nil {
		return checkout.Payment{}, err
	}
	o, err := n.rail.Outcome(ctx, orderID)
	return paymentOf(o), err
}

func (r rail) SignatureRequest(ctx context.Context, d *checkout.Delegation) (*checkout.SignatureRequest, error) {
	n, err := r.network.need(ctx)
	if err != nil {
		return nil, err
	}
	req, err := n.rail.DelegationRequest(ctx, delegationOf(d))
	if err != nil {
		return nil, err
	}
	return &checkout.SignatureRequest{TypedData: req.TypedData, Account: toll.Address(req.Account), CodeRequired: req.CodeRequired}, nil
}

func (r rail) CheckSignature(ctx context.Context, d *checkout.Delegation) error {
	n, err := r.network.need(ctx)
	if err != nil {
		return err
	}
	return n.rail.CheckSignature(ctx, delegationOf(d))
}

func (r rail) Revoke(ctx context.Context, d *checkout.Delegation) (done bool, err error) {
	n, err := r.network.need(ctx)
	if err != nil {
		return false, err
	}
	return n.rail.Revoke(ctx, delegationOf(d))
}

func (r rail) Revocation(ctx context.Context, d *checkout.Delegation) (*checkout.Call, error) {
	n, err := r.network.need(ctx)
	if err != nil {
		return nil, err
	}
	call, err := n.rail.Revocation(delegationOf(d))
	if err != nil {
		return nil, err
	}
	return &checkout.Call{To: toll.Address(call.To), Data: call.Data}, nil
}

// Domain does not start the chain: what is sold is told while nobody buys.
func (r rail) Domain(token toll.Address) (evm.Domain, bool) {
	return chain.TokenDomain(r.network.chainID(), token)
}

func (r rail) Accepts(ctx context.Context, account toll.Address, digest [32]byte, signature []byte) (bool, error) {
	n, err := r.network.need(ctx)
	if err != nil {
		return false, err
	}
	return n.rail.Accepts(ctx, account, digest, signature)
}

func (r rail) CheckSale(ctx context.Context, s checkout.Sale) (used bool, err error) {
	n, err := r.network.need(ctx)
	if err != nil {
		return false, err
	}
	return n.rail.CheckSale(ctx, chain.Sale(s))
}

func (r rail) Sell(ctx context.Context, s checkout.Sale) (checkout.Payment, error) {
	n, err := r.network.need(ctx)
	if err != nil {
		return checkout.Payment{}, err
	}
	o, err := n.rail.Sell(ctx, chain.Sale(s))
	return paymentOf(o), err
}

func (r rail) Dead(ctx context.Context, s checkout.Sale) (bool, error) {
	n, err := r.network.need(ctx)
	if err != nil {
		return false, err
	}
	return n.rail.Dead(ctx, chain.Sale(s))
}

func delegationOf(d *checkout.Delegation) chain.Delegation {
	return chain.Delegation{
		ID: d.ID, Owner: d.Owner, OwnerAccount: d.OwnerAccount, Currency: d.Currency, LimitCents: d.LimitCents, CreatedAt: d.CreatedAt,
		ExpiresAt: d.ExpiresAt, AllowedRecipients: d.AllowedRecipients, Signature: d.Signature, Authorization: d.Authorization,
	}
}

// paymentOf needs no table: the states of an operation have the words of orders.
func paymentOf(o chain.Outcome) checkout.Payment {
	p := checkout.Payment{Status: toll.OrderStatus(o.State)}
	if p.Status == "" {
		p.Status = toll.OrderCreated
	}
	if o.Tx != (common.Hash{}) {
		p.TxHash = o.Tx.Hex()
	}
	if f := o.Failure; f != nil && o.State == chain.Failed {
		p.FailureCode, p.FailureReason, p.Params = f.Code, f.Reason, f.Params
		p.Ended = f.Place != (chain.Place{})
	}
	return p
}
