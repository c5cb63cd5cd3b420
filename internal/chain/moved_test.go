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
)

// The holder of the key of an account gives it code that agrees to all and does nothing, in the transaction that runs the
// operation: its event says success, and no money has moved.
func TestT57_CodeThatPaysNothing(t *testing.T) {
	for way, code := range map[string]string{
		"direct": "600060005260206000f3",
		"native": "600060005260206000f3",
		// isValidSignature answers its selector, executeFromExecutor an empty list.
		"delegated": "60003560e01c80631626ba7e14601a57602060005260406000f35b60e01b60005260206000f3",
	} {
		t.Run(way, func(t *testing.T) {
			w := newWorld(t, chaintest.New(t))
			sink := w.ledger()
			change := func(c *chain.Config) { c.Sink = sink }
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
			auth := types.SetCodeAuthorization{Address: hostile}
			auth.ChainID.SetFromBig(w.chainID())
			signature := w.keys.Sign(w, owner, userop.AuthorizationHash(w.chainID(), hostile, 0))
			auth.V = signature[64] - 27
			auth.R.SetBytes(signature[:32])
			auth.S.SetBytes(signature[32:64])
			receipt := w.sendWith(contracts.EntryPoint, userop.HandleOps([]*userop.Operation{op.Operation}, w.outside), append(coded, auth)...)
			if e := w.readEvent(receipt, op.Hash); !e.success {
				t.Fatalf("the attack does not run: %+v", e)
			}
			w.has(owner, token, 3_000_000, receiver(1), token, 0)
			w.running(change, func(c *chain.Config) { c.MaxBaseFee = big.NewInt(1) }) // nobody looks at the account before the event
			failed := w.decided(p.OrderID, chain.Failed)
			if failed.Failure == nil || failed.Failure.Place.Tx == (common.Hash{}) {
				t.Errorf("failure without evidence: %+v", failed.Failure)
			}
			w.idle()
			sink.has(p.OrderID, false, 0)
		})
	}
}
