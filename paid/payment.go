package paid

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// Payment is what a handler may know of the payment for its request. The access token is not part of it.
type Payment struct {
	Payer          string // address of the subscriber, or of the wallet
	PlanID         toll.PlanID
	AgentID        toll.AgentID // "" when the route names no agent
	AgentRequestID string       // id of this request, of its settlement and of its receipt
	Held           toll.Credits // credits set aside, the most that this request can cost
	// Exact is the entry of [PerCall] that a wallet pays, nil when credits pay. The request then has no plan, no id and nothing held.
	// Treat it as read-only.
	Exact *x402.ExactRequirements
	// Verdict is the verified answer of the facilitator. It is shared: treat it as read-only.
	Verdict *x402.VerifyResponse
}

type paymentKey struct{}

// FromContext returns the payment of the request that is being handled, and false outside a paid route.
func FromContext(ctx context.Context) (Payment, bool) {
	p, ok := ctx.Value(paymentKey{}).(Payment)
	return p, ok
}
