//go:build !nodevchain

package chaintest_test

import (
	"bytes"
	"math/big"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/holiman/uint256"

	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/must"
)

// tokenTest has a payer with 1,000 base units of a token.
type tokenTest struct {
	*contractChain
	at     common.Address
	domain [32]byte
	payer  account
	other  account
}

func startToken(t *testing.T) *tokenTest {
	c := startContractChain(t, contracts.BaseSepolia)
	x := &tokenTest{contractChain: c, at: contracts.USDC(contracts.BaseSepolia), payer: c.account(), other: c.account()}
	x.domain = domainSeparator("USDC", "2", c.id(), x.at)
	x.does(x.other, x.at, chaintest.Call("mint(address,uint256)", x.payer.Address, big.NewInt(1000)))
	return x
}

// domainSeparator returns the EIP-712 domain separator of a token.
func domainSeparator(name, version string, chainID *big.Int, contract common.Address) [32]byte {
	return structHash("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)",
		crypto.Keccak256([]byte(name)), crypto.Keccak256([]byte(version)), chainID.Bytes(), contract[:])
}

// structHash returns the hash of an EIP-712 struct with static fields.
func structHash(structure string, fields ...[]byte) [32]byte {
	words := crypto.Keccak256([]byte(structure))
	for _, f := range fields {
		words = append(words, common.LeftPadBytes(f, 32)...)
	}
	return crypto.Keccak256Hash(words)
}

func (x *tokenTest) digest(message [32]byte) []byte {
	return crypto.Keccak256([]byte("\x19\x01"), x.domain[:], message[:])
}

func (x *tokenTest) number(data []byte) int64 {
	x.t.Helper()
	return new(big.Int).SetBytes(x.reverts("", x.other, x.at, data)).Int64()
}

func (x *tokenTest) balance(of common.Address) int64 {
	x.t.Helper()
	return x.number(chaintest.Call("balanceOf(address)", of))
}

// stringResult decodes the result of a function that returns a string.
func stringResult(answer []byte) string {
	if len(answer) < 64 {
		return ""
	}
	return string(bytes.TrimRight(answer[64:], "\x00"))
}

// logged checks the first event of a transaction: its indexed arguments and its data.
func logged(t *testing.T, receipt *types.Receipt, event string, indexed [][]byte, data ...[]byte) {
	t.Helper()
	words := func(values [][]byte) (all []byte) {
		for _, v := range values {
			all = append(all, common.LeftPadBytes(v, 32)...)
		}
		return all
	}
	l := receipt.Logs[0]
	var topics []byte
	for _, topic := range l.Topics {
		topics = append(topics, topic[:]...)
	}
	want := append([][]byte{crypto.Keccak256([]byte(event))}, indexed...)
	if !bytes.Equal(topics, words(want)) || !bytes.Equal(l.Data, words(data)) {
		t.Errorf("%s is logged as %x, %x", event, topics, l.Data)
	}
}

func (x *tokenTest) wantBalance(of account, want int64) {
	x.t.Helper()
	if got := x.balance(of.Address); got != want {
		x.t.Errorf("the balance is %d, want %d", got, want)
	}
}

// authorization has the arguments of an ERC-3009 authorization.
type authorization struct {
	structure     string
	from, to      common.Address
	value         int64
	after, before int64
	nonce         [32]byte
}

const (
	transferType = "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
	receiveType  = "ReceiveWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
)

func (x *tokenTest) authorization(nonce byte) authorization {
	return authorization{transferType, x.payer.Address, x.other.Address, 10, 0, time.Now().Unix() + 3600, [32]byte{nonce}}
}

func (x *tokenTest) signed(by account, a authorization) []byte {
	x.t.Helper()
	return by.sign(x.t, x.digest(structHash(a.structure, a.from[:], a.to[:], big.NewInt(a.value).Bytes(), big.NewInt(a.after).Bytes(),
		big.NewInt(a.before).Bytes(), a.nonce[:])))
}

func (a authorization) transfer(signature []byte) []byte {
	return chaintest.Call("transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)", a.from, a.to, big.NewInt(a.value), big.NewInt(a.after), big.NewInt(a.before), a.nonce, signature)
}

func (a authorization) transferVRS(signature []byte) []byte {
	return chaintest.Call("transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)", a.from, a.to, big.NewInt(a.value), big.NewInt(a.after), big.NewInt(a.before), a.nonce,
		signature[64], [32]byte(signature[:32]), [32]byte(signature[32:]))
}

func (a authorization) receive(signature []byte) []byte {
	return chaintest.Call("receiveWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)", a.from, a.to, big.NewInt(a.value), big.NewInt(a.after), big.NewInt(a.before), a.nonce, signature)
}

func TestDevTokens_ERC20(t *testing.T) {
	x := startToken(t)
	for symbol, at := range map[string]common.Address{
		"USDC": contracts.USDC(contracts.BaseSepolia), "EURC": contracts.EURC(contracts.BaseSepolia),
	} {
		for function, data := range map[string][]byte{"name": chaintest.Call("name()"), "symbol": chaintest.Call("symbol()")} {
			if got := stringResult(x.reverts("", x.other, at, data)); got != symbol {
				t.Errorf("%s() = %q, want %s", function, got, symbol)
			}
		}
		if version := stringResult(x.reverts("", x.other, at, chaintest.Call("version()"))); version != "2" {
			t.Errorf("version() = %q", version)
		}
		if got, want := x.reverts("", x.other, at, chaintest.Call("DOMAIN_SEPARATOR()")), domainSeparator(symbol, "2", x.id(), at); [32]byte(got) != want {
			t.Errorf("DOMAIN_SEPARATOR() of %s = %x, want %x", symbol, got, want)
		}
		if got := new(big.Int).SetBytes(x.reverts("", x.other, at, chaintest.Call("decimals()"))); got.Int64() != contracts.Decimals {
			t.Errorf("decimals() = %s", got)
		}
	}
	if supply := x.number(chaintest.Call("totalSupply()")); supply != 1000 {
		t.Errorf("totalSupply() = %d", supply)
	}

	receipt := x.does(x.payer, x.at, chaintest.Call("transfer(address,uint256)", x.other.Address, big.NewInt(300)))
	logged(t, receipt, "Transfer(address,address,uint256)", [][]byte{x.payer.Address[:], x.other.Address[:]}, []byte{300 >> 8, 300 & 0xff})
	x.wantBalance(x.payer, 700)
	x.wantBalance(x.other, 300)
	x.does(x.payer, x.at, chaintest.Call("transfer(address,uint256)", x.payer.Address, big.NewInt(700)))
	x.wantBalance(x.payer, 700)
	x.reverts("ERC20: transfer amount exceeds balance", x.payer, x.at, chaintest.Call("transfer(address,uint256)", x.other.Address, big.NewInt(701)))
	x.reverts("ERC20: transfer to the zero address", x.payer, x.at, chaintest.Call("transfer(address,uint256)", common.Address{}, big.NewInt(1)))

	x.reverts("ERC20: transfer amount exceeds allowance", x.other, x.at, chaintest.Call("transferFrom(address,address,uint256)", x.payer.Address, x.other.Address, big.NewInt(1)))
	receipt = x.does(x.payer, x.at, chaintest.Call("approve(address,uint256)", x.other.Address, big.NewInt(100)))
	logged(t, receipt, "Approval(address,address,uint256)", [][]byte{x.payer.Address[:], x.other.Address[:]}, []byte{100})
	x.does(x.other, x.at, chaintest.Call("transferFrom(address,address,uint256)", x.payer.Address, x.other.Address, big.NewInt(60)))
	x.wantBalance(x.payer, 640)
	if left := x.number(chaintest.Call("allowance(address,address)", x.payer.Address, x.other.Address)); left != 40 {
		t.Errorf("the allowance is %d, want 40", left)
	}
}

func TestDevTokens_Permit(t *testing.T) {
	x := startToken(t)
	permit := func(by account, nonce, deadline int64) []byte {
		return by.sign(t, x.digest(structHash("Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)", x.payer.Address[:],
			x.other.Address[:], big.NewInt(50).Bytes(), big.NewInt(nonce).Bytes(), big.NewInt(deadline).Bytes())))
	}
	deadline := time.Now().Unix() + 3600
	data := func(deadline int64, signature []byte) []byte {
		return chaintest.Call("permit(address,address,uint256,uint256,bytes)", x.payer.Address, x.other.Address, big.NewInt(50), big.NewInt(deadline), signature)
	}
	x.reverts("EIP2612: invalid signature", x.other, x.at, data(deadline, permit(x.other, 0, deadline)))
	x.reverts("EIP2612: invalid signature", x.other, x.at, data(deadline, permit(x.payer, 1, deadline)))
	x.reverts("FiatTokenV2: permit is expired", x.other, x.at, data(1, permit(x.payer, 0, 1)))
	x.does(x.other, x.at, data(deadline, permit(x.payer, 0, deadline)))
	if allowed := x.number(chaintest.Call("allowance(address,address)", x.payer.Address, x.other.Address)); allowed != 50 {
		t.Errorf("the allowance is %d, want 50", allowed)
	}
	x.reverts("EIP2612: invalid signature", x.other, x.at, data(deadline, permit(x.payer, 0, deadline)))
	second := permit(x.payer, 1, deadline)
	x.does(x.other, x.at, chaintest.Call("permit(address,address,uint256,uint256,uint8,bytes32,bytes32)", x.payer.Address, x.other.Address, big.NewInt(50), big.NewInt(deadline),
		second[64], [32]byte(second[:32]), [32]byte(second[32:])))
	if nonce := x.number(chaintest.Call("nonces(address)", x.payer.Address)); nonce != 2 {
		t.Errorf("the nonce is %d, want 2", nonce)
	}
}

func TestDevTokens_Authorizations(t *testing.T) {
	x := startToken(t)
	a := x.authorization(1)
	signature := x.signed(x.payer, a)
	x.reverts("FiatTokenV2: invalid signature", x.other, x.at, a.transfer(x.signed(x.other, a)))
	more := a
	more.value++
	x.reverts("FiatTokenV2: invalid signature", x.other, x.at, more.transfer(signature))
	receipt := x.does(x.other, x.at, a.transferVRS(signature))
	logged(t, receipt, "AuthorizationUsed(address,bytes32)", [][]byte{x.payer.Address[:], a.nonce[:]})
	x.wantBalance(x.other, 10)
	if x.number(chaintest.Call("authorizationState(address,bytes32)", x.payer.Address, a.nonce)) != 1 {
		t.Error("the authorization is not used")
	}
	x.reverts("FiatTokenV2: authorization is used or canceled", x.other, x.at, a.transfer(signature))

	a = x.authorization(2)
	a.value = 991
	x.reverts("ERC20: transfer amount exceeds balance", x.other, x.at, a.transfer(x.signed(x.payer, a)))
	a = x.authorization(2)
	a.before = time.Now().Unix() - 100
	x.reverts("FiatTokenV2: authorization is expired", x.other, x.at, a.transfer(x.signed(x.payer, a)))
	a = x.authorization(2)
	a.after = a.before - 1
	x.reverts("FiatTokenV2: authorization is not yet valid", x.other, x.at, a.transfer(x.signed(x.payer, a)))

	a = x.authorization(3)
	a.structure = receiveType
	x.reverts("FiatTokenV2: caller must be the payee", x.payer, x.at, a.receive(x.signed(x.payer, a)))
	x.reverts("FiatTokenV2: invalid signature", x.other, x.at, a.transfer(x.signed(x.payer, a)))
	x.does(x.other, x.at, a.receive(x.signed(x.payer, a)))
	x.wantBalance(x.other, 20)

	a = x.authorization(4)
	cancel := func(by account) []byte {
		return chaintest.Call("cancelAuthorization(address,bytes32,bytes)", x.payer.Address, a.nonce,
			by.sign(t, x.digest(structHash("CancelAuthorization(address authorizer,bytes32 nonce)", x.payer.Address[:], a.nonce[:]))))
	}
	x.reverts("FiatTokenV2: invalid signature", x.other, x.at, cancel(x.other))
	receipt = x.does(x.other, x.at, cancel(x.payer))
	logged(t, receipt, "AuthorizationCanceled(address,bytes32)", [][]byte{x.payer.Address[:], a.nonce[:]})
	x.reverts("FiatTokenV2: authorization is used or canceled", x.other, x.at, cancel(x.payer))
	x.reverts("FiatTokenV2: authorization is used or canceled", x.other, x.at, a.transfer(x.signed(x.payer, a)))
	x.wantBalance(x.payer, 980)
}

func TestDevTokens_Signatures(t *testing.T) {
	x := startToken(t)
	a := x.authorization(1)
	good := x.signed(x.payer, a)
	x.reverts("ECRecover: invalid signature length", x.other, x.at, a.transfer(good[:64]))
	bad := append([]byte(nil), good...)
	bad[64] -= 27
	x.reverts("ECRecover: invalid signature 'v' value", x.other, x.at, a.transfer(bad))
	high := append([]byte(nil), good...)
	new(big.Int).Sub(crypto.S256().Params().N, new(big.Int).SetBytes(good[32:64])).FillBytes(high[32:64])
	high[64] = 27 + 28 - high[64]
	x.reverts("ECRecover: invalid signature 's' value", x.other, x.at, a.transfer(high))
	x.reverts("ECRecover: invalid signature", x.other, x.at, a.transfer(append(make([]byte, 64), 27)))
	x.reverts("", x.other, x.at, a.transfer(good))
}

// The token verifies a signature of an account with delegated code with ERC-1271. The code accepts signatures of the key of the account.
func TestDevTokens_AccountWithCode(t *testing.T) {
	x := startToken(t)
	a := x.authorization(1)
	install, err := types.SignSetCode(x.payer.key, types.SetCodeAuthorization{ChainID: *uint256.MustFromBig(x.id()), Address: contracts.AccountCode})
	must.Do(t, err)
	receipt := x.mine(x.other, &types.SetCodeTx{
		ChainID: uint256.MustFromBig(x.id()), Nonce: 1, GasTipCap: uint256.NewInt(1), GasFeeCap: uint256.NewInt(1e9), Gas: 200_000,
		To: x.other.Address, AuthList: []types.SetCodeAuthorization{install},
	})
	code, err := x.eth.CodeAt(t.Context(), x.payer.Address, receipt.BlockNumber)
	if err != nil || len(code) != 23 {
		t.Fatalf("the account has the code %x, %v", code, err)
	}
	x.reverts("FiatTokenV2: invalid signature", x.other, x.at, a.transfer(x.signed(x.other, a)))
	x.does(x.other, x.at, a.transfer(x.signed(x.payer, a)))
	x.wantBalance(x.other, 10)
}
