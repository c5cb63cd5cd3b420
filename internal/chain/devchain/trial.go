//go:build !nodevchain

package devchain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/state"
	"github.com/ethereum/go-ethereum/core/tracing"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/core/vm"
	"github.com/ethereum/go-ethereum/eth/gasestimator"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/holiman/uint256"
)

const (
	// maxTrialGas bounds the gas of a trial, and so its time.
	maxTrialGas = 50_000_000
	// estimateError is how far an estimate may be above the least gas.
	estimateError = 0.015
)

// trialAPI are the methods of eth that run transactions without sending them.
type trialAPI struct{ blocks *blockAPI }

// trial is a transaction that runs without being sent. Missing members are zero, except gas, which is the limit for trials. Without
// fees, the sender does not need a balance. The execution APIs define the names of the members.
type trial struct {
	From                 *common.Address
	To                   *common.Address
	Gas                  *hexutil.Uint64
	GasPrice             *hexutil.Big
	MaxFeePerGas         *hexutil.Big
	MaxPriorityFeePerGas *hexutil.Big
	Value                *hexutil.Big
	Nonce                *hexutil.Uint64
	Data                 *hexutil.Bytes // the older name of Input
	Input                *hexutil.Bytes
	AccessList           types.AccessList
	ChainID              *hexutil.Big
	AuthorizationList    []types.SetCodeAuthorization
	BlobVersionedHashes  []common.Hash
}

// check refuses what no transaction of this chain can have.
func (t *trial) check(chainID *big.Int) error {
	switch {
	case t.GasPrice != nil && (t.MaxFeePerGas != nil || t.MaxPriorityFeePerGas != nil):
		return errors.New("both gasPrice and (maxFeePerGas or maxPriorityFeePerGas) specified")
	case t.ChainID != nil && t.ChainID.ToInt().Cmp(chainID) != 0:
		return fmt.Errorf("chainId does not match node's (have=%v, want=%v)", t.ChainID.ToInt(), chainID)
	case t.BlobVersionedHashes != nil:
		return types.ErrTxTypeNotSupported
	case t.AuthorizationList != nil && t.To == nil:
		return core.ErrSetCodeTxCreate
	}
	return nil
}

func (t *trial) input() []byte {
	if t.Input != nil {
		return *t.Input
	}
	if t.Data != nil {
		return *t.Data
	}
	return nil
}

func (t *trial) from() common.Address {
	if t.From == nil {
		return common.Address{}
	}
	return *t.From
}

func number(n *hexutil.Big) *uint256.Int {
	if n == nil {
		return new(uint256.Int)
	}
	value, _ := n.ToUint256() // a longer number does not decode
	return value
}

// message is the transaction as the EVM runs it, with this gas.
func (t *trial) message(baseFee *big.Int, gas uint64) *core.Message {
	m := &core.Message{
		From: t.from(), To: t.To, Value: number(t.Value), GasLimit: gas, Data: t.input(), AccessList: t.AccessList,
		SetCodeAuthorizations: t.AuthorizationList,
	}
	if t.Nonce != nil {
		m.Nonce = uint64(*t.Nonce)
	}
	if t.GasPrice != nil {
		m.GasPrice = number(t.GasPrice)
		m.GasFeeCap, m.GasTipCap = m.GasPrice, m.GasPrice
	} else {
		m.GasFeeCap, m.GasTipCap = number(t.MaxFeePerGas), number(t.MaxPriorityFeePerGas)
		m.GasPrice = new(uint256.Int)
		if !m.GasFeeCap.IsZero() || !m.GasTipCap.IsZero() {
			_, overflow := m.GasPrice.AddOverflow(m.GasTipCap, uint256.MustFromBig(baseFee))
			if overflow || m.GasPrice.Gt(m.GasFeeCap) {
				m.GasPrice = m.GasFeeCap
			}
		}
	}
	return m.SkipEOACheck().SkipGasLimitCapCheck()
}

// stateOverrides are accounts with other values for a trial.
type stateOverrides map[common.Address]accountOverride

type accountOverride struct {
	Nonce     *hexutil.Uint64
	Code      *hexutil.Bytes
	Balance   *hexutil.Big
	State     map[common.Hash]common.Hash // all words of the storage
	StateDiff map[common.Hash]common.Hash // some words
}

// UnmarshalJSON refuses unknown members, because a trial without an override that a client asked for would mislead it.
func (o *stateOverrides) UnmarshalJSON(text []byte) error {
	var raw map[common.Address]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	*o = stateOverrides{}
	for address, text := range raw {
		var account accountOverride
		if err := strict(text, &account); err != nil {
			return fmt.Errorf("%w in state override for %s", err, address.Hex())
		}
		(*o)[address] = account
	}
	return nil
}

// strict decodes an object and refuses unknown members.
func strict(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// apply changes accounts, and removes from the precompiled contracts those whose account is changed.
func (o stateOverrides) apply(db *state.StateDB, precompiled vm.PrecompiledContracts) error {
	for _, address := range slices.SortedFunc(maps.Keys(o), common.Address.Cmp) {
		account := o[address]
		delete(precompiled, address)
		if account.Nonce != nil {
			db.SetNonce(address, uint64(*account.Nonce), tracing.NonceChangeUnspecified)
		}
		if account.Code != nil {
			db.SetCode(address, *account.Code, tracing.CodeChangeUnspecified)
		}
		if account.Balance != nil {
			db.SetBalance(address, number(account.Balance), tracing.BalanceChangeUnspecified)
		}
		if account.State != nil && account.StateDiff != nil {
			return fmt.Errorf("account %s has both 'state' and 'stateDiff'", address.Hex())
		}
		if account.State != nil {
			db.SetStorage(address, account.State)
		}
		for slot, word := range account.StateDiff {
			db.SetState(address, slot, word)
		}
	}
	db.Finalise(params.Rules{}) // as if an earlier transaction had made these changes
	return nil
}

// blockOverrides are members of the block with other values for a trial.
type blockOverrides struct {
	Number        *hexutil.Big
	Time          *hexutil.Uint64
	GasLimit      *hexutil.Uint64
	FeeRecipient  *common.Address
	PrevRandao    *common.Hash
	BaseFeePerGas *hexutil.Big
}

// UnmarshalJSON refuses unknown members and members that this chain does not support.
func (o *blockOverrides) UnmarshalJSON(text []byte) error {
	type plain blockOverrides
	if err := strict(text, (*plain)(o)); err != nil {
		return fmt.Errorf("%w in block override", err)
	}
	return nil
}

// apply returns the header with these values.
func (o *blockOverrides) apply(header *types.Header) *types.Header {
	if o == nil {
		return header
	}
	header = types.CopyHeader(header)
	if o.Number != nil {
		header.Number = o.Number.ToInt()
	}
	if o.Time != nil {
		header.Time = uint64(*o.Time)
	}
	if o.GasLimit != nil {
		header.GasLimit = uint64(*o.GasLimit)
	}
	if o.FeeRecipient != nil {
		header.Coinbase = *o.FeeRecipient
	}
	if o.PrevRandao != nil {
		header.MixDigest = *o.PrevRandao
	}
	if o.BaseFeePerGas != nil {
		header.BaseFee = o.BaseFeePerGas.ToInt()
	}
	return header
}

// ground is what a trial runs on: the accounts and the block, with overrides.
type ground struct {
	db          *state.StateDB
	header      *types.Header
	block       vm.BlockContext
	precompiled vm.PrecompiledContracts
}

func (a *trialAPI) prepare(t *trial, at *rpc.BlockNumberOrHash, accounts *stateOverrides, block *blockOverrides) (*ground, error) {
	db, header, err := a.blocks.state(at)
	if err != nil {
		return nil, err
	}
	chain := a.blocks.c.chain
	g := &ground{db: db, header: block.apply(header), block: core.NewEVMBlockContext(header, chain, nil)}
	// Hashes of earlier blocks are those before the real block, whatever number the trial sees.
	g.block.BlockNumber, g.block.Time, g.block.GasLimit = g.header.Number, g.header.Time, g.header.GasLimit
	g.block.Coinbase, g.block.BaseFee, g.block.Random = g.header.Coinbase, g.header.BaseFee, &g.header.MixDigest
	g.precompiled = vm.ActivePrecompiledContracts(chain.Config().Rules(g.header.Number, true, g.header.Time))
	if accounts != nil {
		if err := accounts.apply(db, g.precompiled); err != nil {
			return nil, err
		}
	}
	return g, t.check(chain.Config().ChainID)
}

// Call runs a transaction and returns its data, or an error with code 3 and the data of its revert.
func (a *trialAPI) Call(ctx context.Context, t trial, at *rpc.BlockNumberOrHash, accounts *stateOverrides, block *blockOverrides) (hexutil.Bytes, error) {
	g, err := a.prepare(&t, at, accounts, block)
	if err != nil {
		return nil, err
	}
	gas := uint64(maxTrialGas)
	if t.Gas != nil {
		gas = min(gas, uint64(*t.Gas))
	}
	m := t.message(g.header.BaseFee, gas).SkipNonceCheck().SkipExecutionGasCapCheck()
	if m.GasPrice.IsZero() {
		g.block.BaseFee = new(big.Int)
	}
	evm := vm.NewEVM(g.block, g.db, a.blocks.c.chain.Config(), vm.Config{NoBaseFee: true})
	defer evm.Release()
	evm.SetPrecompiles(g.precompiled)
	result, err := run(ctx, evm, m, core.NewGasPool(maxTrialGas))
	if err := errors.Join(g.db.Error(), err); err != nil {
		return nil, err
	}
	if errors.Is(result.Err, vm.ErrExecutionReverted) {
		return nil, reverted(result.Revert())
	}
	return result.Return(), result.Err
}

// EstimateGas returns the gas with which a transaction succeeds, at most 1.5 % above the least, or an error as Call does.
func (a *trialAPI) EstimateGas(ctx context.Context, t trial, at *rpc.BlockNumberOrHash, accounts *stateOverrides, block *blockOverrides) (hexutil.Uint64, error) {
	g, err := a.prepare(&t, at, accounts, block)
	if err != nil {
		return 0, err
	}
	gas := uint64(0) // as much as the block has
	if t.Gas != nil {
		gas = min(maxTrialGas, uint64(*t.Gas))
	}
	chain := a.blocks.c.chain
	least, data, err := gasestimator.Estimate(ctx, t.message(g.header.BaseFee, gas).SkipNonceCheck(), &gasestimator.Options{
		Config: chain.Config(), Chain: chain, Header: g.header, State: g.db, ErrorRatio: estimateError,
	}, maxTrialGas)
	if errors.Is(err, vm.ErrExecutionReverted) {
		return 0, reverted(data)
	}
	return hexutil.Uint64(least), err
}

// run executes a message until it ends or its caller leaves.
func run(ctx context.Context, evm *vm.EVM, m *core.Message, gas *core.GasPool) (*core.ExecutionResult, error) {
	defer context.AfterFunc(ctx, evm.Cancel)()
	result, err := core.ApplyMessage(evm, m, gas)
	if evm.Cancelled() {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("err: %w (supplied gas %d)", err, m.GasLimit)
	}
	return result, nil
}

// reverted is the error of a call that reverted with this data.
func reverted(data []byte) *rpcError {
	text := vm.ErrExecutionReverted.Error()
	if reason, err := abi.UnpackRevert(data); err == nil {
		text += ": " + reason
	}
	return &rpcError{code: codeReverted, text: text, data: hexutil.Encode(data)}
}
