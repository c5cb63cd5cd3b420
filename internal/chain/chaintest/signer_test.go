package chaintest_test

import (
	"bytes"
	"log/slog"
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
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
)

var receiver = common.HexToAddress("0x1111111111111111111111111111111111111111")

// vectorTerms are the terms of a delegation from the account with the key 0101... to the account with the key 0202...
var vectorTerms = userop.Terms{
	ID:        "00000000-0000-4000-8000-000000000001",
	Delegator: common.HexToAddress("0x1a642f0E3c3aF545E7AcBD38b07251B3990914F1"),
	Delegate:  common.HexToAddress("0x5050A4F4b3f9338C3472dcC01A87C76A144b3c9c"),
	Token:     contracts.USDC(contracts.BaseSepolia), Limit: big.NewInt(10_000_000), Before: 1893456000,
}

// vectorTransfers pay one dollar.
func vectorTransfers() []userop.Transfer {
	return []userop.Transfer{{To: receiver, Amount: big.NewInt(1_000_000)}}
}

// onChain is a signer and a chain. The relayer can pay for gas, and the subscriber has 50 USDC.
type onChain struct {
	*signer.Signer
	t                            *testing.T
	eth                          *ethclient.Client
	subscriber, service, relayer common.Address
	usdc                         common.Address
	nonce                        uint64
}

func newOnChain(t *testing.T) *onChain {
	t.Helper()
	c := &onChain{t: t, usdc: vectorTerms.Token}
	c.restart()
	if c.subscriber != vectorTerms.Delegator || c.service != vectorTerms.Delegate {
		t.Fatalf("the keys belong to %s and %s", c.subscriber, c.service)
	}
	chain := chaintest.Embedded(t, c.relayer)
	must.Get(chain.Mint(t.Context(), c.usdc, c.subscriber, big.NewInt(50_000_000)))(t)
	must.Get(chain.Fund(t.Context(), c.subscriber, big.NewInt(1000)))(t)
	c.eth = chain.Eth()
	return c
}

// restart replaces the signer by a new signer with the same keys, which remembers no order.
func (c *onChain) restart() {
	c.t.Helper()
	keys := &chaintest.Keys{}
	for i, account := range []*common.Address{&c.subscriber, &c.service, &c.relayer} {
		*account = keys.Add(c.t, bytes.Repeat([]byte{byte(i + 1)}, 32))
	}
	c.Signer = must.Get(signer.New(signer.Config{
		ChainID: big.NewInt(contracts.BaseSepolia), Keys: keys, Service: c.service, Relayers: []common.Address{c.relayer},
		Clock: func() time.Time { return time.Unix(1_790_000_000, 0) }, Log: slog.New(slog.DiscardHandler),
	}))(c.t)
}

// direct returns a request for an order of one dollar.
func (c *onChain) direct(id string) signer.Order {
	return signer.Order{
		OrderID: id, Sender: c.subscriber, Token: c.usdc, Transfers: vectorTransfers(), Total: big.NewInt(1_000_000), Cents: 100, CallGas: 200_000,
	}
}

// delegated returns a request for an order of one dollar that the service pays with a delegation.
func (c *onChain) delegated(id string, d *userop.Delegation) signer.Order {
	c.t.Helper()
	o := c.direct(id)
	o.Sender, o.CallGas = c.service, 400_000
	o.Delegation = must.Get(c.Delegation(c.t.Context(), signer.Delegation{Delegation: d}))(c.t)
	return o
}

// send sends operations from the relayer, sets the code of accounts, and returns whether each operation succeeded.
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
	c.nonce++
	return mined(c.t, c.eth, tx)
}

// simulate returns the reason why the EntryPoint would reject an operation.
func (c *onChain) simulate(op *userop.Operation) string {
	c.t.Helper()
	_, err := c.eth.CallContract(c.t.Context(), ethereum.CallMsg{
		From: c.relayer, To: &contracts.EntryPoint, Data: userop.HandleOps([]*userop.Operation{op}, c.relayer),
	}, nil)
	return c.reason(err)
}

// run returns the reason why the account would reject the calldata of an operation.
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

// Signed operations run on the chain: they install code and move money once. Voided and revoked operations fail.
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
	forgetful := *c
	forgetful.restart()
	if got := c.simulate(op(forgetful.Order(ctx, other))); got != `FailedOp(0, "AA25 invalid account nonce")` {
		t.Errorf("another content for the order, by another process: %s", got)
	}

	d := userop.NewDelegation(vectorTerms)
	several := c.delegated("order-2", d)
	several.Transfers = []userop.Transfer{{To: receiver, Amount: big.NewInt(1)}, {To: c.service, Amount: new(big.Int)}, {To: receiver, Amount: big.NewInt(2)}}
	several.Total = big.NewInt(3)
	native := c.direct("order-3")
	native.Token = common.Address{}
	native.Transfers = []userop.Transfer{{To: receiver, Amount: big.NewInt(300)}, {To: common.Address{0xaa}, Amount: big.NewInt(600)}}
	native.Total = big.NewInt(900)
	expect("a delegated and a native order", c.send([]*userop.Operation{op(c.Order(ctx, several)), op(c.Order(ctx, native))}, c.service), true, true)
	paid("after them", 1_000_003)
	if wei, err := c.eth.BalanceAt(ctx, receiver, nil); err != nil || wei.Int64() != 300 {
		t.Errorf("the receiver has %s wei, %v", wei, err)
	}

	pinned := vectorTerms
	pinned.ID, pinned.Receiver = "pinned", &receiver
	order := c.delegated("order-4", userop.NewDelegation(pinned))
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

	last := c.delegated("order-7", d)
	late := op(c.Order(ctx, last))
	if got := c.run(late); got != "" {
		t.Errorf("before the revocation: %s", got)
	}
	revoke := op(c.Revoke(ctx, signer.Revoke{DelegationID: vectorTerms.ID, Delegation: d, CallGas: 100_000}))
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
