package chain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/chain/userop"
)

const (
	// maxTxGas is the largest gas of a transaction of ours. The chain refuses more than 2^24.
	maxTxGas = 16_000_000
	// maxCallGas is the most gas that the inner call of an operation may use: four times what ten new receivers through a
	// delegation need. A receiver that burns more is not paid.
	maxCallGas = 5_000_000
)

// codeState says what code an account has.
type codeState int

const (
	codeNone    codeState = iota // it can be installed
	codeOurs                     // that of our accounts
	codeForeign                  // a contract, or a delegation to another one
)

// String is the word of [Wallet.Code].
func (c codeState) String() string { return [...]string{"none", "account", "foreign"}[c] }

func codeOf(code []byte) codeState {
	switch {
	case len(code) == 0:
		return codeNone
	case userop.IsAccountCode(code):
		return codeOurs
	}
	return codeForeign
}

// account is what the chain says of an account at the latest block.
type account struct {
	code  codeState
	nonce uint64
}

// reader reads the chain, over the endpoints of the configuration.
type reader struct {
	cfg     *Config
	chainID *big.Int
	lanes   chan struct{} // bounds concurrent reads
}

// read asks the chain. That no endpoint can be used is [toll.CodeChainUnreachable].
func (r *reader) read(ctx context.Context, f func(ctx context.Context, c *endpoints.Conn) error) error {
	// Who waits here does not use up the time of an attempt: many orders at once must not look like an endpoint that hangs.
	select {
	case r.lanes <- struct{}{}:
		defer func() { <-r.lanes }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return away(r.cfg.Pool.Read(ctx, f))
}

// ask is [reader.read] for one value.
func ask[T any](ctx context.Context, r *reader, f func(ctx context.Context, c *endpoints.Conn) (T, error)) (v T, err error) {
	err = r.read(ctx, func(ctx context.Context, c *endpoints.Conn) (err error) {
		v, err = f(ctx, c)
		return err
	})
	return v, err
}

// away is [toll.CodeChainUnreachable] for the errors of endpoints of which none can be used, or that do not agree.
func away(err error) error {
	if errors.Is(err, endpoints.ErrNone) || errors.Is(err, endpoints.ErrDisagree) {
		return unusable(toll.CodeChainUnreachable, err)
	}
	return err
}

// accounts reads code and nonce of accounts.
func (r *reader) accounts(ctx context.Context, of ...common.Address) (map[common.Address]account, error) {
	slices.SortFunc(of, common.Address.Cmp)
	of = slices.Compact(of)
	found := make([]account, len(of))
	err := r.read(ctx, func(ctx context.Context, c *endpoints.Conn) error {
		jobs := make([]func() error, 0, 2*len(of))
		for i, a := range of {
			jobs = append(jobs, func() error {
				code, err := c.CodeAt(ctx, a, nil)
				found[i].code = codeOf(code)
				return err
			}, func() (err error) {
				found[i].nonce, err = c.NonceAt(ctx, a, nil)
				return err
			})
		}
		return together(jobs...)
	})
	if err != nil {
		return nil, err
	}
	all := make(map[common.Address]account, len(of))
	for i, a := range of {
		all[a] = found[i]
	}
	return all, nil
}

// together runs functions at once and returns the first error.
func together(jobs ...func() error) error {
	errs := make([]error, len(jobs))
	var wg sync.WaitGroup
	for i, f := range jobs {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// message is a call that is tried and not sent.
type message struct {
	From common.Address `json:"from"`
	To   common.Address `json:"to"`
	Gas  hexutil.Uint64 `json:"gas"`
	Data hexutil.Bytes  `json:"input"`
}

// overrides let accounts without code have that of our accounts, as they will when the transaction comes that brings their authorizations.
func overrides(all map[common.Address]account) map[common.Address]any {
	var with map[common.Address]any
	for a, is := range all {
		if is.code == codeNone {
			if with == nil {
				with = map[common.Address]any{}
			}
			with[a] = map[string]any{"code": hexutil.Bytes(userop.AccountCode())}
		}
	}
	return with
}

// try makes a call at the latest block without sending it. A revert is a [*reverted].
func try(ctx context.Context, c *endpoints.Conn, method string, result any, m message, with map[common.Address]any) error {
	args := []any{m, "latest"}
	if len(with) > 0 {
		args = append(args, with)
	}
	err := c.RPC.CallContext(ctx, result, method, args...)
	if answer, ok := errors.AsType[rpc.Error](err); ok {
		if len(with) > 0 && (answer.ErrorCode() == -32602 || answer.ErrorCode() == -32601) {
			return errNoOverrides
		}
		if v, ok := revertOf(answer); ok {
			return v
		}
	}
	return err
}

// errNoOverrides says that an endpoint cannot try a call of an account that has no code yet.
var errNoOverrides = errors.New("chain: the endpoint does not support state overrides")

// reverted is the answer that a call reverts.
type reverted struct {
	reason string // as [userop.Reason] says it; "" without data
	outer  bool   // it is the EntryPoint that says so
}

func (r *reverted) Error() string { return fmt.Sprintf("chain: the call reverts (%s)", r.reason) }

// revertOf reads an answer that says that a call reverts or runs out of what it may use. Other errors say nothing about the
// call: an endpoint that has lost its state must not make an order fail.
func revertOf(answer rpc.Error) (*reverted, bool) {
	var data []byte
	if d, ok := answer.(rpc.DataError); ok {
		if text, ok := d.ErrorData().(string); ok {
			data = common.FromHex(text)
		}
	}
	text := answer.Error()
	switch {
	case len(data) > 0:
		return &reverted{reason: userop.Reason(data)}, true
	case answer.ErrorCode() == 3, strings.HasPrefix(text, "execution reverted"):
		return &reverted{}, true
	}
	for _, end := range []string{"out of gas", "gas required exceeds allowance", "invalid opcode", "invalid jump destination", "stack underflow"} {
		if strings.Contains(strings.ToLower(text), end) {
			return &reverted{reason: end}, true
		}
	}
	return nil, false
}

// inner tries what the EntryPoint would call, and returns the gas for it. A revert is a [*reverted].
func (r *reader) inner(ctx context.Context, sender common.Address, callData []byte, all map[common.Address]account) (callGas uint64, err error) {
	m := message{From: contracts.EntryPoint, To: sender, Gas: maxCallGas, Data: callData}
	with := overrides(all)
	var gas hexutil.Uint64
	var called, estimated error
	err = r.read(ctx, func(ctx context.Context, c *endpoints.Conn) error {
		var answer hexutil.Bytes
		called, estimated = nil, nil
		return together(
			func() error { return answered(try(ctx, c, "eth_call", &answer, m, with), &called) },
			func() error { return answered(try(ctx, c, "eth_estimateGas", &gas, m, with), &estimated) },
		)
	})
	if err == nil {
		err = called
	}
	if err == nil {
		err = estimated
	}
	if err != nil {
		return 0, err
	}
	return uint64(gas) + uint64(gas)/4 + 20_000, nil
}

// answered keeps what an endpoint says about a call, so that another call that is made with it is finished, too.
func answered(err error, said *error) error {
	if _, ok := errors.AsType[*reverted](err); ok || errors.Is(err, errNoOverrides) {
		*said = err
		return nil
	}
	return err
}

// outer tries handleOps with one signed operation. A revert is a [*reverted].
func (r *reader) outer(ctx context.Context, op *userop.Operation, all map[common.Address]account) error {
	m := message{
		From: r.cfg.Relayers[0], To: contracts.EntryPoint, Gas: maxTxGas,
		Data: userop.HandleOps([]*userop.Operation{op}, r.cfg.Relayers[0]),
	}
	with := overrides(all)
	err := r.read(ctx, func(ctx context.Context, c *endpoints.Conn) error {
		var answer hexutil.Bytes
		return try(ctx, c, "eth_call", &answer, m, with)
	})
	if v, ok := errors.AsType[*reverted](err); ok {
		v.outer = true
	}
	return err
}

// guess is the gas of the inner call where no endpoint can estimate it: above what a fresh receiver and the first use of a
// delegation need, and all that code of the payer of a sale may use.
func (r *Rail) guess(op *Op) uint64 {
	n := uint64(len(op.Payments))
	switch {
	case op.Kind == KindSale && !r.signedByKey(op):
		return signer.MaxSaleGas
	case op.Kind != KindOrder:
		return 200_000
	case op.DelegationID != "":
		return 250_000 + 150_000*n
	}
	return 60_000 + 60_000*n
}

// header reads the header of a block, of the last one for nil.
func (r *reader) header(ctx context.Context, number *big.Int) (*types.Header, error) {
	return ask(ctx, r, func(ctx context.Context, c *endpoints.Conn) (*types.Header, error) {
		return c.HeaderByNumber(ctx, number)
	})
}

// balance reads what an account has of a token, base units; the zero address is the native token.
func (r *reader) balance(ctx context.Context, token, of common.Address) (*big.Int, error) {
	return ask(ctx, r, func(ctx context.Context, c *endpoints.Conn) (*big.Int, error) {
		if token == (common.Address{}) {
			return c.BalanceAt(ctx, of, nil)
		}
		return view(ctx, c, token, "balanceOf(address)", common.LeftPadBytes(of[:], 32))
	})
}

// spent reads how many base units the enforcer has counted against a delegation.
func (r *reader) spent(ctx context.Context, enforcer common.Address, delegation common.Hash) (*big.Int, error) {
	return ask(ctx, r, func(ctx context.Context, c *endpoints.Conn) (*big.Int, error) {
		return view(ctx, c, enforcer, "spentMap(address,bytes32)", common.LeftPadBytes(contracts.DelegationManager[:], 32), delegation[:])
	})
}

// disabled reads whether a delegation was disabled on the chain.
func (r *reader) disabled(ctx context.Context, delegation common.Hash) (bool, error) {
	return ask(ctx, r, func(ctx context.Context, c *endpoints.Conn) (bool, error) {
		n, err := view(ctx, c, contracts.DelegationManager, "disabledDelegations(bytes32)", delegation[:])
		return err == nil && n.Sign() != 0, err
	})
}

// errAnswer says that a contract does not answer as it should: it is not the one that was meant.
var errAnswer = errors.New("chain: the contract did not return a number")

// view calls a function that returns one number.
func view(ctx context.Context, c *endpoints.Conn, of common.Address, signature string, words ...[]byte) (*big.Int, error) {
	return viewAt(ctx, c, nil, of, signature, words...)
}

// viewAt is view at a block, the last one for nil.
func viewAt(ctx context.Context, c *endpoints.Conn, block *big.Int, of common.Address, signature string, words ...[]byte) (*big.Int, error) {
	message := ethereum.CallMsg{To: &of, Data: slices.Concat(crypto.Keccak256([]byte(signature))[:4], slices.Concat(words...))}
	out, err := c.CallContract(ctx, message, block)
	if answer, ok := errors.AsType[rpc.Error](err); ok {
		if v, ok := revertOf(answer); ok {
			err = fmt.Errorf("%w: %s: %w", errAnswer, of, v)
		}
	}
	if err == nil && len(out) != 32 {
		err = fmt.Errorf("%w: %s, %s: %d bytes", errAnswer, of, signature, len(out))
	}
	return new(big.Int).SetBytes(out), err
}

// check tries an operation that is signed as it would run now. A [*Failure] says that it cannot, and [errNonceUsed] that the chain
// has run its nonce, which only its event explains. Other errors decide nothing.
func (r *Rail) check(ctx context.Context, op *Op) error {
	all, err := r.chain.accounts(ctx, op.touched()...)
	if err != nil {
		return err
	}
	if f := checkAccounts(op, all); f != nil {
		return f
	}
	_, err = r.chain.inner(ctx, op.Sender, op.Operation.CallData, all)
	// An operation that has run already may fail because of that, so the nonce comes first.
	if ran := r.chain.outer(ctx, op.Operation, all); err == nil || nonceRan(ran) {
		err = ran
	}
	if errors.Is(err, errNoOverrides) {
		return checkBalance(ctx, r.chain, op)
	}
	return r.verdict(ctx, op, err)
}

// nonceRan reports whether the EntryPoint says that the nonce of an operation is used.
func nonceRan(err error) bool {
	v, ok := errors.AsType[*reverted](err)
	return ok && v.outer && strings.Contains(v.reason, "AA25 ")
}

// checkAccounts refuses accounts that cannot run the operation, whatever is installed.
func checkAccounts(op *Op, all map[common.Address]account) *Failure {
	for _, a := range op.touched() {
		is := all[a]
		stale := is.code == codeNone && a == op.Payer && op.Authorization != nil && op.Authorization.Nonce != is.nonce
		if is.code == codeForeign || stale {
			reason := "The account has contract code that this service does not support."
			if stale {
				reason = "The account has no contract code, and the nonce of its authorization is outdated."
			}
			return &Failure{Code: toll.CodeChainForeignCode, Reason: reason, Params: map[string]any{"address": toll.Address(a).String()}}
		}
	}
	return nil
}
