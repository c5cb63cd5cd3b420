package signer

import (
	"context"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/holiman/uint256"

	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/userop"
)

// Authorization asks for the signature with which an account takes the code of our accounts (EIP-7702).
type Authorization struct {
	Account common.Address
	Nonce   uint64 // of the account, at the latest block
}

// Authorization signs for the chain of the environment, never for chain id 0, and for no other code. A relayer is refused:
// with code, the pool takes one transaction of it at a time.
func (s *Signer) Authorization(ctx context.Context, a Authorization) (types.SetCodeAuthorization, error) {
	if s.sends(a.Account) {
		return types.SetCodeAuthorization{}, s.refuse(ctx, "authorization", a.Account.Hex(), ForeignAccount)
	}
	out := types.SetCodeAuthorization{ChainID: *uint256.MustFromBig(s.chainID), Address: contracts.AccountCode, Nonce: a.Nonce}
	signature, err := s.signature(ctx, a.Account, out.SigHash())
	if err != nil {
		return types.SetCodeAuthorization{}, err
	}
	out.V = signature[64] - 27
	out.R.SetBytes(signature[:32])
	out.S.SetBytes(signature[32:64])
	return out, nil
}

// RelayerTx asks for the transaction with which a relayer brings operations to the EntryPoint.
type RelayerTx struct {
	Relayer        common.Address
	Nonce          uint64
	Ops            []*userop.Operation
	Authorizations []types.SetCodeAuthorization // of accounts without code
	Gas            uint64
	Tip, FeeCap    *big.Int // wei for each unit of gas
}

// RelayerTx signs handleOps with value 0: a transaction of type 4 when there are authorizations, else of type 2.
func (s *Signer) RelayerTx(ctx context.Context, r RelayerTx) (*types.Transaction, error) {
	const kind = "relayer transaction"
	reason := s.checkFees(r.Relayer, r.Tip, r.FeeCap)
	if reason == "" && (len(r.Ops) == 0 || r.Gas == 0) {
		reason = Malformed
	}
	if reason == "" && slices.ContainsFunc(r.Ops, unsupported) {
		reason = ForeignForm
	}
	for i := range r.Authorizations {
		if reason == "" {
			reason = s.checkAuthorization(&r.Authorizations[i])
		}
	}
	if reason != "" {
		return nil, s.refuse(ctx, kind, r.Relayer.Hex(), reason)
	}
	callData := userop.HandleOps(r.Ops, r.Relayer)
	if len(r.Authorizations) == 0 {
		return s.transaction(ctx, r.Relayer, &types.DynamicFeeTx{
			ChainID: s.chainID, Nonce: r.Nonce, GasTipCap: r.Tip, GasFeeCap: r.FeeCap, Gas: r.Gas, To: &contracts.EntryPoint, Data: callData,
		})
	}
	return s.transaction(ctx, r.Relayer, &types.SetCodeTx{
		ChainID: uint256.MustFromBig(s.chainID), Nonce: r.Nonce, GasTipCap: uint256.MustFromBig(r.Tip), GasFeeCap: uint256.MustFromBig(r.FeeCap),
		Gas: r.Gas, To: contracts.EntryPoint, Value: new(uint256.Int), Data: callData, AuthList: slices.Clone(r.Authorizations),
	})
}

// unsupported reports whether this rail refuses to sign an operation: it would cost the sender fees, make accounts or bring in a paymaster.
func unsupported(o *userop.Operation) bool {
	return o == nil || o.Nonce == nil || o.Nonce.Sign() < 0 || o.Nonce.BitLen() > 256 || o.PreVerificationGas == nil ||
		o.PreVerificationGas.Sign() != 0 || o.GasFees != [32]byte{} || len(o.InitCode) != 0 || len(o.PaymasterAndData) != 0
}

func (s *Signer) checkAuthorization(a *types.SetCodeAuthorization) Reason {
	if a.ChainID.CmpBig(s.chainID) != 0 {
		return ForeignChain
	}
	if a.Address != contracts.AccountCode {
		return ForeignCode
	}
	by, err := a.Authority()
	switch {
	case err != nil:
		return ForeignChain
	case s.sends(by):
		return ForeignAccount
	}
	return ""
}

// Fill asks for a transaction that only uses up a nonce of a relayer.
type Fill struct {
	Relayer     common.Address
	Nonce       uint64
	Tip, FeeCap *big.Int // wei for each unit of gas
}

// Fill signs a transfer of nothing from the relayer to itself.
func (s *Signer) Fill(ctx context.Context, f Fill) (*types.Transaction, error) {
	if reason := s.checkFees(f.Relayer, f.Tip, f.FeeCap); reason != "" {
		return nil, s.refuse(ctx, "fill", f.Relayer.Hex(), reason)
	}
	return s.transaction(ctx, f.Relayer, &types.DynamicFeeTx{
		ChainID: s.chainID, Nonce: f.Nonce, GasTipCap: f.Tip, GasFeeCap: f.FeeCap, Gas: 21_000, To: &f.Relayer,
	})
}

// checkFees also says who sends transactions: relayers, and nobody else.
func (s *Signer) checkFees(relayer common.Address, tip, feeCap *big.Int) Reason {
	if !slices.Contains(s.relayers, relayer) {
		return ForeignAccount
	}
	return checkFee(tip, feeCap)
}

func checkFee(tip, feeCap *big.Int) Reason {
	if tip == nil || feeCap == nil || tip.Sign() < 0 || feeCap.Sign() <= 0 || tip.Cmp(feeCap) > 0 || feeCap.BitLen() > 256 {
		return Malformed
	}
	return ""
}

func (s *Signer) transaction(ctx context.Context, from common.Address, data types.TxData) (*types.Transaction, error) {
	tx, form := types.NewTx(data), types.LatestSignerForChainID(s.chainID)
	signature, err := s.signature(ctx, from, form.Hash(tx))
	if err != nil {
		return nil, err
	}
	signature[64] -= 27
	return tx.WithSignature(form, signature)
}

// Raised returns the fees of a transaction that takes the place of another one: an eighth more of both, rounded up, which is what
// pools ask for, or those of a new one if they are higher.
func Raised(old *types.Transaction, tip, feeCap *big.Int) (*big.Int, *big.Int) {
	more := func(was, now *big.Int) *big.Int {
		up := new(big.Int).Mul(was, big.NewInt(9))
		if up.Add(up, big.NewInt(7)).Rsh(up, 3).Cmp(now) < 0 {
			return now
		}
		return up
	}
	return more(old.GasTipCap(), tip), more(old.GasFeeCap(), feeCap)
}
