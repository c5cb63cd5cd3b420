package mirror

import (
	"context"
	"errors"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
)

// ErrOpen says that there is nothing to check yet.
var ErrOpen = errors.New("the burn is not on the chain yet")

// Verified is what the chain says of a proof that holds.
type Verified struct {
	Operator toll.Address // who publishes: its key alone makes roots at the contract
	Block    uint64
	Final    bool
	Leaves   uint64   // burns of the period
	Credits  *big.Int // burned in the period
}

// Verify checks a proof against the chain, with nothing of the service. What it is not: that the contract is the one of the
// service that gave the receipt is for the caller to know, by the address or by the operator. Errors say what does not hold.
func Verify(ctx context.Context, pool *endpoints.Pool, p *toll.BurnProof) (*Verified, error) {
	if p.Status == toll.ProofOpen {
		return nil, ErrOpen
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	contract := common.Address(p.Contract)
	var code, operator []byte
	var receipt *types.Receipt
	err := pool.Read(ctx, func(ctx context.Context, c *endpoints.Conn) (err error) {
		if code, err = c.CodeAt(ctx, contract, nil); err != nil {
			return err
		}
		if operator, err = c.CallContract(ctx, ethereum.CallMsg{To: &contract, Data: crypto.Keccak256([]byte("operator()"))[:4]}, nil); err != nil {
			return err
		}
		receipt, err = c.TransactionReceipt(ctx, common.Hash(p.AnchorTransaction))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the chain: %w", err)
	}
	// CREATE2 binds the address to the code and the operator, so this is our contract and nobody else's.
	if len(code) == 0 || len(operator) != 32 || contracts.CreditMirror(common.BytesToAddress(operator)) != contract {
		return nil, fmt.Errorf("%s is not a mirror contract", p.Contract)
	}
	logs, err := events(ctx, pool, contract, p.Period, ethereum.FilterQuery{BlockHash: &receipt.BlockHash})
	if err != nil {
		return nil, fmt.Errorf("reading the chain: %w", err)
	}
	if len(logs) != 1 || logs[0].TxHash != common.Hash(p.AnchorTransaction) || len(logs[0].Data) != 96 || common.BytesToHash(logs[0].Data[:32]) != common.Hash(p.Root) {
		return nil, errors.New("the transaction does not anchor this root for this period")
	}
	v := &Verified{
		Operator: toll.Address(common.BytesToAddress(operator)), Block: logs[0].BlockNumber,
		Leaves: new(big.Int).SetBytes(logs[0].Data[32:64]).Uint64(), Credits: new(big.Int).SetBytes(logs[0].Data[64:96]),
	}
	if uint64(p.Index) >= v.Leaves {
		return nil, fmt.Errorf("the period has %d leaves, but the index of the proof is %d", v.Leaves, p.Index)
	}
	if finalized, err := pool.Head(ctx, "finalized"); err == nil {
		v.Final = finalized.Number.Uint64() >= v.Block
	}
	return v, nil
}
