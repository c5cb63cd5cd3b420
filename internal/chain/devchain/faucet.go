//go:build !nodevchain

package devchain

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll/internal/chain/contracts"
)

const (
	fundBelow = 50  // ETH
	fundWith  = 100 // ETH

	// Most gas that one transaction may have; unused gas costs the faucet nothing.
	placementGas = 1 << 24
	callGas      = 300_000
)

// mintSelector selects mint(address,uint256) of the development tokens.
var mintSelector = crypto.Keccak256([]byte("mint(address,uint256)"))[:4]

// faucet is an account of the chain with all its ETH.
type faucet struct {
	key     *ecdsa.PrivateKey
	address common.Address
	signer  types.Signer
}

func newFaucet(key *ecdsa.PrivateKey, chainID uint64) *faucet {
	return &faucet{
		key: key, address: crypto.PubkeyToAddress(key.PublicKey),
		signer: types.LatestSignerForChainID(new(big.Int).SetUint64(chainID)),
	}
}

// call is a transaction of the faucet.
type call struct {
	to    common.Address
	value *big.Int // wei; nil: none
	data  []byte
	gas   uint64
}

// Mint makes amount base units of a development token for an account. The transaction is in a block when Mint returns.
func (c *Chain) Mint(ctx context.Context, token, to common.Address, amount *big.Int) (common.Hash, error) {
	if amount.Sign() <= 0 || amount.BitLen() > 256 {
		return common.Hash{}, fmt.Errorf("devchain: %v is not a valid amount", amount)
	}
	if token != contracts.USDC(c.id) && token != contracts.EURC(c.id) {
		return common.Hash{}, fmt.Errorf("devchain: %v is not a development token", token)
	}
	data := append([]byte(nil), mintSelector...)
	data = append(data, common.LeftPadBytes(to.Bytes(), 32)...)
	data = append(data, common.LeftPadBytes(amount.Bytes(), 32)...)
	return c.give(ctx, call{to: token, data: data, gas: callGas})
}

// Fund sends wei to an account. The transaction is in a block when Fund returns.
func (c *Chain) Fund(ctx context.Context, to common.Address, wei *big.Int) (common.Hash, error) {
	if wei.Sign() < 0 {
		return common.Hash{}, fmt.Errorf("devchain: %v is not a valid amount", wei)
	}
	return c.give(ctx, call{to: to, value: wei, gas: callGas})
}

func (c *Chain) give(ctx context.Context, one call) (common.Hash, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return common.Hash{}, ErrClosed
	}
	hashes, err := c.transact(ctx, []call{one})
	if err != nil {
		return common.Hash{}, err
	}
	return hashes[0], nil
}

// deploy creates missing contracts and tops up the gas of Config.Funded. The caller holds c.mu.
func (c *Chain) deploy(ctx context.Context) error {
	state, err := c.chain.State()
	if err != nil {
		return err
	}
	var calls []call
	for _, contract := range contracts.Deployments(c.id) {
		if state.GetCodeSize(contract.Address) == 0 {
			data := append(contract.Salt.Bytes(), contract.InitCode...)
			calls = append(calls, call{to: contracts.Create2Deployer, data: data, gas: placementGas})
		}
	}
	for _, account := range c.cfg.Funded {
		if state.GetBalance(account).ToBig().Cmp(ether(fundBelow)) < 0 {
			calls = append(calls, call{to: account, value: ether(fundWith), gas: callGas})
		}
	}
	_, err = c.transact(ctx, calls)
	return err
}

// transact sends the calls from the faucet, in order, and mines them. Needs c.mu, so that no other transaction of the faucet waits.
func (c *Chain) transact(ctx context.Context, calls []call) ([]common.Hash, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.mine(); err != nil {
		return nil, err
	}
	chain := c.chain
	state, err := chain.State()
	if err != nil {
		return nil, err
	}
	nonce := state.GetNonce(c.faucet.address)
	tip := big.NewInt(1)
	// The base fee of the next blocks: full ones raise it by an eighth each.
	feeCap := new(big.Int).Add(new(big.Int).Mul(chain.CurrentBlock().BaseFee, big.NewInt(100)), big.NewInt(1_000_000))
	transactions := make([]*types.Transaction, len(calls))
	for i, one := range calls {
		transactions[i], err = types.SignNewTx(c.faucet.key, c.faucet.signer, &types.DynamicFeeTx{
			ChainID: chain.Config().ChainID, Nonce: nonce + uint64(i), GasTipCap: tip, GasFeeCap: feeCap,
			Gas: one.gas, To: &one.to, Value: one.value, Data: one.data,
		})
		if err != nil {
			return nil, err
		}
	}
	for _, err := range c.pool.Add(transactions, true) {
		if err != nil {
			return nil, fmt.Errorf("sending from the faucet: %w", err)
		}
	}
	if err := c.include(transactions); err != nil {
		return nil, err
	}
	hashes := make([]common.Hash, len(calls))
	for i, tx := range transactions {
		hashes[i] = tx.Hash()
		where, found := chain.GetCanonicalTransaction(hashes[i])
		receipt, err := chain.GetCanonicalReceipt(found, where.BlockHash, where.BlockIndex, where.Index)
		if err != nil {
			return nil, err
		}
		if receipt.Status != types.ReceiptStatusSuccessful {
			return nil, fmt.Errorf("the faucet transaction %v to %v failed", hashes[i], calls[i].to)
		}
	}
	return hashes, nil
}

// include makes blocks until the transactions are in them. Transactions with higher tips come first, so it also makes blocks that
// [Chain.mine] would leave for the next second. Needs c.mu.
func (c *Chain) include(transactions []*types.Transaction) error {
	for _, tx := range transactions {
		for {
			if where, _ := c.chain.GetCanonicalTransaction(tx.Hash()); where != nil {
				break
			}
			if err := c.pool.Sync(); err != nil {
				return err
			}
			made, err := c.seal(pooled)
			if err != nil {
				return err
			}
			if !made {
				return fmt.Errorf("the faucet transaction %v is not in a block", tx.Hash())
			}
		}
	}
	// The funded account may send at once, so the pool must have its new balance.
	return c.pool.Sync()
}
