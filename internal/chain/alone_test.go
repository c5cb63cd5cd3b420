package chain_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
)

// The endpoints do not agree about a sale that has ended: the order after it is paid, and the sale ends when they agree.
func TestTracker_DisagreementAboutOne(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	change := func(c *chain.Config) { remote(c); c.Orders = sink }
	keys, buyer := w.stranger(usdc, 1_000_000)
	s := w.sale(keys, buyer, receiver(1), 1_000_000)
	swallows := chaintest.NewDouble(t, w.Client())
	swallows.Swallow()
	w.crashes(func(ctx context.Context, r *chain.Rail) { _, _ = r.Sell(ctx, s) }, "transaction sent", 1, change, w.through(swallows))
	must.Do(t, w.Advance(10*time.Minute))
	w.blocks(40) // the finalized block moves every 32

	one, other := chaintest.NewDouble(t, w.Client()), chaintest.NewDouble(t, w.Client())
	asks := common.Bytes2Hex(append(crypto.Keccak256([]byte("authorizationState(address,bytes32)"))[:4], common.LeftPadBytes(buyer[:], 32)...))
	other.Answer("eth_call", func(params []json.RawMessage) (any, error) {
		if !strings.Contains(string(params[0]), asks) {
			return nil, chaintest.ErrPass
		}
		return common.Hash{31: 1}, nil
	})
	pool := w.pool(endpoints.Config{URLs: []string{one.URL, other.URL}, Agree: true})
	r := w.running(change, func(c *chain.Config) { c.Pool = pool })
	owner := w.account(usdc, 1_000_000)
	p := purchase(owner, usdc, receiver(2), 1_000_000)
	go r.Pay(t.Context(), p)
	w.decided(p.OrderID, chain.Included, chain.Confirmed, chain.Final)
	w.blocks(3)
	w.decided(p.OrderID, chain.Confirmed, chain.Final)
	w.eventually("the credits are granted", func() bool { return w.op(p.OrderID).Decided != "" })
	sink.has(p.OrderID, true, 1)
	if op := w.op(s.OrderID); op.State != chain.Sent && op.State != chain.Signed {
		t.Errorf("the sale is %s", op.State)
	}
	other.Clear()
	w.decided(s.OrderID, chain.Failed)
}

// The chain does not tell whether one order was paid: it is not given up, also when its delegation has ended, and the order after it
// is paid.
func TestTracker_LogOfOneNotUnderstood(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	double := chaintest.NewDouble(t, w.Client())
	// Whether a payment has moved is read from the logs of its token in its block.
	double.Answer("eth_getLogs", func(params []json.RawMessage) (any, error) {
		if asked := strings.ToLower(string(params[0])); strings.Contains(asked, "blockhash") && strings.Contains(asked, strings.ToLower(eurc.Hex())) {
			return nil, &chaintest.Refusal{Code: -32000, Message: "it is somewhere else"}
		}
		return nil, chaintest.ErrPass
	})
	r := w.running(w.through(double), func(c *chain.Config) { c.Orders = sink })
	user := w.userHeld(eurc, 5_000_000)
	d := user.delegation(500)
	d.Currency, d.ExpiresAt = "eurc", w.Now().Add(10*time.Minute)
	user.sign(d)
	unclear := by(d, purchase(common.Address(d.Owner), eurc, receiver(1), 5_000_000))
	go r.Pay(t.Context(), unclear)
	w.eventually("the money has moved", func() bool { return w.balance(eurc, receiver(1)) == 5_000_000 })
	must.Do(t, w.Advance(11*time.Minute))
	owner := w.account(usdc, 2_000_000)
	for range 2 {
		p := purchase(owner, usdc, receiver(2), 1_000_000)
		w.paid(r, p)
		w.eventually("the credits are granted", func() bool { return w.op(p.OrderID).Decided == chain.Final })
		sink.has(p.OrderID, true, 1)
	}
	if op := w.op(unclear.OrderID); op.State != chain.Sent && op.State != chain.Signed {
		t.Errorf("the order is %s (%+v)", op.State, op.Failure)
	}
	double.Clear()
	w.blocks(1)
	w.decided(unclear.OrderID, chain.Final)
	w.eventually("the credits are granted", func() bool { return w.op(unclear.OrderID).Decided == chain.Final })
	sink.has(unclear.OrderID, true, 1)
}

// The chain does not tell of more voids than are looked at at a time whether they made their orders impossible: an order after them
// becomes final.
func TestTracker_VoidsThatStay(t *testing.T) {
	w := newWorld(t, chaintest.Embedded(t)) // on anvil each block finalizes the one before the last
	w.blocks(1)
	first := must.Get(w.Eth().HeaderByNumber(t.Context(), common.Big1))(t)
	for n := range 205 {
		id := fmt.Sprintf("order %d", n)
		for _, op := range []*chain.Op{
			{ID: id, Kind: chain.KindOrder, State: chain.Sent, NonceKey: userop.OrderKey(id)},
			{ID: "void:" + id, Kind: chain.KindVoid, State: chain.Confirmed, NonceKey: userop.VoidKey(id), Position: chain.Position{Block: 1, Hash: first.Hash()}},
		} {
			op.UpdatedAt = w.Now()
			must.Get(w.records.AddOp(t.Context(), op))(t)
		}
	}
	double := chaintest.NewDouble(t, w.Client())
	asks := common.Bytes2Hex(crypto.Keccak256([]byte("getNonce(address,uint192)"))[:4])
	double.Answer("eth_call", func(params []json.RawMessage) (any, error) {
		if strings.Contains(string(params[0]), asks) {
			return nil, &chaintest.Refusal{Code: -32000, Message: "not now"}
		}
		return nil, chaintest.ErrPass
	})
	r := w.running(remote, w.through(double))
	p := purchase(w.account(usdc, 1), usdc, receiver(1), 1)
	go r.Pay(t.Context(), p)
	w.decided(p.OrderID, chain.Included, chain.Confirmed, chain.Final)
	w.blocks(3)
	w.decided(p.OrderID, chain.Confirmed, chain.Final)
	w.blocks(40) // the finalized block moves every 32
	w.decided(p.OrderID, chain.Final)
}

// The chain does not tell whether an order was paid whose void is final: the order after it is paid.
func TestTracker_VoidOfOneNotUnderstood(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	change := func(c *chain.Config) { remote(c); c.Orders = sink }
	owner := w.account(wei, 500)
	unclear := purchase(owner, wei, receiver(1), 500)
	w.signs(w.rail(change), unclear)
	op := w.op(unclear.OrderID)
	w.lands(op.Operation, owner)
	w.countsUp(owner, op.NonceKey) // as its void does
	op.State, op.SentAt = chain.Sent, w.Now()
	must.Do(t, w.records.UpdateOp(t.Context(), op))
	first := must.Get(w.Eth().HeaderByNumber(t.Context(), common.Big1))(t)
	_, err := w.records.AddOp(t.Context(), &chain.Op{
		ID: "void:" + op.ID, Kind: chain.KindVoid, State: chain.Confirmed, NonceKey: userop.VoidKey(op.ID), Position: chain.Position{Block: 1, Hash: first.Hash()},
	})
	must.Do(t, err)
	w.blocks(40) // the finalized block moves every 32

	double := chaintest.NewDouble(t, w.Client())
	double.Refuse(-1, "eth_getBlockByHash", "it is somewhere else")
	double.Answer("eth_getLogs", func(params []json.RawMessage) (any, error) {
		var logs []types.Log
		if !strings.Contains(string(params[0]), op.Hash.Hex()) {
			return nil, chaintest.ErrPass
		}
		err := w.Client().CallContext(context.Background(), &logs, "eth_getLogs", params[0])
		return slices.DeleteFunc(logs, func(l types.Log) bool { return l.Topics[1] == op.Hash }), err
	})
	r := w.running(change, w.through(double))
	p := purchase(w.account(usdc, 1), usdc, receiver(2), 1)
	go r.Pay(t.Context(), p)
	w.decided(p.OrderID, chain.Included, chain.Confirmed, chain.Final)
	w.blocks(3)
	w.eventually("the credits are granted", func() bool { return w.op(p.OrderID).Decided != "" })
	if op := w.op(unclear.OrderID); op.State != chain.Sent {
		t.Errorf("the order is %s (%+v)", op.State, op.Failure)
	}
	double.Clear()
	w.blocks(40)
	w.decided(unclear.OrderID, chain.Final)
	w.eventually("the credits are granted", func() bool { return w.op(unclear.OrderID).Decided != "" })
	sink.has(unclear.OrderID, true, 1)
}

// What was not understood is read again also where no block follows, as on a chain that makes them only for what is sent.
func TestTracker_LogReadAgainWithoutABlock(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	double := chaintest.NewDouble(t, w.Client())
	double.Refuse(-1, "eth_getBlockByHash", "not now")
	r := w.running(w.through(double), func(c *chain.Config) { c.Orders = sink })
	owner := w.account(wei, 1_000)
	p := purchase(owner, wei, receiver(1), 500)
	go r.Pay(t.Context(), p)
	w.eventually("it was asked for", func() bool { return double.Calls("eth_getBlockByHash") > 0 && w.balance(wei, receiver(1)) == 500 })
	double.Clear()
	w.decided(p.OrderID, chain.Final)
	w.idle()
	sink.has(p.OrderID, true, 1)
}
