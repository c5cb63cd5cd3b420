package purchases

import (
	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// ExactSum returns the content of a payment of 1000 base units to another server, at https://agent.example.com/ask.
func ExactSum(flow string) toll.Hash {
	p := &exactPayment{
		payment: &x402.ExactPayment{ResourceURL: "https://agent.example.com/ask"}, settlesFirst: flow != "",
		terms: &saleTerms{entry: x402.ExactRequirements{Network: "eip155:84532", Asset: "0xA", PayTo: "0xB", Amount: "1000"}},
	}
	return p.contentOf(&x402.Requirements{MaxTimeoutSeconds: 60, PlanID: "11", Extra: x402.RequirementsExtra{Version: "2", AgentID: "12", HTTPVerb: "POST", PaymentFlow: flow}})
}

// SaleSum returns what a payment identifier stands for that is given to plan 11 for 1000 base units.
func SaleSum() toll.Hash {
	return saleContent(&toll.Plan{ID: "11"}, &saleTerms{entry: x402.ExactRequirements{Network: "eip155:84532", Asset: "0xA", PayTo: "0xB", Amount: "1000"}})
}
