package chaintest_test

import (
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"pgregory.net/rapid"

	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
)

const operationTuple = "(address,uint256,bytes,bytes,bytes32,uint256,bytes32,bytes,bytes)"

// Structs of the contracts, as arguments of [chaintest.Call].
type (
	packedOperation struct {
		Name0 common.Address
		Name1 *big.Int
		Name2 []byte
		Name3 []byte
		Name4 [32]byte
		Name5 *big.Int
		Name6 [32]byte
		Name7 []byte
		Name8 []byte
	}
	signedDelegation struct {
		Name0 common.Address
		Name1 common.Address
		Name2 [32]byte
		Name3 []signedCaveat
		Name4 *big.Int
		Name5 []byte
	}
	signedCaveat struct {
		Name0 common.Address
		Name1 []byte
		Name2 []byte
	}
)

var (
	addresses = rapid.Custom(func(t *rapid.T) common.Address {
		// Some of these few addresses are equal.
		return common.Address{19: byte(rapid.IntRange(1, 4).Draw(t, "address"))}
	})
	numbers = rapid.Custom(func(t *rapid.T) *big.Int {
		return new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 32).Draw(t, "number"))
	})
	operations = rapid.Custom(func(t *rapid.T) *userop.Operation {
		some := rapid.SliceOfN(rapid.Byte(), 0, 100)
		return &userop.Operation{
			Sender: addresses.Draw(t, "sender"), Nonce: numbers.Draw(t, "nonce"), InitCode: some.Draw(t, "initCode"), CallData: some.Draw(t, "callData"),
			AccountGasLimits:   userop.GasLimits(rapid.Uint64().Draw(t, "verification"), rapid.Uint64().Draw(t, "call")),
			PreVerificationGas: numbers.Draw(t, "preVerificationGas"), GasFees: common.BigToHash(numbers.Draw(t, "fees")),
			PaymasterAndData: some.Draw(t, "paymaster"), Signature: some.Draw(t, "signature"),
		}
	})
	delegations = rapid.Custom(func(t *rapid.T) *userop.Delegation {
		d := &userop.Delegation{
			Delegate: addresses.Draw(t, "delegate"), Delegator: addresses.Draw(t, "delegator"), Authority: userop.Root, Salt: numbers.Draw(t, "salt"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "caveats") {
			d.Caveats = append(d.Caveats, userop.Caveat{Enforcer: addresses.Draw(t, "enforcer"), Terms: rapid.SliceOfN(rapid.Byte(), 0, 70).Draw(t, "terms")})
		}
		return d
	})
)

// The contracts compute the same hashes as package userop.
func TestHashes_OnChain(t *testing.T) {
	c := chaintest.Embedded(t)
	chainID := big.NewInt(contracts.BaseSepolia)
	ask := func(t rapid.TB, to common.Address, data []byte) common.Hash {
		var answer hexutil.Bytes
		code := map[common.Address]any{to: map[string]any{"code": hexutil.Bytes(userop.AccountCode())}}
		if to == contracts.EntryPoint || to == contracts.DelegationManager {
			code = nil
		}
		err := c.Client().Call(&answer, "eth_call", map[string]any{"to": to, "data": hexutil.Bytes(data)}, "latest", code)
		if err != nil || len(answer) != 32 {
			t.Fatalf("%x, %v", answer, err)
		}
		return common.Hash(answer)
	}
	check := func(t rapid.TB, op *userop.Operation, d *userop.Delegation) {
		packed := packedOperation{
			op.Sender, op.Nonce, op.InitCode, op.CallData, op.AccountGasLimits, op.PreVerificationGas, op.GasFees, op.PaymasterAndData, op.Signature,
		}
		if got, want := op.Hash(chainID), ask(t, contracts.EntryPoint, chaintest.Call("getUserOpHash("+operationTuple+")", packed)); got != want {
			t.Fatalf("userOpHash %s, want %s", got, want)
		}
		typed := chaintest.Call("getPackedUserOperationTypedDataHash("+operationTuple+")", packed)
		if got, want := op.SigningHash(chainID), ask(t, op.Sender, typed); got != want {
			t.Fatalf("the account wants a signature of %s, we make one of %s", want, got)
		}
		theirs := signedDelegation{Name0: d.Delegate, Name1: d.Delegator, Name2: d.Authority, Name4: d.Salt}
		for _, c := range d.Caveats {
			theirs.Name3 = append(theirs.Name3, signedCaveat{Name0: c.Enforcer, Name1: c.Terms})
		}
		hashed := chaintest.Call("getDelegationHash((address,address,bytes32,(address,bytes,bytes)[],uint256,bytes))", theirs)
		if got, want := d.Hash(), ask(t, contracts.DelegationManager, hashed); got != want {
			t.Fatalf("the hash of the delegation is %s, want %s", got, want)
		}
	}
	callData := must.Get(userop.DirectCall(vectorTerms.Token, vectorTransfers()))(t)
	check(t, userop.New(vectorTerms.Delegator, userop.OrderKey("order-1"), callData, 200_000), userop.NewDelegation(vectorTerms))
	rapid.Check(t, func(t *rapid.T) {
		op := operations.Draw(t, "operation")
		op.Sender[0] = 0xaa // no precompile
		check(t, op, delegations.Draw(t, "delegation"))
	})
}
