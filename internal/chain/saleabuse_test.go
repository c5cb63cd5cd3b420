package chain_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/must"
)

var topicUsed = crypto.Keccak256Hash([]byte("AuthorizationUsed(address,bytes32)")).Hex()

// The token asks code of an account also when its key has signed (EIP-7702): what that burns is bounded as for any contract.
// T69
func TestKeyWithCodeThatBurns(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	r := w.running()
	burns := w.contract(chaintest.CodeAgreesLate)
	keys, buyer := w.stranger(usdc, 1_000_000)
	buyerCode(w, keys, buyer)
	w.sendWith(receiver(9), nil, w.gives(buyer, burns, 0))
	s := w.sale(keys, buyer, receiver(1), 1)
	checks(t, r, s, wordSignature)
	w.unsold(r, s, wordSignature)
	if n := w.nonce(w.relayer); n != 0 {
		t.Errorf("the relayer has sent %d transactions", n)
	}
}

// A sale is first begun hours after others have had its authorization carried out, as its process had ended before: it is paid.
// F13
func TestBegunLongAfterItsEnd(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	keys, buyer := w.stranger(usdc, 1_000_000)
	s := w.sale(keys, buyer, receiver(1), 1_000_000)
	w.submit(s)
	w.blocks(3)
	must.Do(t, w.Advance(4*time.Hour))
	w.blocks(3)
	single := chaintest.NewDouble(t, w.Client())
	single.Answer("eth_getLogs", func(params []json.RawMessage) (any, error) {
		var q struct{ FromBlock, ToBlock string }
		if err := json.Unmarshal(params[0], &q); err != nil || q.FromBlock == q.ToBlock {
			return nil, chaintest.ErrPass
		}
		return nil, &chaintest.Refusal{Code: -32005, Message: "one block at a time"}
	})
	w.sold(w.running(w.through(single), func(c *chain.Config) { c.Orders = sink }), s)
	w.idle()
	sink.has(s.OrderID, true, 1)
}

// One endpoint hides that others have had an authorization carried out: the sale is not given up at its end.
// T68
func TestHiddenSale(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	change := func(c *chain.Config) { remote(c); c.Orders = sink }
	keys, buyer := w.stranger(usdc, 1_000_000)
	s := w.sale(keys, buyer, receiver(1), 1_000_000)
	swallows := chaintest.NewDouble(t, w.Client())
	swallows.Swallow()
	w.crashes(func(ctx context.Context, r *chain.Rail) { _, _ = r.Sell(ctx, s) }, "transaction sent", 1, change, w.through(swallows))
	w.submit(s)
	must.Do(t, w.Advance(10*time.Minute))
	w.blocks(40) // the finalized block moves every 32

	liar, honest := chaintest.NewDouble(t, w.Client()), chaintest.NewDouble(t, w.Client())
	var hidden atomic.Int64
	liar.Answer("eth_getLogs", func(params []json.RawMessage) (any, error) {
		if !strings.Contains(string(params[0]), topicUsed) {
			return nil, chaintest.ErrPass
		}
		hidden.Add(1)
		return []common.Hash{}, nil
	})
	pool := w.pool(endpoints.Config{URLs: []string{liar.URL, honest.URL}, Agree: true})
	w.running(change, func(c *chain.Config) { c.Pool = pool })
	w.eventually("the log was hidden", func() bool { return hidden.Load() > 2 || w.op(s.OrderID).State == chain.Failed })
	if op := w.op(s.OrderID); op.State == chain.Failed {
		t.Errorf("a sale that is paid has failed: %+v", op.Failure)
	}
	liar.Clear()
	w.decided(s.OrderID, chain.Final)
	w.idle()
	sink.has(s.OrderID, true, 1)
}
