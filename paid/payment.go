package paid

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// Payment describes the payment for a request to its handler. It does not contain the access token.
type Payment struct {
	Payer          string // address of the subscriber, or of the wallet
	PlanID         toll.PlanID
	AgentID        toll.AgentID // "" if the route has no agent
	AgentRequestID string       // id of this request, its settlement, and its receipt
	Held           toll.Credits // credits on hold, the maximum cost of this request
	// Exact is the entry of [PerCall] that a wallet pays, or nil if credits pay. With Exact, PlanID, AgentRequestID, and Held are zero.
	// Treat it as read-only.
	Exact *x402.ExactRequirements
	// Verdict is the facilitator's response to verify. It is shared: treat it as read-only.
	Verdict *x402.VerifyResponse
}

type paymentKey struct{}

// FromContext returns the payment of the request that the handler serves, or false outside a paid route.
func FromContext(ctx context.Context) (Payment, bool) {
	p, ok := ctx.Value(paymentKey{}).(Payment)
	return p, ok
}
