package client_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

type answering []byte

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		ContentLength: int64(len(a)), Body: io.NopCloser(bytes.NewReader(a)),
	}, nil
}

// BenchmarkSettle is what the client does for a call besides the connection.
func BenchmarkSettle(b *testing.B) {
	token := must.Get(os.ReadFile("../x402/testdata/worked-example.jwt"))(b)
	one := toll.Credits(1)
	plan := toll.NewPlanID()
	terms := &x402.Terms{PlanID: plan, Scheme: "svc:erc4337", Network: "eip155:84532", PayTo: "0x00000000000000000000000000000000000000A1", MaxAmount: 5}
	needed := x402.NewPaymentRequired([]*x402.Terms{terms}, x402.Options{Endpoint: "/ask", AgentID: toll.NewAgentID(), HTTPVerb: "POST", Amount: &one})
	answer, err := x402.Encode(&x402.SettleResponse{
		Success: true, Transaction: "0x1", Network: "eip155:84532", Payer: "0x00000000000000000000000000000000000000A1", CreditsRedeemed: &one, RemainingBalance: &one,
		Amount: &one, Extra: &x402.SettleExtra{AgentRequestID: "req_1", PlanID: plan, CreditsRedeemed: &one, RemainingBalance: &one},
	})
	must.Do(b, err)
	c := client.New("key", client.WithURL("http://127.0.0.1:8402"), client.WithHTTPClient(&http.Client{Transport: answering(answer)}))
	req := &x402.SettleRequest{PaymentRequired: *needed, AccessToken: string(token), MaxAmount: &one, AgentRequestID: "req_1"}
	b.ReportAllocs()
	for b.Loop() {
		if s, err := c.Settle(b.Context(), req); err != nil || !s.Success {
			b.Fatal(s, err)
		}
	}
}
