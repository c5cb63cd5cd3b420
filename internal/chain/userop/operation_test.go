package userop_test

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
)

var bigs = cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })

func TestOperation_JSON(t *testing.T) {
	op := vectorOrder(t)
	op.CallData, op.Signature = op.CallData[:4], []byte{0xab, 0xcd}
	const want = `{"sender":"0x1a642f0e3c3af545e7acbd38b07251b3990914f1",` +
		`"nonce":"0x1c1105e0173648541bbdfb05ce2389c32a8f888536146c540000000000000000","initCode":"0x","callData":"0x5c1c6dcd",` +
		`"accountGasLimits":"0x000000000000000000000000000186a000000000000000000000000000030d40","preVerificationGas":"0x0",` +
		`"gasFees":"0x0000000000000000000000000000000000000000000000000000000000000000","paymasterAndData":"0x","signature":"0xabcd"}`
	got, err := json.Marshal(op)
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	var members map[string]any
	must.Do(t, json.Unmarshal(got, &members))
	for name := range members {
		var less, null map[string]any
		_, _ = json.Unmarshal(got, &less), json.Unmarshal(got, &null)
		delete(less, name)
		null[name] = nil
		for _, m := range []map[string]any{less, null} {
			b, _ := json.Marshal(m)
			if err := json.Unmarshal(b, new(userop.Operation)); err == nil {
				t.Errorf("an operation without %s is read", name)
			}
		}
	}
	for _, bad := range []string{
		strings.Replace(want, `"preVerificationGas":"0x0"`, `"preVerificationGas":"-0x1"`, 1),
		strings.Replace(want, `"preVerificationGas":"0x0"`, `"preVerificationGas":"0x1`+strings.Repeat("0", 64)+`"`, 1),
		strings.Replace(want, `"0xabcd"`, `"0xabc"`, 1),
		`[]`, `"0x"`,
	} {
		if err := json.Unmarshal([]byte(bad), new(userop.Operation)); err == nil {
			t.Errorf("it reads %s", bad)
		}
	}
}

// What is stored and read again is the same operation, with the same hashes.
func TestOperation_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		op := operations.Draw(t, "operation")
		b := must.Get(json.Marshal(op))(t)
		var again userop.Operation
		must.Do(t, json.Unmarshal(b, &again))
		if diff := cmp.Diff(op, &again, bigs); diff != "" {
			t.Fatal(diff)
		}
		if op.Hash(chainID) != again.Hash(chainID) || op.SigningHash(chainID) != again.SigningHash(chainID) {
			t.Fatal("other hashes")
		}
		verification, call := again.Gas()
		if userop.GasLimits(verification, call) != op.AccountGasLimits {
			t.Fatalf("%x has %d and %d", op.AccountGasLimits, verification, call)
		}
	})
}

func TestOperation_GasAbove64Bits(t *testing.T) {
	op := userop.Operation{AccountGasLimits: [32]byte{7: 1, 15: 3, 31: 7}}
	if verification, call := op.Gas(); verification != 1<<64-1 || call != 7 {
		t.Errorf("%d, %d", verification, call)
	}
}

// Every member but the signature changes both hashes, and so does the chain.
func TestOperation_Hashes(t *testing.T) {
	op := vectorOrder(t)
	hash, signing := op.Hash(chainID), op.SigningHash(chainID)
	for name, change := range map[string]func(o *userop.Operation){
		"sender":             func(o *userop.Operation) { o.Sender = service },
		"nonce":              func(o *userop.Operation) { o.Nonce = big.NewInt(1) },
		"initCode":           func(o *userop.Operation) { o.InitCode = []byte{0} },
		"callData":           func(o *userop.Operation) { o.CallData = o.CallData[:len(o.CallData)-1] },
		"accountGasLimits":   func(o *userop.Operation) { o.AccountGasLimits[31]++ },
		"preVerificationGas": func(o *userop.Operation) { o.PreVerificationGas = big.NewInt(1) },
		"gasFees":            func(o *userop.Operation) { o.GasFees[31]++ },
		"paymasterAndData":   func(o *userop.Operation) { o.PaymasterAndData = []byte{0} },
	} {
		other := *op
		change(&other)
		if other.Hash(chainID) == hash || other.SigningHash(chainID) == signing {
			t.Errorf("%s is not hashed", name)
		}
	}
	if op.Hash(big.NewInt(8453)) == hash || op.SigningHash(big.NewInt(8453)) == signing {
		t.Error("the chain is not hashed")
	}
	op.Signature = []byte{1}
	if op.Hash(chainID) != hash || op.SigningHash(chainID) != signing {
		t.Error("the signature is hashed")
	}
}

func TestNonceKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.String().Draw(t, "id")
		order, void, revoke := userop.OrderKey(id), userop.VoidKey(id), userop.RevokeKey(id, 0)
		if order == void || order == revoke || void == revoke {
			t.Fatal("two kinds of operations have one key")
		}
		nonce := userop.Nonce(order)
		if userop.KeyOf(nonce) != order || userop.KeyOf(new(big.Int).Add(nonce, big.NewInt(7))) != order {
			t.Fatalf("the key of %x is %x, want %x", nonce, userop.KeyOf(nonce), order)
		}
		if nonce.BitLen() > 256 || nonce.TrailingZeroBits() < 64 {
			t.Fatalf("%x is no nonce of sequence 0", nonce)
		}
	})
}
