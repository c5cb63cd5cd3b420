package facilitator

import (
	"encoding/hex"
	"encoding/json"
	"strconv"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/x402"
)

// rendering makes the answer to a settlement, the one that is stored and repeated. It depends on its arguments alone, and on
// the key that signs receipts where they are switched on. All callers wait while the writer of the ledger decides, so what does
// not depend on the decision is encoded before, and the rest without reflection.
type rendering struct {
	f                            *Facilitator
	network, payer, url, credits string // credits is the name of our extension
	plan                         toll.PlanID
	agent                        toll.AgentID
	raised                       *toll.Credits // what was asked for, when the bounds of the plan changed it

	head, ids, name string // encoded: network and payer, plan and agent, credits
	buf             []byte
	signed          json.RawMessage // extension with the signed receipt of what was rendered last; nil: none
}

func (f *Facilitator) rendering(p *payment, raised *toll.Credits) *rendering {
	w := &rendering{
		f: f, network: f.wireNetwork(p.claims.Network), payer: p.claims.Subscriber.String(), url: p.url,
		credits: f.ns.CreditsExtension(), plan: p.plan.ID, agent: p.agentID, raised: raised, buf: make([]byte, 0, 1<<10),
	}
	w.name = quoted(w.credits)
	w.head = `","network":` + quoted(w.network) + `,"payer":` + quoted(w.payer) + `,"creditsRedeemed":"`
	if w.plan != "" {
		w.ids = `,"planId":` + quoted(string(w.plan))
	}
	if w.agent != "" {
		w.ids += `,"agentId":` + quoted(string(w.agent))
	}
	return w
}

func quoted(s string) string {
	b, err := x402.Encode(s)
	if err != nil {
		panic(err) // strings always encode
	}
	return string(b)
}

// render returns what [x402.Encode] makes of response, byte for byte, valid until the next call.
func (w *rendering) render(r ledger.Receipt) []byte {
	amount, balance := strconv.FormatInt(int64(r.Amount), 10), strconv.FormatInt(int64(r.Balance), 10)
	add := func(b []byte, parts ...string) []byte {
		for _, p := range parts {
			b = append(b, p...)
		}
		return b
	}
	var order string
	if r.OrderTx != "" {
		order = `,"orderTx":` + quoted(r.OrderTx)
	}
	b := add(w.buf[:0], `{"success":true,"transaction":"0x`)
	b = hex.AppendEncode(b, r.Transaction[:])
	b = add(b, w.head, amount, `","remainingBalance":"`, balance, `","amount":"`, amount, `"`, order, `,"extra":{"agentRequestId":`)
	// Request ids are visible ASCII, for which Go and JSON quote alike.
	b = strconv.AppendQuote(b, r.RequestID)
	b = add(b, w.ids, `,"creditsRedeemed":"`, amount, `","remainingBalance":"`, balance, `"`, order)
	if w.raised != nil {
		b = add(b, `,"requestedAmount":"`, w.raised.String(), `"`)
	}
	b = append(b, `},"extensions":{`...)
	if w.f.Receipts {
		w.signed = w.f.receiptOf(w.url, w.network, w.payer, r.Transaction.String(), r.At)[x402.ExtensionOfferReceipt]
	}
	first := w.credits < x402.ExtensionOfferReceipt // members are sorted
	if w.signed != nil && !first {
		b = add(b, `"`, x402.ExtensionOfferReceipt, `":`, string(w.signed), `,`)
	}
	b = add(b, w.name, `:`)
	b = w.info(b, r)
	if w.signed != nil && first {
		b = add(b, `,"`, x402.ExtensionOfferReceipt, `":`, string(w.signed))
	}
	w.buf = append(b, "}}"...)
	return w.buf
}

// info appends our extension.
func (w *rendering) info(b []byte, r ledger.Receipt) []byte {
	b = strconv.AppendInt(append(b, `{"info":{"creditsRedeemed":"`...), int64(r.Amount), 10)
	b = strconv.AppendInt(append(b, `","remainingBalance":"`...), int64(r.Balance), 10)
	b = strconv.AppendQuote(append(b, `","agentRequestId":`...), r.RequestID)
	return append(b, "}}"...)
}

// response is the answer that was rendered last.
func (w *rendering) response(r ledger.Receipt) x402.SettleResponse {
	extensions := map[string]json.RawMessage{w.credits: w.info(nil, r)}
	if w.signed != nil {
		extensions[x402.ExtensionOfferReceipt] = w.signed
	}
	return x402.SettleResponse{
		Success: true, Transaction: r.Transaction.String(), Network: w.network, Payer: w.payer,
		CreditsRedeemed: &r.Amount, RemainingBalance: &r.Balance, Amount: &r.Amount, OrderTx: r.OrderTx,
		Extra: &x402.SettleExtra{
			AgentRequestID: r.RequestID, PlanID: w.plan, AgentID: w.agent, CreditsRedeemed: &r.Amount,
			RemainingBalance: &r.Balance, OrderTx: r.OrderTx, RequestedAmount: w.raised,
		},
		Extensions: extensions,
	}
}
