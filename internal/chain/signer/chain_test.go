package signer_test

import (
	"context"
	"math/big"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/devchain"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
)

// onChain is a bench with a chain on which its relayer has gas money and its subscriber 50 USDC.
type onChain struct {
	*bench
	t     *testing.T
	eth   *ethclient.Client
	nonce uint64
}

func newOnChain(t *testing.T) *onChain {
	t.Helper()
	b := newBench(t, nil)
	c := must.Get(devchain.Start(t.Context(), devchain.Config{Funded: []common.Address{b.relayer}}))(t)
	t.Cleanup(func() { _ = c.Close() })
	must.Get(c.Mint(t.Context(), b.usdc, b.subscriber, big.NewInt(50_000_000)))(t)
	must.Get(c.Fund(t.Context(), b.subscriber, big.NewInt(1000)))(t)
	return &onChain{b, t, ethclient.NewClient(c.Client()), 0}
}

// send lets the relayer send operations, with code for these accounts, and returns which of them succeeded.
func (c *onChain) send(ops []*userop.Operation, accounts ...common.Address) []bool {
	c.t.Helper()
	request := signer.RelayerTx{Relayer: c.relayer, Nonce: c.nonce, Ops: ops, Gas: 3_000_000, Tip: big.NewInt(1_000_000), FeeCap: big.NewInt(10_000_000_000)}
	for _, a := range accounts {
		nonce := must.Get(c.eth.NonceAt(c.t.Context(), a, nil))(c.t)
		authorization := must.Get(c.Authorization(c.t.Context(), signer.Authorization{Account: a, Nonce: nonce}))(c.t)
		request.Authorizations = append(request.Authorizations, authorization)
	}
	tx := must.Get(c.RelayerTx(c.t.Context(), request))(c.t)
	var success []bool
	for _, log := range c.mined(tx).Logs {
		ran := crypto.Keccak256Hash([]byte("UserOperationEvent(bytes32,address,address,uint256,bool,uint256,uint256)"))
		if log.Address != contracts.EntryPoint || log.Topics[0] != ran {
			continue
		}
		if want := ops[len(success)].Hash(big.NewInt(contracts.BaseSepolia)); log.Topics[1] != want {
			c.t.Errorf("the event is of %s, want %s", log.Topics[1], want)
		}
		success = append(success, log.Data[63] == 1)
	}
	return success
}

func (c *onChain) mined(tx *types.Transaction) *types.Receipt {
	c.t.Helper()
	must.Do(c.t, c.eth.SendTransaction(c.t.Context(), tx))
	c.nonce++
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	for {
		// A receipt can be seen before its block is the latest.
		r, err := c.eth.TransactionReceipt(ctx, tx.Hash())
		if err == nil {
			if head, err := c.eth.BlockNumber(ctx); err == nil && head >= r.BlockNumber.Uint64() {
				return r
			}
		}
		if ctx.Err() != nil {
			c.t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// simulate returns why the EntryPoint would refuse an operation.
func (c *onChain) simulate(op *userop.Operation) string {
	c.t.Helper()
	_, err := c.eth.CallContract(c.t.Context(), ethereum.CallMsg{
		From: c.relayer, To: &contracts.EntryPoint, Data: userop.HandleOps([]*userop.Operation{op}, c.relayer),
	}, nil)
	return c.reason(err)
}

// run returns why the account would refuse the calldata of an operation.
func (c *onChain) run(op *userop.Operation) string {
	c.t.Helper()
	_, err := c.eth.CallContract(c.t.Context(), ethereum.CallMsg{From: contracts.EntryPoint, To: &op.Sender, Data: op.CallData}, nil)
	return c.reason(err)
}

func (c *onChain) reason(err error) string {
	c.t.Helper()
	if err == nil {
		return ""
	}
	data, ok := err.(rpc.DataError)
	if !ok {
		c.t.Fatal(err)
	}
	text, _ := data.ErrorData().(string)
	return userop.Reason(common.FromHex(text))
}

func (c *onChain) balance(account common.Address) int64 {
	c.t.Helper()
	out, err := c.eth.CallContract(c.t.Context(), ethereum.CallMsg{To: &c.usdc, Data: chaintest.Call("balanceOf(address)", account)}, nil)
	must.Do(c.t, err)
	return new(big.Int).SetBytes(out).Int64()
}

// What the signer signs runs: code is installed, money moves once, voided and revoked operations do not run.
func TestOnChain(t *testing.T) {
	c := newOnChain(t)
	ctx := t.Context()
	op := func(o *userop.Operation, err error) *userop.Operation {
		t.Helper()
		return must.Get(o, err)(t)
	}
	expect := func(what string, got []bool, want ...bool) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
	}
	paid := func(what string, want int64) {
		t.Helper()
		if got := c.balance(receiver); got != want {
			t.Errorf("%s: the receiver has %d, want %d", what, got, want)
		}
	}

	first := op(c.Order(ctx, c.direct("order-1")))
	expect("a direct order with an authorization", c.send([]*userop.Operation{first}, c.subscriber), true)
	paid("after it", 1_000_000)
	if code, err := c.eth.CodeAt(ctx, c.subscriber, nil); err != nil || !userop.IsAccountCode(code) {
		t.Errorf("the code is %x, %v", code, err)
	}
	if got := c.simulate(first); got != `FailedOp(0, "AA25 invalid account nonce")` {
		t.Errorf("again: %s", got)
	}
	other := c.direct("order-1")
	other.Transfers[0].Amount, other.Total = big.NewInt(5), big.NewInt(5)
	forgetful := newBench(t, nil)
	if got := c.simulate(op(forgetful.Order(ctx, other))); got != `FailedOp(0, "AA25 invalid account nonce")` {
		t.Errorf("another content for the order, by another process: %s", got)
	}

	d := userop.NewDelegation(c.terms())
	several := c.delegated(t, "order-2", d)
	several.Transfers = []userop.Transfer{{To: receiver, Amount: big.NewInt(1)}, {To: c.service, Amount: new(big.Int)}, {To: receiver, Amount: big.NewInt(2)}}
	several.Total, several.CallGas = big.NewInt(3), 400_000
	native := c.direct("order-3")
	native.Token = common.Address{}
	native.Transfers = []userop.Transfer{{To: receiver, Amount: big.NewInt(300)}, {To: common.Address{0xaa}, Amount: big.NewInt(600)}}
	native.Total = big.NewInt(900)
	expect("a delegated and a native order", c.send([]*userop.Operation{op(c.Order(ctx, several)), op(c.Order(ctx, native))}, c.service), true, true)
	paid("after them", 1_000_003)
	if wei, err := c.eth.BalanceAt(ctx, receiver, nil); err != nil || wei.Int64() != 300 {
		t.Errorf("the receiver has %s wei, %v", wei, err)
	}

	pinned := c.terms()
	pinned.ID, pinned.Receiver = "pinned", &receiver
	order := c.delegated(t, "order-4", userop.NewDelegation(pinned))
	order.CallGas = 400_000
	expect("a pinned order", c.send([]*userop.Operation{op(c.Order(ctx, order))}), true)
	paid("after it", 2_000_003)
	order.Transfers[0].To = common.Address{0xbb}
	callData := must.Get(userop.DelegatedCall(order.Token, order.Transfers, order.Delegation))(t)
	if got := c.run(&userop.Operation{Sender: c.service, CallData: callData}); got != "AllowedCalldataEnforcer:invalid-calldata" {
		t.Errorf("another receiver than the pinned one: %s", got)
	}

	void := op(c.Void(ctx, signer.Void{OrderID: "order-6", Sender: c.subscriber, CallGas: 100_000}))
	expect("a void", c.send([]*userop.Operation{void}), true)
	if got := c.simulate(op(c.Order(ctx, c.direct("order-6")))); got != `FailedOp(0, "AA25 invalid account nonce")` {
		t.Errorf("the voided order: %s", got)
	}

	last := c.delegated(t, "order-7", d)
	last.CallGas = 400_000
	late := op(c.Order(ctx, last))
	if got := c.run(late); got != "" {
		t.Errorf("before the revocation: %s", got)
	}
	revoke := op(c.Revoke(ctx, signer.Revoke{DelegationID: c.terms().ID, Delegation: d, CallGas: 100_000}))
	expect("a revocation, and the order after it", c.send([]*userop.Operation{revoke, late}), true, false)
	if got := c.run(late); got != "CannotUseADisabledDelegation()" {
		t.Errorf("after the revocation: %s", got)
	}
	if got := c.run(revoke); got != "AlreadyDisabled()" {
		t.Errorf("a second revocation: %s", got)
	}
	paid("at the end", 2_000_003)

	fill, err := c.Fill(ctx, signer.Fill{Relayer: c.relayer, Nonce: c.nonce, Tip: big.NewInt(1_000_000), FeeCap: big.NewInt(10_000_000_000)})
	must.Do(t, err)
	if r := c.mined(fill); r.Status != types.ReceiptStatusSuccessful || r.GasUsed != 21_000 {
		t.Errorf("the filler: status %d, %d gas", r.Status, r.GasUsed)
	}
}
