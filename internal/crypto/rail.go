package crypto

import (
	"context"

	"github.com/ethereum/go-ethereum/common"

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

// lazyRail is the chain as checkout sees it. Each call starts the chain when it does not run yet.
type lazyRail struct{ network *Network }

var (
	_ rail.Rail      = lazyRail{}
	_ rail.Delegator = lazyRail{}
	_ rail.Seller    = lazyRail{}
)

func (r lazyRail) Pay(ctx context.Context, p rail.Purchase) (rail.Payment, error) {
	n, err := r.network.need(ctx)
	if err != nil {
		return rail.Payment{}, err
	}
	purchase := chain.Purchase{
		OrderID: p.OrderID, Account: p.Account, OrderedAt: p.OrderedAt, Subscriber: p.Subscriber, Token: p.Token,
		Receivers: p.Receivers, Amounts: p.Amounts, Total: p.Total, TopUp: p.TopUp,
	}
	if p.Delegation != nil {
		d := delegationOf(p.Delegation)
		purchase.Delegation = &d
	}
	o, err := n.rail.Pay(ctx, purchase)
	return paymentOf(o), err
}

func (r lazyRail) Outcome(ctx context.Context, orderID string) (rail.Payment, error) {
	n, err := r.network.need(ctx)
	if err != nil {
		return rail.Payment{}, err
	}
	o, err := n.rail.Outcome(ctx, orderID)
	return paymentOf(o), err
}

func (r lazyRail) SignatureRequest(ctx context.Context, d *rail.Delegation) (*rail.SignatureRequest, error) {
	n, err := r.network.need(ctx)
	if err != nil {
		return nil, err
	}
	req, err := n.rail.DelegationRequest(ctx, delegationOf(d))
	if err != nil {
		return nil, err
	}
	return &rail.SignatureRequest{TypedData: req.TypedData, Account: toll.Address(req.Account), CodeRequired: req.CodeRequired}, nil
}

func (r lazyRail) CheckSignature(ctx context.Context, d *rail.Delegation) error {
	n, err := r.network.need(ctx)
	if err != nil {
		return err
	}
	return n.rail.CheckSignature(ctx, delegationOf(d))
}

func (r lazyRail) Revoke(ctx context.Context, d *rail.Delegation) (done bool, err error) {
	n, err := r.network.need(ctx)
	if err != nil {
		return false, err
	}
	return n.rail.Revoke(ctx, delegationOf(d))
}

func (r lazyRail) Revocation(ctx context.Context, d *rail.Delegation) (*rail.Call, error) {
	n, err := r.network.need(ctx)
	if err != nil {
		return nil, err
	}
	call, err := n.rail.Revocation(delegationOf(d))
	if err != nil {
		return nil, err
	}
	return &rail.Call{To: toll.Address(call.To), Data: call.Data}, nil
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
	n, err := r.network.need(ctx)
	if err != nil {
		return false, err
	}
	return n.rail.CheckSale(ctx, chain.Sale(s))
}

func (r lazyRail) Sell(ctx context.Context, s rail.Sale) (rail.Payment, error) {
	n, err := r.network.need(ctx)
	if err != nil {
		return rail.Payment{}, err
	}
	o, err := n.rail.Sell(ctx, chain.Sale(s))
	return paymentOf(o), err
}

func (r lazyRail) Dead(ctx context.Context, s rail.Sale) (bool, error) {
	n, err := r.network.need(ctx)
	if err != nil {
		return false, err
	}
	return n.rail.Dead(ctx, chain.Sale(s))
}

func delegationOf(d *rail.Delegation) chain.Delegation {
	return chain.Delegation{
		ID: d.ID, Owner: d.Owner, OwnerAccount: d.OwnerAccount, Currency: d.Currency, LimitCents: d.LimitCents, CreatedAt: d.CreatedAt,
		ExpiresAt: d.ExpiresAt, AllowedRecipients: d.AllowedRecipients, Signature: d.Signature, Authorization: d.Authorization,
	}
}

// paymentOf needs no table: the states of an operation have the words of orders.
func paymentOf(o chain.Outcome) rail.Payment {
	p := rail.Payment{Outcome: rail.Outcome{Status: toll.OrderStatus(o.State)}}
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
