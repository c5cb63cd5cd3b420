package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// TestCall_Exact: a price in a token is not called credits, neither in what is asked for nor in the receipt.
func TestCall_Exact(t *testing.T) {
	amount := toll.Credits(1_000_000)
	for _, tc := range []struct {
		status    int
		header    string
		value     any
		exit      int
		want, not string
	}{
		{402, x402.HeaderRequired, x402.PaymentRequired{X402Version: 2, Accepts: []x402.Requirements{{
			Scheme: x402.SchemeExact, Network: "eip155:84532", Amount: "1000000", Asset: "0xA5", PayTo: "0xB0",
		}}}, 4, "1000000 base units of the token 0xA5 for 0xB0", "credit"},
		{402, x402.HeaderRequired, x402.PaymentRequired{X402Version: 2, Accepts: []x402.Requirements{{
			Scheme: x402.SchemeExact, Network: "eip155:84532", Amount: "1050000", Asset: strings.ToLower(toll.USDCSandbox.String()), PayTo: "0xB0",
		}}}, 4, "1.05 USDC for 0xB0", "credit"},
		{402, x402.HeaderRequired, x402.PaymentRequired{X402Version: 2, Accepts: []x402.Requirements{{ // the token of another network
			Scheme: x402.SchemeExact, Network: "eip155:8453", Amount: "1050000", Asset: toll.USDCSandbox.String(), PayTo: "0xB0",
		}}}, 4, "1050000 base units of the token " + toll.USDCSandbox.String(), "credit"},
		{402, x402.HeaderRequired, x402.PaymentRequired{X402Version: 2, Error: x402.ReasonExactBalance + ": too low"}, 4, "less than the price", "credit"},
		{200, x402.HeaderResponse, x402.SettleResponse{Success: true, Transaction: "0x77", Amount: &amount}, 0, "amount 1000000, transaction 0x77", "credit"},
	} {
		value, err := x402.EncodeHeader(tc.value)
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(tc.header, value)
			w.WriteHeader(tc.status)
		}))
		var out, said strings.Builder
		a := &app{in: strings.NewReader(""), out: &out, err: &said, getenv: func(string) string { return "" }}
		if code := run(t.Context(), []string{"call", srv.URL}, a); code != tc.exit {
			t.Errorf("exit %d, want %d", code, tc.exit)
		}
		srv.Close()
		if got := said.String(); !strings.Contains(got, tc.want) || strings.Contains(got, tc.not) {
			t.Errorf("said %q, want %q and nothing of %q", got, tc.want, tc.not)
		}
	}
}
