package userop_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/signer/core/apitypes"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
)

// What a wallet makes of the typed data is what the contract checks.
func TestDelegation_TypedData(t *testing.T) {
	pinned := userop.NewDelegation(userop.Terms{
		ID: "pinned", Delegate: service, Delegator: subscriber, Token: usdc, Limit: big.NewInt(1), After: 5, Before: 6, Receiver: &receiver,
	})
	for name, d := range map[string]*userop.Delegation{"vector": vectorDelegation(), "pinned": pinned} {
		b := must.Get(json.Marshal(d.TypedData(chainID)))(t)
		var wallet apitypes.TypedData
		must.Do(t, json.Unmarshal(b, &wallet))
		hash, _, err := apitypes.TypedDataAndHash(wallet)
		if err != nil {
			t.Fatal(name, err)
		}
		if want := d.SigningHash(chainID); common.BytesToHash(hash) != want {
			t.Errorf("%s: a wallet signs %x, the contract checks %s", name, hash, want)
		}
	}
}

// The terms, byte for byte as the enforcers read them.
func TestDelegation_Terms(t *testing.T) {
	const word = "000000000000000000000000000000000000000000000000000000000000000"
	terms := userop.Terms{
		ID: "id", Delegate: service, Delegator: subscriber, Token: usdc, Limit: big.NewInt(0x0a), After: 1, Before: 2, Receiver: &receiver,
	}
	type caveats []struct {
		enforcer common.Address
		terms    string
	}
	time := "00000000000000000000000000000001" + "00000000000000000000000000000002"
	for name, v := range map[string]struct {
		d    *userop.Delegation
		want caveats
	}{
		"token": {userop.NewDelegation(terms), caveats{
			{contracts.ERC20TransferAmountEnforcer, "036cbd53842c5426634e7929541ec2318f3dcf7e" + word + "a"},
			{contracts.TimestampEnforcer, time},
			{contracts.AllowedCalldataEnforcer, word + "4" + "0000000000000000000000001111111111111111111111111111111111111111"},
		}},
	} {
		if v.d.Authority != userop.Root || v.d.Authority.Hex() != "0xffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff" {
			t.Errorf("%s: authority %s", name, v.d.Authority)
		}
		if len(v.d.Caveats) != len(v.want) {
			t.Fatalf("%s: %v", name, v.d.Caveats)
		}
		for i, c := range v.d.Caveats {
			if c.Enforcer != v.want[i].enforcer || hex.EncodeToString(c.Terms) != v.want[i].terms {
				t.Errorf("%s: caveat %d is %s %x, want %v", name, i, c.Enforcer, c.Terms, v.want[i])
			}
		}
	}
}

// Whatever NewDelegation makes can be read back, and nothing else can.
func TestDelegation_ReadTerms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := userop.Terms{
			ID: rapid.String().Draw(t, "id"), Delegate: addresses.Draw(t, "delegate"), Delegator: addresses.Draw(t, "delegator"),
			Token: addresses.Draw(t, "token"), Limit: numbers.Draw(t, "limit"), After: rapid.Uint64().Draw(t, "after"), Before: rapid.Uint64().Draw(t, "before"),
		}
		if rapid.Bool().Draw(t, "pinned") {
			to := addresses.Draw(t, "receiver")
			in.Receiver = &to
		}
		made := userop.NewDelegation(in)
		out := must.Get(made.Terms())(t)
		in.ID = ""
		if diff := cmp.Diff(in, out, bigs); diff != "" {
			t.Fatal(diff)
		}

		switch rapid.IntRange(0, 6).Draw(t, "change") {
		case 0:
			made.Authority[0]--
		case 1:
			made.Caveats = made.Caveats[1:]
		case 2:
			made.Caveats = made.Caveats[:1]
		case 3:
			made.Caveats = append(made.Caveats, userop.Caveat{Enforcer: contracts.TimestampEnforcer})
		case 4:
			made.Salt = rapid.SampledFrom([]*big.Int{nil, big.NewInt(-1), new(big.Int).Lsh(big.NewInt(1), 256)}).Draw(t, "salt")
		case 5:
			i := rapid.IntRange(0, len(made.Caveats)-1).Draw(t, "caveat")
			made.Caveats[i].Enforcer[0]++
		case 6:
			i := rapid.IntRange(0, len(made.Caveats)-1).Draw(t, "caveat")
			made.Caveats[i].Terms = append(made.Caveats[i].Terms, 0)
		}
		if terms, err := made.Terms(); !errors.Is(err, userop.ErrTerms) {
			t.Fatalf("changed, it is read as %+v, %v", terms, err)
		}
	})
}

// Numbers of 16 bytes above 2^64-1 would not be read back exactly.
func TestDelegation_ReadTermsBeyond(t *testing.T) {
	for _, at := range []int{0, 7, 16, 23} {
		d := vectorDelegation()
		d.Caveats[1].Terms[at] = 1
		if terms, err := d.Terms(); !errors.Is(err, userop.ErrTerms) {
			t.Errorf("byte %d: %+v, %v", at, terms, err)
		}
	}
}

func TestSignedDelegation_Check(t *testing.T) {
	d := &userop.SignedDelegation{Delegation: *vectorDelegation()}
	d.Signature = sign(t, d.SigningHash(chainID))
	must.Check(t, d.Check(chainID))
	if d.Check(big.NewInt(8453)) == nil {
		t.Error("it is good on another chain")
	}
	d.Signature = sign(t, d.Hash())
	if d.Check(chainID) == nil {
		t.Error("a signature of something else is good")
	}
	if d.Signature = nil; d.Check(chainID) == nil {
		t.Error("no signature is good")
	}
}
