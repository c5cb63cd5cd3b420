package signer

import (
	"context"
	"math/big"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/userop"
)

// MaxSaleGas is the most gas of the call of a [Sale], as code of the payer may run in it, also when its key has signed (EIP-7702).
const MaxSaleGas = 1_000_000

const (
	// plainGas is more than the call of a sale needs whose payer has no code.
	plainGas = 250_000
	// codeCents is the least that any other sale counts against the hourly cap: about what its gas may cost.
	codeCents = 10
)

// Sale asks for the operation with which the service account has a token carry out what a wallet has signed (EIP-3009). It moves
// no money of the service or of its accounts.
type Sale struct {
	OrderID       string
	Token         common.Address // USDC or EURC of the chain
	Authorization evm.Authorization
	Signature     WalletSignature
	// Contract says that no key has made the signature, and that code of From takes it (ERC-1271): the signer cannot ask. The
	// token asks when the operation runs.
	Contract bool
	CallGas  uint64 // at most [MaxSaleGas]
}

// WalletSignature is what a wallet has made for an authorization: r, s, v by its key, or what code of it takes, at most
// [evm.MaxSignature] bytes. It is an argument of the transfer, and nothing else is made of it.
type WalletSignature []byte

// Sale signs the operation of a sale. For one order id it signs one content, whatever the gas. What sales move counts against an
// hourly cap of their own, those of contracts, and those that need as much gas, at least 10 cents each.
func (s *Signer) Sale(ctx context.Context, r Sale) (*userop.Operation, error) {
	const kind = "sale"
	if reason := s.checkSale(&r); reason != "" {
		return nil, s.refuse(ctx, kind, bounded(r.OrderID), reason)
	}
	callData, err := userop.SaleCall(r.Token, &r.Authorization, r.Signature)
	if err != nil {
		return nil, s.refuse(ctx, kind, r.OrderID, Malformed)
	}
	op := userop.New(s.service, userop.OrderKey(r.OrderID), callData, r.CallGas)
	cents := hundredths(r.Authorization.Value)
	if r.Contract || r.CallGas > plainGas {
		cents = max(cents, codeCents)
	}
	return s.admitted(ctx, kind, r.OrderID, op, &s.limits.sales, cents)
}

func (s *Signer) checkSale(r *Sale) Reason {
	a := &r.Authorization
	from := common.Address(a.From)
	if r.OrderID == "" || len(r.OrderID) > maxID || a.From.IsZero() || a.To.IsZero() || a.Value == nil || a.Value.Sign() <= 0 || a.Value.BitLen() > 256 {
		return Malformed
	}
	name, version, ok := contracts.TokenDomain(s.chainID.Uint64(), r.Token)
	switch {
	case !ok:
		return ForeignToken
	case from == s.service || s.sends(from):
		return ForeignAccount
	case r.CallGas > MaxSaleGas:
		return Malformed
	}
	domain := evm.Domain{Name: name, Version: version, ChainID: new(big.Int).Set(s.chainID), Contract: toll.Address(r.Token)}
	by, err := evm.Recover(a.Digest(domain), r.Signature)
	switch {
	case err == nil && by == a.From:
		return ""
	case !r.Contract, len(r.Signature) > evm.MaxSignature, evm.Wrapped(r.Signature):
		return ForeignWallet
	}
	return ""
}
