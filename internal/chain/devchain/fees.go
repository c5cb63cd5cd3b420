//go:build !nodevchain

package devchain

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/consensus/misc/eip1559"
	"github.com/ethereum/go-ethereum/consensus/misc/eip4844"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
)

const (
	maxFeeBlocks   = 1024
	maxPercentiles = 100

	tipBlocks     = 20 // the suggested tip is a percentile of the tips in the last blocks
	tipsOfBlock   = 3  // the lowest ones
	tipPercentile = 60
	leastTip      = 2 // wei; the faucet pays less
)

// feeAPI are the methods of eth about prices.
type feeAPI struct{ blocks *blockAPI }

// GasPrice returns a price, in wei, with which a transaction is in a block soon.
func (a *feeAPI) GasPrice() *hexutil.Big {
	return (*hexutil.Big)(new(big.Int).Add(a.tip(), a.blocks.c.chain.CurrentBlock().BaseFee))
}

// MaxPriorityFeePerGas returns a tip, in wei, with which a transaction is in a block soon.
func (a *feeAPI) MaxPriorityFeePerGas() *hexutil.Big { return (*hexutil.Big)(a.tip()) }

// BlobBaseFee returns the price of blobs, which this chain does not take.
func (a *feeAPI) BlobBaseFee() *hexutil.Big {
	return (*hexutil.Big)(eip4844.CalcBlobFee(a.blocks.c.chain.Config(), a.blocks.c.chain.CurrentBlock()))
}

func (a *feeAPI) tip() *big.Int {
	var tips []*big.Int
	head := a.blocks.c.chain.CurrentBlock().Number.Uint64()
	for number := head; number > 0 && number+tipBlocks > head; number-- {
		block := a.blocks.c.chain.GetBlockByNumber(number)
		if block == nil {
			break // a reorganization has made the chain shorter
		}
		var paid []*big.Int
		for _, tx := range block.Transactions() {
			if tip, err := tx.EffectiveGasTip(block.BaseFee()); err == nil && tip.Cmp(big.NewInt(leastTip)) >= 0 {
				paid = append(paid, tip)
			}
		}
		slices.SortFunc(paid, (*big.Int).Cmp)
		if paid = paid[:min(tipsOfBlock, len(paid))]; len(paid) == 0 {
			paid = []*big.Int{big.NewInt(1)}
		}
		tips = append(tips, paid...)
	}
	if len(tips) == 0 {
		return big.NewInt(1)
	}
	slices.SortFunc(tips, (*big.Int).Cmp)
	return tips[(len(tips)-1)*tipPercentile/100]
}

// feeHistory is the answer of eth_feeHistory. Lists of base fees have one more value, for the next block.
type feeHistory struct {
	OldestBlock       *hexutil.Big     `json:"oldestBlock"`
	Reward            [][]*hexutil.Big `json:"reward,omitempty"`
	BaseFeePerGas     []*hexutil.Big   `json:"baseFeePerGas,omitempty"`
	GasUsedRatio      []float64        `json:"gasUsedRatio"`
	BaseFeePerBlobGas []*hexutil.Big   `json:"baseFeePerBlobGas,omitempty"`
	BlobGasUsedRatio  []float64        `json:"blobGasUsedRatio,omitempty"`
}

// FeeHistory returns the fees of up to 1024 blocks that end with the given one, and percentiles of their tips.
func (a *feeAPI) FeeHistory(count math.HexOrDecimal64, last rpc.BlockNumber, percentiles []float64) (*feeHistory, error) {
	if len(percentiles) > maxPercentiles {
		return nil, fmt.Errorf("invalid reward percentile: over the query limit %d", maxPercentiles)
	}
	for i, p := range percentiles {
		if p < 0 || p > 100 {
			return nil, fmt.Errorf("invalid reward percentile: %f", p)
		}
		if i > 0 && p <= percentiles[i-1] {
			return nil, fmt.Errorf("invalid reward percentile: #%d:%f >= #%d:%f", i-1, percentiles[i-1], i, p)
		}
	}
	head := a.blocks.c.chain.CurrentBlock().Number.Uint64()
	if last >= 0 && uint64(last) > head {
		return nil, fmt.Errorf("request beyond head block: requested %d, head %d", last, head)
	}
	result := &feeHistory{OldestBlock: new(hexutil.Big)}
	if last == rpc.PendingBlockNumber {
		last = rpc.LatestBlockNumber
	}
	header, err := a.blocks.header(last)
	if header == nil || count == 0 || err != nil {
		return result, err
	}
	end := header.Number.Uint64() + 1
	begin := end - min(end, uint64(count), maxFeeBlocks)
	result.OldestBlock = (*hexutil.Big)(new(big.Int).SetUint64(begin))
	config := a.blocks.c.chain.Config()
	for number := begin; number < end; number++ {
		block := a.blocks.c.chain.GetBlockByNumber(number)
		if block == nil {
			break // a reorganization has made the chain shorter
		}
		header = block.Header()
		result.BaseFeePerGas = append(result.BaseFeePerGas, (*hexutil.Big)(header.BaseFee))
		result.BaseFeePerBlobGas = append(result.BaseFeePerBlobGas, (*hexutil.Big)(eip4844.CalcBlobFee(config, header)))
		result.GasUsedRatio = append(result.GasUsedRatio, float64(header.GasUsed)/float64(header.GasLimit))
		result.BlobGasUsedRatio = append(result.BlobGasUsedRatio, 0)
		if len(percentiles) > 0 {
			result.Reward = append(result.Reward, rewards(block, a.blocks.c.chain.GetReceiptsByHash(block.Hash()), percentiles))
		}
	}
	result.BaseFeePerGas = append(result.BaseFeePerGas, (*hexutil.Big)(eip1559.CalcBaseFee(config, header)))
	result.BaseFeePerBlobGas = append(result.BaseFeePerBlobGas, (*hexutil.Big)(eip4844.CalcBlobFee(config, header)))
	return result, nil
}

// rewards are the tips that percentiles of the gas of a block paid at most.
func rewards(block *types.Block, receipts types.Receipts, percentiles []float64) []*hexutil.Big {
	type part struct {
		tip *big.Int
		gas uint64
	}
	var parts []part
	for i, tx := range block.Transactions() {
		tip, _ := tx.EffectiveGasTip(block.BaseFee()) // a transaction of a block pays its base fee
		parts = append(parts, part{tip, receipts[i].GasUsed})
	}
	slices.SortStableFunc(parts, func(a, b part) int { return a.tip.Cmp(b.tip) })
	result := make([]*hexutil.Big, len(percentiles))
	for i, p := range percentiles {
		result[i] = new(hexutil.Big)
		threshold, sum := uint64(float64(block.GasUsed())*p/100), uint64(0)
		for _, one := range parts {
			result[i] = (*hexutil.Big)(one.tip)
			if sum += one.gas; sum >= threshold {
				break
			}
		}
	}
	return result
}
