//go:build !nodevchain

package chaintest_test

import (
	"crypto/ecdsa"
	"errors"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/devchain"
	"github.com/tollhq/toll/internal/must"
)

// contractChain is an embedded chain whose contracts a test calls.
type contractChain struct {
	*chaintest.Chain
	eth *ethclient.Client
	t   *testing.T
}

func startContractChain(t *testing.T, id uint64) *contractChain {
	t.Helper()
	c := chaintest.Start(t, devchain.Config{ChainID: id})
	return &contractChain{c, c.Eth(), t}
}

func (c *contractChain) id() *big.Int { return new(big.Int).SetUint64(c.ChainID()) }

type account struct {
	common.Address
	key *ecdsa.PrivateKey
}

// account returns a new account that can pay for gas.
func (c *contractChain) account() account {
	c.t.Helper()
	key := must.Get(crypto.GenerateKey())(c.t)
	a := account{crypto.PubkeyToAddress(key.PublicKey), key}
	must.Get(c.Fund(c.t.Context(), a.Address, big.NewInt(1e18)))(c.t)
	return a
}

// sign returns r, s, and v, which is 27 or 28.
func (a account) sign(t *testing.T, hash []byte) []byte {
	t.Helper()
	signature := must.Get(crypto.Sign(hash, a.key))(t)
	signature[64] += 27
	return signature
}

// send sends a transaction, waits for its block, and returns its receipt, which may report a failure.
func (c *contractChain) send(from account, to common.Address, data []byte) *types.Receipt {
	c.t.Helper()
	nonce := must.Get(c.eth.PendingNonceAt(c.t.Context(), from.Address))(c.t)
	return c.mine(from, &types.DynamicFeeTx{
		ChainID: c.id(), Nonce: nonce, GasTipCap: big.NewInt(1), GasFeeCap: big.NewInt(1e9), Gas: 3_000_000, To: &to, Data: data,
	})
}

func (c *contractChain) mine(from account, inner types.TxData) *types.Receipt {
	c.t.Helper()
	tx := must.Get(types.SignNewTx(from.key, types.LatestSignerForChainID(c.id()), inner))(c.t)
	return mined(c.t, c.eth, tx)
}

// does sends a transaction and fails the test if it reverts.
func (c *contractChain) does(from account, to common.Address, data []byte) *types.Receipt {
	c.t.Helper()
	c.reverts("", from, to, data)
	receipt := c.send(from, to, data)
	if receipt.Status != types.ReceiptStatusSuccessful {
		c.t.Fatalf("the transaction reverted: %+v", receipt)
	}
	return receipt
}

// reverts checks that a call reverts with a reason or with error data in hexadecimal. With "" it checks that the call succeeds, and returns
// the result.
func (c *contractChain) reverts(want string, from account, to common.Address, data []byte) []byte {
	c.t.Helper()
	answer, err := c.eth.CallContract(c.t.Context(), ethereum.CallMsg{From: from.Address, To: &to, Data: data}, nil)
	got := ""
	var reverted rpc.DataError
	switch {
	case errors.As(err, &reverted):
		text, _ := reverted.ErrorData().(string)
		got = text
		if reason, err := abi.UnpackRevert(common.FromHex(text)); err == nil {
			got = reason
		}
	case err != nil:
		c.t.Fatal(err)
	}
	if got != want {
		c.t.Errorf("the call reverts with %q, want %q", got, want)
	}
	return answer
}
