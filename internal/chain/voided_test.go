package chain_test

import (
	"context"
	"encoding/json"
	"math/big"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
)

// The account of an order that was sent gets other code, so that neither the order nor its void can run. When the code is ours
// again, one of them does: the order is not stuck.
func TestVoid_AgainWhenItCanRun(t *testing.T) {
	w, sink, change, owner, p := oneOrder(t)
	w.crashing(p, "transaction stored", 1, change)
	w.redelegates(owner)
	w.running(change)
	time.Sleep(100 * time.Millisecond)
	must.Do(t, w.Advance(11*time.Minute))
	w.eventually("the void is there", func() bool {
		_, err := w.records.Op(t.Context(), "void:"+p.OrderID)
		return err == nil
	})
	time.Sleep(500 * time.Millisecond)
	auth := w.authorization(owner, w.nonce(owner))
	w.sendWith(w.outside, nil, auth)
	must.Do(t, w.Advance(11*time.Minute))
	op := w.decided(p.OrderID, chain.Failed, chain.Final)
	w.eventually("the sink has heard", func() bool { return w.op(p.OrderID).Decided == op.State })
	sink.has(p.OrderID, op.State == chain.Final, map[bool]int{true: 1}[op.State == chain.Final])
}

// until runs a rail until something holds, and ends it.
func (w *world) until(what string, is func() bool, change ...func(*chain.Config)) {
	w.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	r := w.rail(change...)
	go func() { ended <- r.Run(ctx) }()
	defer func() {
		stop()
		<-ended
	}()
	w.eventually(what, is)
}

func (w *world) known(id string) bool {
	_, err := w.records.Op(w.Context(), id)
	return err == nil
}

// An endpoint hides that an order was paid until its void is final: the order does not fail, and is paid when the event shows up.
func TestVoid_HiddenEvent(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	owner := w.account(usdc, 3_000_000)
	p := purchase(owner, usdc, receiver(1), 1_000_000)
	w.swallowed(p)
	order := w.op(p.OrderID)
	double := chaintest.NewDouble(t, w.Client())
	var searched atomic.Bool // the account was searched for whatever used the nonce
	double.Answer("eth_getLogs", func(params []json.RawMessage) (any, error) {
		if strings.Contains(string(params[0]), common.BytesToHash(owner[:]).Hex()) {
			searched.Store(true)
		}
		var logs []types.Log
		if err := w.Client().CallContext(context.Background(), &logs, "eth_getLogs", params[0]); err != nil {
			return nil, err
		}
		return slices.DeleteFunc(logs, func(l types.Log) bool { return len(l.Topics) > 1 && l.Topics[1] == order.Hash }), nil
	})
	w.running(remote, w.through(double), func(c *chain.Config) { c.Orders = sink })
	w.eventually("the money has moved", func() bool { return w.balance(usdc, receiver(1)) == 1_000_000 })
	must.Do(t, w.Advance(11*time.Minute))
	void := "void:" + p.OrderID
	w.eventually("the void is sent", func() bool { return w.known(void) && w.op(void).State != chain.Signed })
	w.eventually("the void is final", func() bool {
		w.blocks(8)
		return searched.Load() || w.op(void).State == chain.Final
	})
	if op := w.op(p.OrderID); op.State != chain.Sent {
		t.Fatalf("the order is %s (%+v)", op.State, op.Failure)
	}
	sink.has(p.OrderID, false, 0)
	double.Clear()
	w.eventually("the order is paid", func() bool {
		w.blocks(8)
		return w.op(p.OrderID).Decided == chain.Final
	})
	sink.has(p.OrderID, true, 1)
	w.has(owner, usdc, 2_000_000, receiver(1), usdc, 1_000_000)
}

// The holder has the void of an order run with code that agrees to all and does nothing: the order can still land, so it does
// not fail, and is paid when the account has our code.
func TestVoid_DoesNothing(t *testing.T) {
	w, sink, change, owner, p := oneOrder(t)
	hostile := w.contract("600060005260206000f3")
	w.swallowed(p, change)
	must.Do(t, w.Advance(11*time.Minute))
	void := "void:" + p.OrderID
	double := chaintest.NewDouble(t, w.Client())
	double.Swallow()
	w.until("there is a void", func() bool { return w.known(void) }, change, w.through(double))
	op := w.op(void)
	receipt := w.sendWith(contracts.EntryPoint, userop.HandleOps([]*userop.Operation{op.Operation}, w.outside), w.gives(owner, hostile, w.nonce(owner)))
	if e := w.readEvent(receipt, op.Hash); !e.success {
		t.Fatalf("the void does not run: %+v", e)
	}
	w.until("the void has landed", func() bool { return w.op(void).State == chain.Failed || w.op(void).State == chain.Final }, change, w.through(double))
	if op := w.op(p.OrderID); op.State != chain.Sent && op.State != chain.Signed {
		t.Errorf("the order is %s (%+v)", op.State, op.Failure)
	}
	w.sendWith(w.outside, nil, w.authorization(owner, w.nonce(owner)))
	w.running(change)
	w.decided(p.OrderID, chain.Final)
	w.idle()
	sink.has(p.OrderID, true, 1)
	w.has(owner, usdc, 2_000_000, receiver(1), usdc, 1_000_000)
}

// The account of an order that was sent gets other code, so that its void cannot run, and uses the nonce of the order: the order
// fails, as it can never land.
func TestVoid_OtherCodeAndNonceUsed(t *testing.T) {
	w, sink, change, owner, p := oneOrder(t)
	w.crashing(p, "transaction stored", 1, change)
	w.countsUp(owner, userop.OrderKey(p.OrderID))
	w.redelegates(owner)
	w.running(change)
	must.Do(t, w.Advance(11*time.Minute))
	if op := w.decided(p.OrderID, chain.Failed); op.Failure.Position.Block == 0 {
		t.Errorf("failure without evidence: %+v", op.Failure)
	}
	w.idle()
	sink.has(p.OrderID, false, 0)
	w.has(owner, usdc, 3_000_000, receiver(1), usdc, 0)
}

// The holder uses up the nonce of the void of an order: the void is given up, and the order is sent again.
func TestVoid_ItsNonceIsUsed(t *testing.T) {
	w, sink, change, owner, p := oneOrder(t)
	w.crashing(p, "transaction stored", 1, change)
	w.countsUp(owner, userop.VoidKey(p.OrderID))
	w.redelegates(owner) // until there is a void, the order cannot land
	w.running(change)
	w.eventually("the transaction has reverted", func() bool { return w.op(p.OrderID).State == chain.Signed })
	must.Do(t, w.Advance(11*time.Minute))
	void := "void:" + p.OrderID
	w.eventually("the void is there", func() bool { return w.known(void) })
	w.sendWith(w.outside, nil, w.authorization(owner, w.nonce(owner)))
	w.eventually("its nonce is known to be used", func() bool { return !w.op(void).SentAt.IsZero() })
	if op := w.op(p.OrderID); op.State != chain.Signed {
		t.Errorf("the order is %s while there is a void", op.State)
	}
	must.Do(t, w.Advance(11*time.Minute))
	w.decided(void, chain.Failed)
	w.decided(p.OrderID, chain.Final)
	w.idle()
	sink.has(p.OrderID, true, 1)
	w.has(owner, usdc, 2_000_000, receiver(1), usdc, 1_000_000)
}

// An endpoint that is between two blocks counts the nonce of an order that only the next block has: the order does not fail for it,
// and is paid.
func TestVoid_NonceCountedTooEarly(t *testing.T) {
	w, sink, change, owner, p := oneOrder(t)
	w.swallowed(p, change)
	must.Do(t, w.Advance(11*time.Minute))
	key := w.op(p.OrderID).NonceKey
	asks := common.Bytes2Hex(append(crypto.Keccak256([]byte("getNonce(address,uint192)"))[:4], common.LeftPadBytes(owner[:], 32)...)) +
		common.Bytes2Hex(common.LeftPadBytes(key[:], 32))
	double := chaintest.NewDouble(t, w.Client())
	double.Swallow()
	var early atomic.Int64
	double.Answer("eth_call", func(params []json.RawMessage) (any, error) {
		if !strings.Contains(string(params[0]), asks) || early.Add(1) > 1 {
			return nil, chaintest.ErrPass
		}
		return common.BigToHash(new(big.Int).Add(userop.Nonce(key), common.Big1)), nil
	})
	w.running(change, w.through(double))
	w.eventually("its nonce was looked at again", func() bool { return early.Load() > 1 || w.op(p.OrderID).State == chain.Failed })
	double.Clear()
	w.arrives(p.OrderID)
	if op := w.decided(p.OrderID, chain.Final, chain.Failed); op.State == chain.Failed {
		t.Fatalf("failure: %+v", op.Failure)
	}
	w.eventually("the credits are granted", func() bool { return w.op(p.OrderID).Decided == chain.Final })
	sink.has(p.OrderID, true, 1)
	w.has(owner, usdc, 2_000_000, receiver(1), usdc, 1_000_000)
}
