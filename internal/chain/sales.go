package chain

import (
	"context"
	"errors"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/rail"
)

// Bounds of [Rail.CheckSale] for the end of an authorization, in seconds after the present of the chain.
const (
	minSaleLife = 6
	maxSaleLife = 3600
)

// TokenDomain returns the domain in which holders of USDC and EURC sign (EIP-712). false for every other token.
func TokenDomain(chainID uint64, token toll.Address) (evm.Domain, bool) {
	name, version, ok := contracts.TokenDomain(chainID, common.Address(token))
	return evm.Domain{Name: name, Version: version, ChainID: new(big.Int).SetUint64(chainID), Contract: token}, ok
}

// Domain implements [rail.Seller]. It does not start the chain: prices are listed before anybody buys.
func (r *Rail) Domain(token toll.Address) (evm.Domain, bool) {
	return TokenDomain(r.cfg.ChainID, token)
}

// newSaleOp is newOp for a sale; a [*Failure] says why it cannot be paid. It does not read the
// chain: [Rail.disowned] checks a signature that the key of the payer has not made.
func (r *Rail) newSaleOp(s *rail.Sale) (*Op, error) {
	a, token := &s.Authorization, common.Address(s.Token)
	_, ok := TokenDomain(r.cfg.ChainID, s.Token)
	switch {
	case !ok:
		return nil, refusedToken(token, "Authorizations of this token are not supported.")
	case a.Value == nil || a.Value.Sign() <= 0 || a.Value.BitLen() > 256 || a.To.IsZero():
		return nil, saleFailed(toll.CodePaymentRequired, wordPayload, "The authorization must transfer an amount above zero to a receiver.")
	}
	now := r.cfg.Clock()
	op := &Op{
		ID: s.OrderID, Account: s.Account, Kind: KindSale, State: Created, Sender: r.cfg.Service, Payer: common.Address(a.From), Token: token,
		Payments: []Payment{{To: common.Address(a.To), Amount: new(big.Int).Set(a.Value)}}, Cents: cents(a.Value),
		NonceKey: userop.OrderKey(s.OrderID), Before: a.ValidBefore,
		Sale:      &SaleTerms{After: a.ValidAfter, Nonce: a.Nonce, Signature: s.Signature},
		CreatedAt: orderedAt(s.OrderedAt, now), UpdatedAt: now,
	}
	op.Digest = digest(op)
	if !r.signedByKey(op) && !signatureForm(s.Signature) {
		return nil, unsigned()
	}
	return op, nil
}

// authorization returns the authorization that pays a sale.
func (o *Op) authorization() *evm.Authorization {
	return &evm.Authorization{
		From: toll.Address(o.Payer), To: toll.Address(o.Payments[0].To), Value: o.Payments[0].Amount,
		ValidAfter: o.Sale.After, ValidBefore: o.Before, Nonce: o.Sale.Nonce,
	}
}

// Sell implements [rail.Seller]. The payment is made when the token has carried the authorization out, whoever sent it, even before this
// call. A payment that was sent fails when it cannot be carried out any more: its nonce was used otherwise, or a finalized block is past
// its end. A payment that failed before anything was sent is checked again.
//
// A failure has the reason word of the protocol in Params, as "reason". An authorization that is not a valid payment, or that pays another
// order, is not stored. A signature by code of the payer is checked before the payment begins; afterwards the token checks it. Errors:
// those of [Rail.Resume].
func (r *Rail) Sell(ctx context.Context, s rail.Sale) (rail.Payment, error) {
	if s.OrderID == "" {
		return rail.Payment{}, errors.New("chain: a purchase must have an order id")
	}
	if err := r.cfg.Start(ctx); err != nil {
		return rail.Payment{}, err
	}
	op, err := r.newSaleOp(&s)
	if err == nil {
		err = r.strange(ctx, op)
	}
	if f, ok := errors.AsType[*Failure](err); ok {
		return failed(f), nil
	}
	if err != nil {
		return rail.Payment{}, err
	}
	r.cfg.At("order")
	there, err := r.records.addOp(ctx, op)
	r.cfg.At("created")
	switch {
	case errors.Is(err, ErrSold):
		return failed(takenNonce("The authorization already pays another order.")), nil
	case err != nil:
		return rail.Payment{}, err
	case there.Digest != op.Digest:
		return paymentOf(there), conflict(op.ID)
	}
	o, err := r.awaitOutcome(ctx, there, nil)
	if err != nil || o.Status != toll.OrderFailed || o.Ended {
		return o, err
	}
	if again, err := r.Recheck(ctx, s.OrderID); err != nil || !again {
		return o, nil
	}
	return r.awaitOutcome(ctx, there, nil)
}

// failed is the payment of a sale that is not stored.
func failed(f *Failure) rail.Payment { return paymentOf(&Op{State: Failed, Failure: f}) }

// Recheck implements [rail.Seller]: it moves a sale that failed before it was sent to Included if another sender had its authorization
// carried out since. It returns true, too, for a sale that is not failed any more.
func (r *Rail) Recheck(ctx context.Context, orderID string) (bool, error) {
	if err := r.cfg.Start(ctx); err != nil {
		return false, err
	}
	op, err := r.records.op(ctx, orderID)
	if err != nil || op.State != Failed {
		return err == nil, err
	}
	used, err := r.chain.used(ctx, op)
	if err != nil || !used {
		return false, err
	}
	operation, err := r.buildSale(ctx, op)
	if _, fails := errors.AsType[*Failure](err); fails {
		return false, nil
	}
	if err != nil || op.Position == (Position{}) {
		return false, err // without a place the chain has gone back meanwhile
	}
	op.include(operation, r.chainID)
	op.Failure, op.UpdatedAt = nil, r.cfg.Clock()
	if err := r.records.update(ctx, op); err != nil {
		return false, err
	}
	r.log.WarnContext(ctx, "another sender executed the authorization of a failed purchase", "order", orderID, "tx", op.Tx)
	r.moved.Fire()
	return true, nil
}

// buildSale is build for a sale. When others have had the authorization carried out, the operation has their place: it is signed
// nevertheless, for a reorganisation may take theirs away.
func (r *Rail) buildSale(ctx context.Context, op *Op) (*userop.Operation, error) {
	all, err := r.chain.accounts(ctx, op.touched()...)
	if err != nil {
		return nil, err
	}
	if f := checkAccounts(op, all); f != nil {
		return nil, f
	}
	used, err := r.chain.isUsed(ctx, op)
	if err != nil {
		return nil, err
	}
	a := op.authorization()
	callData, err := userop.SaleCall(op.Token, a, op.Sale.Signature)
	if err != nil {
		return nil, err
	}
	sign := func(gas uint64) (*userop.Operation, error) {
		if gas > signer.MaxSaleGas {
			return nil, saleFailed(toll.CodePaymentRequired, wordSignature, "Verifying the signature of the payer's account takes too much gas.")
		}
		return r.cfg.Signer.Sale(ctx, signer.Sale{
			OrderID: op.ID, Token: op.Token, Authorization: *a, Signature: op.Sale.Signature, Contract: !r.signedByKey(op), CallGas: gas,
		})
	}
	if !used {
		operation, err := r.simulated(ctx, op, callData, all, sign)
		if !errors.Is(err, errUsed) {
			return operation, err
		}
	}
	if op.Position, err = r.chain.soldAt(ctx, op); err != nil {
		return nil, err
	}
	operation, err := sign(r.guess(op))
	if err != nil {
		err = refused(op, err)
	}
	return operation, err
}

// isUsed is [reader.used], with a [*Failure] where there is no such token.
func (r *reader) isUsed(ctx context.Context, op *Op) (bool, error) {
	used, err := r.used(ctx, op)
	if errors.Is(err, errAnswer) {
		err = refusedToken(op.Token, "The token does not exist on the chain.")
	}
	return used, err
}

// soldAt returns where the token has carried an authorization out whose nonce is used.
func (r *reader) soldAt(ctx context.Context, op *Op) (Position, error) {
	at, err := r.search(ctx, op)
	if err == nil && at == (Position{}) {
		err = takenNonce("The nonce of the authorization is already used or canceled.")
	}
	return at, err
}

// CheckSale tells whether a sale would be paid as the chain is now: the time of the chain counts, not that of this machine. It
// sends and stores nothing. used says that the chain has carried the authorization out already, by whomever: everybody can know
// it then. Errors: those with status 503, and with status 402 or 400 and a Reason why it cannot be paid,
// [toll.CodeChainToken], [toll.CodeChainBalance], [toll.CodePaymentRequired] or [toll.CodeChainFailed].
func (r *Rail) CheckSale(ctx context.Context, s rail.Sale) (used bool, err error) {
	if err := r.cfg.Start(ctx); err != nil {
		return false, err
	}
	used, err = r.checkSale(ctx, s)
	if f, ok := errors.AsType[*Failure](err); ok {
		err = f.asError()
	}
	return used, err
}

func (r *Rail) checkSale(ctx context.Context, s rail.Sale) (used bool, err error) {
	s.OrderID = "check" // of no order: nothing is stored
	op, err := r.newSaleOp(&s)
	if err == nil {
		err = r.Ready(ctx)
	}
	if err == nil {
		err = r.disowned(ctx, op)
	}
	if err == nil {
		used, err = r.chain.isUsed(ctx, op)
	}
	if used {
		_, err = r.chain.soldAt(ctx, op)
		return true, err
	}
	if err == nil {
		err = r.inTime(ctx, op)
	}
	if err != nil {
		return false, err
	}
	data, err := userop.AuthorizedTransfer(op.authorization(), op.Sale.Signature)
	if err != nil {
		return false, err
	}
	err = r.chain.read(ctx, func(ctx context.Context, c *endpoints.Conn) error {
		var answer hexutil.Bytes
		return try(ctx, c, "eth_call", &answer, message{From: r.cfg.Service, To: op.Token, Gas: maxTransferGas, Data: data}, nil)
	})
	err = r.verdict(ctx, op, err)
	switch {
	case errors.Is(err, errUsed):
		_, err = r.chain.soldAt(ctx, op)
		return true, err
	case errors.Is(err, errEarly):
		return false, nil // it is in time, and only the last block is not
	}
	return false, err
}

// inTime refuses an authorization that is not valid yet, or ends too soon or too late.
func (r *Rail) inTime(ctx context.Context, op *Op) error {
	now, err := r.chain.present(ctx)
	switch {
	case err != nil:
		return err
	case op.Sale.After > now:
		return saleFailed(toll.CodePaymentRequired, wordAfter, "The authorization is not valid yet.")
	case op.Before < now+minSaleLife:
		return saleFailed(toll.CodePaymentRequired, wordBefore, "The authorization expires before it can be carried out.")
	case op.Before > now+maxSaleLife:
		return saleFailed(toll.CodePaymentRequired, wordBefore, "The authorization must expire within an hour.")
	}
	return nil
}

// present is the time of the last block, in Unix seconds. The embedded chain makes its next block at the time of the service.
func (r *reader) present(ctx context.Context) (uint64, error) {
	head, err := r.header(ctx, nil)
	switch {
	case err != nil:
		return 0, err
	case r.cfg.Embedded:
		return max(head.Time, uint64(max(r.cfg.Clock().Unix(), 0))), nil
	}
	return head.Time, nil
}

// Dead reports whether an authorization has moved nothing and never will: a finalized block is past its end, and its nonce is not used.
// It needs no OrderID and no Signature, and asks the chain alone, on live two endpoints.
func (r *Rail) Dead(ctx context.Context, s rail.Sale) (bool, error) {
	if err := r.cfg.Start(ctx); err != nil {
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
	used, err := r.chain.usedForAll(ctx, &Op{
		ID: s.OrderID, Token: common.Address(s.Token), Payer: common.Address(s.Authorization.From), Sale: &SaleTerms{Nonce: s.Authorization.Nonce},
	})
	return err == nil && !used, err
}
