package catalogue

import (
	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// Brand says how a service names plans and networks on the wire.
type Brand struct {
	Names       x402.Namespace   // zero: x402.Default
	Environment toll.Environment // zero: toll.Sandbox
}

const CardNetwork = "stripe"

// Network returns a network of records in the form of x402 objects, which need a colon.
func (b Brand) Network(network string) string {
	if network == CardNetwork {
		return b.Environment.CardNetwork()
	}
	return network
}

// Scheme returns how a plan is bought, in the form of payment requirements.
func (b Brand) Scheme(p *toll.Plan) (scheme, network string) {
	if p.Price.IsCrypto {
		return b.Names.SchemeCrypto(), b.Environment.Network()
	}
	return b.Names.SchemeCard(), b.Environment.CardNetwork()
}

// Terms returns the terms of a plan without addresses, which the list would repeat for every endpoint.
func (b Brand) Terms(p *toll.Plan) *x402.Terms {
	t := &x402.Terms{
		PlanID: p.ID, PlanName: p.Metadata.Name, PayTo: p.PayTo().String(), MinAmount: p.Credits.MinAmount,
		MaxAmount: p.Credits.MaxAmount, Kind: p.Kind(),
	}
	t.Scheme, t.Network = b.Scheme(p)
	return t
}
