package userop_test

import (
	"bytes"
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"pgregory.net/rapid"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
)

// published are the functions that the calldata is for, as the packages of the contracts publish them.
const published = `[
{"type":"function","name":"execute","inputs":[{"name":"e","type":"tuple","components":[{"name":"target","type":"address"},{"name":"value","type":"uint256"},{"name":"callData","type":"bytes"}]}]},
{"type":"function","name":"batch","inputs":[{"name":"e","type":"tuple[]","components":[{"name":"target","type":"address"},{"name":"value","type":"uint256"},{"name":"callData","type":"bytes"}]}]},
{"type":"function","name":"execute","inputs":[{"name":"mode","type":"bytes32"},{"name":"executionCalldata","type":"bytes"}]},
{"type":"function","name":"transfer","inputs":[{"name":"to","type":"address"},{"name":"value","type":"uint256"}]},
{"type":"function","name":"redeemDelegations","inputs":[{"name":"contexts","type":"bytes[]"},{"name":"modes","type":"bytes32[]"},{"name":"calls","type":"bytes[]"}]},
{"type":"function","name":"disableDelegation","inputs":[{"name":"d","type":"tuple","components":[{"name":"delegate","type":"address"},{"name":"delegator","type":"address"},{"name":"authority","type":"bytes32"},{"name":"caveats","type":"tuple[]","components":[{"name":"enforcer","type":"address"},{"name":"terms","type":"bytes"},{"name":"args","type":"bytes"}]},{"name":"salt","type":"uint256"},{"name":"signature","type":"bytes"}]}]},
{"type":"function","name":"context","inputs":[{"name":"d","type":"tuple[]","components":[{"name":"delegate","type":"address"},{"name":"delegator","type":"address"},{"name":"authority","type":"bytes32"},{"name":"caveats","type":"tuple[]","components":[{"name":"enforcer","type":"address"},{"name":"terms","type":"bytes"},{"name":"args","type":"bytes"}]},{"name":"salt","type":"uint256"},{"name":"signature","type":"bytes"}]}]},
{"type":"function","name":"transferWithAuthorization","inputs":[{"name":"from","type":"address"},{"name":"to","type":"address"},{"name":"value","type":"uint256"},{"name":"validAfter","type":"uint256"},{"name":"validBefore","type":"uint256"},{"name":"nonce","type":"bytes32"},{"name":"v","type":"uint8"},{"name":"r","type":"bytes32"},{"name":"s","type":"bytes32"}]},
{"type":"function","name":"transferWithAuthorization","inputs":[{"name":"from","type":"address"},{"name":"to","type":"address"},{"name":"value","type":"uint256"},{"name":"validAfter","type":"uint256"},{"name":"validBefore","type":"uint256"},{"name":"nonce","type":"bytes32"},{"name":"signature","type":"bytes"}]},
{"type":"function","name":"isValidSignature","inputs":[{"name":"hash","type":"bytes32"},{"name":"signature","type":"bytes"}]},
{"type":"function","name":"incrementNonce","inputs":[{"name":"key","type":"uint192"}]},
{"type":"function","name":"handleOps","inputs":[{"name":"ops","type":"tuple[]","components":[{"name":"sender","type":"address"},{"name":"nonce","type":"uint256"},{"name":"initCode","type":"bytes"},{"name":"callData","type":"bytes"},{"name":"accountGasLimits","type":"bytes32"},{"name":"preVerificationGas","type":"uint256"},{"name":"gasFees","type":"bytes32"},{"name":"paymasterAndData","type":"bytes"},{"name":"signature","type":"bytes"}]},{"name":"beneficiary","type":"address"}]}
]`

var reference = func() abi.ABI {
	a, err := abi.JSON(strings.NewReader(published))
	if err != nil {
		panic(err)
	}
	return a
}()

type (
	execution struct {
		Target   common.Address
		Value    *big.Int
		CallData []byte
	}
	caveat struct {
		Enforcer    common.Address
		Terms, Args []byte
	}
	delegation struct {
		Delegate, Delegator common.Address
		Authority           common.Hash
		Caveats             []caveat
		Salt                *big.Int
		Signature           []byte
	}
)

// packed is what go-ethereum's encoder makes of a call; a second function of one name has the name and 0.
func packed(t rapid.TB, method string, args ...any) []byte {
	b, err := reference.Pack(method, args...)
	must.Do(t, err, method)
	return b
}

func theirs(d *userop.Delegation, signature []byte) delegation {
	out := delegation{d.Delegate, d.Delegator, d.Authority, nil, d.Salt, signature}
	for _, c := range d.Caveats {
		out.Caveats = append(out.Caveats, caveat{c.Enforcer, c.Terms, nil})
	}
	return out
}

var (
	addresses = rapid.Custom(func(t *rapid.T) common.Address {
		// Few of them, so that some are equal.
		return common.Address{19: byte(rapid.IntRange(1, 4).Draw(t, "address"))}
	})
	numbers = rapid.Custom(func(t *rapid.T) *big.Int {
		return new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 32).Draw(t, "number"))
	})
	transferred = rapid.Custom(func(t *rapid.T) userop.Transfer {
		amount := new(big.Int)
		if rapid.Bool().Draw(t, "positive") {
			amount = numbers.Draw(t, "amount")
		}
		return userop.Transfer{To: addresses.Draw(t, "to"), Amount: amount}
	})
	signed = rapid.Custom(func(t *rapid.T) *userop.SignedDelegation {
		d := &userop.SignedDelegation{Delegation: userop.Delegation{
			Delegate: addresses.Draw(t, "delegate"), Delegator: addresses.Draw(t, "delegator"), Authority: userop.Root, Salt: numbers.Draw(t, "salt"),
		}, Signature: rapid.SliceOfN(rapid.Byte(), 0, 70).Draw(t, "signature")}
		for range rapid.IntRange(0, 3).Draw(t, "caveats") {
			d.Caveats = append(d.Caveats, userop.Caveat{Enforcer: addresses.Draw(t, "enforcer"), Terms: rapid.SliceOfN(rapid.Byte(), 0, 70).Draw(t, "terms")})
		}
		return d
	})
)

// wanted are the executions that transfers mean.
func wanted(t rapid.TB, token common.Address, transfers []userop.Transfer) (out []execution) {
	for _, x := range transfers {
		switch {
		case x.Amount.Sign() == 0:
		case token == common.Address{}:
			out = append(out, execution{x.To, x.Amount, nil})
		default:
			out = append(out, execution{token, new(big.Int), packed(t, "transfer", x.To, x.Amount)})
		}
	}
	return out
}

// Receivers of nothing are left out, equal receivers stay apart and in order, more than ten or none are no payment, and each
// byte is what another encoder writes.
func TestCalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		token := rapid.SampledFrom([]common.Address{usdc, {}}).Draw(t, "token")
		transfers := rapid.SliceOfN(transferred, 0, 16).Draw(t, "transfers")
		by := signed.Draw(t, "by")
		want := wanted(t, token, transfers)

		direct, err := userop.DirectCall(token, transfers)
		delegated, delegatedErr := userop.DelegatedCall(token, transfers, by)
		if len(want) == 0 || len(want) > userop.MaxTransfers {
			if !errors.Is(err, userop.ErrTransfers) || !errors.Is(delegatedErr, userop.ErrTransfers) || direct != nil || delegated != nil {
				t.Fatalf("%d receivers: %v, %v", len(want), err, delegatedErr)
			}
			return
		}
		if err != nil || delegatedErr != nil {
			t.Fatal(err, delegatedErr)
		}
		wantDirect := packed(t, "execute", want[0])
		if len(want) > 1 {
			wantDirect = packed(t, "execute0", [32]byte{1}, packed(t, "batch", want)[4:])
		}
		if !bytes.Equal(direct, wantDirect) {
			t.Fatalf("direct:\n%x, want\n%x", direct, wantDirect)
		}
		var contexts, calls [][]byte
		for _, e := range want {
			contexts = append(contexts, packed(t, "context", []delegation{theirs(&by.Delegation, by.Signature)})[4:])
			calls = append(calls, append(append(e.Target.Bytes(), common.BigToHash(e.Value).Bytes()...), e.CallData...))
		}
		redeem := packed(t, "redeemDelegations", contexts, make([][32]byte, len(want)), calls)
		if wantDelegated := packed(t, "execute", execution{contracts.DelegationManager, new(big.Int), redeem}); !bytes.Equal(delegated, wantDelegated) {
			t.Fatalf("delegated:\n%x, want\n%x", delegated, wantDelegated)
		}
		if got, want := userop.RevokeCall(by.Delegation), packed(t, "disableDelegation", theirs(&by.Delegation, nil)); !bytes.Equal(got, want) {
			t.Fatalf("revoke:\n%x, want\n%x", got, want)
		}
	})
}

func TestCalls_NotAnAmount(t *testing.T) {
	for name, amount := range map[string]*big.Int{"none": nil, "negative": big.NewInt(-1), "2^256": new(big.Int).Lsh(big.NewInt(1), 256)} {
		transfers := []userop.Transfer{{To: receiver, Amount: big.NewInt(1)}, {To: receiver, Amount: amount}}
		if b, err := userop.DirectCall(usdc, transfers); !errors.Is(err, userop.ErrTransfers) || b != nil {
			t.Errorf("%s: %x, %v", name, b, err)
		}
		if b, err := userop.DelegatedCall(usdc, transfers, &userop.SignedDelegation{Delegation: *vectorDelegation()}); !errors.Is(err, userop.ErrTransfers) || b != nil {
			t.Errorf("%s: %x, %v", name, b, err)
		}
	}
}

func TestVoidCall(t *testing.T) {
	key := userop.OrderKey("order-1")
	inner := packed(t, "incrementNonce", new(big.Int).SetBytes(key[:]))
	if got, want := userop.VoidCall(key), packed(t, "execute", execution{contracts.EntryPoint, new(big.Int), inner}); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

func TestSaleCall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := &evm.Authorization{
			From: toll.Address(addresses.Draw(t, "from")), To: toll.Address(addresses.Draw(t, "to")), Value: numbers.Draw(t, "value"),
			ValidAfter: rapid.Uint64().Draw(t, "after"), ValidBefore: rapid.Uint64().Draw(t, "before"), Nonce: common.BigToHash(numbers.Draw(t, "nonce")),
		}
		s := rapid.SliceOfN(rapid.Byte(), 65, 65).Draw(t, "signature")
		inner := packed(t, "transferWithAuthorization", a.From, a.To, a.Value, new(big.Int).SetUint64(a.ValidAfter), new(big.Int).SetUint64(a.ValidBefore),
			a.Nonce, s[64], [32]byte(s[:32]), [32]byte(s[32:64]))
		if got, err := userop.AuthorizedTransfer(a, s); err != nil || !bytes.Equal(got, inner) {
			t.Fatalf("%x, %v, want %x", got, err, inner)
		}
		if got, err := userop.SaleCall(usdc, a, s); err != nil || !bytes.Equal(got, packed(t, "execute", execution{usdc, new(big.Int), inner})) {
			t.Fatalf("%x, %v", got, err)
		}
		for _, other := range [][]byte{{}, s[:64], append(s, 0), bytes.Repeat(s, evm.MaxSignature/65)} {
			inner := packed(t, "transferWithAuthorization0", a.From, a.To, a.Value, new(big.Int).SetUint64(a.ValidAfter), new(big.Int).SetUint64(a.ValidBefore),
				a.Nonce, other)
			if got, err := userop.SaleCall(usdc, a, other); err != nil || !bytes.Equal(got, packed(t, "execute", execution{usdc, new(big.Int), inner})) {
				t.Fatalf("a signature of %d bytes: %x, %v", len(other), got, err)
			}
			digest := common.Hash(a.Nonce)
			if got := userop.SignatureCall(digest, other); !bytes.Equal(got, packed(t, "isValidSignature", digest, other)) {
				t.Fatalf("the question about %d bytes: %x", len(other), got)
			}
		}
		if got, err := userop.SaleCall(usdc, a, make([]byte, evm.MaxSignature+1)); !errors.Is(err, userop.ErrAuthorization) || got != nil {
			t.Fatalf("a long signature: %x, %v", got, err)
		}
	})
	for name, value := range map[string]*big.Int{"none": nil, "negative": big.NewInt(-1), "2^256": new(big.Int).Lsh(big.NewInt(1), 256)} {
		if got, err := userop.SaleCall(usdc, &evm.Authorization{Value: value}, make([]byte, 65)); !errors.Is(err, userop.ErrAuthorization) || got != nil {
			t.Errorf("%s: %x, %v", name, got, err)
		}
	}
}

var operations = rapid.Custom(func(t *rapid.T) *userop.Operation {
	some := rapid.SliceOfN(rapid.Byte(), 0, 100)
	return &userop.Operation{
		Sender: addresses.Draw(t, "sender"), Nonce: numbers.Draw(t, "nonce"), InitCode: some.Draw(t, "initCode"), CallData: some.Draw(t, "callData"),
		AccountGasLimits:   userop.GasLimits(rapid.Uint64().Draw(t, "verification"), rapid.Uint64().Draw(t, "call")),
		PreVerificationGas: numbers.Draw(t, "preVerificationGas"), GasFees: common.BigToHash(numbers.Draw(t, "fees")),
		PaymasterAndData: some.Draw(t, "paymaster"), Signature: some.Draw(t, "signature"),
	}
})

func TestHandleOps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ops := rapid.SliceOfN(operations, 0, 5).Draw(t, "operations")
		list := make([]userop.Operation, len(ops))
		for i, o := range ops {
			list[i] = *o
		}
		if got, want := userop.HandleOps(ops, receiver), packed(t, "handleOps", list, receiver); !bytes.Equal(got, want) {
			t.Fatalf("%x, want %x", got, want)
		}
	})
}
