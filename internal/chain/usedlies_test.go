package chain_test

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/must"
)

var topicTransfer = crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)")).Hex()

// The order was paid, and the database has lost it. One endpoint has an old block for the last one or for another, or hides the
// transfer: the order does not fail.
// T68
func TestLiesAboutAnOrderThatWasPaid(t *testing.T) {
	for _, lie := range []string{"the head", "a block between", "the transfer"} {
		t.Run(lie, func(t *testing.T) {
			w := newWorld(t, chaintest.New(t))
			owner := w.account(usdc, 3_000_000)
			old := must.Get(w.Eth().HeaderByNumber(t.Context(), nil))(t)
			forged := types.CopyHeader(old)
			forged.Time = 1
			p := purchase(owner, usdc, receiver(1), 1_000_000)
			w.paid(w.running(), p)
			w.idle()
			w.blocks(3)
			w.forget()

			liar, honest := chaintest.NewDouble(t, w.Client()), chaintest.NewDouble(t, w.Client())
			pool := w.pool(endpoints.Config{URLs: []string{liar.URL, honest.URL}, Agree: true})
			r := w.rail(remote, func(c *chain.Config) { c.Pool = pool })
			must.Do(t, r.Ready(t.Context()))
			var lied atomic.Int64
			told := func(answer any) (any, error) { lied.Add(1); return answer, nil }
			if lie == "a block between" {
				for _, d := range []*chaintest.Double{liar, honest} {
					d.Answer("eth_getLogs", func(params []json.RawMessage) (any, error) {
						var q struct{ FromBlock, ToBlock string }
						if err := json.Unmarshal(params[0], &q); err != nil || q.FromBlock == q.ToBlock {
							return nil, chaintest.ErrPass
						}
						if head, err := w.Eth().BlockNumber(t.Context()); err == nil && q.ToBlock == "latest" && q.FromBlock == hexutil.EncodeUint64(head) {
							return nil, chaintest.ErrPass
						}
						return nil, &chaintest.Refusal{Code: -32005, Message: "one block at a time"}
					})
				}
			}
			liar.Answer("eth_getBlockByNumber", func(params []json.RawMessage) (any, error) {
				var n hexutil.Uint64
				switch named := json.Unmarshal(params[0], &n) != nil; {
				case named && lie == "the head":
					return told(old)
				case !named && lie == "a block between":
					return told(forged)
				}
				return nil, chaintest.ErrPass
			})
			liar.Answer("eth_getLogs", func(params []json.RawMessage) (any, error) {
				if lie == "the transfer" && strings.Contains(string(params[0]), topicTransfer) {
					return told([]types.Log{})
				}
				return nil, chaintest.ErrPass
			})
			if o, err := r.Pay(t.Context(), p); err == nil || o.Status != toll.OrderCreated {
				t.Errorf("Pay: %+v, %v", o, err)
			}
			if op := w.op(p.OrderID); op.State != chain.Created {
				t.Errorf("the order is %s (%+v)", op.State, op.Failure)
			}
			if lied.Load() == 0 {
				t.Error("the endpoint was not asked")
			}
		})
	}
}
