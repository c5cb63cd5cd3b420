package server_test

import (
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	gethtypes "github.com/ethereum/go-ethereum/core/types"
	ethcrypto "github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/signer/core/apitypes"
	"github.com/holiman/uint256"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/storetest"
)

// userWallet is an account whose key the service never sees.
type userWallet struct {
	key     *ecdsa.PrivateKey
	address common.Address
}

func newUserWallet(t *testing.T) userWallet {
	t.Helper()
	key := must.Get(ethcrypto.GenerateKey())(t)
	return userWallet{key, ethcrypto.PubkeyToAddress(key.PublicKey)}
}

// signTyped signs typed data as wallets do, from its JSON alone.
func (w userWallet) signTyped(t *testing.T, data map[string]any) string {
	t.Helper()
	text := must.Get(json.Marshal(data))(t)
	var typed apitypes.TypedData
	if err := json.Unmarshal(text, &typed); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	hash, _, err := apitypes.TypedDataAndHash(typed)
	must.Do(t, err)
	signature := must.Get(ethcrypto.Sign(hash, w.key))(t)
	signature[64] += 27
	return hexutil.Encode(signature)
}

func (w userWallet) authorize(t *testing.T) json.RawMessage {
	t.Helper()
	a, err := gethtypes.SignSetCode(w.key, gethtypes.SetCodeAuthorization{ChainID: *uint256.NewInt(84532), Address: contracts.AccountCode})
	must.Do(t, err)
	return must.Get(json.Marshal(a))(t)
}

// A user keeps the key of the account that pays: the account signs a limit once, plans are bought up to it without the key, and
// the user ends it on the chain.
func TestHeldAccount(t *testing.T) {
	ctx := t.Context()
	address := servertest.FreeAddress(t)
	s, url := start(t, server.Config{Data: storetest.Dir(t), Rails: rails.Config{Chain: rails.ChainConfig{HTTP: address}}})
	builder, subscriber := keys(t, s)
	c := newStand(t, url, builder, subscriber, 0).patient
	w, stranger := newUserWallet(t), newUserWallet(t)
	give := func(body map[string]string) {
		t.Helper()
		body["address"] = w.address.Hex()
		must.Do(t, c.subscriber.Call(ctx, http.MethodPost, "/api/v1/sandbox/faucet", nil, body, nil))
	}
	d, err := c.subscriber.CreateDelegation(ctx, client.DelegationParams{
		Provider: toll.ProviderCrypto, SpendingLimit: 250, Lifetime: time.Hour, Currency: "usdc", OwnerAccount: toll.Address(w.address),
		AllowedRecipients: []toll.Address{c.owner},
	})
	if err != nil || d.Status != toll.StatusPending || !d.Account.CodeRequired || d.Account.Address != toll.Address(w.address) {
		t.Fatalf("%+v, %v", d, err)
	}
	order := func(want toll.Code) {
		t.Helper()
		o, err := c.subscriber.OrderPlan(ctx, c.plan, client.PaidBy(d.DelegationID))
		if codeOf(err) != want || want == "" && (o.Status != toll.OrderConfirmed && o.Status != toll.OrderFinal || o.TxHash == "") {
			t.Fatalf("%+v, %v, want %q", o, err, want)
		}
	}
	order(toll.CodeDelegationNotFound)
	for _, bad := range []struct {
		signature     string
		authorization json.RawMessage
		want          toll.Code
	}{
		{stranger.signTyped(t, d.TypedData), w.authorize(t), toll.CodeChainSignature},
		{w.signTyped(t, d.TypedData), nil, toll.CodeChainForeignCode},
		{w.signTyped(t, d.TypedData), stranger.authorize(t), toll.CodeChainSignature},
	} {
		if _, err := c.subscriber.SignDelegation(ctx, d.DelegationID, bad.signature, bad.authorization); codeOf(err) != bad.want {
			t.Fatalf("%v, want %s", err, bad.want)
		}
	}
	for range 2 {
		r, err := c.subscriber.SignDelegation(ctx, d.DelegationID, w.signTyped(t, d.TypedData), w.authorize(t))
		if err != nil || r.Status != toll.StatusActive || r.ProviderPaymentMethodID != toll.Address(w.address).String() {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	order(toll.CodeChainBalance) // of the account, not of the wallet
	give(map[string]string{"usdc": "10", "eth": "0.01"})
	order("")
	order("")
	order(toll.CodeDelegationInsufficient)
	if b := c.balance(t); b.Balance != 200 {
		t.Fatalf("%d credits", b.Balance)
	}
	if _, has := purse(t, c.builder); has["USDC"] != "2000000" {
		t.Fatalf("the builder has %v", has)
	}

	out := must.Get(c.subscriber.RevokeDelegation(ctx, d.DelegationID))(t)
	call, _ := out.Data["transaction"].(map[string]any)
	node := must.Get(ethclient.Dial("http://" + address))(t)
	defer node.Close()
	if got := call["from"]; got != toll.Address(w.address).String() {
		t.Fatalf("%+v", out.Data)
	}
	to, data := common.HexToAddress(call["to"].(string)), hexutil.MustDecode(call["data"].(string))
	if got := w.send(t, node, to, data); got.Status != gethtypes.ReceiptStatusSuccessful {
		t.Fatal("the transaction of the answer failed")
	}
	msg := ethereum.CallMsg{From: w.address, To: &to, Data: data}
	if _, err := node.CallContract(ctx, msg, nil); err == nil {
		t.Fatal("the delegation could be disabled again")
	}
	order(toll.CodeDelegationRevoked)
}

// send makes a transaction of the user and waits for it, and for the head: a receipt can be seen before its block is the latest.
func (w userWallet) send(t *testing.T, node *ethclient.Client, to common.Address, data []byte) *gethtypes.Receipt {
	t.Helper()
	ctx := t.Context()
	nonce := must.Get(node.NonceAt(ctx, w.address, nil))(t)
	id := big.NewInt(toll.Sandbox.ChainID())
	tx := must.Get(gethtypes.SignNewTx(w.key, gethtypes.LatestSignerForChainID(id), &gethtypes.DynamicFeeTx{
		ChainID: id, Nonce: nonce, GasTipCap: big.NewInt(1_000_000), GasFeeCap: big.NewInt(100_000_000), Gas: 300_000, To: &to, Data: data,
	}))(t)
	must.Do(t, node.SendTransaction(ctx, tx))
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		r, err := node.TransactionReceipt(ctx, tx.Hash())
		if err == nil {
			head := must.Get(node.BlockNumber(ctx))(t)
			if head >= r.BlockNumber.Uint64() {
				return r
			}
		}
		if err != nil && !errors.Is(err, ethereum.NotFound) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// A delegation of a wallet that the service holds is disabled on the chain by itself, once it was used there.
func TestRevocationOnTheChain(t *testing.T) {
	ctx := t.Context()
	address := servertest.FreeAddress(t)
	s, url := start(t, server.Config{Data: storetest.Dir(t), Rails: rails.Config{Chain: rails.ChainConfig{HTTP: address}}})
	builder, subscriber := keys(t, s)
	c := newStand(t, url, builder, subscriber, 0).patient
	faucet(t, c.subscriber, "10")
	var ids []string
	for range 2 {
		d := must.Get(c.subscriber.CreateDelegation(ctx, client.DelegationParams{
			Provider: toll.ProviderCrypto, SpendingLimit: 250, Lifetime: time.Hour, Currency: "usdc",
		}))(t)
		ids = append(ids, d.DelegationID)
	}
	if o, err := c.subscriber.OrderPlan(ctx, c.plan, client.PaidBy(ids[0])); err != nil || o.TxHash == "" {
		t.Fatalf("%+v, %v", o, err)
	}
	for _, id := range ids {
		must.Get(c.subscriber.RevokeDelegation(ctx, id))(t)
	}
	node := must.Get(ethclient.Dial("http://" + address))(t)
	defer node.Close()
	disabled := common.HexToHash("0xea589ba9473ee1fe77d352c7ed919747715a5d22931b972de9b02a907c66d5dd")
	var logs []gethtypes.Log
	for end := time.Now().Add(patience); len(logs) == 0 && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		logs = must.Get(node.FilterLogs(ctx, ethereum.FilterQuery{
			FromBlock: new(big.Int), Addresses: []common.Address{contracts.DelegationManager}, Topics: [][]common.Hash{{disabled}},
		}))(t)
	}
	if len(logs) != 1 || len(logs[0].Topics) < 3 || common.BytesToAddress(logs[0].Topics[2][:]) != common.Address(c.buyer) {
		t.Fatalf("the chain has %+v", logs)
	}
}
