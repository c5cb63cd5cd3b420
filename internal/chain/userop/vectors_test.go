package userop_test

import (
	"bytes"
	"encoding/hex"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
)

// The keys and orders of the vectors. Their results are those of independent implementations: the contracts themselves, and
// what wallets make of the same data.
var (
	chainID    = big.NewInt(84532)
	subscriber = common.HexToAddress("0x1a642f0E3c3aF545E7AcBD38b07251B3990914F1")
	service    = common.HexToAddress("0x5050A4F4b3f9338C3472dcC01A87C76A144b3c9c")
	receiver   = common.HexToAddress("0x1111111111111111111111111111111111111111")
	usdc       = common.HexToAddress("0x036CbD53842c5426634e7929541eC2318f3dCF7e")
)

func vectorOrder(t *testing.T) *userop.Operation {
	t.Helper()
	callData := must.Get(userop.DirectCall(usdc, []userop.Transfer{{To: receiver, Amount: big.NewInt(1_000_000)}}))(t)
	return userop.New(subscriber, userop.OrderKey("order-1"), callData, 200_000)
}

func vectorDelegation() *userop.Delegation {
	return userop.NewDelegation(userop.Terms{
		ID: "00000000-0000-4000-8000-000000000001", Delegate: service, Delegator: subscriber, Token: usdc,
		Limit: big.NewInt(10_000_000), Before: 1893456000,
	})
}

// sign signs with go-ethereum's own code, which the signer does not use.
func sign(t *testing.T, hash common.Hash) []byte {
	t.Helper()
	key := must.Get(crypto.ToECDSA(bytes.Repeat([]byte{1}, 32)))(t)
	if crypto.PubkeyToAddress(key.PublicKey) != subscriber {
		t.Fatal("the key is not the subscriber's")
	}
	sig := must.Get(crypto.Sign(hash[:], key))(t)
	sig[64] += 27
	return sig
}

func TestVectors(t *testing.T) {
	op, d := vectorOrder(t), vectorDelegation()
	void := userop.VoidKey("order-1")
	unsigned := types.SetCodeAuthorization{Address: contracts.AccountCode}
	unsigned.ChainID.SetFromBig(chainID)
	authorization := sign(t, unsigned.SigHash())
	for name, v := range map[string]struct{ got, want string }{
		"operation nonce":      {hex.EncodeToString(common.BigToHash(op.Nonce).Bytes()), "1c1105e0173648541bbdfb05ce2389c32a8f888536146c540000000000000000"},
		"userOpHash":           {op.Hash(chainID).Hex(), "0x5c80ed947d82d41fff31354f180b3952000024aea3462eb32b2bc965d7906987"},
		"account typed hash":   {op.SigningHash(chainID).Hex(), "0x7f077cb06cb1a434952f62dcba501331751ccc6051b2602491b34e0d4f3c2033"},
		"operation signature":  {hex.EncodeToString(sign(t, op.SigningHash(chainID))), "c3c4345b415f7550ee6911673bfbedffe63a35cdb1358ecfc7f52d4d18360d3b62437ba229b5ab7f443f1ff98cd3789fb2a20bf6330adfd6cc00e87379e394a61c"},
		"delegation hash":      {d.Hash().Hex(), "0x8920c78076feacb58d0d21a534215df7941499606698cde46616e28694a93db3"},
		"delegation signature": {hex.EncodeToString(sign(t, d.SigningHash(chainID))), "14e6248266f00e1c530c70e304af539a473a98a0e579fe53bbe63aba0606e0b103fd95b4490d117e08d1e60bb9778173ed974377123cf677ae0608d50de2c9b91c"},
		"void key":             {hex.EncodeToString(void[:]), "3ac033c62d5bac785e3af797179918730e756dad8409f65e"},
		"authorization":        {hex.EncodeToString(authorization), "104a1733aca5060eccc982e2fb7e27476aa53382ac9c6325c961003ab1310930" + "55e15e7b74ae79833163d78f24157d09f836b0f10cbe02b92273a23c1a05e9c0" + "1c"},
	} {
		if v.got != v.want {
			t.Errorf("%s: %s, want %s", name, v.got, v.want)
		}
	}
}

// The selectors of functions, as the contracts publish them.
func TestSelectors(t *testing.T) {
	one := []userop.Transfer{{To: receiver, Amount: big.NewInt(1)}}
	two := append(one, one...)
	call := func(data []byte, err error) []byte {
		t.Helper()
		must.Do(t, err)
		return data
	}
	delegated := call(userop.DelegatedCall(usdc, one, &userop.SignedDelegation{Delegation: *vectorDelegation(), Signature: make([]byte, 65)}))
	for name, v := range map[string]struct {
		got  []byte
		want string
	}{
		"one receiver":     {call(userop.DirectCall(usdc, one)), "5c1c6dcd"},
		"two receivers":    {call(userop.DirectCall(usdc, two)), "e9ae5c53" + "01" + "00000000000000000000000000000000000000000000000000000000000000"},
		"delegated":        {delegated, "5c1c6dcd"},
		"delegated, inner": {delegated[4+5*32:], "cef6d209"},
		"revoke":           {userop.RevokeCall(*vectorDelegation()), "49934047"},
		"void, inner":      {userop.VoidCall(userop.OrderKey("order-1"))[4+5*32:], "0bd28e3b"},
		"bundle":           {userop.HandleOps(nil, receiver), "765e827f"},
	} {
		if got := hex.EncodeToString(v.got[:min(len(v.got), len(v.want)/2)]); got != v.want {
			t.Errorf("%s: %s, want %s", name, got, v.want)
		}
	}
}

func TestAccountCode(t *testing.T) {
	if want := "ef010063c0c19a282a1b52b07dd5a65b58948a07dae32b"; hex.EncodeToString(userop.AccountCode()) != want {
		t.Errorf("%x, want %s", userop.AccountCode(), want)
	}
	if !bytes.Equal(userop.AccountCode(), types.AddressToDelegation(contracts.AccountCode)) {
		t.Error("not what go-ethereum writes")
	}
	for code, want := range map[string]bool{
		string(userop.AccountCode()):          true,
		"":                                    false,
		string(userop.AccountCode()[:22]):     false,
		string(userop.AccountCode()) + "\x00": false,
		string(types.AddressToDelegation(contracts.EntryPoint)): false,
	} {
		if userop.IsAccountCode([]byte(code)) != want {
			t.Errorf("%x: want %t", code, want)
		}
	}
}
