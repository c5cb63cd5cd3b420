package chain

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/store"
)

const (
	// maxBatchGas bounds the gas of a transaction with several operations.
	maxBatchGas = 12_000_000

	transactionGas   = 21_000
	authorizationGas = 25_000 // EIP-7702, PER_EMPTY_ACCOUNT_COST
	bundleGas        = 50_000 // of handleOps itself
	operationGas     = 60_000 // of the EntryPoint for one operation, besides the limits of the operation
)

// batch is what one transaction carries, and what it needs for that.
type batch struct {
	ops            []*Op
	callData       []byte
	gas            uint64
	authorizations []types.SetCodeAuthorization
	accounts       map[common.Address]account
}

func operations(ops []*Op) []*userop.Operation {
	return store.Mapped(ops, func(op *Op) *userop.Operation { return op.Operation })
}

// gasFor is what a transaction needs at most. The EntryPoint demands the limits of each operation before it runs it, so a
// receiver that burns what its operation has leaves the others theirs.
func gasFor(ops []*Op, callData []byte, authorizations int) uint64 {
	run := uint64(bundleGas)
	for _, op := range ops {
		verification, call := op.Operation.Gas()
		run += operationGas + min(verification, maxTxGas) + min(call, maxTxGas)
	}
	run += run / 32 // a call passes on 63 of 64 parts, twice
	tokens := uint64(0)
	for _, b := range callData {
		if b == 0 {
			tokens++
		} else {
			tokens += 4
		}
	}
	start := transactionGas + uint64(authorizations)*authorizationGas
	return max(start+4*tokens+run, start+10*tokens) // EIP-7623
}

// take chooses the operations of the next transaction from those that wait, in their order.
func (r *Rail) take(waiting []*Op, most int) []*Op {
	var chosen []*Op
	size, gas := 0, uint64(0)
	for _, op := range waiting {
		data := userop.HandleOps([]*userop.Operation{op.Operation}, contracts.EntryPoint)
		size += len(data)
		gas += gasFor([]*Op{op}, data, 2)
		if len(chosen) > 0 && (len(chosen) >= most || size > r.cfg.BatchBytes || gas > maxBatchGas) {
			break
		}
		chosen = append(chosen, op)
	}
	return chosen
}

// assemble makes a transaction's content of operations as the chain stands now, without those that cannot be in it. What cannot
// run is decided or set aside on the way.
func (w *relayer) assemble(ctx context.Context, ops []*Op) (*batch, error) {
	ops = slices.Clone(ops)
	touched := make([]common.Address, 0, 2*len(ops))
	for _, op := range ops {
		touched = append(touched, op.touched()...)
	}
	all, err := w.rail.chain.accounts(ctx, touched...)
	if err != nil {
		return nil, err
	}
	ops = slices.DeleteFunc(ops, func(op *Op) bool {
		f := checkAccounts(op, all)
		if f != nil {
			w.refuse(ctx, op, f)
		}
		return f != nil
	})
	for len(ops) > 0 {
		b := &batch{ops: ops, accounts: all, callData: userop.HandleOps(operations(ops), w.address)}
		var lacks *Op
		if b.authorizations, lacks, err = w.authorizations(ctx, ops, all); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			w.wait(ctx, lacks, err)
			ops = slices.DeleteFunc(ops, func(op *Op) bool { return op == lacks })
			continue
		}
		b.gas = gasFor(ops, b.callData, len(b.authorizations))
		bad, err := w.try(ctx, b)
		if err != nil {
			return nil, err
		}
		if len(bad) == 0 {
			return b, nil
		}
		var left []*Op
		for i, op := range ops {
			if slices.Contains(bad, i) {
				w.judge(ctx, op)
			} else {
				left = append(left, op)
			}
		}
		ops = left
	}
	return nil, nil
}

// authorizations are those that give accounts of these operations their code, one for each account that has none. With an error, lacks
// is the operation of which one cannot be signed.
func (w *relayer) authorizations(ctx context.Context, ops []*Op, all map[common.Address]account) (made []types.SetCodeAuthorization, lacks *Op, err error) {
	done := map[common.Address]bool{}
	for _, op := range ops {
		for _, a := range op.touched() {
			if all[a].code != codeNone || done[a] {
				continue
			}
			done[a] = true
			if a == op.Payer && op.Authorization != nil {
				made = append(made, *op.Authorization)
				continue
			}
			one, err := w.rail.cfg.Signer.Authorization(ctx, signer.Authorization{Account: a, Nonce: all[a].nonce})
			if errors.Is(err, signer.ErrNoKey) {
				continue // the operation fails in the trial, which says why
			}
			if err != nil {
				return nil, op, err
			}
			made = append(made, one)
		}
	}
	return made, nil, nil
}

// try runs a transaction without sending it and returns the indexes of the operations that do not go through.
func (w *relayer) try(ctx context.Context, b *batch) (bad []int, err error) {
	m := message{From: w.address, To: contracts.EntryPoint, Gas: hexutil.Uint64(b.gas), Data: b.callData}
	with := overrides(b.accounts)
	err = w.rail.chain.read(ctx, func(ctx context.Context, c *endpoints.Conn) error {
		if now := w.rail.cfg.Clock(); !now.Before(w.plainTo) {
			var err error
			bad, err = simulate(ctx, c, b, m, with)
			if !errors.Is(err, errNoSimulation) {
				return err
			}
			w.plainTo = now.Add(plainFor)
		}
		var answer hexutil.Bytes
		bad = nil
		return try(ctx, c, "eth_call", &answer, m, with)
	})
	if errors.Is(err, errNoOverrides) {
		return nil, nil // a first operation that cannot be tried is sent
	}
	v, ok := errors.AsType[*reverted](err)
	if !ok {
		return bad, err
	}
	if i, ok := failedOp(v.reason); ok && i < len(b.ops) {
		return []int{i}, nil
	}
	// A revert that names no operation: each is looked at by itself.
	for i := range b.ops {
		bad = append(bad, i)
	}
	return bad, nil
}

// failedOp reads the index from FailedOp(i, …) and FailedOpWithRevert(i, …).
func failedOp(reason string) (int, bool) {
	_, rest, found := strings.Cut(reason, "(")
	if !found || !strings.HasPrefix(reason, "FailedOp") {
		return 0, false
	}
	number, _, _ := strings.Cut(rest, ",")
	i, err := strconv.Atoi(number)
	return i, err == nil && i >= 0
}

// errNoSimulation says that an endpoint has no eth_simulateV1.
var errNoSimulation = errors.New("chain: the endpoint cannot simulate blocks")

// simulate is a trial that also tells which operations would run and fail.
func simulate(ctx context.Context, c *endpoints.Conn, b *batch, m message, with map[common.Address]any) ([]int, error) {
	type state struct {
		Overrides map[common.Address]any `json:"stateOverrides,omitempty"`
		Calls     []message              `json:"calls"`
	}
	var blocks []struct {
		Calls []struct {
			Status hexutil.Uint64 `json:"status"`
			Logs   []*types.Log   `json:"logs"`
			Error  *struct {
				Code int    `json:"code"`
				Text string `json:"message"`
				Data string `json:"data"`
			} `json:"error"`
		} `json:"calls"`
	}
	err := c.RPC.CallContext(ctx, &blocks, "eth_simulateV1", map[string]any{"blockStateCalls": []state{{with, []message{m}}}}, "latest")
	if _, ok := errors.AsType[rpc.Error](err); ok {
		return nil, errNoSimulation // whatever it says, eth_call says it more plainly
	}
	if err != nil {
		return nil, err
	}
	if len(blocks) != 1 || len(blocks[0].Calls) != 1 {
		return nil, errNoSimulation
	}
	run := blocks[0].Calls[0]
	if run.Status != 1 {
		if run.Error == nil {
			return nil, errNoSimulation
		}
		return nil, &reverted{reason: userop.Reason(common.FromHex(run.Error.Data))}
	}
	fine := map[common.Hash]bool{}
	for _, l := range run.Logs {
		if e, ok := parseEvent(l); ok && e.success {
			fine[e.op] = true
		}
	}
	var bad []int
	for i, op := range b.ops {
		if !fine[op.Hash] {
			bad = append(bad, i)
		}
	}
	return bad, nil
}
