package x402_test

import (
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// BenchmarkVerifyBody is what each verify pays for decoding: the body, then its access token.
func BenchmarkVerifyBody(b *testing.B) {
	required := golden(b, "payment-required.json")
	for name, tok := range map[string]string{"jwt": golden(b, "worked-example.jwt"), "x402": golden(b, "worked-example.x402")} {
		body := []byte(`{"paymentRequired":` + required + `,"x402AccessToken":"` + tok + `","maxAmount":"5","hold":true}`)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				var r x402.VerifyRequest
				must.Do(b, x402.Decode(body, &r))
				must.Get(x402.DecodeToken(r.AccessToken))(b)
			}
		})
	}
}

func BenchmarkSettleAnswer(b *testing.B) {
	five := toll.Credits(5)
	r := x402.SettleResponse{
		Success: true, Transaction: jti, Network: "eip155:84532", Payer: payer, CreditsRedeemed: &five, RemainingBalance: &five, Amount: &five,
		Extra: &x402.SettleExtra{AgentRequestID: "req_xk7yftfphzlb7gnockbagt7ga4_qlz6truv3rvy2gyr", PlanID: planID, AgentID: agentID, CreditsRedeemed: &five, RemainingBalance: &five},
	}
	b.ReportAllocs()
	for b.Loop() {
		must.Get(x402.Encode(&r))(b)
	}
}

func BenchmarkMatchEndpoint(b *testing.B) {
	list := []toll.Endpoint{{Verb: "POST", URL: "https://agent.example.com/ask"}, {Verb: "GET", URL: "https://agent.example.com/t/:id"}}
	es := x402.NewEndpoints(list)
	b.Run("prepared", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			es.Match("https://agent.example.com/ask", "POST")
		}
	})
	b.Run("once", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			x402.NewEndpoints(list).Match("https://agent.example.com/ask", "POST")
		}
	})
}

// BenchmarkAnswers is what a middleware pays for reading the two answers of a paid call, BenchmarkRequests for writing the bodies.
func BenchmarkAnswers(b *testing.B) {
	v := fullVerify()
	v.InvalidReason, v.InvalidMessage, v.Code, v.Extra.CheckoutURL = "", "", "", ""
	s := fullSettle()
	s.ErrorReason, s.ErrorMessage, s.Code, s.OrderTx, s.Extra.OriginalTransaction, s.Extra.CheckoutURL = "", "", "", "", "", ""
	delete(s.Extensions, "other")
	for name, c := range map[string]struct {
		answer any
		into   func() any
	}{"verify": {v, func() any { return new(x402.VerifyResponse) }}, "settle": {s, func() any { return new(x402.SettleResponse) }}} {
		text := must.Get(x402.Encode(c.answer))(b)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must.Do(b, x402.Decode(text, c.into()))
			}
		})
	}
}

func BenchmarkRequests(b *testing.B) {
	five := toll.Credits(5)
	terms := &x402.Terms{PlanID: planID, Scheme: "svc:erc4337", Network: "eip155:84532", PayTo: payer, MinAmount: 1, MaxAmount: 5, ServiceURL: "https://pay.example.com/api/v1"}
	p := x402.NewPaymentRequired([]*x402.Terms{terms}, x402.Options{Endpoint: "https://agent.example.com/ask", AgentID: agentID, HTTPVerb: "POST"})
	tok := golden(b, "worked-example.jwt")
	for name, body := range map[string]any{
		"verify": &x402.VerifyRequest{PaymentRequired: *p, AccessToken: tok, MaxAmount: &five, Hold: true, HoldSecs: 60},
		"settle": &x402.SettleRequest{PaymentRequired: *p, AccessToken: tok, MaxAmount: &five, AgentRequestID: "req_xk7yftfphzlb7gnockbagt7ga4_qlz6truv3rvy2gyr"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must.Get(x402.Encode(body))(b)
			}
		})
	}
}
