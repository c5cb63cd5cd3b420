package chain_test

import (
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
)

// The holder of the key of an account gives it code that agrees to all and does nothing, in the transaction that runs the
// operation: its event says success, and no money has moved.
// T57
func TestCodeThatPaysNothing(t *testing.T) {
	for way, code := range map[string]string{
		"direct": "600060005260206000f3",
		"native": "600060005260206000f3",
		// isValidSignature answers its selector, executeFromExecutor an empty list.
		"delegated": "60003560e01c80631626ba7e14601a57602060005260406000f35b60e01b60005260206000f3",
	} {
		t.Run(way, func(t *testing.T) {
			w := newWorld(t, chaintest.New(t))
			sink := w.ledger()
			change := func(c *chain.Config) { c.Orders = sink }
			hostile := w.contract(code)
			token := usdc
			if way == "native" {
				token = wei
			}
			owner := w.account(token, 3_000_000)
			p := purchase(owner, token, receiver(1), 1_000_000)
			coded := []types.SetCodeAuthorization{}
			if way == "delegated" {
				p = by(w.delegation(owner, 500), p)
				coded = append(coded, w.authorization(w.service, 0))
			}
			w.signs(w.rail(change), p)
			op := w.op(p.OrderID)
			coded = append(coded, w.gives(owner, hostile, 0))
			receipt := w.sendWith(contracts.EntryPoint, userop.HandleOps([]*userop.Operation{op.Operation}, w.outside), coded...)
			if e := w.readEvent(receipt, op.Hash); !e.success {
				t.Fatalf("the attack does not run: %+v", e)
			}
			w.has(owner, token, 3_000_000, receiver(1), token, 0)
			w.running(change, func(c *chain.Config) { c.MaxBaseFee = big.NewInt(1) }) // nobody looks at the account before the event
			failed := w.decided(p.OrderID, chain.Failed)
			if failed.Failure == nil || failed.Failure.Position.Tx == (common.Hash{}) {
				t.Errorf("failure without evidence: %+v", failed.Failure)
			}
			w.idle()
			sink.has(p.OrderID, false, 0)
		})
	}
}

// An authorization of the payer that the chain leaves out, and a transaction of the payer that carries the operation, are in the
// block of a native order: the account has our code all the same, and the order is paid.
// T57
func TestPayerInTheBlock(t *testing.T) {
	for way, land := range map[string]func(w *world, owner common.Address, data []byte) *types.Receipt{
		"a transaction of the payer": func(w *world, owner common.Address, data []byte) *types.Receipt {
			tx := w.transaction(owner, w.nonce(owner), contracts.EntryPoint, data, nil)
			must.Do(w, w.Eth().SendTransaction(w.Context(), tx))
			return w.receipt(tx.Hash())
		},
		"a used authorization": func(w *world, owner common.Address, data []byte) *types.Receipt {
			return w.sendWith(contracts.EntryPoint, data, w.gives(owner, contracts.DelegationManager, 0))
		},
	} {
		t.Run(way, func(t *testing.T) {
			w := newWorld(t, chaintest.New(t))
			sink := w.ledger()
			change := func(c *chain.Config) { c.Orders = sink }
			owner := w.account(wei, int(1e16))
			w.sendWith(w.outside, nil, w.authorization(owner, 0))
			p := purchase(owner, wei, receiver(1), 1_000_000)
			w.signs(w.rail(change), p)
			op := w.op(p.OrderID)
			receipt := land(w, owner, userop.HandleOps([]*userop.Operation{op.Operation}, w.outside))
			if e := w.readEvent(receipt, op.Hash); !e.success {
				t.Fatalf("the operation: %+v", e)
			}
			w.running(change)
			if op := w.decided(p.OrderID, chain.Final, chain.Failed); op.State == chain.Failed {
				t.Errorf("failure: %+v", op.Failure)
			}
			w.idle()
			sink.has(p.OrderID, true, 1)
			w.has(receiver(1), wei, 1_000_000)
		})
	}
}

// Code of the payer's own counts its nonce up when it makes a contract, so that the authorization which would bring our code back,
// in the same block, is left out by the chain: the operation runs with code that does nothing.
// T57
func TestNonceOfTheCode(t *testing.T) {
	for way, earlier := range map[string]bool{"given in the block": false, "given before the block": true} {
		t.Run(way, func(t *testing.T) {
			w := newWorld(t, chaintest.New(t))
			sink := w.ledger()
			change := func(c *chain.Config) { c.Orders = sink }
			// A call without data makes an empty contract, any other one answers 0.
			hostile := w.contract("36600c57600060006000f0005b600060005260206000f3")
			owner := w.account(wei, int(1e16))
			w.sendWith(w.outside, nil, w.authorization(owner, 0))
			p := purchase(owner, wei, receiver(1), 1_000_000)
			w.signs(w.rail(change), p)
			op := w.op(p.OrderID)
			given := []types.SetCodeAuthorization{w.gives(owner, hostile, 1)}
			if earlier {
				w.sendWith(w.outside, nil, given...)
				given = nil
			}
			// The second waits for the first, so that one block has both.
			nonce := w.nonce(w.outside)
			second := w.transaction(w.outside, nonce+1, contracts.EntryPoint, userop.HandleOps([]*userop.Operation{op.Operation}, w.outside),
				[]types.SetCodeAuthorization{w.authorization(owner, 2)})
			first := w.transaction(w.outside, nonce, owner, nil, given)
			for _, tx := range []*types.Transaction{second, first} {
				must.Do(t, w.Eth().SendTransaction(w.Context(), tx))
			}
			opened, ran := w.receipt(first.Hash()), w.receipt(second.Hash())
			if e := w.readEvent(ran, op.Hash); !e.success || opened.BlockHash != ran.BlockHash {
				t.Fatalf("the attack does not run: %+v, blocks %v and %v", e, opened.BlockNumber, ran.BlockNumber)
			}
			w.has(receiver(1), wei, 0)
			w.running(change, func(c *chain.Config) { c.MaxBaseFee = big.NewInt(1) }) // nobody looks at the account before the event
			if op := w.decided(p.OrderID, chain.Failed, chain.Final); op.State == chain.Final || op.Failure.Position.Tx != second.Hash() {
				t.Errorf("%s, failure %+v", op.State, op.Failure)
			}
			w.idle()
			sink.has(p.OrderID, false, 0)
		})
	}
}
