package chain_test

import (
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
)

// framework is the part of the contracts' interface that only these tests use in another way than the rail.
var framework = func() abi.ABI {
	parsed, err := abi.JSON(strings.NewReader(`[
		{"type":"function","name":"redeemDelegations","inputs":[{"type":"bytes[]"},{"type":"bytes32[]"},{"type":"bytes[]"}]},
		{"type":"function","name":"execute","inputs":[{"type":"tuple","components":[
			{"name":"target","type":"address"},{"name":"value","type":"uint256"},{"name":"callData","type":"bytes"}]}]},
		{"type":"event","name":"UserOperationEvent","inputs":[
			{"name":"nonce","type":"uint256"},{"name":"success","type":"bool"},{"name":"cost","type":"uint256"},{"name":"used","type":"uint256"}]},
		{"type":"event","name":"UserOperationRevertReason","inputs":[{"name":"nonce","type":"uint256"},{"name":"reason","type":"bytes"}]}
	]`))
	if err != nil {
		panic(err)
	}
	return parsed
}()

func pack(t testing.TB, method string, args ...any) []byte {
	t.Helper()
	return must.Get(framework.Pack(method, args...))(t)
}

// execute is the calldata of an account that makes one call.
func execute(t testing.TB, target common.Address, data []byte) []byte {
	return pack(t, "execute", struct {
		Target   common.Address
		Value    *big.Int
		CallData []byte
	}{target, new(big.Int), data})
}

// single is one call as the manager takes it.
func single(target common.Address, value int64, data []byte) []byte {
	return slices.Concat(target[:], common.LeftPadBytes(big.NewInt(value).Bytes(), 32), data)
}

// move is the calldata of transfer, or of another method with the same arguments.
func move(method string, to common.Address, amount int64) []byte {
	return slices.Concat(crypto.Keccak256([]byte(method))[:4], common.LeftPadBytes(to[:], 32), common.LeftPadBytes(big.NewInt(amount).Bytes(), 32))
}

const transfer = "transfer(address,uint256)"

var simple [32]byte // single call that reverts

// reason of a call that is tried: "" when it does not revert. Accounts of coded have our code already.
func (w *world) reason(from, to common.Address, data []byte, coded ...common.Address) string {
	w.Helper()
	with := map[common.Address]any{}
	for _, a := range coded {
		with[a] = map[string]any{"code": hexutil.Bytes(userop.AccountCode())}
	}
	var out hexutil.Bytes
	message := map[string]any{"from": from, "to": to, "input": hexutil.Bytes(data), "gas": hexutil.Uint64(16_000_000)}
	err := w.Client().CallContext(w.Context(), &out, "eth_call", message, "latest", with)
	if err == nil {
		return ""
	}
	answer, ok := errors.AsType[rpc.DataError](err)
	if !ok {
		w.Fatalf("eth_call: %v", err)
	}
	text, _ := answer.ErrorData().(string)
	if reason := userop.Reason(common.FromHex(text)); reason != "" {
		return reason
	}
	return "no reason"
}

// redeems tries a redemption by the service account.
func (w *world) redeems(d *userop.SignedDelegation, mode [32]byte, call []byte) string {
	w.Helper()
	data := pack(w, "redeemDelegations", [][]byte{d.Context()}, [][32]byte{mode}, [][]byte{call})
	return w.reason(w.service, contracts.DelegationManager, data, w.service, d.Delegator)
}

// operation is signed by the key of its sender.
func (w *world) operation(sender common.Address, id string, callData []byte, change ...func(*userop.Operation)) *userop.Operation {
	w.Helper()
	op := userop.New(sender, userop.OrderKey(id), callData, 1_000_000)
	for _, f := range change {
		f(op)
	}
	op.Signature = w.keys.Sign(w, sender, op.SigningHash(w.chainID()))
	return op
}

// outer tries handleOps.
func (w *world) outer(coded []common.Address, ops ...*userop.Operation) string {
	w.Helper()
	return w.reason(w.outside, contracts.EntryPoint, userop.HandleOps(ops, w.outside), coded...)
}

// event is what the EntryPoint says of an operation.
type event struct {
	success bool
	reason  string // of UserOperationRevertReason; "none" when there is no such event
}

// lands sends an operation and returns its event.
func (w *world) lands(op *userop.Operation, needCode ...common.Address) event {
	w.Helper()
	receipt := w.send(contracts.EntryPoint, userop.HandleOps([]*userop.Operation{op}, w.outside), needCode...)
	if receipt.Status != types.ReceiptStatusSuccessful {
		w.Fatal("handleOps reverts")
	}
	return w.readEvent(receipt, op.Hash(w.chainID()))
}

func (w *world) readEvent(receipt *types.Receipt, op common.Hash) event {
	w.Helper()
	e, found := event{reason: "none"}, false
	for _, l := range receipt.Logs {
		if l.Address != contracts.EntryPoint || len(l.Topics) < 2 || l.Topics[1] != op {
			continue
		}
		switch l.Topics[0] {
		case common.HexToHash("0x49628fd1471006c1482da88028e9ce4dbb080b815c9b0344d39e5a8e6ec1419f"):
			values := must.Get(framework.Unpack("UserOperationEvent", l.Data))(w)
			e.success, found = values[1].(bool), true
		case common.HexToHash("0x1c4fada7374c0a9ee8841fc38afe82932dc0f8e69012e927f061a8bae611a201"):
			values := must.Get(framework.Unpack("UserOperationRevertReason", l.Data))(w)
			e.reason = userop.Reason(values[1].([]byte))
		}
	}
	if !found {
		w.Fatal("no UserOperationEvent")
	}
	return e
}

func is(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// pays is the call data of the service account that pays with a delegation.
func pays(t testing.TB, d *userop.SignedDelegation, token common.Address, to ...any) []byte {
	t.Helper()
	var list []userop.Transfer
	for i := 0; i < len(to); i += 2 {
		list = append(list, userop.Transfer{To: to[i].(common.Address), Amount: big.NewInt(int64(to[i+1].(int)))})
	}
	return must.Get(userop.DelegatedCall(token, list, d))(t)
}

func TestFramework_Limit(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		const exceeded = "ERC20TransferAmountEnforcer:allowance-exceeded"
		owner := w.account(usdc, 100_000_000)
		both := []common.Address{w.service, owner}
		d := w.signedBy(owner, w.onChain(w.delegation(owner, 5_000)))
		if e := w.lands(w.operation(w.service, "first", pays(t, d, usdc, receiver(1), 40_000_000)), both...); e != (event{true, "none"}) {
			t.Fatalf("the first 40 of 50: %+v", e)
		}
		is(t, "20 more of 10, simulated", w.redeems(d, simple, single(usdc, 0, move(transfer, receiver(1), 20_000_000))), exceeded)
		if e := w.lands(w.operation(w.service, "second", pays(t, d, usdc, receiver(1), 20_000_000))); e != (event{false, exceeded}) {
			t.Errorf("20 more of 10: %+v", e)
		}
		if e := w.lands(w.operation(w.service, "third", pays(t, d, usdc, receiver(1), 10_000_000))); e != (event{true, "none"}) {
			t.Errorf("10 more of 10: %+v", e)
		}
		w.has(owner, usdc, 50_000_000, receiver(1), usdc, 50_000_000)

		second := w.signedBy(owner, w.onChain(w.delegation(owner, 5_000)))
		if e := w.lands(w.operation(w.service, "both", pays(t, second, usdc, receiver(2), 30_000_000, receiver(3), 30_000_000))); e != (event{false, exceeded}) {
			t.Errorf("30 and 30 of 50: %+v", e)
		}
		w.has(owner, usdc, 50_000_000, receiver(2), usdc, 0, receiver(3), usdc, 0)
	})
}

func TestFramework_Time(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		owner := w.account(usdc, 10_000_000)
		start := uint64(w.Now().Unix()) + 3600
		d := w.signedBy(owner, userop.NewDelegation(userop.Terms{
			ID: "window", Delegate: w.service, Delegator: owner, Token: usdc, Limit: big.NewInt(10_000_000), After: start, Before: start + 3600,
		}))
		one := single(usdc, 0, move(transfer, receiver(1), 1))
		const early, late = "TimestampEnforcer:early-delegation", "TimestampEnforcer:expired-delegation"
		is(t, "before the start, simulated", w.redeems(d, simple, one), early)
		if e := w.lands(w.operation(w.service, "early", pays(t, d, usdc, receiver(1), 1)), w.service, owner); e != (event{false, early}) {
			t.Errorf("before the start: %+v", e)
		}
		must.Do(t, w.Advance(90*60*1e9))
		is(t, "inside", w.redeems(d, simple, one), "")
		if e := w.lands(w.operation(w.service, "inside", pays(t, d, usdc, receiver(1), 1))); e != (event{true, "none"}) {
			t.Errorf("inside: %+v", e)
		}
		must.Do(t, w.Advance(60*60*1e9))
		is(t, "after the end, simulated", w.redeems(d, simple, one), late)
		if e := w.lands(w.operation(w.service, "late", pays(t, d, usdc, receiver(1), 1))); e != (event{false, late}) {
			t.Errorf("after the end: %+v", e)
		}
		w.has(receiver(1), usdc, 1)
	})
}

func TestFramework_Revoked(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		owner := w.account(usdc, 10_000_000)
		d := w.signedBy(owner, w.onChain(w.delegation(owner, 500)))
		one := single(usdc, 0, move(transfer, receiver(1), 1))
		is(t, "before", w.redeems(d, simple, one), "")
		if e := w.lands(w.operation(owner, "revoke", userop.RevokeCall(d.Delegation)), owner, w.service); e != (event{true, "none"}) {
			t.Fatalf("the revocation: %+v", e)
		}
		is(t, "after, simulated", w.redeems(d, simple, one), "CannotUseADisabledDelegation()")
		if e := w.lands(w.operation(w.service, "order", pays(t, d, usdc, receiver(1), 1))); e != (event{false, "CannotUseADisabledDelegation()"}) {
			t.Errorf("after: %+v", e)
		}
		if e := w.lands(w.operation(owner, "again", userop.RevokeCall(d.Delegation))); e != (event{false, "AlreadyDisabled()"}) {
			t.Errorf("the second revocation: %+v", e)
		}
		w.has(receiver(1), usdc, 0)
	})
}

func TestFramework_WrongCall(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		owner, stranger := w.account(usdc, 10_000_000, eurc, 10_000_000), w.account()
		d := w.signedBy(owner, w.onChain(w.delegation(owner, 500)))
		one := single(usdc, 0, move(transfer, receiver(1), 1))
		redeem := pack(t, "redeemDelegations", [][]byte{d.Context()}, [][32]byte{simple}, [][]byte{one})
		is(t, "the delegate", w.redeems(d, simple, one), "")
		is(t, "another caller", w.reason(stranger, contracts.DelegationManager, redeem, owner), "InvalidDelegate()")
		is(t, "a stranger at the account", w.reason(stranger, owner, execute(t, usdc, move(transfer, stranger, 1)), owner), "NotEntryPointOrSelf()")
		is(t, "approve", w.redeems(d, simple, single(usdc, 0, move("approve(address,uint256)", receiver(1), 1))),
			"ERC20TransferAmountEnforcer:invalid-method")
		is(t, "another token", w.redeems(d, simple, single(eurc, 0, move(transfer, receiver(1), 1))), "ERC20TransferAmountEnforcer:invalid-contract")
		short := w.onChain(w.delegation(owner, 500))
		short.Caveats[0].Terms = short.Caveats[0].Terms[:51]
		is(t, "short terms", w.redeems(w.signedBy(owner, short), simple, one), "ERC20TransferAmountEnforcer:invalid-terms-length")
		batch, try := [32]byte{0x01}, [32]byte{0x00, 0x01}
		is(t, "batch mode", w.redeems(d, batch, one), "CaveatEnforcer:invalid-call-type")
		is(t, "try mode", w.redeems(d, try, one), "CaveatEnforcer:invalid-execution-type")
		unequal := pack(t, "redeemDelegations", [][]byte{d.Context()}, [][32]byte{simple, simple}, [][]byte{one})
		is(t, "unequal arrays", w.reason(w.service, contracts.DelegationManager, unequal, owner), "BatchDataLengthMismatch()")
	})
}

func TestFramework_Signatures(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		owner, stranger := w.account(usdc, 10_000_000), w.account()
		made := w.onChain(w.delegation(owner, 500))
		one := single(usdc, 0, move(transfer, receiver(1), 1))
		redeem := func(signature []byte, coded ...common.Address) string {
			d := userop.SignedDelegation{Delegation: *made, Signature: signature}
			data := pack(t, "redeemDelegations", [][]byte{d.Context()}, [][32]byte{simple}, [][]byte{one})
			return w.reason(w.service, contracts.DelegationManager, data, coded...)
		}
		wrongKey := w.keys.Sign(t, stranger, made.SigningHash(w.chainID()))
		otherChain := w.keys.Sign(t, owner, made.SigningHash(big.NewInt(contracts.Base)))
		for what, signature := range map[string][]byte{"wrong key": wrongKey, "other chain": otherChain} {
			is(t, what+", with code", redeem(signature, owner), "InvalidERC1271Signature()")
			is(t, what+", without code", redeem(signature), "InvalidEOASignature()")
		}
		is(t, "empty, with code", redeem(nil, owner), "ECDSAInvalidSignatureLength(0)")

		code := []common.Address{owner}
		data := must.Get(userop.DirectCall(usdc, []userop.Transfer{{To: receiver(1), Amount: big.NewInt(1)}}))(t)
		op := w.operation(owner, "order", data)
		is(t, "good", w.outer(code, op), "")
		op.Signature = w.keys.Sign(t, stranger, op.SigningHash(w.chainID()))
		is(t, "operation by another key", w.outer(code, op), `FailedOp(0, "AA24 signature error")`)
		op = w.operation(owner, "order", data)
		op.Signature[64] -= 27
		is(t, "v of 0 or 1", w.outer(code, op), `FailedOpWithRevert(0, "AA23 reverted", ECDSAInvalidSignature())`)
		is(t, "no code", w.outer(nil, w.operation(owner, "order", data)), "no reason")
	})
}

func TestFramework_GasFields(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		owner := w.account(usdc, 10_000_000)
		code := []common.Address{owner}
		data := must.Get(userop.DirectCall(usdc, []userop.Transfer{{To: receiver(1), Amount: big.NewInt(1)}}))(t)
		limits := func(verification, call uint64) func(*userop.Operation) {
			return func(o *userop.Operation) { o.AccountGasLimits = userop.GasLimits(verification, call) }
		}
		is(t, "little verification gas", w.outer(code, w.operation(owner, "a", data, limits(25_000, 200_000))),
			`FailedOp(0, "AA26 over verificationGasLimit")`)
		is(t, "more call gas than the transaction has", w.outer(code, w.operation(owner, "b", data, limits(100_000, 20_000_000))),
			`FailedOp(0, "AA95 out of gas")`)
		fees := w.operation(owner, "c", data, func(o *userop.Operation) { o.GasFees = userop.GasLimits(1, 1) })
		is(t, "fees without a deposit", w.outer(code, fees), `FailedOp(0, "AA21 didn't pay prefund")`)
		if e := w.lands(w.operation(owner, "d", data, limits(100_000, 4_000)), owner); e != (event{false, "none"}) {
			t.Errorf("little call gas: %+v, want a failure without a reason", e)
		}
		w.has(receiver(1), usdc, 0)
	})
}

func TestFramework_Pinning(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		owner, only := w.account(usdc, 10_000_000), receiver(1)
		d := w.signedBy(owner, userop.NewDelegation(userop.Terms{
			ID: "pinned", Delegate: w.service, Delegator: owner, Token: usdc, Limit: big.NewInt(10), Before: uint64(w.Now().Unix() + 600), Receiver: &only,
		}))
		is(t, "the receiver", w.redeems(d, simple, single(usdc, 0, move(transfer, only, 1))), "")
		is(t, "another one", w.redeems(d, simple, single(usdc, 0, move(transfer, receiver(2), 1))), "AllowedCalldataEnforcer:invalid-calldata")
	})
}

// eventOf reads the event of an operation from a transaction.
func (w *world) eventOf(tx, op common.Hash) event {
	w.Helper()
	return w.readEvent(w.receipt(tx), op)
}
