package chain_test

import (
	"encoding/json"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/rail"
)

// One endpoint alters the true event of an order at its true place: block, transaction and index are right, and only the word that
// says whether the operation succeeded, or the amount that moved, is not. The order neither fails nor is paid twice: it waits until the
// endpoints say the same.
// T68
func TestAlteredAtItsTruePlace(t *testing.T) {
	run := common.HexToHash("0x49628fd1471006c1482da88028e9ce4dbb080b815c9b0344d39e5a8e6ec1419f") // UserOperationEvent
	moved := common.HexToHash("0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef")
	for name, alter := range map[string]func(topic common.Hash, data []byte) bool{
		"success": func(topic common.Hash, data []byte) bool {
			if topic == run {
				data[63] ^= 1
			}
			return topic == run
		},
		"amount": func(topic common.Hash, data []byte) bool {
			if topic == moved {
				data[31] ^= 1
			}
			return topic == moved
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, chaintest.New(t))
			liar, honest := chaintest.NewDouble(t, w.Client()), chaintest.NewDouble(t, w.Client())
			r := w.overNetwork(unhurried, liar, honest)
			payer := w.account(usdc, 1_000_000)
			lies := make(chan struct{}, 1000)
			liar.Answer("eth_getLogs", func(params []json.RawMessage) (any, error) {
				var logs []map[string]any
				if err := w.Client().CallContext(w.Context(), &logs, "eth_getLogs", params[0]); err != nil {
					return nil, err
				}
				for _, l := range logs {
					topics, _ := l["topics"].([]any)
					data, err := hexutil.Decode(l["data"].(string))
					if err != nil || len(topics) == 0 {
						continue
					}
					if alter(common.HexToHash(topics[0].(string)), data) {
						l["data"] = hexutil.Encode(data)
						select {
						case lies <- struct{}{}:
						default:
						}
					}
				}
				return logs, nil
			})
			p := purchase(payer, usdc, receiver(1), 1_000_000)
			over := make(chan rail.Payment, 1)
			go func() {
				o, _ := r.Pay(t.Context(), p)
				over <- o
			}()
			for range 3 {
				select {
				case <-lies:
				case o := <-over:
					t.Fatalf("the order is decided by an altered event: %+v", o)
				}
			}
			w.books.mu.Lock()
			granted := len(w.books.paid)
			w.books.mu.Unlock()
			if o, err := r.Outcome(t.Context(), p.OrderID); err != nil || o.Status == toll.OrderFailed || granted != 0 {
				t.Fatalf("the order is %+v, %v, and %d are paid", o, err, granted)
			}
			w.has(payer, usdc, 0, receiver(1), usdc, 1_000_000) // the chain has carried it out
			liar.Clear()
			if o := <-over; o.Status != toll.OrderConfirmed && o.Status != toll.OrderFinal {
				t.Errorf("the order is %s (%+v), want it paid", o.Status, o)
			}
			w.has(payer, usdc, 0, receiver(1), usdc, 1_000_000)
		})
	}
}
