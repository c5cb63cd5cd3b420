package pay_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/pay"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

// branded is a facilitator whose extension has the name of a brand.
func branded(s *scene, brand string, receipts bool) *pay.Facilitator {
	ns, i := x402.Default, s.one()
	ns.Scheme = brand
	return i.pays(s, func(f *pay.Deps, _ *tokens.Deps, p *purchases.Deps) {
		f.Catalogue, p.Receipts = catalogue.New(i.store, catalogue.Brand{Names: ns}, s.clock.now, nil), receipts
	})
}

// TestRender_AsEncode holds that a repeat says, from its parts, what the encoder of all values writes of the first answer, over
// all members that an answer may have or lack, with and without signed receipts, and with a brand before and behind them in the
// order of names.
func TestRender_AsEncode(t *testing.T) {
	s := newScene(t, storetest.SQLite, 1)
	r := rand.New(rand.NewPCG(1, 2))
	ids := []string{"r", "req_0123456789abcdefghijklmnopqrstuv", `a"b\c/d<e>&'`, "!~"}
	hash := "0x6c3b18ddf7a73dc7d0ca526b18463d408337396a7b445dbb6f35df6cfc2b2634"
	orders := []string{"", "", hash, strings.ToUpper(hash[2:]), "0x" + strings.ToUpper(hash[2:]), "pi_\"é\x01"}
	networks := []string{"eip155:84532", "eip155:8453", "stripe", "stripe:live", "eip155:10", ""}
	for _, receipts := range []bool{false, true} {
		for _, brand := range []string{"svc", "aa", "zz"} {
			f := branded(s, brand, receipts)
			for range 300 {
				about := pay.Settled{
					Receipt: ledger.Receipt{
						RequestID: ids[r.IntN(len(ids))], Transaction: toll.NewHash(), Amount: toll.Credits(r.IntN(3)),
						Balance: toll.Credits(r.Int64()), At: time.Unix(r.Int64N(4e9), 0), OrderTx: orders[r.IntN(len(orders))],
					},
					Payer: toll.Address{1, 19: byte(r.IntN(256))}, Plan: "11", Agent: []toll.AgentID{"", "12"}[r.IntN(2)],
					Network: networks[r.IntN(len(networks))], URL: askURL,
				}
				if r.IntN(2) == 0 {
					about.Ended = toll.Credits(r.Int64N(int64(about.Balance)))
				}
				if r.IntN(2) == 0 {
					about.Raised = toll.Credits(r.Int64()).Ptr()
				}
				stored := f.Stored(about)
				resp := must.Get(f.Answer(stored, about))(s)
				first := said1(about, brand, resp)
				encoded, err := x402.Encode(first)
				if err != nil || string(resp.Raw) != string(encoded) {
					t.Fatalf("%v\n%s\nin place of\n%s", err, resp.Raw, encoded)
				}
				resp.Raw = nil
				if again, err := x402.Encode(resp); err != nil || string(again) != string(encoded) {
					t.Fatalf("%v\nmembers %s\nin place of\n%s", err, again, encoded)
				}
				switch signed := receipts && strings.Contains(string(encoded), x402.ExtensionOfferReceipt); {
				case signed != (stored[0] == '{'), signed != receipts:
					t.Fatalf("stored %.40q, signed %v", stored, signed)
				case !signed && about.OrderTx == "" && about.Network == "eip155:84532" && about.Ended == 0 && about.Raised == nil && len(stored) != 3:
					t.Fatalf("%d bytes are stored: % x", len(stored), stored)
				}
			}
		}
	}
}

// said1 is what an answer of the first renderer says, written down without it.
func said1(s pay.Settled, brand string, signed *x402.SettleResponse) *x402.SettleResponse {
	amount, left := s.Amount, s.Balance-s.Ended
	network := s.Network
	if network == "stripe" {
		network = "stripe:sandbox"
	}
	r := &x402.SettleResponse{
		Success: true, Transaction: s.Transaction.String(), Network: network, Payer: s.Payer.String(),
		CreditsRedeemed: &amount, RemainingBalance: &left, Amount: &amount, OrderTx: s.OrderTx,
		Extra: &x402.SettleExtra{
			AgentRequestID: s.RequestID, PlanID: s.Plan, AgentID: s.Agent, CreditsRedeemed: &amount, RemainingBalance: &left,
			OrderTx: s.OrderTx, RequestedAmount: s.Raised,
		},
		Extensions: map[string]json.RawMessage{brand + "-credits": json.RawMessage(fmt.Sprintf(
			`{"info":{"creditsRedeemed":"%d","remainingBalance":"%d","agentRequestId":%q}}`, amount, left, s.RequestID))},
	}
	if e := signed.Extensions[x402.ExtensionOfferReceipt]; e != nil {
		r.Extensions[x402.ExtensionOfferReceipt] = e
	}
	return r
}

// TestAnswers_Permanent reads answers as releases stored them. Each line of testdata/answers.txt is the stored form in
// hexadecimal and the text that it stands for. Lines are added, one at least for each new form, and never changed.
func TestAnswers_Permanent(t *testing.T) {
	s := newScene(t, storetest.SQLite, 1)
	f := branded(s, "svc", false)
	about := pay.Settled{
		Receipt: ledger.Receipt{
			RequestID: "req_0123456789abcdefghijklmnopqrstuv", Transaction: toll.Hash{1, 31: 0xff}, Amount: 7, Balance: 1_000_000,
			At: time.Unix(1_800_000_000, 0),
		},
		Payer: toll.Address{1, 19: 2}, Plan: "11", Agent: "12",
	}
	text := must.Get(os.ReadFile("testdata/answers.txt"))(s)
	forms := map[byte]bool{}
	for line := range strings.Lines(string(text)) {
		stored, want, _ := strings.Cut(strings.TrimSpace(line), " ")
		b := must.Get(hex.DecodeString(stored))(s)
		forms[b[0]] = true
		resp, err := f.Answer(b, about)
		if err != nil || string(resp.Raw) != want {
			t.Errorf("%s: %v\n%s\nin place of\n%s", stored, err, resp.Raw, want)
		}
		if b[0] == '{' && !bytes.Equal(b, resp.Raw) {
			t.Errorf("a stored text became %s", resp.Raw)
		}
	}
	if !forms['{'] || !forms[1] {
		t.Errorf("forms %v", forms)
	}
}

// TestAnswers_Damaged holds that a form of a later release and a damaged one are faults, never a guess.
func TestAnswers_Damaged(t *testing.T) {
	s := newScene(t, storetest.SQLite, 1)
	f := branded(s, "svc", false)
	about := pay.Settled{
		Receipt: ledger.Receipt{RequestID: "r", Amount: 1, Balance: 9, Ended: 300, OrderTx: "pi_1"}, Plan: "11", Network: "other",
		Raised: toll.Credits(4).Ptr(),
	}
	whole := f.Stored(about)
	must.Get(f.Answer(whole, about))(t)
	bad := [][]byte{nil, {}, append(bytes.Clone(whole), 0), {1, 0, 5}, {1, 0, 0xff}, {1, 32, 0}, {1, 128, 0}}
	for n := range whole {
		bad = append(bad, whole[:n])
	}
	for version := range 256 {
		if version != 1 && version != '{' {
			bad = append(bad, append([]byte{byte(version)}, whole[1:]...))
		}
	}
	for _, b := range bad {
		if resp, err := f.Answer(b, about); err == nil {
			t.Errorf("% x is read as %s", b, resp.Raw)
		}
	}
}

// TestAnswers_BalanceOfThen holds that a repeat and the page of a settlement say the balance of then, also when credits ended with
// the hold, and credits were bought and burned since.
func TestAnswers_BalanceOfThen(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 10))
		must.Get(s.one().checkout.Mint(s.ctx, p.Owner, p.ID, s1, 10, toll.UnitsOf(2), nil))(s)
		c := s.call(p, nil, s.token(p, s1, nil))
		id := c.hold(heldFor(10)).AgentRequestID
		s.clock.add(3 * time.Second) // the lot has ended, and the hold keeps its credits
		first := c.burn(id, amount(3))
		if *first.RemainingBalance != 0 {
			t.Fatalf("%s", first.Raw)
		}
		s.mint(p, s1, 50)
		c.burn("", amount(2))
		again := must.Get(c.settle(s.at(1), id, amount(3)))(s)
		page := must.Get(s.at(1).Requests.Settlement(s.ctx, s1, id))(s)
		if !again.Replayed || !bytes.Equal(again.Raw, first.Raw) || !bytes.Equal(page.Receipt, first.Raw) || *page.RemainingBalance != 0 {
			t.Errorf("%s\n%s\n%s", first.Raw, again.Raw, page.Receipt)
		}
	})
}

func BenchmarkAnswer(b *testing.B) {
	s := newScene(b, storetest.SQLite, 1)
	f := s.one().Facilitator
	about := pay.Settled{
		Receipt: ledger.Receipt{RequestID: "req_0123456789abcdefghijklmnopqrstuv", Transaction: toll.NewHash(), Amount: 1, Balance: 99},
		Payer:   toll.Address{1}, Plan: "11", Agent: "12", Network: "eip155:84532", URL: askURL,
	}
	b.Run("store", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.Stored(about)
		}
	})
	stored := f.Stored(about)
	b.Run("answer", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = f.Answer(stored, about)
		}
	})
}
