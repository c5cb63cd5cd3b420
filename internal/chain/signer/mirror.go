package signer

import (
	"context"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll/internal/chain/contracts"
)

// Anchor asks for the transaction with which the operator of the mirror publishes a root.
type Anchor struct {
	Nonce       uint64
	Period      uint64
	Root        common.Hash
	Leaves      uint64
	Credits     *big.Int // below 2^128
	Gas         uint64
	Tip, FeeCap *big.Int // wei for each unit of gas
}

// Anchor signs anchor(period, root, leaves, credits) for the mirror of the operator, with value 0.
func (s *Signer) Anchor(ctx context.Context, a Anchor) (*types.Transaction, error) {
	const kind = "anchor"
	reason := s.checkOperator(a.Tip, a.FeeCap)
	if reason == "" && (a.Gas == 0 || a.Leaves == 0 || a.Root == (common.Hash{}) || a.Credits == nil || a.Credits.Sign() < 0 || a.Credits.BitLen() > 128) {
		reason = Malformed
	}
	if reason != "" {
		return nil, s.refuse(ctx, kind, s.mirror.Hex(), reason)
	}
	to := contracts.CreditMirror(s.mirror)
	return s.transaction(ctx, s.mirror, &types.DynamicFeeTx{
		ChainID: s.chainID, Nonce: a.Nonce, GasTipCap: a.Tip, GasFeeCap: a.FeeCap, Gas: a.Gas, To: &to,
		Data: a.Call(),
	})
}

// Call returns the calldata of anchor(uint64 period, bytes32 root, uint64 leaves, uint128 credits).
func (a *Anchor) Call() []byte {
	data := crypto.Keccak256([]byte("anchor(uint64,bytes32,uint64,uint128)"))[:4]
	for _, word := range []*big.Int{new(big.Int).SetUint64(a.Period), a.Root.Big(), new(big.Int).SetUint64(a.Leaves), a.Credits} {
		data = append(data, common.BigToHash(word).Bytes()...)
	}
	return data
}

// DeployMirror requests the transaction that deploys the mirror of the operator.
type DeployMirror struct {
	Nonce       uint64
	Gas         uint64
	Tip, FeeCap *big.Int // wei for each unit of gas
}

// DeployMirror signs the call of the CREATE2 deployer. The address does not depend on the sender or on repeats.
func (s *Signer) DeployMirror(ctx context.Context, p DeployMirror) (*types.Transaction, error) {
	reason := s.checkOperator(p.Tip, p.FeeCap)
	if reason == "" && p.Gas == 0 {
		reason = Malformed
	}
	if reason != "" {
		return nil, s.refuse(ctx, "mirror deployment", s.mirror.Hex(), reason)
	}
	m := contracts.Mirror(s.mirror)
	return s.transaction(ctx, s.mirror, &types.DynamicFeeTx{
		ChainID: s.chainID, Nonce: p.Nonce, GasTipCap: p.Tip, GasFeeCap: p.FeeCap, Gas: p.Gas, To: &contracts.Create2Deployer,
		Data: append(m.Salt.Bytes(), m.InitCode...),
	})
}

func (s *Signer) checkOperator(tip, feeCap *big.Int) Reason {
	if s.mirror == (common.Address{}) {
		return ForeignAccount
	}
	return checkFee(tip, feeCap)
}
