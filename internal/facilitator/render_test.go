package facilitator_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/facilitator"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// TestRender_AsEncode holds that what the ledger stores is what the encoder of all values writes, over all members that an
// answer may have or lack, with and without signed receipts, and with a brand before and behind them in the order of names.
func TestRender_AsEncode(t *testing.T) {
	s := newScene(t, storetest.SQLite, 1)
	i := s.one()
	r := rand.New(rand.NewPCG(1, 2))
	ids := []string{"r", "req_0123456789abcdefghijklmnopqrstuv", `a"b\c/d<e>&'`, "!~"}
	orders := []string{"", "", "0x6c3b18ddf7a73dc7d0ca526b18463d408337396a7b445dbb6f35df6cfc2b2634", "pi_\"é\x01"}
	for _, receipts := range []bool{false, true} {
		for _, brand := range []string{"svc", "aa", "zz"} {
			ns := x402.Default
			ns.Scheme = brand
			f := facilitator.New(facilitator.Deps{
				Store: i.store, Ledger: i.ledger, Auth: i.auth, Checkout: i.checkout, Clock: s.clock.now, Receipts: receipts, Namespace: ns,
			})
			for range 300 {
				var raised *toll.Credits
				if r.IntN(2) == 0 {
					raised = toll.Credits(r.Int64()).Ptr()
				}
				rec := ledger.Receipt{
					RequestID: ids[r.IntN(len(ids))], Transaction: toll.NewHash(), Amount: toll.Credits(r.IntN(3)), Balance: toll.Credits(r.Int64()),
					At: time.Unix(r.Int64N(4e9), 0), OrderTx: orders[r.IntN(len(orders))],
				}
				agent := []toll.AgentID{"", "12"}[r.IntN(2)]
				network := []string{"eip155:84532", "stripe", ""}[r.IntN(3)]
				render, response := f.Renderer("11", agent, askURL, network, toll.Address{1, 19: byte(r.IntN(256))}, raised)
				stored, resp := render(rec), response(rec)
				encoded, err := x402.Encode(&resp)
				if err != nil || string(stored) != string(encoded) {
					t.Fatalf("%v\n%s\nin place of\n%s", err, stored, encoded)
				}
			}
		}
	}
}

func BenchmarkRender(b *testing.B) {
	s := newScene(b, storetest.SQLite, 1)
	amount := toll.Credits(1)
	f, rec := s.one().Facilitator, ledger.Receipt{RequestID: "req_0123456789abcdefghijklmnopqrstuv", Transaction: toll.NewHash(), Amount: amount, Balance: 99}
	render, response := f.Renderer("11", "12", askURL, "eip155:84532", toll.Address{1}, nil)
	b.Run("render", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			render(rec)
		}
	})
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			resp := response(rec)
			_, _ = x402.Encode(&resp)
		}
	})
}
