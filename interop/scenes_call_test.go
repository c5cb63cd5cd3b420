package interop

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// paysPerCall has a wallet that knows nothing of plans call an agent of ours, which lists an exact entry beside that of its plan.
func paysPerCall(t *testing.T, m *market) {
	s := sell(t, m, 100)
	o := s.O(paid.PerCall(paid.Exact{Currency: toll.CurrencyUSDC, Amount: toll.UnitsOf(20_000)}))
	s.order = o
	bought := s.wallet("buy", map[string]any{"url": o.ask})
	if len(bought.Trips) != 2 || bought.Trips[0].Status != 402 || bought.Status != http.StatusOK || bought.Body != `{"answer":42}` {
		t.Fatalf("%+v", bought)
	}
	var receipt struct {
		Success                             bool
		Transaction, Network, Payer, Amount string
	}
	if err := json.Unmarshal(decoded(t, bought.Headers["payment-response"]), &receipt); err != nil || !receipt.Success || len(receipt.Transaction) != 66 ||
		receipt.Network != network || receipt.Payer != s.address.String() || receipt.Amount != "20000" {
		t.Errorf("%+v %v", receipt, err)
	}
	s.ends(1, 0)
	// What was paid serves one call, and the header is public from then on.
	cheaper := edited(t, s.signed("pay", map[string]any{}), func(p map[string]any) { member(p, "accepted")["amount"] = "1" })
	for payment, reason := range map[string]string{bought.Trips[1].Payment: x402.ReasonDuplicate, cheaper: x402.ReasonInvalidRequirements} {
		if a := s.send(o, payment); a.status != http.StatusPaymentRequired {
			t.Errorf("%s: %d %s", reason, a.status, a.body)
		} else {
			s.begins(a.error(), reason)
		}
	}
	if n := o.runs(); n != 1 {
		t.Errorf("%d runs", n)
	}
	s.ends(1, 0)
}
