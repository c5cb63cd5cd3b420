//go:build !nodevchain

package devchain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/state"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/core/vm"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/holiman/uint256"
)

const (
	maxSimulatedBlocks = 256
	maxSimulatedCalls  = 5000
	maxSimulatedBytes  = 10 << 20 // of returned data and logs
	blockTime          = 12       // seconds between simulated blocks
)

// Error codes of eth_simulateV1.
const (
	codeFailed         = -32015
	codeInternal       = -32603
	codeNonceTooLow    = -38010
	codeNonceTooHigh   = -38011
	codeFeeTooLow      = -38012
	codeGasTooLow      = -38013
	codeNoMoney        = -38014
	codeBlockGas       = -38015
	codeTooMany        = -38026
	codeInitCodeTooBig = -38025
)

// simulation is the parameter of eth_simulateV1. It needs at least one block.
type simulation struct {
	BlockStateCalls                                    []simulatedBlock
	Validation, TraceTransfers, ReturnFullTransactions bool // not supported
}

type simulatedBlock struct {
	BlockOverrides blockOverrides // not supported
	StateOverrides stateOverrides
	Calls          []trial
}

// systemContracts run without gas at the beginning and the end of each block.
var systemContracts = []common.Address{
	params.BeaconRootsAddress, params.HistoryStorageAddress, params.WithdrawalQueueAddress, params.ConsolidationQueueAddress,
}

// check refuses what is not supported and what takes too long.
func (s *simulation) check() error {
	switch {
	case len(s.BlockStateCalls) == 0:
		return invalidParams("empty input")
	case len(s.BlockStateCalls) > maxSimulatedBlocks:
		return &rpcError{code: codeTooMany, text: "too many blocks"}
	case s.Validation, s.TraceTransfers, s.ReturnFullTransactions:
		return invalidParams("validation, traceTransfers and returnFullTransactions are not supported")
	}
	calls := 0
	for _, block := range s.BlockStateCalls {
		if block.BlockOverrides != (blockOverrides{}) {
			return invalidParams("block overrides are not supported")
		}
		for _, address := range systemContracts {
			if _, changed := block.StateOverrides[address]; changed {
				return invalidParams("overrides of the system contract %s are not supported", address.Hex())
			}
		}
		calls += len(block.Calls)
	}
	if calls > maxSimulatedCalls {
		return &rpcError{code: codeTooMany, text: fmt.Sprintf("too many calls: %d > %d", calls, maxSimulatedCalls)}
	}
	return nil
}

// simulatedCall is the outcome of one call.
type simulatedCall struct {
	ReturnData hexutil.Bytes  `json:"returnData"`
	Logs       []*types.Log   `json:"logs"`
	GasUsed    hexutil.Uint64 `json:"gasUsed"`
	MaxUsedGas hexutil.Uint64 `json:"maxUsedGas"`
	Status     hexutil.Uint64 `json:"status"`
	Error      *callError     `json:"error,omitempty"`
}

type callError struct {
	Message string `json:"message"`
	Code    int    `json:"code"`
	Data    string `json:"data,omitempty"`
}

// SimulateV1 runs calls in new blocks on the given one, each with the changes of the earlier calls, and returns the blocks with the
// outcome of each call. Without fees, a call needs no balance for gas. Nonces are not checked.
func (a *trialAPI) SimulateV1(ctx context.Context, s simulation, at *rpc.BlockNumberOrHash) ([]fields, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	db, parent, err := a.blocks.state(at)
	if err != nil {
		return nil, err
	}
	run := &simulator{blocks: a.blocks, db: db, gas: maxTrialGas, bytes: maxSimulatedBytes, made: map[common.Hash]*types.Header{parent.Hash(): parent}}
	var results []fields
	for _, block := range s.BlockStateCalls {
		result, header, err := run.block(ctx, parent, &block)
		if err != nil {
			return nil, err
		}
		results, parent = append(results, result), header
		run.made[header.Hash()] = header
	}
	return results, nil
}

// simulator runs blocks, one after the other.
type simulator struct {
	blocks *blockAPI
	db     *state.StateDB
	gas    uint64                        // left for all blocks
	bytes  int                           // left for returned data and logs
	made   map[common.Hash]*types.Header // simulated blocks and the one they are built on
}

// simulatedChain is the chain with simulated blocks, for the hashes of earlier blocks that contracts read.
type simulatedChain struct {
	*core.BlockChain
	made map[common.Hash]*types.Header
}

func (c simulatedChain) GetHeader(hash common.Hash, number uint64) *types.Header {
	if header := c.made[hash]; header != nil {
		return header
	}
	return c.BlockChain.GetHeader(hash, number)
}

// block runs the calls of one block. An error ends the simulation: a call that cannot be in a block, or too much gas.
func (s *simulator) block(ctx context.Context, parent *types.Header, block *simulatedBlock) (fields, *types.Header, error) {
	chain := simulatedChain{s.blocks.c.chain, s.made}
	config := chain.Config()
	header := &types.Header{
		ParentHash: parent.Hash(), UncleHash: types.EmptyUncleHash, TxHash: types.EmptyTxsHash, ReceiptHash: types.EmptyReceiptsHash,
		WithdrawalsHash: &types.EmptyWithdrawalsHash, ParentBeaconRoot: new(common.Hash), Difficulty: new(big.Int), BaseFee: new(big.Int),
		Number: new(big.Int).Add(parent.Number, common.Big1), Time: parent.Time + blockTime, GasLimit: parent.GasLimit, Coinbase: parent.Coinbase,
		ExcessBlobGas: new(uint64), BlobGasUsed: new(uint64), // no transaction has blobs
	}
	precompiled := vm.ActivePrecompiledContracts(config.Rules(header.Number, true, header.Time))
	if err := block.StateOverrides.apply(s.db, precompiled); err != nil {
		return nil, nil, err
	}
	evm := vm.NewEVM(core.NewEVMBlockContext(header, chain, nil), s.db, config, vm.Config{NoBaseFee: true})
	defer evm.Release()
	defer context.AfterFunc(ctx, evm.Cancel)()
	evm.SetPrecompiles(precompiled)
	core.PreExecution(ctx, header.ParentBeaconRoot, parent, config, evm, header.Number, header.Time)

	pool := core.NewGasPool(header.GasLimit)
	body := &types.Body{Withdrawals: types.Withdrawals{}}
	var receipts []*types.Receipt
	outcomes := []*simulatedCall{}
	var logs []*types.Log
	for i := range block.Calls {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		tx, outcome, receipt, err := s.call(ctx, evm, pool, &block.Calls[i], header, i)
		if err != nil {
			return nil, nil, err
		}
		for _, log := range outcome.Logs {
			log.Index = uint(len(logs))
			logs = append(logs, log)
		}
		body.Transactions, receipts, outcomes = append(body.Transactions, tx), append(receipts, receipt), append(outcomes, outcome)
	}
	header.GasUsed = pool.Used()
	requests, list, err := core.PostExecution(ctx, config, header.Number, header.Time, logs, body.Withdrawals, evm, uint32(len(block.Calls)+1))
	if err != nil {
		return nil, nil, err
	}
	if requests != nil {
		hash := types.CalcRequestsHash(requests)
		header.RequestsHash = &hash
	}
	chain.Engine().Finalize(chain, header, s.db, body)
	made := core.AssembleBlock(chain, header, s.db, body, receipts, list)
	for _, log := range logs {
		log.BlockHash = made.Hash()
	}
	result, err := s.blocks.blockFields(made, false)
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(result, fields{"calls": outcomes})
	return result, made.Header(), nil
}

// call runs one call, and makes the transaction that it would be.
func (s *simulator) call(ctx context.Context, evm *vm.EVM, pool *core.GasPool, t *trial, header *types.Header, index int) (*types.Transaction, *simulatedCall, *types.Receipt, error) {
	config := s.blocks.c.chain.Config()
	gas := header.GasLimit - pool.Used()
	if t.Gas != nil {
		if uint64(*t.Gas) > gas {
			return nil, nil, nil, &rpcError{code: codeBlockGas, text: fmt.Sprintf("block gas limit reached: remaining: %d, required: %d", gas, uint64(*t.Gas))}
		}
		gas = uint64(*t.Gas)
	}
	capped := gas > s.gas
	gas = min(gas, s.gas)
	if err := t.check(config.ChainID); err != nil {
		return nil, nil, nil, err
	}
	nonce := s.db.GetNonce(t.from())
	if t.Nonce != nil {
		nonce = uint64(*t.Nonce)
	}
	if nonce == math.MaxUint64 {
		return nil, nil, nil, simulationError(fmt.Errorf("%w: address %v, nonce: %d", core.ErrNonceMax, t.from().Hex(), nonce))
	}
	m := t.message(header.BaseFee, gas).SkipNonceCheck().SkipExecutionGasCapCheck()
	m.Nonce = nonce
	tx := transactionOf(m, config, t)
	s.db.SetTxContext(tx.Hash(), index, uint32(index+1))
	result, err := run(ctx, evm, m, pool)
	if err != nil {
		return nil, nil, nil, simulationError(err)
	}
	s.db.Finalise(evm.GetRules())
	receipt := core.MakeReceipt(evm, result, s.db, header.Number, common.Hash{}, header.Time, tx, pool.CumulativeUsed(), nil)
	if result.UsedGas > s.gas {
		return nil, nil, nil, fmt.Errorf("RPC gas cap exhausted: need %d, remaining %d", result.UsedGas, s.gas)
	}
	s.gas -= result.UsedGas
	s.bytes -= len(result.ReturnData)
	for _, log := range receipt.Logs {
		s.bytes -= len(log.Data)
	}
	if s.bytes < 0 {
		return nil, nil, nil, &rpcError{code: codeTooMany, text: fmt.Sprintf("too much returned data: more than %d bytes", maxSimulatedBytes)}
	}
	outcome := &simulatedCall{
		ReturnData: result.Return(), Logs: append([]*types.Log{}, receipt.Logs...), GasUsed: hexutil.Uint64(result.UsedGas),
		MaxUsedGas: hexutil.Uint64(result.MaxUsedGas), Status: hexutil.Uint64(receipt.Status),
	}
	switch {
	case errors.Is(result.Err, vm.ErrExecutionReverted):
		revert := reverted(result.Revert())
		outcome.Error = &callError{revert.text, revert.code, revert.data.(string)}
	case result.Failed():
		text := result.Err.Error()
		if capped {
			text += " (gas limit was capped by the RPC server's global gas cap)"
		}
		outcome.Error = &callError{Message: text, Code: codeFailed}
	}
	return tx, outcome, receipt, nil
}

// transactionOf is the unsigned transaction of a message, whose hash is in the block.
func transactionOf(m *core.Message, config *params.ChainConfig, t *trial) *types.Transaction {
	switch {
	case t.AuthorizationList != nil:
		return types.NewTx(&types.SetCodeTx{
			ChainID: uint256.MustFromBig(config.ChainID), Nonce: m.Nonce, Gas: m.GasLimit, To: *m.To, Value: m.Value, Data: m.Data,
			GasFeeCap: m.GasFeeCap, GasTipCap: m.GasTipCap, AccessList: m.AccessList, AuthList: m.SetCodeAuthorizations,
		})
	case t.GasPrice != nil && t.AccessList != nil:
		return types.NewTx(&types.AccessListTx{
			ChainID: config.ChainID, Nonce: m.Nonce, Gas: m.GasLimit, To: m.To, Value: m.Value.ToBig(), Data: m.Data,
			GasPrice: m.GasPrice.ToBig(), AccessList: m.AccessList,
		})
	case t.GasPrice != nil:
		return types.NewTx(&types.LegacyTx{Nonce: m.Nonce, Gas: m.GasLimit, To: m.To, Value: m.Value.ToBig(), Data: m.Data, GasPrice: m.GasPrice.ToBig()})
	}
	return types.NewTx(&types.DynamicFeeTx{
		ChainID: config.ChainID, Nonce: m.Nonce, Gas: m.GasLimit, To: m.To, Value: m.Value.ToBig(), Data: m.Data,
		GasFeeCap: m.GasFeeCap.ToBig(), GasTipCap: m.GasTipCap.ToBig(), AccessList: m.AccessList,
	})
}

// simulationError gives an error of a call that cannot be in a block its code.
func simulationError(err error) error {
	for known, code := range map[error]int{
		core.ErrNonceTooLow: codeNonceTooLow, core.ErrNonceTooHigh: codeNonceTooHigh, core.ErrFeeCapTooLow: codeFeeTooLow,
		core.ErrIntrinsicGas: codeGasTooLow, core.ErrInsufficientFunds: codeNoMoney, core.ErrInsufficientFundsForTransfer: codeNoMoney,
		core.ErrTipAboveFeeCap: codeInvalidParams, vm.ErrMaxInitCodeSizeExceeded: codeInitCodeTooBig,
	} {
		if errors.Is(err, known) {
			return &rpcError{code: code, text: err.Error()}
		}
	}
	return &rpcError{code: codeInternal, text: err.Error()}
}
